//! Carries one operation out on both sides: which it is, and the file or directory it is about.
//!
//! Read next: `execute/judge.rs` (the comparison), `execute/names.rs`, `execute/contents.rs` (the operations).

mod contents;
mod judge;
mod names;

use std::rc::Rc;

use stere_naming::{Error, OpenFlags};

use crate::content::{Content, pattern};
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Node, ROOT};
use crate::operation::{DIRECTORIES, NAMES, Operation, Path, Target};
use crate::pool::caller;

impl History {
    pub(crate) fn execute(&mut self, operation: &Operation) -> Result<(), Stop> {
        match operation {
            Operation::Create { path, slot } => self.create(*path, *slot),
            Operation::Tmpfile { directory, slot } => self.tmpfile(*directory, *slot),
            Operation::Open { path, slot, truncate } => self.open(*path, *slot, *truncate),
            Operation::Close { slot } => self.close(*slot),
            Operation::Mkdir { path } => self.mkdir(*path),
            Operation::Symlink { path, length } => self.symlink(*path, *length),
            Operation::Fifo { path } => self.fifo(*path),
            Operation::Link { target, path } => self.link(*target, *path),
            Operation::Unlink { path } => self.remove(*path, false),
            Operation::Rmdir { path } => self.remove(*path, true),
            Operation::Rename { from, to, manner } => self.rename(*from, *to, *manner),
            Operation::Write { target, offset, length, seed } => {
                let data = pattern(*seed, *length as usize);
                self.with_file(*target, |history, inode| history.write(inode, *offset, &data))
            }
            Operation::WriteMeanwhile { target, offset, length, seed, between } => {
                let data = pattern(*seed, *length as usize);
                self.with_file(*target, |history, inode| history.write_meanwhile(inode, *offset, &data, *between))
            }
            Operation::Read { target, offset, length } => self.with_file(*target, |history, inode| {
                history.without_waiting(|history| history.read(inode, *offset, *length))
            }),
            Operation::Truncate { target, size } => {
                self.with_file(*target, |history, inode| history.truncate(inode, *size))
            }
            Operation::Allocate { target, offset, length, mode } => {
                self.with_file(*target, |history, inode| history.allocate(inode, *offset, *length, *mode))
            }
            Operation::Copy { from, from_offset, to, to_offset, length } => self.with_file(*from, |history, source| {
                history.with_file(*to, |history, target| {
                    history.copy((source, *from_offset), (target, *to_offset), *length)
                })
            }),
            Operation::Seek { target, offset } => {
                self.with_file(*target, |history, inode| history.seek(inode, *offset))
            }
            Operation::Fsync { target } => self.with_file(*target, History::fsync),
            _ => self.execute_other(operation),
        }
    }

