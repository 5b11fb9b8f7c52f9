//! One state of all keys, held still while it is proven: nothing is cleaned, no checkpoint is made, no update takes effect.
//!
//! Invariant: the locks are taken in the order that `engine.rs` names, and held until the state is let go. Read next: `view.rs`,
//! the store's `check.rs`.

use std::ops::ControlFlow;

use parking_lot::{MutexGuard, RwLockReadGuard};
use stere_format::{CheckpointPart, FoldValue, Key, NodeReference};
use stere_log::{Io, Segment};

use crate::Inner;
use crate::checkpointer::Checkpointer;
use crate::engine::Engine;
use crate::error::Error;
use crate::read::NeededNodes;
use crate::view::{Offloaded, View};
use stere_cleaner::Cleaner;

/// A state that does not change while this lives.
pub struct StillState<'a> {
    engine: &'a Engine,
    _cleaner: MutexGuard<'a, Cleaner>,
    checkpointer: MutexGuard<'a, Checkpointer>,
    inner: RwLockReadGuard<'a, Inner>,
}

impl StillState<'_> {
    /// Whether a checkpoint failed half-way, so that what is frozen is in no tree.
    pub fn is_half_way(&self) -> bool {
        self.inner.frozen.is_some()
    }

    /// The root of the tree.
    pub fn root(&self) -> Option<NodeReference> {
        self.inner.tree.root
    }

    /// Where the checkpoint record lies.
    pub fn parts(&self) -> &[CheckpointPart] {
        &self.checkpointer.parts
    }

    /// Offloaded key ranges, by number.
    pub fn offloaded(&self) -> impl Iterator<Item = (u64, &FoldValue)> {
        self.inner.folds.values()
    }

    /// Calls `visit` for all keys of a range that are in the tree or above it.
    pub fn each_key(&self, mut from: Key, to: Key, mut visit: impl FnMut(&Key, &[u8])) -> Result<(), Error> {
        let mut needed = NeededNodes::default();
        loop {
            let mut last = None;
            let cache = needed.cache(&self.engine.cache);
            let view = View::new(&self.inner, cache, &self.engine.log.segments, Offloaded::Through);
            let outcome = view.scan(from, to, |key, value| {
                visit(key, value);
                last = Some(*key);
                ControlFlow::Continue(())
            });
            let Some(miss) = view.take_missed() else { return outcome };
            let missed = self.engine.pin(&miss);
            self.engine.fetch_missed(Io::BLOCKING, missed, &mut needed)?;
            match last.map(|last| last.successor()) {
                None => {}
                Some(Some(next)) => from = next,
                Some(None) => return Ok(()),
            }
        }
    }
}

impl Engine {
    /// Holds the state as it is; updates wait until it is let go.
    pub fn hold_still(&self) -> StillState<'_> {
        let cleaner = self.cleaner.lock();
        let checkpointer = self.checkpointer.lock();
        let inner = self.inner.read();
        StillState { engine: self, _cleaner: cleaner, checkpointer, inner }
    }

    /// Offloaded key ranges, each with the directory that it was said of.
    pub fn offloaded_ranges(&self) -> Vec<(u64, u64)> {
        self.inner.read().folds.values().map(|(number, fold)| (number, fold.directory)).collect()
    }

    /// Corrects what is counted of a segment.
    pub fn correct_live_bytes(&self, segment: &std::sync::Arc<Segment>, delta: i64) {
        assert_ne!(delta, 0, "what is right is left alone");
        segment.add_live_bytes(delta);
        if !segment.is_released() {
            self.space.add_live(segment.scheme, delta);
        }
        self.log.changed.note(segment);
    }
}
