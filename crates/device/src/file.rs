//! A device on a regular file or a block device: O_DIRECT where the file system allows it, reads on the caller's thread,
//! writes through a queue of its own (`file/queue.rs`), flushes shared by all who wait at once (`file/flush.rs`).
//!
//! Invariants: one writer per file at any time (flock, and O_EXCL for block devices); the file never changes its size;
//! after a failed flush nothing is written any more, because the kernel may have dropped what it could not write.
//!
//! Read next: `file/readers.rs`, reads that can be left behind; `file/system.rs`, all that talks to the kernel.

mod faults;
mod flush;
mod queue;
mod readers;
mod system;
mod vectors;

use crate::buffer::{Buffer, BufferPool};
use crate::completion::{Completion, Ticket};
use crate::deadline::{Deadline, WAITED_FOR};
use crate::error::{DeviceError, Operation};
use crate::latency::Latency;
use crate::parallel::{self, Parallel};
use crate::pending::{PendingRead, Source};
use crate::{Device, Piece, Scatter, check_range, length_of};
use faults::Faults;
use flush::FlushGate;
use queue::{Job, WriteQueue};
use readers::Readers;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use system::Transfer;
use vectors::Plan;

/// What a device is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Alone on the device.
    ReadWrite,
    /// Beside other readers, never beside a writer.
    ReadOnly,
}

#[derive(Debug, Clone)]
pub struct FileOptions {
    pub access: Access,
    /// Pass the page cache by where possible.
    pub direct: bool,
    /// Threads that carry out writes; 0 writes on the caller's thread.
    pub writer_threads: usize,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { access: Access::ReadWrite, direct: true, writer_threads: 2 }
    }
}

/// The kinds of file that can be a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Regular,
    Block,
}

/// What reads, writers and flushes share.
#[derive(Debug)]
struct OpenFile {
    name: String,
    file: File,
    kind: Kind,
    size_bytes: u64,
    transfer: Transfer,
    access: Access,
    flush: FlushGate,
    is_discard_supported: AtomicBool,
    latency: Latency,
    /// A call was given up and has not come back yet.
    is_silent: AtomicBool,
    faults: Option<Faults>,
}

#[derive(Debug)]
pub struct FileDevice {
    open: Arc<OpenFile>,
    queue: WriteQueue,
    readers: Readers,
    bounce: BufferPool,
}

/// From such a stall on a read is made where it can be left behind, and given up like a write.
const STALLED_FROM: Duration = Duration::from_secs(1);
/// What latency is told of.
const LATENCY_UNIT_BYTES: usize = 64 << 10;
/// Reads that take this long can be left behind: changing threads costs little beside it.
const LEAVABLE_FROM: Duration = Duration::from_millis(1);
/// They are left behind after so many times what they should take,
const PATIENCE: u32 = 8;
/// within these bounds.
const PATIENCE_RANGE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Free bounce memory a device keeps.
const BOUNCE_RETAINED_BYTES: usize = 8 << 20;

/// How long a read that should take so long is waited for.
fn patience(expected: Duration) -> Duration {
    (expected * PATIENCE).clamp(PATIENCE_RANGE.0, PATIENCE_RANGE.1)
}

/// A read that somebody else makes; the device learns how long it took.
struct Elsewhere {
    open: Arc<OpenFile>,
    begun: Instant,
    length: usize,
    is_hung: bool,
}

impl Source for Elsewhere {
    fn file(&self) -> BorrowedFd<'_> {
        match self.open.faults.as_ref().filter(|_| self.is_hung).and_then(Faults::never) {
            Some(never) => never,
            None => self.open.file.as_fd(),
        }
    }

    fn ended(&self) {
        self.open.latency.end(self.begun, self.length);
    }
}

impl FileDevice {
    /// Makes a new sparse regular file of this size and opens it. Refuses a path that exists.
    pub fn create(path: &Path, size_bytes: u64, options: &FileOptions) -> Result<FileDevice, DeviceError> {
        let name = path.display().to_string();
        system::create_sparse(path, size_bytes)
            .map_err(|source| DeviceError::io(&name, Operation::Create, 0, source))?;
        FileDevice::open(path, options)
    }

