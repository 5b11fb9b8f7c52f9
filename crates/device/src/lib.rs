//! Devices: aligned reads, queued writes, flushes; real files and block devices.
//!
//! What is here: the `Device` trait (the edge of the world for all layers above), aligned `Buffer`s and their pool,
//! `Completion`s of queued writes, `file::FileDevice` for regular files and block devices, `memory::MemoryDevice`
//! for tests, `probe` which says what a device holds before a pool is made on it, and
//! `answering` which finds out whether it answers at all.
//!
//! Invariants: a device never grows; a write is an error or is wholly there after the next successful flush; after a
//! failed flush a device takes no more writes (what the failed flush dropped cannot be known). Nothing here knows the format.
//!
//! Read next: `file.rs`, then the stripe crate, which is the only caller of the I/O methods.

pub mod answering;
pub mod buffer;
pub mod completion;
pub mod deadline;
pub mod error;
pub mod file;
pub mod io;
pub mod latency;
pub mod memory;
pub mod parallel;
pub mod pending;
pub mod probe;
pub mod volume;

pub use buffer::{BUFFER_ALIGNMENT_BYTES, Buffer, BufferPool, SharedBuffer};
pub use completion::{Completion, Ticket};
pub use deadline::{Answering, Deadline};
pub use error::{DeviceError, Operation};
pub use file::{Access, FileDevice, FileOptions};
pub use io::{Call, Cancellation, Io};
pub use memory::MemoryDevice;
pub use parallel::{Job, Parallel, processor_threads, reader_threads};
pub use pending::PendingRead;
pub use probe::{ClassGuess, Content, Finding, guess_class, probe, probe_open};
pub use volume::{
    DirectoryVolume, LOOK_BYTES, Medium, MediumWait, MemoryVolume, PIECE_BYTES, Take, Volume, VolumeError, VolumeFault,
    calls_that_are_lost,
};

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// One piece of a scattered read: bytes that are wanted, or bytes between them that are not.
#[derive(Debug)]
pub enum Scatter<'a> {
    /// Read into this slice.
    Into(&'a mut [u8]),
    /// Pass over so many bytes of the device.
    Skip(usize),
}

impl Scatter<'_> {
    /// How many bytes of the device this piece covers.
    pub fn length(&self) -> usize {
        match self {
            Scatter::Into(slice) => slice.len(),
            Scatter::Skip(length) => *length,
        }
    }
}

/// Part of a shared buffer, to be written.
#[derive(Debug, Clone)]
pub struct Piece {
    data: SharedBuffer,
    range: Range<usize>,
}

impl Piece {
    pub fn new(data: SharedBuffer, range: Range<usize>) -> Piece {
        assert!(range.start <= range.end && range.end <= data.len(), "a piece lies within its buffer");
        Piece { data, range }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.data[self.range.clone()]
    }

    /// A part of it; the range is from its own beginning.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Piece {
        assert!(range.end <= self.range.len(), "a part is within its piece");
        Piece::new(self.data.clone(), self.range.start + range.start..self.range.start + range.end)
    }
}

/// How many bytes the pieces have together.
pub fn length_of(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.range.len()).sum()
}

/// One device: an array of bytes which is read synchronously and written through a queue.
///
/// An implementation may run everything inline; callers never rely on a thread being there.
pub trait Device: Send + Sync {
    /// Usable size; constant while the device is open.
    fn size_bytes(&self) -> u64;

    /// Alignment of offset and length of writes, and of reads that want the fast path. A power of two, at most 4096.
    fn block_bytes(&self) -> u32;

    /// Reads exactly `buffer.len()` bytes at any offset. Sees every write whose ticket has finished.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;

    /// Reads consecutive pieces from `offset` on, as one I/O where the device can.
    fn read_scattered(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let mut at = offset;
        for piece in pieces {
            let length = piece.length() as u64;
            if let Scatter::Into(slice) = piece {
                self.read(at, slice)?;
            }
            at += length;
        }
        Ok(())
    }

    /// As `read_scattered`, for callers that can have the bytes elsewhere: `TooSlow` where a device that can tell time has not
    /// given them in the time that is to be expected. What the pieces hold then is not defined.
    fn read_scattered_or_leave(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        self.read_scattered(offset, pieces)
    }

    /// The read of so many bytes, to be made by the caller in its own way (`pending`); none where this kind of device has to do it itself.
    fn pending_read(&self, offset: u64, length: usize) -> Option<PendingRead> {
        let _ = (offset, length);
        None
    }

