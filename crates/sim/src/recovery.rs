//! Mounting again: after a clean close, after a crash, after a refusal; and what must then be found.

use crate::fault::FaultKind;
use crate::history::{Budget, History, Stop};
use crate::medium::Survival;
use crate::model::Model;
use crate::operation::CrashManner;
use crate::pool::caller;
use crate::random::Random;

impl History {
    /// Closes the pool as unmounting does, and mounts it again.
    pub(crate) fn remount(&mut self) -> Result<(), Stop> {
        self.summary.remounts += 1;
        for slot in 0..self.slots.len() {
            self.close(slot as u8)?;
        }
        let mounted = self.mounted.take().expect("the pool is mounted between operations");
        let closed = mounted.files.close(&caller(&self.machine)).map_err(|error| (error.errno(), error.to_string()));
        let closed = closed.and_then(|()| mounted.store.close().map_err(|error| (libc::EIO, error.to_string())));
        let failed = mounted.store.failure();
        drop(mounted);
        if let Err((errno, text)) = closed {
            return Err(self.unexpected("close", errno, &text));
        }
        if let Some(text) = failed {
            return Err(self.unexpected("close", libc::EROFS, &text));
        }
        self.note_all_durable();
        self.change_devices();
        self.machine.forget_catalogues();
        let absent = self.machine.absent();
        match self.plan.pool.mount(&self.machine) {
            Ok(mounted) => {
                let report = mounted.report.clone();
                self.mounted = Some(mounted);
                let is_calm = self.is_calm();
                if is_calm && (!report.clean || report.groups_replayed + report.groups_cut > 0) {
                    return Err(Stop::Failure(format!("a pool that was closed is not clean: {report:?}")));
                }
                if self.plan.budget == Budget::Beyond && !is_calm {
                    return self.compare_recovered();
                }
                self.verify_all()
            }
            Err(text) if text.contains("no superblock") && !self.is_calm() => Err(Stop::Over),
            // Gone in the middle of being mounted: without it the pool must mount.
            Err(_) if self.machine.absent() != absent => Err(Stop::Refused),
            // What cannot be read of a half that only began may hold something: a person decides, or mends the device.
            Err(text) if text.contains("different histories") && !self.is_calm() => Err(Stop::Refused),
            Err(text) => Err(self.unexpected("mount", libc::EIO, &text)),
        }
    }

    /// What happens to devices while the pool is not mounted.
    fn change_devices(&mut self) {
        if let Some(device) = self.returning.take() {
            self.machine.bring_back(device);
        }
        if let Some((device, image)) = self.kept_image.take() {
            self.machine.set_image(device, image);
            self.machine.note_fault(FaultKind::StaleDevice, device);
        }
    }

    /// Power comes back; `again`: and goes once more after so many events of the recovery.
    pub(crate) fn recover(&mut self, manner: CrashManner, mut again: Option<u32>) -> Result<(), Stop> {
        self.summary.crashes += 1;
        self.slots = Default::default();
        let mut calmed = false;
        let mounted = loop {
            self.mounted = None;
            self.summary.torn_crashes += u64::from(self.machine.images().iter().any(|image| image.pending_count() > 0));
            self.machine.power_on(&mut |_, random| survival(manner, random));
            self.change_devices();
            if let Some(events) = again.take() {
                self.machine.power_off_after(u64::from(events));
            }
            self.machine.forget_catalogues();
            let absent = self.machine.absent();
            let mounted = self.plan.pool.mount(&self.machine);
            if self.machine.is_off() || mounted.is_err() && self.machine.absent() != absent {
                continue;
            }
            match mounted {
                Ok(mounted) => break mounted,
                // All four copies of a superblock gone: the device counts as missing, and the pool is refused, changed by nobody.
                Err(text) if text.contains("no superblock") && !self.is_calm() => {
                    return Err(Stop::Over);
                }
                // Rot may strike between two reads of what a crash left only one copy of; the next mount then cuts it.
                Err(_) if !calmed && self.plan.budget == Budget::Tolerated && !self.is_calm() => {
                    calmed = true;
                    self.calm();
                }
                // Nobody but a person can tell what unreadable places of a half that only began hold: it refuses, and changes nothing.
                Err(text) if text.contains("different histories") && self.has_struck(is_read_error) => {
                    return Err(Stop::Over);
                }
                Err(text) => match self.unexpected("mount after a crash", libc::EIO, &text) {
                    // A device that goes on failing may keep the pool from mounting; mended, it must mount.
                    Stop::Refused if !calmed => {
                        calmed = true;
                        self.calm();
                    }
                    Stop::Refused => return Err(Stop::Failure(format!("mount with mended devices: {text}"))),
                    stop => return Err(stop),
                },
            }
        };
        self.machine.disarm();
        self.summary.groups_cut += mounted.report.groups_cut;
        if self.verbose {
            println!("     recovered: {:?}", mounted.report);
        }
        self.mounted = Some(mounted);
        self.compare_recovered()?;
        self.prove_claims()
    }

    pub(crate) fn calm(&mut self) {
        for device in 0..self.machine.device_count() {
            self.machine.set_faults(device, crate::fault::FaultRates::none());
        }
    }

    /// Finds the state that was recovered among those that could be, and goes on from there.
    pub(crate) fn compare_recovered(&mut self) -> Result<(), Stop> {
        let seen = self.observe();
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        let mut nearest = None;
        let mut is_found = false;
        for (back, state) in self.states.iter().rev().enumerate() {
            match state.difference(&seen) {
                None => {
                    is_found = true;
                    if self.verbose {
                        println!("     names as {back} changes before the crash, of {}", self.states.len());
                    }
                    break;
                }
                Some(difference) => nearest = nearest.or(Some(difference)),
            }
        }
        if !is_found {
            let oldest = self.states.first().and_then(|state| state.difference(&seen));
            let text = format!(
                "the recovered names are none of the {} states since the last sync: against the newest: {}; against the synced: {}",
                self.states.len(),
                nearest.unwrap_or_default(),
                oldest.unwrap_or_default()
            );
            return Err(Stop::Failure(text));
        }
        for (inode, node) in &seen.nodes {
            let Some(content) = node.content() else { continue };
            let held = self.held.get(inode).map_or(&[][..], Vec::as_slice);
            if let Err(text) = content.may_remain_of(held) {
                let text = format!("after a crash {} (inode {inode}): {text}", seen.path_of(*inode));
                return Err(Stop::Failure(text));
            }
        }
        self.adopt(seen)?;
        self.check()
    }

    fn adopt(&mut self, seen: Model) -> Result<(), Stop> {
        self.model = seen;
        self.recover_quotas()?;
        self.note_all_durable();
        self.recover_lists()?;
        self.check_places()?;
        self.recover_accounts()?;
        self.check_followers()
    }
}

/// What one device keeps in a crash.
pub(crate) fn survival(manner: CrashManner, random: &mut Random) -> Survival {
    match manner {
        CrashManner::Nothing => Survival::Nothing,
        CrashManner::Everything => Survival::Everything,
        CrashManner::Mixed => {
            let index = random.below(12) as usize;
            match random.below(9) {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                2 => Survival::Prefix(index),
                3 => Survival::Only(index),
                4 => Survival::AllBut(index),
                5 => Survival::Tear(index),
                _ => Survival::Each { per_hundred: 10 + random.below(90) },
            }
        }
    }
}

fn is_read_error(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::LatentReadError)
}
