//! Devices come, go and change their meaning while the pool runs.
//!
//! What a device is for is stored in the checkpoint's device table (`DeviceState`); whether it is there is known only to the
//! running store. Every change here is one checkpoint: the table, the superblocks and what follows for segments become durable
//! together, or not at all. Nothing is copied here: read next `mend.rs`, which moves and rebuilds what these changes ask for, and
//! `forecast.rs`, which tells beforehand.

use std::sync::Arc;
use std::time::Duration;

use stere_device::{Buffer, Device};
use stere_faults::{Bug, is_planted};
use stere_format::{DeviceEntry, DeviceIndex, DeviceState, Scheme, Superblock};
use stere_log::Segment;

use crate::error::Error;
use crate::mirrors::note_answering;
use crate::rebuild::Mender;
use crate::recover::declare;
use crate::{DeviceIn, engine::Engine};

/// The words people know a device by; `None` leaves a word as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    pub name: Option<String>,
    pub host: Option<String>,
    pub shelf: Option<String>,
    pub tags: Option<Vec<String>>,
    pub class: Option<u8>,
}

/// How full a device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUsage {
    pub slot_count: u32,
    /// Slots that hold a chunk, or held one that a durable checkpoint may still name.
    pub used: u32,
    pub free: u32,
    /// Live bytes of the segments with a chunk here, this chunk's share.
    pub live_bytes: u64,
    /// Chunks that segments place here.
    pub chunks: u64,
    /// Of them, those that are needed and not (wholly) written.
    pub missing: u64,
    pub is_attached: bool,
    /// It is there and failed, so that it takes nothing new until it is attached again.
    pub is_suspended: bool,
}

/// Segments with chunks that one accident of a host or shelf would take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedDomains {
    pub segments: u64,
    pub sharing_host: u64,
    pub sharing_shelf: u64,
}

/// Checkpoints after which a slot that somebody reads keeps a device from being removed.
const REMOVE_ROUNDS: u32 = 3;

/// Lets devices come, go and change what they are for.
pub struct Devices {
    pub(crate) engine: Arc<Engine>,
}

impl Devices {
    pub fn new(engine: &Arc<Engine>) -> Devices {
        Devices { engine: engine.clone() }
    }
}

impl Devices {
    pub(crate) fn change_entry(
        &self,
        index: DeviceIndex,
        change: impl FnOnce(&mut DeviceEntry),
    ) -> Result<DeviceEntry, Error> {
        let mut devices = self.engine.devices.lock();
        let entry = devices.iter_mut().find(|entry| entry.index == index).ok_or(Error::UnknownDevice { index })?;
        change(entry);
        assert_eq!(entry.index, index, "a device keeps its number");
        declare(&self.engine.log.stripe, entry);
        let changed = entry.clone();
        drop(devices);
        self.engine.places().resolve_places();
        Ok(changed)
    }

    /// An index that neither the table nor any segment names.
    pub fn free_device_index(&self) -> DeviceIndex {
        let mut taken: Vec<DeviceIndex> = self.engine.devices.lock().iter().map(|entry| entry.index).collect();
        for segment in self.engine.log.segments.all() {
            taken.extend(segment.chunks().iter().map(|place| place.device));
        }
        {
            let inner = self.engine.inner.read();
            taken.extend(inner.left.iter().map(|left| left.place.device));
            taken.extend(inner.freed.iter().flat_map(|freed| freed.segment.chunks()).map(|place| place.device));
        }
        taken.sort_unstable();
        taken.dedup();
        let free = (0..).zip(&taken).find(|(index, taken)| index != *taken).map(|(index, _)| index);
        let free = free.unwrap_or(taken.len() as DeviceIndex);
        assert!(taken.binary_search(&free).is_err(), "device number {} is free and taken", free + 1);
        free
    }

    /// Devices may take so long for a write or flush, each for as long as there is another that writing can go on with.
    pub fn set_deadlines(&self, timeout: Option<Duration>) {
        let (open, devices) = (self.engine.open_devices(), self.engine.log.stripe.devices.all());
        // Who holds it waits for a device, perhaps: what was said before still holds.
        if let Some(journal) = self.engine.journal.try_lock() {
            note_answering(&self.engine, &journal);
        }
        for device in devices {
            let is_over = self.engine.answering.waits_for_none();
            let has_other = is_over || open.iter().any(|index| *index != device.index());
            let deadline = timeout.filter(|_| has_other);
            device.set_deadline(deadline.map(|limit| self.engine.answering.deadline(device.index(), limit)));
        }
    }

