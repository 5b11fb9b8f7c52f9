//! The engine: the state of a mounted pool, and what can be said of it without any other part.
//!
//! What works on this state lies above it, and each part calls only those below it: views and updates (`access.rs`, with
//! `read.rs` and `reload.rs`), placing and counting (`places.rs`, `space.rs`), moving blobs (`moving.rs`), batches for the
//! journal (`batch.rs`, `stranded.rs`, `commit.rs`), checkpoints (`checkpoint.rs`), durability for callers (`durable.rs`),
//! cleaning (`clean.rs`), rebuilding (`rebuild.rs`), making room (`make_room.rs`), updates and writes of users (`update.rs`,
//! `write.rs`). What has one job and several methods is a handle over the engine, such as `cleaning()`.
//!
//! Locks, in the order in which they may be taken: `mender`, `cleaner`, `checkpointer`, `journal`, `inner`, then those of
//! the log. No lock of the log and not `inner` is held while a device is waited for. Follow one write: `write.rs`,
//! `update.rs`, `durable.rs`; one read: `view.rs`, `read.rs`; one recovery: `recover.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use stere_device::Answering;
use stere_format::{
    ChunkPlace, CleanerChoice, CleanerPolicy, DeviceEntry, DeviceIndex, Key, Scheme, SegmentChunks, Superblock,
};
use stere_log::{FormerPlaces, Log, RepairTotals, Segment, SegmentTable};
use stere_tree::{NodeCache, Overlay, Tree};

use crate::checkpointer::Checkpointer;
use crate::damage::KnownDamage;
use crate::error::Error;
use crate::folds::{Folds, Unfolded};
use crate::rebuild::Mender;
use crate::space::Space;
use crate::transaction::Settler;
use stere_cleaner::{Cleaner, CleaningTally};
use stere_journal::{Journal, Tail};
use stere_recall::Volumes;
use stere_stripe::MetadataWish;
use stere_tree::Voids;

/// Limits of errors (reads, writes and checksums together, of this mount) of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    /// From so many on it is called sick; 0: never.
    pub sick_errors: u64,
    /// From so many on it is given up, if all that it holds can be rebuilt; 0: never.
    pub retire_errors: u64,
}

impl Default for HealthLimits {
    fn default() -> Self {
        HealthLimits { sick_errors: 16, retire_errors: 256 }
    }
}

/// How a store behaves; nothing in here is on media.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Memory for the overlay, the node cache and rows together.
    pub memory_bytes: usize,
    /// Whether some of it holds small content that was just written.
    pub keeps_recent: bool,
    /// Copies of metadata where the pool holds no wish, fitted to the devices there are.
    pub meta_scheme: Scheme,
    /// Where the pool holds no wish, more copies than that as soon as it has devices for what is usual.
    pub metadata_follows_devices: bool,
    pub cleaner: CleanerPolicy,
    /// Refuse everything that would write.
    pub read_only: bool,
    /// Set when the pool was made; names are hashed with it.
    pub hash_key: [u8; 16],
    /// From how many errors on a device counts as sick, and is given up.
    pub health: HealthLimits,
    /// Random, so that no two mounts begin the same epoch: halves of a pool that both went on are told apart by it.
    pub epoch_nonce: u32,
    /// Where the journal and the roots lie in a shared log.
    pub tail: Option<Arc<Tail>>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            memory_bytes: 1 << 30,
            keeps_recent: false,
            meta_scheme: Scheme { data: 1, parity: 2 },
            metadata_follows_devices: false,
            cleaner: CleanerPolicy::CostBenefit,
            read_only: false,
            hash_key: [0; 16],
            health: HealthLimits::default(),
            epoch_nonce: 0,
            tail: None,
        }
    }
}

