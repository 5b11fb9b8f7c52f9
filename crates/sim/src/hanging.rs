//! A device of a history hangs while others have what it holds: writers go on within a bound, what is acknowledged is kept, what is told
//! of the device is true; it answers again after hours, or never (P-21, P-162).
//!
//! It hangs in the middle of writes, of reads, of what people do to devices, of a mount or of a recovery. Read next: `hang.rs`.

use std::rc::Rc;
use std::time::Duration;

use stere_device::Device;
use stere_format::DeviceState;
use stere_naming::{Error, OpenFlags};
use stere_store::{Error as Refusal, Io};

use crate::area::{Area, Areas};
use crate::content::pattern;
use crate::hang::{Call, DEADLINE_NS, any_kinds};
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Kind, Node, ROOT};
use crate::operation::CrashManner;
use crate::pool::caller;

const HOURS_NS: u64 = 5 * 3_600_000_000_000;
const NAME: &[u8] = b"hanging";
const BYTES: usize = 300_000;
/// Things that are done beside a device that hangs.
const ACTS: u64 = 7;
/// Nobody waits longer than for one write and one read that hang.
const CALL_MAX_NS: u64 = 2 * DEADLINE_NS + 1_000_000_000;
/// Rounds of background work in which a verb must have come to its end.
const ROUNDS_MAX: usize = 300;

/// In the middle of what a device begins to hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Work,
    Verb(DeviceState),
    Mount,
    Recovery,
}

const MOMENTS: [Moment; 8] = [
    Moment::Work,
    Moment::Work,
    Moment::Work,
    Moment::Verb(DeviceState::Leaving),
    Moment::Verb(DeviceState::Removing),
    Moment::Verb(DeviceState::Failed),
    Moment::Mount,
    Moment::Recovery,
];

impl History {
    pub(crate) fn try_hanging(&mut self, moment: u8) -> Result<(), Stop> {
        let moment = MOMENTS[usize::from(moment) % MOMENTS.len()];
        if !self.may_fail_devices(NAME, BYTES as u64) {
            return Ok(());
        }
        self.machine.disarm();
        self.bring_members(3)?;
        if self.random.chance(1, 3) {
            self.add_device(200, true)?;
        }
        self.mend_all()?;
        if self.lacks().is_some() || !self.must_be_safe() {
            return Ok(());
        }
        let Some(device) = self.any_member() else { return Ok(()) };
        let inode = self.write_named(NAME, None)?;
        let kinds = any_kinds(&mut self.random);
        let calls_left = if self.random.chance(1, 3) { 0 } else { self.random.below(40) as u32 };
        self.look_after_devices();
        self.machine.hang(device, kinds, calls_left);
        if self.verbose {
            println!("     device {device} hangs: {kinds:?} after {calls_left} calls, {moment:?}");
        }
        let ends = self.beside_hanging(inode, device, moment).map_err(|stop| of_hanging(stop, kinds, moment));
        // Nobody waited without a bound, whatever came of it.
        if self.machine.waited_for_ever() > 0 {
            return Err(Stop::Failure(format!(
                "somebody waits for ever for a device that hangs: {kinds:?}, {moment:?}"
            )));
        }
        ends?;
        let ended = self.end_hanging(inode, device);
        ended.map_err(|stop| of_hanging(stop, kinds, moment))?;
        self.remove_name(ROOT, NAME, false)?;
        self.sync_all()
    }

    /// Nothing fails or lacks anything, and there is nothing else that decides where a file lies or whether it may be made.
    pub(crate) fn may_fail_devices(&self, name: &[u8], bytes: u64) -> bool {
        let machine = &self.machine;
        let is_well = self.is_calm() && self.exposed.is_none() && self.kept_image.is_none() && self.away().is_none();
        let is_armed = (0..machine.device_count()).any(|device| machine.is_faulty(device) || machine.is_away(device));
        let is_usual = |state| matches!(state, DeviceState::Active | DeviceState::Spare);
        let is_whole = self.members().iter().all(|(_, entry)| is_usual(entry.device_state()));
        let is_plain = !self.plan.may_fill && !self.plan.pool.keeps_versions && !self.has_quotas();
        let has_room = self.check_inode_room().and(self.check_growth(0, bytes)).is_ok();
        // What these add decides neither where files lie nor who may make them.
        let harmless = [Area::Records, Area::Followers, Area::Backups, Area::Failing];
        let areas = self.plan.pool.areas;
        let is_free = areas == Areas::NONE || harmless.into_iter().any(|area| areas.has(area));
        let is_bare = self.model.lookup(ROOT, name).is_err() && is_free;
        is_well && !is_armed && self.plan.budget != Budget::Beyond && is_whole && is_plain && has_room && is_bare
    }

    /// So many active devices at least.
    pub(crate) fn bring_members(&mut self, count: usize) -> Result<(), Stop> {
        let active = self.members().iter().filter(|(_, entry)| entry.device_state() == DeviceState::Active).count();
        for _ in active..count {
            self.add_device(100, false)?;
        }
        Ok(())
    }

