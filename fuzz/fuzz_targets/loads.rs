//! Any bytes as a trace of calls, as a table and as the text of another tool: what is understood comes back as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stere_workload::fuzz::any_bytes(bytes));
