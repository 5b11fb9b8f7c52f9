//! What people do to devices of a mounted pool, as the command does it: looked at first, refused where it cannot end well.

use std::sync::Arc;

use stere_device::Device;
use stere_format::{DeviceEntry, DeviceState, Superblock};
use stere_naming::Error;
use stere_pool::{DeviceClass, Holds, Joining, NewDevice, Return, identify, judge_return, settled_superblock};
use stere_store::{Change, DeviceIn};

use crate::history::{History, Stop};
use crate::pool::{name_of, number_of};

/// Of a device that comes to a pool which is filled.
const FILLED_MEBIBYTES_MAX: u32 = 200;

/// Devices of one machine; more than that make histories long.
const DEVICES_MAX: usize = 9;

impl History {
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

    /// Members that take new chunks, besides this one.
    fn others_open(&self, device: usize) -> usize {
        let store = &self.mounted().store;
        let is_open = |(number, entry): &(usize, DeviceEntry)| {
            let usage = store.devices.device_usage(entry.index).unwrap_or_default();
            *number != device
                && entry.device_state() == DeviceState::Active
                && usage.is_attached
                && !usage.is_suspended
                && !self.machine.absent().contains(number)
        };
        self.members().iter().filter(|one| is_open(one)).count()
    }

    /// What came of a change. A refusal that says why is fine.
    pub(crate) fn changed(&mut self, what: &str, outcome: Result<(), stere_store::Error>) -> Result<(), Stop> {
        use stere_store::Error as Refusal;
        self.has_changed_devices = true;
        match outcome {
            Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) if !self.machine.is_off() => Ok(()),
            Err(Refusal::NoSpace) if self.plan.may_fill => Ok(()),
            outcome => {
                self.must(what, outcome.map_err(Error::from))?;
                self.summary.changes += 1;
                Ok(())
            }
        }
    }

    /// How large a new device is. One that is filled is small: its content is kept in memory.
    fn size_of_new(&self, mebibytes: u32) -> u32 {
        if self.plan.may_fill { mebibytes.min(FILLED_MEBIBYTES_MAX) } else { mebibytes }
    }

    fn buy(&mut self, mebibytes: u32, state: DeviceState, index: u16) -> Result<Option<(DeviceIn, DeviceEntry)>, Stop> {
        let Some(newest) = self.newest() else { return Ok(None) };
        let number = self.machine.add_device(u64::from(mebibytes) << 20, 512);
        let new = NewDevice {
            path: name_of(number),
            device: self.device(number),
            name: name_of(number),
            class: DeviceClass::Ssd,
            tags: Vec::new(),
            host: String::new(),
            shelf: String::new(),
            foreign: None,
        };
        let machine = self.machine.clone();
        let mut randomness = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = machine.draw() as u8);
        let joining = Joining { index, state, force: false };
        match stere_pool::newcomer(&newest, &new, joining, &mut randomness) {
            Ok(joined) => Ok(Some(joined)),
            Err(_) if self.machine.is_off() => Err(Stop::Power),
            Err(error) => Err(Stop::Failure(format!("a new device: {error}"))),
        }
    }

    pub(crate) fn add_device(&mut self, mebibytes: u32, spare: bool) -> Result<(), Stop> {
        let mebibytes = self.size_of_new(mebibytes);
        if self.machine.device_count() >= DEVICES_MAX {
            return Ok(());
        }
        let Ok(index) = stere_pool::free_index(&self.mounted().store) else { return Ok(()) };
        let state = if spare { DeviceState::Spare } else { DeviceState::Active };
        let Some((device_in, entry)) = self.buy(mebibytes, state, index)? else { return Ok(()) };
        let added = self.mounted().store.devices.add_device(device_in, entry);
        self.changed("adding a device", added)
    }

    pub(crate) fn replace_device(&mut self, device: usize, mebibytes: u32) -> Result<(), Stop> {
        let mebibytes = self.size_of_new(mebibytes);
        let Some(old) = self.member(device).filter(|_| self.machine.device_count() < DEVICES_MAX) else {
            return Ok(());
        };
        let is_away = self.machine.absent().contains(&device);
        // What is away for a time comes back; and nothing is replaced by what is smaller.
        let is_wanted = (!is_away || self.machine.is_lost(device)) && self.offline != Some(device);
        let is_wanted = is_wanted && self.places_can_spare(device);
        if !is_wanted || u64::from(mebibytes) << 20 < old.size_bytes {
            return Ok(());
        }
        if is_away && self.mounted().store.devices.device_usage(old.index).is_ok_and(|usage| usage.is_attached) {
            let gone = self.mounted().store.devices.detach_device(old.index, true);
            self.changed("going on without a lost device", gone)?;
        }
        let Some((device_in, entry)) = self.buy(mebibytes, DeviceState::Active, old.index)? else { return Ok(()) };
        let replaced = self.mounted().store.devices.replace_device(old.index, device_in, entry);
        self.changed("replacing a device", replaced.map(drop))
    }

    /// Whether all that is on a device has room on the others, and new data its copies.
    pub(crate) fn can_do_without(&self, device: usize, entry: &DeviceEntry) -> bool {
        let forecast = self.mounted().store.forecaster.forecast(&Change::Evacuate(entry.index));
        self.others_open(device) >= 2 && forecast.is_ok_and(|forecast| forecast.fits)
    }

    pub(crate) fn empty_device(&mut self, device: usize, leaves: bool) -> Result<(), Stop> {
        let state = if leaves { DeviceState::Removing } else { DeviceState::Leaving };
        self.change_state(device, DeviceState::Active, state)
    }

    pub(crate) fn give_up(&mut self, device: usize) -> Result<(), Stop> {
        self.change_state(device, DeviceState::Active, DeviceState::Failed)
    }

    pub(crate) fn use_again(&mut self, device: usize) -> Result<(), Stop> {
        let Some(entry) = self.member(device) else { return Ok(()) };
        if matches!(entry.device_state(), DeviceState::Leaving | DeviceState::Failed) && !self.machine.is_lost(device) {
            let changed = self.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
            return self.changed("using a device again", changed);
        }
        Ok(())
    }

    fn change_state(&mut self, device: usize, from: DeviceState, to: DeviceState) -> Result<(), Stop> {
        let Some(entry) = self.member(device) else { return Ok(()) };
        let is_there = !self.machine.absent().contains(&device);
        if entry.device_state() != from
            || !is_there
            || !self.places_can_spare(device)
            || !self.can_do_without(device, &entry)
        {
            return Ok(());
        }
        let changed = self.mounted().store.devices.set_device_state(entry.index, to);
        self.changed("changing what a device is for", changed)
    }

    pub(crate) fn offline(&mut self, device: usize) -> Result<(), Stop> {
        let Some(entry) = self.member(device) else { return Ok(()) };
        let is_there = !self.machine.absent().contains(&device);
        if entry.device_state() != DeviceState::Active || !is_there || !self.may_go(device) {
            return Ok(());
        }
        (self.exposed, self.offline) = (Some(device), Some(device));
        let changed = self.mounted().store.devices.set_device_state(entry.index, DeviceState::Offline);
        self.changed("taking a device offline", changed)
    }

    /// A device comes back to the pool while that is mounted: judged, then attached.
    pub(crate) fn online(&mut self, device: usize) -> Result<(), Stop> {
        let is_back = self.away() == Some(device) && !self.machine.is_lost(device);
        let Some(entry) = self.member(device).filter(|_| is_back) else { return Ok(()) };
        if self.mounted().store.devices.device_usage(entry.index).is_ok_and(|usage| usage.is_attached) {
            // Its old opening may never write again.
            let gone = self.mounted().store.devices.detach_device(entry.index, true);
            self.changed("going on without a device", gone)?;
        }
        self.machine.bring_back(device);
        self.returning = None;
        let Some(own) = self.settled_superblock(device) else {
            return if self.is_calm() && !self.machine.is_off() {
                Err(Stop::Failure(format!("device {device} is back without a superblock")))
            } else {
                Ok(())
            };
        };
        let newest = self.newest().unwrap_or_else(|| own.clone());
        if judge_return(&newest, &entry, &own) != Return::Welcome {
            // As many mounts as superblocks tell of began without it: nobody can tell any more, and `online --wipe` fills it anew.
            let last = own.epochs.last().map_or(0, |epoch| epoch.epoch);
            let missed = newest.epochs.iter().filter(|epoch| epoch.epoch > last).count();
            return match self.is_calm() && missed < Superblock::EPOCHS_MAX {
                true => Err(Stop::Failure(format!("device {device} is not welcome although it was only away"))),
                false => Ok(()),
            };
        }
        let device_in = DeviceIn { index: entry.index, superblock: own, device: self.device(device), read_cost: 1 };
        let attached = self.mounted().store.devices.attach_device(device_in);
        self.changed("attaching a device that is back", attached)?;
        if self.offline == Some(device) {
            self.offline = None;
        }
        Ok(())
    }
}
