//! Mending: chunks that are not where they should be are written there, from the others.
//!
//! What is to be done follows from the segment table and the states of the devices alone, so it can stop anywhere, also in a crash, and
//! go on. A chunk that was not written while its device was away is filled in its own slot; one on a device that shall be empty is
//! written to a slot elsewhere. Either way: read the others whole, prove every record, write, flush, and only then change the
//! segment table. The old slot stays as it was until a checkpoint that knows the new one is durable and nobody reads the old one.
//! Metadata segments are in the checkpoint record instead of the tree: the same, with the checkpointer held while they change.
//!
//! Read next: `devices.rs`, the log's `verify.rs`, `docs/design/devices.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::MutexGuard;
use stere_device::{Completion, Job};
use stere_format::{BLOCK_BYTES, ChunkHeader, ChunkPlace, DeviceIndex, DeviceState, SegmentChunks, SegmentKind};
use stere_log::Segment;
use stere_stripe::{StripeError, Whole};

use crate::error::Error;
use crate::{LeftSlot, Store};

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendProgress {
    pub bytes_written: u64,
    pub chunks: u64,
    /// Nothing more can be done now.
    pub is_done: bool,
}

/// What is left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendStatus {
    /// Chunks to be filled or moved.
    pub chunks_left: u64,
    pub bytes_left: u64,
    /// Written since the store was opened.
    pub bytes_done: u64,
    /// Of those left, chunks for which there is no room, or too little to rebuild them from.
    pub impossible_chunks: u64,
    /// Chunks that wait for a device that is away and expected back.
    pub waiting_chunks: u64,
    /// Of them, those that were written to meanwhile: what the device will be caught up on.
    pub waiting_bytes: u64,
}

/// What the mender remembers; nothing of it is needed after a crash.
#[derive(Default)]
pub(crate) struct Mender {
    /// Chunks for which nothing could be done, until something about the devices changes.
    impossible: BTreeSet<(u64, usize)>,
    /// Chunks whose own slot did not take them.
    unfillable: BTreeSet<(u64, usize)>,
    bytes_done: u64,
    /// Whether chunks may move for the sake of even filling.
    pub rebalances: bool,
    /// Whether something changed that only the next checkpoint makes durable.
    is_unrecorded: bool,
    /// Suspended devices that were given another chance, and have not proved yet that they deserved it.
    resumed: BTreeSet<DeviceIndex>,
    /// How many metadata segments had another number of copies than they shall have, before the last checkpoint.
    misfits_before: Option<usize>,
}

impl Mender {
    /// The devices changed: what was impossible may be possible.
    pub fn forget_failures(&mut self) {
        self.impossible.clear();
        self.unfillable.clear();
        self.resumed.clear();
    }
}

/// What a chunk needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// To be written where it is placed.
    Fill,
    /// To be written elsewhere, on that device if one is named.
    Move(Option<DeviceIndex>),
    /// Its device.
    Wait,
}

struct Task {
    segment: Arc<Segment>,
    place: Arc<SegmentChunks>,
    needs: Vec<(usize, Need)>,
    /// How many more chunks may fail before content is lost.
    spare: i32,
}

impl Task {
    fn chunk_bytes(&self) -> u64 {
        u64::from(self.segment.blocks_in_use()) * BLOCK_BYTES as u64
    }
}

/// What the table says of a device, and whether it is there.
#[derive(Clone, Copy)]
struct Standing {
    state: DeviceState,
    is_attached: bool,
    is_suspended: bool,
}

/// A chunk under way to its slot.
struct Written {
    segment: Arc<Segment>,
    place: Arc<SegmentChunks>,
    slots: Vec<(usize, ChunkPlace)>,
    /// Those of the slots that were taken for it.
    taken: Vec<ChunkPlace>,
    bytes: u64,
}

/// Chunk content under way to devices, at most.
const FLYING_BYTES_MAX: u64 = 48 << 20;
/// Segments read at the same time, where devices bring threads for it.
const SEGMENTS_AT_ONCE: usize = 3;
/// Segments that stay free for the cleaner and for checkpoints when chunks are moved.
const SEGMENTS_KEPT: u64 = 3;
/// How far apart devices may be filled before chunks move, as a part of their slots.
const BALANCE_PERCENT: u64 = 5;

