//! Any bytes as the file that says which owner an export of a stere node belongs to (P-245).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stere_node::fuzz(bytes));
