//! What the calls on one subject are like: counts, sizes, latencies, times between arrivals, jumps, reuse, dependence.
//!
//! A subject is whatever the caller counts by: a volume, class, subtree, client, device or medium. Invariants: a profile is of
//! fixed size, below 32 KiB, however many calls it saw; `merge` adds everything that can be added. A call that failed counts as a
//! call and an error, and moves no bytes. Two profiles that saw the same calls in the same order are the same. Read next:
//! `histogram.rs`, `dependence.rs`, `reuse.rs`, and `subjects.rs` for many of them.

use crate::call::{Call, CallKind, KINDS};
use crate::dependence::Dependence;
use crate::distinct::{Distinct, mixed};
use crate::histogram::Histogram;
use crate::recent::{Jump, RecentFiles};
use crate::reuse::Reuse;

/// A time that is earlier by at most this comes from another thread, not from a clock that was put back.
const LATE_NS: u64 = 1_000_000_000;
/// A write of less than this over what was written before is a small overwrite.
pub const SMALL_BYTES: u64 = 64 << 10;

/// What the calls of one kind came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindFigures {
    pub calls: u64,
    pub errors: u64,
    pub bytes: u64,
    pub latencies_ns: Histogram,
}

/// How requests for data lie to those before them in the same file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Begins where the last one ended.
    pub sequential: u64,
    /// Begins behind it.
    pub forward: u64,
    /// Begins before it.
    pub backward: u64,
    /// First request of a file, or the first for long.
    pub first: u64,
}

impl Order {
    /// Share of sequential ones among those that follow another one of their file; none where there are none.
    pub fn sequential_share(&self) -> Option<f64> {
        let all = self.sequential + self.forward + self.backward;
        (all > 0).then(|| self.sequential as f64 / all as f64)
    }

    fn note(&mut self, jump: Jump) {
        match jump {
            Jump::First => self.first += 1,
            Jump::None => self.sequential += 1,
            Jump::Forward(_) => self.forward += 1,
            Jump::Backward(_) => self.backward += 1,
        }
    }

    fn merge(&mut self, other: &Order) {
        self.sequential += other.sequential;
        self.forward += other.forward;
        self.backward += other.backward;
        self.first += other.first;
    }
}

/// What the calls on one subject are like.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    kinds: [KindFigures; KINDS],
    /// Between one call and the next: of data, and of metadata.
    arrivals_ns: [Histogram; 2],
    last_ns: [Option<u64>; 2],
    first_ns: Option<u64>,
    newest_ns: u64,
    /// Times that the clock was put back by more than a second.
    clock_steps: u64,
    read_bytes: Histogram,
    write_bytes: Histogram,
    read_order: Order,
    write_order: Order,
    handle_order: Order,
    forward_bytes: Histogram,
    backward_bytes: Histogram,
    /// Writes of less than 64 KiB that begin before the end of the last request of their file.
    small_overwrites: u64,
    in_flight: Histogram,
    lifetimes_ms: Histogram,
    files: Distinct,
    streams: Distinct,
    recent: RecentFiles,
    /// The same by file and stream: many writers of one file may each be sequential.
    recent_handles: RecentFiles,
    reuse: Reuse,
    dependence: Dependence,
}

impl Profile {
    /// Notes one call. Constant time; no memory is allocated.
    pub fn note(&mut self, call: &Call) {
        let is_data = call.kind.is_data();
        let figures = &mut self.kinds[call.kind as usize];
        figures.calls += 1;
        figures.latencies_ns.note(call.latency_ns);
        self.note_arrival(call.at_ns, usize::from(!is_data));
        if call.in_flight > 0 {
            self.in_flight.note(u64::from(call.in_flight));
        }
        let file_hash = mixed(call.file);
        self.files.note(file_hash);
        self.streams.note(mixed(call.stream));
        if call.result != 0 {
            self.kinds[call.kind as usize].errors += 1;
        } else if is_data {
            self.note_data(call, file_hash);
        } else if call.age_ms > 0 {
            self.lifetimes_ms.note(call.age_ms);
        }
    }

    #[inline]
    fn note_arrival(&mut self, at_ns: u64, which: usize) {
        self.dependence.note(at_ns);
        let last = self.last_ns[which];
        match last {
            Some(last) if last > at_ns && last - at_ns > LATE_NS => {
                self.clock_steps += 1;
                self.last_ns = [None; 2];
                self.last_ns[which] = Some(at_ns);
            }
            Some(last) => {
                self.arrivals_ns[which].note(at_ns.saturating_sub(last));
                self.last_ns[which] = Some(last.max(at_ns));
            }
            None => self.last_ns[which] = Some(at_ns),
        }
        self.first_ns = Some(self.first_ns.map_or(at_ns, |first| first.min(at_ns)));
        self.newest_ns = self.newest_ns.max(at_ns);
    }

    #[inline]
    fn note_data(&mut self, call: &Call, file_hash: u64) {
        let is_write = call.kind == CallKind::Write;
        let bytes = &mut self.kinds[call.kind as usize].bytes;
        // A trace may say any length.
        *bytes = bytes.saturating_add(call.length);
        let jump = self.recent.note(call.file, file_hash, call.offset, call.length);
        let handle = mixed(file_hash ^ call.stream);
        self.handle_order.note(self.recent_handles.note(handle, handle, call.offset, call.length));
        match jump {
            Jump::Forward(bytes) => self.forward_bytes.note(bytes),
            Jump::Backward(bytes) => self.backward_bytes.note(bytes),
            Jump::First | Jump::None => {}
        }
        if is_write {
            self.write_bytes.note(call.length);
            self.write_order.note(jump);
            self.small_overwrites += u64::from(call.length < SMALL_BYTES && matches!(jump, Jump::Backward(_)));
        } else {
            self.read_bytes.note(call.length);
            self.read_order.note(jump);
        }
        self.reuse.note(file_hash, call.offset, call.length);
    }

