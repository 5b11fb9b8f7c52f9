//! Reading ahead of the verification: while one batch of stretches is looked at, the next is read, from all devices at once.
//!
//! The store spawns no thread: reads run beside the verification where the devices bring threads, and after it where they do
//! not. What was read may be old by the time it is looked at: a segment that has gone is passed over, one whose chunks lie
//! elsewhere since is read again. Invariant: batches come in the order of the cursor, and each holds its segments, so their
//! slots are not used for anything else.

use std::ops::Range;
use std::sync::Arc;

use stere_format::{BLOCK_BYTES, ScrubCursor, SegmentChunks};
use stere_log::Segment;
use stere_stripe::Stretch;

use super::Scrubber;
use stere_engine::Engine;

/// Memory for what is read in one go, all chunks of all its stretches together; two such are held at a time.
const BATCH_BYTES: u64 = 16 << 20;
/// Of one chunk at most in one read.
const STRETCH_CHUNK_BYTES: u64 = 4 << 20;

/// A part of a segment, all its chunks side by side.
pub(super) struct Window {
    pub segment: Arc<Segment>,
    pub placed: Arc<SegmentChunks>,
    pub blocks: Range<u32>,
    /// Whether the segment ends here, as far as it had arrived when this was planned.
    pub is_last: bool,
    /// `None` where it cannot be read as it lies: row by row then, each may be readable elsewhere.
    pub stretch: Option<Stretch>,
}

/// What is to be read, in order.
pub(super) struct Ahead<'a> {
    store: &'a Engine,
    ids: std::vec::IntoIter<u64>,
    pub(crate) segment: Option<(Arc<Segment>, Arc<SegmentChunks>, Range<u32>)>,
    step_bytes: u64,
    budget_bytes: u64,
    is_at_end: bool,
}

impl<'a> Ahead<'a> {
    /// From the cursor on, about so many bytes.
    pub fn new(store: &'a Engine, cursor: &ScrubCursor, budget_bytes: u64) -> Ahead<'a> {
        let all = store.log().segments.all();
        let ids: Vec<u64> = all.iter().map(|segment| segment.id).filter(|id| *id >= cursor.segment).collect();
        let begun = cursor.block;
        let budget_bytes = budget_bytes.max(1);
        let (step_bytes, ids) = (budget_bytes, ids.into_iter());
        let mut ahead = Ahead { store, ids, segment: None, step_bytes, budget_bytes, is_at_end: false };
        ahead.next_segment();
        if let Some((segment, _, blocks)) = &mut ahead.segment {
            if segment.id == cursor.segment {
                blocks.start = begun.min(blocks.end);
            }
        }
        ahead
    }

    /// Whether nothing is left after what was handed out.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    fn next_segment(&mut self) {
        let is_wanted = |found: &Arc<Segment>| found.live_bytes() > 0 && !found.is_released();
        let found = self.ids.by_ref().find_map(|id| self.store.log().segments.get(id).filter(is_wanted));
        self.is_at_end = found.is_none();
        self.segment = found.map(|segment| {
            let (placed, end) = (segment.placed(), self.store.log().rows.arrived_blocks(&segment));
            (segment, placed, 0..end)
        });
    }

    /// The next batch, not read yet; empty when the budget or the segments are at their end.
    pub fn plan(&mut self) -> Vec<Window> {
        let (mut windows, mut room) = (Vec::new(), BATCH_BYTES);
        while let Some((segment, placed, blocks)) = self.segment.as_mut().filter(|_| room > 0 && self.budget_bytes > 0)
        {
            let begun = blocks.start;
            assert!(begun <= blocks.end, "segment {} is read from block {begun} of {}", segment.id, blocks.end);
            let width = placed.scheme.width() as u64;
            let of_chunk =
                (BATCH_BYTES.min(self.step_bytes) / width).clamp(256 << 10, STRETCH_CHUNK_BYTES) / BLOCK_BYTES as u64;
            let end = blocks.end.min(blocks.start + of_chunk as u32);
            let is_last = end == blocks.end;
            let bytes = width * u64::from(end - blocks.start).max(1) * BLOCK_BYTES as u64;
            windows.push(Window {
                segment: segment.clone(),
                placed: placed.clone(),
                blocks: blocks.start..end,
                is_last,
                stretch: None,
            });
            blocks.start = end;
            room = room.saturating_sub(bytes);
            self.budget_bytes = self.budget_bytes.saturating_sub(bytes);
            if is_last {
                self.next_segment();
            }
        }
        let place = |window: &Window| (window.segment.id, window.blocks.start);
        assert!(windows.is_sorted_by_key(place), "windows come in the order of the cursor");
        windows
    }
}

impl Scrubber {
    pub(super) fn read_window(&self, window: &mut Window) {
        window.stretch = match window.blocks.is_empty() {
            true => None,
            false => {
                self.engine.log().stripe.read_stretch(window.segment.id, &window.placed, window.blocks.clone()).ok()
            }
        };
    }

    /// Reads these while `work` is done, side by side where the devices bring threads for it.
    pub(super) fn read_beside<T: Send>(&self, windows: &mut [Window], work: impl FnOnce() -> T + Send) -> T {
        let mut outcome = None;
        let reads =
            windows.iter_mut().map(|window| Box::new(move || self.read_window(window)) as stere_device::Job<'_>);
        let own: stere_device::Job<'_> = Box::new(|| outcome = Some(work()));
        self.engine.log().stripe.run_beside(reads.collect(), own);
        outcome.expect("all jobs have run")
    }
}
