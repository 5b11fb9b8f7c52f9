//! Whole objects, fetched once for all who want them, and kept until they are back on devices.
//!
//! A reader goes on as soon as its range is there (on media that find blocks, the fetch begins with it, and the front follows): that is proven by the blob map's checksums, as everything that is read. The rest
//! follows behind it, and the whole proves itself before it counts as a chunk. Those who have threads for it lend them
//! (`Store::fetch_for_readers`); where nobody does, or all of them are busy, the reader itself fetches the whole. Ranges of segments
//! come the same way, for `beginning.rs`, which keeps them. What nobody asked for yet is fetched when no thread is needed for what somebody
//! did, and kept where there is room for it besides; it ends when somebody needs its thread or its drive, and when nothing of the segment is
//! alive any more. Invariants: a whole segment is fetched by one thread at a time; what is
//! kept is whole and proven, and bounded.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use stere_device::{Take, waiting};
use stere_format::{BLOCK_BYTES, object_name};
use stere_log::{RecallError, Refusal, Segment};

use super::{Volumes, is_object_of};
use crate::Store;

/// Whole chunks that were fetched lately are kept until they are staged, at most so many bytes of them.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// What nobody asked for takes at most so much of that, and only where there is nothing else.
const AHEAD_BYTES_MAX: usize = 32 << 20;
/// So many threads at most fetch what nobody asked for,
const AHEAD_THREADS_MAX: usize = 2;
/// and so many segments wait for them.
const AHEAD_WAITING_MAX: usize = 8;
/// Who wants something farther behind what has arrived asks for it by itself.
const FAR_BYTES: usize = 1 << 20;
/// On media, what begins no farther behind the front is read from there.
const FRONT_BYTES: u64 = 256 << 10;
/// How often those who wait look whether they still should.
const LOOK: Duration = Duration::from_millis(100);
/// Where pieces arrive all the time, they look after so many of them.
const WOKEN_MAX: u32 = 16;

/// One object on its way, or a range of one.
pub(super) struct Fetch {
    segment: Arc<Segment>,
    /// None for the whole.
    range: Option<Range<usize>>,
    /// Where its first reader reads, if the volume begins better there than at the front.
    from: usize,
    /// Nobody asked for it yet.
    is_ahead: AtomicBool,
    /// If nobody asked for it, it ends.
    is_cancelled: AtomicBool,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    /// What has arrived, in the order in which it arrived; moves to `whole`.
    bytes: Vec<u8>,
    /// Where it begins (in the range): it goes on to the end, and then from the front to here.
    from: usize,
    /// Those who wait are woken when so much has arrived, and look: the least that any of them needs.
    needed: usize,
    /// All of it, in order, while it is proven; moves to the outcome.
    whole: Option<Arc<Vec<u8>>>,
    outcome: Option<Result<Arc<Vec<u8>>, RecallError>>,
}

impl State {
    /// What arrives for a volume that begins here.
    fn arriving(length: usize, from: usize) -> State {
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
    fn take(&mut self, piece: &[u8]) -> bool {
        self.bytes.extend_from_slice(piece);
        let is_enough = self.bytes.len() >= self.needed;
        if is_enough {
            // Whoever needs more says so again.
            self.needed = usize::MAX;
        }
        is_enough
    }

    /// Puts in order what has arrived, if that is all; readers are served from it meanwhile and no lock is held.
    fn complete(&mut self, length: usize) -> Option<Arc<Vec<u8>>> {
        if self.bytes.len() != length {
            return None;
        }
        self.bytes.rotate_right(std::mem::take(&mut self.from));
        self.whole = Some(Arc::new(std::mem::take(&mut self.bytes)));
        self.whole.clone()
    }
}

struct Chunk {
    segment: u64,
    bytes: Arc<Vec<u8>>,
    is_ahead: bool,
}

#[derive(Default)]
struct Kept {
    chunks: VecDeque<Chunk>,
    under_way: BTreeMap<u64, Arc<Fetch>>,
}

impl Kept {
    fn chunk(&self, segment: u64) -> Option<Arc<Vec<u8>>> {
        self.chunks.iter().find(|chunk| chunk.segment == segment).map(|chunk| chunk.bytes.clone())
    }

    /// The same for somebody who asks.
    fn chunk_asked_for(&mut self, segment: u64) -> Option<Arc<Vec<u8>>> {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.segment == segment)?;
        chunk.is_ahead = false;
        Some(chunk.bytes.clone())
    }

