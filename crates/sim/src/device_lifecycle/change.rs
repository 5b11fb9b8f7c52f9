//! What people do to devices of a mounted pool, as the command does it: looked at first, refused where it cannot end well.

use std::sync::Arc;

use stere_device::Device;
use stere_format::{DeviceEntry, DeviceState, Superblock};
use stere_naming::Error;
use stere_pool::{DeviceClass, Holds, Joining, NewDevice, Return, identify, judge_return, settled_superblock};
use stere_store::{Change, DeviceIn};

use crate::history::{History, Plan, Stop};
use crate::pool::{PoolUnderTest, name_of, number_of};
use crate::{device_lifecycle, placement};

/// Of a device that comes to a pool which is filled.
const FILLED_MEBIBYTES_MAX: u32 = 200;

/// Devices of one machine; more than that make histories long.
const DEVICES_MAX: usize = 9;
/// With fewer slots a device may be full of archived segments that cannot be released.
const SLOTS_ROOMY: u32 = 40;

impl Plan {
    /// How large a new device is. One that is filled is small: its content is kept in memory.
    pub(crate) fn size_of_new(&self, mebibytes: u32) -> u32 {
        if self.may_fill { mebibytes.min(FILLED_MEBIBYTES_MAX) } else { mebibytes }
    }
}

impl PoolUnderTest {
    /// The machine's number and the table's entry of every device of the pool.
    pub(crate) fn members(&self) -> Vec<(usize, DeviceEntry)> {
        let Some(mounted) = &self.mounted else { return Vec::new() };
        let entries = mounted.store.device_entries();
        entries.into_iter().filter_map(|entry| Some((number_of(&entry.name)?, entry))).collect()
    }

    pub(crate) fn member(&self, device: usize) -> Option<DeviceEntry> {
        self.members().into_iter().find(|(number, _)| *number == device).map(|(_, entry)| entry)
    }

    fn device(&self, device: usize) -> Arc<dyn Device> {
        self.machine.devices().swap_remove(device)
    }

    fn superblock(&self, device: usize) -> Option<Superblock> {
        match identify(&*self.device(device)) {
            Holds::Member(identity) => Some(identity.superblock),
            _ => None,
        }
    }

    /// What a device that came back says of itself, without an epoch in which nothing happened.
    fn settled_superblock(&self, device: usize) -> Option<Superblock> {
        let store = &self.mounted().store;
        let is_there = |index| store.devices.device_usage(index).is_ok_and(|usage| usage.is_attached);
        let device = self.device(device);
        match identify(&*device) {
            Holds::Member(identity) => Some(settled_superblock(&identity, &*device, &is_there)),
            _ => None,
        }
    }

    /// A superblock of the pool as it is now.
    fn newest(&self) -> Option<Superblock> {
        let store = &self.mounted().store;
        let members = self.members().into_iter();
        let there =
            members.filter(|(_, entry)| store.devices.device_usage(entry.index).is_ok_and(|usage| usage.is_attached));
        let superblocks = there.filter_map(|(number, _)| self.superblock(number));
        superblocks.max_by_key(|superblock| superblock.generation)
    }

    /// Members that take new chunks and have so many slots at least, besides this one.
    fn others_open(&self, device: usize, slots_min: u32) -> usize {
        let store = &self.mounted().store;
        let is_open = |(number, entry): &(usize, DeviceEntry)| {
            let usage = store.devices.device_usage(entry.index).unwrap_or_default();
            *number != device
                && entry.device_state() == DeviceState::Active
                && usage.is_attached
                && !usage.is_suspended
                && usage.slot_count >= slots_min
                && !self.machine.absent().contains(number)
        };
        self.members().iter().filter(|one| is_open(one)).count()
    }

    /// Whether all that is on a device has room on the others, and new data its copies.
    pub(crate) fn can_do_without(&self, device: usize, entry: &DeviceEntry) -> bool {
        let forecast = self.mounted().store.forecaster.forecast(&Change::Evacuate(entry.index));
        self.others_open(device, 0) >= 2 && forecast.is_ok_and(|forecast| forecast.fits)
    }
}

/// What came of a change. A refusal that says why is fine.
pub(crate) fn note_change(
    history: &mut History,
    what: &str,
    outcome: Result<(), stere_store::Error>,
) -> Result<(), Stop> {
    use stere_store::Error as Refusal;
    history.pool.has_changed_devices = true;
    match outcome {
        Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) if !history.machine.is_off() => Ok(()),
        Err(Refusal::NoSpace) if history.plan.may_fill => Ok(()),
        outcome => {
            history.must(what, outcome.map_err(Error::from))?;
            history.summary.changes += 1;
            Ok(())
        }
    }
}

