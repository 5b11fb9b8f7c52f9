//! What one checkpoint leaves for the next. Read next: `checkpoint.rs`, `condemn.rs`.

use rustc_hash::FxHashSet;
use stere_format::CheckpointPart;
use stere_tree::Touch;

/// What the checkpointer keeps from one checkpoint to the next.
#[derive(Default)]
pub(crate) struct Checkpointer {
    pub generation: u64,
    pub parts: Vec<CheckpointPart>,
    /// The record that was written last; empty before the first one since the store was opened.
    pub record: Vec<u8>,
    /// Metadata segments to be emptied by the next merge, and the nodes of theirs to rewrite.
    pub condemned: FxHashSet<u64>,
    pub touches: Vec<Touch>,
}
