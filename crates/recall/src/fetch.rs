//! Whole objects, fetched once for all who want them, and kept until they are back on devices.
//!
//! A reader goes on as soon as its range is there (on media that find blocks, the fetch begins with it, and the front follows): that is proven by the blob map's checksums, as everything that is read. The rest
//! follows behind it, and the whole proves itself before it counts as a chunk. Those who have threads for it lend them
//! (`Recalls::fetch_for_readers`); where nobody does, or all of them are busy, the reader itself fetches the whole. Ranges of segments
//! come the same way, for `beginning.rs`, which keeps them. What nobody asked for yet is fetched when no thread is needed for what somebody
//! did, and kept where there is room for it besides; it ends when somebody needs its thread or its drive, and when nothing of the segment is
//! alive any more. Invariants: a whole segment is fetched by one thread at a time; what is
//! kept is whole and proven, and bounded. Read next: `fetch/in_flight.rs`, `fetch/kept.rs`.

mod in_flight;
mod kept;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};
use stere_device::{Cancellation, Take};
use stere_faults::{Bug, is_planted};
use stere_log::{Io, Segment};

use super::{RecallError, Refusal, Volumes};
use crate::object::{is_object_of, object_bytes, object_of};
use in_flight::State;
pub(super) use in_flight::{Fetch, give_part};
use kept::{AHEAD_BYTES_MAX, Chunk, KEPT_BYTES_MAX, Kept};

/// So many threads at most fetch what nobody asked for,
const AHEAD_THREADS_MAX: usize = 2;
/// and so many segments wait for them.
const AHEAD_WAITING_MAX: usize = 8;
/// On media, what begins no farther behind the front is read from there.
const FRONT_BYTES: u64 = 256 << 10;

/// Work for those who lend their threads.
#[derive(Default)]
struct Lent {
    asked_for: VecDeque<Arc<Fetch>>,
    /// What nobody asked for yet, and how many are at that.
    ahead: VecDeque<Arc<Segment>>,
    /// The same of segments of which a part is wanted.
    parts: VecDeque<Arc<Segment>>,
    at_ahead: usize,
    threads: usize,
    idle: usize,
    is_over: bool,
}

impl Lent {
    fn has_ahead(&self) -> bool {
        !(self.ahead.is_empty() && self.parts.is_empty()) && self.at_ahead < AHEAD_THREADS_MAX
    }

    fn assert_invariants(&self) {
        let (asked_for, idle) = (self.asked_for.len(), self.idle);
        assert!(asked_for <= idle, "{asked_for} fetches were handed over to {idle} idle threads");
        assert!(self.at_ahead <= AHEAD_THREADS_MAX, "{} threads fetch ahead", self.at_ahead);
    }
}

/// Work for a thread.
enum Work {
    Asked(Arc<Fetch>),
    Ahead(Arc<Segment>),
    Part(Arc<Segment>),
}

#[derive(Default)]
pub struct Fetches {
    kept: Mutex<Kept>,
    lent: Mutex<Lent>,
    has_work: Condvar,
}

/// Who has the chunk, or will.
enum Begun {
    There(Arc<Vec<u8>>),
    /// The caller has to see to it.
    Mine(Arc<Fetch>),
    Others(Arc<Fetch>),
}

/// Whatever becomes of who fetches, nobody waits for ever.
struct Ending<'a> {
    fetches: &'a Fetches,
    fetch: &'a Fetch,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.fetch.range.is_none() {
            self.fetches.kept.lock().under_way.remove(&self.fetch.segment.id);
        }
        let mut state = self.fetch.state.lock();
        if state.outcome.is_none() {
            let text = "whoever fetched it gave up".to_owned();
            state.outcome = Some(Err(RecallError::Refused(Refusal::Later, text)));
        }
        drop(state);
        self.fetch.arrived.notify_all();
    }
}

impl Fetches {
    /// A whole chunk that is in memory.
    pub fn kept(&self, segment: u64) -> Option<Arc<Vec<u8>>> {
        self.kept.lock().chunk_asked_for(segment)
    }

    /// Half of what may be kept is taken.
    pub fn are_many_kept(&self) -> bool {
        self.kept.lock().bytes(false) > KEPT_BYTES_MAX / 2
    }

    fn is_any_under_way(&self) -> bool {
        !self.kept.lock().under_way.is_empty()
    }

    pub fn is_under_way(&self, segment: u64) -> bool {
        self.kept.lock().under_way.contains_key(&segment)
    }