impl Store {
    /// Does about so many bytes of what is left to do: fills chunks of devices that came back, empties devices that shall be
    /// empty, evens out where that was asked for. What it did is durable with the next commit, and nothing needs that.
    pub fn mend_step(&self, budget_bytes: u64) -> Result<MendProgress, Error> {
        self.check_writable()?;
        let mut mender = self.mender.lock();
        if self.end_weak_segments() {
            self.log.wait_for_rows().map_err(|error| self.fail(error.into()))?;
        }
        let mut tasks = self.tasks(&mender);
        tasks.retain(|task| task.needs.iter().any(|(_, need)| *need != Need::Wait));
        if tasks.is_empty() && mender.rebalances {
            tasks = self.balancing_tasks();
            mender.rebalances = !tasks.is_empty();
        }
        let mut progress = MendProgress::default();
        let mut written = Vec::new();
        self.write_chunks(&mut mender, tasks, budget_bytes, &mut written)?;
        let done = self.record_chunks(&mut mender, written)?;
        progress.chunks = done.0;
        progress.bytes_written = done.1;
        mender.bytes_done += done.1;
        if progress.chunks == 0 {
            progress.is_done = !self.finish_mending(&mut mender)?;
        }
        Ok(progress)
    }

    /// What is left to do; goes through the segment table.
    pub fn mend_status(&self) -> MendStatus {
        let mender = self.mender.lock();
        let mut status = MendStatus { bytes_done: mender.bytes_done, ..MendStatus::default() };
        for task in self.tasks(&mender) {
            for (chunk, need) in &task.needs {
                let bytes = task.chunk_bytes();
                if *need == Need::Wait {
                    status.waiting_chunks += 1;
                    status.waiting_bytes += if task.place.is_missing(*chunk) { bytes } else { 0 };
                    continue;
                }
                status.chunks_left += 1;
                status.bytes_left += bytes;
                let has_room = *need == Need::Fill || self.has_room_beside(&task.place, *chunk);
                let is_impossible = mender.impossible.contains(&(task.segment.id, *chunk)) || !has_room;
                status.impossible_chunks += u64::from(is_impossible);
            }
        }
        status
    }

    /// Evens out how full the devices are, until they are within five percent; or stops doing so.
    pub fn set_rebalancing(&self, rebalances: bool) {
        self.mender.lock().rebalances = rebalances;
    }

    fn standings(&self) -> BTreeMap<DeviceIndex, Standing> {
        let stripe = &self.log.stripe;
        let standing = |entry: &stere_format::DeviceEntry| Standing {
            state: entry.device_state(),
            is_attached: stripe.device(entry.index).is_some(),
            is_suspended: stripe.is_suspended(entry.index),
        };
        self.devices.lock().iter().map(|entry| (entry.index, standing(entry))).collect()
    }

    /// Ends open segments that miss chunks, or have them where none shall be: their streams go on at full redundancy.
    pub(crate) fn end_weak_segments(&self) -> bool {
        let standings = self.standings();
        let open = standings.keys().filter(|index| self.log.stripe.is_open(**index)).count();
        let meta_scheme = self.meta_stream().scheme;
        let is_weak = |segment: &Segment| {
            let place = segment.placed();
            let is_away = |index: &DeviceIndex| !self.log.stripe.is_open(*index);
            if segment.kind == SegmentKind::Meta && segment.scheme != meta_scheme {
                return true;
            }
            let misplaced = place.chunks.iter().any(|chunk| is_away(&chunk.device));
            (misplaced || place.missing != 0) && (open >= place.scheme.width() || segment.has_lost_chunks())
        };
        self.log.end_segments(&is_weak)
    }

    fn need(
        &self,
        mender: &Mender,
        segment: u64,
        place: &SegmentChunks,
        chunk: usize,
        standing: Option<&Standing>,
    ) -> Option<Need> {
        // Whoever is no longer in the table was removed although data was lost with it.
        let Some(standing) = standing else { return Some(Need::Move(None)) };
        let is_there = standing.is_attached && !standing.is_suspended;
        match (place.is_missing(chunk), is_there) {
            _ if standing.state.gives_chunks_away() || standing.state == DeviceState::Spare => Some(Need::Move(None)),
            (true, true) if mender.unfillable.contains(&(segment, chunk)) => Some(Need::Move(None)),
            (true, true) => Some(Need::Fill),
            (_, false) => Some(Need::Wait),
            (false, true) => None,
        }
    }

