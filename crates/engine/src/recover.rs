//! Making and opening a pool: newest superblock, checkpoint record, segment table, journal.
//!
//! The journal is replayed group by group. Groups that a later record proves durable are taken as they are; of the unproven
//! rest every blob is verified, and the first group that names data which cannot be read ends the journal there: it was never
//! acknowledged. A record that is damaged on every mirror although a later one proves that it was durable is not a torn tail
//! but damage, and the pool is refused. Read next: `unproven.rs`, the journal's `scan.rs`, `commit.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use stere_device::{BufferPool, Device};
use stere_faults::{Bug, is_planted};
use stere_format::{
    BlobValue, CheckpointPart, CheckpointRecord, ChunkPlace, DeviceEntry, DeviceIndex, Key, SegmentKind, SegmentValue,
    Superblock, key, sector_aligned,
};
use stere_log::{FormerPlaces, Log, LogOptions, Segment};
use stere_stripe::{ReadReport, Stripe};
use stere_tree::{NodeCache, Overlay, Tree};

use crate::batch::Batches;
use crate::checkpointer::Checkpointer;
use crate::error::Error;
use crate::folds::Folds;
use crate::freed::release_freed;
use crate::mirrors::wanted_journal;
use crate::rebuild::Mender;
use crate::shared::SharedLog;
use crate::space::Space;
use crate::{FreedSegment, Inner, LeftSlot, StoreOptions, engine::Engine};
use stere_cleaner::{Cleaner, CleaningTally};
use stere_journal::{Group, Journal, Mirror, Scan};
use stere_recall::Volumes;
use stere_tree::Voids;

/// A device handed to the store, with its newest superblock.
pub struct DeviceIn {
    pub index: DeviceIndex,
    pub superblock: Superblock,
    pub device: Arc<dyn Device>,
    /// Which copy to prefer when there is a choice: `stere_stripe::READ_COST_FAST` or more.
    pub read_cost: u32,
}

/// What recovery found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    pub clean: bool,
    pub groups_replayed: u64,
    pub changes_replayed: u64,
    pub groups_cut: u64,
    /// Records that were missing on a mirror and were written there again.
    pub records_repaired: u64,
    pub generation: u64,
}

/// What was found, between the halves of opening a pool.
pub struct Recovered {
    newest: Superblock,
    /// What groups of the journal name that no later record proves durable.
    unproven: Vec<u64>,
    report: RecoveryReport,
}

/// Makes an empty pool on devices whose superblocks are filled in, and writes the first checkpoint.
fn create(devices: Vec<DeviceIn>, entries: Vec<DeviceEntry>, options: StoreOptions) -> Result<Engine, Error> {
    let first = devices.first().ok_or_else(|| Error::Pool("a pool needs at least one device".into()))?;
    let superblock = first.superblock.clone();
    assert!(superblock.checkpoint.is_empty(), "a new pool has no checkpoint yet");
    let stripe = attach(&devices, &options)?;
    let store = assemble(stripe, &superblock, devices, entries, options);
    store.space().reserve_for_checkpoint(0);
    store.checkpoints().close()?;
    Ok(store)
}

