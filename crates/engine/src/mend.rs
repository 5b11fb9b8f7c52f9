//! Mending: chunks that are not where they should be are written there, from the others.
//!
//! What is to be done follows from the segment table and the states of the devices alone, so it can stop anywhere, also in a crash, and
//! go on. A chunk that was not written while its device was away is filled in its own slot; one on a device that shall be empty is
//! written to a slot elsewhere. Either way: read the others whole, prove every record, write, flush, and only then change the
//! segment table. The old slot stays as it was until a checkpoint that knows the new one is durable and nobody reads the old one.
//! Metadata segments are in the checkpoint record instead of the tree: the same, with the checkpointer held while they change.
//!
//! Read next: `rebuild.rs`, `devices.rs`, the log's `verify.rs`, `docs/design/devices.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_format::{DeviceIndex, DeviceState, Scheme, SegmentChunks, SegmentKind};
use stere_log::Segment;

use crate::devices::Devices;
use crate::engine::Engine;
use crate::error::Error;
use crate::rebuild::{Mender, Need, Standing, Task, others};

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
    /// Of those, chunks that no device gives now, which therefore stay where they are.
    pub unreadable_chunks: u64,
    /// Chunks that wait for a device that is away and expected back.
    pub waiting_chunks: u64,
    /// Of them, those that were written to meanwhile: what the device will be caught up on.
    pub waiting_bytes: u64,
    /// Whether chunks move for the sake of even filling, so that there is more to do than is counted here.
    pub is_rebalancing: bool,
    /// Whether something that was written is not entered yet, or not recorded where the next mount finds it.
    pub is_settling: bool,
}

/// How far apart devices may be filled before chunks move, as a part of their slots.
const BALANCE_PERCENT: u64 = 5;

/// Rebuilds and moves chunks, until all are where they should be.
pub struct Rebuilder {
    pub(crate) engine: Arc<Engine>,
    devices: Arc<Devices>,
}

impl Rebuilder {
    pub fn new(engine: &Arc<Engine>, devices: &Arc<Devices>) -> Rebuilder {
        Rebuilder { engine: engine.clone(), devices: devices.clone() }
    }
}

impl Rebuilder {
    /// Does about so many bytes of what is left to do: fills chunks of devices that came back, empties devices that shall be
    /// empty, evens out where that was asked for. What is on its way when this returns is taken up by the next step.
    pub fn mend_step(&self, budget_bytes: u64) -> Result<MendProgress, Error> {
        self.engine.check_writable()?;
        let mut mender = self.engine.mender.lock();
        let chunks_before = mender.chunks_done;
        if self.engine.chunk_writer().end_weak_segments() {
            self.engine.log.wait_for_rows().map_err(|error| self.engine.fail(error.into()))?;
        }
        let tasks = self.next_tasks(&mut mender, budget_bytes)?;
        let bytes_written = self.engine.chunk_writer().write_chunks(&mut mender, tasks, budget_bytes);
        // Until it is durable and entered nothing is read from its new device, so readers wait for the others; the newer half stays on
        // its way meanwhile, so that the devices do not wait for the flush.
        let bytes_max = self.engine.options.budget().flying_bytes as u64;
        if mender.submitted.iter().map(|(_, one)| one.bytes).sum::<u64>() >= bytes_max {
            self.engine.chunk_writer().settle_but(&mut mender, bytes_max / 2)?;
        }
        let mut is_done = false;
        if bytes_written == 0 && mender.queue.is_empty() {
            self.engine.chunk_writer().settle(&mut mender)?;
            is_done = mender.chunks_done == chunks_before && !self.finish_mending(&mut mender)?;
        }
        assert!(mender.chunks_done >= chunks_before, "chunks that were rebuilt are only counted up");
        let chunks = mender.chunks_done - chunks_before;
        // Moving a bundle may need room, and making it needs the mender.
        drop(mender);
        let is_done = is_done && !self.engine.offload().strengthen_folds()?;
        Ok(MendProgress { bytes_written, chunks, is_done })
    }