fn buy(
    history: &mut History,
    mebibytes: u32,
    state: DeviceState,
    index: u16,
) -> Result<Option<(DeviceIn, DeviceEntry)>, Stop> {
    let Some(newest) = history.pool.newest() else { return Ok(None) };
    let number = history.machine.add_device(u64::from(mebibytes) << 20, 512);
    let new = NewDevice {
        path: name_of(number),
        device: history.pool.device(number),
        name: name_of(number),
        class: DeviceClass::Ssd,
        tags: Vec::new(),
        host: String::new(),
        shelf: String::new(),
        foreign: None,
    };
    let machine = history.machine.clone();
    let mut randomness = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = machine.draw() as u8);
    let joining = Joining { index, state, force: false };
    match stere_pool::newcomer(&newest, &new, joining, &mut randomness) {
        Ok(joined) => Ok(Some(joined)),
        Err(_) if history.machine.is_off() => Err(Stop::Power),
        Err(error) => Err(Stop::Failure(format!("a new device: {error}"))),
    }
}

pub(crate) fn add_device(history: &mut History, mebibytes: u32, spare: bool) -> Result<(), Stop> {
    let mebibytes = history.plan.size_of_new(mebibytes);
    if history.machine.device_count() >= DEVICES_MAX {
        return Ok(());
    }
    let Ok(index) = stere_pool::free_index(&history.mounted().store) else { return Ok(()) };
    let state = if spare { DeviceState::Spare } else { DeviceState::Active };
    let Some((device_in, entry)) = buy(history, mebibytes, state, index)? else { return Ok(()) };
    let added = history.mounted().store.devices.add_device(device_in, entry);
    note_change(history, "adding a device", added)
}

pub(crate) fn replace_device(history: &mut History, device: usize, mebibytes: u32) -> Result<(), Stop> {
    let mebibytes = history.plan.size_of_new(mebibytes);
    let Some(old) = history.pool.member(device).filter(|_| history.machine.device_count() < DEVICES_MAX) else {
        return Ok(());
    };
    let is_away = history.machine.absent().contains(&device);
    // What is away for a time comes back; and nothing is replaced by what is smaller.
    let is_wanted = (!is_away || history.machine.is_lost(device)) && history.pool.offline != Some(device);
    let is_wanted = is_wanted && placement::places_can_spare(history, device);
    if !is_wanted || u64::from(mebibytes) << 20 < old.size_bytes {
        return Ok(());
    }
    if is_away && history.mounted().store.devices.device_usage(old.index).is_ok_and(|usage| usage.is_attached) {
        let gone = history.mounted().store.devices.detach_device(old.index, true);
        note_change(history, "going on without a lost device", gone)?;
    }
    let Some((device_in, entry)) = buy(history, mebibytes, DeviceState::Active, old.index)? else { return Ok(()) };
    let replaced = history.mounted().store.devices.replace_device(old.index, device_in, entry);
    note_change(history, "replacing a device", replaced.map(drop))
}

pub(crate) fn empty_device(history: &mut History, device: usize, leaves: bool) -> Result<(), Stop> {
    let state = if leaves { DeviceState::Removing } else { DeviceState::Leaving };
    change_state(history, device, DeviceState::Active, state)
}

pub(crate) fn give_up(history: &mut History, device: usize) -> Result<(), Stop> {
    change_state(history, device, DeviceState::Active, DeviceState::Failed)
}

pub(crate) fn use_again(history: &mut History, device: usize) -> Result<(), Stop> {
    let Some(entry) = history.pool.member(device) else { return Ok(()) };
    if matches!(entry.device_state(), DeviceState::Leaving | DeviceState::Failed) && !history.machine.is_lost(device) {
        let changed = history.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
        return note_change(history, "using a device again", changed);
    }
    Ok(())
}

fn change_state(history: &mut History, device: usize, from: DeviceState, to: DeviceState) -> Result<(), Stop> {
    let Some(entry) = history.pool.member(device) else { return Ok(()) };
    let is_there = !history.machine.absent().contains(&device);
    if entry.device_state() != from
        || !is_there
        || !placement::places_can_spare(history, device)
        || !history.pool.can_do_without(device, &entry)
        // What is left of a pool that nothing fills has room for what is still written.
        || (!history.plan.may_fill && history.pool.others_open(device, SLOTS_ROOMY) < 2)
    {
        return Ok(());
    }
    let changed = history.mounted().store.devices.set_device_state(entry.index, to);
    note_change(history, "changing what a device is for", changed)
}

