//! A mount on a machine that does not own the pool: the kernel's requests go to the owner, wherever it is.
//!
//! [`Forwarder`] is the file system that the kernel sees; all it does is to give each request to the [`Link`], which sends it to the
//! owner and answers the kernel with what the owner answered. The link finds the owner ([`FindOwner`]), proves itself, and when the owner
//! is gone finds the next one, tells it what this kernel has open, knows and has written, and asks again what was not answered.
//!
//! Invariants: a request is answered once; it waits as long as there is no owner, until the mount ends; what was written and is not known
//! to be durable is kept. Read next: `link.rs` (threads), `state.rs` (requests and answers), `restore.rs` (the next owner),
//! `docs/design/machines.md`.
#![cfg(target_os = "linux")]

mod forwarder;
mod greet;
mod handles;
mod link;
mod mount;
mod notices;
mod restore;
mod retained;
mod state;
mod wire;

pub use forwarder::Forwarder;
pub use link::{Announcement, FindOwner, Link, LinkOptions};
pub use mount::{Mount, MountError};
