//! The life of devices: they go away and come back, are lost, added, replaced, emptied and given up; what is lacking is made up for.
//!
//! One device at a time may have something the others lack, and another one only after everything was found safe again: more is
//! beyond what copies bear. Within that the pool shows no error at all. Read next: `device_lifecycle/change.rs` (what people do to devices),
//! `recovery.rs`.

pub(crate) mod change;

use stere_format::{DeviceEntry, DeviceState};
use stere_naming::Error;
use stere_store::Io;

use crate::fault::FaultKind;
use crate::history::{Budget, History, Stop};
use crate::model::ROOT;
use crate::pool::{PoolUnderTest, caller};
use crate::{placement, quotas, verification};

/// Rounds in which everything must be whole; each does what one step of the background work does.
const ROUNDS_MAX: usize = 1000;
/// With fewer free slots on some device, chunks may find no place.
pub(crate) const SLOTS_PLENTY: u32 = 12;

impl PoolUnderTest {
    /// The device that is away and may come back.
    pub(crate) fn away(&self) -> Option<usize> {
        let mut absent = self.machine.absent().into_iter();
        absent.find(|device| !self.machine.is_lost(*device)).or(self.offline)
    }

    /// Whether faults of this device can be borne: no other one fails, or has anything that is not known to be safe again.
    pub(crate) fn may_suffer(&self, device: usize) -> bool {
        let is_another = |other: usize| other != device;
        let is_armed = (0..self.machine.device_count()).any(|at| is_another(at) && self.machine.is_faulty(at));
        let has_struck = self.machine.faults_struck().iter().any(|(kind, at)| {
            let counts = !kind.is_absence() && *kind != FaultKind::SlowDevice;
            counts && is_another(*at)
        });
        let is_kept = self.kept_image.as_ref().is_some_and(|(at, _)| is_another(*at));
        !is_armed && !has_struck && !is_kept && !self.exposed.is_some_and(is_another)
    }

    fn device_states(&self) -> Vec<DeviceState> {
        self.members().into_iter().map(|(_, entry)| entry.device_state()).collect()
    }

    /// Whether a device is lost for good that the pool still counts on.
    pub(crate) fn has_lost_member(&self) -> bool {
        let members = self.members();
        members.iter().any(|(device, entry)| {
            self.machine.is_lost(*device)
                && !matches!(entry.device_state(), DeviceState::Failed | DeviceState::Removing)
        })
    }

    fn has_wide_segments(&self, devices: usize) -> bool {
        self.mounted().store.segments().all().iter().any(|segment| segment.scheme.width() > devices)
    }
}

/// A device goes away, at an event from now on or at once.
pub(crate) fn take_away(history: &mut History, device: usize, events: u64) {
    if may_go(history, device) {
        history.pool.exposed = Some(device);
        history.machine.take_away_after(device, events);
    }
}

/// The same, for ever.
pub(crate) fn lose(history: &mut History, device: usize, events: u64) {
    if may_go(history, device) {
        history.pool.exposed = Some(device);
        history.machine.lose_after(device, events);
    }
}

pub(crate) fn may_go(history: &History, device: usize) -> bool {
    let members = history.pool.members();
    let is_member = members.iter().any(|(number, _)| *number == device);
    let is_bearable = history.plan.budget == Budget::Tolerated && is_member && members.len() > 1;
    let is_spared = history.pool.away().is_none() && placement::places_can_spare(history, device);
    is_bearable && history.pool.may_suffer(device) && is_spared && !history.machine.is_lost(device)
}

/// Some of what there is to mend.
pub(crate) fn mend_some(history: &mut History, steps: u8) -> Result<(), Stop> {
    for _ in 0..steps {
        let progress = history.mounted().store.rebuilder.mend_step(256 << 10);
        if history.must("mending", progress.map_err(Error::from))?.is_done {
            break;
        }
    }
    Ok(())
}