    fn bytes(&self, is_ahead: bool) -> usize {
        self.chunks.iter().filter(|chunk| chunk.is_ahead == is_ahead).map(|chunk| chunk.bytes.len()).sum()
    }

    /// What nobody asked for makes room for nothing, and goes first.
    fn keep(&mut self, chunk: Chunk) {
        let mut over = (self.bytes(true) + self.bytes(false) + chunk.bytes.len()).saturating_sub(KEPT_BYTES_MAX);
        if chunk.is_ahead && (over > 0 || self.bytes(true) + chunk.bytes.len() > AHEAD_BYTES_MAX) {
            return;
        }
        while over > 0 && !self.chunks.is_empty() {
            let at = self.chunks.iter().position(|chunk| chunk.is_ahead).unwrap_or(0);
            over = over.saturating_sub(self.chunks.remove(at).map_or(0, |chunk| chunk.bytes.len()));
        }
        self.chunks.push_back(chunk);
    }
}

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
}

/// Work for a thread.
enum Work {
    Asked(Arc<Fetch>),
    Ahead(Arc<Segment>),
    Part(Arc<Segment>),
}

#[derive(Default)]
pub(super) struct Fetches {
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

/// Copies a part of a chunk that proves itself.
pub(super) fn give_part(chunk: &[u8], offset: u64, into: &mut [u8], is_right: &dyn Fn(&[u8]) -> bool) -> bool {
    let start = offset as usize;
    let part = chunk.get(start..start + into.len()).filter(|part| is_right(part));
    part.map(|part| into.copy_from_slice(part)).is_some()
}

impl Fetch {
    fn new(segment: Arc<Segment>, range: Option<Range<usize>>, from: usize) -> Arc<Fetch> {
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
    fn is_in_vain(&self) -> bool {
        let is_gone = || self.segment.live_bytes() == 0 || !self.segment.is_released();
        self.is_ahead.load(Ordering::Acquire) && (self.is_cancelled.load(Ordering::Acquire) || is_gone())
    }

    /// A range of a segment's chunk.
    pub fn of_range(segment: Arc<Segment>, range: Range<usize>) -> Arc<Fetch> {
        Fetch::new(segment, Some(range), 0)
    }

    /// Where it begins in the chunk.
    fn start(&self) -> usize {
        self.range.as_ref().map_or(0, |range| range.start)
    }

    /// All of it is asked for at once.
    pub fn is_no_more_than(&self, range: &Range<usize>) -> bool {
        self.range.as_ref().is_some_and(|own| range.start <= own.start && own.end <= range.end)
    }

    fn length(&self) -> usize {
        let whole = self.segment.written_blocks() as usize * BLOCK_BYTES;
        self.range.as_ref().map_or(whole, |range| range.len())
    }

    pub fn is_over(&self) -> bool {
        self.state.lock().outcome.is_some()
    }

    pub fn has_failed(&self) -> bool {
        self.state.lock().outcome.as_ref().is_some_and(|outcome| outcome.is_err())
    }

    /// Waits for a part; false if it is not right, not to be had from here, far off (unless `is_patient`), or not wanted any more.
    pub fn give(&self, offset: u64, into: &mut [u8], is_patient: bool, is_right: &dyn Fn(&[u8]) -> bool) -> bool {
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
                let is_given_up = MutexGuard::unlocked(&mut state, waiting::is_given_up);
                if is_given_up {
                    return false;
                }
            }
        }
    }

