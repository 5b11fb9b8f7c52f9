//! Reads of what is released on mounts that do not wait for it.
//!
//! The oracle: such a read gives what is right, or says that it would have to wait, where something of the file is released and never
//! else; nothing is asked of a volume for it. What shall be had later is had after the next steps of the work for volumes. Read next:
//! `tertiary.rs`.

use std::ops::ControlFlow;

use stere_store::RecallMode;

use crate::history::{History, Stop};
use crate::observe::{self, Trouble};
use crate::operation::Target;
use crate::pool::caller;
use crate::tertiary::attach_volumes;

/// Steps in which what was asked for must be back.
const STEPS_MAX: u8 = 200;

impl History {
    /// A file is read on a mount that refuses recalls, or one that does not wait for them.
    pub(crate) fn read_without_recall(&mut self, target: Target, denies: bool) -> Result<(), Stop> {
        self.with_file(target, |history, inode| history.read_in_mode(inode, denies))
    }

    fn is_some_released(&mut self, inode: u64) -> Result<bool, Stop> {
        let mut is_released = false;
        let walked = self.mounted().files.tiers().tier_walk(&caller(&self.machine), inode, &mut |met| {
            is_released |= met.file.released_bytes > 0;
            ControlFlow::Continue(())
        });
        self.must("looking for what is released", walked)?;
        Ok(is_released)
    }

    /// What is read with this mode, and how often volumes were asked for objects meanwhile.
    fn read_with(&mut self, inode: u64, mode: RecallMode) -> (Result<crate::content::Content, Trouble>, u64) {
        let store = self.mounted().store.clone();
        let before = store.tier.recalls.tertiary_counts().fetches;
        store.tier.recalls.set_recall_mode(mode);
        let outcome = observe::read_file(&self.mounted().files, &caller(&self.machine), inode);
        store.tier.recalls.set_recall_mode(RecallMode::Block);
        (outcome, store.tier.recalls.tertiary_counts().fetches - before)
    }

    fn read_in_mode(&mut self, inode: u64, denies: bool) -> Result<(), Stop> {
        let (mode, errno) = match denies {
            true => (RecallMode::Deny, libc::EPERM),
            false => (RecallMode::NoWait, libc::EAGAIN),
        };
        let is_released = self.is_some_released(inode)?;
        let (outcome, fetches) = self.read_with(inode, mode);
        if self.machine.is_off() {
            return Err(Stop::Power);
        }
        if fetches > 0 {
            return Err(Stop::Failure(format!("inode {inode}: volumes are asked {fetches} times in mode {mode:?}")));
        }
        match outcome {
            Ok(seen) => self.judge_seen(inode, &seen),
            Err(Trouble::Call { errno: given, .. }) if given == errno && is_released => {
                self.summary.tier.reads_put_off += 1;
                if denies { Ok(()) } else { self.must_be_there_later(inode) }
            }
            // Devices fail too, and what they lost is read from volumes, but for which it would be on its way.
            Err(Trouble::Call { errno: given, .. }) if given == errno && !self.is_calm() => Ok(()),
            Err(trouble) => Err(self.trouble(trouble)),
        }
    }

    fn judge_seen(&self, inode: u64, seen: &crate::content::Content) -> Result<(), Stop> {
        let mine = self.model.nodes.get(&inode).and_then(|node| node.content());
        match mine.and_then(|mine| mine.difference(seen)) {
            Some(difference) => Err(Stop::Failure(format!("{}: {difference}", self.model.path_of(inode)))),
            None => Ok(()),
        }
    }

    /// Each try asks for what it meets first; when nothing more is asked for, it is there.
    fn must_be_there_later(&mut self, inode: u64) -> Result<(), Stop> {
        let (machine, mut wanted) = (self.machine.clone(), 1);
        attach_volumes(self.mounted(), &machine);
        for _ in 0..STEPS_MAX {
            machine.with_honest_volumes(|| self.tertiary_steps(1, false))?;
            // What has no room stays where it is.
            let is_back = self.mounted().store.tier.recalls.wanted_back() == 0;
            let (outcome, _) = self.read_with(inode, RecallMode::NoWait);
            match outcome {
                Ok(seen) => return self.judge_seen(inode, &seen),
                Err(Trouble::Call { errno: libc::EAGAIN, .. }) => {}
                Err(trouble) => return Err(self.trouble(trouble)),
            }
            let again = self.mounted().store.tier.recalls.wanted_back();
            if is_back && again == 0 {
                return Err(Stop::Failure(format!("inode {inode} is put off, and nothing of it is asked for")));
            }
            wanted = again.max(wanted);
        }
        let is_short = self.plan.may_fill || !self.is_calm() || self.away().is_some() || self.has_lost_member();
        match is_short {
            true => Ok(()),
            false => Err(Stop::Failure(format!("inode {inode} is put off for ever, {wanted} segments are wanted"))),
        }
    }
}