    fn execute_other(&mut self, operation: &Operation) -> Result<(), Stop> {
        match operation {
            Operation::SetMode { path, mode } => self.set_mode(*path, *mode),
            Operation::SetAttribute { path, name, length, seed } => {
                self.set_attribute(*path, *name, &pattern(*seed, *length as usize))
            }
            Operation::RemoveAttribute { path, name } => self.remove_attribute(*path, *name),
            Operation::SetPolicy { path, policy } => self.set_policy(*path, *policy),
            Operation::LoadRules { number } => self.load_rules(*number),
            Operation::FsyncDirectory { directory } => self.fsync_directory(*directory),
            Operation::SyncAll => self.sync_all(),
            Operation::List { directory } => self.list(*directory),
            Operation::VerifyAll => self.without_waiting(History::verify_all),
            Operation::Step { count, idle } => self.background(*count, *idle),
            Operation::Checkpoint => {
                let done = self.mounted().store.checkpoint();
                self.must("checkpoint", done.map_err(Error::from))?;
                self.note_commit();
                Ok(())
            }
            Operation::Check => {
                self.check()?;
                self.check_quotas()?;
                self.check_encryption()?;
                self.prove_plugins()?;
                self.prove_lists()?;
                self.prove_records()?;
                self.prove_followers()?;
                self.prove_places()?;
                self.check_accounts()
            }
            Operation::Fill { bytes } => self.fill(*bytes),
            Operation::Empty { every } => self.empty(*every),
            Operation::Remount => self.remount(),
            Operation::ArmCrash { events, manner } => {
                self.crash_manner = *manner;
                self.machine.power_off_after(u64::from(*events));
                Ok(())
            }
            Operation::Crash { manner, again } => {
                self.machine.power_off();
                self.recover(*manner, *again)
            }
            Operation::Faults { device, .. } | Operation::KeepImage { device }
                if self.plan.budget == Budget::Tolerated && !self.may_suffer(usize::from(*device)) =>
            {
                Ok(())
            }
            Operation::Faults { device, kind, per_million } => {
                let mut rates = crate::fault::FaultRates::none();
                rates.set(*kind, *per_million);
                self.machine.set_faults(usize::from(*device), rates);
                Ok(())
            }
            Operation::KeepImage { device } => {
                let index = usize::from(*device);
                let mut image = self.machine.images().swap_remove(index);
                image.crash(&crate::medium::Survival::Everything, &mut self.random);
                self.kept_image = Some((index, image));
                Ok(())
            }
            Operation::TakeAway { device, events } => {
                self.take_away(usize::from(*device), u64::from(*events));
                Ok(())
            }
            Operation::LonelySync { device, events } => self.lonely_sync(usize::from(*device), u64::from(*events)),
            Operation::TryNearlyFull { seed } => self.try_nearly_full(*seed),
            Operation::TrySingle { ailment, verb } => self.try_single(*ailment, *verb),
            Operation::TryHanging { moment } => self.try_hanging(*moment),
            Operation::TryRivals => self.try_rivals(),
            Operation::TryTakeover { manner } => self.try_takeover(*manner),
            Operation::BringBack { device } => {
                self.returning = Some(usize::from(*device)).filter(|device| *device < self.machine.device_count());
                Ok(())
            }
            Operation::Mend => self.mend(),
            Operation::Scrub => self.scrub(),
            other => self.execute_tertiary(other),
        }
    }

    fn execute_tertiary(&mut self, operation: &Operation) -> Result<(), Stop> {
        match operation {
            Operation::AddVolume { is_slow } => self.add_volume(*is_slow),
            Operation::Archive { path, volumes } => self.archive(*path, *volumes),
            Operation::StepVolumes { count, ends } => self.tertiary_steps(*count, *ends),
            Operation::Release { path, releasing } => self.release_below(*path, *releasing),
            Operation::Stage { path } => self.stage_below(*path),
            Operation::Pin { path, is_pinned } => self.pin(*path, *is_pinned),
            Operation::Trouble { volume, trouble } => {
                self.begin_trouble(*volume, *trouble);
                Ok(())
            }
            Operation::EndTroubles => {
                self.end_troubles();
                Ok(())
            }
            Operation::Harm { volume, pick, harm } => {
                self.harm(*volume, u64::from(*pick), *harm);
                Ok(())
            }
            Operation::TakeVolumeAway { volume } => self.take_volume_away(*volume),
            Operation::VerifyVolume { volume, reads } => self.verify_volume(*volume, *reads),
            Operation::CopyMetadata { steps } => self.copy_metadata(*steps),
            Operation::Repack { percent, steps } => self.repack(*percent, *steps),
            Operation::RepackEmptiest { percent } => self.repack_emptiest(*percent),
            Operation::RetireVolume { volume, heir } => self.retire_volume(*volume, *heir),
            Operation::RemoveVolume { volume } => self.remove_volume(*volume),
            Operation::HoldUploads { are_held } => {
                self.mounted().store.tier.uploader.hold_uploads(*are_held);
                Ok(())
            }
            Operation::SettleVolumes => self.settle_volumes(),
            Operation::KeepRoom { under, by } => self.keep_room(*under, *by),
            Operation::ReadWithoutRecall { target, denies } => self.read_without_recall(*target, *denies),
            // It makes a name.
            Operation::RescueFromVolumes if self.check_inode_room().is_err() => Ok(()),
            Operation::RescueFromVolumes => self.rescue_from_volumes(),
            other => self.execute_change(other),
        }
    }

