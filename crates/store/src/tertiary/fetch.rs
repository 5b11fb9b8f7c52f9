//! Whole objects, fetched once for all who want them, and kept until they are back on devices.
//!
//! A reader goes on as soon as its range is there: that is proven by the blob map's checksums, as everything that is read. The rest
//! follows behind it, and the whole proves itself before it counts as a chunk. Those who have threads for it lend them
//! (`Store::fetch_for_readers`); where nobody does, or all of them are busy, the reader itself fetches the whole. Invariants: a
//! segment is fetched by one thread at a time; what is kept is whole and proven, and bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use stere_device::Take;
use stere_format::BLOCK_BYTES;
use stere_log::{RecallError, Refusal, Segment};

use super::{Volumes, is_object_of};
use crate::Store;

/// Whole chunks that were fetched lately are kept until they are staged, at most so many bytes of them.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Who wants something farther behind what has arrived asks for it by itself.
const FAR_BYTES: usize = 1 << 20;
/// How often those who wait look whether they still should.
const LOOK: Duration = Duration::from_millis(100);

/// One object on its way.
pub(super) struct Fetch {
    segment: Arc<Segment>,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    /// What has arrived, from the beginning on; moves to the outcome.
    bytes: Vec<u8>,
    outcome: Option<Result<Arc<Vec<u8>>, RecallError>>,
}

#[derive(Default)]
struct Kept {
    chunks: VecDeque<(u64, Arc<Vec<u8>>)>,
    under_way: BTreeMap<u64, Arc<Fetch>>,
}

impl Kept {
    fn chunk(&self, segment: u64) -> Option<Arc<Vec<u8>>> {
        self.chunks.iter().find(|(id, _)| *id == segment).map(|(_, chunk)| chunk.clone())
    }

    fn bytes(&self) -> usize {
        self.chunks.iter().map(|(_, chunk)| chunk.len()).sum()
    }
}

/// Work for those who lend their threads.
#[derive(Default)]
struct Lent {
    asked_for: VecDeque<Arc<Fetch>>,
    idle: usize,
    is_over: bool,
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
    /// Waits for a part; false if it is not right, not to be had from here, far off (unless `is_patient`), or not wanted any more.
    fn give(&self, offset: u64, into: &mut [u8], is_patient: bool, is_right: &dyn Fn(&[u8]) -> bool) -> bool {
        let (start, end) = (offset as usize, offset as usize + into.len());
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.outcome.clone() {
                drop(state);
                return outcome.is_ok_and(|chunk| give_part(&chunk, offset, into, is_right));
            }
            if let Some(part) = state.bytes.get(start..end) {
                into.copy_from_slice(part);
                drop(state);
                return is_right(into);
            }
            if !is_patient && start > state.bytes.len() + FAR_BYTES || stere_device::waiting::is_given_up() {
                return false;
            }
            self.arrived.wait_for(&mut state, LOOK);
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
        self.fetches.kept.lock().under_way.remove(&self.fetch.segment.id);
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
        self.kept.lock().chunk(segment)
    }

    /// Half of what may be kept is taken.
    pub fn are_many_kept(&self) -> bool {
        self.kept.lock().bytes() > KEPT_BYTES_MAX / 2
    }

    fn is_any_under_way(&self) -> bool {
        !self.kept.lock().under_way.is_empty()
    }

    pub fn is_under_way(&self, segment: u64) -> bool {
        self.kept.lock().under_way.contains_key(&segment)
    }

    #[cfg(test)]
    pub fn idle_threads(&self) -> usize {
        self.lent.lock().idle
    }

    pub fn forget(&self, segment: u64) {
        self.kept.lock().chunks.retain(|(id, _)| *id != segment);
    }

