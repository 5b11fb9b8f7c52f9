//! What is to be rebuilt: tasks, and what is remembered between steps. Read next: `rebuild.rs`, `mend.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use stere_device::Completion;
use stere_format::{BLOCK_BYTES, ChunkPlace, DeviceIndex, DeviceState, SegmentChunks};
use stere_log::Segment;

/// A chunk under way to its slot.
pub(crate) struct Written {
    pub segment: Arc<Segment>,
    pub(super) place: Arc<SegmentChunks>,
    pub(super) slots: Vec<(usize, ChunkPlace)>,
    /// Those of the slots that were taken for it.
    pub(super) taken: Vec<ChunkPlace>,
    pub bytes: u64,
}

/// What the mender remembers; nothing of it is needed after a crash.
#[derive(Default)]
pub(crate) struct Mender {
    /// Chunks for which nothing could be done, until something about the devices changes.
    pub impossible: BTreeSet<(u64, usize)>,
    /// Of them, those that no device gives: they stay where they are.
    pub unreadable: BTreeSet<(u64, usize)>,
    /// Chunks whose own slot did not take them.
    pub unfillable: BTreeSet<(u64, usize)>,
    pub bytes_done: u64,
    pub chunks_done: u64,
    /// Segments to be looked at, the next one last.
    pub queue: Vec<u64>,
    /// Chunks on their way to their slots; what follows is read meanwhile.
    pub submitted: Vec<(Completion, Written)>,
    /// Whether chunks may move for the sake of even filling.
    pub rebalances: bool,
    /// Whether something changed that only the next checkpoint makes durable.
    pub is_unrecorded: bool,
    /// Suspended devices that were given another chance, and have not proved yet that they deserved it.
    pub resumed: BTreeSet<DeviceIndex>,
    /// How many metadata segments had another number of copies than they shall have, before the last checkpoint.
    pub misfits_before: Option<usize>,
}

impl Mender {
    /// Gives chunks that no device gave another chance; whether there are any.
    pub fn try_unreadable_again(&mut self) -> bool {
        let unreadable = std::mem::take(&mut self.unreadable);
        assert!(unreadable.is_subset(&self.impossible), "what no device gives cannot be rebuilt");
        self.impossible.retain(|chunk| !unreadable.contains(chunk));
        !unreadable.is_empty()
    }

    /// The devices changed: what was impossible may be possible.
    pub fn forget_failures(&mut self) {
        self.impossible.clear();
        self.unreadable.clear();
        self.unfillable.clear();
        self.resumed.clear();
        // What is least protected now comes first.
        self.queue.clear();
    }
}

/// What a chunk needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// To be written where it is placed.
    Fill,
    /// To be written elsewhere, on that device if one is named.
    Move(Option<DeviceIndex>),
    /// Its device.
    Wait,
}

pub(crate) struct Task {
    pub segment: Arc<Segment>,
    pub place: Arc<SegmentChunks>,
    pub needs: Vec<(usize, Need)>,
    /// How many more chunks may fail before content is lost.
    pub(crate) spare: i32,
}

impl Task {
    pub fn bytes_of_chunk(&self) -> u64 {
        u64::from(self.segment.blocks_in_use()) * BLOCK_BYTES as u64
    }
}

/// What the table says of a device, and whether it is there.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    pub state: DeviceState,
    pub is_attached: bool,
    pub is_suspended: bool,
}

/// The devices of the other chunks.
pub(crate) fn others(place: &SegmentChunks, chunk: usize) -> Vec<DeviceIndex> {
    let others = place.chunks.iter().enumerate().filter(|(at, _)| *at != chunk);
    others.map(|(_, place)| place.device).collect()
}