    /// Tasks for about so many bytes: from the queue, which is made anew from the whole table when it is empty.
    fn next_tasks(&self, mender: &mut Mender, budget_bytes: u64) -> Result<Vec<Task>, Error> {
        let tasks = self.queued_tasks(mender, budget_bytes);
        if !tasks.is_empty() {
            return Ok(tasks);
        }
        // Nobody is looked at twice before what was done is entered.
        self.engine.chunk_writer().settle(mender)?;
        let has_work = |task: &Task| task.needs.iter().any(|(_, need)| *need != Need::Wait);
        let tasks = self.tasks(mender);
        mender.queue = tasks.iter().filter(|task| has_work(task)).map(|task| task.segment.id).rev().collect();
        if mender.queue.is_empty() && mender.rebalances {
            let tasks = self.balancing_tasks();
            mender.rebalances = !tasks.is_empty();
            return Ok(tasks);
        }
        Ok(self.queued_tasks(mender, budget_bytes))
    }

    fn queued_tasks(&self, mender: &mut Mender, budget_bytes: u64) -> Vec<Task> {
        let standings = self.engine.chunk_writer().standings();
        let in_memory = self.engine.log.segments_in_memory();
        let (mut tasks, mut bytes) = (Vec::new(), 0);
        while bytes == 0 || bytes < budget_bytes {
            let Some(id) = mender.queue.pop() else { break };
            let Some(segment) = self.engine.log.segments.get(id).filter(|_| !in_memory.contains(&id)) else { continue };
            let Some(task) = self.task_of(mender, &standings, segment) else { continue };
            let chunks = task.needs.iter().filter(|(_, need)| *need != Need::Wait).count() as u64;
            bytes += chunks * task.bytes_of_chunk();
            tasks.push(task);
        }
        tasks
    }

    /// What is left to do; goes through the segment table.
    pub fn mend_status(&self) -> MendStatus {
        let mender = self.engine.mender.lock();
        let under_way: BTreeSet<u64> = mender.submitted.iter().map(|(_, one)| one.segment.id).collect();
        let submitted_bytes: u64 = mender.submitted.iter().map(|(_, one)| one.bytes).sum();
        let mut status = MendStatus {
            bytes_done: mender.bytes_done + submitted_bytes,
            is_rebalancing: mender.rebalances,
            is_settling: !mender.submitted.is_empty() || mender.is_unrecorded,
            ..MendStatus::default()
        };
        for task in self.tasks(&mender).into_iter().filter(|task| !under_way.contains(&task.segment.id)) {
            for (chunk, need) in &task.needs {
                let bytes = task.bytes_of_chunk();
                if *need == Need::Wait {
                    status.waiting_chunks += 1;
                    status.waiting_bytes += if task.place.is_missing(*chunk) { bytes } else { 0 };
                    continue;
                }
                status.chunks_left += 1;
                status.bytes_left += bytes;
                let is_own = *need == Need::Move(Some(task.place.chunks[*chunk].device));
                let has_room =
                    *need == Need::Fill || is_own || self.has_room_beside(&task.segment, &task.place, *chunk);
                let is_impossible = mender.impossible.contains(&(task.segment.id, *chunk)) || !has_room;
                status.impossible_chunks += u64::from(is_impossible);
                status.unreadable_chunks += u64::from(mender.unreadable.contains(&(task.segment.id, *chunk)));
            }
        }
        status
    }

    /// Evens out how full the devices are, until they are within five percent; or stops doing so.
    pub fn set_rebalancing(&self, rebalances: bool) {
        self.engine.mender.lock().rebalances = rebalances;
    }

