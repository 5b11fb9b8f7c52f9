//! Rebuilding: from a segment that lacks something to chunks on devices and a table that says so.
//!
//! Order, which is what makes a crash at any point harmless: read, prove, write, flush, and only then the segment table. Read
//! next: `mend.rs`, which says what is rebuilt where.

mod tasks;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use stere_device::{Buffer, Completion, Job, SharedBuffer};
use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, ChunkHeader, ChunkPlace, DeviceIndex, DeviceState, SegmentChunks, SegmentKind};
use stere_log::Segment;
use stere_stripe::{StripeError, Whole};

use crate::batch::put_segment;
use crate::error::Error;
use crate::{LeftSlot, engine::Engine};

pub(crate) use tasks::{Mender, Need, Standing, Task, Written, others};

/// Chunk content under way to devices, at most.
const FLYING_BYTES_MAX: u64 = 48 << 20;
/// Content in memory to be proven, at most.
const READ_BYTES_MAX: u64 = 128 << 20;
/// Segments rebuilt at the same time, at most.
const WORKERS_MAX: usize = 4;
/// Chunk content submitted by one step, at most.
const BYTES_AT_ONCE: u64 = 256 << 20;

/// Writes chunks of segments anew, from the others.
#[derive(Clone, Copy)]
pub struct Chunks<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    pub(crate) fn chunk_writer(&self) -> Chunks<'_> {
        Chunks::of(self)
    }
}

impl<'a> Chunks<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Chunks<'a> {
        Chunks { engine }
    }
}

