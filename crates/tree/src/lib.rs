//! The copy-on-write B+tree: nodes are log records, checksummed by their parents.
//!
//! The tree never does I/O itself. Looking up ([`Tree`]) uses only nodes in the [`NodeCache`]; where one is not there
//! the answer is a miss, which names the node, and the caller fetches it without holding anything and asks again.
//! Changing ([`Merge`]) applies a sorted batch of changes to an immutable tree and writes only the nodes on touched
//! paths, through the [`NodeIo`] it is given; the old tree stays whole until its owner lets go of it.
//!
//! Invariants: keys ascend within a node and over the leaves; an inner entry's key is exactly its child's first key;
//! no node is empty; all leaves are at level 0. [`check()`](check::check) proves them for a whole tree.
//! Read `lookup.rs` first, then `merge.rs`; the node format is `stere_format::node`.

pub mod cache;
pub mod check;
pub mod error;
pub mod io;
pub mod level;
pub mod lookup;
pub mod merge;
pub mod overlay;
pub mod range;
#[cfg(test)]
mod simulated_log;
pub mod value;
pub mod void;

pub use cache::{CacheStatistics, NodeCache};
pub use check::{CheckReport, check};
pub use error::TreeError;
pub use io::NodeIo;
pub use lookup::{Lookup, Tree, ValueRef};
pub use merge::{Merge, MergeOutcome, Progress, Touch, merge};
pub use overlay::Overlay;
pub use range::{Direction, Range, RangeStep};
pub use value::Value;
pub use void::{DELETIONS_MIN, Voids};
