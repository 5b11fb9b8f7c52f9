//! One small read that a non-blocking call leaves for its caller to make (see `io.rs`): where it reads, into which memory, and what of
//! that is wanted. The read owns its memory until the kernel gives it back; nobody waits for it longer than its timeout.
//!
//! Invariant: bytes that have arrived are unverified, so the layer that takes them verifies them.

use crate::buffer::Buffer;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What stands behind a read: the open device, which learns how long it took.
pub trait Source: Send + Sync {
    fn file(&self) -> BorrowedFd<'_>;

    /// The read has ended, well or not; called once.
    fn ended(&self);
}

/// What the layer above calls the bytes.
pub type Name = [u64; 3];

/// A read that is still to be made, is under way, or has arrived.
pub struct PendingRead {
    name: Name,
    source: Box<dyn Source>,
    offset: u64,
    buffer: Buffer,
    /// What of the buffer is wanted; the rest is there for alignment.
    wanted: Range<usize>,
    timeout: Duration,
    /// What counts the read for as long as it lives.
    holds: Option<Box<dyn Send>>,
}

impl PendingRead {
    pub fn new(
        source: Box<dyn Source>,
        offset: u64,
        buffer: Buffer,
        wanted: Range<usize>,
        timeout: Duration,
    ) -> PendingRead {
        assert!(wanted.start <= wanted.end && wanted.end <= buffer.len(), "what is wanted lies in the buffer");
        PendingRead { name: [0; 3], source, offset, buffer, wanted, timeout, holds: None }
    }

    #[must_use]
    pub fn named(mut self, name: Name) -> PendingRead {
        self.name = name;
        self
    }

    #[must_use]
    pub fn holding(mut self, holds: Box<dyn Send>) -> PendingRead {
        self.holds = Some(holds);
        self
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.source.file()
    }

    /// The bytes that are wanted, if this is the read of that name and length.
    pub(crate) fn wanted_of(&self, name: Name, length: usize) -> Option<&[u8]> {
        (self.name == name && self.wanted.len() == length).then(|| &self.buffer[self.wanted.clone()])
    }

    /// Where on the device the buffer is to be filled from.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The memory to be filled, all of it. It stays where it is for as long as this lives, wherever this is moved.
    pub fn memory(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// After this time the bytes are better read in another way.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        self.source.ended();
    }
}

impl std::fmt::Debug for PendingRead {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "PendingRead({} bytes at {})", self.buffer.len(), self.offset)
    }
}
