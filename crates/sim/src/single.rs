//! Single copies on a device that fails for a while: whatever is done to the device meanwhile, what cannot be read stays where it is,
//! and is there again when the device answers (P-189).
//!
//! A device may fail at reads only, at writes only, or answer nothing for hours. The verbs of people (empty, remove, give up) end
//! meanwhile, and so does mending. Read next: `life.rs`.

use std::rc::Rc;

use stere_format::{DeviceState, SegmentKind};
use stere_naming::{Error, OpenFlags};
use stere_store::Error as Refusal;

use crate::area::Areas;
use crate::content::pattern;
use crate::history::{Budget, History, Slot, Stop};
use crate::medium::Ailment;
use crate::model::{Kind, Node, ROOT};
use crate::pool::caller;

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

impl History {
    pub(crate) fn try_single(&mut self, ailment: u8, verb: u8) -> Result<(), Stop> {
        let (at, verb) = (usize::from(ailment) % AILMENTS.len(), VERBS[usize::from(verb) % VERBS.len()]);
        if !self.may_try_single() {
            return Ok(());
        }
        self.machine.disarm();
        self.bring_devices()?;
        let inode = self.write_single()?;
        let Some(device) = self.device_of_single() else { return self.remove_single() };
        let entry = self.member(device).filter(|entry| self.can_do_without(device, entry));
        let Some(entry) = entry else { return self.remove_single() };
        self.machine.set_ailment(device, Some(AILMENTS[at]));
        let worked = self.work_without(entry.index, verb);
        self.machine.pass(HOURS_NS);
        self.machine.set_ailment(device, None);
        self.summary.singles_kept[at] += 1;
        self.has_changed_devices = true;
        worked?;
        if AILMENTS[at] != Ailment::Unreadable {
            // It takes part again from the next mount on.
            self.remount()?;
        }
        if let Some(entry) = self.member(device).filter(|entry| entry.device_state() != DeviceState::Active) {
            let again = self.mounted().store.devices.set_device_state(entry.index, DeviceState::Active);
            self.changed("using a device again", again)?;
        }
        let lost = |stop| match stop {
            Stop::Failure(text) => Stop::Failure(format!(
                "a single copy is lost whose device was {:?} for a while ({verb:?}): {text}",
                AILMENTS[at]
            )),
            stop => stop,
        };
        self.verify_file(inode).map_err(lost)?;
        self.verify_all().map_err(lost)?;
        self.mend_all()?;
        self.verify_file(inode).map_err(lost)?;
        self.remove_single()
    }

    /// Nothing fails or lacks anything, and there is nothing else that decides where the file lies or whether it may be made.
    fn may_try_single(&self) -> bool {
        let machine = &self.machine;
        let is_well = self.is_calm() && self.exposed.is_none() && self.kept_image.is_none() && self.away().is_none();
        let is_armed = (0..machine.device_count()).any(|device| machine.is_faulty(device));
        let members = self.members();
        let is_whole = members.iter().all(|(_, entry)| entry.device_state() == DeviceState::Active);
        let is_plain = !self.plan.may_fill && !self.plan.pool.keeps_versions && !self.has_quotas();
        let has_room = self.check_inode_room().and(self.check_growth(0, BYTES as u64)).is_ok();
        let is_bare = self.model.lookup(ROOT, NAME).is_err() && self.plan.pool.areas == Areas::NONE;
        is_well
            && !is_armed
            && self.plan.budget != Budget::Beyond
            && !self.has_changed_devices
            && is_whole
            && is_plain
            && has_room
            && is_bare
    }

    /// Three devices, of which one can be done without, and perhaps a spare that takes over.
    fn bring_devices(&mut self) -> Result<(), Stop> {
        for _ in self.members().len()..3 {
            self.add_device(100, false)?;
        }
        if self.random.chance(1, 3) {
            self.add_device(200, true)?;
        }
        match self.has_changed_devices {
            true => self.mend_all(),
            false => Ok(()),
        }
    }

    fn write_single(&mut self) -> Result<u64, Stop> {
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let created = self.mounted().files.create(&caller(&self.machine), ROOT, NAME, 0o666, flags);
        let (attributes, handle) = self.must("create", created)?;
        let inode = attributes.inode;
        self.made(ROOT, NAME, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
        self.model.open(inode);
        self.put_policy(inode, b"user.stere.copies", b"1")?;
        self.sync_all()?;
        let seed = self.random.next_u64();
        self.write(inode, 0, &pattern(seed, BYTES))?;
        self.fsync(inode)?;
        self.release(Slot { inode, handle })?;
        self.sync_all()?;
        Ok(inode)
    }

    fn remove_single(&mut self) -> Result<(), Stop> {
        self.remove_name(ROOT, NAME, false)?;
        self.sync_all()
    }

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

    /// What is done while the device fails, which comes to an end.
    fn work_without(&mut self, index: u16, verb: Option<DeviceState>) -> Result<(), Stop> {
        if let Some(state) = verb {
            match self.mounted().store.devices.set_device_state(index, state) {
                Err(Refusal::NotEmpty { .. } | Refusal::WouldLose { .. }) => {}
                outcome => self.must("changing what a failing device is for", outcome.map_err(Error::from))?,
            }
        }
        for _ in 0..ROUNDS_MAX {
            let progress = self.mounted().store.rebuilder.mend_step(8 << 20);
            let is_done = self.must("mending beside a failing device", progress.map_err(Error::from))?.is_done;
            let stepped = self.mounted().store.step(false);
            self.must("background work beside a failing device", stepped.map_err(Error::from))?;
            if is_done {
                let kept = self.mounted().store.commit(stere_store::Io::BLOCKING);
                return self.must("commit beside a failing device", kept.map_err(Error::from));
            }
        }
        let status = self.mounted().store.rebuilder.mend_status();
        Err(Stop::Failure(format!("{verb:?} of a device that fails for a while does not end: {status:?}")))
    }
}
