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
use crate::pool::{PoolUnderTest, caller};
use crate::{
    device_lifecycle::{self, change},
    execute::{contents, names},
    quotas, recovery, verification,
};

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

impl PoolUnderTest {
    /// What the daemon does in every round of its repair.
    pub(crate) fn look_after_devices(&self) {
        self.mounted().store.devices.set_deadlines(Some(Duration::from_nanos(DEADLINE_NS)));
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
}

pub(crate) fn try_hanging(history: &mut History, moment: u8) -> Result<(), Stop> {
    let moment = MOMENTS[usize::from(moment) % MOMENTS.len()];
    if !may_fail_devices(history, NAME, BYTES as u64) {
        return Ok(());
    }
    history.machine.disarm();
    bring_members(history, 3)?;
    if history.random.chance(1, 3) {
        change::add_device(history, 200, true)?;
    }
    device_lifecycle::mend_all(history)?;
    if device_lifecycle::lacks(history).is_some() || !device_lifecycle::must_be_safe(history) {
        return Ok(());
    }
    let Some(device) = any_member(history) else { return Ok(()) };
    let inode = write_named(history, NAME, None)?;
    let kinds = any_kinds(&mut history.random);
    let calls_left = if history.random.chance(1, 3) { 0 } else { history.random.below(40) as u32 };
    history.pool.look_after_devices();
    history.machine.hang(device, kinds, calls_left);
    if history.verbose {
        println!("     device {device} hangs: {kinds:?} after {calls_left} calls, {moment:?}");
    }
    let ends = beside_hanging(history, inode, device, moment).map_err(|stop| of_hanging(stop, kinds, moment));
    // Nobody waited without a bound, whatever came of it.
    if history.machine.waited_for_ever() > 0 {
        return Err(Stop::Failure(format!("somebody waits for ever for a device that hangs: {kinds:?}, {moment:?}")));
    }
    ends?;
    let ended = end_hanging(history, inode, device);
    ended.map_err(|stop| of_hanging(stop, kinds, moment))?;
    if history.random.chance(1, 4) {
        hang_all_at_once(history, inode)?;
    }
    names::remove_name(history, ROOT, NAME, false)?;
    history.sync_all()
}

/// P-236: all devices hang in the same moment, as behind a network that is cut; writing waits for one of them, and then goes on.
fn hang_all_at_once(history: &mut History, inode: u64) -> Result<(), Stop> {
    let members: Vec<usize> = history.pool.members().into_iter().map(|(device, _)| device).collect();
    history.pool.look_after_devices();
    members.iter().for_each(|device| history.machine.hang(*device, &[Call::Write, Call::Flush], 0));
    let written = write_in_part(history, inode);
    members.iter().for_each(|device| history.machine.answer_again(*device));
    written.map_err(|stop| of_hanging(stop, &[Call::Write, Call::Flush], Moment::Work))?;
    device_lifecycle::mend_all(history)?;
    history.verify_file(inode)
}

/// Nothing fails or lacks anything, and there is nothing else that decides where a file lies or whether it may be made.
pub(crate) fn may_fail_devices(history: &History, name: &[u8], bytes: u64) -> bool {
    let machine = &history.machine;
    let is_well = history.pool.is_well();
    let is_armed = (0..machine.device_count()).any(|device| machine.is_faulty(device) || machine.is_away(device));
    let is_usual = |state| matches!(state, DeviceState::Active | DeviceState::Spare);
    let is_whole = history.pool.members().iter().all(|(_, entry)| is_usual(entry.device_state()));
    // What is damaged on a medium may be there only.
    let is_plain = history.summary.tier.harms == 0
        && !history.plan.may_fill
        && !history.plan.pool.keeps_versions
        && !history.quotas.are_on();
    let has_room = quotas::check_inode_room(history).and(quotas::check_growth(history, 0, bytes)).is_ok();
    // What these add decides neither where files lie nor who may make them.
    let harmless = [Area::Records, Area::Followers, Area::Backups, Area::Failing];
    let areas = history.plan.pool.areas;
    let is_free = areas == Areas::NONE || harmless.into_iter().any(|area| areas.has(area));
    let is_bare = history.model.lookup(ROOT, name).is_err() && is_free;
    is_well && !is_armed && history.plan.budget != Budget::Beyond && is_whole && is_plain && has_room && is_bare
}

/// So many active devices at least.
pub(crate) fn bring_members(history: &mut History, count: usize) -> Result<(), Stop> {
    let active = history.pool.members().iter().filter(|(_, entry)| entry.device_state() == DeviceState::Active).count();
    for _ in active..count {
        change::add_device(history, 100, false)?;
    }
    Ok(())
}

/// A new file with so many copies, or as many as policy has, and durable.
pub(crate) fn write_named(history: &mut History, name: &[u8], copies: Option<&[u8]>) -> Result<u64, Stop> {
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), ROOT, name, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, ROOT, name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
    history.model.open(inode);
    if let Some(copies) = copies {
        names::put_policy(history, inode, b"user.stere.copies", copies)?;
    }
    history.sync_all()?;
    let seed = history.random.next_u64();
    contents::write(history, inode, 0, &pattern(seed, BYTES))?;
    history.fsync(inode)?;
    history.release(Slot { inode, handle })?;
    history.sync_all()?;
    Ok(inode)
}