/// Opens a pool and replays its journal; `Recovery::finish` is to follow.
fn open(mut devices: Vec<DeviceIn>, mut options: StoreOptions) -> Result<(Engine, Recovered), Error> {
    let newest = devices.iter().max_by_key(|device| device.superblock.generation);
    let newest = newest.ok_or_else(|| Error::Pool("a pool needs at least one device".into()))?.superblock.clone();
    let mut stripe = attach(&devices, &options)?;
    let (record, bad_parts) = read_checkpoint(&stripe, &newest)?;
    options.hash_key = record.hash_key;
    let given = devices.len();
    devices.retain(|device| {
        let is_listed = |entry: &DeviceEntry| (entry.index, entry.id) == (device.index, device.superblock.device);
        let is_known = record.devices.iter().any(is_listed);
        if !is_known {
            tracing::warn!(device = device.device.describe(), "the pool does not list this device; it is left out");
        }
        is_known
    });
    // A crash while a device was added or removed leaves one that says more than the table does.
    if devices.len() < given {
        stripe = attach(&devices, &options)?;
    }
    let read_only = options.read_only;
    let store = assemble(stripe, &newest, devices, record.devices.clone(), options);
    store.note_sizes();
    let recovery = Recovery::of(&store);
    recovery.adopt_checkpoint(&newest, &record)?;
    // Nothing is written to a pool that may be another machine's.
    if store.journal.lock().tail.is_none() {
        recovery.repair_checkpoint(&bad_parts);
    }
    recovery.check_journal_is_there(&newest, read_only)?;
    let mut unproven = Vec::new();
    let mut report = recovery.replay(&newest, read_only, &mut unproven)?;
    report.clean = newest.clean;
    store.places().load_metadata_wish()?;
    store.cleaning().load_choice()?;
    store.places().load_places()?;
    store.offload().load_folds()?;
    if let Err(error) = store.damage().load_damage() {
        // It is found again.
        tracing::warn!(%error, "what is known to be damaged could not be read");
    }
    Ok((store, Recovered { newest, unproven, report }))
}

fn assemble(
    stripe: Arc<Stripe>,
    superblock: &Superblock,
    devices: Vec<DeviceIn>,
    entries: Vec<DeviceEntry>,
    options: StoreOptions,
) -> Engine {
    let budget = options.budget();
    let repairs = !options.read_only;
    let log_options =
        LogOptions { flying_bytes_max: budget.flying_bytes, recent_bytes_max: budget.recent_bytes, repairs };
    let log = Log::new(stripe.clone(), superblock.pool, superblock.layout.chunk_bytes, log_options);
    let mirrors = devices
        .iter()
        .filter(|device| superblock.journal_devices.contains(&device.index) && options.tail.is_none())
        .map(|device| Mirror { device: device.index, offset: device.superblock.layout.journal_offset })
        .collect();
    let mut journal = Journal::new(superblock, mirrors);
    journal.tail.clone_from(&options.tail);
    let volumes = Arc::new(Volumes::new(superblock.pool));
    for entry in &entries {
        declare(&stripe, entry);
    }
    let superblocks = devices
        .iter()
        .map(|device| Superblock {
            generation: superblock.generation,
            journal_start: superblock.journal_start,
            journal_bytes: superblock.journal_bytes,
            journal_devices: superblock.journal_devices.clone(),
            epochs: superblock.epochs.clone(),
            checkpoint: superblock.checkpoint.clone(),
            is_log_shared: options.tail.is_some(),
            ..device.superblock.clone()
        })
        .collect();
    let inner = Inner {
        active: Overlay::default(),
        frozen: None,
        tree: Tree::EMPTY,
        voids: Voids::default(),
        folds: Folds::default(),
        generation: superblock.generation,
        active_generation: superblock.generation + 1,
        change: 0,
        next_inode: 2,
        freed: Vec::new(),
        batch: 0,
        proven_batch: 0,
        perhaps_free: Vec::new(),
        left: Vec::new(),
        settler: None,
    };
    Engine {
        cache: NodeCache::new(budget.cache_bytes),
        inner: RwLock::new(inner),
        answering: Arc::default(),
        journal_bytes_seen: Mutex::new((journal.used_bytes(), journal.region_bytes)),
        journal: Mutex::new(journal),
        checkpointer: Mutex::new(Checkpointer { generation: superblock.generation, ..Checkpointer::default() }),
        cleaner: Mutex::new(Cleaner::default()),
        mender: Mutex::new(Mender::default()),
        superblocks: Mutex::new(superblocks),
        devices: Mutex::new(entries),
        space: Space::default(),
        next_blob: AtomicU64::new(1),
        failure: Mutex::new(None),
        metadata_wish: Mutex::new(None),
        cleaner_choice: Mutex::default(),
        cleaning_tally: CleaningTally::default(),
        places: Mutex::default(),
        place_changes: Mutex::default(),
        changed_places: Mutex::default(),
        volumes,
        unfolded: Default::default(),
        damage: Default::default(),
        discard_change: AtomicU64::new(u64::MAX),
        log,
        options,
    }
}

