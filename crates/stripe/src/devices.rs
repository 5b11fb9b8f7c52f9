//! The devices of a pool that are open now, by index, each with what has been asked of it since its last flush.
//!
//! A `PoolDevice` is itself a `Device` (all I/O of the pool goes through it), so that the journal's and the superblocks'
//! writes are counted like the rows'. Invariant: `flush` does nothing only if every write that had ended before was
//! already covered by a successful flush.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use stere_device::{Completion, Deadline, Device, DeviceError, Job, Parallel, PendingRead, Piece, Scatter, Ticket};
use stere_format::{ChunkPlace, DeviceIndex, DeviceLayout, Superblock};

use crate::error::StripeError;
use crate::grants::Grants;

/// What went wrong and how much was done on a device since it was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceStatistics {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub read_errors: u64,
    /// Reads whose bytes did not match their checksum.
    pub checksum_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks whose right bytes were written back over bad ones.
    pub repaired: u64,
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    read_errors: AtomicU64,
    checksum_errors: AtomicU64,
    write_errors: Arc<AtomicU64>,
    repaired: AtomicU64,
}

/// One open device of the pool.
pub struct PoolDevice {
    index: DeviceIndex,
    device: Arc<dyn Device>,
    layout: DeviceLayout,
    /// Relative cost of a read, so that copies on fast devices are preferred.
    read_cost: u32,
    reads_in_flight: Arc<AtomicU32>,
    /// Writes that have ended, well or not.
    ended: Arc<AtomicU64>,
    /// Of them, how many had ended before a successful flush began.
    flushed: AtomicU64,
    counters: Counters,
    /// Where several machines may own the pool: what every write passes first.
    grants: Option<Arc<Grants>>,
}

impl PoolDevice {
    /// The slot of which this is a part; none outside of all slots.
    fn slot_at(&self, offset: u64) -> Option<(DeviceIndex, u32)> {
        self.layout.slot_at(offset).map(|slot| (self.index, slot))
    }

    pub fn index(&self) -> DeviceIndex {
        self.index
    }

    /// Whether writes go out to it now, as far as it is a matter of who owns the pool.
    pub(crate) fn takes_writes(&self) -> bool {
        self.grants.as_ref().is_none_or(|grants| grants.is_leased())
    }

    pub fn layout(&self) -> &DeviceLayout {
        &self.layout
    }

    /// Tells whoever keeps the device what to do with a range, as soon as that may be written to.
    pub(crate) fn tell(&self, offset: u64, length: u64, settings: &str) {
        if !self.device.hears() {
            return;
        }
        let Some(grants) = &self.grants else { return self.device.tell(offset, length, settings) };
        let (device, settings) = (self.device.clone(), settings.to_owned());
        let tell =
            move |may: Result<(), DeviceError>| may.into_iter().for_each(|()| device.tell(offset, length, &settings));
        grants.pass(self.slot_at(offset), Box::new(tell));
    }

    /// The bare device, for what must not be counted.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether something was written that no flush has covered yet.
    pub fn needs_flush(&self) -> bool {
        self.flushed.load(Ordering::Acquire) < self.ended.load(Ordering::Acquire)
    }

    /// How much a read costs now: cheaper devices first, then idle ones.
    pub(crate) fn load(&self) -> u64 {
        self.cost() * (u64::from(self.reads_in_flight.load(Ordering::Relaxed)) + 1)
    }

    /// What one read costs: what was told of this kind of device, or what reads take lately if that is more.
    pub(crate) fn cost(&self) -> u64 {
        u64::from(self.read_cost.max(self.device.latency_us() / COST_UNIT_US))
    }

    /// Writes that have not ended yet.
    pub(crate) fn pending_writes(&self) -> u64 {
        // In this order: what ends in between counts as pending.
        let ended = self.ended.load(Ordering::Acquire);
        self.counters.writes.load(Ordering::Acquire).saturating_sub(ended)
    }

