//! A log in etcd: one key for each record.
//!
//! Invariants: a put is one transaction, which answers whose record has the number if it could not be put; a number is free
//! only if its key is absent, the one before it is there, and `first` is not above it. What is trimmed is deleted, and its
//! history is compacted by the next trim. Read next: `etcd/keys.rs`, `etcd/gateway.rs`.

mod gateway;
mod keys;
mod machines;
mod manage;

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use stere_shared_log::{Bounds, ENTRY_BYTES_MAX, Error, Machine, Put, RECORD_BYTES_MAX, Record, SharedLog};

use self::gateway::Gateway;
use self::keys::{Keys, found, has_succeeded, transaction};
use crate::address::Address;
use crate::deadline::Deadline;
use crate::{Pool, no_log, past_the_end, random_id};

/// Before the record in its value.
const WRITER_BYTES: usize = 16;
/// One page of a read: as many records as are likely to have so many bytes.
const PAGE_BYTES: usize = 4 << 20;
const PAGE_RECORDS_FIRST: usize = 4;
const PAGE_RECORDS_MAX: usize = 1024;
/// Every beat leaves the one before it in etcd's history until that is compacted.
const BEATS_BETWEEN_COMPACTIONS: u32 = 1000;

pub(crate) struct EtcdLog {
    gateway: Gateway,
    keys: Keys,
    pool: Pool,
    writer: [u8; WRITER_BYTES],
    deadline: Duration,
    history: Mutex<History>,
}

/// What of etcd's history nobody needs.
#[derive(Default)]
struct History {
    /// Where it was when it was looked at last; what is older goes the next time.
    revision: Option<u64>,
    beats: u32,
}

impl EtcdLog {
    pub(crate) fn new(address: Address, pool: Pool, deadline: Duration) -> Result<Self, Error> {
        let writer = random_id(&address)?;
        let (gateway, keys) = (Gateway::new(address)?, Keys::new(pool));
        Ok(EtcdLog { gateway, keys, pool, writer, deadline, history: Mutex::default() })
    }

    fn address(&self) -> &Address {
        &self.gateway.address
    }

    fn limit(&self) -> Deadline {
        Deadline::after(self.deadline)
    }

    fn transact(&self, deadline: Deadline, request: Value) -> Result<Value, Error> {
        self.gateway.ask(deadline, "/v3/kv/txn", &request)
    }

    fn damaged(&self, why: &str) -> Error {
        self.address().damaged(why)
    }

    /// Where the log begins, from the n-th answer of a transaction.
    fn first(&self, answer: &Value, n: usize) -> Result<u64, Error> {
        let first = found(answer, n).first().ok_or_else(|| no_log(self.address(), self.pool))?;
        let number = keys::decoded(&first["value"]).and_then(|value| keys::number(&value)).filter(|first| *first > 0);
        number.ok_or_else(|| self.damaged("its key `first` has no number"))
    }

    /// The number of the last record, from the n-th answer of a transaction.
    fn last(&self, answer: &Value, n: usize) -> Result<Option<u64>, Error> {
        let Some(last) = found(answer, n).first() else { return Ok(None) };
        self.keys.number(&last["key"]).map(Some).ok_or_else(|| self.damaged("the key of a record has no number"))
    }

    /// The bounds, from two answers of a transaction.
    fn bounds_of(&self, answer: &Value, n: usize) -> Result<Bounds, Error> {
        let (first, last) = (self.first(answer, n)?, self.last(answer, n + 1)?);
        match last {
            None if first == 1 => Ok(Bounds { first, next: first }),
            Some(last) if last >= first => Ok(Bounds { first, next: last + 1 }),
            _ => Err(self.damaged("its last records are missing")),
        }
    }

    fn get_bounds(&self) -> Vec<Value> {
        vec![keys::get(&self.keys.first), self.keys.get_last_record()]
    }

    /// The writer and the bytes of a record.
    fn parts(&self, found: &Value) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let mut writer = keys::decoded(&found["value"]).filter(|value| value.len() >= WRITER_BYTES);
        let record = writer.as_mut().map(|value| value.split_off(WRITER_BYTES));
        writer.zip(record).ok_or_else(|| self.damaged("the value of a record is too short"))
    }

    fn page(&self, deadline: Deadline, from: u64, limit: usize) -> Result<(u64, Vec<Record>), Error> {
        let mut range = keys::range(&self.keys.record(from), &self.keys.records_end());
        range["limit"] = json!(limit);
        let requests = vec![keys::get(&self.keys.first), json!({ "request_range": range })];
        let answer = self.transact(deadline, transaction(vec![], requests, vec![]))?;
        let first = self.first(&answer, 0)?;
        let mut records = Vec::new();
        for (expected, one) in (from..).zip(found(&answer, 1)) {
            let sequence = self.keys.number(&one["key"]);
            if sequence != Some(expected) && from >= first {
                return Err(self.damaged(&format!("record {expected} is missing, and later ones are there")));
            }
            records.push(Record { sequence: expected, bytes: self.parts(one)?.1 });
        }
        Ok((first, records))
    }

    /// Lets etcd forget what was before the last time. That it may not, or somebody did, is no error.
    fn compact(&self, deadline: Deadline, answer: &Value) {
        let Some(now) = keys::revision(answer) else { return };
        let before = self.history.lock().revision.replace(now);
        if let Some(before) = before {
            let request = json!({ "revision": before.to_string() });
            let _ = self.gateway.ask(deadline, "/v3/kv/compaction", &request);
        }
    }
}

