//! Opening, reading and writing: the file layer's calls, with what POSIX attaches to them.

use std::sync::atomic::Ordering;

use stere_file::{COLLAPSE_RANGE, INSERT_RANGE, Whence};
use stere_format::FileKind;
use stere_plugin::EventKind;

use crate::attributes::{SetAttributes, needs_kill};
use crate::error::Error;
use crate::plugins::Doing;
use crate::{Caller, FileSystem};

/// Number of an open file; says nothing by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags {
    /// For writing.
    pub write: bool,
    /// Empty it.
    pub truncate: bool,
    /// `create` fails when the name exists.
    pub exclusive: bool,
    /// For reading; who opens for neither reads too.
    pub read: bool,
}

impl OpenFlags {
    /// From the flags of open(2).
    pub fn from_linux(flags: i32) -> OpenFlags {
        OpenFlags {
            write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            truncate: flags & libc::O_TRUNC != 0,
            exclusive: flags & libc::O_EXCL != 0,
            read: flags & libc::O_ACCMODE != libc::O_WRONLY,
        }
    }
}

impl FileSystem {
    pub(crate) fn new_handle(&self) -> Handle {
        Handle(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a file or a directory.
    pub fn open(&self, caller: &Caller<'_>, inode: u64, flags: OpenFlags) -> Result<Handle, Error> {
        self.note_use(caller, inode);
        let watched = self.watched(caller, inode)?;
        let outcome = self.open_unwatched(caller, inode, flags);
        self.saw_open(caller, watched, flags, &outcome);
        outcome
    }

    fn open_unwatched(&self, caller: &Caller<'_>, inode: u64, flags: OpenFlags) -> Result<Handle, Error> {
        self.check_key(caller, inode)?;
        if flags.write || flags.truncate {
            self.store.view(caller.wait, |view| match stere_file::inode_if_any(view, inode)? {
                Some(value) => {
                    self.check_no_version(inode, &value)?;
                    Ok::<_, Error>(stere_file::check_changeable(&value, caller.now)?)
                }
                None => Ok(()),
            })?;
        }
        self.judge(caller, EventKind::Open, inode, Doing::default())?;
        if flags.truncate {
            let set = SetAttributes { size: Some(0), kill_suid_sgid: caller.uid != 0, ..SetAttributes::default() };
            self.setattr_unwatched(caller, inode, &set)?;
        }
        let value = self.files.open(&caller.context(), inode)?;
        if value.kind() == Some(FileKind::Directory) && (flags.write || flags.truncate) {
            self.files.release(&caller.context(), inode)?;
            return Err(Error::IsADirectory);
        }
        Ok(self.new_handle())
    }

    /// Closes a handle of an inode; what was written is handed to the store with the last one.
    pub fn release(&self, caller: &Caller<'_>, inode: u64, handle: Handle) -> Result<(), Error> {
        self.note_use(caller, inode);
        match self.judge(caller, EventKind::Close, inode, Doing::default()) {
            // Nobody can be kept from closing.
            Err(Error::NotPermitted(_) | Error::Retained(_) | Error::Plugin(_) | Error::Stale) => {}
            asked => asked?,
        }
        let released = self.told(caller.wait, inode, self.files.release(&caller.context(), inode));
        self.note_closed(inode);
        self.note_facts_changed(inode);
        if !matches!(released, Err(Error::WouldBlock)) {
            self.saw_release(caller, inode, handle);
        }
        released
    }

    /// Reads; fewer bytes than asked for only at the end of the file.
    pub fn read(&self, caller: &Caller<'_>, inode: u64, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        let doing = Doing { offset, length: out.len() as u64, ..Doing::default() };
        self.judge(caller, EventKind::Read, inode, doing)?;
        let outcome = self.files.read(&caller.context(), inode, offset, out)?;
        self.note_access(caller, inode, &outcome.value);
        Ok(outcome.length)
    }

    /// Writes. `kill_suid_sgid`: the writer has no privilege to keep set-id bits.
    pub fn write(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        offset: u64,
        data: &[u8],
        kill_suid_sgid: bool,
    ) -> Result<usize, Error> {
        let doing = Doing { offset, length: data.len() as u64, ..Doing::default() };
        self.judge(caller, EventKind::Write, inode, doing)?;
        if kill_suid_sgid && self.store.view(caller.wait, |view| needs_kill(view, inode, caller))? {
            self.setattr(caller, inode, &SetAttributes { kill_suid_sgid, ..SetAttributes::default() })?;
        }
        self.keep_before_change(caller, inode)?;
        let written = self.write_with_room(caller, inode, offset, data);
        match &written {
            Ok(_) => self.saw_change(caller, inode),
            Err(_) => self.saw_no_change(caller, inode, &written),
        }
        written
    }

    /// Where room ends in the middle of a write, it is made for the rest as for the whole; a write ends early only where none is left.
    fn write_with_room(&self, caller: &Caller<'_>, inode: u64, offset: u64, data: &[u8]) -> Result<usize, Error> {
        let write = |done: usize| {
            self.with_room(caller, || {
                let (offset, rest) = (offset + done as u64, &data[done..]);
                self.told(caller.wait, inode, self.files.write(&caller.context(), inode, offset, rest))
            })
        };
        let mut done = write(0)?;
        while done < data.len() && done > 0 {
            match write(done) {
                Ok(more) if more > 0 => done += more,
                _ => break,
            }
        }
        Ok(done)
    }

    /// Makes one file durable: its content, size and attributes. Other files' unsaved data is not waited for.
    pub fn fsync(&self, caller: &Caller<'_>, inode: u64, _data_only: bool) -> Result<(), Error> {
        self.told(caller.wait, inode, self.files.save(&caller.context(), inode))?;
        self.save_watched(caller.wait)?;
        Ok(self.store.commit(caller.wait)?)
    }

    /// Makes a directory's names durable.
    pub fn fsyncdir(&self, caller: &Caller<'_>, _inode: u64) -> Result<(), Error> {
        self.save_watched(caller.wait)?;
        Ok(self.store.commit(caller.wait)?)
    }

    /// Changes allocation as fallocate(2) does with `mode`.
    pub fn fallocate(&self, caller: &Caller<'_>, inode: u64, offset: u64, length: u64, mode: u32) -> Result<(), Error> {
        // All modes: those that change no byte take room, which is a matter of writing too.
        self.judge(caller, EventKind::Write, inode, Doing { offset, length, ..Doing::default() })?;
        self.keep_before_change(caller, inode)?;
        let allocate = || Ok(self.files.allocate(&caller.context(), inode, offset, length, mode)?);
        match mode & (COLLAPSE_RANGE | INSERT_RANGE) {
            0 => self.with_room(caller, allocate)?,
            // They move what is behind them, which nobody may do twice.
            _ => allocate()?,
        }
        self.saw_change(caller, inode);
        Ok(())
    }

    /// The next data or hole at or behind `offset`.
    pub fn seek(&self, caller: &Caller<'_>, inode: u64, offset: u64, whence: Whence) -> Result<u64, Error> {
        Ok(self.files.seek(&caller.context(), inode, offset, whence)?)
    }

    /// Copies between files, by sharing where blocks are aligned alike; gives how many bytes.
    pub fn copy_range(
        &self,
        caller: &Caller<'_>,
        inode_in: u64,
        offset_in: u64,
        inode_out: u64,
        offset_out: u64,
        length: u64,
    ) -> Result<u64, Error> {
        let reading = Doing { offset: offset_in, length, ..Doing::default() };
        self.judge(caller, EventKind::Read, inode_in, reading)?;
        let writing = Doing { offset: offset_out, length, ..Doing::default() };
        self.judge(caller, EventKind::Write, inode_out, writing)?;
        // What is shared lies as the source wants it, until it is looked at. Noted before, so that no crash comes between, and
        // after, so that a look that came too early is repeated.
        let is_other_policy = self.wants_otherwise(caller, inode_in, inode_out)?;
        if is_other_policy {
            self.reconcile(caller, inode_out)?;
        }
        self.keep_before_change(caller, inode_out)?;
        let copied = self.with_room(caller, || {
            Ok(self.files.copy_range(&caller.context(), inode_in, offset_in, inode_out, offset_out, length)?)
        })?;
        if copied > 0 {
            self.saw_change(caller, inode_out);
        }
        if is_other_policy {
            self.reconcile(caller, inode_out)?;
        }
        if copied > 0 && self.store.view(caller.wait, |view| needs_kill(view, inode_out, caller))? && caller.uid != 0 {
            self.setattr(caller, inode_out, &SetAttributes { kill_suid_sgid: true, ..SetAttributes::default() })?;
        }
        Ok(copied)
    }

    /// Whether two files are to be stored in different ways.
    fn wants_otherwise(&self, caller: &Caller<'_>, one: u64, other: u64) -> Result<bool, Error> {
        self.store.view(caller.wait, |view| {
            let wish = |inode| {
                let value = stere_file::inode_if_any(view, inode)?.ok_or(Error::Stale)?;
                Ok::<_, Error>(self.files.effective(view, inode, &value)?.wish.scheme)
            };
            Ok(wish(one)? != wish(other)?)
        })
    }
}
