//! A stack of plugins over a directory of any file system: compression, encryption and users' plugins, without a pool and for an
//! ordinary user.
//!
//! Names, directories, links and attributes are those of the source, one to one; rules decide which files are stored in another
//! form, and only their content differs ([`stacked`]). Everything else is passed through. No clock, no threads of its own beyond
//! the session's.
//! What was changed can be followed up afterwards, by plugins and by copies (`queue.rs`, `follow.rs`).
//! Read next: `way.rs` (which files are stored how), `stacked.rs` (the form), `server.rs` (the mount), `docs/design/stack.md`.

mod coder;
mod error;
mod follow;
mod key;
mod layout;
mod queue;
mod server;
pub mod stacked;
mod way;

pub use coder::Coder;
pub use error::Error;
pub use follow::Follower;
pub use key::{KEY_FILE_NAME, key_of};
pub use layout::{fuzz_header, fuzz_index};
pub use queue::{QUEUE_FILE_NAME, Queue, Waiting};
pub use server::{Options, mount};
pub use way::{Rules, Way};
