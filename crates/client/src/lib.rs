//! A mount on a machine that does not own the pool: the kernel's requests go to the owner, wherever it is.
//!
//! Commands that ask the owner's process are carried there over connections of their own (`commands.rs`). [`Forwarder`] is the file system that the kernel sees; all it does is to give each request to the [`Link`], which sends it to the
//! owner and answers the kernel with what the owner answered. The link finds the owner ([`FindOwner`]), proves itself, and when the owner
//! is gone finds the next one, tells it what this kernel has open, knows and has written, and asks again what was not answered.
//!
//! Invariants: a request is answered once; it waits as long as there is no owner, until the mount ends; what was written and is not known
//! to be durable is kept; ids of users are those of this machine towards the kernel, and those of the pool towards the owner
//! (`identities.rs`). Read next: `link.rs` (threads), `leased.rs` (what it may believe), `state.rs` (requests and answers), `restore.rs` (the next owner),
//! `docs/design/machines.md`.
#![cfg(target_os = "linux")]

mod commands;
mod direct;
mod forwarder;
mod greet;
mod handles;
pub mod identities;
mod leased;
mod link;
mod mapped;
mod mount;
mod notices;
mod reach;
mod restore;
mod retained;
mod state;
mod wire;

pub use commands::CommandsError;
pub use direct::{Prepare, Prepared, Wanted, WriteContent};
pub use forwarder::Forwarder;
pub use link::{Announcement, FindOwner, Finished, Link, LinkOptions};
pub use mapped::ReadContent;
pub use mount::{Mount, MountError};
pub use reach::Reach;
