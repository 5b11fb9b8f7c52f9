//! Metadata segments that the next checkpoint empties, by writing the nodes in them anew. Read next: `checkpoint.rs`.

use std::sync::Arc;

use stere_format::{RecordSubject, SegmentKind};
use stere_log::Segment;
use stere_tree::Touch;

use crate::checkpointer::Checkpointer;
use crate::engine::Engine;
use crate::error::Error;

/// Metadata segments emptied per checkpoint at most.
const CONDEMNED_MAX: usize = 4;

/// Capacity of a segment for content, about.
pub(crate) fn segment_bytes(engine: &Engine, segment: &Segment) -> u64 {
    u64::from(engine.log.chunk_bytes()) * u64::from(segment.scheme.data)
}

/// Picks metadata segments that the next merge shall empty.
pub(crate) fn choose_condemned(engine: &Engine, state: &mut Checkpointer) -> Result<(), Error> {
    let meta: Vec<_> = engine
        .log
        .segments
        .all()
        .into_iter()
        .filter(|segment| segment.kind == SegmentKind::Meta && segment.is_sealed())
        .collect();
    // Written when there were fewer devices, or more: now metadata has another number of copies.
    let width = engine.places().meta_stream().scheme.width();
    let misfits = meta.iter().filter(|segment| segment.scheme.width() != width && segment.live_bytes() > 0);
    for victim in misfits.take(CONDEMNED_MAX) {
        condemn(engine, state, victim)?;
    }
    let held: u64 = meta.iter().map(|segment| segment_bytes(engine, segment)).sum();
    let live: u64 = meta.iter().map(|segment| segment.live_bytes()).sum();
    let is_scarce = engine.space().lacks_meta_segments();
    let chunk_bytes = u64::from(engine.log.chunk_bytes());
    let held_max = if is_scarce { live + live / 8 + 2 * chunk_bytes } else { 2 * live + 3 * chunk_bytes };
    // Where room is scarce it is made as fast as what is free allows: half of it, the rest is for what changed.
    let (percent_max, mut budget) = match (held >= held_max, is_scarce) {
        (false, _) => (0, 0),
        (true, true) => (90, engine.space().meta_segments_free() * chunk_bytes / 2),
        (true, false) => (60, u64::MAX),
    };
    let mut victims: Vec<_> = meta
        .into_iter()
        .filter(|segment| {
            let live = segment.live_bytes();
            live > 0 && live * 100 < segment_bytes(engine, segment) * percent_max
        })
        .collect();
    victims.sort_by_key(|segment| (segment.live_bytes(), segment.id));
    let count_max = if is_scarce { usize::MAX } else { CONDEMNED_MAX };
    for victim in victims.into_iter().take(count_max) {
        let Some(left) = budget.checked_sub(victim.live_bytes()) else { break };
        budget = left;
        condemn(engine, state, &victim)?;
    }
    state.touches.sort_unstable_by_key(|touch| (touch.first_key, touch.level));
    state.touches.dedup();
    Ok(())
}

fn condemn(engine: &Engine, state: &mut Checkpointer, segment: &Arc<Segment>) -> Result<(), Error> {
    assert!(segment.is_sealed(), "nodes are still written to segment {}", segment.id);
    let mut touches: Vec<Touch> = Vec::new();
    let mut row_block = 1;
    while row_block < segment.written_blocks() {
        let contents = match engine.log.read_row_contents(segment, row_block) {
            Ok(Some(contents)) => contents,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(segment = segment.id, %error, "a metadata segment cannot be emptied now");
                return Ok(());
            }
        };
        for entry in &contents.entries {
            if let RecordSubject::Node { level, first_key } = entry.subject {
                touches.push(Touch { first_key, level });
            }
        }
        row_block += contents.header.row_height;
    }
    state.touches.append(&mut touches);
    state.condemned.insert(segment.id);
    Ok(())
}
