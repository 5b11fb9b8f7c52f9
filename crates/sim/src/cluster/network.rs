//! The network of the area `cluster`: each process's ways to each node and to the log, which delay, lose, part and reorder.
//!
//! A write is on its way until it arrives. Of one process's writes to one node those that overlap keep their order, and all others arrive in
//! any. A flush acknowledges what has arrived, so everything that its process sent before arrives first. A write that was answered
//! may still be on its way, which is more than a network does, and no more than a node with a volatile cache: nothing but a flush
//! makes it durable. Writes of a process that was replaced arrive for `HOLD_MS` and then never. Records for the log may come late, too.
//!
//! A process that dies, or stands still for ever, reaches nothing from one call on. Invariants: chance comes from the history's seed; no call
//! waits. Read next: `link.rs`, which is what processes hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stere_device::{Device, DeviceError, MemoryDevice, Operation, Piece, Ticket, length_of};
use stere_shared_log::{Bounds, Error, MemoryLog, Put, SharedLog as _};

use super::HOLD_MS;
use crate::random::Random;

/// A write that was sent and has not arrived.
struct Sent {
    process: usize,
    node: usize,
    offset: u64,
    bytes: Vec<u8>,
    /// Its process was told that it was written, so it is sent again where a connection broke.
    is_answered: bool,
}

impl Sent {
    fn is_of(&self, process: usize, node: usize) -> bool {
        (self.process, self.node) == (process, node)
    }

    fn overlaps(&self, offset: u64, length: u64) -> bool {
        self.offset < offset + length && offset < self.offset + self.bytes.len() as u64
    }
}

/// A record for the log that nobody waits for any more.
struct LateRecord {
    process: usize,
    number: u64,
    bytes: Vec<u8>,
}

/// How a process reaches a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Open,
    /// Writes arrive when something needs them, or some time later.
    Slow,
    /// Nothing comes back.
    Cut,
    /// The node said once that it could not flush, and nothing more can be known of it.
    Failed,
}

/// From which call on a process reaches nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    AtFlush,
    AfterCalls(u64),
}

/// The ways of one process.
struct Reach {
    log: Arc<MemoryLog>,
    ways: Vec<Way>,
    /// A way that is cut after so many calls.
    parts: Option<(usize, u64)>,
    /// The node that fails at its next flush.
    fails_flush: Option<usize>,
    ends: Option<End>,
    is_gone: bool,
    /// So many calls of the log are answered, then so many are not.
    log_silence: (u64, u64),
    /// Something that it asked of the log was not answered, or a number that it wanted was somebody else's.
    is_excused: bool,
    has_root: bool,
    replaced_ms: Option<u64>,
}

struct State {
    random: Random,
    reaches: Vec<Reach>,
    sent: Vec<Sent>,
    late_records: Vec<LateRecord>,
    arrived_late: u64,
    records_late: u64,
}

/// All ways of all processes.
pub(super) struct Network {
    nodes: Vec<Arc<MemoryDevice>>,
    log: MemoryLog,
    clock_ms: Arc<AtomicU64>,
    state: Mutex<State>,
}

impl Network {
    pub(super) fn new(nodes: Vec<Arc<MemoryDevice>>, clock_ms: Arc<AtomicU64>, random: Random) -> Arc<Network> {
        let state = State {
            random,
            reaches: Vec::new(),
            sent: Vec::new(),
            late_records: Vec::new(),
            arrived_late: 0,
            records_late: 0,
        };
        Arc::new(Network { nodes, log: MemoryLog::new(), clock_ms, state: Mutex::new(state) })
    }

    /// One more process, and what it has: its number.
    pub(super) fn join(&self) -> usize {
        let mut state = self.state.lock();
        state.reaches.push(Reach {
            log: Arc::new(self.log.another()),
            ways: vec![Way::Open; self.nodes.len()],
            parts: None,
            fails_flush: None,
            ends: None,
            is_gone: false,
            log_silence: (0, 0),
            is_excused: false,
            has_root: false,
            replaced_ms: None,
        });
        state.reaches.len() - 1
    }

    pub(super) fn node(&self, node: usize) -> &MemoryDevice {
        &self.nodes[node]
    }

    /// Where the log ends, as somebody sees it who is not parted from it.
    pub(super) fn log_end(&self) -> Result<u64, Error> {
        Ok(self.log.bounds()?.next)
    }