    /// The last device that answers is waited for no longer than others. With a limit the pool is to be closed in that time.
    pub fn wait_for_none(&self, limit: Option<Duration>) {
        self.engine.answering.wait_for_none();
        self.engine.options.tail.iter().filter(|_| limit.is_some()).for_each(|tail| tail.give_up());
        limit.into_iter().for_each(|limit| self.set_deadlines(Some(limit)));
    }

    /// Segments that have a chunk on a device.
    fn segments_on(&self, index: DeviceIndex) -> Vec<Arc<Segment>> {
        let mut segments = self.engine.log.segments.all();
        segments.retain(|segment| segment.chunks().iter().any(|place| place.device == index));
        segments
    }

    fn chunks_on(&self, index: DeviceIndex) -> u64 {
        self.segments_on(index).len() as u64
    }

    fn has_live_chunks_on(&self, index: DeviceIndex) -> bool {
        self.segments_on(index).iter().any(|segment| segment.live_bytes() > 0)
    }

    /// Whether slots of a device wait to be free.
    fn is_left_on(&self, index: DeviceIndex) -> bool {
        let inner = self.engine.inner.read();
        let is_freed = inner.freed.iter().any(|freed| freed.segment.chunks().iter().any(|place| place.device == index));
        is_freed || inner.left.iter().any(|left| left.place.device == index)
    }

    /// How full a device of the table is; goes through the segment table.
    pub fn device_usage(&self, index: DeviceIndex) -> Result<DeviceUsage, Error> {
        let entry = self.engine.device_entry(index)?;
        let stripe = &self.engine.log.stripe;
        let mut usage = DeviceUsage {
            slot_count: entry.slot_count,
            is_attached: stripe.devices.get(index).is_some(),
            is_suspended: stripe.slots.is_suspended(index),
            free: stripe.slots.usage(index).map_or(0, |slots| slots.free),
            ..DeviceUsage::default()
        };
        usage.used = usage.slot_count.saturating_sub(usage.free);
        for segment in self.engine.log.segments.all() {
            let place = segment.placed();
            let Some(chunk) = place.chunks.iter().position(|chunk| chunk.device == index) else { continue };
            usage.chunks += 1;
            let is_needed = !segment.is_sealed() || segment.live_bytes() > 0;
            usage.missing += u64::from(place.is_missing(chunk) && is_needed);
            usage.live_bytes += segment.live_bytes() / u64::from(place.scheme.data);
        }
        Ok(usage)
    }

    /// Bytes of devices that no segment of this scheme can ever use, because the other devices are too small beside them.
    pub fn unusable_bytes(&self, scheme: Scheme) -> u64 {
        let stripe = &self.engine.log.stripe;
        let open = stripe.devices.all();
        let open = open.iter().filter(|device| stripe.slots.is_open(device.index()));
        let slots: u64 = open.map(|device| u64::from(device.layout().slot_count)).sum();
        let scheme = self.engine.fit(scheme);
        let usable = stripe.slots.capacity(scheme).segments_total * scheme.width() as u64;
        slots.saturating_sub(usable) * u64::from(self.engine.log.chunk_bytes())
    }

    /// How many segments are not spread over hosts and shelves as their devices are labelled.
    pub fn shared_domains(&self) -> SharedDomains {
        let devices = self.engine.devices.lock().clone();
        let label = |index: DeviceIndex| devices.iter().find(|entry| entry.index == index);
        let mut shared = SharedDomains::default();
        for segment in self.engine.log.segments.all() {
            let chunks = segment.chunks();
            let labels: Vec<&DeviceEntry> = chunks.iter().filter_map(|place| label(place.device)).collect();
            let meet = |same: &dyn Fn(&DeviceEntry, &DeviceEntry) -> bool| {
                (0..labels.len()).any(|one| (0..one).any(|other| same(labels[one], labels[other])))
            };
            let same_host = |one: &DeviceEntry, other: &DeviceEntry| !one.host.is_empty() && one.host == other.host;
            let same_shelf = |one: &DeviceEntry, other: &DeviceEntry| {
                !one.shelf.is_empty() && one.shelf == other.shelf && one.host == other.host
            };
            shared.segments += 1;
            shared.sharing_host += u64::from(meet(&same_host));
            shared.sharing_shelf += u64::from(meet(&same_shelf));
        }
        shared
    }

