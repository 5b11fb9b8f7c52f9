//! Mounting again: after a clean close, after a crash, after a refusal; and what must then be found.

use crate::fault::FaultKind;
use crate::history::{Budget, History, Stop};
use crate::medium::Survival;
use crate::model::Model;
use crate::operation::CrashManner;
use crate::pool::{PoolUnderTest, caller};
use crate::random::Random;
use crate::{accounts, followers, placement, policy_lists, quotas, verification};

impl PoolUnderTest {
    /// What happens to devices while the pool is not mounted.
    pub(crate) fn change_devices(&mut self) {
        if let Some(device) = self.returning.take() {
            self.machine.bring_back(device);
        }
        if let Some((device, image)) = self.kept_image.take() {
            self.machine.set_image(device, image);
            self.machine.note_fault(FaultKind::StaleDevice, device);
        }
    }

    pub(crate) fn calm(&self) {
        for device in 0..self.machine.device_count() {
            self.machine.set_faults(device, crate::fault::FaultRates::none());
        }
    }
}

/// Closes the pool as unmounting does, and mounts it again.
pub(crate) fn remount(history: &mut History) -> Result<(), Stop> {
    history.summary.remounts += 1;
    for slot in 0..history.slots.len() {
        history.close(slot as u8)?;
    }
    let mounted = history.pool.mounted.take().expect("the pool is mounted between operations");
    let closed = mounted.files.close(&caller(&history.machine)).map_err(|error| (error.errno(), error.to_string()));
    let closed = closed.and_then(|()| mounted.store.close().map_err(|error| (libc::EIO, error.to_string())));
    let failed = mounted.store.failure();
    drop(mounted);
    if let Err((errno, text)) = closed {
        return Err(history.unexpected("close", errno, &text));
    }
    if let Some(text) = failed {
        return Err(history.unexpected("close", libc::EROFS, &text));
    }
    history.note_all_durable();
    history.pool.change_devices();
    history.machine.forget_catalogues();
    let absent = history.machine.absent();
    match history.plan.pool.mount(&history.machine) {
        Ok(mounted) => {
            let report = mounted.report.clone();
            history.pool.mounted = Some(mounted);
            let is_calm = history.pool.is_calm();
            if is_calm && (!report.clean || report.groups_replayed + report.groups_cut > 0) {
                return Err(Stop::Failure(format!("a pool that was closed is not clean: {report:?}")));
            }
            if history.plan.budget == Budget::Beyond && !is_calm {
                return compare_recovered(history);
            }
            history.verify_all()
        }
        Err(text) if text.contains("no superblock") && !history.pool.is_calm() => Err(Stop::Over),
        // Gone in the middle of being mounted: without it the pool must mount.
        Err(_) if history.machine.absent() != absent => Err(Stop::Refused),
        // What cannot be read of a half that only began may hold something: a person decides, or mends the device.
        Err(text) if text.contains("different histories") && !history.pool.is_calm() => Err(Stop::Refused),
        Err(text) => Err(history.unexpected("mount", libc::EIO, &text)),
    }
}

/// Power comes back; `again`: and goes once more after so many events of the recovery.
pub(crate) fn recover(history: &mut History, manner: CrashManner, mut again: Option<u32>) -> Result<(), Stop> {
    history.summary.crashes += 1;
    history.slots = Default::default();
    let mut calmed = false;
    let mounted = loop {
        history.pool.mounted = None;
        history.summary.torn_crashes +=
            u64::from(history.machine.images().iter().any(|image| image.pending_count() > 0));
        history.machine.power_on(&mut |_, random| survival(manner, random));
        history.pool.change_devices();
        if let Some(events) = again.take() {
            history.machine.power_off_after(u64::from(events));
        }
        history.machine.forget_catalogues();
        let absent = history.machine.absent();
        let mounted = history.plan.pool.mount(&history.machine);
        if history.machine.is_off() || mounted.is_err() && history.machine.absent() != absent {
            continue;
        }
        match mounted {
            Ok(mounted) => break mounted,
            // All four copies of a superblock gone: the device counts as missing, and the pool is refused, changed by nobody.
            Err(text) if text.contains("no superblock") && !history.pool.is_calm() => {
                return Err(Stop::Over);
            }
            // Rot may strike between two reads of what a crash left only one copy of; the next mount then cuts it.
            Err(_) if !calmed && history.plan.budget == Budget::Tolerated && !history.pool.is_calm() => {
                calmed = true;
                history.pool.calm();
            }
            // Nobody but a person can tell what unreadable places of a half that only began hold: it refuses, and changes nothing.
            Err(text) if text.contains("different histories") && history.pool.has_struck(is_read_error) => {
                return Err(Stop::Over);
            }
            Err(text) => match history.unexpected("mount after a crash", libc::EIO, &text) {
                // A device that goes on failing may keep the pool from mounting; mended, it must mount.
                Stop::Refused if !calmed => {
                    calmed = true;
                    history.pool.calm();
                }
                Stop::Refused => return Err(Stop::Failure(format!("mount with mended devices: {text}"))),
                stop => return Err(stop),
            },
        }
    };
    history.machine.disarm();
    history.summary.groups_cut += mounted.report.groups_cut;
    if history.verbose {
        println!("     recovered: {:?}", mounted.report);
    }
    history.pool.mounted = Some(mounted);
    compare_recovered(history)?;
    verification::prove_claims(history)
}

/// Finds the state that was recovered among those that could be, and goes on from there.
pub(crate) fn compare_recovered(history: &mut History) -> Result<(), Stop> {
    let seen = history.observe();
    let seen = seen.map_err(|trouble| history.trouble(trouble))?;
    let back = history.remains.find_names(&seen).map_err(Stop::Failure)?;
    if history.verbose {
        println!("     names as {back} changes before the crash, of {}", history.remains.states());
    }
    history.remains.check_contents(&seen).map_err(Stop::Failure)?;
    adopt(history, seen)?;
    history.check()
}

fn adopt(history: &mut History, seen: Model) -> Result<(), Stop> {
    history.model = seen;
    quotas::recover_quotas(history)?;
    history.note_all_durable();
    policy_lists::recover_lists(history)?;
    placement::check_places(history)?;
    accounts::recover_accounts(history)?;
    followers::check_followers(history)
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