    /// All sealed segments that need something, the least protected first.
    fn tasks(&self, mender: &Mender) -> Vec<Task> {
        let standings = self.standings();
        let in_memory = self.log.segments_in_memory();
        let mut tasks = Vec::new();
        for segment in self.log.segments.all() {
            if !segment.is_sealed() || segment.live_bytes() == 0 || in_memory.contains(&segment.id) {
                continue;
            }
            let place = segment.placed();
            let mut needs = Vec::new();
            let mut readable = 0;
            for (chunk, at) in place.chunks.iter().enumerate() {
                let standing = standings.get(&at.device);
                readable +=
                    i32::from(!place.is_missing(chunk) && standing.is_some_and(|standing| standing.is_attached));
                needs.extend(self.need(mender, segment.id, &place, chunk, standing).map(|need| (chunk, need)));
            }
            if !needs.is_empty() {
                let spare = readable - i32::from(place.scheme.data);
                tasks.push(Task { segment, place, needs, spare });
            }
        }
        tasks.sort_by_key(|task| (task.spare, task.segment.id));
        tasks
    }

    /// Whether a chunk of the segment could go to another device.
    fn has_room_beside(&self, place: &SegmentChunks, chunk: usize) -> bool {
        let from = place.chunks[chunk].device;
        self.log.stripe.has_place_beside(&others(place, chunk), from) && self.has_room_to_move()
    }

    /// Moving must leave the cleaner and the next checkpoint their room.
    fn has_room_to_move(&self) -> bool {
        let capacity = self.log.stripe.capacity(self.fit(self.options.meta_scheme));
        capacity.segments_free > SEGMENTS_KEPT.min(capacity.segments_total / 8)
    }

    /// Reads, proves and submits the chunks of as many tasks as the budget allows, and waits until they are durable.
    fn write_chunks(
        &self,
        mender: &mut MutexGuard<'_, Mender>,
        tasks: Vec<Task>,
        budget_bytes: u64,
        written: &mut Vec<Written>,
    ) -> Result<(), Error> {
        let mut submitted: Vec<(Completion, Written)> = Vec::new();
        let mut bytes = 0;
        let mut tasks = tasks.into_iter().peekable();
        while tasks.peek().is_some() && (bytes == 0 || bytes < budget_bytes) {
            let mut together = Vec::new();
            while together.len() < SEGMENTS_AT_ONCE && (bytes == 0 || bytes < budget_bytes) {
                let Some(task) = tasks.next() else { break };
                let Some(written) = self.take_slots(mender, &task) else { continue };
                bytes += written.bytes;
                together.push(written);
            }
            for (written, outcome) in self.rebuild_together(together) {
                match outcome {
                    Ok(completion) => submitted.push((completion, written)),
                    Err(error) => {
                        tracing::warn!(segment = written.segment.id, %error, "a segment cannot be mended now");
                        written.slots.iter().for_each(|(chunk, _)| {
                            mender.impossible.insert((written.segment.id, *chunk));
                        });
                        bytes -= written.bytes;
                        self.log.stripe.free_now(&written.taken);
                    }
                }
            }
            hold_back(&submitted);
        }
        self.settle(mender, submitted, written)
    }

    /// Finds slots for what the task moves; `None` if nothing of it can be done.
    fn take_slots(&self, mender: &Mender, task: &Task) -> Option<Written> {
        let (mut slots, mut taken) = (Vec::new(), Vec::new());
        let mut place = SegmentChunks::clone(&task.place);
        for (chunk, need) in &task.needs {
            if mender.impossible.contains(&(task.segment.id, *chunk)) {
                continue;
            }
            match need {
                Need::Wait => {}
                Need::Fill => slots.push((*chunk, task.place.chunks[*chunk])),
                Need::Move(only) => {
                    let (beside, from) = (others(&place, *chunk), place.chunks[*chunk].device);
                    let has_room = self.has_room_to_move();
                    if let Some(slot) = has_room.then(|| self.log.stripe.place_beside(&beside, from, *only)).flatten() {
                        place.chunks[*chunk] = slot;
                        slots.push((*chunk, slot));
                        taken.push(slot);
                    }
                }
            }
        }
        let bytes = task.chunk_bytes() * slots.len() as u64;
        let (segment, place) = (task.segment.clone(), task.place.clone());
        (!slots.is_empty()).then_some(Written { segment, place, slots, taken, bytes })
    }

