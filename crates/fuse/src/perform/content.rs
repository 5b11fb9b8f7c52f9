//! Operations on contents and open files, and what the mount as a whole is asked.

use fuse_wire::abi::fopen;
use fuse_wire::{CopyFileRange, OfferWrite, Operation, Request, Write};
use stere_naming::{Attributes, Caller, Error, Handle, Io, Whence, WriteOffer};

use super::names::open_flags;
use crate::answer::{Answer, Failure};
use crate::cached;
use crate::performer::{Outcome, Performer, UNSUPPORTED};

/// The longest copy done in one request; callers go on with the rest. Bounds how long a worker is away.
const COPY_BYTES_MAX: u64 = 1 << 30;

impl Performer {
    /// Reads straight into the answer, or tells who takes a map where the bytes lie.
    pub(super) fn read(&self, request: &mut Request, io: Io<'_>, node: u64, offset: u64, size: usize) -> Outcome {
        let caller = self.caller(request, 0, io);
        let (takes_map, has_keys) = (request.takes_map(), request.has_keys());
        let buffer = request.data_buffer();
        let size = size.min(buffer.len());
        if takes_map {
            return Ok(match self.filesystem.read_or_map(&caller, node, offset, has_keys, &mut buffer[..size])? {
                (_, Some(map)) => Answer::Map(map.encode()),
                (bytes, None) => Answer::InPlace(bytes),
            });
        }
        let bytes = self.filesystem.read(&caller, node, offset, &mut buffer[..size])?;
        assert!(bytes <= size, "{bytes} bytes were read where {size} were asked for");
        Ok(Answer::InPlace(bytes))
    }

    pub(super) fn content_operation(&self, request: &Request, operation: &Operation<'_>, io: Io<'_>) -> Outcome {
        let filesystem = &self.filesystem;
        let caller = self.caller(request, 0, io);
        match *operation {
            Operation::Write(write) => self.write(request, operation, &caller, &write),
            Operation::Open { node, flags, .. } => {
                let before = self.opened.as_ref().map(|_| filesystem.getattr(&caller, node)).transpose()?;
                let handle = filesystem.open(&caller, node, open_flags(flags))?;
                let flags = self.shown_flags(request, node, before.as_ref(), handle, flags);
                Ok(Answer::Opened { handle: handle.0, flags })
            }
            Operation::Opendir { node, .. } => {
                // Open directories are noted below, so that one that is removed meanwhile can still be looked at.
                let end = filesystem.directory_end(io, node)?;
                let handle = filesystem.open(&caller, node, open_flags(0))?;
                self.listings.lock().insert(handle.0, end);
                Ok(Answer::Opened { handle: handle.0, flags: self.open_directory_flags })
            }
            Operation::Release { node, handle, .. } => {
                let kernel = request.remote_tag();
                self.opened.iter().for_each(|opened| opened.closed(kernel, node, Handle(handle)));
                filesystem.release(&caller, node, Handle(handle))?;
                Ok(Answer::Done)
            }
            Operation::Releasedir { node, handle, .. } => {
                filesystem.release(&caller, node, Handle(handle))?;
                self.listings.lock().remove(&handle);
                Ok(Answer::Done)
            }
            Operation::Fsync { node, .. } => {
                filesystem.fsync(&caller, node, request.remote_tag().is_some())?;
                Ok(Answer::Done)
            }
            Operation::Fsyncdir { node, .. } => {
                filesystem.fsyncdir(&caller, node)?;
                Ok(Answer::Done)
            }
            Operation::Syncfs { .. } => {
                filesystem.far_writes(0).wait_for_all(&caller)?;
                filesystem.syncfs(&caller)?;
                Ok(Answer::Done)
            }
            Operation::Fallocate { node, offset, length, mode, .. } => {
                filesystem.fallocate(&caller, node, offset, length, mode)?;
                Ok(Answer::Done)
            }
            Operation::Lseek { node, offset, whence, .. } => {
                Ok(Answer::Offset(filesystem.seek(&caller, node, offset, seek_whence(whence)?)?))
            }
            Operation::CopyFileRange(CopyFileRange { node_in, offset_in, node_out, offset_out, length, .. }) => {
                let length = length.min(COPY_BYTES_MAX);
                Ok(Answer::Copied(filesystem.copy_range(&caller, node_in, offset_in, node_out, offset_out, length)?))
            }
            Operation::OfferWrite(offer) => self.offer_write(request, &caller, &offer),
            Operation::EnterWrite { node, number, is_withdrawn, .. } => {
                self.enter_write(request, &caller, (node, number), is_withdrawn)
            }
            Operation::Destroy => match filesystem.close(&Performer::own_caller(io)) {
                // Nothing can be made durable, and why was said when it began.
                Ok(()) | Err(Error::ReadOnly(_)) => Ok(Answer::Done),
                Err(error) => Err(error.into()),
            },
            Operation::NotifyReply { .. } => Ok(Answer::Silence),
            Operation::Ioctl(ioctl) => self.ioctl(&ioctl, &caller),
            Operation::Malformed { opcode } => {
                tracing::error!(opcode, "the kernel sent a request that cannot be read");
                Err(Failure::Errno(libc::EIO))
            }
            // ACCESS, BMAP, POLL, FLUSH and locks: the kernel does them itself once it got this answer.
            _ => UNSUPPORTED,
        }
    }
}

