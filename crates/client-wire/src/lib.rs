//! What programs and the daemon of a mount say to each other over the mount's public socket; free of the file system itself.
//!
//! [`meet`] finds the daemon of a mount and knows who is at the other end; [`handles`] passes open files over the socket;
//! [`frame`] are the requests and answers of a session of the library. What the daemon answers to a question is its own business.
//!
//! Invariants: nothing that comes over the socket is believed before it was checked; no call here asks the mount itself,
//! so its daemon may make all of them.
//! Read next: `meet.rs`, `frame.rs`; the library is `crates/libstere`, the daemon's side `crates/daemon/src/library.rs`.
#![cfg(target_os = "linux")]

mod error;
pub mod frame;
pub mod handles;
pub mod meet;
pub mod mounts;

pub use error::Error;