    pub(super) fn way(&self, process: usize, node: usize) -> Way {
        self.state.lock().reaches[process].ways[node]
    }

    /// The first node that a process does not reach, or will not.
    pub(super) fn away(&self, process: usize) -> Option<usize> {
        let state = self.state.lock();
        let reach = &state.reaches[process];
        let is_away = |way: &Way| matches!(way, Way::Cut | Way::Failed);
        reach.ways.iter().position(is_away).or(reach.parts.map(|(node, _)| node))
    }

    pub(super) fn set_slow(&self, process: usize, node: usize) {
        let mut state = self.state.lock();
        let way = &mut state.reaches[process].ways[node];
        if *way == Way::Open {
            *way = Way::Slow;
        }
    }

    /// Cuts a process off a node, after so many calls.
    pub(super) fn part(&self, process: usize, node: usize, calls: u64) {
        let mut state = self.state.lock();
        let reach = &mut state.reaches[process];
        assert!(reach.parts.is_none_or(|(parted, _)| parted == node), "one node at a time is away");
        match calls {
            0 => reach.ways[node] = Way::Cut,
            calls => reach.parts = Some((node, calls)),
        }
    }

    /// A node will tell a process that it cannot flush.
    pub(super) fn fail_flush(&self, process: usize, node: usize) {
        self.state.lock().reaches[process].fails_flush = Some(node);
    }

    /// All ways of a process to nodes are there again. Writes that were given up arrive now or never: their
    /// connections are gone.
    pub(super) fn mend(&self, process: usize) {
        let mut state = self.state.lock();
        state.reaches[process].parts = None;
        for node in 0..self.nodes.len() {
            if state.reaches[process].ways[node] == Way::Cut {
                state.end_connection(&self.nodes, process, node);
                state.reaches[process].ways[node] = Way::Open;
            }
        }
        assert!(!state.reaches[process].ways.contains(&Way::Cut), "no way is cut any more");
    }

    /// After so many calls of the log that are answered so many are not.
    pub(super) fn part_from_log(&self, process: usize, after: u64, calls: u64) {
        self.state.lock().reaches[process].log_silence = (after, calls);
    }

    /// Whether the log ever left a process without an answer, or told it that somebody else was faster.
    pub(super) fn is_excused(&self, process: usize) -> bool {
        self.state.lock().reaches[process].is_excused
    }

    /// From one moment on, which may be now, nothing of the process reaches anything.
    pub(super) fn end(&self, process: usize, end: End) {
        self.state.lock().reaches[process].ends = Some(end);
    }

    /// The owner believes no more that a process writes for it: what it sent arrives for a while, and then never.
    pub(super) fn let_go(&self, process: usize) {
        let now_ms = self.clock_ms.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        let reach = &mut state.reaches[process];
        reach.is_gone = true;
        reach.replaced_ms.get_or_insert(now_ms);
    }

    pub(super) fn kill(&self, process: usize) {
        let mut state = self.state.lock();
        state.reaches[process].is_gone = true;
        if state.random.chance(1, 3) {
            state.sent.retain(|sent| sent.process != process);
        }
    }

    /// A node starts again: it has what was flushed, and any part of what was not.
    pub(super) fn restart(&self, node: usize) {
        let mut state = self.state.lock();
        let mut random = state.random.fork();
        state.sent.retain(|sent| sent.node != node || random.chance(1, 2));
        self.nodes[node].lose_unflushed(|_| random.chance(1, 2));
    }

    /// Whether writes of a process may still arrive.
    pub(super) fn may_arrive(&self, process: usize, now_ms: u64) -> bool {
        let replaced_ms = self.state.lock().reaches[process].replaced_ms;
        replaced_ms.is_none_or(|replaced_ms| now_ms < replaced_ms + u64::from(HOLD_MS))
    }

    /// Time passes until then. Writes that would come too late arrive before, or never.
    pub(super) fn pass_until(&self, now_ms: u64) {
        let before_ms = self.clock_ms.load(Ordering::Relaxed);
        assert!(before_ms <= now_ms, "time goes from {before_ms} ms to {now_ms} ms");
        let mut state = self.state.lock();
        let replaced: Vec<_> = state.reaches.iter().map(|reach| reach.replaced_ms).collect();
        let is_over = |sent: &Sent| replaced[sent.process].is_some_and(|ms| ms + u64::from(HOLD_MS) <= now_ms);
        while let Some(first) = state.sent.iter().position(is_over) {
            match state.random.chance(1, 2) {
                true => state.arrive(&self.nodes, first),
                false => drop(state.sent.remove(first)),
            }
        }
        assert!(!state.sent.iter().any(is_over), "nothing arrives after that");
        self.clock_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Some of what is on its way arrives.
    pub(super) fn arrive_some(&self) {
        let mut state = self.state.lock();
        for _ in 0..state.random.between(1, 8) {
            state.arrive_any(&self.nodes);
        }
    }

    /// How many writes, and how many records, arrived when nobody waited for them.
    pub(super) fn late(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.arrived_late, state.records_late)
    }