    /// All of it is in memory, or will be.
    pub fn is_there(&self, segment: u64) -> bool {
        let kept = self.kept.lock();
        kept.under_way.contains_key(&segment) || kept.chunk(segment).is_some()
    }

    /// Lent threads that wait for work.
    pub fn idle_threads(&self) -> usize {
        self.lent.lock().idle
    }

    /// Hands a segment over as if somebody asked for all of it; false if no lent thread is idle. For tests.
    pub fn would_hand_over(&self, segment: &Arc<Segment>) -> bool {
        self.hand_over(&Fetch::new(segment.clone(), None, 0))
    }

    /// Threads may be lent again after `end_fetching`. For tests, in which one pool is used several times.
    pub fn reopen(&self) {
        self.lent.lock().is_over = false;
    }

    pub fn forget(&self, segment: u64) {
        self.kept.lock().chunks.retain(|chunk| chunk.segment != segment);
    }

    fn begin(&self, segment: &Arc<Segment>, from: usize) -> Begun {
        let mut kept = self.kept.lock();
        if let Some(chunk) = kept.chunk_asked_for(segment.id) {
            return Begun::There(chunk);
        }
        if let Some(fetch) = kept.under_way.get(&segment.id) {
            fetch.set_ahead(false);
            return Begun::Others(fetch.clone());
        }
        let fetch = Fetch::new(segment.clone(), None, from);
        kept.under_way.insert(segment.id, fetch.clone());
        Begun::Mine(fetch)
    }

    fn has_idle_thread(&self) -> bool {
        let lent = self.lent.lock();
        lent.asked_for.len() < lent.idle
    }

    /// Hands a fetch to a lent thread; false if none is idle.
    fn hand_over(&self, fetch: &Arc<Fetch>) -> bool {
        let mut lent = self.lent.lock();
        if lent.asked_for.len() >= lent.idle {
            drop(lent);
            // The next who asks finds a thread.
            self.cancel_ahead(&|_| true);
            return false;
        }
        lent.asked_for.push_back(fetch.clone());
        lent.assert_invariants();
        self.has_work.notify_one();
        true
    }

    /// Ends what is under way of such segments and nobody asked for.
    fn cancel_ahead(&self, is_one: &dyn Fn(&Segment) -> bool) {
        for fetch in self.kept.lock().under_way.values().filter(|fetch| is_one(&fetch.segment)) {
            fetch.cancel();
        }
    }

    fn end(&self, fetch: &Fetch, outcome: Result<(), RecallError>) {
        let mut state = fetch.state.lock();
        assert!(state.outcome.is_none(), "a fetch of segment {} ends twice", fetch.segment.id);
        let whole = state.whole.take().unwrap_or_default();
        state.bytes = Vec::new();
        let outcome = outcome.map(|()| whole);
        state.outcome = Some(outcome.clone());
        drop(state);
        fetch.arrived.notify_all();
        let Ok(chunk) = outcome else { return };
        assert_eq!(chunk.len(), fetch.length(), "a fetch ends well with all of its bytes");
        if fetch.range.is_some() {
            return;
        }
        let is_ahead = fetch.is_ahead.load(Ordering::Acquire);
        self.kept.lock().keep(Chunk { segment: fetch.segment.id, bytes: chunk, is_ahead });
    }

    /// What somebody asked for comes first; none at the end.
    fn next_work(&self) -> Option<Work> {
        let mut lent = self.lent.lock();
        lent.idle += 1;
        while lent.asked_for.is_empty() && !lent.has_ahead() && !lent.is_over {
            self.has_work.wait(&mut lent);
        }
        lent.idle -= 1;
        // What was handed over is done before the end: somebody waits for it.
        if let Some(fetch) = lent.asked_for.pop_front() {
            return Some(Work::Asked(fetch));
        }
        if lent.is_over {
            return None;
        }
        let work = lent.parts.pop_front().map(Work::Part);
        let work = work.or_else(|| lent.ahead.pop_front().map(Work::Ahead));
        lent.at_ahead += usize::from(work.is_some());
        lent.assert_invariants();
        work
    }

    fn end_ahead(&self) {
        {
            let mut lent = self.lent.lock();
            assert!(lent.at_ahead > 0, "who ends fetching ahead has begun it");
            lent.at_ahead -= 1;
        }
        self.has_work.notify_one();
    }

    /// Whether there is room for one more segment that nobody asked for.
    fn has_room_ahead(&self, bytes: usize) -> bool {
        let kept = self.kept.lock();
        let ahead = kept.bytes(true) + bytes;
        ahead <= AHEAD_BYTES_MAX && ahead + kept.bytes(false) <= KEPT_BYTES_MAX
    }
}

