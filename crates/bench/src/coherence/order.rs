//! The order that is told beside the file system: a clock that every write and read reads, when each write began and ended, and for each
//! place what a read may show. All are numbers in memory that the threads share; no lock is held during a call.
//!
//! A read may show a write unless another one began after that had ended, and had returned (or was seen by another read that had) before
//! this read began. Read next: `../coherence.rs`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Writes that one run can make.
pub const WRITES_MAX: usize = 1 << 22;
/// A write that has not ended.
const RUNNING: u64 = 0;

/// Begins at 1, so that 0 means never.
pub struct Clock {
    now: AtomicU64,
    writes: AtomicU64,
    began: Vec<AtomicU64>,
    ended: Vec<AtomicU64>,
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Clock {
    pub fn new(writes_max: usize) -> Clock {
        let now = AtomicU64::new(1);
        Clock { now, writes: AtomicU64::new(1), began: zeros(writes_max), ended: zeros(writes_max) }
    }

    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::SeqCst)
    }

    /// A number for what is to be written, in its content; none when all are used.
    pub fn number(&self) -> Option<u64> {
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        (number < self.began.len() as u64).then_some(number)
    }

    /// Before the call.
    pub fn begin(&self, write: u64) {
        self.began[write as usize].store(self.tick(), Ordering::SeqCst);
    }

    /// After the call has returned, and before the places are told.
    pub fn end(&self, write: u64) {
        assert!(self.began(write).is_some(), "write {write} ends and has not begun");
        self.ended[write as usize].store(self.tick(), Ordering::SeqCst);
    }

    fn began(&self, write: u64) -> Option<u64> {
        let began = self.began.get(write as usize)?.load(Ordering::SeqCst);
        (began != 0).then_some(began)
    }
}

/// What a reader has to see at least: taken before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor(u64);

/// One place that is written whole.
#[derive(Default)]
pub struct Place {
    /// When the latest write began that every read from now on shows, or something later.
    floor: AtomicU64,
    /// When the last cut ended that took away what was here, and how many are under way.
    cut_ended: AtomicU64,
    cuts_running: AtomicU32,
}

impl Place {
    pub fn floor(&self) -> Floor {
        Floor(self.floor.load(Ordering::SeqCst))
    }

    /// A write of this place has returned.
    pub fn written(&self, clock: &Clock, write: u64) {
        assert!(clock.ended[write as usize].load(Ordering::SeqCst) != RUNNING, "a write that returned has ended");
        self.floor.fetch_max(clock.began(write).unwrap_or(0), Ordering::SeqCst);
    }

    pub fn cut_begins(&self) {
        self.cuts_running.fetch_add(1, Ordering::SeqCst);
    }

    pub fn cut_ended(&self, clock: &Clock, cut: u64) {
        self.cut_ended.fetch_max(clock.ended[cut as usize].load(Ordering::SeqCst), Ordering::SeqCst);
        self.floor.fetch_max(clock.began(cut).unwrap_or(0), Ordering::SeqCst);
        let running = self.cuts_running.fetch_sub(1, Ordering::SeqCst);
        assert!(running > 0, "a cut ends that has not begun");
    }

    /// Whether a read may show this write. It has shown it then: a read that begins later shows it, or something newer.
    pub fn may_show(&self, clock: &Clock, write: u64, floor: Floor) -> bool {
        let Some(began) = clock.began(write) else { return false };
        let ended = clock.ended[write as usize].load(Ordering::SeqCst);
        let may = ended == RUNNING || ended >= floor.0;
        if may {
            self.floor.fetch_max(began, Ordering::SeqCst);
        }
        may
    }

    /// The same without being seen by others: what a kernel remembers it need not tell.
    pub fn is_fresh(&self, clock: &Clock, write: u64, floor: Floor) -> bool {
        let ended = clock.began(write).map(|_| clock.ended[write as usize].load(Ordering::SeqCst));
        ended.is_some_and(|ended| ended == RUNNING || ended >= floor.0)
    }

    /// Whether a read may show that nothing is here.
    pub fn may_be_empty(&self, floor: Floor) -> bool {
        // In this order: a cut that ends in between has told when by then.
        self.cuts_running.load(Ordering::SeqCst) > 0 || self.cut_ended.load(Ordering::SeqCst) >= floor.0
    }
}

#[cfg(test)]
mod tests {
    //! The judge of P-272.

    use super::*;

    fn written(clock: &Clock, place: &Place) -> u64 {
        let write = clock.number().unwrap();
        clock.begin(write);
        clock.end(write);
        place.written(clock, write);
        write
    }

    #[test]
    fn a_read_shows_the_last_write_that_returned_or_a_newer_one() {
        let (clock, place) = (Clock::new(16), Place::default());
        let first = written(&clock, &place);
        let early = place.floor();
        let second = written(&clock, &place);
        let late = place.floor();
        assert!(place.is_fresh(&clock, first, early) && place.is_fresh(&clock, second, early));
        assert!(!place.may_show(&clock, first, late) && place.may_show(&clock, second, late));
        let third = clock.number().unwrap();
        assert!(!place.may_show(&clock, third, late), "nobody has begun to write it");
        clock.begin(third);
        assert!(place.may_show(&clock, second, late) && place.may_show(&clock, third, late));
        clock.end(third);
        assert!(!place.may_show(&clock, second, place.floor()), "a read has shown the third before this one began");
    }

    #[test]
    fn writes_at_the_same_time_may_come_in_either_order() {
        let (clock, place) = (Clock::new(16), Place::default());
        let (one, other) = (clock.number().unwrap(), clock.number().unwrap());
        [one, other].iter().for_each(|write| clock.begin(*write));
        [one, other].iter().for_each(|write| clock.end(*write));
        [one, other].iter().for_each(|write| place.written(&clock, *write));
        let floor = place.floor();
        assert!(place.is_fresh(&clock, one, floor) && place.is_fresh(&clock, other, floor));
    }

    #[test]
    fn what_was_cut_is_empty_until_it_is_written() {
        let (clock, place) = (Clock::new(16), Place::default());
        assert!(place.may_be_empty(place.floor()));
        let write = written(&clock, &place);
        assert!(!place.may_be_empty(place.floor()));
        let cut = clock.number().unwrap();
        place.cut_begins();
        clock.begin(cut);
        assert!(place.may_be_empty(place.floor()) && place.is_fresh(&clock, write, place.floor()));
        clock.end(cut);
        place.cut_ended(&clock, cut);
        assert!(place.may_be_empty(place.floor()) && !place.may_show(&clock, write, place.floor()));
        written(&clock, &place);
        assert!(!place.may_be_empty(place.floor()));
    }

    #[test]
    fn numbers_end() {
        let clock = Clock::new(2);
        assert_eq!((clock.number(), clock.number()), (Some(1), None));
    }
}
