//! Any bytes as what a changer or a drive answers: sense data, element status, element addresses, block limits.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stere_robot::fuzz_replies(bytes));
