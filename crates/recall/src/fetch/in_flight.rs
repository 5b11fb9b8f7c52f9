//! One object on its way: what has arrived of it, and those who wait for their parts.
//!
//! What arrives is taken in the order in which it comes, which need not be that of the object: a fetch may begin at the block that its
//! first reader wants. Invariants: who waits is woken when its part is there, not before, and looks now and then whether it still should; a
//! reader gets what it proves itself, and the whole is in order before anybody keeps it. Read next: `kept.rs`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use stere_log::{Io, Segment};

use crate::error::RecallError;
use crate::object::object_bytes;

/// Who wants something farther behind what has arrived asks for it by itself.
const FAR_BYTES: usize = 1 << 20;
/// How often those who wait look whether they still should.
const LOOK: Duration = Duration::from_millis(100);
/// Where pieces arrive all the time, they look after so many of them.
const WOKEN_MAX: u32 = 16;

/// One object on its way, or a range of one.
pub(crate) struct Fetch {
    pub segment: Arc<Segment>,
    /// None for the whole.
    pub(super) range: Option<Range<usize>>,
    /// Where its first reader reads, if the volume begins better there than at the front.
    pub(super) from: usize,
    /// Nobody asked for it yet.
    pub(super) is_ahead: AtomicBool,
    /// If nobody asked for it, it ends.
    pub(super) is_cancelled: AtomicBool,
    pub(super) state: Mutex<State>,
    pub(super) arrived: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// What has arrived, in the order in which it arrived; moves to `whole`.
    pub(super) bytes: Vec<u8>,
    /// Where it begins (in the range): it goes on to the end, and then from the front to here.
    pub(super) from: usize,
    /// Those who wait are woken when so much has arrived, and look: the least that any of them needs.
    pub(super) needed: usize,
    /// All of it, in order, while it is proven; moves to the outcome.
    pub whole: Option<Arc<Vec<u8>>>,
    pub(super) outcome: Option<Result<Arc<Vec<u8>>, RecallError>>,
}

impl State {
    /// What arrives for a volume that begins here.
    pub(super) fn arriving(length: usize, from: usize) -> State {
        State { bytes: Vec::with_capacity(length), from, ..State::default() }
    }

    /// These bytes of so many, if they have arrived; else how far they are behind what has, and with how much they are there.
    fn part(&self, range: Range<usize>, length: usize) -> Result<&[u8], (usize, usize)> {
        let start = if range.start >= self.from { range.start - self.from } else { range.start + length - self.from };
        let is_one_piece = range.start >= self.from || range.end <= self.from;
        let end = if is_one_piece { start + range.len() } else { length };
        let part = if is_one_piece { self.bytes.get(start..end) } else { None };
        part.ok_or((start.saturating_sub(self.bytes.len()), end))
    }

    /// Takes what arrived; whether somebody has to be woken for it.
    pub(super) fn take(&mut self, piece: &[u8]) -> bool {
        self.bytes.extend_from_slice(piece);
        let is_enough = self.bytes.len() >= self.needed;
        if is_enough {
            // Whoever needs more says so again.
            self.needed = usize::MAX;
        }
        is_enough
    }

    /// Puts in order what has arrived, if that is all; readers are served from it meanwhile and no lock is held.
    pub(super) fn complete(&mut self, length: usize) -> Option<Arc<Vec<u8>>> {
        if self.bytes.len() != length {
            return None;
        }
        assert!(self.whole.is_none() && self.outcome.is_none(), "what arrives is put in order once");
        assert!(self.from <= length, "what arrived begins at {} of {length}", self.from);
        self.bytes.rotate_right(std::mem::take(&mut self.from));
        self.whole = Some(Arc::new(std::mem::take(&mut self.bytes)));
        self.whole.clone()
    }
}

/// Copies a part of a chunk that proves itself.
pub(crate) fn give_part(chunk: &[u8], offset: u64, into: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
    let start = offset as usize;
    let part = chunk.get(start..start + into.len()).filter(|part| is_right(part));
    part.map(|part| into.copy_from_slice(part)).is_some()
}

impl Fetch {
    pub(super) fn new(segment: Arc<Segment>, range: Option<Range<usize>>, from: usize) -> Arc<Fetch> {
        assert!(range.is_none() || from == 0, "a range is fetched from its front");
        let (is_ahead, is_cancelled) = (AtomicBool::new(false), AtomicBool::new(false));
        let (state, arrived) = (Mutex::default(), Condvar::new());
        Arc::new(Fetch { segment, range, from, is_ahead, is_cancelled, state, arrived })
    }

    /// Whether nobody asked for it yet.
    pub fn set_ahead(&self, is_ahead: bool) {
        self.is_ahead.store(is_ahead, Ordering::Release);
    }

    /// If nobody asked for it, it ends.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Nobody asked for it, and nobody will, or somebody needs what it takes.
    pub(super) fn is_in_vain(&self) -> bool {
        let is_gone = || self.segment.live_bytes() == 0 || !self.segment.is_released();
        self.is_ahead.load(Ordering::Acquire) && (self.is_cancelled.load(Ordering::Acquire) || is_gone())
    }

    /// A range of a segment's chunk.
    pub fn of_range(segment: Arc<Segment>, range: Range<usize>) -> Arc<Fetch> {
        Fetch::new(segment, Some(range), 0)
    }

    /// Where it begins in the chunk.
    pub(super) fn start(&self) -> usize {
        self.range.as_ref().map_or(0, |range| range.start)
    }

    /// All of it is asked for at once.
    pub fn is_no_more_than(&self, range: &Range<usize>) -> bool {
        self.range.as_ref().is_some_and(|own| range.start <= own.start && own.end <= range.end)
    }

    pub(crate) fn length(&self) -> usize {
        let whole = object_bytes(&self.segment) as usize;
        self.range.as_ref().map_or(whole, |range| range.len())
    }

    pub fn is_over(&self) -> bool {
        self.state.lock().outcome.is_some()
    }

    pub fn has_failed(&self) -> bool {
        self.state.lock().outcome.as_ref().is_some_and(|outcome| outcome.is_err())
    }

    /// Waits for a part; false if it is not right, not to be had from here, far off (unless `is_patient`), or not wanted any more.
    pub fn give(
        &self,
        io: Io<'_>,
        offset: u64,
        into: &mut [u8],
        is_patient: bool,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let Some(start) = (offset as usize).checked_sub(self.start()) else { return false };
        let end = start + into.len();
        let (length, mut state, mut woken) = (self.length(), self.state.lock(), 0);
        loop {
            if let Some(arrived) = state.whole.clone().map(Ok).or_else(|| state.outcome.clone()) {
                drop(state);
                return arrived.is_ok_and(|bytes| give_part(&bytes, start as u64, into, is_right));
            }
            match state.part(start..end, length) {
                Ok(part) => {
                    into.copy_from_slice(part);
                    drop(state);
                    return is_right(into);
                }
                Err((behind, _)) if !is_patient && behind > FAR_BYTES => return false,
                Err((_, needed)) => state.needed = state.needed.min(needed),
            }
            woken += 1;
            if self.arrived.wait_for(&mut state, LOOK).timed_out() || woken >= WOKEN_MAX {
                // Looking takes as long as a piece needs to arrive, and pieces arrive meanwhile.
                woken = 0;
                let is_given_up = MutexGuard::unlocked(&mut state, || io.is_cancelled());
                if is_given_up {
                    return false;
                }
            }
        }
    }

    pub(super) fn wait(&self) -> Result<Arc<Vec<u8>>, RecallError> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            self.arrived.wait(&mut state);
        }
    }
}
