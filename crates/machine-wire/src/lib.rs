//! What the machines that mount one pool say to each other: a client forwards its kernel's requests, the owner answers them.
//!
//! A connection is one of TLS (`crates/machine-tls`); of that nothing is known here. It begins with a greeting of both sides
//! ([`greeting`]), in which each proves ([`proof`]) that it knows the secret that the owner announced; then [`frame`]s follow, each sealed with a key of this connection. [`conversation`] carries a local socket over one.
//!
//! Invariants: every length is checked before it is used; a frame has one encoding only; what is decoded is within the limits told here.
//! Read next: `frame.rs`, `docs/format/machine-frames.md`; the client is `crates/client`, the owner `crates/daemon/src/clients.rs`.

pub mod conversation;
pub mod frame;
pub mod greeting;
pub mod proof;
mod random;
mod reader;
pub mod stream;

pub use frame::{Frame, FrameError, Head, Notice};
pub use greeting::{Challenge, Greeting, Hello, Purpose, Refusal, Welcome};
pub use proof::{Direction, SEAL_BYTES, Seal, Secret};
pub use random::random;
pub use stream::{Incoming, Outgoing, StreamError};

/// This version of what is said; another one is refused.
pub const VERSION: u16 = 10;
/// The owner counts a client's connection as gone when it heard nothing for so long, and the client the owner's.
pub const SILENCE_SECONDS_MAX: u64 = 5;
/// Both say something at least this often.
pub const PING_EVERY_SECONDS: u64 = 1;
/// For so long after it sent the last ping that was answered a client believes what it was told with a lease.
pub const LEASE_SECONDS: u64 = 4;
const _: () = assert!(LEASE_SECONDS < SILENCE_SECONDS_MAX, "a kernel believes its client for a second more");
/// How long the owner keeps what belongs to a client whose connection is gone.
pub const SESSION_SECONDS: u64 = 10;
/// Requests of one client that may be unanswered; the owner ends a connection that has more.
pub const IN_FLIGHT_MAX: usize = 65_536;
/// Bytes of a conversation that may be sent before the other side has said that it took some.
pub const WINDOW_BYTES: u32 = 256 << 10;