    fn begin(&self, segment: &Arc<Segment>) -> Begun {
        let mut kept = self.kept.lock();
        if let Some(chunk) = kept.chunk(segment.id) {
            return Begun::There(chunk);
        }
        if let Some(fetch) = kept.under_way.get(&segment.id) {
            return Begun::Others(fetch.clone());
        }
        let fetch = Fetch { segment: segment.clone(), state: Mutex::default(), arrived: Condvar::new() };
        let fetch = Arc::new(fetch);
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
            return false;
        }
        lent.asked_for.push_back(fetch.clone());
        self.has_work.notify_one();
        true
    }

    fn end(&self, fetch: &Fetch, outcome: Result<(), RecallError>) {
        let mut state = fetch.state.lock();
        let bytes = std::mem::take(&mut state.bytes);
        let outcome = outcome.map(|()| Arc::new(bytes));
        state.outcome = Some(outcome.clone());
        drop(state);
        fetch.arrived.notify_all();
        let Ok(chunk) = outcome else { return };
        let mut kept = self.kept.lock();
        kept.chunks.push_back((fetch.segment.id, chunk));
        let mut bytes = kept.bytes();
        while bytes > KEPT_BYTES_MAX && kept.chunks.len() > 1 {
            bytes -= kept.chunks.pop_front().map_or(0, |(_, chunk)| chunk.len());
        }
    }
}

impl Volumes {
    /// Fetches a whole object, from the first volume that has it right.
    fn run(&self, fetch: &Arc<Fetch>) {
        let ending = Ending { fetches: &self.fetches, fetch };
        let segment = &fetch.segment;
        let length = segment.written_blocks() as usize * BLOCK_BYTES;
        tracing::debug!(segment = segment.id, length, "a whole object is fetched");
        let outcome = self.ask(segment, length, &mut |volume, name| {
            // What another volume gave before was wrong.
            *fetch.state.lock() = State { bytes: Vec::with_capacity(length), outcome: None };
            let arriving = fetch.clone();
            let take: Take = Arc::new(move |piece| {
                arriving.state.lock().bytes.extend_from_slice(piece);
                arriving.arrived.notify_all();
            });
            volume.stream(name, length, &take)?;
            let state = fetch.state.lock();
            Ok(state.bytes.len() == length && is_object_of(self.pool, segment.id, segment.sequence, &state.bytes))
        });
        self.fetches.end(fetch, outcome);
        drop(ending);
    }

    /// The whole chunk, proven: one fetch for all who want it at the same time.
    pub(super) fn whole(&self, segment: &Arc<Segment>) -> Result<Arc<Vec<u8>>, RecallError> {
        match self.fetches.begin(segment) {
            Begun::There(chunk) => Ok(chunk),
            Begun::Others(fetch) => fetch.wait(),
            Begun::Mine(fetch) => {
                self.run(&fetch);
                fetch.wait()
            }
        }
    }

    /// Fetches a segment that nobody asked for yet, if a lent thread is free for it.
    pub(super) fn fetch_ahead(&self, segment: &Arc<Segment>) {
        if !self.fetches.has_idle_thread() {
            return;
        }
        if let Begun::Mine(fetch) = self.fetches.begin(segment) {
            if !self.fetches.hand_over(&fetch) {
                // Somebody was faster. Who joined meanwhile asks for its part by itself.
                drop(Ending { fetches: &self.fetches, fetch: &fetch });
            }
        }
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
        let fetch = match self.fetches.begin(segment) {
            Begun::There(chunk) => return give_part(&chunk, offset, into, is_right),
            Begun::Others(fetch) => fetch,
            Begun::Mine(fetch) => {
                if !self.fetches.hand_over(&fetch) {
                    self.run(&fetch);
                }
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
        loop {
            let mut lent = fetches.lent.lock();
            lent.idle += 1;
            while lent.asked_for.is_empty() && !lent.is_over {
                fetches.has_work.wait(&mut lent);
            }
            lent.idle -= 1;
            // What was handed over is done before the end: somebody waits for it.
            let Some(fetch) = lent.asked_for.pop_front() else { return };
            drop(lent);
            self.volumes.run(&fetch);
        }
    }

    /// Whether whole objects are being fetched now.
    pub fn is_fetching(&self) -> bool {
        self.volumes.fetches.is_any_under_way()
    }

    /// Sends the threads home that were lent.
    pub fn end_fetching(&self) {
        let mut lent = self.volumes.fetches.lent.lock();
        lent.is_over = true;
        // From now on readers fetch by themselves.
        self.volumes.fetches.has_work.notify_all();
    }
}
