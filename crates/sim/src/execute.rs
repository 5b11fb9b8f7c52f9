//! Carries one operation out on both sides: which it is, and the file or directory it is about.
//!
//! Read next: `execute/judge.rs` (the comparison), `execute/names.rs`, `execute/contents.rs` (the operations).

pub(crate) mod contents;
pub(crate) mod judge;
pub(crate) mod names;

use std::rc::Rc;

use stere_naming::{Error, OpenFlags, Sync};

use crate::content::{Content, pattern};
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Model, Node, ROOT};
use crate::operation::{DIRECTORIES, NAMES, Operation, Path, Target};
use crate::pool::caller;
use crate::{
    accounts, background, backups,
    device_lifecycle::{self, change},
    encryption, followers, hanging, medium_faults, metadata_offload, nearly_full, placement, plugins, policy_lists,
    quotas, recalls, records, recovery, retention, rivals, single_copies, syncs, takeover, tertiary, tiers, total_loss,
    verification, watermark_eviction,
};

impl Model {
    pub(crate) fn content(&self, inode: u64) -> Rc<Content> {
        self.nodes.get(&inode).and_then(|node| node.content()).cloned().expect("the target is a file")
    }

    /// For writing, but what is retained is opened for reading only.
    pub(crate) fn open_flags(&self, inode: u64) -> OpenFlags {
        let write = self.check_changeable(inode).is_ok();
        OpenFlags { write, truncate: false, exclusive: false, read: !write }
    }
}

