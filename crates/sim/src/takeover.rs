//! A spare takes over by itself from a device that fails for a while and then comes back intact: nothing is lost that could not be read
//! meanwhile, and of what was written meanwhile the device is not believed (P-20, P-21, P-160).
//!
//! The history does what the daemon does: after a while it gives the device up. Read next: `single.rs`, `hanging.rs`.

use stere_format::DeviceState;
use stere_naming::Error;
use stere_store::Error as Refusal;

use crate::hang::Call;
use crate::history::{History, Stop};
use crate::medium::Ailment;
use crate::model::ROOT;
use crate::operation::CrashManner;
use crate::pool::caller;
use crate::recovery::survival;

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

impl History {
    pub(crate) fn try_takeover(&mut self, manner: u8) -> Result<(), Stop> {
        let at = usize::from(manner) % MANNERS;
        let is_bare = self.model.lookup(ROOT, SHARED).is_err();
        if !is_bare || !self.may_fail_devices(SINGLE, BYTES) {
            return Ok(());
        }
        self.machine.disarm();
        self.bring_members(3)?;
        if self.spares() == 0 {
            self.add_device(200, true)?;
        }
        self.mend_all()?;
        if self.spares() == 0 || self.lacks().is_some() || !self.must_be_safe() {
            return Ok(());
        }
        let single = self.write_named(SINGLE, Some(b"1"))?;
        let shared = self.write_named(SHARED, None)?;
        let device = self.device_of_single();
        let entry = device.and_then(|device| self.member(device)).filter(|entry| {
            device.is_some_and(|device| self.can_do_without(device, entry))
                && entry.device_state() == DeviceState::Active
        });
        if let (Some(device), Some(entry)) = (device, entry) {
            let taken = self.take_over(device, entry.index, ALL[at], single, shared);
            taken.map_err(|stop| match stop {
                Stop::Failure(text) => Stop::Failure(format!("a spare took over, {:?}: {text}", ALL[at])),
                stop => stop,
            })?;
            self.summary.takeovers[at] += 1;
        }
        self.remove_name(ROOT, SINGLE, false)?;
        self.remove_name(ROOT, SHARED, false)?;
        self.sync_all()?;
        self.verify_all()
    }

    fn spares(&self) -> usize {
        self.members().iter().filter(|(_, entry)| entry.device_state() == DeviceState::Spare).count()
    }

    fn take_over(&mut self, device: usize, index: u16, manner: Manner, single: u64, shared: u64) -> Result<(), Stop> {
        self.look_after_devices();
        self.fail_for_a_while(device, manner);
        for _ in 0..self.random.between(1, 3) {
            self.write_in_part(shared)?;
        }
        let may_mount = matches!(manner, Manner::Gone | Manner::Hangs);
        if may_mount && self.random.chance(1, 3) {
            self.mount_anew()?;
        }
        self.machine.pass(SPARE_AFTER_NS);
        self.give_up_for_spare(device, index)?;
        self.mend_beside(device)?;
        for _ in 0..self.random.between(1, 3) {
            self.write_in_part(shared)?;
        }
        if may_mount && self.random.chance(1, 3) {
            self.mount_anew()?;
        }
        self.verify_file(shared)?;
        self.come_back(device, manner)?;
        self.mend_all()?;
        self.review()?;
        self.verify_file(single)?;
        self.verify_all()?;
        self.part_with(device, single)
    }

    fn fail_for_a_while(&mut self, device: usize, manner: Manner) {
        match manner {
            Manner::Gone => {
                self.exposed = Some(device);
                self.machine.take_away_after(device, 0);
            }
            Manner::Ails(ailment) => self.machine.set_ailment(device, Some(ailment)),
            Manner::Hangs => self.machine.hang(device, &[Call::Read, Call::Write, Call::Flush], 0),
        }
    }

    /// Mounts the pool again; what lies on the device alone is not looked at meanwhile.
    fn mount_anew(&mut self) -> Result<(), Stop> {
        for slot in 0..self.slots.len() {
            self.close(slot as u8)?;
        }
        self.sync_all()?;
        let Some(mounted) = self.mounted.take() else { return Ok(()) };
        if self.random.chance(1, 2) {
            self.machine.power_off();
            drop(mounted);
            self.machine.power_on(&mut |_, random| survival(CrashManner::Mixed, random));
        } else {
            let closed = mounted.files.close(&caller(&self.machine)).map_err(|error| error.to_string());
            let closed = closed.and_then(|()| mounted.store.close().map_err(|error| error.to_string()));
            closed.map_err(|error| Stop::Failure(format!("close: {error}")))?;
        }
        self.mounted = Some(self.plan.pool.mount(&self.machine).map_err(Stop::Failure)?);
        self.look_after_devices();
        Ok(())
    }

    /// A spare takes over, as the daemon lets it; or a person removes the device.
    fn give_up_for_spare(&mut self, device: usize, index: u16) -> Result<(), Stop> {
        let Some(entry) = self.member(device).filter(|entry| entry.device_state() == DeviceState::Active) else {
            return Ok(());
        };
        let is_removed = self.random.chance(1, 4);
        let state = if is_removed { DeviceState::Removing } else { DeviceState::Failed };
        let spares = self.spares();
        match self.mounted().store.devices.set_device_state(index, state) {
            Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) => {}
            outcome => self.must("giving up a device that fails", outcome.map_err(Error::from))?,
        }
        if !is_removed && self.spares() == spares {
            return Err(Stop::Failure(format!("no spare takes the place of {entry:?}")));
        }
        Ok(())
    }

    fn come_back(&mut self, device: usize, manner: Manner) -> Result<(), Stop> {
        match manner {
            Manner::Gone if self.random.chance(1, 2) => {
                self.online(device)?;
            }
            Manner::Gone => {
                self.machine.bring_back(device);
                self.remount()?;
            }
            Manner::Ails(_) => self.machine.set_ailment(device, None),
            Manner::Hangs => self.machine.answer_again(device),
        }
        let usage = self.member(device).map(|entry| self.mounted().store.devices.device_usage(entry.index));
        let is_attached = usage.is_none_or(|usage| usage.is_ok_and(|usage| usage.is_attached && !usage.is_suspended));
        if !is_attached || self.random.chance(1, 4) {
            self.remount()?;
        }
        Ok(())
    }

    /// What came back is emptied and taken for good, or used again.
    fn part_with(&mut self, device: usize, single: u64) -> Result<(), Stop> {
        self.exposed = None;
        let Some(entry) = self.member(device) else { return self.verify_file(single) };
        // A slot is free with the checkpoint after the one that emptied it.
        for _ in 0..2 {
            let checkpoint = self.mounted().store.checkpoint();
            self.must("a checkpoint", checkpoint.map_err(Error::from))?;
        }
        let usage = self.mounted().store.devices.device_usage(entry.index).unwrap_or_default();
        let is_empty = usage.chunks == 0;
        if !is_empty && self.must_be_safe() {
            return Err(Stop::Failure(format!("a device came back and is not emptied: {entry:?}, {usage:?}")));
        }
        if is_empty && self.random.chance(1, 2) {
            self.machine.lose_after(device, 0);
            self.verify_file(single)?;
            return self.verify_all();
        }
        if entry.device_state() != DeviceState::Active {
            let again = self.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
            self.changed("using a device again", again)?;
        }
        self.mend_all()?;
        self.verify_file(single)
    }
}
