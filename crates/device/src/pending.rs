//! Reads that a call leaves for its caller to make: of one that may not wait, but could end at once with the bytes.
//!
//! A thread that serves requests may not wait for a device, and handing each such request to a thread that may costs two switches, as
//! much as the rest of a small read. So it `collect`s what the call would have read, makes these reads in its own way (an io_uring that it
//! waits on anyway), and repeats the call `with` what has arrived. That is told per thread: the call is many layers above the devices.
//! Whoever makes a read owns its memory until the kernel gives it back; nobody waits for it longer than its `patience`.
//!
//! Invariants: a call that collects reads nothing itself; bytes that have arrived are unverified, so who takes them verifies.

use crate::buffer::Buffer;
use std::cell::RefCell;
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
    patience: Duration,
    /// What counts the read for as long as it lives.
    holds: Option<Box<dyn Send>>,
}

impl PendingRead {
    pub fn new(
        source: Box<dyn Source>,
        offset: u64,
        buffer: Buffer,
        wanted: Range<usize>,
        patience: Duration,
    ) -> PendingRead {
        assert!(wanted.start <= wanted.end && wanted.end <= buffer.len(), "what is wanted lies in the buffer");
        PendingRead { name: [0; 3], source, offset, buffer, wanted, patience, holds: None }
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

    /// Where on the device the buffer is to be filled from.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The memory to be filled, all of it. It stays where it is for as long as this lives, wherever this is moved.
    pub fn memory(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// After so long the bytes are better had in another way.
    pub fn patience(&self) -> Duration {
        self.patience
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

enum Mode {
    Off,
    Collecting(Vec<PendingRead>),
    Arrived(Vec<PendingRead>),
}

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Off) };
}

/// Switches off again, also where the work panics.
struct Reset;

impl Drop for Reset {
    fn drop(&mut self) {
        MODE.with(|mode| *mode.borrow_mut() = Mode::Off);
    }
}

/// Works; a call that would have to wait for reads leaves them here.
pub fn collect<T>(work: impl FnOnce() -> T) -> (T, Vec<PendingRead>) {
    MODE.with(|mode| *mode.borrow_mut() = Mode::Collecting(Vec::new()));
    let _reset = Reset;
    let outcome = work();
    match MODE.with(|mode| std::mem::replace(&mut *mode.borrow_mut(), Mode::Off)) {
        Mode::Collecting(reads) => (outcome, reads),
        _ => (outcome, Vec::new()),
    }
}

/// Works again, with what has arrived.
pub fn with<T>(arrived: Vec<PendingRead>, work: impl FnOnce() -> T) -> T {
    MODE.with(|mode| *mode.borrow_mut() = Mode::Arrived(arrived));
    let _reset = Reset;
    work()
}

pub fn is_collecting() -> bool {
    MODE.with(|mode| matches!(&*mode.borrow(), Mode::Collecting(_)))
}

/// Leaves reads for whoever collects them, who repeats the call when all have arrived.
pub fn leave(mut reads: Vec<PendingRead>) {
    MODE.with(|mode| match &mut *mode.borrow_mut() {
        Mode::Collecting(collected) => collected.append(&mut reads),
        _ => unreachable!("somebody collects"),
    });
}

/// Has a look at the bytes of this name and length, if they have arrived.
pub fn look<T>(name: Name, length: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
    MODE.with(|mode| {
        let Mode::Arrived(arrived) = &*mode.borrow() else { return None };
        let read = arrived.iter().find(|read| read.name == name && read.wanted.len() == length)?;
        Some(look(&read.buffer[read.wanted.clone()]))
    })
}

#[cfg(test)]
mod tests;
