//! Reads of the file system's own files that the thread of a ring makes beside its requests: it waits on its ring anyway, so a read
//! that a request needs costs no other thread.
//!
//! Invariants: the memory of a read is the kernel's from the moment in which its entry was made until it completes, and the `Reading` is
//! kept for so long, whoever has lost interest; what does not complete before the ring goes is leaked. `finished` is called once;
//! `late` at most once, before it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use io_uring::{opcode, squeue, types};

/// Reads of one thread at the same time.
const READS_MAX: usize = 64;
/// In `user_data`: a read beside requests, and not an entry of the ring.
const OWN: u64 = 1 << 62;

/// A read that a ring's thread makes.
///
/// # Safety
///
/// `memory` is the same memory each time, and stays valid, where it is and untouched, however the value is moved, until `finished` is
/// called or the value is dropped; it is also so if neither ever happens.
pub unsafe trait Reading {
    fn file(&self) -> BorrowedFd<'_>;

    fn offset(&self) -> u64;

    fn memory(&mut self) -> &mut [u8];

    /// From when on it is late.
    fn patience(&self) -> Duration;

    /// It is late; its memory is still not to be touched.
    fn late(&mut self);

    /// It has ended, with so many bytes. Called on the ring's thread, like a handler.
    fn finished(self: Box<Self>, outcome: io::Result<usize>);
}

/// What this thread has been asked to read, and how much more it may be.
struct Asked {
    queue: VecDeque<Box<dyn Reading>>,
    room: usize,
}

thread_local! {
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// How many reads `read_beside` would take now: none on a thread that serves no ring.
pub fn room_beside() -> usize {
    ASKED.with_borrow(|asked| asked.as_ref().map_or(0, |asked| asked.room))
}

/// Has the thread's own ring read. Gives the read back where there is no room for it.
pub fn read_beside(reading: Box<dyn Reading>) -> Result<(), Box<dyn Reading>> {
    ASKED.with_borrow_mut(|asked| match asked.as_mut().filter(|asked| asked.room > 0) {
        None => Err(reading),
        Some(asked) => {
            asked.room -= 1;
            asked.queue.push_back(reading);
            Ok(())
        }
    })
}

pub(super) fn open_to_this_thread() {
    ASKED.set(Some(Asked { queue: VecDeque::new(), room: READS_MAX }));
}

/// What was asked and not begun is dropped.
pub(super) fn close_to_this_thread() {
    drop(ASKED.take());
}

struct UnderWay {
    reading: Box<dyn Reading>,
    deadline: Instant,
    is_late: bool,
}

/// The reads of one ring that are under way.
#[derive(Default)]
pub(super) struct Beside {
    under_way: Vec<Option<UnderWay>>,
    count: usize,
    /// Not later than the first deadline of those that are not late yet.
    first_deadline: Option<Instant>,
}

impl Beside {
    pub fn is_own(data: u64) -> bool {
        data & OWN != 0 && data != super::WAKE
    }

    pub fn is_busy(&self) -> bool {
        self.count > 0
    }

    /// The entry of the next read that was asked for; it is under way from now on, and must be submitted.
    pub fn next_entry(&mut self) -> Option<squeue::Entry> {
        let mut reading = ASKED.with_borrow_mut(|asked| asked.as_mut()?.queue.pop_front())?;
        let place = match self.under_way.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.under_way.push(None);
                self.under_way.len() - 1
            }
        };
        let deadline = Instant::now() + reading.patience();
        let (file, offset) = (types::Fd(reading.file().as_raw_fd()), reading.offset());
        let memory = reading.memory();
        let length = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(file, memory.as_mut_ptr(), length).offset(offset).build();
        self.under_way[place] = Some(UnderWay { reading, deadline, is_late: false });
        self.count += 1;
        let places = self.under_way.len();
        assert!(self.count <= places && places <= READS_MAX, "{} reads are under way in {places} places", self.count);
        self.first_deadline = Some(self.first_deadline.map_or(deadline, |first| first.min(deadline)));
        Some(entry.user_data(OWN | place as u64))
    }

    /// The reading that has completed.
    pub fn take(&mut self, data: u64) -> Option<Box<dyn Reading>> {
        if !Beside::is_own(data) {
            return None;
        }
        let place = usize::try_from(data & !OWN).ok()?;
        let done = self.under_way.get_mut(place)?.take()?;
        assert!(self.count > 0, "a read was under way that was not counted");
        self.count -= 1;
        if self.count == 0 {
            self.first_deadline = None;
        }
        ASKED.with_borrow_mut(|asked| {
            let Some(asked) = asked.as_mut() else { return };
            assert!(asked.room < READS_MAX, "there is room for {} reads while one is under way", asked.room);
            asked.room += 1;
        });
        Some(done.reading)
    }

    pub fn completed(&mut self, data: u64, result: i32) {
        let outcome = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        if let Some(reading) = self.take(data) {
            reading.finished(outcome);
        }
    }

    /// How long nothing is late.
    pub fn patience(&self) -> Option<Duration> {
        self.first_deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Tells those that are late by now.
    pub fn tell_late(&mut self) {
        let Some(first) = self.first_deadline else { return };
        let now = Instant::now();
        if now < first {
            return;
        }
        let waiting = || self.under_way.iter().flatten().filter(|one| !one.is_late);
        self.first_deadline = waiting().map(|one| one.deadline).filter(|deadline| *deadline > now).min();
        for one in self.under_way.iter_mut().flatten() {
            if !one.is_late && one.deadline <= now {
                one.is_late = true;
                one.reading.late();
            }
        }
    }

    /// Leaves what is under way to the kernel for ever.
    pub fn give_up(&mut self) {
        if self.count > 0 {
            tracing::warn!(reads = self.count, "a device does not answer; the memory of its reads is given up");
        }
        self.under_way.drain(..).for_each(std::mem::forget);
        self.count = 0;
        self.first_deadline = None;
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