impl SharedLog for EtcdLog {
    fn put(&self, sequence: u64, record: &[u8]) -> Result<Put, Error> {
        assert!(record.len() <= RECORD_BYTES_MAX, "a record of {} bytes is cut before it is put", record.len());
        let key = self.keys.record(sequence);
        // No `first` is as large as the largest number, which so never is one.
        let mut compare = vec![keys::is_absent(&key)];
        compare.push(keys::is_below(&self.keys.first, &keys::digits(sequence.saturating_add(1))));
        if sequence > 1 {
            compare.push(keys::is_there(&self.keys.record(sequence - 1)));
        }
        // Holes are never filled. It is asked last, when the number itself is free.
        compare.push(keys::are_absent(&key, &self.keys.records_end()));
        let value = [&self.writer[..], record].concat();
        let mut otherwise = self.get_bounds();
        otherwise.push(keys::get(&key));
        let request = transaction(compare, vec![keys::put(&key, value)], otherwise);
        let answer = self.transact(self.limit(), request)?;
        if has_succeeded(&answer) && sequence > 0 {
            return Ok(Put::Mine);
        }
        let bounds = self.bounds_of(&answer, 0)?;
        if sequence < bounds.first {
            return Ok(Put::Taken);
        }
        let Some(there) = found(&answer, 2).first() else {
            return Err(match sequence > bounds.next {
                true => past_the_end(self.address(), sequence, bounds.next),
                false => self.damaged(&format!("record {sequence} or the one before it is missing")),
            });
        };
        let (writer, bytes) = self.parts(there)?;
        Ok(if writer == self.writer && bytes == record { Put::Mine } else { Put::Taken })
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<Record>, Error> {
        let deadline = self.limit();
        let mut records: Vec<Record> = Vec::new();
        let (mut bytes, mut limit) = (0, PAGE_RECORDS_FIRST);
        loop {
            let at = from + records.len() as u64;
            let page = match self.page(deadline, at, limit) {
                Ok((first, page)) if first <= at => page,
                Ok((first, _)) if records.is_empty() => return Err(Error::Trimmed { asked: from, first }),
                Err(error) if records.is_empty() => return Err(error),
                // What was read is right; the next call says what is wrong with the rest.
                _ => return Ok(records),
            };
            let (is_last, page_bytes) =
                (page.len() < limit, page.iter().map(|record| record.bytes.len()).sum::<usize>());
            for record in page {
                bytes += record.bytes.len();
                if !records.is_empty() && bytes > bytes_max {
                    return Ok(records);
                }
                records.push(record);
            }
            if is_last || bytes >= bytes_max {
                return Ok(records);
            }
            let likely = PAGE_BYTES / (page_bytes / limit).max(1);
            limit = likely.clamp(1, PAGE_RECORDS_MAX).min(limit * 8);
        }
    }

    fn trim(&self, before: u64) -> Result<(), Error> {
        let deadline = self.limit();
        let answer = self.transact(deadline, transaction(vec![], self.get_bounds(), vec![]))?;
        let bounds = self.bounds_of(&answer, 0)?;
        let before = before.min(bounds.next.saturating_sub(1));
        if before <= bounds.first {
            return Ok(());
        }
        // Another trim may have come between; if it went further, all is done.
        let digits = keys::digits(before);
        let compare = vec![keys::is_below(&self.keys.first, &digits)];
        let success = vec![
            keys::put(&self.keys.first, &digits),
            keys::delete_range(&self.keys.record(0), &self.keys.record(before)),
        ];
        let answer = self.transact(deadline, transaction(compare, success, vec![]))?;
        self.compact(deadline, &answer);
        Ok(())
    }

    fn bounds(&self) -> Result<Bounds, Error> {
        let answer = self.transact(self.limit(), transaction(vec![], self.get_bounds(), vec![]))?;
        self.bounds_of(&answer, 0)
    }

    fn beat(&self, beat: &[u8]) -> Result<(), Error> {
        let deadline = self.limit();
        let compare = vec![keys::is_there(&self.keys.first)];
        let answer = self.transact(deadline, transaction(compare, vec![keys::put(&self.keys.beat, beat)], vec![]))?;
        if !has_succeeded(&answer) {
            return Err(no_log(self.address(), self.pool));
        }
        let mut history = self.history.lock();
        history.beats += 1;
        if history.beats >= BEATS_BETWEEN_COMPACTIONS {
            history.beats = 0;
            drop(history);
            self.compact(deadline, &answer);
        }
        Ok(())
    }

    fn last_beat(&self) -> Result<Vec<u8>, Error> {
        let requests = vec![keys::get(&self.keys.first), keys::get(&self.keys.beat)];
        let answer = self.transact(self.limit(), transaction(vec![], requests, vec![]))?;
        self.first(&answer, 0)?;
        let beat = found(&answer, 1).first().map(|beat| keys::decoded(&beat["value"]));
        beat.unwrap_or(Some(Vec::new())).ok_or_else(|| self.damaged("its beat is not in base64"))
    }

    fn machines(&self) -> Result<Vec<(Machine, Vec<u8>)>, Error> {
        self.read_machines()
    }

    fn put_machine(&self, machine: Machine, before: Option<&[u8]>, entry: &[u8]) -> Result<Put, Error> {
        assert!(entry.len() <= ENTRY_BYTES_MAX, "an entry of {} bytes is no machine's", entry.len());
        self.change_machine(machine, before, entry)
    }
}
