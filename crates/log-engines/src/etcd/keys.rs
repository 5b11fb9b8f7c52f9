//! The keys and values in etcd, and the requests on them; `docs/format/shared-log.md` describes them.
//!
//! Invariant: numbers are 16 hexadecimal digits, so that comparing bytes compares numbers. Read next: `../etcd.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::{Pool, hexadecimal};

pub(super) const POOLS: &str = "stere/pools/";
/// The first key after all those of `POOLS`.
pub(super) const POOLS_END: &str = "stere/pools0";

pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Bytes of a field; etcd leaves out empty ones.
pub(super) fn decoded(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str().unwrap_or_default()).ok()
}

pub(super) fn digits(number: u64) -> String {
    format!("{number:016x}")
}

pub(super) fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 16)?;
    u64::from_str_radix(text, 16).ok()
}

/// 16 bytes as 32 digits.
pub(super) fn id(digits: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == 32)?;
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

/// The keys of one pool.
pub(super) struct Keys {
    pub(super) name: String,
    pub(super) first: String,
    pub(super) beat: String,
    records: String,
    machines: String,
}

impl Keys {
    pub(super) fn new(pool: Pool) -> Self {
        let id = hexadecimal(&pool);
        let log = format!("stere/log/{id}");
        let (first, beat) = (format!("{log}/first"), format!("{log}/beat"));
        Keys {
            name: format!("{POOLS}{id}"),
            first,
            beat,
            records: format!("{log}/record/"),
            machines: format!("{log}/machine/"),
        }
    }

    pub(super) fn record(&self, number: u64) -> String {
        format!("{}{}", self.records, digits(number))
    }

    /// The number in a key of a record, as etcd sends it.
    pub(super) fn number(&self, key: &Value) -> Option<u64> {
        number(decoded(key)?.strip_prefix(self.records.as_bytes())?)
    }

    /// The first key after all records.
    pub(super) fn records_end(&self) -> String {
        format!("{}0", self.records.trim_end_matches('/'))
    }

    pub(super) fn machine(&self, machine: [u8; 16]) -> String {
        format!("{}{}", self.machines, hexadecimal(&machine))
    }

    /// The id in a key of a machine, as etcd sends it.
    pub(super) fn machine_of(&self, key: &Value) -> Option<[u8; 16]> {
        id(decoded(key)?.strip_prefix(self.machines.as_bytes())?)
    }

    fn machines_end(&self) -> String {
        format!("{}0", self.machines.trim_end_matches('/'))
    }

    pub(super) fn get_machines(&self) -> Value {
        json!({ "request_range": range(&self.machines, &self.machines_end()) })
    }

    pub(super) fn count_machines(&self) -> Value {
        let mut range = range(&self.machines, &self.machines_end());
        range["count_only"] = json!(true);
        json!({ "request_range": range })
    }

    pub(super) fn delete_machines(&self) -> Value {
        delete_range(&self.machines, &self.machines_end())
    }

    pub(super) fn get_last_record(&self) -> Value {
        let mut range = range(&self.records, &self.records_end());
        range["limit"] = json!(1);
        range["sort_order"] = json!("DESCEND");
        range["sort_target"] = json!("KEY");
        range["keys_only"] = json!(true);
        json!({ "request_range": range })
    }

    pub(super) fn delete_records(&self) -> Value {
        delete_range(&self.records, &self.records_end())
    }
}

pub(super) fn range(from: &str, end: &str) -> Value {
    json!({ "key": encoded(from), "range_end": encoded(end) })
}

pub(super) fn get(key: &str) -> Value {
    json!({ "request_range": { "key": encoded(key) } })
}

pub(super) fn put(key: &str, value: impl AsRef<[u8]>) -> Value {
    json!({ "request_put": { "key": encoded(key), "value": encoded(value) } })
}

pub(super) fn delete(key: &str) -> Value {
    json!({ "request_delete_range": { "key": encoded(key) } })
}

pub(super) fn delete_range(from: &str, end: &str) -> Value {
    json!({ "request_delete_range": range(from, end) })
}

pub(super) fn is_absent(key: &str) -> Value {
    json!({ "key": encoded(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0" })
}

/// Whether there is no key from one to before another.
pub(super) fn are_absent(from: &str, end: &str) -> Value {
    let mut compare = is_absent(from);
    compare["range_end"] = json!(encoded(end));
    compare
}

pub(super) fn is_there(key: &str) -> Value {
    json!({ "key": encoded(key), "target": "CREATE", "result": "GREATER", "create_revision": "0" })
}

/// Whether the value of a key is below; it is not when the key is absent.
pub(super) fn is_below(key: &str, value: &str) -> Value {
    json!({ "key": encoded(key), "target": "VALUE", "result": "LESS", "value": encoded(value) })
}

pub(super) fn is_equal(key: &str, value: impl AsRef<[u8]>) -> Value {
    json!({ "key": encoded(key), "target": "VALUE", "result": "EQUAL", "value": encoded(value) })
}

pub(super) fn transaction(compare: Vec<Value>, success: Vec<Value>, failure: Vec<Value>) -> Value {
    json!({ "compare": compare, "success": success, "failure": failure })
}

/// The keys that the n-th answer of a transaction has.
pub(super) fn found(answer: &Value, n: usize) -> &[Value] {
    answer["responses"][n]["response_range"]["kvs"].as_array().map_or(&[], Vec::as_slice)
}

/// How many keys the n-th answer of a transaction counts.
pub(super) fn count(answer: &Value, n: usize) -> u64 {
    let count = &answer["responses"][n]["response_range"]["count"];
    count.as_str().and_then(|count| count.parse().ok()).unwrap_or(0)
}

pub(super) fn has_succeeded(answer: &Value) -> bool {
    answer["succeeded"].as_bool().unwrap_or(false)
}

pub(super) fn revision(answer: &Value) -> Option<u64> {
    answer["header"]["revision"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_in_the_order_of_their_numbers() {
        let keys = Keys::new([0xab; 16]);
        assert_eq!(keys.record(255), "stere/log/abababababababababababababababab/record/00000000000000ff");
        assert!(keys.record(9) < keys.record(10) && keys.record(u64::MAX) < keys.records_end());
        assert_eq!(keys.number(&json!(encoded(keys.record(77)))), Some(77));
        assert_eq!(keys.number(&json!(encoded(&keys.first))), None);
        assert!(POOLS < keys.name.as_str() && keys.name.as_str() < POOLS_END);
    }
}