    fn wait(&self) -> Result<Arc<Vec<u8>>, RecallError> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            self.arrived.wait(&mut state);
        }
    }
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

    #[cfg(test)]
    pub fn idle_threads(&self) -> usize {
        self.lent.lock().idle
    }

    /// Somebody asks for a segment whole.
    #[cfg(test)]
    pub fn hand_over_for_test(&self, segment: &Arc<Segment>) -> bool {
        self.hand_over(&Fetch::new(segment.clone(), None, 0))
    }

    #[cfg(test)]
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
        let whole = state.whole.take().unwrap_or_default();
        state.bytes = Vec::new();
        let outcome = outcome.map(|()| whole);
        state.outcome = Some(outcome.clone());
        drop(state);
        fetch.arrived.notify_all();
        let Ok(chunk) = outcome else { return };
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
        work
    }

    fn end_ahead(&self) {
        self.lent.lock().at_ahead -= 1;
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
    pub(super) fn run(&self, fetch: &Arc<Fetch>) {
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
                (true, _) => volume.stream_part(name, fetch.start() as u64, length, &take)?,
                (false, 0) => volume.stream(name, length, &take)?,
                (false, from) => {
                    volume.stream_part(name, from as u64, length - from, &take)?;
                    volume.stream_part(name, 0, from, &take)?;
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
    pub(super) fn whole(&self, segment: &Arc<Segment>) -> Result<Arc<Vec<u8>>, RecallError> {
        match self.fetches.begin(segment, 0) {
            Begun::There(chunk) => Ok(chunk),
            Begun::Others(fetch) => fetch.wait(),
            Begun::Mine(fetch) => {
                self.run(&fetch);
                fetch.wait()
            }
        }
    }

    /// Has a segment fetched that nobody asked for yet, when lent threads have nothing else to do.
    pub(super) fn fetch_ahead(&self, segment: &Arc<Segment>) {
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
    pub(super) fn lends_threads(&self) -> bool {
        let lent = self.fetches.lent.lock();
        lent.threads > 0 && !lent.is_over
    }

    /// Nobody needs what nobody asked for.
    pub(super) fn fetch_nothing_ahead(&self) {
        let mut lent = self.fetches.lent.lock();
        lent.ahead.clear();
        lent.parts.clear();
        drop(lent);
        self.fetches.cancel_ahead(&|_| true);
        self.cancel_ranges_ahead();
    }

    fn run_ahead(&self, segment: &Arc<Segment>) {
        let length = segment.written_blocks() as usize * BLOCK_BYTES;
        if !segment.is_released() || self.fetches.is_there(segment.id) || !self.fetches.has_room_ahead(length) {
            return;
        }
        if let Begun::Mine(fetch) = self.fetches.begin(segment, 0) {
            fetch.set_ahead(true);
            self.run_unless_in_vain(&fetch);
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
        waiting::unless(move || this.is_in_vain(), || self.run(fetch));
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
    pub(super) fn run_somewhere(&self, fetch: &Arc<Fetch>) {
        if !self.fetches.hand_over(fetch) {
            self.run(fetch);
        }
    }

    /// Where fetching a whole segment begins for who wants what lies there: at its block, where a medium finds that, if the way from the
    /// front is long.
    fn best_beginning(&self, segment: &Segment, offset: u64) -> usize {
        if offset < FRONT_BYTES || !self.is_on_media(segment.tertiary().there) {
            return 0;
        }
        let name = object_name(segment.id, segment.sequence);
        let (there, _) = self.reachable(segment.tertiary().there);
        let begins = there.first().and_then(|(_, volume)| volume.begins_at(&name, offset));
        begins.filter(|from| *from <= offset).unwrap_or(0) as usize
    }

    /// Gives a reader its part of a segment that is fetched whole, as soon as it is there; false if it has to ask for the part.
    pub(super) fn give_from_whole(
        &self,
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
                self.run_somewhere(&fetch);
                fetch
            }
        };
        fetch.give(offset, into, is_patient, is_right)
    }
}

impl Store {
    /// Lends this thread to readers of what is on volumes only, until `end_fetching`.
    pub fn fetch_for_readers(&self) {
        let fetches = &self.volumes.fetches;
        fetches.lent.lock().threads += 1;
        while let Some(work) = fetches.next_work() {
            match work {
                Work::Asked(fetch) => self.volumes.run_unless_in_vain(&fetch),
                Work::Ahead(segment) => {
                    self.volumes.run_ahead(&segment);
                    fetches.end_ahead();
                }
                Work::Part(segment) => {
                    self.volumes.run_part(&segment);
                    fetches.end_ahead();
                }
            }
        }
        fetches.lent.lock().threads -= 1;
    }

    /// Whether anybody lends a thread to readers of what is on volumes only.
    pub fn lends_threads(&self) -> bool {
        self.volumes.lends_threads()
    }

    /// Whether whole objects are being fetched now.
    pub fn is_fetching(&self) -> bool {
        self.volumes.fetches.is_any_under_way() || self.volumes.is_any_range_under_way()
    }

    /// Sends the threads home that were lent.
    pub fn end_fetching(&self) {
        let fetches = &self.volumes.fetches;
        let mut lent = fetches.lent.lock();
        lent.is_over = true;
        drop(lent);
        fetches.cancel_ahead(&|_| true);
        self.volumes.cancel_ranges_ahead();
        // From now on readers fetch by themselves.
        fetches.has_work.notify_all();
    }
}

#[cfg(test)]
mod tests;