impl Engine {
    /// Makes an empty pool on devices whose superblocks are filled in, and writes the first checkpoint.
    pub fn create(devices: Vec<DeviceIn>, entries: Vec<DeviceEntry>, options: StoreOptions) -> Result<Engine, Error> {
        create(devices, entries, options)
    }

    /// Opens a pool and replays its journal; `Recovery::finish` is to follow.
    pub fn open(devices: Vec<DeviceIn>, options: StoreOptions) -> Result<(Engine, Recovered), Error> {
        open(devices, options)
    }
}

/// Takes over what a checkpoint and the journal behind it tell.
#[derive(Clone, Copy)]
pub struct Recovery<'a> {
    pub(crate) engine: &'a Engine,
}

impl<'a> Recovery<'a> {
    pub fn of(engine: &'a Engine) -> Recovery<'a> {
        Recovery { engine }
    }
}

impl Recovery<'_> {
    /// Without any device that holds the journal, what was synced after the checkpoint is not there: nobody may go on from here as
    /// if there had been nothing.
    fn check_journal_is_there(&self, newest: &Superblock, read_only: bool) -> Result<(), Error> {
        let mut journal = self.engine.journal.lock();
        if journal.is_somewhere() {
            return Ok(());
        }
        if newest.clean {
            // The journal is empty, and any device can take it over.
            (journal.mirrors, journal.region_bytes) = wanted_journal(self.engine, &[], newest.journal_bytes);
            return Ok(());
        }
        if read_only {
            tracing::warn!("no device with the journal is there: the pool is shown as its last checkpoint left it");
            return Ok(());
        }
        Err(Error::Pool(
            "none of the devices that hold the journal is there, and the pool was not closed cleanly; attach one of them, or \
             mount read-only to see the pool as its last checkpoint left it"
                .into(),
        ))
    }

    /// Takes over the checkpoint: tree, metadata segments, data segments, counters.
    fn adopt_checkpoint(&self, superblock: &Superblock, record: &CheckpointRecord) -> Result<(), Error> {
        for (id, value) in &record.meta_segments {
            self.adopt_segment(*id, value)?;
        }
        for part in &superblock.checkpoint {
            let segment = match self.engine.log.segments.get(part.address.segment) {
                Some(segment) => segment,
                None => self.adopt_part_segment(part)?,
            };
            let bytes = i64::from(sector_aligned(part.address.length));
            segment.add_live_bytes(bytes);
            self.engine.space.add_live(segment.scheme, bytes);
            // The record follows the table that it holds: it may reach beyond what that says, and may have failed to reach a device.
            segment.reach(self.engine.log.chunk_blocks());
            let missing = (0..part.place.chunks.len()).filter(|chunk| part.place.is_missing(*chunk));
            if segment.chunks() == part.place.chunks {
                missing.for_each(|chunk| segment.mark_missing(chunk));
            }
            self.cover_part(&segment, &part.address);
        }
        self.engine.checkpointer.lock().parts = superblock.checkpoint.clone();
        self.engine.inner.write().tree = Tree::new(record.root);
        self.engine.next_blob.fetch_max(record.counters.next_blob, std::sync::atomic::Ordering::AcqRel);
        self.engine.inner.write().next_inode = record.counters.next_inode;
        self.engine.log.counters.raise(record.counters.next_segment, record.counters.next_sequence);
        self.each_segment_in_tree(|id, value| self.adopt_segment(id, &value))
    }

