//! Any bytes to any decoder: the first byte chooses which.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stere_format::fuzz::any(bytes));
