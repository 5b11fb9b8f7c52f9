//! Compares the answers of the two sides, and takes note of what a crash may leave of each change.

use std::rc::Rc;

use stere_naming::Error;

use crate::content::Content;
use crate::history::{History, Stop};
use crate::model::{Errno, Model};
use crate::quotas;

impl Model {
    pub(crate) fn check_attributes(&self, seen: &stere_naming::Attributes) -> Result<(), Stop> {
        let Some(node) = self.nodes.get(&seen.inode) else { return Ok(()) };
        let size = node.content().map_or(seen.size, |content| content.size());
        let expected = (node.kind.type_bits() | node.mode, node.nlink, size);
        let found = (seen.mode, seen.nlink, seen.size);
        if expected == found {
            return Ok(());
        }
        Err(Stop::Failure(format!("inode {}: mode, links, size are {found:?} instead of {expected:?}", seen.inode)))
    }
}

impl History {
    /// Compares an answer with the model's. `None`: both refuse, the pool is full, or a volume fails.
    pub(super) fn expect<T>(
        &mut self,
        what: &str,
        real: Result<T, Error>,
        model: Result<(), Errno>,
    ) -> Result<Option<T>, Stop> {
        match (real, model) {
            (Ok(value), Ok(())) => Ok(Some(value)),
            (Ok(_), Err(errno)) => Err(Stop::Failure(format!("{what}: done, where errno {errno} is right"))),
            (Err(error), Err(errno)) if error.errno() == errno => {
                self.summary.over_quota += u64::from(errno == libc::EDQUOT);
                Ok(None)
            }
            // Two reasons, of which either may be told.
            (Err(error), Err(errno)) if errno == libc::EPERM || matches!(error, Error::Retained(_)) => {
                drop(error);
                Ok(None)
            }
            (Err(Error::OverQuota(_)), Ok(())) if quotas::may_have_no_room_for_names(self) => {
                self.summary.over_quota += 1;
                Ok(None)
            }
            (Err(Error::NoSpace), Ok(())) if self.plan.may_fill => {
                self.summary.no_space += 1;
                Ok(None)
            }
            (Err(error), Ok(())) if self.pool.is_of_volumes(&error) => Ok(None),
            (Err(error), model) => {
                let text = format!("{error}; right is {model:?}");
                Err(self.unexpected(what, error.errno(), &text))
            }
        }
    }

    /// For calls that have no reason to fail.
    pub(crate) fn must<T>(&mut self, what: &str, real: Result<T, Error>) -> Result<T, Stop> {
        // An answer after the power went off reaches nobody.
        if self.machine.is_off() {
            return Err(Stop::Power);
        }
        real.map_err(|error| self.unexpected(what, error.errno(), &error.to_string()))
    }

    /// As `expect`, for changes of names: one that was under way when the power went may be found done.
    pub(crate) fn expect_names<T>(
        &mut self,
        what: &str,
        real: Result<T, Error>,
        after: Result<Model, Errno>,
    ) -> Result<Option<T>, Stop> {
        let after = after.and_then(|after| quotas::check_metadata(self, &after).map(|()| after));
        let expected = after.as_ref().map(|_| ()).map_err(|errno| *errno);
        match self.expect(what, real, expected) {
            Ok(Some(value)) => {
                self.model = after.expect("both sides did it");
                self.note_names();
                Ok(Some(value))
            }
            Err(stop @ (Stop::Power | Stop::Refused)) => {
                after.iter().for_each(|after| self.remains.note_names(after));
                Err(stop)
            }
            outcome => outcome,
        }
    }

    /// As `expect`, for changes of one file's content.
    pub(super) fn expect_content<T>(
        &mut self,
        what: &str,
        inode: u64,
        real: Result<T, Error>,
        after: Result<Content, Errno>,
    ) -> Result<Option<T>, Stop> {
        let expected = after.as_ref().map(|_| ()).map_err(|errno| *errno);
        let may_be_half_done = match &real {
            Err(Error::NoSpace) => true,
            Err(error) => self.pool.is_of_volumes(error),
            Ok(_) => false,
        };
        let outcome = self.expect(what, real, expected);
        let Ok(after) = after else { return outcome };
        match &outcome {
            Ok(Some(_)) => self.put_content(inode, after),
            Ok(None) if may_be_half_done => self.reconcile(inode, after)?,
            Err(Stop::Power | Stop::Refused) => self.note_content(inode, Rc::new(after)),
            _ => {}
        }
        outcome
    }

    pub(crate) fn put_content(&mut self, inode: u64, content: Content) {
        let content = self.model.change(inode, |old| *old = content);
        self.note_content(inode, content);
    }

    /// A call that found no space, or not what it had to read, may have done a part: what is there must be old or new, and is the truth from now on.
    pub(super) fn reconcile(&mut self, inode: u64, attempted: Content) -> Result<(), Stop> {
        let old = self.model.content(inode);
        let attempted = Rc::new(attempted);
        if self.machine.is_off() {
            // A part that was done before the power went may be found.
            self.note_content(inode, attempted);
            return Err(Stop::Power);
        }
        let seen = self.read_file(inode);
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        seen.may_remain_of(&[old, attempted]).map_err(|text| Stop::Failure(format!("half done: {text}")))?;
        self.put_content(inode, seen);
        Ok(())
    }
}
