//! The log: streams of records over segments.
//!
//! A stream appends records to the open row of the open segment of its class and tells the record's address at once; rows
//! leave for the devices when they are full or when a commit closes them. Rows that have not arrived yet are read from
//! memory. The log knows nothing of what records mean. Read next: `segment.rs`, `stream.rs`, `write.rs`, `stranded.rs`,
//! `read.rs`, `recover.rs`.

mod ahead;
mod error;
mod heat;
mod part;
mod read;
mod recent;
mod recover;
mod repair;
mod repairs;
mod row;
mod segment;
mod stranded;
mod stream;
mod unwaited;
mod verify;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
pub use stere_device::Io;
use stere_device::{BufferPool, Completion};
use stere_format::{BLOCK_BYTES, DeviceIndex, PoolId, Scheme, SegmentKind, Site};
use stere_stripe::Stripe;

pub use error::LogError;
pub use heat::HeatCell;
pub use part::{Part, are_of, is_digest_of};
pub use read::{RowContents, read_by_block, read_whole};
pub use repairs::RepairTotals;
pub use segment::{FormerPlaces, Segment, SegmentTable};
pub use stream::StreamKey;
pub use verify::{Needed, Verified, proves_chunk};
pub use write::{Appended, ROW_BYTES_TARGET};

use ahead::ReadAhead;
use recent::RecentRows;
use repairs::Repairs;
use row::{RowInMemory, Stranded};
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

/// Room that data leaves for metadata, in segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaRoom {
    /// The scheme of metadata.
    pub scheme: Scheme,
    /// What the next checkpoint may need at worst: the cleaner leaves it alone.
    pub needed: u64,
    /// What users leave alone: somewhat more, so that it does not take much to need room.
    pub wanted: u64,
}

impl Default for MetaRoom {
    fn default() -> Self {
        MetaRoom { scheme: Scheme { data: 1, parity: 0 }, needed: 2, wanted: 4 }
    }
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

/// What data is alike in that may lie in the same segment, but for its temperature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DataKind {
    pub scheme: Scheme,
    pub class: u8,
    pub home: Option<DeviceIndex>,
    pub tertiary: u16,
    pub site: Site,
}

impl DataKind {
    /// The kind of what a stream takes.
    pub fn of(key: &StreamKey) -> DataKind {
        let StreamKey { scheme, class, home, tertiary, site, .. } = *key;
        DataKind { scheme, class, home, tertiary, site }
    }

    /// Whether data of this scheme, class and site, for no volume, is of this kind.
    pub fn takes(&self, scheme: Scheme, class: u8, site: Site) -> bool {
        (self.scheme, self.class, self.site, self.tertiary) == (scheme, class, site, 0)
    }
}

/// The streams and segments of a pool.
pub struct Log {
    pub stripe: Arc<Stripe>,
    pub segments: SegmentTable,
    pub buffers: BufferPool,
    pub statistics: LogStatistics,
    pool_id: PoolId,
    options: LogOptions,
    chunk_bytes: u32,
    ahead: ReadAhead,
    recent: RecentRows,
    repairs: Repairs,
    // Ordered: these are walked, and what that does to devices must be the same in every run.
    streams: RwLock<BTreeMap<StreamKey, Arc<Mutex<Stream>>>>,
    /// Kinds of data that there are segments of, or streams: each may come to have open segments that are not full.
    kinds: Mutex<BTreeSet<DataKind>>,
    rows: RwLock<BTreeMap<(u64, u32), RowInMemory>>,
    flying_bytes: Mutex<usize>,
    arrivals: Mutex<()>,
    flushes: Mutex<()>,
    headers_flying: Mutex<Vec<(Arc<Segment>, Completion)>>,
    dirty: Mutex<Vec<Arc<Segment>>>,
    /// Segments with rows that no flush has covered, and the first of those rows.
    unflushed: Mutex<BTreeMap<u64, (Arc<Segment>, u32)>>,
    stranded: Mutex<Stranded>,
    kept_bytes: Mutex<usize>,
    lost_row: Mutex<Option<String>>,
    uncommitted_bytes: AtomicU64,
    meta_room: Mutex<MetaRoom>,
    next_segment: AtomicU64,
    /// Segments begun for new data in this mount.
    begun_by_users: AtomicU64,
    next_sequence: AtomicU64,
}

impl Log {
    pub fn new(stripe: Arc<Stripe>, pool_id: PoolId, chunk_bytes: u32, options: LogOptions) -> Self {
        Log {
            buffers: stripe.buffers().clone(),
            stripe,
            segments: SegmentTable::default(),
            statistics: LogStatistics::default(),
            pool_id,
            recent: RecentRows::new(options.recent_bytes_max),
            options,
            chunk_bytes,
            ahead: ReadAhead::default(),
            repairs: Repairs::default(),
            streams: RwLock::default(),
            kinds: Mutex::default(),
            rows: RwLock::default(),
            flying_bytes: Mutex::new(0),
            arrivals: Mutex::new(()),
            flushes: Mutex::new(()),
            headers_flying: Mutex::default(),
            dirty: Mutex::default(),
            unflushed: Mutex::default(),
            stranded: Mutex::default(),
            kept_bytes: Mutex::new(0),
            lost_row: Mutex::default(),
            uncommitted_bytes: AtomicU64::new(0),
            meta_room: Mutex::default(),
            next_segment: AtomicU64::new(1),
            begun_by_users: AtomicU64::new(0),
            next_sequence: AtomicU64::new(1),
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

    /// The next segment id and the next row sequence, to be kept in the journal.
    pub fn counters(&self) -> (u64, u64) {
        (self.next_segment.load(Ordering::Acquire), self.next_sequence.load(Ordering::Acquire))
    }

    /// Segments begun in this mount for anything but metadata and what the cleaner moves.
    pub fn begun_by_users(&self) -> u64 {
        self.begun_by_users.load(Ordering::Acquire)
    }

    fn stream(&self, key: &StreamKey) -> Arc<Mutex<Stream>> {
        if let Some(stream) = self.streams.read().get(key) {
            return stream.clone();
        }
        self.note_kind(key);
        self.streams.write().entry(*key).or_default().clone()
    }

    pub(crate) fn note_kind(&self, key: &StreamKey) {
        if key.kind == SegmentKind::Data {
            self.kinds.lock().insert(DataKind::of(key));
        }
    }

    /// Room that data leaves for metadata.
    pub fn meta_room(&self) -> MetaRoom {
        *self.meta_room.lock()
    }

    /// Sets it; the store knows how large the tree is.
    pub fn set_meta_room(&self, room: MetaRoom) {
        *self.meta_room.lock() = room;
    }

    /// Blocks of a chunk.
    pub fn chunk_blocks(&self) -> u32 {
        self.chunk_bytes / BLOCK_BYTES as u32
    }
}