    /// Sends a write. Its ticket is told what the process hears.
    pub(super) fn write(&self, process: usize, node: usize, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        let mut state = self.state.lock();
        let asked = state.call(&self.nodes, process, Some(node), Operation::Write);
        let is_answered = asked.is_ok();
        if is_answered && state.reaches[process].ways[node] == Way::Open {
            state.arrive_before(&self.nodes, process, node, offset, length_of(&pieces) as u64);
            return self.nodes[node].submit_write_gathered(offset, pieces, ticket);
        }
        // Of a write that is not answered nobody knows whether it left.
        if is_answered || !state.reaches[process].is_gone && state.random.chance(1, 2) {
            let bytes = pieces.iter().map(Piece::bytes).collect::<Vec<_>>().concat();
            assert!(!bytes.is_empty(), "a write has bytes");
            state.sent.push(Sent { process, node, offset, bytes, is_answered });
        }
        ticket.finish(asked);
    }

    /// Asks for a read; what the process sent to this place before has arrived when it is allowed.
    pub(super) fn admit_read(&self, process: usize, node: usize, offset: u64, length: u64) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        state.call(&self.nodes, process, Some(node), Operation::Read)?;
        state.arrive_before(&self.nodes, process, node, offset, length);
        Ok(())
    }

    pub(super) fn flush(&self, process: usize, node: usize) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        state.call(&self.nodes, process, Some(node), Operation::Flush)?;
        while let Some(any) = state.any_of(|sent| sent.is_of(process, node)) {
            state.arrive(&self.nodes, any);
        }
        assert!(!state.sent.iter().any(|sent| sent.is_of(process, node)), "a flush is for all that was sent");
        self.nodes[node].flush()
    }

    /// A call of the log.
    pub(super) fn ask_log<T>(
        &self,
        process: usize,
        ask: impl FnOnce(&MemoryLog) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut state = self.state.lock();
        let log = state.reaches[process].log.clone();
        state.call_log(&self.nodes, &self.clock_ms, process)?;
        ask(&log)
    }

    pub(super) fn bounds(&self, process: usize) -> Result<Bounds, Error> {
        self.ask_log(process, |log| log.bounds())
    }

    pub(super) fn put(&self, process: usize, number: u64, record: &[u8]) -> Result<Put, Error> {
        let mut state = self.state.lock();
        if let Err(away) = state.call_log(&self.nodes, &self.clock_ms, process) {
            let late = LateRecord { process, number, bytes: record.to_vec() };
            // The question was lost, its answer was, or it comes later.
            match state.random.below(3) {
                _ if state.reaches[process].is_gone => {}
                0 => drop(state.put(&self.clock_ms, &late)),
                1 => state.late_records.push(late),
                _ => {}
            }
            return Err(away);
        }
        let put = state.put(&self.clock_ms, &LateRecord { process, number, bytes: record.to_vec() });
        state.reaches[process].is_excused |= matches!(put, Ok(Put::Taken));
        put
    }
}

impl State {
    /// A process calls. Something that is on its way may arrive before.
    fn call(
        &mut self,
        nodes: &[Arc<MemoryDevice>],
        process: usize,
        node: Option<usize>,
        operation: Operation,
    ) -> Result<(), DeviceError> {
        if self.random.chance(1, 16) {
            self.arrive_any(nodes);
        }
        let reach = &mut self.reaches[process];
        if let Some((parted, calls)) = reach.parts.as_mut().filter(|(parted, _)| Some(*parted) == node) {
            let parted = *parted;
            *calls -= 1;
            if *calls == 0 {
                (reach.ways[parted], reach.parts) = (Way::Cut, None);
            }
        }
        let is_last = match &mut reach.ends {
            Some(End::AtFlush) => operation == Operation::Flush,
            Some(End::AfterCalls(calls)) => {
                *calls = calls.saturating_sub(1);
                *calls == 0
            }
            None => false,
        };
        reach.is_gone |= is_last;
        let Some(node) = node else { return Ok(()) };
        if operation == Operation::Flush && reach.fails_flush == Some(node) {
            reach.ways[node] = Way::Failed;
        }
        let device = format!("node {node}");
        match reach.ways[node] {
            _ if reach.is_gone => Err(DeviceError::Silent { device }),
            Way::Cut => Err(DeviceError::Silent { device }),
            Way::Failed if operation != Operation::Read => {
                Err(DeviceError::FlushFailed { device, reason: "it was made to".into() })
            }
            Way::Open | Way::Slow | Way::Failed => Ok(()),
        }
    }