    fn need(
        &self,
        mender: &Mender,
        segment: &Segment,
        place: &SegmentChunks,
        chunk: usize,
        standing: Option<&Standing>,
    ) -> Option<Need> {
        // Whoever is no longer in the table was removed although data was lost with it.
        let Some(standing) = standing else { return Some(Need::Move(None)) };
        let is_there = standing.is_attached && !standing.is_suspended;
        match (place.is_missing(chunk), is_there) {
            _ if standing.state.gives_chunks_away() || standing.state == DeviceState::Spare => Some(Need::Move(None)),
            (true, true) if mender.unfillable.contains(&(segment.id, chunk)) => Some(Need::Move(None)),
            (true, true) => Some(Need::Fill),
            (_, false) => Some(Need::Wait),
            // Elsewhere on its device, if that has room.
            (false, true) if self.engine.log.stripe.slots.is_beyond(place.chunks[chunk]) => {
                let device = place.chunks[chunk].device;
                let has_room = self.engine.log.stripe.slots.usage(device).is_some_and(|usage| usage.free > 0);
                Some(Need::Move(has_room.then_some(device)))
            }
            // Where it was not asked to lie, if there is a better place, or must not.
            (false, true) => self.engine.places().nearer_device(segment, chunk).map(|device| Need::Move(Some(device))),
        }
    }

    /// All sealed segments that need something, the least protected first.
    fn tasks(&self, mender: &Mender) -> Vec<Task> {
        let standings = self.engine.chunk_writer().standings();
        let in_memory = self.engine.log.segments_in_memory();
        let mut segments = self.engine.log.segments.all();
        segments.retain(|segment| !in_memory.contains(&segment.id));
        let tasks = segments.into_iter().filter_map(|segment| self.task_of(mender, &standings, segment));
        let mut tasks: Vec<Task> = tasks.collect();
        tasks.sort_by_key(|task| (task.spare, task.segment.id));
        tasks
    }

    fn task_of(
        &self,
        mender: &Mender,
        standings: &BTreeMap<DeviceIndex, Standing>,
        segment: Arc<Segment>,
    ) -> Option<Task> {
        if !segment.is_sealed() || segment.live_bytes() == 0 {
            return None;
        }
        let place = segment.placed();
        let mut needs = Vec::new();
        let mut readable = 0;
        for (chunk, at) in place.chunks.iter().enumerate() {
            let standing = standings.get(&at.device);
            readable += i32::from(!place.is_missing(chunk) && standing.is_some_and(|standing| standing.is_attached));
            needs.extend(self.need(mender, &segment, &place, chunk, standing).map(|need| (chunk, need)));
        }
        let spare = readable - i32::from(place.scheme.data);
        (!needs.is_empty()).then_some(Task { segment, place, needs, spare })
    }

    /// Whether a chunk of the segment could go to another device.
    fn has_room_beside(&self, segment: &Segment, place: &SegmentChunks, chunk: usize) -> bool {
        let from = place.chunks[chunk].device;
        self.engine.log.stripe.slots.best_beside(segment.site, &others(place, chunk), from).is_some()
            && self.engine.places().has_room_to_move()
    }

    /// Nothing more to write: makes durable what was done, and drops devices that were to be removed. True if that gave more to do.
    fn finish_mending(&self, mender: &mut Mender) -> Result<bool, Error> {
        if self.call_spare(mender)? {
            return Ok(true);
        }
        if mender.is_unrecorded {
            self.engine.checkpoint()?;
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
            self.engine.checkpoint()?;
            return Ok(true);
        }
        mender.misfits_before = None;
        self.devices.drop_emptied(mender)
    }

    /// Gives suspended devices that answer again another chance, one each; whether there were any.
    fn resume_devices(&self, mender: &mut Mender) -> bool {
        let stripe = &self.engine.log.stripe;
        let mut resumed = false;
        for device in stripe.devices.all().iter().filter(|device| stripe.slots.is_suspended(device.index())) {
            // The device itself, for one that failed a flush fails it for ever.
            // One that is silent is asked again when it answers.
            let is_silent = device.device().silent_for().is_some() && !is_planted(Bug::SilentAskedOnce);
            if !is_silent && mender.resumed.insert(device.index()) && device.device().answers().is_ok() {
                tracing::info!(device = device.index(), "a device that had failed answers again");
                stripe.slots.resume(device.index());
                resumed = true;
            }
        }
        if resumed {
            mender.impossible.clear();
            mender.unreadable.clear();
            mender.unfillable.clear();
        }
        resumed
    }

