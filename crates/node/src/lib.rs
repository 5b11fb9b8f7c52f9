//! A stere node: files of a directory, offered as devices to pools on other machines. It speaks NBD, so any client of it can look.
//!
//! What is here: `serve` listens and has a thread for each connection; `negotiate` agrees with a client on an export; `transmit` carries out
//! requests; `export` is the directory and its files; `fence` is which owner an export belongs to, in a file beside it; `ranges`
//! are the parts of an export that were told how to be stored, in files of their own.
//!
//! Invariants: once an export was written for an owner of some epoch, nothing of an older one is written to it any more, whatever is still on its
//! way, also after a restart; no client holds up another one, however slow or silent it is; everything that a client says is bounded.
//!
//! P-245 to P-247, P-282. Read next: `export.rs`, then `docs/design/nodes.md`.

mod error;
mod export;
mod fence;
mod negotiate;
mod ranges;
mod serve;
mod transmit;

pub use error::NodeError;
pub use fence::fuzz;
pub use serve::{Running, Server};