    /// Queues one write of the pieces, one after the other, at `offset`. The offset and the length of every piece are multiples
    /// of `block_bytes`. The ticket is finished with the outcome, possibly before this returns. Writes that overlap and are
    /// in flight together have no order.
    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket);

    /// Queues a write of `data[range]` at `offset`; as `submit_write_gathered`.
    fn submit_write(&self, offset: u64, data: SharedBuffer, range: Range<usize>, ticket: Ticket) {
        self.submit_write_gathered(offset, vec![Piece::new(data, range)], ticket);
    }

    /// Makes every write whose ticket had finished before this call durable. Once it fails it fails for ever.
    fn flush(&self) -> Result<(), DeviceError>;

    /// A flush that need not hold up the caller; as `flush`, with the outcome in the ticket.
    fn submit_flush(&self, ticket: Ticket) {
        ticket.finish(self.flush());
    }

    /// Says that the contents of a range are no longer needed. Advice: they may or may not read as zeros afterwards.
    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError>;

    /// How long reading or writing 64 KiB takes lately, in microseconds, where the device measures it; 0 where it is not known.
    fn latency_us(&self) -> u32 {
        0
    }

    /// How long a write or flush may take from now on before the device counts as silent and what is asked of it fails; none: as long as it
    /// takes. Kept by devices that can tell time.
    fn set_deadline(&self, deadline: Option<Deadline>) {
        let _ = deadline;
    }

    /// For how long the device has not answered, if calls were given up for that.
    fn silent_for(&self) -> Option<Duration> {
        None
    }

    /// Why the device is silent, where it knows more than that nothing comes back.
    fn silent_because(&self) -> Option<String> {
        None
    }

    /// Whether a device that had failed takes writes again. Other than a flush, it tells nothing of what was written before.
    fn answers(&self) -> Result<(), DeviceError> {
        self.flush()
    }

    /// Another machine is about to write to a range of it.
    fn expect_other_writer(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// Another machine wrote to it, which is not durable before the next flush: where it is lost with a connection, that flush fails.
    fn note_other_writer(&self) {}

    /// What is written is not kept until it is flushed, because another machine flushes it.
    fn leave_flushing_to_others(&self) {}

    /// From now on the device is written as by the owner of this epoch. Whoever keeps the device for several machines (a stere node) hears of
    /// it with the next write, and refuses owners of older epochs from then on. Nothing else is done here, and nothing where nobody keeps it.
    fn set_epoch(&self, epoch: u64) {
        let _ = epoch;
    }

    /// Tells whoever keeps the device what to do with the bytes of a range, in settings `KEY=VALUE` with commas between them; none for nothing.
    /// No byte changes by it, and nobody waits for it. Nothing is done where nobody listens.
    fn tell(&self, offset: u64, length: u64, settings: &str) {
        let _ = (offset, length, settings);
    }

    /// Whether somebody listens to what is told.
    fn hears(&self) -> bool {
        false
    }

    /// Settings of which not all were taken, if there were such.
    fn told_in_vain(&self) -> Option<String> {
        None
    }

    /// The newest epoch that whoever keeps the device knew of when it was opened; 0 for none.
    fn kept_epoch(&self) -> u64 {
        0
    }

    /// A history begins anew on this device: epochs that were there before count no more. Only for a device that is about to be wiped.
    fn forget_epochs(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Threads for reading from several devices at once, if this kind of device has them.
    fn parallel(&self) -> Option<Arc<dyn Parallel>> {
        None
    }

    /// One line for people: path, kind, size, how it is driven.
    fn describe(&self) -> String;

    /// Writes and waits for it. For superblocks, headers and tools, not for the data path.
    fn write(&self, offset: u64, data: SharedBuffer, range: Range<usize>) -> Result<(), DeviceError> {
        let completion = Completion::new();
        self.submit_write(offset, data, range, completion.ticket(0));
        match completion.wait().pop() {
            None => Ok(()),
            Some((_, error)) => Err(error),
        }
    }

    /// `write` of plain bytes, copied into an aligned buffer; the length must still be a multiple of `block_bytes`.
    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write(offset, Arc::new(Buffer::copy_of(bytes)), 0..bytes.len())
    }
}

/// Checks a transfer against the size of a device; every implementation calls it first.
pub fn check_range(
    device: &str,
    operation: Operation,
    offset: u64,
    length: u64,
    size_bytes: u64,
) -> Result<(), DeviceError> {
    match offset.checked_add(length) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(DeviceError::OutOfRange { device: device.to_owned(), operation, offset, length, size_bytes }),
    }
}