/// Scrubs and mends until nothing is left to do, which must come, and demands that everything is safe then.
pub(crate) fn mend(history: &mut History) -> Result<(), Stop> {
    if history.pool.exposed.is_none() && !history.pool.has_changed_devices
        || history.pool.away().is_some()
        || !history.pool.is_calm()
    {
        return Ok(());
    }
    give_up_lost(history)?;
    // What has no name is found by no walk over names: it stays as it is until it is closed, and then it is gone.
    for slot in 0..history.slots.len() {
        let inode = history.slots[slot].as_ref().map(|slot| slot.inode);
        if inode.is_some_and(|inode| history.model.nodes.get(&inode).is_none_or(|node| node.nlink == 0)) {
            history.close(slot as u8)?;
        }
    }
    // What that was the last of counts no more, and newer writes may not be saved yet.
    quotas::watch_quotas(history)?;
    // Spares are called in before.
    mend_all(history)?;
    // What was written while devices were too few for its policy has fewer copies until somebody asks for all of it.
    let asked = history.command(|files, caller| files.reconciler().reconcile(caller, ROOT));
    if matches!(asked, Err(Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    history.must("asking for what policies say", asked)?;
    mend_all(history)?;
    // Mending suffices; a scrub could hide that it does not.
    if history.random.chance(1, 3) {
        let scrubbed = history.mounted().store.scrubber.scrub();
        let scrubbed = history.must("scrub", scrubbed.map_err(Error::from))?;
        if !scrubbed.unrepairable.is_empty() {
            return Err(Stop::Failure(format!("scrub of what copies bear: {scrubbed:?}")));
        }
        mend_all(history)?;
    }
    let kept = history.mounted().store.commit(Io::BLOCKING);
    history.must("commit after mending", kept.map_err(Error::from))?;
    // Somebody may have gone away or begun to fail in the middle of it, which is then not at its end.
    if history.pool.away().is_some() || !history.pool.is_calm() || history.pool.has_lost_member() {
        return Ok(());
    }
    if let Some(text) = lacks(history) {
        return if must_be_safe(history) { Err(Stop::Failure(text)) } else { Ok(()) };
    }
    if history.mounted().store.journal_mirrors().len() < 2 {
        let text = "the journal has one mirror after mending";
        return if must_be_safe(history) { Err(Stop::Failure(text.into())) } else { Ok(()) };
    }
    history.machine.cancel_away();
    (history.pool.exposed, history.pool.has_changed_devices) = (None, false);
    history.summary.mended += 1;
    if !must_be_safe(history) || history.plan.budget != Budget::Tolerated {
        return Ok(());
    }
    verification::prove_policies(history)?;
    verification::prove_safe(history)
}

pub(crate) fn mend_all(history: &mut History) -> Result<(), Stop> {
    for _ in 0..ROUNDS_MAX {
        let states = history.pool.device_states();
        let progress = history.mounted().store.rebuilder.mend_step(8 << 20);
        let mended = history.must("mending", progress.map_err(Error::from))?.is_done;
        let stepped = history.mounted().store.step(false);
        history.must("background work", stepped.map_err(Error::from))?;
        // What was open without a name when a crash came goes by this.
        let above = history.mounted().files.step(&caller(&history.machine), 4);
        let is_busy = history.must("step of the files", above)?;
        let more = history.mounted().files.reconciler().reconcile_step(&caller(&history.machine), 8 << 20);
        // Background work may give a device up, whose chunks then move.
        let is_as_before = states == history.pool.device_states();
        if mended && is_as_before && !history.must("reconciling", more)? && !is_busy {
            return Ok(());
        }
    }
    Err(Stop::Failure(format!("mending does not end: {:?}", history.mounted().store.rebuilder.mend_status())))
}

/// What is lost for good is told so to the pool, as a person would do.
fn give_up_lost(history: &mut History) -> Result<(), Stop> {
    for (device, entry) in history.pool.members() {
        let counts = matches!(entry.device_state(), DeviceState::Active | DeviceState::Leaving);
        if history.machine.is_lost(device) && counts {
            let given_up = history.mounted().store.devices.set_device_state(entry.index, DeviceState::Failed);
            history.must("giving a lost device up", given_up.map_err(Error::from))?;
            history.summary.changes += 1;
        }
    }
    Ok(())
}

/// What would not bear the loss of one more device, in words.
pub(crate) fn lacks(history: &History) -> Option<String> {
    let store = &history.mounted().store;
    let attached: Vec<u16> = store.device_statistics().into_iter().map(|(index, _)| index).collect();
    // A pool may still hold on to a device that is lost.
    let members = history.pool.members();
    let is_lost =
        |index: u16| members.iter().any(|(device, entry)| entry.index == index && history.machine.is_lost(*device));
    let there: Vec<u16> = attached.into_iter().filter(|index| !is_lost(*index)).collect();
    // What a volume has needs no more copies here.
    let is_of_devices = |there: u16, live_bytes: u64| there == 0 && live_bytes > 0;
    let segments = store.segments().all().into_iter();
    for segment in segments.filter(|segment| is_of_devices(segment.tertiary().there, segment.live_bytes())) {
        let placed = segment.placed();
        let is_good = |chunk: &usize| !placed.is_missing(*chunk) && there.contains(&placed.chunks[*chunk].device);
        let good = (0..placed.chunks.len()).filter(is_good).count();
        // Only where every loss must be borne does no policy ask for one copy.
        let is_wished = placed.scheme.parity == 0 && history.plan.budget != Budget::Tolerated;
        if good <= usize::from(placed.scheme.data) && !is_wished {
            let status = store.rebuilder.mend_status();
            return Some(format!(
                "not safe after mending: segment {} ({:?}): {placed:?}; {status:?}",
                segment.id, segment.kind
            ));
        }
    }
    None
}

/// Whether the devices that are left suffice for everything, with room to spare.
pub(crate) fn must_be_safe(history: &History) -> bool {
    let store = &history.mounted().store;
    let members = history.pool.members();
    let open: Vec<_> = members
        .iter()
        .filter(|(_, entry)| entry.device_state() == DeviceState::Active)
        .filter_map(|(_, entry)| Some((entry, store.devices.device_usage(entry.index).ok()?)))
        .filter(|(_, usage)| usage.is_attached && !usage.is_suspended)
        .collect();
    // Four is as wide as segments of histories are.
    let is_wide = open.len() >= 4 || (open.len() >= 2 && !history.pool.has_wide_segments(open.len()));
    let entries: Vec<&DeviceEntry> = open.iter().map(|(entry, _)| *entry).collect();
    is_wide
        && !placement::has_wide_segments(history, &entries)
        && open.iter().all(|(_, usage)| usage.free >= SLOTS_PLENTY)
        && !history.plan.may_fill
}
