//! Files of a stere pool read and written without the kernel in between.
//!
//! A file of a mounted pool is opened through its mount, as always: so the kernel decides who may. Its descriptor goes to the pool's
//! daemon, and from then on requests go to the daemon directly, with the data in memory that both have. A pool that is not
//! mounted is opened in this process ([`Pool`]), which needs the right to its devices and locks them as a mount does.
//!
//! ```no_run
//! # fn main() -> Result<(), stere::Error> {
//! let file = stere::File::open("/mnt/tank/film.mkv", stere::Options::new().read(true).write(true).create(true))?;
//! file.write_at(b"all of the devices' rate", 0)?;
//! file.sync()?;
//! let mut bytes = vec![0; 8 << 20];
//! let count = file.read_at(&mut bytes, 0)?;
//! # drop(count);
//! file.close()
//! # }
//! ```
//!
//! Invariants: when `write_at` returns, who reads through the mount or the library gets the new bytes and the new size; when `sync`
//! returns, they are durable. A [`File`] may be used by several threads at once.
//! Read next: `file.rs`, `channel.rs` (through the daemon), `direct.rs`, `c.rs` with `include/stere.h`; `docs/design/library.md`.
#![cfg(target_os = "linux")]

mod c;
mod channel;
mod direct;
mod error;
mod file;

pub use direct::{Pool, PoolOptions};
pub use error::Error;
pub use file::{File, Options, Piece};