    /// Adds what another profile saw. What was going on in each (open bins, files used last) stays that of `self`.
    pub fn merge(&mut self, other: &Profile) {
        let calls = self.calls() + other.calls();
        for (figures, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            figures.calls += theirs.calls;
            figures.errors += theirs.errors;
            figures.bytes = figures.bytes.saturating_add(theirs.bytes);
            figures.latencies_ns.merge(&theirs.latencies_ns);
        }
        for (arrivals, theirs) in self.arrivals_ns.iter_mut().zip(&other.arrivals_ns) {
            arrivals.merge(theirs);
        }
        self.first_ns = [self.first_ns, other.first_ns].into_iter().flatten().min();
        self.newest_ns = self.newest_ns.max(other.newest_ns);
        self.clock_steps += other.clock_steps;
        self.read_bytes.merge(&other.read_bytes);
        self.write_bytes.merge(&other.write_bytes);
        self.read_order.merge(&other.read_order);
        self.write_order.merge(&other.write_order);
        self.handle_order.merge(&other.handle_order);
        self.forward_bytes.merge(&other.forward_bytes);
        self.backward_bytes.merge(&other.backward_bytes);
        self.small_overwrites += other.small_overwrites;
        self.in_flight.merge(&other.in_flight);
        self.lifetimes_ms.merge(&other.lifetimes_ms);
        self.files.merge(&other.files);
        self.streams.merge(&other.streams);
        self.reuse.merge(&other.reuse);
        self.dependence.merge(&other.dependence);
        assert_eq!(self.calls(), calls, "a merge loses no calls");
    }

    pub fn kind(&self, kind: CallKind) -> &KindFigures {
        &self.kinds[kind as usize]
    }

    pub fn calls(&self) -> u64 {
        self.kinds.iter().map(|figures| figures.calls).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.calls() == 0
    }

    /// Reads and writes.
    pub fn data_calls(&self) -> u64 {
        self.kind(CallKind::Read).calls + self.kind(CallKind::Write).calls
    }

    /// Everything but reads and writes.
    pub fn metadata_calls(&self) -> u64 {
        let (calls, data) = (self.calls(), self.data_calls());
        assert!(data <= calls, "{data} calls of {calls}");
        calls - data
    }

    /// Share of reads among reads and writes.
    pub fn read_share(&self) -> Option<f64> {
        let calls = self.data_calls();
        (calls > 0).then(|| self.kind(CallKind::Read).calls as f64 / calls as f64)
    }

    /// From the first call to the last.
    pub fn span_ns(&self) -> u64 {
        let first = self.first_ns.unwrap_or(self.newest_ns);
        assert!(first <= self.newest_ns, "the first call is not after the newest");
        self.newest_ns - first
    }

    /// Calls a second over the whole span.
    pub fn calls_per_second(&self) -> Option<f64> {
        let seconds = self.span_ns() as f64 / 1e9;
        (seconds > 0.0).then(|| self.calls() as f64 / seconds)
    }

    /// When the last call came; for those who look for idle subjects.
    pub fn newest_ns(&self) -> Option<u64> {
        self.first_ns.map(|_| self.newest_ns)
    }

    /// Times between reads and writes.
    pub fn data_arrivals_ns(&self) -> &Histogram {
        &self.arrivals_ns[0]
    }

    /// Times between calls for metadata.
    pub fn metadata_arrivals_ns(&self) -> &Histogram {
        &self.arrivals_ns[1]
    }

    pub fn clock_steps(&self) -> u64 {
        self.clock_steps
    }

    pub fn read_bytes(&self) -> &Histogram {
        &self.read_bytes
    }

    pub fn write_bytes(&self) -> &Histogram {
        &self.write_bytes
    }

    pub fn read_order(&self) -> Order {
        self.read_order
    }

    pub fn write_order(&self) -> Order {
        self.write_order
    }

    /// How reads and writes lie to the one before them of the same file and stream.
    pub fn handle_order(&self) -> Order {
        self.handle_order
    }

    /// Share of reads and writes that begin where the last one of their file ended, or that of their file and stream,
    /// whichever is more: a shared file is sequential for each of its writers, a log for all its openings together.
    pub fn sequential_share(&self) -> Option<f64> {
        let mut by_file = self.read_order;
        by_file.merge(&self.write_order);
        let shares = [by_file.sequential_share(), self.handle_order.sequential_share()];
        shares.into_iter().flatten().max_by(f64::total_cmp)
    }

    /// How far requests that are not sequential skip ahead.
    pub fn forward_bytes(&self) -> &Histogram {
        &self.forward_bytes
    }

    /// How far they go back.
    pub fn backward_bytes(&self) -> &Histogram {
        &self.backward_bytes
    }

    pub fn small_overwrites(&self) -> u64 {
        self.small_overwrites
    }

    pub fn in_flight(&self) -> &Histogram {
        &self.in_flight
    }

    /// Ages of files when they were removed.
    pub fn lifetimes_ms(&self) -> &Histogram {
        &self.lifetimes_ms
    }

    /// About how many files were used.
    pub fn files(&self) -> f64 {
        self.files.estimate()
    }

    /// About how many open handles or clients there were.
    pub fn streams(&self) -> f64 {
        self.streams.estimate()
    }

    pub fn reuse(&self) -> &Reuse {
        &self.reuse
    }

    pub fn dependence(&self) -> &Dependence {
        &self.dependence
    }
}

#[cfg(test)]
mod tests;