    /// Several segments side by side where the devices have threads for it.
    fn rebuild_together(&self, together: Vec<Written>) -> Vec<(Written, Result<Completion, Error>)> {
        let mut outcomes: Vec<Option<Result<Completion, Error>>> = together.iter().map(|_| None).collect();
        let threads = self.log.stripe.devices().first().and_then(|device| stere_device::Device::parallel(&**device));
        let jobs: Vec<Job<'_>> = together
            .iter()
            .zip(&mut outcomes)
            .map(|(written, outcome)| Box::new(move || *outcome = Some(self.rebuild(written))) as Job<'_>)
            .collect();
        match threads.filter(|_| jobs.len() > 1) {
            Some(threads) => threads.run(jobs),
            None => jobs.into_iter().for_each(|job| job()),
        }
        together
            .into_iter()
            .zip(outcomes)
            .map(|(written, outcome)| (written, outcome.expect("every job ran")))
            .collect()
    }

    /// Reads a segment, proves it and submits its chunks to their slots.
    fn rebuild(&self, written: &Written) -> Result<Completion, Error> {
        let Written { segment, place, slots, .. } = written;
        let stripe = &self.log.stripe;
        let mut whole = self.read_whole(segment, place)?;
        let verified = self.log.verify_whole(segment, &mut whole);
        if verified.damaged_records > 0 || (verified.is_cut && segment.kind == SegmentKind::Data) {
            tracing::warn!(segment = segment.id, ?verified, "a segment is damaged; what is left of it is copied");
        }
        let mut place_then = SegmentChunks::clone(place);
        for (chunk, slot) in slots {
            place_then.chunks[*chunk] = *slot;
            place_then.missing &= !(1 << chunk);
        }
        let chunks: Vec<usize> = slots.iter().map(|(chunk, _)| *chunk).collect();
        let contents = stripe.chunks_of(whole, &chunks).map_err(to_error)?;
        let completion = Completion::new();
        for ((chunk, slot), content) in slots.iter().zip(contents) {
            let header = ChunkHeader {
                pool: self.log.pool_id(),
                segment: segment.id,
                sequence: segment.sequence,
                kind: segment.kind,
                class: segment.class,
                chunk: *chunk as u8,
                place: place_then.clone(),
            };
            let ticket = completion.ticket(*chunk as u64);
            if let Err(error) = stripe.write_chunk(*slot, &header, &content, ticket) {
                // The slots are given back: nothing may be under way to them.
                completion.wait_done();
                return Err(to_error(error));
            }
        }
        Ok(completion)
    }

    /// A segment's content, without devices that failed where that is possible, and in pieces where it must be.
    fn read_whole(&self, segment: &Segment, place: &SegmentChunks) -> Result<Whole, Error> {
        let stripe = &self.log.stripe;
        let blocks = segment.blocks_in_use();
        let retired = self.retired_chunks(place);
        if retired != 0 {
            if let Ok(whole) = stripe.read_whole(segment.id, place, blocks, retired) {
                return Ok(whole);
            }
        }
        match stripe.read_whole(segment.id, place, blocks, 0) {
            Err(StripeError::TooFewChunks { failed, .. }) if !failed.is_empty() => {
                let (whole, unreadable) = stripe.salvage_whole(segment.id, place, blocks).map_err(to_error)?;
                tracing::warn!(segment = segment.id, unreadable, "blocks of a segment can be read from no device");
                Ok(whole)
            }
            outcome => outcome.map_err(to_error),
        }
    }

    /// Chunks on devices that failed: asked only where the others do not suffice.
    fn retired_chunks(&self, place: &SegmentChunks) -> u32 {
        let devices = self.devices.lock();
        let is_retired = |index: DeviceIndex| {
            devices.iter().any(|entry| entry.index == index && entry.device_state() == DeviceState::Failed)
        };
        let retired = place.chunks.iter().enumerate().filter(|(_, chunk)| is_retired(chunk.device));
        retired.fold(0, |set, (chunk, _)| set | 1 << chunk)
    }

    /// Waits for what was submitted and makes it durable; what a device did not take is given up.
    fn settle(
        &self,
        mender: &mut MutexGuard<'_, Mender>,
        submitted: Vec<(Completion, Written)>,
        written: &mut Vec<Written>,
    ) -> Result<(), Error> {
        if submitted.is_empty() {
            return Ok(());
        }
        let mut failed: Vec<(Written, Vec<usize>)> = Vec::new();
        for (completion, one) in submitted {
            let errors = completion.wait();
            for (chunk, error) in &errors {
                let slot = one.slots.iter().find(|(number, _)| *number as u64 == *chunk);
                slot.iter().for_each(|(_, slot)| self.log.note_write_error(slot.device, error));
            }
            match errors.is_empty() {
                true => written.push(one),
                false => failed.push((one, errors.iter().map(|(chunk, _)| *chunk as usize).collect())),
            }
        }
        let unflushed = self.log.flush()?;
        let (lost, kept) = std::mem::take(written)
            .into_iter()
            .partition(|one: &Written| one.slots.iter().any(|(_, slot)| unflushed.contains(&slot.device)));
        *written = kept;
        let lost: Vec<Written> = lost;
        failed.extend(lost.into_iter().map(|one| {
            let chunks = one.slots.iter().filter(|(_, slot)| unflushed.contains(&slot.device)).map(|(chunk, _)| *chunk);
            let chunks = chunks.collect();
            (one, chunks)
        }));
        for (one, chunks) in failed {
            // A slot that does not take its chunk: the chunk goes elsewhere.
            mender.unfillable.extend(chunks.into_iter().map(|chunk| (one.segment.id, chunk)));
            self.log.stripe.free_now(&one.taken);
        }
        Ok(())
    }

    /// Enters what is durable into the segment table; tells how many chunks and bytes.
    fn record_chunks(&self, mender: &mut MutexGuard<'_, Mender>, written: Vec<Written>) -> Result<(u64, u64), Error> {
        if written.is_empty() {
            return Ok((0, 0));
        }
        let has_metadata = written.iter().any(|one| one.segment.kind == SegmentKind::Meta);
        // A checkpoint that is being written tells of one place of a chunk only.
        let _checkpointer = has_metadata.then(|| self.checkpointer.lock());
        self.check_writable()?;
        let mut inner = self.inner.write();
        let (mut chunks, mut bytes) = (0, 0);
        for one in written {
            let is_known = self.log.segments.get(one.segment.id).is_some_and(|known| Arc::ptr_eq(&known, &one.segment));
            let readers = is_known.then(|| one.segment.set_chunks(&one.place, &one.slots)).flatten();
            let Some(readers) = readers else {
                self.log.stripe.free_now(&one.taken);
                continue;
            };
            chunks += one.slots.len() as u64;
            for (_, slot) in &one.slots {
                mender.resumed.remove(&slot.device);
            }
            bytes += one.bytes;
            let mut readers = Some(readers);
            let needed = inner.active_generation;
            for (chunk, _) in one.slots.iter().filter(|(chunk, slot)| one.place.chunks[*chunk] != *slot) {
                let place = one.place.chunks[*chunk];
                let readers = readers.take().unwrap_or_else(|| one.segment.former_places());
                inner.left.push(LeftSlot { needed, place, readers });
            }
            match one.segment.kind {
                SegmentKind::Data => self.put_segment(&mut inner, &one.segment),
                SegmentKind::Meta => {}
            }
            inner.change += 1;
            mender.is_unrecorded = true;
        }
        Ok((chunks, bytes))
    }

    /// Nothing more to write: makes durable what was done, and drops devices that were to be removed. True if that gave more to do.
    fn finish_mending(&self, mender: &mut MutexGuard<'_, Mender>) -> Result<bool, Error> {
        if self.call_spare(mender)? {
            return Ok(true);
        }
        if mender.is_unrecorded {
            self.checkpoint()?;
            mender.is_unrecorded = false;
            return Ok(true);
        }
        if self.resume_devices(mender) {
            return Ok(true);
        }
        let misfits = self.misfit_metadata();
        if misfits > 0 && mender.misfits_before.is_none_or(|before| misfits < before) {
            // A checkpoint writes anew what lies in them.
            mender.misfits_before = Some(misfits);
            self.checkpoint()?;
            return Ok(true);
        }
        mender.misfits_before = None;
        self.drop_emptied(mender)
    }

    /// Gives suspended devices that answer again another chance, one each; whether there were any.
    fn resume_devices(&self, mender: &mut MutexGuard<'_, Mender>) -> bool {
        let stripe = &self.log.stripe;
        let mut resumed = false;
        for device in stripe.devices().iter().filter(|device| stripe.is_suspended(device.index())) {
            // The device itself, for one that failed a flush fails it for ever.
            if mender.resumed.insert(device.index()) && device.device().flush().is_ok() {
                tracing::info!(device = device.index(), "a device that had failed answers again");
                stripe.resume(device.index());
                resumed = true;
            }
        }
        if resumed {
            mender.impossible.clear();
            mender.unfillable.clear();
        }
        resumed
    }

    /// Metadata segments with fewer copies than the devices allow now, or with more than they can be kept up.
    fn misfit_metadata(&self) -> usize {
        let width = self.meta_stream().scheme.width();
        let is_misfit = |segment: &Arc<Segment>| {
            segment.kind == SegmentKind::Meta && segment.live_bytes() > 0 && segment.scheme.width() != width
        };
        self.log.segments.all().iter().filter(|segment| is_misfit(segment)).count()
    }

    /// Calls a spare in where chunks of a device that failed find no place; whether one came.
    fn call_spare(&self, mender: &mut MutexGuard<'_, Mender>) -> Result<bool, Error> {
        let standings = self.standings();
        let is_homeless = |task: &Task| {
            task.needs.iter().any(|(chunk, need)| {
                let from = standings.get(&task.place.chunks[*chunk].device);
                let is_failed = from.is_some_and(|standing| standing.state == DeviceState::Failed);
                is_failed && *need == Need::Move(None) && !self.has_room_beside(&task.place, *chunk)
            })
        };
        if !self.tasks(mender).iter().any(is_homeless) || !self.activate_spare()? {
            return Ok(false);
        }
        mender.forget_failures();
        self.checkpoint().map(|()| true)
    }

    /// Chunks that move from the fullest device to the emptiest.
    fn balancing_tasks(&self) -> Vec<Task> {
        // By what segments place there: slots that chunks have left are as good as free.
        let mut used: BTreeMap<DeviceIndex, u64> = BTreeMap::new();
        for segment in self.log.segments.all() {
            segment.chunks().iter().for_each(|place| *used.entry(place.device).or_default() += 1);
        }
        let mut filled: Vec<(u64, DeviceIndex, u64)> = Vec::new();
        for device in self.log.stripe.devices().iter().filter(|device| self.log.stripe.is_open(device.index())) {
            let slot_count = u64::from(device.layout().slot_count).max(1);
            let used = used.get(&device.index()).copied().unwrap_or(0);
            filled.push((used * 10_000 / slot_count, device.index(), slot_count));
        }
        filled.sort_unstable();
        let (Some(emptiest), Some(fullest)) = (filled.first().copied(), filled.last().copied()) else {
            return Vec::new();
        };
        let apart = fullest.0 - emptiest.0;
        if apart <= BALANCE_PERCENT * 100 || !self.has_room_to_move() {
            return Vec::new();
        }
        // Half of what they differ by, on the smaller of the two, and not less than one chunk.
        let count = (apart * fullest.2.min(emptiest.2) / 20_000).max(1) as usize;
        let in_memory = self.log.segments_in_memory();
        let mut tasks = Vec::new();
        for segment in self.log.segments.all() {
            let place = segment.placed();
            let is_on = |index: DeviceIndex| place.chunks.iter().position(|chunk| chunk.device == index);
            let is_whole = segment.is_sealed() && segment.live_bytes() > 0 && place.missing == 0;
            let (Some(chunk), None) = (is_on(fullest.1), is_on(emptiest.1)) else { continue };
            if is_whole && !in_memory.contains(&segment.id) && tasks.len() < count {
                let needs = vec![(chunk, Need::Move(Some(emptiest.1)))];
                tasks.push(Task { segment, place, needs, spare: 0 });
            }
        }
        tasks
    }
}

/// The devices of the other chunks.
fn others(place: &SegmentChunks, chunk: usize) -> Vec<DeviceIndex> {
    let others = place.chunks.iter().enumerate().filter(|(at, _)| *at != chunk);
    others.map(|(_, place)| place.device).collect()
}

/// Waits for the oldest writes while too much is under way.
fn hold_back(submitted: &[(Completion, Written)]) {
    let mut flying: u64 =
        submitted.iter().filter(|(completion, _)| !completion.is_done()).map(|(_, one)| one.bytes).sum();
    for (completion, one) in submitted {
        if flying <= FLYING_BYTES_MAX {
            return;
        }
        if !completion.is_done() {
            completion.wait_done();
            flying = flying.saturating_sub(one.bytes);
        }
    }
}

fn to_error(error: StripeError) -> Error {
    Error::Log(error.into())
}
