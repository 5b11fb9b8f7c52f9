//! Any bytes as what a server of block devices answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stere_nbd::wire::fuzz(bytes));
