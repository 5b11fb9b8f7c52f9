//! Any bytes as a frame between machines: what is decoded is within the limits and encodes to the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stere_machine_wire::frame::fuzz(bytes));
