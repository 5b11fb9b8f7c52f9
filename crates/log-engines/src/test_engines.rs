//! Real engines for tests: started on a free port, in a temporary directory, and gone when the value is dropped.
//!
//! Invariants: starting and stopping end in time; nothing that was started outlives its value, not even when it is paused.
//! A missing engine fails the test, unless `STERE_TEST_SKIP_ENGINES` is set: then `start` gives none, and says so.
//! Read next: `test_engines/postgresql.rs`, `test_engines/etcd.rs`, `test_engines/process.rs`.

mod etcd;
mod postgresql;
mod process;

pub use self::etcd::Etcd;
pub use self::postgresql::PostgreSql;

use std::net::TcpListener;

const SKIP: &str = "STERE_TEST_SKIP_ENGINES";

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine is free");
    listener.local_addr().expect("a listener has an address").port()
}

/// What a test does without an engine.
fn missing<T>(engine: &str, how: &str) -> Option<T> {
    assert!(std::env::var_os(SKIP).is_some(), "{engine} is not installed: {how}; or set {SKIP} to skip its tests");
    eprintln!("SKIPPED: {engine} is not installed: {how}");
    None
}