    /// Metadata segments with fewer copies than the devices allow now, or with more than they can be kept up.
    fn misfit_metadata(&self) -> usize {
        let width = self.engine.places().meta_stream().scheme.width();
        let is_misfit = |segment: &Arc<Segment>| {
            segment.kind == SegmentKind::Meta && segment.live_bytes() > 0 && segment.scheme.width() != width
        };
        self.engine.log.segments.all().iter().filter(|segment| is_misfit(segment)).count()
    }

    /// Calls a spare in where chunks of a device that failed find no place, or too few devices are left for copies; whether one came.
    fn call_spare(&self, mender: &mut Mender) -> Result<bool, Error> {
        let standings = self.engine.chunk_writer().standings();
        let is_homeless = |task: &Task| {
            task.needs.iter().any(|(chunk, need)| {
                let from = standings.get(&task.place.chunks[*chunk].device);
                let is_failed = from.is_some_and(|standing| standing.state == DeviceState::Failed);
                is_failed && *need == Need::Move(None) && !self.has_room_beside(&task.segment, &task.place, *chunk)
            })
        };
        // Data may have been written anew in fewer copies, so that no chunk of it lacks a place.
        let copies = Scheme { data: 1, parity: 1 };
        let has_failed = standings.values().any(|standing| standing.state == DeviceState::Failed);
        let is_short = has_failed && self.engine.fit(copies) != copies;
        if !(is_short || self.tasks(mender).iter().any(is_homeless)) || !self.devices.activate_spare()? {
            return Ok(false);
        }
        mender.forget_failures();
        self.engine.checkpoint().map(|()| true)
    }

    /// Chunks that move from the fullest device to the emptiest.
    fn balancing_tasks(&self) -> Vec<Task> {
        // By what segments place there: slots that chunks have left are as good as free.
        let mut used: BTreeMap<DeviceIndex, u64> = BTreeMap::new();
        for segment in self.engine.log.segments.all() {
            segment.chunks().iter().for_each(|place| *used.entry(place.device).or_default() += 1);
        }
        let mut filled: Vec<(u64, DeviceIndex, u64)> = Vec::new();
        for device in self
            .engine
            .log
            .stripe
            .devices
            .all()
            .iter()
            .filter(|device| self.engine.log.stripe.slots.is_open(device.index()))
        {
            let slot_count = u64::from(device.layout().slot_count).max(1);
            let used = used.get(&device.index()).copied().unwrap_or(0);
            filled.push((used * 10_000 / slot_count, device.index(), slot_count));
        }
        filled.sort_unstable();
        let (Some(emptiest), Some(fullest)) = (filled.first().copied(), filled.last().copied()) else {
            return Vec::new();
        };
        let apart = fullest.0 - emptiest.0;
        if apart <= BALANCE_PERCENT * 100 || !self.engine.places().has_room_to_move() {
            return Vec::new();
        }
        // Half of what they differ by, on the smaller of the two, and not less than one chunk.
        let count = (apart * fullest.2.min(emptiest.2) / 20_000).max(1) as usize;
        let in_memory = self.engine.log.segments_in_memory();
        let mut tasks = Vec::new();
        for segment in self.engine.log.segments.all() {
            let place = segment.placed();
            let is_on = |index: DeviceIndex| place.chunks.iter().position(|chunk| chunk.device == index);
            let is_whole = segment.is_sealed() && segment.live_bytes() > 0 && place.missing == 0;
            let (Some(chunk), None) = (is_on(fullest.1), is_on(emptiest.1)) else { continue };
            let may_move = is_whole && self.engine.places().is_no_worse(&segment, fullest.1, emptiest.1);
            if may_move && !in_memory.contains(&segment.id) && tasks.len() < count {
                let needs = vec![(chunk, Need::Move(Some(emptiest.1)))];
                tasks.push(Task { segment, place, needs, spare: 0 });
            }
        }
        tasks
    }
}