    /// The record was read before there was a log to repair it.
    fn repair_checkpoint(&self, bad_parts: &[BadPart]) {
        for BadPart { part, bytes, report } in bad_parts {
            if let Some(segment) = self.engine.log.segments.get(part.address.segment) {
                self.engine.log.repairs.repair(
                    &segment,
                    &part.place,
                    &part.address,
                    &(0..part.address.length),
                    bytes,
                    report,
                );
            }
        }
    }

    /// The record tells how far its segments were written before it: its own rows count too.
    fn cover_part(&self, segment: &Arc<Segment>, address: &stere_format::Address) {
        let end = match self.engine.log.read_row_contents(segment, address.row_block) {
            Ok(Some(row)) => address.row_block + row.header.row_height,
            // Without its header: at least to where the part itself ends.
            _ => {
                let bytes = (address.offset + address.length) as usize;
                address.row_block + stere_stripe::row_height(segment.scheme, bytes)
            }
        };
        segment.cover_blocks(end.min(self.engine.log.chunk_blocks()));
    }

    /// A segment that holds nothing but parts of the checkpoint record is not in the record's own table.
    fn adopt_part_segment(&self, part: &stere_format::CheckpointPart) -> Result<Arc<Segment>, Error> {
        let value = SegmentValue {
            place: part.place.clone(),
            class: 0,
            kind: SegmentKind::Meta,
            state: stere_format::SegmentState::Sealed,
            temperature: 0,
            written_blocks: self.engine.log.chunk_blocks(),
            live_bytes: 0,
            sequence: 0,
            tertiary: stere_format::Tertiary::default(),
            site: stere_format::Site::ANYWHERE,
        };
        self.adopt_segment(part.address.segment, &value)?;
        self.engine
            .log
            .segments
            .get(part.address.segment)
            .ok_or_else(|| Error::Pool("a segment just adopted is gone".into()))
    }

    fn adopt_segment(&self, id: u64, value: &SegmentValue) -> Result<(), Error> {
        let segment = Arc::new(Segment::from_value(id, value));
        if segment.kind == SegmentKind::Meta {
            // Its end is not known exactly (the checkpoint record follows the table), so nothing is appended to it.
            segment.seal();
        }
        self.engine.log.stripe.slots.mark_used(&segment.chunks()).map_err(|error| Error::Pool(error.to_string()))?;
        if segment.is_released() {
            self.engine.volumes.note_released();
        } else {
            self.engine.space.add_live(segment.scheme, i64::try_from(segment.live_bytes()).unwrap_or(i64::MAX));
        }
        self.engine.log.adopt(segment);
        Ok(())
    }