    /// One more read gave bytes that do not match their checksum.
    pub fn count_checksum_error(&self) {
        self.counters.checksum_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Another machine has written to it: the next flush is for that too.
    pub(crate) fn note_written_elsewhere(&self, bytes: u64) {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.device.note_other_writer();
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes back what was counted since there were so many.
    pub(crate) fn set_checksum_errors(&self, count: u64) {
        self.counters.checksum_errors.store(count, Ordering::Relaxed);
    }

    /// Right bytes were written over so many bad blocks.
    pub fn count_repaired(&self, blocks: u64) {
        self.counters.repaired.fetch_add(blocks, Ordering::Relaxed);
    }

    pub fn statistics(&self) -> DeviceStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        DeviceStatistics {
            reads: load(&counters.reads),
            read_bytes: load(&counters.read_bytes),
            writes: load(&counters.writes),
            written_bytes: load(&counters.written_bytes),
            flushes: load(&counters.flushes),
            read_errors: load(&counters.read_errors),
            checksum_errors: load(&counters.checksum_errors),
            write_errors: load(&counters.write_errors),
            repaired: load(&counters.repaired),
        }
    }

    /// Where a chunk starts on this device.
    pub(crate) fn slot_offset(&self, place: ChunkPlace) -> Result<u64, StripeError> {
        let slot_count = self.layout.slot_count;
        self.layout.slot_offset(place.slot).ok_or(StripeError::SlotOutOfRange { place, slot_count })
    }

    /// Counts a read that begins; it is in flight for as long as this lives.
    fn count_read(&self, length: usize) -> InFlight {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.read_bytes.fetch_add(length as u64, Ordering::Relaxed);
        self.reads_in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(&self.reads_in_flight))
    }

    fn counted_read(&self, length: usize, read: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        let in_flight = self.count_read(length);
        let outcome = read();
        drop(in_flight);
        // One that is away says nothing of its health, nor one that was only not waited for.
        let is_no_fault = |error: &DeviceError| error.is_absence() || matches!(error, DeviceError::TooSlow { .. });
        if outcome.as_ref().is_err_and(|error| !is_no_fault(error)) {
            self.counters.read_errors.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }
}

/// A read in flight.
struct InFlight(Arc<AtomicU32>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "this read was in flight");
    }
}

impl Device for PoolDevice {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.device.block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.counted_read(buffer.len(), || self.device.read(offset, buffer))
    }

    fn read_scattered(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let length = pieces.iter().map(Scatter::length).sum();
        self.counted_read(length, || self.device.read_scattered(offset, pieces))
    }

    fn read_scattered_or_leave(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let length = pieces.iter().map(Scatter::length).sum();
        self.counted_read(length, || self.device.read_scattered_or_leave(offset, pieces))
    }

    fn pending_read(&self, offset: u64, length: usize) -> Option<PendingRead> {
        let read = self.device.pending_read(offset, length)?;
        Some(read.holding(Box::new(self.count_read(length))))
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(stere_device::length_of(&pieces) as u64, Ordering::Relaxed);
        let ticket = ticket.counted_in(&self.ended, &self.counters.write_errors);
        let Some(grants) = &self.grants else { return self.device.submit_write_gathered(offset, pieces, ticket) };
        let device = self.device.clone();
        grants.pass(
            self.slot_at(offset),
            Box::new(move |outcome| match outcome {
                Ok(()) => device.submit_write_gathered(offset, pieces, ticket),
                Err(error) => ticket.finish(Err(error)),
            }),
        );
    }

    fn flush(&self) -> Result<(), DeviceError> {
        // Writes still under way are not counted: they may end too late for this flush.
        let covered = self.ended.load(Ordering::Acquire);
        if self.flushed.load(Ordering::Acquire) >= covered {
            return Ok(());
        }
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.device.flush()?;
        let before = self.flushed.fetch_max(covered, Ordering::AcqRel);
        assert!(before.max(covered) <= self.ended.load(Ordering::Acquire), "only writes that have ended are flushed");
        Ok(())
    }

    fn submit_flush(&self, ticket: Ticket) {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.device.submit_flush(ticket);
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        // Advice: where it would have to wait it is not given.
        if self.grants.as_ref().is_some_and(|grants| !grants.allows(self.slot_at(offset))) {
            return Ok(());
        }
        self.device.discard(offset, length)
    }

    fn latency_us(&self) -> u32 {
        self.device.latency_us()
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        self.device.set_deadline(deadline);
    }

    fn silent_for(&self) -> Option<Duration> {
        self.device.silent_for()
    }

    fn silent_because(&self) -> Option<String> {
        self.device.silent_because()
    }

    fn answers(&self) -> Result<(), DeviceError> {
        self.device.answers()
    }

    fn expect_other_writer(&self, offset: u64, length: u64) {
        self.device.expect_other_writer(offset, length);
    }

    fn set_epoch(&self, epoch: u64) {
        self.device.set_epoch(epoch);
    }

    fn kept_epoch(&self) -> u64 {
        self.device.kept_epoch()
    }

    fn hears(&self) -> bool {
        self.device.hears()
    }

    fn told_in_vain(&self) -> Option<String> {
        self.device.told_in_vain()
    }

    fn forget_epochs(&self) -> Result<(), DeviceError> {
        self.device.forget_epochs()
    }

    fn parallel(&self) -> Option<Arc<dyn Parallel>> {
        self.device.parallel()
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}