/// Changes a part of a file, durably.
pub(crate) fn write_in_part(history: &mut History, inode: u64) -> Result<(), Stop> {
    let flags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };
    let opened = history.mounted().files.open(&caller(&history.machine), inode, flags);
    let handle = history.must("open", opened)?;
    history.model.open(inode);
    let (offset, seed) = (history.random.below(BYTES as u64), history.random.next_u64());
    let length = history.random.between(1, 120_000) as usize;
    contents::write(history, inode, offset, &pattern(seed, length))?;
    history.fsync(inode)?;
    history.release(Slot { inode, handle })
}

fn any_member(history: &mut History) -> Option<usize> {
    let active = history.pool.members().into_iter().filter(|(_, entry)| entry.device_state() == DeviceState::Active);
    let able: Vec<usize> = active
        .filter(|(device, entry)| history.pool.can_do_without(*device, entry))
        .map(|(device, _)| device)
        .collect();
    (!able.is_empty()).then(|| *history.random.pick(&able))
}

fn beside_hanging(history: &mut History, inode: u64, device: usize, moment: Moment) -> Result<(), Stop> {
    let errors_before = history.pool.errors_of(device);
    match moment {
        Moment::Work => {}
        Moment::Verb(state) => {
            for _ in 0..history.random.below(3) {
                act_beside(history, inode)?;
            }
            let index = history.pool.member(device).map(|entry| entry.index);
            let Some(index) = index else { return Ok(()) };
            match history.mounted().store.devices.set_device_state(index, state) {
                Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) => {}
                outcome => history.must("changing what a hanging device is for", outcome.map_err(Error::from))?,
            }
            mend_beside(history, device)?;
        }
        // What has one copy cannot be looked at then.
        Moment::Mount | Moment::Recovery if history.pool.has_singles() => {}
        Moment::Mount => recovery::remount(history)?,
        Moment::Recovery => {
            history.machine.power_off();
            recovery::recover(history, CrashManner::Mixed, None)?;
        }
    }
    for _ in 0..history.random.between(4, 9) {
        act_beside(history, inode)?;
    }
    history.pool.look_at_hanging(device, errors_before)
}

/// One thing that goes on, and how long it takes at most.
fn act_beside(history: &mut History, inode: u64) -> Result<(), Stop> {
    let begun_ns = history.machine.now_ns();
    let act = history.random.below(ACTS);
    match act {
        0..3 => write_in_part(history, inode)?,
        3 => history.verify_file(inode)?,
        4 => {
            let stepped = history.mounted().store.step(false);
            history.must("background work beside a hanging device", stepped.map_err(Error::from))?;
        }
        5 => {
            let done = history.mounted().store.checkpoint();
            history.must("checkpoint beside a hanging device", done.map_err(Error::from))?;
            history.note_commit();
        }
        _ => {
            let progress = history.mounted().store.rebuilder.mend_step(8 << 20);
            history.must("mending beside a hanging device", progress.map_err(Error::from))?;
        }
    }
    let waited_ns = history.machine.now_ns() - begun_ns;
    if waited_ns > CALL_MAX_NS {
        let seconds = waited_ns / 1_000_000_000;
        return Err(Stop::Failure(format!("number {act} of what goes on waited {seconds} s for one device")));
    }
    history.pool.look_after_devices();
    Ok(())
}