/// The state that one lock guards: what a view sees.
pub(crate) struct Inner {
    pub active: Overlay,
    pub frozen: Option<Arc<Overlay>>,
    pub tree: Tree,
    /// Where no key is, as far as scans have learned.
    pub voids: Voids,
    /// Keys that were put away.
    pub folds: Folds,
    /// Generation of the durable checkpoint.
    pub generation: u64,
    /// Generation of the checkpoint that the active overlay will be part of.
    pub active_generation: u64,
    /// Counts updates, so that a commit knows what it made durable.
    pub change: u64,
    pub next_inode: u64,
    /// Emptied segments whose slots are still needed.
    pub freed: Vec<FreedSegment>,
    /// Counts batches of changes that were taken for the journal.
    pub batch: u64,
    /// The last batch that a durable record tells to be durable.
    pub proven_batch: u64,
    /// Emptied segments that somebody still reads or appends to.
    pub perhaps_free: Vec<Arc<Segment>>,
    /// Slots that chunks moved out of.
    pub left: Vec<LeftSlot>,
    /// Is shown every transaction last.
    pub settler: Option<Settler>,
}

impl Inner {
    /// Takes a change that the journal does not hold yet. Every change comes through here or from the journal.
    pub fn record(&mut self, key: Key, value: Option<Arc<[u8]>>) {
        if value.is_some() {
            self.voids.fill(&key);
        }
        self.folds.note(&key, value.as_deref());
        self.active.insert(key, value);
    }

    /// What holds whenever the lock is free.
    pub fn assert_invariants(&self) {
        let (durable, frozen) = (self.generation, u64::from(self.frozen.is_some()));
        let active = self.active_generation;
        assert_eq!(active, durable + 1 + frozen, "the overlay is of the checkpoint after those under way");
        let (proven, taken) = (self.proven_batch, self.batch);
        assert!(proven <= taken, "batch {proven} is proven, and {taken} were taken");
    }
}

/// An emptied segment: its slots are free once nobody reads there, and no recovery can look there.
pub(crate) struct FreedSegment {
    /// The first checkpoint that does not name it.
    pub needed: u64,
    /// The batch that tells of its end.
    pub batch: u64,
    pub segment: Arc<Segment>,
}

/// A slot that a chunk moved out of: free once the checkpoint of this generation is durable and nobody reads there any more.
pub(crate) struct LeftSlot {
    pub needed: u64,
    pub place: ChunkPlace,
    pub readers: FormerPlaces,
}

/// A mounted pool's keys and blobs.
pub struct Engine {
    pub(crate) log: Log,
    pub(crate) cache: NodeCache,
    pub(crate) inner: RwLock<Inner>,
    pub(crate) journal: Mutex<Journal>,
    /// How full the journal was when it was last looked at, of how much: for those who do not wait for a commit.
    pub(crate) journal_bytes_seen: Mutex<(u64, u64)>,
    /// Which devices may fall silent: all but the last one that answers.
    pub(crate) answering: Arc<Answering>,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    pub(crate) cleaner: Mutex<Cleaner>,
    pub(crate) mender: Mutex<Mender>,
    pub(crate) superblocks: Mutex<Vec<Superblock>>,
    pub(crate) devices: Mutex<Vec<DeviceEntry>>,
    pub(crate) space: Space,
    pub(crate) next_blob: AtomicU64,
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) metadata_wish: Mutex<Option<MetadataWish>>,
    pub(crate) cleaner_choice: Mutex<CleanerChoice>,
    pub(crate) cleaning_tally: CleaningTally,
    /// Words of each place.
    pub(crate) places: Mutex<BTreeMap<u8, Vec<String>>>,
    pub(crate) place_changes: Mutex<()>,
    /// Those that came to mean other devices.
    pub(crate) changed_places: Mutex<BTreeSet<u8>>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) unfolded: Unfolded,
    pub(crate) damage: KnownDamage,
    /// The state whose emptied segments were given back last, to be discarded.
    pub(crate) discard_change: AtomicU64,
    pub(crate) options: StoreOptions,
}

/// Pieces of the memory budget.
pub(crate) struct Budget {
    pub overlay_bytes: usize,
    pub cache_bytes: usize,
    pub flying_bytes: usize,
    pub recent_bytes: usize,
}

impl StoreOptions {
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            // Two overlays exist during a checkpoint.
            overlay_bytes: (self.memory_bytes / 16).clamp(1 << 20, 64 << 20),
            cache_bytes: self.memory_bytes / 5,
            flying_bytes: (self.memory_bytes / 16).clamp(4 << 20, 64 << 20),
            recent_bytes: if self.keeps_recent { (self.memory_bytes / 32).min(64 << 20) } else { 0 },
        }
    }
}

