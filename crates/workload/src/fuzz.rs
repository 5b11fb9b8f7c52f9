//! The entry point for fuzzers: any bytes as a trace, as a table, and as the text of another tool.
//!
//! What is read is noted, drawn and written again, and comes back as it was. It panics only if something here is wrong. Replayed
//! by `fuzz/tests.rs` on mutations; `fuzz/` at the top of the project drives it with libFuzzer. Read next: `trace.rs`.

use crate::advise::{DeviceClass, PoolFacts, advise};
use crate::trace::{NameRule, Trace};
use crate::{analyse, dxt, picture, table, table_file};

/// Reads any bytes.
pub fn any_bytes(bytes: &[u8]) {
    if let Ok((trace, _)) = Trace::decode(bytes) {
        look_at(&trace);
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(trace) = table_file::import(&text) {
        look_at(&trace);
    }
    if let Ok((trace, _)) = dxt::import(&text) {
        look_at(&trace);
    }
}

fn look_at(trace: &Trace) {
    let (read, missing) = Trace::decode(&trace.encode(NameRule::Plain)).expect("a trace that was written is read");
    assert!(missing.is_nothing() && read.calls == trace.calls, "a trace comes back as it was");
    let read = table_file::import(&table_file::export(trace)).expect("a table that was written is read");
    assert!(read.calls == trace.calls, "a table comes back as it was");
    let data = trace.calls.iter().filter(|call| call.kind.is_data() && call.result == 0).count();
    let (read, _) = dxt::import(&dxt::export(trace)).expect("a text that was written is read");
    assert_eq!(read.calls.len(), data, "all reads and writes come back");
    let profile = analyse::profile_of(trace);
    let named = [("any", &*profile)];
    let said = [table::basic(&named), table::sizes(&named), table::dependence(&named), picture::arrivals_svg(&named)];
    assert!(said.iter().all(|text| !text.is_empty()), "everything says something");
    table::advice(&advise(&profile, &facts()));
}

fn facts() -> PoolFacts {
    PoolFacts {
        record_bytes: 128 << 10,
        is_compressed: false,
        sampled_ratio: Some(2.0),
        data_chunks: 4,
        redundant_chunks: 2,
        ssds: 2,
        hdds: 6,
        device_class: DeviceClass::Hdd,
        cache_bytes: 1 << 30,
        has_media: true,
        stored_bytes: 2 << 40,
        idle_bytes: 1 << 40,
        idle_days: 90,
    }
}

#[cfg(test)]
mod tests;