impl Performer {
    fn write(&self, request: &Request, operation: &Operation<'_>, caller: &Caller<'_>, write: &Write<'_>) -> Outcome {
        let Write { node, offset, data, flags, from_cache, kill_suid_sgid, .. } = *write;
        if !from_cache && self.appends(flags) {
            let (place, done) = self.filesystem.append(caller, node, data, kill_suid_sgid)?;
            request.note_place(place);
            return Ok(Answer::Appended(place, done));
        }
        request.note_place(offset);
        let mut done = self.filesystem.write(caller, node, offset, data, kill_suid_sgid)?;
        // The kernel takes pages of its cache for written, however few bytes it is told, and makes EIO of a short direct write.
        let is_whole = cached::must_be_whole(operation);
        while is_whole && done < data.len() {
            let more = self.filesystem.write(caller, node, offset + done as u64, &data[done..], kill_suid_sgid)?;
            if more == 0 {
                return Err(Failure::Errno(libc::ENOSPC));
            }
            done += more;
        }
        assert!(done <= data.len(), "{done} bytes were written where {} were given", data.len());
        Ok(Answer::Written(done))
    }

    /// A far machine wants to write past this one.
    fn offer_write(&self, request: &Request, caller: &Caller<'_>, offered: &OfferWrite<'_>) -> Outcome {
        let OfferWrite { node, offset, length, offer, kill_suid_sgid, .. } = *offered;
        let session = request.remote_tag().ok_or(Failure::Errno(libc::ENOSYS))?;
        let offer = WriteOffer::decode(offer).ok().filter(|offer| offer.content_bytes() == length);
        let offer = offer.ok_or(Failure::Errno(libc::EINVAL))?;
        let answer = self.filesystem.far_writes(session).offer(caller, node, offset, &offer, kill_suid_sgid)?;
        Ok(Answer::Bytes(answer.encode()))
    }

    /// It has, or gives it up.
    fn enter_write(
        &self,
        request: &Request,
        caller: &Caller<'_>,
        (node, number): (u64, u64),
        is_withdrawn: bool,
    ) -> Outcome {
        let writes = self.filesystem.far_writes(request.remote_tag().ok_or(Failure::Errno(libc::ENOSYS))?);
        if is_withdrawn {
            writes.withdraw(number)?;
            return Ok(Answer::Done);
        }
        let written = writes.enter(caller, node, number)?;
        assert!(written > 0, "what is entered has bytes");
        Ok(Answer::Written(usize::try_from(written).unwrap_or(usize::MAX)))
    }

    /// Whether what is written through a file goes to its end, which only this machine knows: several machines mount the pool.
    pub(super) fn appends(&self, flags: u32) -> bool {
        self.opened.is_some() && flags.cast_signed() & libc::O_APPEND != 0
    }

    /// What the kernel may do with the pages it has of a file that it has opened, which was this before: so what was changed meanwhile is
    /// seen at the next time.
    pub(super) fn shown_flags(
        &self,
        request: &Request,
        node: u64,
        before: Option<&Attributes>,
        handle: Handle,
        flags: u32,
    ) -> u32 {
        // What is durable when a write returns is not gathered by the kernel.
        if self.gathers_writes && self.filesystem.durability.may_be_always([node]) {
            return fopen::DIRECT_IO;
        }
        let (Some(opened), Some(before)) = (&self.opened, before) else { return self.open_flags };
        let kernel = request.remote_tag();
        if self.appends(flags) {
            // Pages would be kept at the place where the kernel thinks the end is.
            opened.appends(kernel, before.inode, handle);
            return fopen::DIRECT_IO;
        }
        if opened.is_appended(kernel, before.inode) {
            return fopen::DIRECT_IO;
        }
        let is_unchanged = opened.is_unchanged(kernel, before, handle);
        if is_unchanged { self.open_flags } else { self.open_flags & !fopen::KEEP_CACHE }
    }

    /// A kernel reads a file that it has opened.
    pub(super) fn used(&self, request: &Request, node: u64, handle: u64) {
        self.opened.iter().for_each(|opened| opened.used(request.remote_tag(), node, Handle(handle)));
    }
}

fn seek_whence(whence: u32) -> Result<Whence, Failure> {
    match whence.cast_signed() {
        libc::SEEK_DATA => Ok(Whence::Data),
        libc::SEEK_HOLE => Ok(Whence::Hole),
        _ => Err(Failure::Errno(libc::EINVAL)),
    }
}