impl std::fmt::Debug for PoolDevice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "PoolDevice({}: {})", self.index, self.device.describe())
    }
}

/// A read cost of one stands for so many microseconds.
const COST_UNIT_US: u32 = 200;

/// Smaller reads from fast devices are over before another thread is awake.
const PARALLEL_BYTES_MIN: usize = 64 << 10;

/// Runs one job for each of these devices, at the same time where the devices can and it is worth it.
pub(crate) fn run_on_devices(devices: &[Arc<PoolDevice>], bytes: usize, jobs: Vec<Job<'_>>) {
    let is_slow = devices.iter().any(|device| device.read_cost >= crate::READ_COST_SEEKING);
    let is_worth_it = jobs.len() > 1 && (is_slow || bytes >= PARALLEL_BYTES_MIN);
    match devices.first().filter(|_| is_worth_it).and_then(|device| device.parallel()) {
        Some(parallel) => parallel.run(jobs),
        None => jobs.into_iter().for_each(|job| job()),
    }
}

/// A device is slow for its segment if it costs so many times what the slowest of enough others costs,
pub(crate) const SLOW_FACTOR: u64 = 16;
/// and no less than this: two devices that take part of a millisecond are both fast.
pub(crate) const SLOW_COST_MIN: u64 = 100;
/// Fewer writes that wait for a device are nothing: its queue is there to be used.
const CONGESTED_WRITES_MIN: u64 = 12;
/// A device is congested if so many times more writes wait for it than for the device in the middle.
const CONGESTED_FACTOR: u64 = 4;

/// The table; look-ups take a read lock for an instant.
#[derive(Debug, Default)]
pub struct Devices {
    table: RwLock<Vec<Option<Arc<PoolDevice>>>>,
    grants: OnceLock<Arc<Grants>>,
    /// Of the owner that writes now; 0 before it is known.
    epoch: AtomicU64,
}

impl Devices {
    /// From now on all devices are written as by the owner of this epoch, those that are attached later too.
    pub fn set_epoch(&self, epoch: u64) {
        let before = self.epoch.swap(epoch, Ordering::AcqRel);
        assert!(before <= epoch, "epoch {epoch} follows {before}");
        self.all().iter().for_each(|device| device.set_epoch(epoch));
    }

    /// The same, for the owner whose superblocks these are. Nodes refuse older owners from its first write on.
    pub fn set_epoch_of(&self, superblocks: &[Superblock]) {
        if let Some(epoch) = superblocks.first().and_then(|superblock| superblock.epochs.last()) {
            self.set_epoch(epoch.epoch.into());
        }
    }

    /// The newest epoch that superblocks know, or whoever keeps these devices: a crash may have come between a node's promise to refuse older
    /// owners and the superblocks that tell of that epoch.
    pub fn newest_epoch(&self, of_superblocks: u32) -> u32 {
        let kept = self.all().iter().map(|device| device.kept_epoch()).max().unwrap_or_default();
        of_superblocks.max(u32::try_from(kept).unwrap_or_default())
    }

    /// Every write to devices that are attached from now on passes these grants.
    pub fn set_grants(&self, grants: Arc<Grants>) {
        assert!(self.all().is_empty(), "grants are set before there is a device");
        assert!(self.grants.set(grants).is_ok(), "grants are set once");
    }

    /// The grants, where several machines may own the pool.
    pub(crate) fn grants(&self) -> Option<&Arc<Grants>> {
        self.grants.get()
    }

    /// Of the owner that writes now; 0 where nobody counts them.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(crate) fn attach(&self, index: DeviceIndex, device: Arc<dyn Device>, layout: DeviceLayout, read_cost: u32) {
        let pool_device = PoolDevice {
            index,
            device,
            layout,
            read_cost: read_cost.max(1),
            reads_in_flight: Arc::default(),
            ended: Arc::default(),
            flushed: AtomicU64::new(0),
            counters: Counters::default(),
            grants: self.grants.get().cloned(),
        };
        if let Some(grants) = &pool_device.grants {
            grants.set_slot_count(index, layout.slot_count);
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch != 0 {
            pool_device.set_epoch(epoch);
        }
        let mut table = self.table.write();
        if table.len() <= usize::from(index) {
            table.resize(usize::from(index) + 1, None);
        }
        table[usize::from(index)] = Some(Arc::new(pool_device));
    }

