//! TLS 1.3 between the machines that use one pool: each has a key of its own, and believes keys, not names.
//!
//! Keys are told as they are (raw public keys, RFC 7250): there is no certificate, so nothing in it can expire or be wrong. Who may
//! connect is not decided here: a client names the one key that it believes, and an owner is told which key a client has.
//!
//! Invariants: both sides prove that they have their private keys, in each handshake anew (no resumption); nothing else than TLS 1.3 is
//! spoken; what is received was sent by the other side, in order, or the connection ends; a read never waits for a write, and the reverse.
//! Read next: `key.rs`, `config.rs`, `stream.rs`, `docs/design/machines.md`.

mod config;
mod key;
mod stream;

pub use config::{accept, connect};
pub use key::{KeyError, MachineKey, PublicKey};
pub use stream::{TlsError, TlsReader, TlsWriter};
