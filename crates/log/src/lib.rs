//! The log: streams of records over segments.
//!
//! A stream appends records to the open row of the open segment of its class and tells the record's address at once; rows
//! leave for the devices when they are full or when a commit closes them. Rows that have not arrived yet are read from
//! memory. The log knows nothing of what records mean. Read next: `segment.rs`, `stream.rs`, `rows.rs`, `write.rs`,
//! `rerouted.rs`, `read.rs`, `recover.rs`.

mod ahead;
mod changed;
mod counters;
mod error;
mod given;
mod heat;
mod part;
mod read;
mod recent;
mod recover;
mod repairs;
mod rerouted;
mod rows;
mod segment;
mod segment_room;
mod stream;
mod unwaited;
mod verify;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
pub use stere_device::Io;
use stere_device::{BufferPool, Completion};
use stere_format::{BLOCK_BYTES, PoolId};
use stere_stripe::Stripe;

pub use changed::ChangedSegments;
pub use counters::Counters;
pub use error::LogError;
pub use given::GivenRow;
pub use heat::HeatCell;
pub use part::{Part, are_of, is_digest_of};
pub use read::{RowContents, read_by_block, read_whole};
pub use repairs::{RepairTotals, Repairs};
pub use rows::RowsInMemory;
pub use segment::{FormerPlaces, Segment, SegmentTable};
pub use segment_room::{DataKind, MetaRoom, SegmentRoom};
pub use stream::StreamKey;
pub use verify::{Needed, Verified, proves_rows};
pub use write::{Appended, ROW_BYTES_TARGET};

use ahead::ReadAhead;
use recent::RecentRows;
use stream::Stream;

/// Limits of a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Rows under way to the devices, in bytes; appends wait beyond it.
    pub flying_bytes_max: usize,
    /// Rows of small records that are kept in memory after they have arrived, in bytes.
    pub recent_bytes_max: usize,
    /// Write right bytes over bad ones that a read finds; off for a pool that is only read.
    pub repairs: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { flying_bytes_max: 32 << 20, recent_bytes_max: 0, repairs: true }
    }
}

/// What was written since the log was opened.
#[derive(Debug, Default)]
pub struct LogStatistics {
    rows: AtomicU64,
    row_bytes: AtomicU64,
}

impl LogStatistics {
    fn row(&self, bytes: usize) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.row_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Rows and logical row bytes written.
    pub fn rows(&self) -> (u64, u64) {
        (self.rows.load(Ordering::Relaxed), self.row_bytes.load(Ordering::Relaxed))
    }
}

/// The streams and segments of a pool.
pub struct Log {
    pub stripe: Arc<Stripe>,
    pub segments: SegmentTable,
    pub buffers: BufferPool,
    pub statistics: LogStatistics,
    pub rows: RowsInMemory,
    pub room: SegmentRoom,
    pub repairs: Repairs,
    pub changed: ChangedSegments,
    pub counters: Counters,
    pool_id: PoolId,
    options: LogOptions,
    chunk_bytes: u32,
    ahead: ReadAhead,
    // Ordered: these are walked, and what that does to devices must be the same in every run.
    streams: RwLock<BTreeMap<StreamKey, Arc<Mutex<Stream>>>>,
    arrivals: Mutex<()>,
    flushes: Mutex<()>,
    headers_flying: Mutex<Vec<(Arc<Segment>, Completion)>>,
    /// Segments with rows that no flush has covered, and the first of those rows.
    unflushed: Mutex<BTreeMap<u64, (Arc<Segment>, u32)>>,
    lost_row: Mutex<Option<String>>,
}

impl Log {
    pub fn new(stripe: Arc<Stripe>, pool_id: PoolId, chunk_bytes: u32, options: LogOptions) -> Self {
        let recent = RecentRows::new(options.recent_bytes_max);
        Log {
            buffers: stripe.buffers().clone(),
            segments: SegmentTable::default(),
            statistics: LogStatistics::default(),
            rows: RowsInMemory::new(stripe.clone(), options.flying_bytes_max, recent),
            room: SegmentRoom::new(stripe.clone()),
            repairs: Repairs::new(stripe.clone(), options.repairs),
            changed: ChangedSegments::default(),
            counters: Counters::default(),
            stripe,
            pool_id,
            options,
            chunk_bytes,
            ahead: ReadAhead::default(),
            streams: RwLock::default(),
            arrivals: Mutex::new(()),
            flushes: Mutex::new(()),
            headers_flying: Mutex::default(),
            unflushed: Mutex::default(),
            lost_row: Mutex::default(),
        }
    }

    pub fn pool_id(&self) -> PoolId {
        self.pool_id
    }

    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// The largest record this pool's segments take.
    pub fn record_bytes_max(&self) -> usize {
        stere_format::record_bytes_max(self.chunk_bytes) as usize
    }

    fn stream(&self, key: &StreamKey) -> Arc<Mutex<Stream>> {
        if let Some(stream) = self.streams.read().get(key) {
            return stream.clone();
        }
        self.room.note_kind(key);
        self.streams.write().entry(*key).or_default().clone()
    }

    /// Blocks of a chunk.
    pub fn chunk_blocks(&self) -> u32 {
        self.chunk_bytes / BLOCK_BYTES as u32
    }
}