/// Mends until nothing can be done any more.
pub(crate) fn mend_beside(history: &mut History, device: usize) -> Result<(), Stop> {
    for _ in 0..ROUNDS_MAX {
        let progress = history.mounted().store.rebuilder.mend_step(8 << 20);
        let is_done = history.must("mending beside a failing device", progress.map_err(Error::from))?.is_done;
        let stepped = history.mounted().store.step(false);
        history.must("background work beside a failing device", stepped.map_err(Error::from))?;
        history.pool.look_after_devices();
        if is_done {
            let kept = history.mounted().store.commit(Io::BLOCKING);
            return history.must("commit beside a failing device", kept.map_err(Error::from));
        }
    }
    let status = history.mounted().store.rebuilder.mend_status();
    Err(Stop::Failure(format!("mending beside device {device}, which fails, does not end: {status:?}")))
}

/// Looks again at what could not be read, as the daemon does every now and then.
pub(crate) fn review(history: &mut History) -> Result<(), Stop> {
    let reviewed = history.mounted().store.damage().review_damage(1000);
    history.must("looking again at what could not be read", reviewed.map(drop).map_err(Error::from))?;
    device_lifecycle::mend_all(history)
}

/// It answers again after hours, perhaps with what it had before, or never.
fn end_hanging(history: &mut History, inode: u64, device: usize) -> Result<(), Stop> {
    let entry = history.pool.member(device);
    let can_be_lost =
        !history.pool.has_singles() && entry.is_some_and(|entry| history.pool.can_do_without(device, &entry));
    let is_lost = can_be_lost && history.random.chance(1, 3);
    if is_lost {
        end_for_ever(history, device)?;
    } else {
        answer_after_hours(history, device)?;
    }
    history.verify_file(inode)?;
    history.verify_all()?;
    if let Some(text) = device_lifecycle::lacks(history).filter(|_| device_lifecycle::must_be_safe(history)) {
        return Err(Stop::Failure(text));
    }
    history.summary.hangs[usize::from(is_lost)] += 1;
    if history.pool.has_singles() { Ok(()) } else { verification::prove_safe(history) }
}

fn end_for_ever(history: &mut History, device: usize) -> Result<(), Stop> {
    let Some(entry) = history.pool.member(device) else { return Ok(()) };
    let state = *history.random.pick(&[DeviceState::Failed, DeviceState::Removing]);
    let given_up = history.mounted().store.devices.set_device_state(entry.index, state);
    change::note_change(history, "giving up a device that hangs", given_up)?;
    device_lifecycle::mend_all(history)?;
    let state = history.pool.member(device).map(|entry| entry.device_state());
    if state == Some(DeviceState::Removing) && device_lifecycle::must_be_safe(history) {
        let status = history.mounted().store.rebuilder.mend_status();
        return Err(Stop::Failure(format!("removing a device that hangs for ever does not end: {status:?}")));
    }
    history.machine.answer_again(device);
    history.machine.lose_after(device, 0);
    Ok(())
}

fn answer_after_hours(history: &mut History, device: usize) -> Result<(), Stop> {
    history.machine.pass(HOURS_NS);
    let has_hung = history.machine.has_hung(device);
    history.machine.answer_again(device);
    let is_attached = |history: &History| {
        let usage = history.pool.member(device).map(|entry| history.mounted().store.devices.device_usage(entry.index));
        usage.is_none_or(|usage| usage.is_ok_and(|usage| usage.is_attached))
    };
    if !is_attached(history) || history.random.chance(1, 4) {
        recovery::remount(history)?;
    }
    device_lifecycle::mend_all(history)?;
    review(history)?;
    if let Some(entry) = history.pool.member(device).filter(|entry| entry.device_state() != DeviceState::Active) {
        let again = history.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
        change::note_change(history, "using a device again", again)?;
        device_lifecycle::mend_all(history)?;
    }
    let Some(entry) = history.pool.member(device) else { return Ok(()) };
    let usage = history.mounted().store.devices.device_usage(entry.index).unwrap_or_default();
    if !usage.is_attached || usage.is_suspended {
        let text = format!("a device that answers again (it hung: {has_hung}) is not used: {entry:?}, {usage:?}");
        return Err(Stop::Failure(text));
    }
    Ok(())
}

fn of_hanging(stop: Stop, kinds: &[Call], moment: Moment) -> Stop {
    match stop {
        Stop::Failure(text) => Stop::Failure(format!("a device hangs ({kinds:?}, {moment:?}): {text}")),
        stop => stop,
    }
}
