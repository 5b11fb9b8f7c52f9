//! Single copies on a device that fails for a while: whatever is done to the device meanwhile, what cannot be read stays where it is,
//! and is there again when the device answers (P-189).
//!
//! A device may fail at reads only, at writes only, or answer nothing for hours. The verbs of people (empty, remove, give up) end
//! meanwhile, and so does mending. Read next: `device_lifecycle.rs`.

use std::rc::Rc;

use stere_format::{DeviceState, SegmentKind};
use stere_naming::{Error, OpenFlags};
use stere_store::Error as Refusal;

use crate::area::Areas;
use crate::content::pattern;
use crate::history::{Budget, History, Slot, Stop};
use crate::medium::Ailment;
use crate::model::{Kind, Node, ROOT};
use crate::pool::{PoolUnderTest, caller};
use crate::{
    device_lifecycle::{self, change},
    execute::{contents, names},
    quotas, recovery,
};

/// What a device does not do for a while.
pub(crate) const AILMENTS: [Ailment; 3] = [Ailment::Unreadable, Ailment::Unwritable, Ailment::Silent];
/// What is done to it meanwhile; first nothing.
const VERBS: [Option<DeviceState>; 4] =
    [None, Some(DeviceState::Leaving), Some(DeviceState::Removing), Some(DeviceState::Failed)];
/// Rounds of background work in which a verb must have come to its end.
const ROUNDS_MAX: usize = 300;
const HOURS_NS: u64 = 5 * 3_600_000_000_000;
const NAME: &[u8] = b"single";
const BYTES: usize = 400_000;

impl PoolUnderTest {
    /// The device that alone has the newest data.
    pub(crate) fn device_of_single(&self) -> Option<usize> {
        let segments = self.mounted().store.segments().all();
        let is_single = |placed: &stere_format::SegmentChunks| placed.scheme.width() == 1 && !placed.chunks.is_empty();
        let singles = segments.iter().filter(|segment| {
            segment.kind == SegmentKind::Data && segment.live_bytes() > 0 && is_single(&segment.placed())
        });
        let index = singles.max_by_key(|segment| segment.id)?.placed().chunks[0].device;
        self.members().into_iter().find(|(_, entry)| entry.index == index).map(|(device, _)| device)
    }
}

pub(crate) fn try_single(history: &mut History, ailment: u8, verb: u8) -> Result<(), Stop> {
    let (at, verb) = (usize::from(ailment) % AILMENTS.len(), VERBS[usize::from(verb) % VERBS.len()]);
    if !may_try_single(history) {
        return Ok(());
    }
    history.machine.disarm();
    bring_devices(history)?;
    let inode = write_single(history)?;
    let Some(device) = history.pool.device_of_single() else { return remove_single(history) };
    let entry = history.pool.member(device).filter(|entry| history.pool.can_do_without(device, entry));
    let Some(entry) = entry else { return remove_single(history) };
    history.machine.set_ailment(device, Some(AILMENTS[at]));
    let worked = work_without(history, entry.index, verb);
    history.machine.pass(HOURS_NS);
    history.machine.set_ailment(device, None);
    history.summary.singles_kept[at] += 1;
    history.pool.has_changed_devices = true;
    worked?;
    if AILMENTS[at] != Ailment::Unreadable {
        // It takes part again from the next mount on.
        recovery::remount(history)?;
    }
    if let Some(entry) = history.pool.member(device).filter(|entry| entry.device_state() != DeviceState::Active) {
        let again = history.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
        change::note_change(history, "using a device again", again)?;
    }
    let lost = |stop| match stop {
        Stop::Failure(text) => Stop::Failure(format!(
            "a single copy is lost whose device was {:?} for a while ({verb:?}): {text}",
            AILMENTS[at]
        )),
        stop => stop,
    };
    history.verify_file(inode).map_err(lost)?;
    history.verify_all().map_err(lost)?;
    device_lifecycle::mend_all(history)?;
    history.verify_file(inode).map_err(lost)?;
    remove_single(history)
}

/// Nothing fails or lacks anything, and there is nothing else that decides where the file lies or whether it may be made.
fn may_try_single(history: &History) -> bool {
    let machine = &history.machine;
    let is_well = history.pool.is_well();
    let is_armed = (0..machine.device_count()).any(|device| machine.is_faulty(device));
    let members = history.pool.members();
    let is_whole = members.iter().all(|(_, entry)| entry.device_state() == DeviceState::Active);
    let is_plain = !history.plan.may_fill && !history.plan.pool.keeps_versions && !history.quotas.are_on();
    let has_room = quotas::check_inode_room(history).and(quotas::check_growth(history, 0, BYTES as u64)).is_ok();
    let is_bare = history.model.lookup(ROOT, NAME).is_err() && history.plan.pool.areas == Areas::NONE;
    is_well
        && !is_armed
        && history.plan.budget != Budget::Beyond
        && !history.pool.has_changed_devices
        && is_whole
        && is_plain
        && has_room
        && is_bare
}

/// Three devices, of which one can be done without, and perhaps a spare that takes over.
fn bring_devices(history: &mut History) -> Result<(), Stop> {
    for _ in history.pool.members().len()..3 {
        change::add_device(history, 100, false)?;
    }
    if history.random.chance(1, 3) {
        change::add_device(history, 200, true)?;
    }
    match history.pool.has_changed_devices {
        true => device_lifecycle::mend_all(history),
        false => Ok(()),
    }
}

fn write_single(history: &mut History) -> Result<u64, Stop> {
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), ROOT, NAME, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, ROOT, NAME, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
    history.model.open(inode);
    names::put_policy(history, inode, b"user.stere.copies", b"1")?;
    history.sync_all()?;
    let seed = history.random.next_u64();
    contents::write(history, inode, 0, &pattern(seed, BYTES))?;
    history.fsync(inode)?;
    history.release(Slot { inode, handle })?;
    history.sync_all()?;
    Ok(inode)
}

fn remove_single(history: &mut History) -> Result<(), Stop> {
    names::remove_name(history, ROOT, NAME, false)?;
    history.sync_all()
}

/// What is done while the device fails, which comes to an end.
fn work_without(history: &mut History, index: u16, verb: Option<DeviceState>) -> Result<(), Stop> {
    if let Some(state) = verb {
        match history.mounted().store.devices.set_device_state(index, state) {
            Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) => {}
            outcome => history.must("changing what a failing device is for", outcome.map_err(Error::from))?,
        }
    }
    for _ in 0..ROUNDS_MAX {
        let progress = history.mounted().store.rebuilder.mend_step(8 << 20);
        let is_done = history.must("mending beside a failing device", progress.map_err(Error::from))?.is_done;
        let stepped = history.mounted().store.step(false);
        history.must("background work beside a failing device", stepped.map_err(Error::from))?;
        if is_done {
            let kept = history.mounted().store.commit(stere_store::Io::BLOCKING);
            return history.must("commit beside a failing device", kept.map_err(Error::from));
        }
    }
    let status = history.mounted().store.rebuilder.mend_status();
    Err(Stop::Failure(format!("{verb:?} of a device that fails for a while does not end: {status:?}")))
}