impl Volumes {
    /// Fetches a whole object, from the first volume that has it right.
    pub(super) fn run(&self, fetch: &Arc<Fetch>, cancellation: &Cancellation) {
        let ending = Ending { fetches: &self.fetches, fetch };
        let segment = &fetch.segment;
        let length = fetch.length();
        let from = if fetch.from < length { fetch.from } else { 0 };
        tracing::debug!(segment = segment.id, start = fetch.start(), length, "an object is fetched");
        let outcome = self.ask(segment, length, &mut |volume, name| {
            // What another volume gave before was wrong.
            *fetch.state.lock() = State::arriving(length, from);
            let arriving = fetch.clone();
            let take: Take = Arc::new(move |piece| {
                let is_enough = arriving.state.lock().take(piece);
                if is_enough {
                    arriving.arrived.notify_all();
                }
            });
            match (fetch.range.is_some(), from) {
                (true, _) => volume.stream_part(name, fetch.start() as u64, length, &take, cancellation)?,
                (false, 0) => volume.stream(name, length, &take, cancellation)?,
                (false, from) => {
                    volume.stream_part(name, from as u64, length - from, &take, cancellation)?;
                    volume.stream_part(name, 0, from, &take, cancellation)?;
                }
            }
            let Some(whole) = fetch.state.lock().complete(length) else { return Ok(false) };
            fetch.arrived.notify_all();
            // Readers prove what they get; what is to be kept is proven as a whole.
            Ok(fetch.range.is_some() || is_object_of(self.pool, segment.id, segment.sequence, &whole))
        });
        self.fetches.end(fetch, outcome);
        drop(ending);
    }

    /// The whole chunk, proven: one fetch for all who want it at the same time.
    pub fn whole(&self, segment: &Arc<Segment>) -> Result<Arc<Vec<u8>>, RecallError> {
        match self.fetches.begin(segment, 0) {
            Begun::There(chunk) => Ok(chunk),
            Begun::Others(fetch) => fetch.wait(),
            Begun::Mine(fetch) => {
                self.run(&fetch, &Cancellation::NONE);
                fetch.wait()
            }
        }
    }

    /// Has a segment fetched that nobody asked for yet, when lent threads have nothing else to do.
    pub fn fetch_ahead(&self, segment: &Arc<Segment>) {
        if self.fetches.is_there(segment.id) {
            return;
        }
        let mut lent = self.fetches.lent.lock();
        let is_known = lent.ahead.iter().any(|waiting| waiting.id == segment.id);
        if lent.threads == 0 || lent.is_over || is_known || lent.ahead.len() >= AHEAD_WAITING_MAX {
            return;
        }
        lent.ahead.push_back(segment.clone());
        self.fetches.has_work.notify_one();
    }

    /// The same for what is wanted of a segment that belongs to what somebody asked for; as many as were told.
    pub(super) fn fetch_part_ahead(&self, segment: &Arc<Segment>) {
        let mut lent = self.fetches.lent.lock();
        if !lent.is_over {
            lent.parts.push_back(segment.clone());
            self.fetches.has_work.notify_one();
        }
    }

    /// Whether anybody fetches for readers.
    pub fn lends_threads(&self) -> bool {
        let lent = self.fetches.lent.lock();
        lent.threads > 0 && !lent.is_over
    }

    /// Nobody needs what nobody asked for.
    pub fn fetch_nothing_ahead(&self) {
        let mut lent = self.fetches.lent.lock();
        lent.ahead.clear();
        lent.parts.clear();
        drop(lent);
        self.fetches.cancel_ahead(&|_| true);
        self.cancel_ranges_ahead();
    }

    fn run_ahead(&self, segment: &Arc<Segment>) {
        let length = object_bytes(segment) as usize;
        if !segment.is_released() || self.fetches.is_there(segment.id) || !self.fetches.has_room_ahead(length) {
            return;
        }
        if let Begun::Mine(fetch) = self.fetches.begin(segment, 0) {
            fetch.set_ahead(true);
            self.run_unless_in_vain(&fetch);
            if is_planted(Bug::AheadToDevices) {
                self.want_again(segment.id);
            }
        }
    }

    /// Nothing, if readers have asked for the part meanwhile.
    fn run_part(&self, segment: &Arc<Segment>) {
        if !segment.is_released() || self.fetches.is_there(segment.id) {
            return;
        }
        if let Some((fetch, true)) = self.begin_part_ahead(segment) {
            self.run_unless_in_vain(&fetch);
        }
    }