    /// A new file with so many copies, or as many as policy has, and durable.
    pub(crate) fn write_named(&mut self, name: &[u8], copies: Option<&[u8]>) -> Result<u64, Stop> {
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let created = self.mounted().files.create(&caller(&self.machine), ROOT, name, 0o666, flags);
        let (attributes, handle) = self.must("create", created)?;
        let inode = attributes.inode;
        self.made(ROOT, name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
        self.model.open(inode);
        if let Some(copies) = copies {
            self.put_policy(inode, b"user.stere.copies", copies)?;
        }
        self.sync_all()?;
        let seed = self.random.next_u64();
        self.write(inode, 0, &pattern(seed, BYTES))?;
        self.fsync(inode)?;
        self.release(Slot { inode, handle })?;
        self.sync_all()?;
        Ok(inode)
    }

    /// Changes a part of a file, durably.
    pub(crate) fn write_in_part(&mut self, inode: u64) -> Result<(), Stop> {
        let flags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };
        let opened = self.mounted().files.open(&caller(&self.machine), inode, flags);
        let handle = self.must("open", opened)?;
        self.model.open(inode);
        let (offset, seed) = (self.random.below(BYTES as u64), self.random.next_u64());
        let length = self.random.between(1, 120_000) as usize;
        self.write(inode, offset, &pattern(seed, length))?;
        self.fsync(inode)?;
        self.release(Slot { inode, handle })
    }

    fn any_member(&mut self) -> Option<usize> {
        let active = self.members().into_iter().filter(|(_, entry)| entry.device_state() == DeviceState::Active);
        let able: Vec<usize> =
            active.filter(|(device, entry)| self.can_do_without(*device, entry)).map(|(device, _)| device).collect();
        (!able.is_empty()).then(|| *self.random.pick(&able))
    }

    /// What the daemon does in every round of its repair.
    pub(crate) fn look_after_devices(&self) {
        self.mounted().store.devices.set_deadlines(Some(Duration::from_nanos(DEADLINE_NS)));
    }