impl Engine {
    /// The segments of the pool.
    pub fn segments(&self) -> &SegmentTable {
        &self.log.segments
    }

    /// The key with which names are hashed.
    pub fn hash_key(&self) -> [u8; 16] {
        self.options.hash_key
    }

    /// The scheme that the devices present can give instead of this one.
    pub fn fit(&self, scheme: Scheme) -> Scheme {
        // With no device at all nothing is written, so the answer does not matter.
        self.log.stripe.slots.fit(scheme).unwrap_or(scheme)
    }

    /// The pool's devices as the checkpoint knows them.
    pub fn device_entries(&self) -> Vec<DeviceEntry> {
        self.devices.lock().clone()
    }

    pub fn check_writable(&self) -> Result<(), Error> {
        if let Some(cause) = &*self.failure.lock() {
            return Err(Error::ReadOnly { cause: cause.clone() });
        }
        if self.options.read_only {
            return Err(Error::OnlyRead);
        }
        Ok(())
    }

    /// Stops all writing: after this error durability cannot be promised any more.
    pub(crate) fn fail(&self, error: Error) -> Error {
        if matches!(
            error,
            Error::WouldBlock
                | Error::NodeNotInMemory
                | Error::ReadOnly { .. }
                | Error::OnlyRead
                | Error::Elsewhere { .. }
        ) {
            return error;
        }
        let mut failure = self.failure.lock();
        if failure.is_none() {
            tracing::error!(%error, "the pool stops writing");
            *failure = Some(error.to_string());
        }
        error
    }

    /// Stops writing for good, for a cause outside of the store: nothing that was not synced becomes durable.
    pub fn stop_writing(&self, cause: &str) {
        drop(self.fail(Error::Pool(cause.to_owned())));
    }

    /// Why the pool stopped writing, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    pub fn device_entry(&self, index: DeviceIndex) -> Result<DeviceEntry, Error> {
        let devices = self.devices.lock();
        devices.iter().find(|entry| entry.index == index).cloned().ok_or(Error::UnknownDevice { index })
    }

    /// Chunks that can be read now, as far as anybody knows, on other devices than these.
    pub fn readable_chunks(&self, placed: &SegmentChunks, without: &[DeviceIndex]) -> usize {
        let is_readable = |(chunk, at): &(usize, &ChunkPlace)| {
            !placed.is_missing(*chunk)
                && !without.contains(&at.device)
                && self.log.stripe.devices.get(at.device).is_some()
        };
        placed.chunks.iter().enumerate().filter(is_readable).count()
    }

    /// Devices may have grown: what the table says follows the devices that are there.
    pub(crate) fn note_sizes(&self) {
        for entry in self.devices.lock().iter_mut() {
            if let Some(device) = self.log.stripe.devices.get(entry.index) {
                entry.slot_count = device.layout().slot_count;
                entry.size_bytes = device.layout().size_bytes;
            }
        }
    }

    /// Devices that take new chunks.
    pub fn open_devices(&self) -> Vec<DeviceIndex> {
        self.log.stripe.slots.open_devices()
    }

    /// What was repaired since the pool was mounted.
    pub fn repair_totals(&self) -> RepairTotals {
        self.log.repairs.totals()
    }

    /// Whether devices that are there have too little of a segment that a volume has: readers get it from there.
    pub fn is_readable_from_volumes_only(&self, segment: &Segment) -> bool {
        let is_elsewhere = segment.tertiary().there != 0 && segment.is_sealed() && segment.live_bytes() > 0;
        is_elsewhere && self.readable_chunks(&segment.placed(), &[]) < usize::from(segment.scheme.data)
    }

    /// The devices that hold the journal.
    pub fn journal_mirrors(&self) -> Vec<DeviceIndex> {
        self.journal.lock().mirrors.iter().map(|mirror| mirror.device).collect()
    }

    /// The largest blob this pool takes, in bytes.
    pub fn blob_bytes_max(&self) -> usize {
        self.log.record_bytes_max() / 2
    }
}
