//! Slots of what was emptied, given back once nobody needs what lies there. Read next: `batch.rs`, `checkpoint.rs`.

use std::sync::Arc;

use crate::Inner;
use crate::engine::Engine;

/// Gives slots back that neither recovery nor a reader needs. Recovery needs none of a segment that the durable checkpoint does
/// not name, or whose end is proven by the journal that follows it; but while a checkpoint is under way that still names it, new
/// nodes, which no journal tells of, must not lie in its slots.
pub(crate) fn release_freed(engine: &Engine, inner: &mut Inner) {
    inner.assert_invariants();
    let generation = inner.generation;
    let named_to = if inner.frozen.is_some() { generation + 1 } else { inner.active_generation };
    for freed in std::mem::take(&mut inner.freed) {
        let (segment, batch) = (freed.segment.id, freed.batch);
        assert!(batch <= inner.batch, "batch {batch} tells that segment {segment} was emptied, and is still to come");
        assert!(freed.needed <= inner.active_generation, "segment {segment} waits for a checkpoint after the next");
        let is_proven = freed.batch <= inner.proven_batch && freed.needed <= named_to;
        if (freed.needed <= generation || is_proven) && Arc::strong_count(&freed.segment) == 1 {
            engine.log.stripe.slots.free_now(&freed.segment.chunks());
            engine.volumes.discard(&freed.segment);
        } else {
            inner.freed.push(freed);
        }
    }
    inner.left.retain(|left| {
        assert!(left.needed <= inner.active_generation, "a slot waits for a checkpoint after the next");
        let is_needed = left.needed > generation || !left.readers.are_left();
        if !is_needed {
            engine.log.stripe.slots.free_now(&[left.place]);
        }
        is_needed
    });
    engine.space().note_released();
}