    /// Opens an existing regular file or block device and locks it.
    pub fn open(path: &Path, options: &FileOptions) -> Result<FileDevice, DeviceError> {
        let name = path.display().to_string();
        let failed = |source: std::io::Error| DeviceError::io(&name, Operation::Open, 0, source);
        let kind = match system::kind_of(path).map_err(failed)? {
            Some(kind) => kind,
            None => return Err(DeviceError::UnsuitableKind { device: name }),
        };
        let (file, is_direct) = match system::open(path, kind, options) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(DeviceError::Busy { device: name });
            }
            other => other.map_err(failed)?,
        };
        if !system::lock(&file, options.access).map_err(failed)? {
            return Err(DeviceError::Busy { device: name });
        }
        let transfer = if is_direct { system::direct_transfer(&file).map_err(failed)? } else { Transfer::BUFFERED };
        let block_bytes = u64::from(transfer.write_block_bytes());
        let size_bytes = system::size_of(&file).map_err(failed)? / block_bytes * block_bytes;
        let open = Arc::new(OpenFile {
            name,
            file,
            kind,
            size_bytes,
            transfer,
            access: options.access,
            flush: FlushGate::default(),
            is_discard_supported: AtomicBool::new(true),
            latency: Latency::default(),
            is_silent: AtomicBool::new(false),
            faults: Faults::of(path),
        });
        let queue = WriteQueue::start(Arc::clone(&open), options.writer_threads)
            .map_err(|source| DeviceError::io(&open.name, Operation::Open, 0, source))?;
        Ok(FileDevice { open, queue, readers: Readers::default(), bounce: BufferPool::new(BOUNCE_RETAINED_BYTES) })
    }

    /// Whether I/O passes the page cache by.
    pub fn is_direct(&self) -> bool {
        self.open.transfer.is_direct
    }

    fn check_write(&self, offset: u64, pieces: &[Piece]) -> Result<(), DeviceError> {
        let open = &self.open;
        if open.access == Access::ReadOnly {
            return Err(DeviceError::ReadOnly { device: open.name.clone() });
        }
        let length = length_of(pieces) as u64;
        check_range(&open.name, Operation::Write, offset, length, open.size_bytes)?;
        let block_bytes = self.block_bytes();
        let is_whole = |length: usize| length % block_bytes as usize == 0;
        if offset % u64::from(block_bytes) != 0 || !pieces.iter().all(|piece| is_whole(piece.bytes().len())) {
            let (device, operation) = (open.name.clone(), Operation::Write);
            return Err(DeviceError::Unaligned { device, operation, offset, length, block_bytes });
        }
        open.flush.refuse_after_failure(&open.name)
    }

    /// Reads on a thread that can be left behind; `None` if that took longer than this.
    fn read_within(
        &self,
        patience: Duration,
        offset: u64,
        pieces: &mut [Scatter<'_>],
    ) -> Option<Result<(), DeviceError>> {
        let length: usize = pieces.iter().map(Scatter::length).sum();
        let in_range = check_range(&self.open.name, Operation::Read, offset, length as u64, self.open.size_bytes);
        if in_range.is_err() {
            return Some(in_range);
        }
        let (start, head, tail) = self.widen(offset, length);
        let open = Arc::clone(&self.open);
        // The reader keeps it when it is left behind. Fresh memory would cost more than the read: it is cleared, page by page.
        let mut buffer = self.bounce.take(head + length + tail);
        let read = move || {
            let mut whole = [Scatter::Into(buffer.as_mut_slice())];
            let plan = Plan::new(&open.transfer, 0, &whole, 0);
            let mut scratch = vec![0; plan.scratch_bytes()];
            let outcome = open.read(&plan, start, &mut whole, &mut scratch, length);
            outcome.map_err(|source| DeviceError::io(&open.name, Operation::Read, offset, source))?;
            Ok(buffer)
        };
        let buffer = match self.readers.read(patience, read)? {
            Ok(buffer) => buffer,
            Err(error) => return Some(Err(error)),
        };
        let mut at = head;
        for piece in pieces {
            if let Scatter::Into(slice) = piece {
                slice.copy_from_slice(&buffer[at..at + slice.len()]);
            }
            at += piece.length();
        }
        Some(Ok(()))
    }

    /// What a read of so many bytes should take by what reads took lately.
    fn expected(&self, length: usize) -> Duration {
        let units = length.div_ceil(LATENCY_UNIT_BYTES).max(1) as u32;
        Duration::from_micros(u64::from(self.open.latency.microseconds())) * units
    }

    /// The widened range of a read, and how much of its head and tail nobody asked for.
    fn widen(&self, offset: u64, length: usize) -> (u64, usize, usize) {
        let align = u64::from(self.open.transfer.offset_alignment);
        let start = offset / align * align;
        let end = (offset + length as u64).next_multiple_of(align);
        // The size is a multiple of the alignment, so widening never leaves the device.
        assert!(end <= self.open.size_bytes, "a read is widened to {end} of {} bytes", self.open.size_bytes);
        let head = (offset - start) as usize;
        (start, head, (end - start) as usize - head - length)
    }
}