    fn execute_change(&mut self, operation: &Operation) -> Result<(), Stop> {
        match operation {
            Operation::Lose { device, events } => {
                self.lose(usize::from(*device), u64::from(*events));
                Ok(())
            }
            Operation::AddDevice { mebibytes, spare } => self.add_device(*mebibytes, *spare),
            Operation::ReplaceDevice { device, mebibytes } => self.replace_device(usize::from(*device), *mebibytes),
            Operation::EmptyDevice { device, leaves } => self.empty_device(usize::from(*device), *leaves),
            Operation::GiveUp { device } => self.give_up(usize::from(*device)),
            Operation::UseAgain { device } => self.use_again(usize::from(*device)),
            Operation::Offline { device } => self.offline(usize::from(*device)),
            Operation::Online { device } => self.online(usize::from(*device)),
            Operation::MendSome { steps } => self.mend_some(*steps),
            Operation::Retain { path, days } => self.retain(*path, *days),
            Operation::Limit { holder, manner, room, days } => self.limit(*holder, *manner, *room, *days),
            Operation::PassDays { days } => {
                if self.has_quotas() {
                    self.sync_all()?;
                }
                self.pass_days(*days);
                Ok(())
            }
            Operation::Say { path, list, change, pick } => self.say(*path, *list, *change, *pick),
            Operation::ChangeClass { pick } => self.change_class(*pick),
            Operation::AskRecords { path, pick } => self.ask_records(*path, *pick),
            Operation::AskPlace { path, place } => self.ask_place(*path, *place),
            Operation::Label { device, tags } => self.label(usize::from(*device), *tags),
            Operation::Accounts(step) => self.execute_accounts(*step),
            Operation::Volumes(step) => self.execute_volumes(*step),
            Operation::Tiers(step) => self.execute_tiers(*step),
            Operation::Cold(step) => self.execute_cold(*step),
            Operation::FailTold { fails } => {
                self.fail_told(*fails);
                Ok(())
            }
            Operation::Tell { count } => self.tell(*count),
            Operation::ChooseForBackup { path, is_chosen } => self.choose_for_backup(*path, *is_chosen),
            Operation::Backup { trouble } => self.back_up(*trouble),
            Operation::ProveBackup { rots } => self.prove_backup(*rots),
            Operation::Rebalance => {
                self.mounted().store.rebuilder.set_rebalancing(true);
                Ok(())
            }
            other => unreachable!("{other:?} is carried out by `execute`"),
        }
    }

    pub(crate) fn content(&self, inode: u64) -> Rc<Content> {
        self.model.nodes.get(&inode).and_then(|node| node.content()).cloned().expect("the target is a file")
    }

    fn lookup(&mut self, directory: u64, name: &[u8]) -> Result<Option<u64>, Stop> {
        let real = self.mounted().files.lookup(&caller(&self.machine), directory, name);
        let model = self.model.lookup(directory, name);
        let found = self.expect("lookup", real, model.map(|_| ()))?;
        match (found, model) {
            (Some(found), Ok(inode)) if found.inode != inode => {
                Err(Stop::Failure(format!("lookup: inode {} instead of {inode}", found.inode)))
            }
            (Some(found), Ok(inode)) => self.check_attributes(&found).map(|()| Some(inode)),
            _ => Ok(None),
        }
    }