impl<'a> Chunks<'a> {
    /// Reads, proves and submits the chunks of as many tasks as the budget allows; how many bytes that were.
    pub(crate) fn write_chunks(&self, mender: &mut Mender, tasks: Vec<Task>, budget_bytes: u64) -> u64 {
        let mut bytes = 0;
        let mut unreadable = Vec::new();
        let mut tasks = tasks.into_iter();
        let mut together = Vec::new();
        while bytes == 0 || bytes < budget_bytes.min(BYTES_AT_ONCE) {
            let Some(task) = tasks.next() else { break };
            let Some(written) = self.take_slots(mender, &task) else { continue };
            bytes += written.bytes;
            together.push(written);
        }
        // Those the budget did not reach come first next time.
        let rest: Vec<u64> = tasks.map(|task| task.segment.id).collect();
        mender.queue.extend(rest.into_iter().rev());
        for (written, outcome) in self.rebuild_together(together) {
            match outcome {
                Ok(completion) => mender.submitted.push((completion, written)),
                Err(error) => {
                    tracing::warn!(segment = written.segment.id, %error, "a segment cannot be mended now");
                    let failed = match error {
                        Error::Unreadable { chunks, .. } => chunks,
                        _ => u32::MAX,
                    };
                    let chunks = written.slots.iter().filter(|(chunk, _)| failed >> chunk & 1 == 1);
                    let chunks: Vec<_> = chunks.map(|(chunk, _)| (written.segment.id, *chunk)).collect();
                    mender.impossible.extend(chunks.iter().copied());
                    if matches!(error, Error::Unreadable { .. }) {
                        mender.unreadable.extend(chunks);
                        unreadable.push(written.segment.clone());
                    }
                    bytes -= written.bytes;
                    self.engine.log.stripe.slots.free_now(&written.taken);
                }
            }
        }
        for segment in unreadable {
            if let Err(error) = self.engine.damage().save_readable(&segment) {
                tracing::warn!(segment = segment.id, %error, "what can be read of a segment could not all be moved");
            }
        }
        bytes
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
                    // Who names the device has looked already.
                    let has_room = only.is_some() || self.engine.places().has_room_to_move();
                    if let Some(slot) = has_room
                        .then(|| self.engine.log.stripe.slots.place_beside(task.segment.site, &beside, from, *only))
                        .flatten()
                    {
                        place.chunks[*chunk] = slot;
                        slots.push((*chunk, slot));
                        taken.push(slot);
                    }
                }
            }
        }
        let is_own = |(chunk, slot): &&(usize, ChunkPlace)| task.place.chunks[*chunk] == *slot;
        let filled = slots.iter().filter(is_own).count();
        assert_eq!(filled + taken.len(), slots.len(), "a chunk is filled where it lies, or a slot is taken for it");
        let bytes = task.bytes_of_chunk() * slots.len() as u64;
        // Also where it is filled: whoever keeps the device may have been away when it was told.
        let told: Vec<ChunkPlace> = slots.iter().map(|(_, slot)| *slot).collect();
        self.engine.log.stripe.tell_slots(task.segment.site, &told);
        let (segment, place) = (task.segment.clone(), task.place.clone());
        (!slots.is_empty()).then_some(Written { segment, place, slots, taken, bytes })
    }

    /// Rebuilds segments one after the other; where the devices have threads for it, a few at a time, so that some are read while
    /// others are proven and written.
    fn rebuild_together(&self, together: Vec<Written>) -> Vec<(Written, Result<Completion, Error>)> {
        let next = AtomicUsize::new(0);
        let outcomes: Mutex<BTreeMap<usize, Result<Completion, Error>>> = Mutex::default();
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(written) = together.get(at) else { return };
                let outcome = self.rebuild(written);
                outcomes.lock().insert(at, outcome);
                hold_back(&together, &outcomes);
            }
        };
        let threads =
            self.engine.log.stripe.devices.all().first().and_then(|device| stere_device::Device::parallel(&**device));
        match threads.filter(|_| together.len() > 1) {
            Some(threads) => {
                let workers = self.workers(&together).min(together.len());
                threads.run((0..workers).map(|_| Box::new(work) as Job<'_>).collect());
            }
            None => work(),
        }
        let outcomes = outcomes.into_inner();
        assert_eq!(outcomes.len(), together.len(), "each segment that was taken was rebuilt, or failed");
        together.into_iter().zip(outcomes.into_values()).collect()
    }

    /// As many segments at a time as their content may take memory.
    fn workers(&self, together: &[Written]) -> usize {
        let width = together.iter().map(|one| one.place.chunks.len()).max().unwrap_or(1) + 1;
        let bytes = width as u64 * u64::from(self.engine.log.chunk_bytes());
        usize::try_from(READ_BYTES_MAX / bytes).unwrap_or(1).clamp(1, WORKERS_MAX)
    }

    /// Reads a segment, proves it and submits its chunks to their slots.
    fn rebuild(&self, written: &Written) -> Result<Completion, Error> {
        let Written { segment, place, slots, .. } = written;
        let stripe = &self.engine.log.stripe;
        let contents = self.contents_of(written)?;
        assert_eq!(contents.len(), slots.len(), "each chunk of segment {} has its content", segment.id);
        let mut place_then = SegmentChunks::clone(place);
        for (chunk, slot) in slots {
            place_then.chunks[*chunk] = *slot;
            place_then.missing &= !(1 << chunk);
        }
        if is_planted(Bug::MendingUnwritten) {
            return Ok(Completion::new());
        }
        let completion = Completion::new();
        for ((chunk, slot), content) in slots.iter().zip(contents) {
            let header = ChunkHeader {
                pool: self.engine.log.pool_id(),
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

    /// What the chunks that are to be written shall hold, proven; where that is not possible, what they hold where they lie.
    fn contents_of(&self, written: &Written) -> Result<Vec<SharedBuffer>, Error> {
        let Written { segment, place, slots, .. } = written;
        let Some(mut whole) = self.read_whole(segment, place)? else { return self.contents_as_they_lie(written) };
        let mut verified = self.engine.log.verify_whole(segment, &mut whole, &|row| self.engine.rows().needed_of(row));
        if (verified.damaged_records > 0 || verified.is_cut) && self.ask_missing_chunks(segment, place, &mut whole) {
            verified = self.engine.log.verify_whole(segment, &mut whole, &|row| self.engine.rows().needed_of(row));
        }
        if verified.damaged_records > 0 || (verified.is_cut && segment.kind == SegmentKind::Data) {
            tracing::warn!(segment = segment.id, ?verified, "a segment is damaged; what is left of it is copied");
        }
        if verified.damaged_records > 0
            && let Ok(contents) = self.contents_as_they_lie(written)
        {
            // Of a damaged record other blocks may be right in each chunk.
            return Ok(contents);
        }
        let chunks: Vec<usize> = slots.iter().map(|(chunk, _)| *chunk).collect();
        let contents = self.engine.log.stripe.chunks_of(whole, &chunks).map_err(to_error)?;
        Ok(self.with_what_slots_have(written, contents, &verified.damaged))
    }

    /// Where the chunks that are there do not prove a row of a parity segment, missing ones whose devices are back are asked too, each of the
    /// others left out in turn: what they were given before they went away may be right, and is not to be lost to what rot gives.
    fn ask_missing_chunks(&self, segment: &Arc<Segment>, place: &SegmentChunks, whole: &mut Whole) -> bool {
        if place.scheme.data == 1 || place.missing == 0 {
            return false;
        }
        let as_if_whole = SegmentChunks { missing: 0, ..SegmentChunks::clone(place) };
        let mut is_any = false;
        for rotten in (0..place.chunks.len()).filter(|chunk| !place.is_missing(*chunk)) {
            let blocks = segment.blocks_in_use();
            let Ok(other) = self.engine.log.stripe.read_whole(segment.id, &as_if_whole, blocks, 1 << rotten) else {
                continue;
            };
            self.engine.log.take_proven(segment, whole, &other, &|row| self.engine.rows().needed_of(row));
            is_any = true;
        }
        is_any
    }

    /// A missing copy that is filled keeps what its slot holds wherever nobody has anything right: it may have been written before the device
    /// went away, and rot of the other copy must not be put over it. Whoever reads it proves it, as always.
    fn with_what_slots_have(
        &self,
        written: &Written,
        contents: Vec<SharedBuffer>,
        damaged: &[Range<usize>],
    ) -> Vec<SharedBuffer> {
        let Written { segment, place, slots, .. } = written;
        if damaged.is_empty() || place.scheme.data > 1 {
            return contents;
        }
        let keep = |((chunk, slot), content): (&(usize, ChunkPlace), SharedBuffer)| {
            let is_filled = place.is_missing(*chunk) && place.chunks[*chunk] == *slot;
            let as_if_whole = SegmentChunks { missing: place.missing & !(1 << chunk), ..SegmentChunks::clone(place) };
            let held = is_filled.then(|| {
                let stripe = &self.engine.log.stripe;
                stripe.read_chunk(segment.id, &as_if_whole, *chunk, segment.blocks_in_use()).ok()
            });
            let Some(held) = held.flatten() else { return content };
            let mut kept = Buffer::zeroed(content.len());
            kept.as_mut_slice().copy_from_slice(&content);
            for range in damaged {
                let (to, from) = (kept.as_mut_slice().get_mut(range.clone()), held.get(range.clone()));
                if let (Some(to), Some(from)) = (to, from) {
                    to.copy_from_slice(from);
                }
            }
            kept.share()
        };
        slots.iter().zip(contents).map(keep).collect()
    }

    /// What the chunks hold in the places that they leave. Refused for those that cannot be read there, or were never whole there:
    /// the place that has what is nowhere else is not given up.
    fn contents_as_they_lie(&self, written: &Written) -> Result<Vec<SharedBuffer>, Error> {
        let Written { segment, place, slots, .. } = written;
        let (mut contents, mut failed) = (Vec::with_capacity(slots.len()), 0);
        for (chunk, _) in slots {
            let is_whole_there = !place.is_missing(*chunk);
            let read = is_whole_there
                .then(|| self.engine.log.stripe.read_chunk(segment.id, place, *chunk, segment.blocks_in_use()).ok())
                .flatten();
            match read {
                Some(content) => contents.push(content),
                None if is_planted(Bug::SalvagedZeros) => {
                    let blocks = segment.blocks_in_use().saturating_sub(1) as usize;
                    contents.push(Buffer::zeroed(blocks * BLOCK_BYTES).share());
                }
                None => failed |= 1 << chunk,
            }
        }
        match failed {
            0 => Ok(contents),
            chunks => Err(Error::Unreadable { segment: segment.id, chunks }),
        }
    }

    /// A segment's content, without devices that failed where that is possible, and in pieces where it must be; `None` where some of it
    /// can be read from no device.
    fn read_whole(&self, segment: &Segment, place: &SegmentChunks) -> Result<Option<Whole>, Error> {
        let stripe = &self.engine.log.stripe;
        let blocks = segment.blocks_in_use();
        let retired = self.retired_chunks(place);
        if retired != 0 {
            if let Ok(whole) = stripe.read_whole(segment.id, place, blocks, retired) {
                return Ok(Some(whole));
            }
        }
        match stripe.read_whole(segment.id, place, blocks, 0) {
            Err(StripeError::TooFewChunks { failed, .. }) if !failed.is_empty() => {
                let (whole, unreadable) = stripe.salvage_whole(segment.id, place, blocks).map_err(to_error)?;
                if unreadable > 0 {
                    tracing::warn!(segment = segment.id, unreadable, "blocks of a segment can be read from no device");
                }
                Ok((unreadable == 0).then_some(whole))
            }
            outcome => outcome.map(Some).map_err(to_error),
        }
    }

    /// Chunks on devices that failed: asked only where the others do not suffice.
    fn retired_chunks(&self, place: &SegmentChunks) -> u32 {
        let devices = self.engine.devices.lock();
        let is_retired = |index: DeviceIndex| {
            devices.iter().any(|entry| entry.index == index && entry.device_state() == DeviceState::Failed)
        };
        let retired = place.chunks.iter().enumerate().filter(|(_, chunk)| is_retired(chunk.device));
        retired.fold(0, |set, (chunk, _)| set | 1 << chunk)
    }

    /// Waits for what was submitted, makes it durable and enters it; what a device did not take is given up.
    pub(crate) fn settle(&self, mender: &mut Mender) -> Result<(), Error> {
        self.settle_but(mender, 0)
    }

    /// The same for all but the newest so many bytes, which stay on their way: the device has something to do meanwhile.
    pub(crate) fn settle_but(&self, mender: &mut Mender, bytes_kept: u64) -> Result<(), Error> {
        let (mut from, mut bytes) = (mender.submitted.len(), 0);
        while let Some((_, one)) = from.checked_sub(1).map(|at| &mender.submitted[at]) {
            bytes += one.bytes;
            if bytes > bytes_kept {
                break;
            }
            from -= 1;
        }
        let newer = mender.submitted.split_off(from);
        let submitted = std::mem::replace(&mut mender.submitted, newer);
        if submitted.is_empty() {
            return Ok(());
        }
        let mut ended: Vec<(Written, Vec<usize>)> = Vec::with_capacity(submitted.len());
        for (completion, one) in submitted {
            let errors = completion.wait();
            for (chunk, error) in &errors {
                let slot = one.slots.iter().find(|(number, _)| *number as u64 == *chunk);
                slot.iter().for_each(|(_, slot)| self.engine.log.note_write_error(slot.device, error));
            }
            ended.push((one, errors.into_iter().map(|(chunk, _)| chunk as usize).collect()));
        }
        let unflushed = self.engine.log.flush()?;
        let mut written = Vec::with_capacity(ended.len());
        for (one, mut failed) in ended {
            let is_lost = |device| unflushed.contains(&device) || self.engine.log.stripe.slots.is_suspended(device);
            failed.extend(one.slots.iter().filter(|(_, slot)| is_lost(slot.device)).map(|(chunk, _)| *chunk));
            if failed.is_empty() {
                written.push(one);
                continue;
            }
            // A slot that does not take its chunk: the chunk goes elsewhere.
            mender.unfillable.extend(failed.into_iter().map(|chunk| (one.segment.id, chunk)));
            self.engine.log.stripe.slots.free_now(&one.taken);
        }
        let (chunks, bytes) = self.record_chunks(mender, written)?;
        mender.chunks_done += chunks;
        mender.bytes_done += bytes;
        assert!(bytes_kept > 0 || mender.submitted.is_empty(), "nothing is under way once all is entered");
        Ok(())
    }

    /// Enters what is durable into the segment table; tells how many chunks and bytes.
    fn record_chunks(&self, mender: &mut Mender, written: Vec<Written>) -> Result<(u64, u64), Error> {
        if written.is_empty() {
            return Ok((0, 0));
        }
        let has_metadata = written.iter().any(|one| one.segment.kind == SegmentKind::Meta);
        // A checkpoint that is being written tells of one place of a chunk only.
        let _checkpointer = has_metadata.then(|| self.engine.checkpointer.lock());
        self.engine.check_writable()?;
        let mut inner = self.engine.inner.write();
        let (mut chunks, mut bytes) = (0, 0);
        for one in written {
            let is_known =
                self.engine.log.segments.get(one.segment.id).is_some_and(|known| Arc::ptr_eq(&known, &one.segment));
            let readers = is_known.then(|| one.segment.set_chunks(&one.place, &one.slots)).flatten();
            let Some(readers) = readers else {
                self.engine.log.stripe.slots.free_now(&one.taken);
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
                SegmentKind::Data => put_segment(&mut inner, &one.segment),
                SegmentKind::Meta => {}
            }
            inner.change += 1;
            mender.is_unrecorded = true;
        }
        Ok((chunks, bytes))
    }

    /// Waits for what mending has under way, and enters it: before the devices change.
    pub(crate) fn settled_mender(&self) -> Result<MutexGuard<'a, Mender>, Error> {
        let mut mender = self.engine.mender.lock();
        self.settle(&mut mender)?;
        Ok(mender)
    }

    /// Ends open segments that miss chunks, or have them where none shall be: their streams go on at full redundancy.
    pub(crate) fn end_weak_segments(&self) -> bool {
        let meta_scheme = self.engine.places().meta_stream().scheme;
        let standings = self.standings();
        // A device that is to be empty never is while something is open there, however wide that is.
        let is_to_leave =
            |index: &DeviceIndex| standings.get(index).is_none_or(|standing| standing.state.gives_chunks_away());
        let is_weak = |segment: &Segment| {
            let place = segment.placed();
            let is_away = |index: &DeviceIndex| !self.engine.log.stripe.slots.is_open(*index);
            if segment.kind == SegmentKind::Meta && segment.scheme != meta_scheme {
                return true;
            }
            if place.chunks.iter().any(|chunk| is_to_leave(&chunk.device)) {
                return true;
            }
            if place.chunks.iter().any(|chunk| self.engine.log.stripe.slots.is_beyond(*chunk)) {
                return true;
            }
            let misplaced = place.chunks.iter().any(|chunk| is_away(&chunk.device));
            // A new one would not miss chunks if there are enough devices that it may lie on.
            let open = self.engine.log.stripe.slots.open_devices_of(segment.site.only).len();
            let is_far =
                (0..place.chunks.len()).any(|chunk| self.engine.places().nearer_device(segment, chunk).is_some());
            is_far || (misplaced || place.missing != 0) && (open >= place.scheme.width() || segment.has_lost_chunks())
        };
        self.engine.log.end_segments(&is_weak)
    }

    /// Moves one chunk of data from a device to the one with most free slots, for the cleaner: that takes a slot there and nothing else.
    /// False where there is no such chunk or no such device.
    pub(crate) fn move_chunk_from(&self, overfull: DeviceIndex) -> Result<bool, Error> {
        let mut mender = self.settled_mender()?;
        let stripe = &self.engine.log.stripe;
        let in_memory = self.engine.log.segments_in_memory();
        let free = |index: &DeviceIndex| stripe.slots.usage(*index).map_or(0, |usage| usage.free);
        let task_of = |segment: Arc<Segment>| {
            let place = segment.placed();
            let is_movable = segment.kind == SegmentKind::Data && segment.is_sealed() && segment.live_bytes() > 0;
            let is_whole = is_movable && place.missing == 0 && !in_memory.contains(&segment.id);
            let chunk = place.chunks.iter().position(|chunk| chunk.device == overfull).filter(|_| is_whole)?;
            let mut targets = stripe.slots.open_devices();
            targets.retain(|index| place.chunks.iter().all(|chunk| chunk.device != *index));
            targets.retain(|index| self.engine.places().is_no_worse(&segment, overfull, *index));
            let target = targets.into_iter().max_by_key(free).filter(|target| free(target) > free(&overfull) + 1)?;
            Some(Task { segment, place, needs: vec![(chunk, Need::Move(Some(target)))], spare: 0 })
        };
        let tasks = self.engine.log.segments.all().into_iter().filter_map(task_of);
        let Some(task) = tasks.min_by_key(|task| (task.bytes_of_chunk(), task.segment.id)) else { return Ok(false) };
        let chunks_before = mender.chunks_done;
        self.write_chunks(&mut mender, vec![task], 1);
        self.settle(&mut mender)?;
        Ok(mender.chunks_done > chunks_before)
    }

    pub(crate) fn standings(&self) -> BTreeMap<DeviceIndex, Standing> {
        let stripe = &self.engine.log.stripe;
        let standing = |entry: &stere_format::DeviceEntry| Standing {
            state: entry.device_state(),
            is_attached: stripe.devices.get(entry.index).is_some(),
            is_suspended: stripe.slots.is_suspended(entry.index),
        };
        self.engine.devices.lock().iter().map(|entry| (entry.index, standing(entry))).collect()
    }
}

/// Waits for the oldest writes while too much is under way.
fn hold_back(together: &[Written], outcomes: &Mutex<BTreeMap<usize, Result<Completion, Error>>>) {
    loop {
        let oldest = {
            let outcomes = outcomes.lock();
            let mut flying = outcomes.iter().filter_map(|(at, outcome)| Some((*at, outcome.as_ref().ok()?)));
            let mut oldest = None;
            let mut bytes = 0;
            for (at, completion) in flying.by_ref().filter(|(_, completion)| !completion.is_done()) {
                bytes += together[at].bytes;
                oldest = oldest.or_else(|| Some(completion.clone()));
            }
            oldest.filter(|_| bytes > FLYING_BYTES_MAX)
        };
        match oldest {
            Some(completion) => completion.wait_done(),
            None => return,
        }
    }
}

fn to_error(error: StripeError) -> Error {
    Error::Log(error.into())
}
