//! Reads of what is released on mounts that do not wait for it.
//!
//! The oracle: such a read gives what is right, or says that it would have to wait, where something of the file is released and never
//! else; nothing is asked of a volume for it. What shall be had later is had after the next steps of the work for volumes. Read next:
//! `tertiary.rs`.

use std::ops::ControlFlow;

use stere_store::RecallMode;

use crate::history::{History, Stop};
use crate::model::Model;
use crate::observe::{self, Trouble};
use crate::operation::Target;
use crate::pool::{PoolUnderTest, caller};
use crate::tertiary::{self, attach_volumes};

/// Steps in which what was asked for must be back.
const STEPS_MAX: u8 = 200;

impl PoolUnderTest {
    /// What is read with this mode, and how often volumes were asked for objects meanwhile.
    fn read_with(&self, inode: u64, mode: RecallMode) -> (Result<crate::content::Content, Trouble>, u64) {
        let store = self.mounted().store.clone();
        let before = store.tier.recalls.tertiary_counts().fetches;
        store.tier.recalls.set_recall_mode(mode);
        let outcome = observe::read_file(&self.mounted().files, &caller(&self.machine), inode);
        store.tier.recalls.set_recall_mode(RecallMode::Block);
        (outcome, store.tier.recalls.tertiary_counts().fetches - before)
    }
}

/// A file is read on a mount that refuses recalls, or one that does not wait for them.
pub(crate) fn read_without_recall(history: &mut History, target: Target, denies: bool) -> Result<(), Stop> {
    history.with_file(target, |history, inode| read_in_mode(history, inode, denies))
}

fn is_some_released(history: &mut History, inode: u64) -> Result<bool, Stop> {
    let mut is_released = false;
    let walked = history.mounted().files.tiers().tier_walk(&caller(&history.machine), inode, &mut |met| {
        is_released |= met.file.released_bytes > 0;
        ControlFlow::Continue(())
    });
    history.must("looking for what is released", walked)?;
    Ok(is_released)
}

fn read_in_mode(history: &mut History, inode: u64, denies: bool) -> Result<(), Stop> {
    let (mode, errno) = match denies {
        true => (RecallMode::Deny, libc::EPERM),
        false => (RecallMode::NoWait, libc::EAGAIN),
    };
    let is_released = is_some_released(history, inode)?;
    let (outcome, fetches) = history.pool.read_with(inode, mode);
    if history.machine.is_off() {
        return Err(Stop::Power);
    }
    if fetches > 0 {
        return Err(Stop::Failure(format!("inode {inode}: volumes are asked {fetches} times in mode {mode:?}")));
    }
    match outcome {
        Ok(seen) => judge_seen(&history.model, inode, &seen),
        Err(Trouble::Call { errno: given, .. }) if given == errno && is_released => {
            history.summary.tier.reads_put_off += 1;
            if denies { Ok(()) } else { must_be_there_later(history, inode) }
        }
        // Devices fail too, and what they lost is read from volumes, but for which it would be on its way.
        Err(Trouble::Call { errno: given, .. }) if given == errno && !history.pool.is_calm() => Ok(()),
        Err(trouble) => Err(history.trouble(trouble)),
    }
}

fn judge_seen(model: &Model, inode: u64, seen: &crate::content::Content) -> Result<(), Stop> {
    let mine = model.nodes.get(&inode).and_then(|node| node.content());
    match mine.and_then(|mine| mine.difference(seen)) {
        Some(difference) => Err(Stop::Failure(format!("{}: {difference}", model.path_of(inode)))),
        None => Ok(()),
    }
}

/// Each try asks for what it meets first; when nothing more is asked for, it is there.
fn must_be_there_later(history: &mut History, inode: u64) -> Result<(), Stop> {
    let (machine, mut wanted) = (history.machine.clone(), 1);
    attach_volumes(history.mounted(), &machine);
    for _ in 0..STEPS_MAX {
        machine.with_honest_volumes(|| tertiary::tertiary_steps(history, 1, false))?;
        // What has no room stays where it is.
        let is_back = history.mounted().store.tier.recalls.wanted_back() == 0;
        let (outcome, _) = history.pool.read_with(inode, RecallMode::NoWait);
        match outcome {
            Ok(seen) => return judge_seen(&history.model, inode, &seen),
            Err(Trouble::Call { errno: libc::EAGAIN, .. }) => {}
            Err(trouble) => return Err(history.trouble(trouble)),
        }
        let again = history.mounted().store.tier.recalls.wanted_back();
        if is_back && again == 0 {
            return Err(Stop::Failure(format!("inode {inode} is put off, and nothing of it is asked for")));
        }
        wanted = again.max(wanted);
    }
    let is_short = history.plan.may_fill
        || !history.pool.is_calm()
        || history.pool.away().is_some()
        || history.pool.has_lost_member();
    match is_short {
        true => Ok(()),
        false => Err(Stop::Failure(format!("inode {inode} is put off for ever, {wanted} segments are wanted"))),
    }
}