    /// The directory with this number, if it is there.
    fn directory(&mut self, index: u8) -> Result<Option<u64>, Stop> {
        let mut at = ROOT;
        for name in DIRECTORIES[usize::from(index)] {
            match self.lookup(at, name)? {
                Some(inode) if self.model.is_directory(inode) => at = inode,
                _ => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn parent_of(&mut self, path: Path) -> Result<Option<(u64, &'static [u8])>, Stop> {
        let directory = self.directory(path.directory)?;
        Ok(directory.map(|directory| (directory, NAMES[usize::from(path.name)])))
    }

    pub(crate) fn inode_of(&mut self, path: Path) -> Result<Option<u64>, Stop> {
        match self.parent_of(path)? {
            Some((directory, name)) => self.lookup(directory, name),
            None => Ok(None),
        }
    }

    /// Works on a file through a handle that is open, or one that is opened for it. What is not a file is left alone.
    pub(crate) fn with_file(
        &mut self,
        target: Target,
        work: impl FnOnce(&mut History, u64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let inode = match target {
            Target::Slot(slot) => self.slot_inode(slot)?,
            Target::Path(path) => self.inode_of(path)?,
        };
        let Some(inode) = inode else { return Ok(()) };
        if self.model.nodes.get(&inode).and_then(|node| node.content()).is_none() {
            return Ok(());
        }
        if matches!(target, Target::Slot(_)) {
            return work(self, inode);
        }
        let opened = self.mounted().files.open(&caller(&self.machine), inode, self.open_flags(inode));
        let handle = self.must("open", opened)?;
        self.model.open(inode);
        work(self, inode)?;
        self.release(Slot { inode, handle })
    }

    /// For writing, but what is retained is opened for reading only.
    fn open_flags(&self, inode: u64) -> OpenFlags {
        let write = self.model.check_changeable(inode).is_ok();
        OpenFlags { write, truncate: false, exclusive: false, read: !write }
    }

    /// The inode behind a handle. A crash closes all handles; one that is wanted again is opened on some file that is there.
    fn slot_inode(&mut self, slot: u8) -> Result<Option<u64>, Stop> {
        let index = usize::from(slot);
        if self.slots[index].is_none() {
            let named = |(inode, node): (&u64, &Node)| (node.content().is_some() && node.nlink > 0).then_some(*inode);
            let inodes: Vec<u64> = self.model.nodes.iter().filter_map(named).take(64).collect();
            if inodes.is_empty() {
                self.create(Path { directory: 0, name: slot }, slot)?;
            } else {
                let inode = inodes[index * 7 % inodes.len()];
                let opened = self.mounted().files.open(&caller(&self.machine), inode, self.open_flags(inode));
                let handle = self.must("open", opened)?;
                self.model.open(inode);
                self.slots[index] = Some(Slot { inode, handle });
            }
        }
        Ok(self.slots[index].as_ref().map(|slot| slot.inode))
    }

    pub(crate) fn release(&mut self, slot: Slot) -> Result<(), Stop> {
        let released = self.mounted().files.release(&caller(&self.machine), slot.inode, slot.handle);
        self.model.close(slot.inode);
        self.must("release", released)
    }

    pub(crate) fn close(&mut self, slot: u8) -> Result<(), Stop> {
        match self.slots[usize::from(slot)].take() {
            Some(slot) => self.release(slot),
            None => Ok(()),
        }
    }

    pub(crate) fn fsync(&mut self, inode: u64) -> Result<(), Stop> {
        let real = self.mounted().files.fsync(&caller(&self.machine), inode, false);
        self.must("fsync", real)?;
        self.note_durable(inode);
        self.note_commit();
        Ok(())
    }

    pub(crate) fn sync_all(&mut self) -> Result<(), Stop> {
        let synced = self.mounted().files.syncfs(&caller(&self.machine));
        self.must("syncfs", synced)?;
        self.note_all_durable();
        Ok(())
    }

    fn fsync_directory(&mut self, directory: u8) -> Result<(), Stop> {
        let Some(inode) = self.directory(directory)? else { return Ok(()) };
        let real = self.mounted().files.fsyncdir(&caller(&self.machine), inode);
        self.must("fsyncdir", real)?;
        self.note_commit();
        Ok(())
    }

    fn background(&mut self, count: u8, idle: bool) -> Result<(), Stop> {
        for _ in 0..count {
            let above = self.mounted().files.step(&caller(&self.machine), 4);
            let above = self.must("step of the files", above)?;
            let below = self.mounted().store.step(idle);
            let below = self.must("step of the store", below.map_err(Error::from))?;
            let beside = self.mounted().files.reconciler().reconcile_step(&caller(&self.machine), 256 << 10);
            let beside = self.must_but_for_volumes("storing files as their policy says", beside)?;
            if !above && !below && beside == Some(false) {
                break;
            }
        }
        Ok(())
    }
}
