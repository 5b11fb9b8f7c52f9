//! A spare takes over by itself from a device that fails for a while and then comes back intact: nothing is lost that could not be read
//! meanwhile, and of what was written meanwhile the device is not believed (P-20, P-21, P-160).
//!
//! The history does what the daemon does: after a while it gives the device up. Read next: `single_copies.rs`, `hanging.rs`.

use stere_format::DeviceState;
use stere_naming::Error;
use stere_store::Error as Refusal;

use crate::hang::Call;
use crate::history::{History, Stop};
use crate::medium::Ailment;
use crate::model::ROOT;
use crate::operation::CrashManner;
use crate::pool::{PoolUnderTest, caller};
use crate::recovery::{self, survival};
use crate::{
    device_lifecycle::{self, change},
    execute::names,
    hanging, quotas,
};

/// After so long a spare takes over.
const SPARE_AFTER_NS: u64 = 600_000_000_000;
const SINGLE: &[u8] = b"alone";
const SHARED: &[u8] = b"shared";
const BYTES: u64 = 1_200_000;

/// How a device fails for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It is not there.
    Gone,
    /// Reads fail, or writes, or both after a long time.
    Ails(Ailment),
    /// Nothing comes back.
    Hangs,
}

pub(crate) const MANNERS: usize = 5;
const ALL: [Manner; MANNERS] = [
    Manner::Gone,
    Manner::Ails(Ailment::Unreadable),
    Manner::Ails(Ailment::Unwritable),
    Manner::Ails(Ailment::Silent),
    Manner::Hangs,
];

impl PoolUnderTest {
    fn spares(&self) -> usize {
        self.members().iter().filter(|(_, entry)| entry.device_state() == DeviceState::Spare).count()
    }
}

pub(crate) fn try_takeover(history: &mut History, manner: u8) -> Result<(), Stop> {
    let at = usize::from(manner) % MANNERS;
    let is_bare = history.model.lookup(ROOT, SHARED).is_err();
    if !is_bare || !hanging::may_fail_devices(history, SINGLE, BYTES) {
        return Ok(());
    }
    history.machine.disarm();
    hanging::bring_members(history, 3)?;
    if history.pool.spares() == 0 {
        change::add_device(history, 200, true)?;
    }
    device_lifecycle::mend_all(history)?;
    if history.pool.spares() == 0
        || device_lifecycle::lacks(history).is_some()
        || !device_lifecycle::must_be_safe(history)
    {
        return Ok(());
    }
    let single = hanging::write_named(history, SINGLE, Some(b"1"))?;
    let shared = hanging::write_named(history, SHARED, None)?;
    let device = history.pool.device_of_single();
    let entry = device.and_then(|device| history.pool.member(device)).filter(|entry| {
        device.is_some_and(|device| history.pool.can_do_without(device, entry))
            && entry.device_state() == DeviceState::Active
    });
    if let (Some(device), Some(entry)) = (device, entry) {
        let taken = take_over(history, device, entry.index, ALL[at], single, shared);
        taken.map_err(|stop| match stop {
            Stop::Failure(text) => Stop::Failure(format!("a spare took over, {:?}: {text}", ALL[at])),
            stop => stop,
        })?;
        history.summary.takeovers[at] += 1;
    }
    names::remove_name(history, ROOT, SINGLE, false)?;
    names::remove_name(history, ROOT, SHARED, false)?;
    history.sync_all()?;
    history.verify_all()
}

fn take_over(
    history: &mut History,
    device: usize,
    index: u16,
    manner: Manner,
    single: u64,
    shared: u64,
) -> Result<(), Stop> {
    history.pool.look_after_devices();
    fail_for_a_while(history, device, manner);
    for _ in 0..history.random.between(1, 3) {
        hanging::write_in_part(history, shared)?;
    }
    let may_mount = matches!(manner, Manner::Gone | Manner::Hangs);
    if may_mount && history.random.chance(1, 3) {
        mount_anew(history)?;
    }
    history.machine.pass(SPARE_AFTER_NS);
    give_up_for_spare(history, device, index)?;
    hanging::mend_beside(history, device)?;
    for _ in 0..history.random.between(1, 3) {
        hanging::write_in_part(history, shared)?;
    }
    if may_mount && history.random.chance(1, 3) {
        mount_anew(history)?;
    }
    history.verify_file(shared)?;
    come_back(history, device, manner)?;
    device_lifecycle::mend_all(history)?;
    hanging::review(history)?;
    history.verify_file(single)?;
    history.verify_all()?;
    part_with(history, device, single)
}

