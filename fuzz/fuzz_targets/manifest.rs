//! Any bytes as the manifest of a destination of backups, and as its changes (P-105): what is understood comes back as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stere_backup::fuzz_manifest(bytes));