    fn beside_hanging(&mut self, inode: u64, device: usize, moment: Moment) -> Result<(), Stop> {
        let errors_before = self.errors_of(device);
        match moment {
            Moment::Work => {}
            Moment::Verb(state) => {
                for _ in 0..self.random.below(3) {
                    self.act_beside(inode)?;
                }
                let index = self.member(device).map(|entry| entry.index);
                let Some(index) = index else { return Ok(()) };
                match self.mounted().store.devices.set_device_state(index, state) {
                    Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) => {}
                    outcome => self.must("changing what a hanging device is for", outcome.map_err(Error::from))?,
                }
                self.mend_beside(device)?;
            }
            // What has one copy cannot be looked at then.
            Moment::Mount | Moment::Recovery if self.has_singles() => {}
            Moment::Mount => self.remount()?,
            Moment::Recovery => {
                self.machine.power_off();
                self.recover(CrashManner::Mixed, None)?;
            }
        }
        for _ in 0..self.random.between(4, 9) {
            self.act_beside(inode)?;
        }
        self.look_at_hanging(device, errors_before)
    }

    /// One thing that goes on, and how long it takes at most.
    fn act_beside(&mut self, inode: u64) -> Result<(), Stop> {
        let begun_ns = self.machine.now_ns();
        let act = self.random.below(ACTS);
        match act {
            0..3 => self.write_in_part(inode)?,
            3 => self.verify_file(inode)?,
            4 => {
                let stepped = self.mounted().store.step(false);
                self.must("background work beside a hanging device", stepped.map_err(Error::from))?;
            }
            5 => {
                let done = self.mounted().store.checkpoint();
                self.must("checkpoint beside a hanging device", done.map_err(Error::from))?;
                self.note_commit();
            }
            _ => {
                let progress = self.mounted().store.rebuilder.mend_step(8 << 20);
                self.must("mending beside a hanging device", progress.map_err(Error::from))?;
            }
        }
        let waited_ns = self.machine.now_ns() - begun_ns;
        if waited_ns > CALL_MAX_NS {
            let seconds = waited_ns / 1_000_000_000;
            return Err(Stop::Failure(format!("number {act} of what goes on waited {seconds} s for one device")));
        }
        self.look_after_devices();
        Ok(())
    }

    /// Mends until nothing can be done any more.
    pub(crate) fn mend_beside(&mut self, device: usize) -> Result<(), Stop> {
        for _ in 0..ROUNDS_MAX {
            let progress = self.mounted().store.rebuilder.mend_step(8 << 20);
            let is_done = self.must("mending beside a failing device", progress.map_err(Error::from))?.is_done;
            let stepped = self.mounted().store.step(false);
            self.must("background work beside a failing device", stepped.map_err(Error::from))?;
            self.look_after_devices();
            if is_done {
                let kept = self.mounted().store.commit(Io::BLOCKING);
                return self.must("commit beside a failing device", kept.map_err(Error::from));
            }
        }
        let status = self.mounted().store.rebuilder.mend_status();
        Err(Stop::Failure(format!("mending beside device {device}, which fails, does not end: {status:?}")))
    }

    /// Looks again at what could not be read, as the daemon does every now and then.
    pub(crate) fn review(&mut self) -> Result<(), Stop> {
        let reviewed = self.mounted().store.damage().review_damage(1000);
        self.must("looking again at what could not be read", reviewed.map(drop).map_err(Error::from))?;
        self.mend_all()
    }

    fn errors_of(&self, device: usize) -> Option<u64> {
        let entry = self.member(device)?;
        self.mounted().store.health.health(entry.index).map(|health| health.errors())
    }

    /// What is told of a device that hangs: it is silent, nothing is put on it, and it is no bad device.
    fn look_at_hanging(&self, device: usize, errors_before: Option<u64>) -> Result<(), Stop> {
        let Some(entry) = self.member(device) else { return Ok(()) };
        let store = &self.mounted().store;
        let usage = store.devices.device_usage(entry.index).unwrap_or_default();
        if !usage.is_attached || !self.machine.is_given_up(device) {
            return Ok(());
        }
        let is_told =
            store.health.pool_devices().iter().any(|one| one.index() == entry.index && one.silent_for().is_some());
        if !is_told || !usage.is_suspended && entry.device_state() == DeviceState::Active {
            return Err(Stop::Failure(format!("a device hangs and nobody is told: {entry:?}, {usage:?}")));
        }
        let errors = self.errors_of(device);
        if errors > errors_before {
            let text = format!("a device that is silent counts as bad: {errors:?} errors, {errors_before:?} before");
            return Err(Stop::Failure(text));
        }
        Ok(())
    }

    /// Whether something has one copy because it was asked for.
    fn has_singles(&self) -> bool {
        let segments = self.mounted().store.segments().all();
        segments.iter().any(|segment| segment.live_bytes() > 0 && segment.placed().scheme.parity == 0)
    }

    /// It answers again after hours, perhaps with what it had before, or never.
    fn end_hanging(&mut self, inode: u64, device: usize) -> Result<(), Stop> {
        let entry = self.member(device);
        let can_be_lost = !self.has_singles() && entry.is_some_and(|entry| self.can_do_without(device, &entry));
        let is_lost = can_be_lost && self.random.chance(1, 3);
        if is_lost {
            self.end_for_ever(device)?;
        } else {
            self.answer_after_hours(device)?;
        }
        self.verify_file(inode)?;
        self.verify_all()?;
        if let Some(text) = self.lacks().filter(|_| self.must_be_safe()) {
            return Err(Stop::Failure(text));
        }
        self.summary.hangs[usize::from(is_lost)] += 1;
        if self.has_singles() { Ok(()) } else { self.prove_safe() }
    }

    fn end_for_ever(&mut self, device: usize) -> Result<(), Stop> {
        let Some(entry) = self.member(device) else { return Ok(()) };
        let state = *self.random.pick(&[DeviceState::Failed, DeviceState::Removing]);
        let given_up = self.mounted().store.devices.set_device_state(entry.index, state);
        self.changed("giving up a device that hangs", given_up)?;
        self.mend_all()?;
        let state = self.member(device).map(|entry| entry.device_state());
        if state == Some(DeviceState::Removing) && self.must_be_safe() {
            let status = self.mounted().store.rebuilder.mend_status();
            return Err(Stop::Failure(format!("removing a device that hangs for ever does not end: {status:?}")));
        }
        self.machine.answer_again(device);
        self.machine.lose_after(device, 0);
        Ok(())
    }

    fn answer_after_hours(&mut self, device: usize) -> Result<(), Stop> {
        self.machine.pass(HOURS_NS);
        let has_hung = self.machine.has_hung(device);
        self.machine.answer_again(device);
        let is_attached = |history: &History| {
            let usage = history.member(device).map(|entry| history.mounted().store.devices.device_usage(entry.index));
            usage.is_none_or(|usage| usage.is_ok_and(|usage| usage.is_attached))
        };
        if !is_attached(self) || self.random.chance(1, 4) {
            self.remount()?;
        }
        self.mend_all()?;
        self.review()?;
        if let Some(entry) = self.member(device).filter(|entry| entry.device_state() != DeviceState::Active) {
            let again = self.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
            self.changed("using a device again", again)?;
            self.mend_all()?;
        }
        let Some(entry) = self.member(device) else { return Ok(()) };
        let usage = self.mounted().store.devices.device_usage(entry.index).unwrap_or_default();
        if !usage.is_attached || usage.is_suspended {
            let text = format!("a device that answers again (it hung: {has_hung}) is not used: {entry:?}, {usage:?}");
            return Err(Stop::Failure(text));
        }
        Ok(())
    }
}

fn of_hanging(stop: Stop, kinds: &[Call], moment: Moment) -> Stop {
    match stop {
        Stop::Failure(text) => Stop::Failure(format!("a device hangs ({kinds:?}, {moment:?}): {text}")),
        stop => stop,
    }
}