impl History {
    /// Works on a file through a handle that is open, or one that is opened for it. What is not a file is left alone.
    pub(crate) fn with_file(
        &mut self,
        target: Target,
        work: impl FnOnce(&mut History, u64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let inode = match target {
            Target::Slot(slot) => slot_inode(self, slot)?,
            Target::Path(path) => inode_of(self, path)?,
        };
        let Some(inode) = inode else { return Ok(()) };
        if self.model.nodes.get(&inode).and_then(|node| node.content()).is_none() {
            return Ok(());
        }
        if matches!(target, Target::Slot(_)) {
            return work(self, inode);
        }
        let opened = self.mounted().files.open(&caller(&self.machine), inode, self.model.open_flags(inode));
        let handle = self.must("open", opened)?;
        self.model.open(inode);
        work(self, inode)?;
        self.release(Slot { inode, handle })
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
        let sync = syncs::sync_of(self, inode)?;
        let real = self.mounted().files.fsync(&caller(&self.machine), inode, false);
        self.must("fsync", real)?;
        if sync == Sync::Relaxed {
            syncs::note_ordered(self, inode);
            return Ok(());
        }
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
}

pub(crate) fn execute(history: &mut History, operation: &Operation) -> Result<(), Stop> {
    match operation {
        Operation::Create { path, slot } => {
            names::create(history, *path, *slot)?;
            syncs::answer_names(history, path.directory)
        }
        Operation::Tmpfile { directory, slot } => names::tmpfile(history, *directory, *slot),
        Operation::Open { path, slot, truncate } => names::open(history, *path, *slot, *truncate),
        Operation::Close { slot } => history.close(*slot),
        Operation::Mkdir { path } => names::mkdir(history, *path),
        Operation::Symlink { path, length } => names::symlink(history, *path, *length),
        Operation::Fifo { path } => names::fifo(history, *path),
        Operation::Link { target, path } => names::link(history, *target, *path),
        Operation::Unlink { path } => {
            names::remove(history, *path, false)?;
            syncs::answer_names(history, path.directory)
        }
        Operation::Rmdir { path } => names::remove(history, *path, true),
        Operation::Rename { from, to, manner } => names::rename(history, *from, *to, *manner),
        Operation::Write { target, offset, length, seed } => {
            let data = pattern(*seed, *length as usize);
            history.with_file(*target, |history, inode| {
                contents::write(history, inode, *offset, &data)?;
                syncs::answer(history, &[inode])
            })
        }
        Operation::WriteMeanwhile { target, offset, length, seed, between } => {
            let data = pattern(*seed, *length as usize);
            history.with_file(*target, |history, inode| {
                contents::write_meanwhile(history, inode, *offset, &data, *between)
            })
        }
        Operation::Read { target, offset, length } => history.with_file(*target, |history, inode| {
            verification::without_waiting(history, |history| contents::read(history, inode, *offset, *length))
        }),
        Operation::Truncate { target, size } => history.with_file(*target, |history, inode| {
            contents::truncate(history, inode, *size)?;
            syncs::answer(history, &[inode])
        }),
        Operation::Allocate { target, offset, length, mode } => history.with_file(*target, |history, inode| {
            contents::allocate(history, inode, *offset, *length, *mode)?;
            syncs::answer(history, &[inode])
        }),
        Operation::Copy { from, from_offset, to, to_offset, length } => history.with_file(*from, |history, source| {
            history.with_file(*to, |history, target| {
                contents::copy(history, (source, *from_offset), (target, *to_offset), *length)
            })
        }),
        Operation::Seek { target, offset } => {
            history.with_file(*target, |history, inode| contents::seek(history, inode, *offset))
        }
        Operation::Fsync { target } => history.with_file(*target, History::fsync),
        _ => execute_other(history, operation),
    }
}

fn execute_other(history: &mut History, operation: &Operation) -> Result<(), Stop> {
    match operation {
        Operation::SetMode { path, mode } => names::set_mode(history, *path, *mode),
        Operation::SetAttribute { path, name, length, seed } => {
            names::set_attribute(history, *path, *name, &pattern(*seed, *length as usize))
        }
        Operation::RemoveAttribute { path, name } => names::remove_attribute(history, *path, *name),
        Operation::SetPolicy { path, policy } => names::set_policy(history, *path, *policy),
        Operation::LoadRules { number } => names::load_rules(history, *number),
        Operation::FsyncDirectory { directory } => fsync_directory(history, *directory),
        Operation::SyncAll => history.sync_all(),
        Operation::List { directory } => names::list(history, *directory),
        Operation::VerifyAll => verification::without_waiting(history, History::verify_all),
        Operation::Step { count, idle } => background::work(history, *count, *idle),
        Operation::Checkpoint => {
            let done = history.mounted().store.checkpoint();
            history.must("checkpoint", done.map_err(Error::from))?;
            history.note_commit();
            Ok(())
        }
        Operation::Check => {
            history.check()?;
            quotas::check_quotas(history)?;
            encryption::check_encryption(history)?;
            plugins::prove_plugins(history)?;
            policy_lists::prove_lists(history)?;
            records::prove_records(history)?;
            followers::prove_followers(history)?;
            placement::prove_places(history)?;
            accounts::check_accounts(history)
        }
        Operation::Fill { bytes } => contents::fill(history, *bytes),
        Operation::Empty { every } => contents::empty(history, *every),
        Operation::Remount => recovery::remount(history),
        Operation::ArmCrash { events, manner } => {
            history.crash_manner = *manner;
            history.machine.power_off_after(u64::from(*events));
            Ok(())
        }
        Operation::Crash { manner, again } => {
            history.machine.power_off();
            recovery::recover(history, *manner, *again)
        }
        Operation::Faults { device, .. } | Operation::KeepImage { device }
            if history.plan.budget == Budget::Tolerated && !history.pool.may_suffer(usize::from(*device)) =>
        {
            Ok(())
        }
        Operation::Faults { device, kind, per_million } => {
            let mut rates = crate::fault::FaultRates::none();
            rates.set(*kind, *per_million);
            history.machine.set_faults(usize::from(*device), rates);
            Ok(())
        }
        Operation::KeepImage { device } => {
            let index = usize::from(*device);
            let mut image = history.machine.images().swap_remove(index);
            image.crash(&crate::medium::Survival::Everything, &mut history.random);
            history.pool.kept_image = Some((index, image));
            Ok(())
        }
        Operation::TakeAway { device, events } => {
            device_lifecycle::take_away(history, usize::from(*device), u64::from(*events));
            Ok(())
        }
        Operation::LonelySync { device, events } => {
            verification::lonely_sync(history, usize::from(*device), u64::from(*events))
        }
        Operation::TryNearlyFull { seed } => nearly_full::try_nearly_full(history, *seed),
        Operation::TrySingle { ailment, verb } => single_copies::try_single(history, *ailment, *verb),
        Operation::TryHanging { moment } => hanging::try_hanging(history, *moment),
        Operation::TryRivals => rivals::try_rivals(history),
        Operation::TryTakeover { manner } => takeover::try_takeover(history, *manner),
        Operation::BringBack { device } => {
            history.pool.returning =
                Some(usize::from(*device)).filter(|device| *device < history.machine.device_count());
            Ok(())
        }
        Operation::Mend => device_lifecycle::mend(history),
        Operation::Scrub => verification::scrub(history),
        other => execute_tertiary(history, other),
    }
}

fn execute_tertiary(history: &mut History, operation: &Operation) -> Result<(), Stop> {
    match operation {
        Operation::AddVolume { is_slow } => tertiary::add_volume(history, *is_slow),
        Operation::Archive { path, volumes } => tertiary::archive(history, *path, *volumes),
        Operation::StepVolumes { count, ends } => tertiary::tertiary_steps(history, *count, *ends),
        Operation::Release { path, releasing } => tertiary::release_below(history, *path, *releasing),
        Operation::Stage { path } => tertiary::stage_below(history, *path),
        Operation::Pin { path, is_pinned } => tertiary::pin(history, *path, *is_pinned),
        Operation::Trouble { volume, trouble } => {
            tertiary::begin_trouble(history, *volume, *trouble);
            Ok(())
        }
        Operation::EndTroubles => {
            history.pool.end_troubles();
            Ok(())
        }
        Operation::Harm { volume, pick, harm } => {
            tertiary::harm(history, *volume, u64::from(*pick), *harm);
            Ok(())
        }
        Operation::TakeVolumeAway { volume } => tertiary::take_volume_away(history, *volume),
        Operation::VerifyVolume { volume, reads } => tertiary::verify_volume(history, *volume, *reads),
        Operation::CopyMetadata { steps } => tertiary::copy_metadata(history, *steps),
        Operation::Repack { percent, steps } => tertiary::repack(history, *percent, *steps),
        Operation::RepackEmptiest { percent } => tertiary::repack_emptiest(history, *percent),
        Operation::RetireVolume { volume, heir } => tertiary::retire_volume(history, *volume, *heir),
        Operation::RemoveVolume { volume } => tertiary::remove_volume(history, *volume),
        Operation::HoldUploads { are_held } => {
            history.mounted().store.tier.uploader.hold_uploads(*are_held);
            Ok(())
        }
        Operation::SettleVolumes => tertiary::settle_volumes(history),
        Operation::KeepRoom { under, by } => watermark_eviction::keep_room(history, *under, *by),
        Operation::ReadWithoutRecall { target, denies } => recalls::read_without_recall(history, *target, *denies),
        // It makes a name.
        Operation::RescueFromVolumes if quotas::check_inode_room(history).is_err() => Ok(()),
        Operation::RescueFromVolumes => total_loss::rescue_from_volumes(history),
        other => execute_change(history, other),
    }
}

fn execute_change(history: &mut History, operation: &Operation) -> Result<(), Stop> {
    match operation {
        Operation::Lose { device, events } => {
            device_lifecycle::lose(history, usize::from(*device), u64::from(*events));
            Ok(())
        }
        Operation::AddDevice { mebibytes, spare } => change::add_device(history, *mebibytes, *spare),
        Operation::ReplaceDevice { device, mebibytes } => {
            change::replace_device(history, usize::from(*device), *mebibytes)
        }
        Operation::EmptyDevice { device, leaves } => change::empty_device(history, usize::from(*device), *leaves),
        Operation::ShrinkDevice { device, percent } => change::shrink_device(history, usize::from(*device), *percent),
        Operation::GiveUp { device } => change::give_up(history, usize::from(*device)),
        Operation::UseAgain { device } => change::use_again(history, usize::from(*device)),
        Operation::Offline { device } => change::offline(history, usize::from(*device)),
        Operation::Online { device } => change::online(history, usize::from(*device)),
        Operation::MendSome { steps } => device_lifecycle::mend_some(history, *steps),
        Operation::Retain { path, days } => retention::retain(history, *path, *days),
        Operation::Limit { holder, manner, room, days } => quotas::limit(history, *holder, *manner, *room, *days),
        Operation::PassDays { days } => {
            if history.quotas.are_on() {
                history.sync_all()?;
            }
            retention::pass_days(history, *days);
            Ok(())
        }
        Operation::Say { path, list, change, pick } => policy_lists::say(history, *path, *list, *change, *pick),
        Operation::ChangeClass { pick } => policy_lists::change_class(history, *pick),
        Operation::AskSync { path, pick } => syncs::ask_sync(history, *path, *pick),
        Operation::KeepUnused => watermark_eviction::keep_unused(history),
        Operation::AskRelease { path, pick } => watermark_eviction::ask_release(history, *path, *pick),
        Operation::AskRecords { path, pick } => records::ask_records(history, *path, *pick),
        Operation::AskPlace { path, place } => placement::ask_place(history, *path, *place),
        Operation::Label { device, tags } => placement::label(history, usize::from(*device), *tags),
        Operation::Accounts(step) => accounts::execute_accounts(history, *step),
        Operation::Volumes(step) => medium_faults::execute_volumes(history, *step),
        Operation::Tiers(step) => tiers::execute_tiers(history, *step),
        Operation::Cold(step) => metadata_offload::execute_cold(history, *step),
        Operation::FailTold { fails } => {
            followers::fail_told(history, *fails);
            Ok(())
        }
        Operation::Tell { count } => followers::tell(history, *count),
        Operation::ChooseForBackup { path, is_chosen } => backups::choose_for_backup(history, *path, *is_chosen),
        Operation::Backup { trouble } => backups::back_up(history, *trouble),
        Operation::ProveBackup { rots } => backups::prove_backup(history, *rots),
        Operation::Rebalance => {
            history.mounted().store.rebuilder.set_rebalancing(true);
            Ok(())
        }
        other => unreachable!("{other:?} is carried out by `execute`"),
    }
}

fn lookup(history: &mut History, directory: u64, name: &[u8]) -> Result<Option<u64>, Stop> {
    let real = history.mounted().files.lookup(&caller(&history.machine), directory, name);
    let model = history.model.lookup(directory, name);
    let found = history.expect("lookup", real, model.map(|_| ()))?;
    match (found, model) {
        (Some(found), Ok(inode)) if found.inode != inode => {
            Err(Stop::Failure(format!("lookup: inode {} instead of {inode}", found.inode)))
        }
        (Some(found), Ok(inode)) => history.model.check_attributes(&found).map(|()| Some(inode)),
        _ => Ok(None),
    }
}

/// The directory with this number, if it is there.
pub(crate) fn directory_inode(history: &mut History, index: u8) -> Result<Option<u64>, Stop> {
    let mut at = ROOT;
    for name in DIRECTORIES[usize::from(index)] {
        match lookup(history, at, name)? {
            Some(inode) if history.model.is_directory(inode) => at = inode,
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn parent_of(history: &mut History, path: Path) -> Result<Option<(u64, &'static [u8])>, Stop> {
    let directory = directory_inode(history, path.directory)?;
    Ok(directory.map(|directory| (directory, NAMES[usize::from(path.name)])))
}

pub(crate) fn inode_of(history: &mut History, path: Path) -> Result<Option<u64>, Stop> {
    match parent_of(history, path)? {
        Some((directory, name)) => lookup(history, directory, name),
        None => Ok(None),
    }
}

/// The inode behind a handle. A crash closes all handles; one that is wanted again is opened on some file that is there.
fn slot_inode(history: &mut History, slot: u8) -> Result<Option<u64>, Stop> {
    let index = usize::from(slot);
    if history.slots[index].is_none() {
        let named = |(inode, node): (&u64, &Node)| (node.content().is_some() && node.nlink > 0).then_some(*inode);
        let inodes: Vec<u64> = history.model.nodes.iter().filter_map(named).take(64).collect();
        if inodes.is_empty() {
            names::create(history, Path { directory: 0, name: slot }, slot)?;
        } else {
            let inode = inodes[index * 7 % inodes.len()];
            let opened =
                history.mounted().files.open(&caller(&history.machine), inode, history.model.open_flags(inode));
            let handle = history.must("open", opened)?;
            history.model.open(inode);
            history.slots[index] = Some(Slot { inode, handle });
        }
    }
    Ok(history.slots[index].as_ref().map(|slot| slot.inode))
}

fn fsync_directory(history: &mut History, directory: u8) -> Result<(), Stop> {
    let Some(inode) = directory_inode(history, directory)? else { return Ok(()) };
    let sync = syncs::sync_of(history, inode)?;
    let real = history.mounted().files.fsyncdir(&caller(&history.machine), inode);
    history.must("fsyncdir", real)?;
    if sync == Sync::Relaxed {
        return Ok(());
    }
    history.note_commit();
    Ok(())
}
