//! Any bytes as the headers, or as the index, of a file under `stere stack`: the first byte chooses.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| match bytes.split_first() {
    Some((choice, start)) if choice % 2 == 0 => stere_stack::fuzz_header(start),
    Some((_, index)) => stere_stack::fuzz_index(index),
    None => {}
});