    fn each_segment_in_tree(&self, mut visit: impl FnMut(u64, SegmentValue) -> Result<(), Error>) -> Result<(), Error> {
        let mut from = Key::segment(0);
        let to = Key::new(key::tree::SEGMENTS + 1, 0, 0, 0);
        loop {
            let batch = self.engine.view(stere_log::Io::BLOCKING, |view| {
                let mut batch: Vec<(Key, Vec<u8>)> = Vec::new();
                view.scan(from, to, |key, value| {
                    batch.push((*key, value.to_vec()));
                    if batch.len() >= 512 {
                        std::ops::ControlFlow::Break(())
                    } else {
                        std::ops::ControlFlow::Continue(())
                    }
                })?;
                Ok::<_, Error>(batch)
            })?;
            let Some((last, _)) = batch.last() else { return Ok(()) };
            let next = last.successor();
            for (key, bytes) in batch {
                visit(key.object, segment_value(&bytes)?)?;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// Replays the journal into the overlay.
    fn replay(
        &self,
        superblock: &Superblock,
        read_only: bool,
        unproven: &mut Vec<u64>,
    ) -> Result<RecoveryReport, Error> {
        let mut report = RecoveryReport { generation: superblock.generation, ..RecoveryReport::default() };
        let mut journal = self.engine.journal.lock();
        let mut scan = Scan::new(&self.engine.log.stripe, &journal, superblock);
        let mut end = superblock.journal_start;
        while let Some(group) = scan.next_group()? {
            if group.last_sequence > scan.proven() {
                if !self.data_is_there(&group)? {
                    report.groups_cut += 1;
                    break;
                }
                let blobs = group.changes.iter().filter(|(key, value)| key.tree == key::tree::BLOBS && value.is_some());
                unproven.extend(blobs.map(|(key, _)| key.object));
            }
            report.groups_replayed += 1;
            report.changes_replayed += group.changes.len() as u64;
            end = group.end;
            let is_proven = group.last_sequence <= scan.proven();
            self.apply_group(group, is_proven)?;
        }
        if !read_only {
            let (repaired, failed) = scan.repair(end.sequence);
            report.records_repaired = repaired;
            // The others have all of it; what is unproven on these is written elsewhere before it is shown.
            journal.drop_failed_mirrors(&failed)?;
            failed.iter().for_each(|device| self.engine.log.stripe.slots.suspend(*device));
        }
        journal.position = end.position;
        journal.sequence = end.sequence;
        // Not more than was proven before: until the next commit is durable, what was not proven may have lost copies, and another
        // crash must look at it again.
        journal.durable_sequence = scan.proven().min(end.sequence.saturating_sub(1));
        journal.recovered_sequence = end.sequence.saturating_sub(1);
        Ok(report)
    }

    /// Whether enough devices are there for what lies in a segment.
    pub(crate) fn is_within_reach(&self, segment: &Segment) -> bool {
        self.engine.readable_chunks(&segment.placed(), &[]) >= usize::from(segment.scheme.data)
    }

    /// Whether every blob that the group names can be read and verified.
    fn data_is_there(&self, group: &Group) -> Result<bool, Error> {
        if is_planted(Bug::TailNotVerified) {
            return Ok(true);
        }
        let placed = |id: u64| -> Option<Arc<Segment>> {
            group
                .changes
                .iter()
                .rev()
                .find(|(changed, _)| *changed == Key::segment(id))
                .and_then(|(_, value)| value.as_deref())
                .and_then(|bytes| SegmentValue::decode(bytes).ok())
                .map(|value| Arc::new(Segment::from_value(id, &value)))
                .or_else(|| self.engine.log.segments.get(id))
        };
        for (changed, value) in &group.changes {
            let (true, Some(bytes)) = (changed.tree == key::tree::BLOBS, value) else { continue };
            let Ok(blob) = BlobValue::decode(bytes) else { return Ok(false) };
            // What lay there before this group does not hang on it; it may be lost since, with its device.
            let known = self.engine.view(stere_log::Io::BLOCKING, |view| view.blob(changed.object));
            if known.is_ok_and(|known| known.value.address == blob.address) {
                continue;
            }
            let Some(segment) = placed(blob.address.segment) else { return Ok(false) };
            // What lies on devices that are away now cannot be looked at. The group may have been acknowledged, and cutting it would take from
            // others what is there; taking it costs nobody more than the devices do.
            if self.is_within_reach(&segment) && !self.engine.log.has_blocks(&segment, &blob.address, &blob.checksums) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn apply_group(&self, mut group: Group, is_proven: bool) -> Result<(), Error> {
        if is_planted(Bug::GroupCutShort) {
            group.changes.pop();
        }
        let mut inner = self.engine.inner.write();
        inner.batch = u64::from(!is_proven);
        for (changed, value) in group.changes {
            if changed.tree == key::tree::SEGMENTS {
                self.apply_segment(&mut inner, changed.object, value.as_deref())?;
            }
            if value.is_some() {
                inner.voids.fill(&changed);
            }
            inner.active.replay(changed, value);
        }
        inner.next_inode = inner.next_inode.max(group.counters.next_inode);
        self.engine.next_blob.fetch_max(group.counters.next_blob, std::sync::atomic::Ordering::AcqRel);
        self.engine.log.counters.raise(group.counters.next_segment, group.counters.next_sequence);
        Ok(())
    }

    fn apply_segment(&self, inner: &mut Inner, id: u64, value: Option<&[u8]>) -> Result<(), Error> {
        let known = self.engine.log.segments.remove(id);
        if let Some(old) = known.as_ref().filter(|old| !old.is_released()) {
            self.engine.space.add_live(old.scheme, -i64::try_from(old.live_bytes()).unwrap_or(0));
        }
        match (value, known) {
            (None, Some(old)) => {
                // The durable checkpoint may still need its slots, if nothing lies in them by now.
                let (needed, batch) = (inner.active_generation, inner.batch);
                inner.freed.push(FreedSegment { needed, batch, segment: old });
                Ok(())
            }
            (None, None) => Ok(()),
            (Some(bytes), known) => {
                let segment = Arc::new(Segment::from_value(id, &segment_value(bytes)?));
                let before = known.map(|old| old.chunks()).unwrap_or_default();
                let after = segment.chunks();
                let new: Vec<_> = after.iter().copied().filter(|place| !before.contains(place)).collect();
                self.give_up_reused(inner, &new);
                self.engine.log.stripe.slots.mark_used(&new).map_err(|error| Error::Pool(error.to_string()))?;
                // A chunk that was moved: the durable checkpoint may still need its old slot.
                let needed = inner.active_generation;
                for place in before.into_iter().filter(|place| !after.contains(place)) {
                    inner.left.push(LeftSlot { needed, place, readers: FormerPlaces::default() });
                }
                if segment.is_released() {
                    self.engine.volumes.note_released();
                } else {
                    self.engine.space.add_live(segment.scheme, i64::try_from(segment.live_bytes()).unwrap_or(0));
                }
                self.engine.log.adopt(segment);
                Ok(())
            }
        }
    }

    /// Emptied segments whose slots others got: they were given back when the journal proved their end.
    fn give_up_reused(&self, inner: &mut Inner, places: &[ChunkPlace]) {
        inner.freed.retain(|freed| {
            let chunks = freed.segment.chunks();
            let is_reused = chunks.iter().any(|chunk| places.contains(chunk));
            if is_reused {
                self.engine.log.stripe.slots.free_now(&chunks);
            }
            !is_reused
        });
    }

    /// Gives back again what was given back before the crash, because its end was proven: checkpoints count on the room. The proof
    /// is written once more, for mirrors that may lack it.
    fn release_recovered(&self) -> Result<(), Error> {
        let mut journal = self.engine.journal.lock();
        let is_any_freed = !self.engine.inner.read().freed.is_empty();
        if is_planted(Bug::GivenBackForgotten) {
            return Ok(());
        }
        if is_any_freed && journal.tail.is_none() && !journal.mirrors.is_empty() && journal.has_room(0) {
            Batches::of(self.engine).write_proof(&mut journal)?;
        }
        release_freed(self.engine, &mut self.engine.inner.write());
        Ok(())
    }

    /// Makes what was recovered definite: whoever sees it now finds it again after another crash, even if a device is gone by then
    /// that alone held some of it. All data was flushed when the epoch began, or is by the commit.
    fn make_definite(&self, has_unproven: bool) -> Result<(), Error> {
        if self.epochs_kept() >= Superblock::EPOCHS_MAX / 2 {
            // One crash after the other: a checkpoint ends the need for the epochs of all of them. Until then the oldest that is
            // needed keeps the list from letting go of the oldest, and another one would have to be forgotten.
            return self.engine.checkpoints().checkpoint_holding(
                &mut self.engine.checkpointer.lock(),
                &mut self.engine.journal.lock(),
                false,
            );
        }
        if !has_unproven {
            return Ok(());
        }
        self.engine.commit(stere_log::Io::BLOCKING)?;
        let mut state = self.engine.checkpointer.lock();
        let mut journal = self.engine.journal.lock();
        match journal.has_room(0) {
            true => Batches::of(self.engine).prove(&mut journal),
            false => self.engine.checkpoints().checkpoint_holding(&mut state, &mut journal, false),
        }
    }

    /// Begins an epoch, and makes whole and definite what a crash left unproven. What the tier knows is loaded.
    pub fn finish(&self, recovered: Recovered) -> Result<RecoveryReport, Error> {
        let Recovered { newest, unproven, report } = recovered;
        let changes_bytes = self.engine.inner.read().active.bytes();
        self.engine.space().reserve_for_checkpoint(changes_bytes);
        if !self.engine.options.read_only {
            self.begin_epoch(&newest)?;
            SharedLog::of(self.engine).reopen_segments()?;
            self.release_recovered()?;
            // What a crash tore is no sign of a bad device.
            self.engine.log.stripe.excusing(|| self.make_unproven_whole(&unproven))?;
            self.make_definite(!unproven.is_empty())?;
        }
        Ok(report)
    }
}

fn segment_value(bytes: &[u8]) -> Result<SegmentValue, Error> {
    SegmentValue::decode(bytes).map_err(|error| Error::BadValue { what: "a segment", detail: error.to_string() })
}

fn attach(devices: &[DeviceIn], options: &StoreOptions) -> Result<Arc<Stripe>, Error> {
    let first = devices.first().ok_or_else(|| Error::Pool("a pool needs at least one device".into()))?;
    let buffers = BufferPool::new(options.budget().flying_bytes);
    let stripe = Stripe::new(first.superblock.layout.chunk_bytes, buffers);
    // A pool that is being made is nobody else's.
    let is_gated = !options.read_only && !first.superblock.checkpoint.is_empty();
    if let Some(tail) = options.tail.as_ref().filter(|_| is_gated) {
        stripe.devices.set_grants(tail.grants().clone());
    }
    for device in devices {
        stripe
            .attach(device.index, device.device.clone(), device.superblock.layout, device.read_cost)
            .map_err(|error| Error::Pool(error.to_string()))?;
    }
    Ok(Arc::new(stripe))
}

/// Tells the stripe layer what the table says of a device, there or not.
pub(crate) fn declare(stripe: &Stripe, entry: &DeviceEntry) {
    if stripe.devices.get(entry.index).is_none() {
        stripe.slots.declare(entry.index, entry.slot_count);
    }
    stripe.slots.set_state(entry.index, entry.device_state());
    stripe.slots.set_domain(entry.index, &entry.host, &entry.shelf);
}

/// A part of the checkpoint record that is bad somewhere, and its right bytes.
struct BadPart {
    part: CheckpointPart,
    bytes: Vec<u8>,
    report: ReadReport,
}

/// Reads the checkpoint record that the superblock names.
fn read_checkpoint(stripe: &Stripe, superblock: &Superblock) -> Result<(CheckpointRecord, Vec<BadPart>), Error> {
    let damaged = |detail: String| Error::DamagedNode { detail: format!("the checkpoint record: {detail}") };
    let (mut bytes, mut bad_parts) = (Vec::new(), Vec::new());
    for part in &superblock.checkpoint {
        let start = bytes.len();
        bytes.resize(start + part.address.length as usize, 0);
        let verify = |bytes: &[u8]| CheckpointRecord::part_checksum(bytes) == part.crc32c;
        let report = stere_log::read_whole(stripe, &part.place, &part.address, &mut bytes[start..], &verify)
            .map_err(|error| damaged(error.to_string()))?;
        if !report.bad.is_empty() {
            bad_parts.push(BadPart { part: part.clone(), bytes: bytes[start..].to_vec(), report });
        }
    }
    let record = CheckpointRecord::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
    if record.pool != superblock.pool || record.generation > superblock.generation {
        return Err(damaged("it belongs to another pool or time".into()));
    }
    Ok((record, bad_parts))
}
