//! Any bytes as what a server on another machine answers: replies of SFTP, lists of WebDAV.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drop(stere_tertiary::packet::decode(bytes));
    drop(stere_tertiary::multistatus::read(bytes));
});