    /// For a thread that is nobody's own.
    fn run_unless_in_vain(&self, fetch: &Arc<Fetch>) {
        let this = fetch.clone();
        self.run(fetch, &Cancellation::when(move || this.is_in_vain()));
    }

    pub(super) fn has_idle_thread(&self) -> bool {
        self.fetches.has_idle_thread()
    }

    /// Has it fetched by a lent thread; if none is free, who joined meanwhile asks for its part by itself, and this is false.
    pub(super) fn hand_over_or_end(&self, fetch: &Arc<Fetch>) -> bool {
        let is_handed_over = self.fetches.hand_over(fetch);
        if !is_handed_over {
            drop(Ending { fetches: &self.fetches, fetch });
        }
        is_handed_over
    }

    /// Has it fetched by a lent thread, or fetches it.
    pub(super) fn run_somewhere(&self, io: Io<'_>, fetch: &Arc<Fetch>) {
        if !self.fetches.hand_over(fetch) {
            self.run(fetch, &io.cancellation());
        }
    }

    /// Where fetching a whole segment begins for who wants what lies there: at its block, where a medium finds that, if the way from the
    /// front is long.
    fn best_beginning(&self, segment: &Segment, offset: u64) -> usize {
        if offset < FRONT_BYTES || !self.is_on_media(segment.tertiary().there) {
            return 0;
        }
        let name = object_of(segment);
        let (there, _) = self.reachable(segment.tertiary().there);
        let begins = there.first().and_then(|(_, volume)| volume.begins_at(&name, offset));
        begins.filter(|from| *from <= offset).unwrap_or(0) as usize
    }

    /// Gives a reader its part of a segment that is fetched whole, as soon as it is there; false if it has to ask for the part.
    pub(super) fn give_from_whole(
        &self,
        io: Io<'_>,
        segment: &Arc<Segment>,
        offset: u64,
        into: &mut [u8],
        is_patient: bool,
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> bool {
        let fetch = match self.fetches.begin(segment, self.best_beginning(segment, offset)) {
            Begun::There(chunk) => return give_part(&chunk, offset, into, is_right),
            Begun::Others(fetch) => fetch,
            Begun::Mine(fetch) => {
                // A drive does one thing at a time.
                self.fetches.cancel_ahead(&|ahead| self.is_on_media(ahead.tertiary().there));
                self.run_somewhere(io, &fetch);
                fetch
            }
        };
        fetch.give(io, offset, into, is_patient, is_right)
    }

    /// Lends this thread to readers of what is on volumes only, until `end_fetching`.
    pub fn fetch_for_readers(&self) {
        let fetches = &self.fetches;
        fetches.lent.lock().threads += 1;
        while let Some(work) = fetches.next_work() {
            match work {
                Work::Asked(fetch) => self.run_unless_in_vain(&fetch),
                Work::Ahead(segment) => {
                    self.run_ahead(&segment);
                    fetches.end_ahead();
                }
                Work::Part(segment) => {
                    self.run_part(&segment);
                    fetches.end_ahead();
                }
            }
        }
        let mut lent = fetches.lent.lock();
        assert!(lent.threads > 0, "who goes was lent");
        lent.threads -= 1;
    }

    /// As if a thread were lent for what nobody asked for yet, or no more; what it would do, `fetch_one_ahead` does.
    pub fn fetch_ahead_in_steps(&self, is_lent: bool) {
        let mut lent = self.fetches.lent.lock();
        lent.threads = if is_lent { lent.threads + 1 } else { lent.threads.saturating_sub(1) };
    }

    /// Fetches one of the segments that nobody asked for yet, if any is to be fetched; tells which.
    pub fn fetch_one_ahead(&self) -> Option<u64> {
        let segment = self.fetches.lent.lock().ahead.pop_front()?;
        self.run_ahead(&segment);
        Some(segment.id)
    }

    /// Whether whole objects are being fetched now.
    pub fn is_fetching(&self) -> bool {
        self.fetches.is_any_under_way() || self.is_any_range_under_way()
    }

    /// Sends the threads home that were lent.
    pub fn end_fetching(&self) {
        let fetches = &self.fetches;
        let mut lent = fetches.lent.lock();
        lent.is_over = true;
        drop(lent);
        fetches.cancel_ahead(&|_| true);
        self.cancel_ranges_ahead();
        // From now on readers fetch by themselves.
        fetches.has_work.notify_all();
    }
}

#[cfg(test)]
mod tests;