    /// Renames or relabels a device; durable when it returns.
    pub fn label_device(&self, index: DeviceIndex, label: Label) -> Result<(), Error> {
        self.engine.check_writable()?;
        let entry = self.change_entry(index, |entry| {
            let Label { name, host, shelf, tags, class } = label;
            entry.name = name.unwrap_or_else(|| std::mem::take(&mut entry.name));
            entry.host = host.unwrap_or_else(|| std::mem::take(&mut entry.host));
            entry.shelf = shelf.unwrap_or_else(|| std::mem::take(&mut entry.shelf));
            entry.tags = tags.unwrap_or_else(|| std::mem::take(&mut entry.tags));
            entry.class = class.unwrap_or(entry.class);
        })?;
        // What data may lie here, and where else it may.
        self.engine.mender.lock().forget_failures();
        for superblock in
            self.engine.superblocks.lock().iter_mut().filter(|superblock| superblock.device_index == index)
        {
            superblock.host.clone_from(&entry.host);
            superblock.shelf.clone_from(&entry.shelf);
        }
        self.engine.checkpoint()
    }

    /// Changes what a device is for; durable when it returns. `Failed` calls a spare in, `Offline` takes the device away.
    pub fn set_device_state(&self, index: DeviceIndex, state: DeviceState) -> Result<(), Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.chunk_writer().settled_mender()?;
        self.engine.device_entry(index)?;
        if state == DeviceState::Spare {
            self.engine.checkpoint()?;
            let chunks = self.chunks_on(index);
            if chunks > 0 {
                return Err(Error::NotEmpty { index, chunks });
            }
        }
        if state == DeviceState::Offline {
            self.check_nothing_lost(index)?;
        }
        self.change_entry(index, |entry| entry.state = state.code())?;
        mender.forget_failures();
        if state == DeviceState::Failed {
            self.activate_spare()?;
        }
        self.engine.chunk_writer().end_weak_segments();
        if state == DeviceState::Offline {
            return self.take_away(index);
        }
        self.engine.checkpoint()
    }

    /// Takes a device of the table that came, or came back: it is read and written at once, and mending catches it up.
    pub fn attach_device(&self, new: DeviceIn) -> Result<(), Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.chunk_writer().settled_mender()?;
        let index = new.index;
        let entry = self.engine.device_entry(index)?;
        self.check_belongs(&new)?;
        let refused = |reason: &str| Err(Error::Pool(format!("device number {}: {reason}", index + 1)));
        if entry.id != new.superblock.device {
            return refused("the pool knows another device under this number; use `stere device replace`");
        }
        if entry.slot_count > new.superblock.layout.slot_count {
            return refused("it is smaller than the pool knows it; use `stere device replace`");
        }
        if self.engine.log.stripe.devices.get(index).is_some() && !self.engine.log.stripe.slots.is_suspended(index) {
            return refused("it is in use already");
        }
        if entry.device_state() == DeviceState::Offline {
            self.change_entry(index, |entry| entry.state = DeviceState::Active.code())?;
        }
        self.open_device(&new)?;
        self.engine.note_sizes();
        mender.forget_failures();
        self.engine.chunk_writer().end_weak_segments();
        self.engine.checkpoint()
    }

    /// Goes on without a device; its state stays as it is. Refused where that would make content unreadable, unless `force`.
    pub fn detach_device(&self, index: DeviceIndex, force: bool) -> Result<(), Error> {
        let mut mender = self.engine.mender.lock();
        if let Err(error) = self.engine.chunk_writer().settle(&mut mender) {
            tracing::warn!(%error, "what was being mended is given up");
        }
        self.engine.device_entry(index)?;
        if !force {
            self.check_nothing_lost(index)?;
        }
        mender.forget_failures();
        if self.engine.check_writable().is_err() {
            drop(self.engine.log.stripe.detach(index));
            return Ok(());
        }
        self.take_away(index)
    }

    /// Makes an empty device part of the pool; durable when it returns. Its superblock tells the index the entry has.
    pub fn add_device(&self, new: DeviceIn, entry: DeviceEntry) -> Result<(), Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.chunk_writer().settled_mender()?;
        self.add_locked(&mut mender, new, entry)
    }

    fn add_locked(&self, mender: &mut Mender, new: DeviceIn, entry: DeviceEntry) -> Result<(), Error> {
        self.check_belongs(&new)?;
        let index = entry.index;
        if (index, entry.id) != (new.index, new.superblock.device) || new.superblock.device_index != index {
            return Err(Error::Pool("the new device's superblock and table entry do not agree; this is a bug".into()));
        }
        let is_known = self.engine.devices.lock().iter().any(|known| known.index == index || known.id == entry.id);
        if is_known || self.chunks_on(index) > 0 || self.is_left_on(index) {
            return Err(Error::Pool(format!("device number {} is in use already; choose another", index + 1)));
        }
        {
            // No checkpoint on its way may tell of the device before it is whole.
            let _checkpointer = self.engine.checkpointer.lock();
            self.introduce(&new)?;
            declare(&self.engine.log.stripe, &entry);
            let mut devices = self.engine.devices.lock();
            let at = devices.partition_point(|known| known.index < index);
            devices.insert(at, entry);
            assert!(devices.is_sorted_by(|one, other| one.index < other.index), "the table lists each device once");
        }
        self.engine.places().resolve_places();
        mender.forget_failures();
        self.engine.chunk_writer().end_weak_segments();
        self.engine.checkpoint()
    }

    /// Opens a new device and gives it a superblock of the present generation, so that it is known from the moment on in which the
    /// next checkpoint lists it; until then the table does not, and it counts for nothing. The checkpointer is held.
    fn introduce(&self, new: &DeviceIn) -> Result<(), Error> {
        assert!(self.engine.checkpointer.is_locked(), "no checkpoint is made while a device comes");
        let index = new.index;
        wipe_superblocks(&*new.device, &new.superblock)?;
        self.open_device(new)?;
        let written = self.write_superblock_of(index);
        if written.is_err() {
            self.engine.log.stripe.detach(index);
            self.engine.superblocks.lock().retain(|superblock| superblock.device_index != index);
        }
        written
    }

    fn write_superblock_of(&self, index: DeviceIndex) -> Result<(), Error> {
        let superblocks = self.engine.superblocks.lock();
        let own = superblocks.iter().find(|superblock| superblock.device_index == index);
        let (Some(own), Some(device)) = (own, self.engine.log.stripe.devices.get(index)) else {
            return Err(Error::UnknownDevice { index });
        };
        let bytes = own.encode().map_err(|error| Error::Pool(error.to_string()))?;
        let buffer = Buffer::copy_of(&bytes).share();
        let failed = |error: stere_device::DeviceError| Error::Pool(format!("{}: {error}", device.describe()));
        for offset in own.layout.superblock_offsets_of_generation(own.generation) {
            device.write(offset, buffer.clone(), 0..Superblock::SIZE).map_err(failed)?;
        }
        device.flush().map_err(failed)
    }

    /// Puts a device in the place of another, and tells its index. If the old one is away the new one takes its index and is filled
    /// from the others; if it is there, or larger, the new one gets an index of its own and the old one is emptied and dropped.
    pub fn replace_device(
        &self,
        index: DeviceIndex,
        mut new: DeviceIn,
        mut entry: DeviceEntry,
    ) -> Result<DeviceIndex, Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.chunk_writer().settled_mender()?;
        self.engine.device_entry(index)?;
        self.check_belongs(&new)?;
        let is_away = self.engine.log.stripe.devices.get(index).is_none();
        let slots_needed = self.slots_used_on(index);
        let takes_index = is_away && slots_needed <= new.superblock.layout.slot_count;
        let new_index = if takes_index { index } else { self.free_device_index() };
        new.index = new_index;
        new.superblock.device_index = new_index;
        entry.index = new_index;
        if !takes_index {
            self.add_locked(&mut mender, new, entry)?;
            self.change_entry(index, |old| old.state = DeviceState::Removing.code())?;
            self.engine.chunk_writer().end_weak_segments();
            return self.engine.checkpoint().map(|()| new_index);
        }
        {
            // No checkpoint on its way may tell of the new device without the chunks that it lacks.
            let _checkpointer = self.engine.checkpointer.lock();
            let _journal = self.engine.journal.lock();
            self.introduce(&new)?;
            for segment in self.engine.log.segments.all() {
                if is_planted(Bug::ReplacementTrusted) {
                    break;
                }
                if let Some(chunk) = segment.chunks().iter().position(|place| place.device == index) {
                    segment.mark_missing(chunk);
                    self.engine.log.changed.note(&segment);
                }
            }
            self.change_entry(index, |old| *old = entry)?;
        }
        mender.forget_failures();
        self.engine.chunk_writer().end_weak_segments();
        self.engine.checkpoint().map(|()| new_index)
    }

    fn slots_used_on(&self, index: DeviceIndex) -> u32 {
        let segments = self.engine.log.segments.all();
        let slots = segments.iter().flat_map(|segment| segment.chunks()).filter(|place| place.device == index);
        let left = self
            .engine
            .inner
            .read()
            .left
            .iter()
            .filter(|left| left.place.device == index)
            .map(|left| left.place.slot)
            .max();
        slots.map(|place| place.slot).max().max(left).map_or(0, |slot| slot + 1)
    }

    /// Drops a device from the table. Refused while chunks are on it, unless `force` says that what lies nowhere else may be lost.
    pub fn remove_device(&self, index: DeviceIndex, force: bool) -> Result<(), Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.chunk_writer().settled_mender()?;
        self.remove_locked(&mut mender, index, force)
    }

    fn remove_locked(&self, mender: &mut Mender, index: DeviceIndex, force: bool) -> Result<(), Error> {
        let state = self.engine.device_entry(index)?.device_state();
        if self.engine.devices.lock().len() == 1 {
            return Err(Error::Pool("this is the pool's last device; destroy the pool instead".into()));
        }
        // Nothing new goes there while it is looked at; what was emptied is given back.
        self.change_entry(index, |entry| entry.state = DeviceState::Removing.code())?;
        self.engine.chunk_writer().end_weak_segments();
        let mut chunks = 0;
        for _ in 0..REMOVE_ROUNDS {
            self.engine.checkpoint()?;
            let left = self.engine.inner.read().left.iter().filter(|left| left.place.device == index).count() as u64;
            chunks = self.chunks_on(index) + left;
            if chunks == 0 {
                break;
            }
        }
        if chunks > 0 && !force {
            self.change_entry(index, |entry| entry.state = state.code())?;
            self.engine.checkpoint()?;
            return Err(Error::NotEmpty { index, chunks });
        }
        let device = self.engine.log.stripe.devices.get(index);
        let own = {
            let _checkpointer = self.engine.checkpointer.lock();
            let mut superblocks = self.engine.superblocks.lock();
            if superblocks.iter().all(|superblock| superblock.device_index == index) {
                return Err(Error::Pool("no other device of the pool is there; bring another back first".into()));
            }
            self.engine.log.stripe.slots.suspend(index);
            {
                let mut devices = self.engine.devices.lock();
                devices.retain(|entry| entry.index != index);
                assert!(!devices.is_empty(), "a pool keeps a device");
            }
            self.engine.places().resolve_places();
            // It keeps the superblock it has, and is out of date from the next checkpoint on.
            let own = superblocks.iter().position(|superblock| superblock.device_index == index);
            own.map(|at| superblocks.remove(at))
        };
        // The journal moves away with this one.
        self.engine.checkpoint()?;
        self.engine.log.stripe.forget(index);
        mender.forget_failures();
        if let (Some(device), Some(own)) = (device, own) {
            if let Err(error) = wipe_superblocks(&*device, &own) {
                tracing::warn!(device = index, %error, "a removed device still says that it is of the pool");
            }
        }
        Ok(())
    }

    /// Removes devices that were to be removed and are empty now; whether there were any.
    pub(crate) fn drop_emptied(&self, mender: &mut Mender) -> Result<bool, Error> {
        let devices = self.engine.devices.lock().clone();
        let removing = devices.iter().filter(|entry| entry.device_state() == DeviceState::Removing);
        let mut dropped = false;
        for entry in removing {
            let takes_rest = is_planted(Bug::RestDropped) && self.engine.log.stripe.devices.get(entry.index).is_none();
            // What is dead there goes with the checkpoints of the removal: where nothing is written nobody else makes one.
            if (!self.has_live_chunks_on(entry.index) || takes_rest) && devices.len() > 1 {
                match self.remove_locked(mender, entry.index, takes_rest) {
                    Ok(()) => dropped = true,
                    // Somebody still reads there: the next step finds it empty.
                    Err(Error::NotEmpty { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(dropped)
    }

    /// Lets a spare take part, if there is one; the caller makes that durable.
    pub(crate) fn activate_spare(&self) -> Result<bool, Error> {
        let devices = self.engine.devices.lock().clone();
        let is_ready = |entry: &&DeviceEntry| {
            let stripe = &self.engine.log.stripe;
            let is_there = stripe.devices.get(entry.index).is_some() && !stripe.slots.is_suspended(entry.index);
            entry.device_state() == DeviceState::Spare && is_there
        };
        let largest =
            devices.iter().filter(is_ready).max_by_key(|entry| (entry.slot_count, std::cmp::Reverse(entry.index)));
        let Some(spare) = largest.filter(|_| !is_planted(Bug::SpareStays)) else { return Ok(false) };
        tracing::info!(device = spare.index, name = spare.name, "a spare takes over");
        self.change_entry(spare.index, |entry| entry.state = DeviceState::Active.code())?;
        Ok(true)
    }

    /// Writes everything that is meant for a device while it is there, then goes on without it.
    fn take_away(&self, index: DeviceIndex) -> Result<(), Error> {
        self.engine.log.stripe.slots.suspend(index);
        self.engine.chunk_writer().end_weak_segments();
        // The journal moves to another device, and the superblocks say so, before this one goes.
        self.engine.checkpoint()?;
        drop(self.engine.log.stripe.detach(index));
        self.engine.checkpoint()
    }

    fn check_belongs(&self, new: &DeviceIn) -> Result<(), Error> {
        let refused = |reason: &str| Err(Error::Pool(format!("{}: {reason}", new.device.describe())));
        if new.superblock.pool != self.engine.log.pool_id() {
            return refused("it is of another pool");
        }
        if new.superblock.layout.chunk_bytes != self.engine.log.chunk_bytes() {
            return refused("it is laid out for another chunk size than the pool has");
        }
        Ok(())
    }

    /// Opens a device for reads and writes; the next checkpoint writes its superblock.
    fn open_device(&self, new: &DeviceIn) -> Result<(), Error> {
        let layout = new.superblock.layout;
        let mut superblocks = self.engine.superblocks.lock();
        let common = superblocks.first().ok_or_else(|| Error::Pool("the pool has no device left".into()))?;
        let own = Superblock {
            generation: common.generation,
            journal_start: common.journal_start,
            journal_bytes: common.journal_bytes,
            journal_devices: common.journal_devices.clone(),
            is_log_shared: common.is_log_shared,
            epochs: common.epochs.clone(),
            clean: common.clean,
            checkpoint: common.checkpoint.clone(),
            pool_name: common.pool_name.clone(),
            ..new.superblock.clone()
        };
        superblocks.retain(|superblock| superblock.device_index != new.index);
        superblocks.push(own);
        drop(superblocks);
        let attached = self.engine.log.stripe.attach(new.index, new.device.clone(), layout, new.read_cost);
        attached.map_err(|error| Error::Pool(error.to_string()))
    }

    fn check_nothing_lost(&self, index: DeviceIndex) -> Result<(), Error> {
        let (mut segments, mut live_bytes) = (0, 0);
        for segment in self.engine.log.segments.all().iter().filter(|segment| segment.live_bytes() > 0) {
            let needed = usize::from(segment.scheme.data);
            let readable = self.engine.readable_chunks(&segment.placed(), &[]);
            if readable >= needed && self.engine.readable_chunks(&segment.placed(), &[index]) < needed {
                segments += 1;
                live_bytes += segment.live_bytes();
            }
        }
        if segments > 0 {
            return Err(Error::WouldLose { index, segments, live_bytes });
        }
        Ok(())
    }
}

/// Takes away all copies of the superblock, so that nothing old is found again.
fn wipe_superblocks(device: &dyn Device, superblock: &Superblock) -> Result<(), Error> {
    let failed = |error: stere_device::DeviceError| Error::Pool(format!("{}: {error}", device.describe()));
    let zeros = Buffer::zeroed(Superblock::SIZE).share();
    for offset in superblock.layout.superblock_offsets() {
        device.write(offset, zeros.clone(), 0..Superblock::SIZE).map_err(failed)?;
    }
    device.flush().map_err(failed)
}