    fn call_log(&mut self, nodes: &[Arc<MemoryDevice>], clock_ms: &AtomicU64, process: usize) -> Result<(), Error> {
        drop(self.call(nodes, process, None, Operation::Probe));
        if !self.late_records.is_empty() && self.random.chance(1, 4) {
            let which = self.random.below(self.late_records.len() as u64) as usize;
            let late = self.late_records.swap_remove(which);
            self.records_late += u64::from(matches!(self.put(clock_ms, &late), Ok(Put::Mine)));
        }
        let reach = &mut self.reaches[process];
        let is_silent = match &mut reach.log_silence {
            (0, 0) => false,
            (0, calls) => {
                *calls -= 1;
                true
            }
            (after, _) => {
                *after -= 1;
                false
            }
        };
        if !is_silent && !reach.is_gone {
            return Ok(());
        }
        reach.is_excused = true;
        Err(Error::Away { address: "memory:".into(), why: "the way to it is cut".into() })
    }

    /// A record reaches the log. The first of a process is its root, which replaces all others.
    fn put(&mut self, clock_ms: &AtomicU64, late: &LateRecord) -> Result<Put, Error> {
        let put = self.reaches[late.process].log.put(late.number, &late.bytes)?;
        if put == Put::Mine && !std::mem::replace(&mut self.reaches[late.process].has_root, true) {
            let now_ms = clock_ms.load(Ordering::Relaxed);
            let others = self.reaches.iter_mut().enumerate().filter(|(process, _)| *process != late.process);
            others.for_each(|(_, reach)| _ = reach.replaced_ms.get_or_insert(now_ms));
        }
        Ok(put)
    }

    /// One that is on its way and of which this is so.
    fn any_of(&mut self, is_meant: impl Fn(&Sent) -> bool) -> Option<usize> {
        let meant: Vec<usize> = (0..self.sent.len()).filter(|at| is_meant(&self.sent[*at])).collect();
        (!meant.is_empty()).then(|| *self.random.pick(&meant))
    }

    fn arrive_any(&mut self, nodes: &[Arc<MemoryDevice>]) {
        if let Some(any) = self.any_of(|_| true) {
            self.arrived_late += 1;
            self.arrive(nodes, any);
        }
    }

    /// One write arrives, or one before it at the same place.
    fn arrive(&mut self, nodes: &[Arc<MemoryDevice>], at: usize) {
        let (process, node) = (self.sent[at].process, self.sent[at].node);
        let (offset, length) = (self.sent[at].offset, self.sent[at].bytes.len() as u64);
        let is_before = |sent: &Sent| sent.is_of(process, node) && sent.overlaps(offset, length);
        let first = self.sent[..at].iter().position(is_before).unwrap_or(at);
        let sent = self.sent.remove(first);
        assert!(sent.is_of(process, node), "only writes of one process to one node have an order");
        // Nothing makes a node in memory refuse it.
        drop(nodes[node].write_bytes(sent.offset, &sent.bytes));
    }

    /// Everything that a process sent to a place arrives, in order.
    fn arrive_before(&mut self, nodes: &[Arc<MemoryDevice>], process: usize, node: usize, offset: u64, length: u64) {
        while let Some(first) =
            self.sent.iter().position(|sent| sent.is_of(process, node) && sent.overlaps(offset, length))
        {
            self.arrive(nodes, first);
        }
    }

    fn end_connection(&mut self, nodes: &[Arc<MemoryDevice>], process: usize, node: usize) {
        while let Some(any) = self.any_of(|sent| sent.is_of(process, node)) {
            match self.sent[any].is_answered || self.random.chance(1, 2) {
                true => self.arrive(nodes, any),
                false => drop(self.sent.remove(any)),
            }
        }
    }
}