impl OpenFile {
    fn flush_data(&self) -> Result<(), DeviceError> {
        match self.access {
            Access::ReadOnly => Ok(()),
            Access::ReadWrite => self.flush.run(&self.name, || {
                self.strike(Operation::Flush)?;
                self.file.sync_data()
            }),
        }
    }

    fn silent(&self) -> DeviceError {
        DeviceError::Silent { device: self.name.clone() }
    }

    fn refuse_while_silent(&self) -> Result<(), DeviceError> {
        if self.is_silent.load(Ordering::Acquire) { Err(self.silent()) } else { Ok(()) }
    }

    fn strike(&self, operation: Operation) -> std::io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.strike(operation))
    }

    /// Carries a planned read out; the latency of the device is of `length` bytes.
    fn read(
        &self,
        plan: &Plan,
        start: u64,
        pieces: &mut [Scatter<'_>],
        scratch: &mut [u8],
        length: usize,
    ) -> std::io::Result<()> {
        let begun = self.latency.begin();
        let outcome = self.strike(Operation::Read).and_then(|()| plan.read(&self.file, start, pieces, scratch));
        self.latency.end(begun, length);
        outcome
    }

    fn write(&self, offset: u64, pieces: &[Piece]) -> Result<(), DeviceError> {
        self.flush.refuse_after_failure(&self.name)?;
        let begun = self.latency.begin();
        let outcome = self.strike(Operation::Write).and_then(|()| system::write_all(&self.file, offset, pieces));
        self.latency.end(begun, length_of(pieces));
        outcome.map_err(|source| DeviceError::io(&self.name, Operation::Write, offset, source))
    }
}

