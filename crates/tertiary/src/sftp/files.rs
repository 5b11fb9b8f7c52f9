//! What is done with files and directories over one session, each one request or two.

use std::time::Instant;

use super::connection::{Connection, Fault};
use super::packet::{self, Attributes, Reply, put_text};
use crate::{LIST_TIME, LIST_WITHOUT_END};

/// More are not in a directory of stere's.
const NAMES_MAX: usize = 1 << 20;

impl Connection {
    pub(super) fn open_file(&mut self, path: &str, how: u32) -> Result<Vec<u8>, Fault> {
        let number = self.ask(packet::OPEN, |to| {
            put_text(to, path.as_bytes());
            to.extend(how.to_be_bytes());
            // No attributes: those that the server gives.
            to.extend(0u32.to_be_bytes());
        });
        self.handle_of(number)
    }

    /// Closes what was only read; nobody waits for that.
    pub(super) fn forget(&mut self, handle: &[u8]) {
        let number = self.ask(packet::CLOSE, |to| put_text(to, handle));
        self.abandon(number);
    }

    /// Has what was written made durable, where the server can.
    pub(super) fn sync_and_close(&mut self, handle: &[u8]) -> Result<(), Fault> {
        let synced = if self.abilities.has_fsync {
            let number = self.extended("fsync@openssh.com", |to| put_text(to, handle));
            self.success_of(number)
        } else {
            Ok(())
        };
        if matches!(synced, Err(Fault::Lost(_) | Fault::GivenUp)) {
            return synced;
        }
        let number = self.ask(packet::CLOSE, |to| put_text(to, handle));
        synced.and(self.success_of(number))
    }

    /// Has the names in a directory made durable. OpenSSH opens directories like files; who does not keeps names as he likes.
    pub(super) fn sync_directory(&mut self, path: &str) -> Result<(), Fault> {
        if !self.abilities.has_fsync {
            return Ok(());
        }
        match self.open_file(if path.is_empty() { "/" } else { path }, packet::READING) {
            Ok(handle) => self.sync_and_close(&handle),
            Err(Fault::Status { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// In the place of what is there. Without OpenSSH's extension there is a moment without either.
    pub(super) fn rename_over(&mut self, from: &str, to: &str) -> Result<(), Fault> {
        let names = |into: &mut Vec<u8>| {
            put_text(into, from.as_bytes());
            put_text(into, to.as_bytes());
        };
        if self.abilities.has_posix_rename {
            let number = self.extended("posix-rename@openssh.com", names);
            return self.success_of(number);
        }
        let number = self.ask(packet::RENAME, names);
        match self.success_of(number) {
            Err(Fault::Status { .. }) => {}
            outcome => return outcome,
        }
        self.remove(to)?;
        let number = self.ask(packet::RENAME, names);
        self.success_of(number)
    }

    pub(super) fn remove(&mut self, path: &str) -> Result<(), Fault> {
        let number = self.ask(packet::REMOVE, |to| put_text(to, path.as_bytes()));
        self.success_of(number)
    }

    /// It may be there already.
    pub(super) fn make_directory(&mut self, path: &str) -> Result<(), Fault> {
        let number = self.ask(packet::MKDIR, |to| {
            put_text(to, path.as_bytes());
            to.extend(0u32.to_be_bytes());
        });
        match self.success_of(number) {
            Err(fault @ Fault::Status { .. }) => match self.stat(path) {
                Ok(found) if found.is_directory() => Ok(()),
                _ => Err(fault),
            },
            outcome => outcome,
        }
    }

    pub(super) fn stat(&mut self, path: &str) -> Result<Attributes, Fault> {
        let number = self.ask(packet::STAT, |to| put_text(to, path.as_bytes()));
        self.answer_to(number, attributes)
    }

    /// Of an open file.
    pub(super) fn length_of(&mut self, handle: &[u8]) -> Result<Option<u64>, Fault> {
        let number = self.ask(packet::FSTAT, |to| put_text(to, handle));
        self.answer_to(number, attributes).map(|found| found.length)
    }

    /// What is in a directory: names that can be parts of paths.
    pub(super) fn list(&mut self, path: &str) -> Result<Vec<(String, Attributes)>, Fault> {
        let number = self.ask(packet::OPENDIR, |to| put_text(to, path.as_bytes()));
        let handle = self.handle_of(number)?;
        let (mut found, mut seen): (Vec<(String, Attributes)>, usize) = (Vec::new(), 0);
        let begun = Instant::now();
        loop {
            let number = self.ask(packet::READDIR, |to| put_text(to, &handle));
            let names = self.answer_to(number, |reply| match reply {
                Reply::Names(names) => Some(names),
                _ => None,
            });
            match names {
                Ok(names) if names.is_empty() => break,
                Ok(names) => {
                    // Also those that cannot be: a list of them has no end either.
                    seen += names.len();
                    found.extend(names.into_iter().filter_map(|(name, attributes)| {
                        let name = String::from_utf8(name).ok()?;
                        is_name(&name).then_some((name, attributes))
                    }));
                }
                Err(Fault::Status { code: packet::STATUS_END, .. }) => break,
                Err(fault) => return Err(fault),
            }
            if seen > NAMES_MAX || begun.elapsed() > LIST_TIME {
                return Err(Fault::Lost(LIST_WITHOUT_END.into()));
            }
        }
        self.forget(&handle);
        Ok(found)
    }

    /// Room for those who are not root, if the server says it.
    pub(super) fn free_bytes(&mut self, path: &str) -> Result<Option<u64>, Fault> {
        if !self.abilities.has_statvfs {
            return Ok(None);
        }
        let number = self.extended("statvfs@openssh.com", |to| put_text(to, path.as_bytes()));
        self.answer_to(number, |reply| match reply {
            Reply::Extended(bytes) => {
                let mut fields = packet::Fields(bytes);
                let mut next = || fields.u64().ok();
                let (_, fragment_bytes, _, _, available) = (next()?, next()?, next()?, next()?, next()?);
                Some(Some(available.saturating_mul(fragment_bytes)))
            }
            _ => None,
        })
    }
}

/// What can be a part of a path.
fn is_name(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text != "." && text != ".." && !text.contains('/')
}

fn attributes(reply: Reply<'_>) -> Option<Attributes> {
    match reply {
        Reply::Attributes(found) => Some(found),
        _ => None,
    }
}
