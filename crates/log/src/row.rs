//! Rows in memory: open, on their way to the devices, or kept because they are on too few of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::{Completion, SharedBuffer};

use crate::segment::Segment;
use crate::stream::Stream;

/// A row on its way to the devices.
pub(crate) struct FlyingRow {
    pub buffer: SharedBuffer,
    pub segment: Arc<Segment>,
    pub completion: Completion,
    /// Worth being kept when it has arrived.
    pub is_wanted: bool,
}

pub(crate) enum RowInMemory {
    Open(Arc<Mutex<Stream>>),
    Flying(FlyingRow),
    /// Its writes have ended. It is kept because it is on too few devices, or on one of several only and not flushed yet.
    Kept(SharedBuffer),
}

/// What waits to be appended elsewhere.
#[derive(Default)]
pub(crate) struct Stranded {
    /// By segment: the first row that failed. All behind it counts.
    pub from: BTreeMap<u64, u32>,
    /// Whether something came that nobody has looked at.
    pub is_new: bool,
    /// Whether chunks were given up since somebody recorded that.
    pub is_unrecorded: bool,
}