impl Device for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.open.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.open.transfer.write_block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_scattered(offset, &mut [Scatter::Into(buffer)])
    }

    fn read_scattered(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let length: usize = pieces.iter().map(Scatter::length).sum();
        check_range(&self.open.name, Operation::Read, offset, length as u64, self.open.size_bytes)?;
        if length == 0 {
            return Ok(());
        }
        self.open.refuse_while_silent()?;
        if self.open.latency.stalled() >= STALLED_FROM
            && let Some(deadline) = self.queue.deadline()
        {
            // Nothing has ended for long: this may not either.
            return self.read_within(deadline, offset, pieces).unwrap_or_else(|| Err(self.open.silent()));
        }
        let (start, head, tail) = self.widen(offset, length);
        let plan = Plan::new(&self.open.transfer, head, pieces, tail);
        let mut scratch = self.bounce.take(plan.scratch_bytes());
        let outcome = self.open.read(&plan, start, pieces, &mut scratch, length);
        outcome.map_err(|source| DeviceError::io(&self.open.name, Operation::Read, offset, source))
    }

    fn read_scattered_or_leave(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let expected = self.expected(pieces.iter().map(Scatter::length).sum());
        // A fast device is done before another thread is awake.
        if expected < LEAVABLE_FROM {
            return self.read_scattered(offset, pieces);
        }
        self.open.refuse_while_silent()?;
        let too_slow = || Err(DeviceError::TooSlow { device: self.open.name.clone() });
        self.read_within(patience(expected), offset, pieces).unwrap_or_else(too_slow)
    }

    fn pending_read(&self, offset: u64, length: usize) -> Option<PendingRead> {
        let open = &self.open;
        open.refuse_while_silent().ok()?;
        check_range(&open.name, Operation::Read, offset, length as u64, open.size_bytes).ok()?;
        let is_hung = open.faults.as_ref().is_some_and(Faults::hangs);
        // What fails or is slow on purpose does so on the ways that it knows.
        if open.faults.is_some() && !is_hung {
            return None;
        }
        let patience = patience(self.expected(length));
        let (start, head, tail) = self.widen(offset, length);
        let source = Elsewhere { open: Arc::clone(open), begun: open.latency.begin(), length, is_hung };
        let buffer = self.bounce.take(head + length + tail);
        // A socket, which has no places in it.
        let start = if is_hung { 0 } else { start };
        Some(PendingRead::new(Box::new(source), start, buffer, head..head + length, patience))
    }

    fn latency_us(&self) -> u32 {
        self.open.latency.microseconds()
    }

    fn submit_write_gathered(&self, offset: u64, mut pieces: Vec<Piece>, ticket: Ticket) {
        if let Err(error) = self.check_write(offset, &pieces) {
            return ticket.finish(Err(error));
        }
        pieces.retain(|piece| !piece.bytes().is_empty());
        if pieces.is_empty() {
            return ticket.finish(Ok(()));
        }
        let memory_alignment = self.open.transfer.memory_alignment as usize;
        for piece in &mut pieces {
            // Direct I/O needs aligned memory too; rows always have it, odd pieces take a copy.
            if piece.bytes().as_ptr() as usize % memory_alignment != 0 {
                let copy = Buffer::copy_of(piece.bytes()).share();
                *piece = Piece::new(Arc::clone(&copy), 0..copy.len());
            }
        }
        self.queue.submit(&self.open, Job::Write { offset, pieces, ticket });
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.queue.deadline().is_none() || !self.queue.has_threads() {
            return self.open.flush_data();
        }
        // On a thread that can be left behind.
        let completion = Completion::new();
        self.submit_flush(completion.ticket(0));
        completion.wait().pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn set_deadline(&self, deadline: Option<Deadline>) {
        self.queue.set_deadline(deadline);
    }

    fn silent_for(&self) -> Option<Duration> {
        self.queue.silent_for()
    }

    fn silent_because(&self) -> Option<String> {
        let waited_for = self.queue.waited_for()?;
        Some(format!("it has not answered for {} s; {WAITED_FOR}", waited_for.as_secs()))
    }

    fn submit_flush(&self, ticket: Ticket) {
        self.queue.submit(&self.open, Job::Flush { ticket });
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let open = &self.open;
        if open.access == Access::ReadOnly {
            return Err(DeviceError::ReadOnly { device: open.name.clone() });
        }
        check_range(&open.name, Operation::Discard, offset, length, open.size_bytes)?;
        if length == 0 || !open.is_discard_supported.load(Ordering::Relaxed) {
            return Ok(());
        }
        match system::discard(&open.file, open.kind, offset, length) {
            Ok(is_supported) => {
                open.is_discard_supported.store(is_supported, Ordering::Relaxed);
                Ok(())
            }
            Err(source) => Err(DeviceError::io(&open.name, Operation::Discard, offset, source)),
        }
    }

    fn parallel(&self) -> Option<Arc<dyn Parallel>> {
        parallel::reader_threads()
    }

    fn describe(&self) -> String {
        let open = &self.open;
        let kind = match open.kind {
            Kind::Regular => "regular file",
            Kind::Block => "block device",
        };
        let manner = if open.transfer.is_direct { "direct I/O" } else { "through the page cache" };
        format!("{} ({kind}, {} bytes, {manner}, blocks of {})", open.name, open.size_bytes, self.block_bytes())
    }
}

#[cfg(test)]
mod tests;