pub(crate) fn offline(history: &mut History, device: usize) -> Result<(), Stop> {
    let Some(entry) = history.pool.member(device) else { return Ok(()) };
    let is_there = !history.machine.absent().contains(&device);
    if entry.device_state() != DeviceState::Active || !is_there || !device_lifecycle::may_go(history, device) {
        return Ok(());
    }
    (history.pool.exposed, history.pool.offline) = (Some(device), Some(device));
    let changed = history.mounted().store.devices.set_device_state(entry.index, DeviceState::Offline);
    note_change(history, "taking a device offline", changed)
}

/// A device comes back to the pool while that is mounted: judged, then attached.
pub(crate) fn online(history: &mut History, device: usize) -> Result<(), Stop> {
    let is_back = history.pool.away() == Some(device) && !history.machine.is_lost(device);
    let Some(entry) = history.pool.member(device).filter(|_| is_back) else { return Ok(()) };
    if history.mounted().store.devices.device_usage(entry.index).is_ok_and(|usage| usage.is_attached) {
        // Its old opening may never write again.
        let gone = history.mounted().store.devices.detach_device(entry.index, true);
        note_change(history, "going on without a device", gone)?;
    }
    history.machine.bring_back(device);
    history.pool.returning = None;
    let Some(own) = history.pool.settled_superblock(device) else {
        return if history.pool.is_calm() && !history.machine.is_off() {
            Err(Stop::Failure(format!("device {device} is back without a superblock")))
        } else {
            Ok(())
        };
    };
    let newest = history.pool.newest().unwrap_or_else(|| own.clone());
    if judge_return(&newest, &entry, &own) != Return::Welcome {
        // As many mounts as superblocks tell of began without it: nobody can tell any more, and `online --wipe` fills it anew.
        let last = own.epochs.last().map_or(0, |epoch| epoch.epoch);
        let missed = newest.epochs.iter().filter(|epoch| epoch.epoch > last).count();
        return match history.pool.is_calm() && missed < Superblock::EPOCHS_MAX {
            true => Err(Stop::Failure(format!("device {device} is not welcome although it was only away"))),
            false => Ok(()),
        };
    }
    let device_in = DeviceIn { index: entry.index, superblock: own, device: history.pool.device(device), read_cost: 1 };
    let attached = history.mounted().store.devices.attach_device(device_in);
    note_change(history, "attaching a device that is back", attached)?;
    if history.pool.offline == Some(device) {
        history.pool.offline = None;
    }
    Ok(())
}

/// Kinds of waiting for a device that is to be smaller: from none at all to as much as it takes.
const SHRINK_KINDS: u8 = 4;
const SHRINK_STEPS: u8 = 12;

/// Less of a device is used, if what is on it has room in that. Where what lies beyond did not move in time nobody insists.
pub(crate) fn shrink_device(history: &mut History, device: usize, percent: u8) -> Result<(), Stop> {
    let Some(entry) = history.pool.member(device).filter(|entry| entry.device_state() == DeviceState::Active) else {
        return Ok(());
    };
    let store = history.mounted().store.clone();
    let devices = store.health.pool_devices();
    let Some(now) = devices.iter().find(|one| one.index() == entry.index).map(|one| *one.layout()) else {
        return Ok(());
    };
    let usage = store.devices.device_usage(entry.index).unwrap_or_default();
    let is_used = usage.is_attached && !usage.is_suspended && !history.machine.absent().contains(&device);
    let layout = now.shrunk(now.size_bytes / 100 * u64::from(percent));
    let Some(layout) = layout.filter(|layout| {
        let is_roomy = u64::from(layout.slot_count) > usage.chunks + u64::from(SLOTS_ROOMY);
        is_used && is_roomy && !history.plan.may_fill
    }) else {
        return Ok(());
    };
    note_change(history, "bounding a device", store.devices.bound_device(entry.index, layout))?;
    for _ in 0..percent % SHRINK_KINDS * SHRINK_STEPS {
        let progress = store.rebuilder.mend_step(1 << 20);
        if history.must("moving what lies beyond", progress.map_err(Error::from))?.is_done {
            break;
        }
    }
    for _ in 0..2 {
        history.must("a checkpoint", store.checkpoint().map_err(Error::from))?;
    }
    match store.devices.use_less(entry.index, layout, DeviceClass::Ssd.read_cost()) {
        Ok(()) => history.summary.shrunk += 1,
        Err(_) if history.machine.is_off() => return Err(Stop::Power),
        // Something lies there still, or the device failed meanwhile.
        Err(_) => {
            let unbound = store.devices.bound_device(entry.index, now);
            if history.machine.is_off() {
                return Err(Stop::Power);
            }
            drop(unbound);
        }
    }
    Ok(())
}