    pub(crate) fn detach(&self, index: DeviceIndex) -> Option<Arc<PoolDevice>> {
        self.table.write().get_mut(usize::from(index)).and_then(Option::take)
    }

    pub fn get(&self, index: DeviceIndex) -> Option<Arc<PoolDevice>> {
        self.table.read().get(usize::from(index)).and_then(Clone::clone)
    }

    pub fn all(&self) -> Vec<Arc<PoolDevice>> {
        self.table.read().iter().flatten().cloned().collect()
    }

    /// The threads that the devices bring.
    pub(crate) fn parallel(&self) -> Option<Arc<dyn Parallel>> {
        self.all().iter().find_map(|device| device.parallel())
    }

    /// Whether there is such a device.
    pub(crate) fn any(&self, is_such: impl Fn(&PoolDevice) -> bool) -> bool {
        self.table.read().iter().flatten().any(|device| is_such(device))
    }

    /// Makes every write that has finished durable; flushes only devices with such writes, at the same time where they
    /// can. Returns the devices that failed: they take no more writes, and what was written to them since their last
    /// good flush must count as missing.
    pub fn flush(&self) -> Vec<(DeviceIndex, DeviceError)> {
        let begun = self.grants.get().map(|grants| grants.generation());
        let all = self.all();
        let failed = self.flush_of(&all);
        if let (Some(grants), Some(begun)) = (self.grants.get(), begun) {
            let has_failed = |index: &DeviceIndex| failed.iter().any(|(failed, _)| failed == index);
            grants.note_flushed(all.iter().map(|device| device.index).filter(|index| !has_failed(index)), begun);
        }
        failed
    }

    /// The same for some devices, and nobody is told.
    pub fn flush_of(&self, all: &[Arc<PoolDevice>]) -> Vec<(DeviceIndex, DeviceError)> {
        let mut dirty: Vec<_> = all.iter().filter(|device| device.needs_flush()).collect();
        let Some(last) = dirty.pop() else { return Vec::new() };
        let covered: Vec<u64> = dirty.iter().map(|device| device.ended.load(Ordering::Acquire)).collect();
        let completion = Completion::new();
        for device in &dirty {
            device.submit_flush(completion.ticket(u64::from(device.index)));
        }
        // The last one on this thread: with one device nothing changes hands.
        let mut failed = Vec::new();
        if let Err(error) = last.flush() {
            failed.push((last.index, error));
        }
        failed.extend(completion.wait().into_iter().map(|(tag, error)| (tag as DeviceIndex, error)));
        for (device, covered) in dirty.iter().zip(covered) {
            if !failed.iter().any(|(index, _)| *index == device.index) {
                device.flushed.fetch_max(covered, Ordering::AcqRel);
            }
        }
        failed
    }

    /// Devices that take many times as long as others, and long enough to matter.
    pub fn slow(&self) -> Vec<DeviceIndex> {
        let mut costs: Vec<(u64, DeviceIndex)> =
            self.all().iter().map(|device| (device.cost(), device.index())).collect();
        costs.sort_unstable();
        let Some((usual, _)) = costs.get(costs.len().saturating_sub(1) / 2) else { return Vec::new() };
        let limit = (usual * SLOW_FACTOR).max(SLOW_COST_MIN);
        costs.into_iter().filter(|(cost, _)| *cost >= limit).map(|(_, index)| index).collect()
    }

    /// Devices that do not answer now.
    pub fn silent(&self) -> Vec<DeviceIndex> {
        let silent = self.all().into_iter().filter(|device| device.silent_for().is_some());
        silent.map(|device| device.index()).collect()
    }

    /// Devices with many times more writes waiting than others have: who can writes elsewhere.
    pub fn congested(&self) -> Vec<DeviceIndex> {
        // Asked for every record.
        if !self.any(|device| device.pending_writes() >= CONGESTED_WRITES_MIN) {
            return Vec::new();
        }
        let devices = self.all();
        let mut pending: Vec<(u64, DeviceIndex)> =
            devices.iter().map(|device| (device.pending_writes(), device.index())).collect();
        pending.sort_unstable();
        let usual = pending[(pending.len() - 1) / 2].0;
        let limit = CONGESTED_WRITES_MIN.max(usual * CONGESTED_FACTOR);
        pending.into_iter().filter(|(writes, _)| *writes >= limit).map(|(_, index)| index).collect()
    }

    /// Writes that wait for a device, or are being done.
    pub fn pending_writes(&self, index: DeviceIndex) -> u64 {
        self.get(index).map_or(0, |device| device.pending_writes())
    }
}

#[cfg(test)]
mod tests;