fn fail_for_a_while(history: &mut History, device: usize, manner: Manner) {
    match manner {
        Manner::Gone => {
            history.pool.exposed = Some(device);
            history.machine.take_away_after(device, 0);
        }
        Manner::Ails(ailment) => history.machine.set_ailment(device, Some(ailment)),
        Manner::Hangs => history.machine.hang(device, &[Call::Read, Call::Write, Call::Flush], 0),
    }
}

/// Mounts the pool again; what lies on the device alone is not looked at meanwhile.
fn mount_anew(history: &mut History) -> Result<(), Stop> {
    for slot in 0..history.slots.len() {
        history.close(slot as u8)?;
    }
    quotas::watch_quotas(history)?;
    history.sync_all()?;
    let Some(mounted) = history.pool.mounted.take() else { return Ok(()) };
    if history.random.chance(1, 2) {
        history.machine.power_off();
        drop(mounted);
        history.machine.power_on(&mut |_, random| survival(CrashManner::Mixed, random));
    } else {
        let closed = mounted.files.close(&caller(&history.machine)).map_err(|error| error.to_string());
        let closed = closed.and_then(|()| mounted.store.close().map_err(|error| error.to_string()));
        closed.map_err(|error| Stop::Failure(format!("close: {error}")))?;
    }
    history.pool.mounted = Some(history.plan.pool.mount(&history.machine).map_err(Stop::Failure)?);
    history.pool.look_after_devices();
    Ok(())
}

/// A spare takes over, as the daemon lets it; or a person removes the device.
fn give_up_for_spare(history: &mut History, device: usize, index: u16) -> Result<(), Stop> {
    let Some(entry) = history.pool.member(device).filter(|entry| entry.device_state() == DeviceState::Active) else {
        return Ok(());
    };
    let is_removed = history.random.chance(1, 4);
    let state = if is_removed { DeviceState::Removing } else { DeviceState::Failed };
    let spares = history.pool.spares();
    match history.mounted().store.devices.set_device_state(index, state) {
        Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) => {}
        outcome => history.must("giving up a device that fails", outcome.map_err(Error::from))?,
    }
    if !is_removed && history.pool.spares() == spares {
        return Err(Stop::Failure(format!("no spare takes the place of {entry:?}")));
    }
    Ok(())
}

fn come_back(history: &mut History, device: usize, manner: Manner) -> Result<(), Stop> {
    match manner {
        Manner::Gone if history.random.chance(1, 2) => {
            change::online(history, device)?;
        }
        Manner::Gone => {
            history.machine.bring_back(device);
            recovery::remount(history)?;
        }
        Manner::Ails(_) => history.machine.set_ailment(device, None),
        Manner::Hangs => history.machine.answer_again(device),
    }
    let usage = history.pool.member(device).map(|entry| history.mounted().store.devices.device_usage(entry.index));
    let is_attached = usage.is_none_or(|usage| usage.is_ok_and(|usage| usage.is_attached && !usage.is_suspended));
    if !is_attached || history.random.chance(1, 4) {
        recovery::remount(history)?;
    }
    Ok(())
}

/// What came back is emptied and taken for good, or used again.
fn part_with(history: &mut History, device: usize, single: u64) -> Result<(), Stop> {
    history.pool.exposed = None;
    let Some(entry) = history.pool.member(device) else { return history.verify_file(single) };
    // A slot is free with the checkpoint after the one that emptied it.
    for _ in 0..2 {
        let checkpoint = history.mounted().store.checkpoint();
        history.must("a checkpoint", checkpoint.map_err(Error::from))?;
    }
    let usage = history.mounted().store.devices.device_usage(entry.index).unwrap_or_default();
    let is_empty = usage.chunks == 0;
    if !is_empty && device_lifecycle::must_be_safe(history) {
        return Err(Stop::Failure(format!("a device came back and is not emptied: {entry:?}, {usage:?}")));
    }
    if is_empty && history.random.chance(1, 2) {
        history.machine.lose_after(device, 0);
        history.verify_file(single)?;
        return history.verify_all();
    }
    if entry.device_state() != DeviceState::Active {
        let again = history.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
        change::note_change(history, "using a device again", again)?;
    }
    device_lifecycle::mend_all(history)?;
    history.verify_file(single)
}
