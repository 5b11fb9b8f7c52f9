//! Opening, reading and writing: calls on contents.
//!
//! Read next: `../pipeline` (what goes around each call), `../content_changes` (the cores).

use stere_file::Whence;
use stere_format::{ContentMap, FileKind};
use stere_namespace::attributes::{SetAttributes, needs_kill};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::handles::{Handle, OpenFlags};
use stere_policy::Sync;

use crate::filesystem::FileSystem;
use crate::pipeline::{Done, Kind, Op};

impl FileSystem {
    /// Opens a file or a directory.
    pub fn open(&self, caller: &Caller<'_>, inode: u64, flags: OpenFlags) -> Result<Handle, Error> {
        let open = || {
            if flags.truncate {
                self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
                let kill_suid_sgid = caller.uid != 0;
                let set = SetAttributes { size: Some(0), kill_suid_sgid, ..SetAttributes::default() };
                let op = Op::new(caller, inode, Kind::SetAttributes(&set));
                let cut = || self.contents.set_attributes(caller, inode, &set);
                self.pipeline.perform(&op, cut, |value| Done { value: Some(value), ..Done::default() })?;
            }
            let value = self.namespace.core.files.open(&caller.context(), inode)?;
            if value.kind() == Some(FileKind::Directory) && (flags.write || flags.truncate) {
                self.namespace.core.files.release(&caller.context(), inode)?;
                return Err(Error::IsADirectory);
            }
            Ok(self.new_handle())
        };
        let op = Op::new(caller, inode, Kind::Open(flags));
        self.pipeline.run(&op, open, |handle| Done { handle: Some(*handle), ..Done::default() })
    }

    /// Closes a handle of an inode; what was written is handed to the store with the last one.
    pub fn release(&self, caller: &Caller<'_>, inode: u64, handle: Handle) -> Result<(), Error> {
        let op = Op::new(caller, inode, Kind::Release(handle));
        let release =
            || self.namespace.core.told(caller.io, inode, self.namespace.core.files.release(&caller.context(), inode));
        self.pipeline.run(&op, release, |()| Done::default())
    }

    /// Reads; fewer bytes than asked for only at the end of the file.
    pub fn read(&self, caller: &Caller<'_>, inode: u64, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        let length_max = out.len();
        let op = Op::new(caller, inode, Kind::Read).at(offset, length_max as u64);
        let read = || Ok(self.namespace.core.files.reader.read(&caller.context(), inode, offset, out)?);
        let outcome =
            self.pipeline.run(&op, read, |outcome| Done { value: Some(&outcome.value), ..Done::default() })?;
        assert!(outcome.length <= length_max, "{} bytes are read, and {length_max} were asked for", outcome.length);
        Ok(outcome.length)
    }

    /// The same for who reads from devices itself: a map instead of the bytes, where they can be had there; of encrypted content too, if
    /// `has_keys`.
    pub fn read_or_map(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        offset: u64,
        has_keys: bool,
        out: &mut [u8],
    ) -> Result<(usize, Option<ContentMap>), Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        let op = Op::new(caller, inode, Kind::Read).at(offset, out.len() as u64);
        let reader = &self.namespace.core.files.reader;
        let read = || Ok(reader.read_or_map(&caller.context(), inode, offset, has_keys, out)?);
        let (outcome, map) =
            self.pipeline.run(&op, read, |(outcome, _)| Done { value: Some(&outcome.value), ..Done::default() })?;
        Ok((outcome.length, map))
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
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        let kind = Kind::Write { kill_set_id: kill_suid_sgid };
        let op = Op::new(caller, inode, kind).at(offset, data.len() as u64);
        let write = || self.contents.write(caller, inode, offset, data);
        self.pipeline.run(&op, write, |_| Done { is_changed: true, ..Done::default() })
    }

    /// Writes at the end, wherever that is by then, and tells where that was: for callers that may not know how long the file is.
    pub fn append(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        data: &[u8],
        kill_suid_sgid: bool,
    ) -> Result<(u64, usize), Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        // What looks at ranges sees that of the moment.
        let known = self.namespace.core.files.attributes(caller.io, inode)?.map_or(0, |value| value.size);
        let kind = Kind::Write { kill_set_id: kill_suid_sgid };
        let op = Op::new(caller, inode, kind).at(known, data.len() as u64);
        let append = || self.contents.append(caller, inode, data);
        self.pipeline.run(&op, append, |_| Done { is_changed: true, ..Done::default() })
    }

    /// Changes allocation as fallocate(2) does with `mode`.
    pub fn fallocate(&self, caller: &Caller<'_>, inode: u64, offset: u64, length: u64, mode: u32) -> Result<(), Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        let op = Op::new(caller, inode, Kind::Allocate { mode }).at(offset, length);
        let allocate =
            || Ok(self.namespace.core.files.allocator.allocate(&caller.context(), inode, offset, length, mode)?);
        self.pipeline.run(&op, allocate, |()| Done { is_changed: true, ..Done::default() })
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
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode_in)?;
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode_out)?;
        let kind = Kind::CopyFrom { source: inode_in, offset: offset_in };
        let op = Op::new(caller, inode_out, kind).at(offset_out, length);
        let copy = || self.contents.copy(caller, (inode_in, offset_in), (inode_out, offset_out), length);
        let copied = self.pipeline.run(&op, copy, |copied| Done { is_changed: *copied > 0, ..Done::default() })?;
        let has_rights = |view: &stere_store::View<'_>| needs_kill(view, inode_out, caller);
        if copied > 0 && caller.uid != 0 && self.namespace.core.store.view(caller.io, has_rights)? {
            self.contents.kill_set_id(caller, inode_out)?;
        }
        Ok(copied)
    }

    /// The next data or hole at or behind `offset`.
    pub fn seek(&self, caller: &Caller<'_>, inode: u64, offset: u64, whence: Whence) -> Result<u64, Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        Ok(self.namespace.core.files.allocator.seek(&caller.context(), inode, offset, whence)?)
    }

    /// Makes one file durable: its content, size and attributes. Other files' unsaved data is not waited for. `always_waits`: whatever
    /// policy says, for a machine that lets go of what it wrote when it hears that this is durable.
    pub fn fsync(&self, caller: &Caller<'_>, inode: u64, always_waits: bool) -> Result<(), Error> {
        self.namespace.core.files.direct_writes.wait_until_entered(caller.io, inode)?;
        match self.durability.of(caller.io, inode)? {
            Sync::Relaxed if !always_waits => self.durability.order(caller, inode),
            Sync::Relaxed | Sync::Asked | Sync::Always => self.sync_file(caller, inode),
        }
    }

    /// The same for what this machine has of it: what others write past it is not waited for.
    pub fn sync_file(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.namespace.core.told(
            caller.io,
            inode,
            self.namespace.core.files.writeback.save(&caller.context(), inode),
        )?;
        self.features.audit.save_records(caller.io)?;
        Ok(self.namespace.core.store.commit(caller.io)?)
    }

    /// Makes a directory's names durable.
    pub fn fsyncdir(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        // Names are handed over as they are made.
        if self.durability.of(caller.io, inode)? == Sync::Relaxed {
            return Ok(());
        }
        self.features.audit.save_records(caller.io)?;
        Ok(self.namespace.core.store.commit(caller.io)?)
    }
}
