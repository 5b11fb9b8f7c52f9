//! Short writes are gathered: while this machine has a lease on writing a file it answers them itself, and sends those that lie together as one.
//!
//! The owner gives the lease with the answer to a write, and takes it back when somebody else asks for the file. What was gathered is sent
//! then, when it has become 1 MiB, after `GATHER_MS`, and before anything else of this machine that depends on it goes to the owner: a
//! read, a question for attributes, a sync, a close(2). Invariants: what is gathered is kept (`../retained.rs`) before it is answered; bytes
//! that are sent are in nobody's way: a later write to the same place waits until they have arrived; without a connection nothing is gathered.
//! Read next: `write.rs`; `crates/owner/src/writers.rs` is the other side.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse_wire::abi::opcode;
use fuse_wire::{Operation, Request, Write, raw};
use parking_lot::{Mutex, MutexGuard};

use super::{BLOCK, BYTES_MAX, BYTES_MIN, Content, DATA_AT, Direct, File, Job, QUEUE_MAX, Queue, nodes_of};
use crate::state::{Answer, State};

#[cfg(test)]
mod tests;

/// So long bytes may wait for others.
const GATHER_MS: u64 = 100;
/// A file of few writes costs as many ways to the owner as one that is gathered, and less work: it is gathered from this write on.
const GATHER_AFTER: u32 = 3;
/// How often it is looked for those that have waited.
const LOOK_MS: u64 = 20;
/// Of all files; then writes go through the owner.
const GATHERED_BYTES_MAX: usize = 16 << 20;
/// Files that may be gathered; then all are asked for anew.
const GRANTED_MAX: usize = 1 << 16;

/// How often something was done.
#[derive(Default)]
pub(crate) struct Counted {
    gathered: AtomicU64,
    sent: AtomicU64,
}

/// Short writes that lie together and were not sent.
pub(super) struct Gathering {
    /// Header and arguments of the first of them.
    head: Vec<u8>,
    offset: u64,
    bytes: Vec<u8>,
    since_ms: u64,
}

impl Gathering {
    fn end(&self) -> u64 {
        assert!(!self.bytes.is_empty(), "what is gathered has bytes");
        self.offset + self.bytes.len() as u64
    }
}

/// Where the piece ends that a byte at this place is gathered into.
fn piece_end(offset: u64) -> u64 {
    (offset / BYTES_MAX as u64 + 1).saturating_mul(BYTES_MAX as u64)
}

/// Cuts a range into those parts that are written past the owner, and those that go through it.
fn cut(range: &Range<u64>) -> Vec<(Range<u64>, bool)> {
    assert!(!range.is_empty(), "what is cut has bytes");
    let (start, end) = (range.start.next_multiple_of(BLOCK), range.end / BLOCK * BLOCK);
    if start >= end || end - start < BYTES_MIN as u64 {
        return vec![(range.clone(), false)];
    }
    let parts = [(range.start..start, false), (start..end, true), (end..range.end, false)];
    parts.into_iter().filter(|(part, _)| !part.is_empty()).collect()
}

/// A message of WRITE up to its data, for other data.
pub(super) fn head_for(head: &[u8], offset: u64, length: usize) -> Vec<u8> {
    assert_eq!(head.len(), DATA_AT, "it is all that comes before the data");
    let mut head = head.to_vec();
    raw::set_number(&mut head, raw::HEADER_BYTES + 8, offset);
    // Behind the size are flags.
    let flags = raw::number_at(&head, raw::HEADER_BYTES + 16).unwrap_or_default() & !u64::from(u32::MAX);
    raw::set_number(&mut head, raw::HEADER_BYTES + 16, flags | length as u64);
    head
}

/// A write that may be gathered: its file and place.
fn short_write(request: &Request) -> Option<(u64, Range<u64>)> {
    if request.opcode() != opcode::WRITE {
        return None;
    }
    let Operation::Write(Write { node, offset, data, flags, from_cache, kill_suid_sgid, .. }) = request.operation()
    else {
        return None;
    };
    let is_plain = flags.cast_signed() & (libc::O_APPEND | libc::O_DIRECT) == 0 && !from_cache && !kill_suid_sgid;
    let end = offset.checked_add(data.len() as u64)?;
    (is_plain && offset < end && i64::try_from(end).is_ok()).then_some((node, offset..end))
}

/// Whether an operation waits for what is gathered, beside those that depend on content anyway.
fn shows_content(operation: u32) -> bool {
    matches!(operation, opcode::GETATTR | opcode::STATX | opcode::OPEN | opcode::LINK)
}

impl File {
    /// Whether something is gathered of which the owner does not know.
    pub(super) fn has_gathered(&self) -> bool {
        self.gathering.is_some() || !self.gathered.is_empty()
    }
}

impl Queue {
    /// Whether a request has to wait for what is gathered.
    pub(super) fn waits_for_gathered(&self, request: &Request) -> bool {
        shows_content(request.opcode())
            && nodes_of(request).iter().any(|node| self.files.get(node).is_some_and(File::has_gathered))
    }

    /// What is gathered of a file is sent.
    fn send(&mut self, node: u64) {
        let Some(file) = self.files.get_mut(&node) else { return };
        let Some(Gathering { head, offset, bytes, .. }) = file.gathering.take() else { return };
        let all = offset..offset + bytes.len() as u64;
        for (range, is_direct) in cut(&all) {
            self.next += 1;
            let number = self.next;
            let data = bytes[(range.start - offset) as usize..(range.end - offset) as usize].to_vec();
            file.under_way.push((number, range.clone()));
            file.gathered.push((number, data.len()));
            file.through.extend((!is_direct).then_some(number));
            let content = Content::Gathered { head: head_for(&head, range.start, data.len()), data, is_direct };
            self.jobs.push_back(Job { content, node, number, range });
        }
        assert!(!file.gathered.is_empty(), "what is gathered has bytes");
    }

    /// What a request depends on is sent, if it is gathered.
    pub(super) fn send_for(&mut self, request: &Request) {
        match request.opcode() {
            opcode::SYNCFS => self.send_all(),
            _ => nodes_of(request).into_iter().for_each(|node| self.send(node)),
        }
    }

    pub(super) fn send_all(&mut self) {
        let gathered = self.files.iter().filter(|(_, file)| file.gathering.is_some());
        let nodes: Vec<u64> = gathered.map(|(node, _)| *node).collect();
        nodes.into_iter().for_each(|node| self.send(node));
    }

    fn has_begun(&self, node: u64) -> bool {
        self.files.get(&node).is_some_and(|file| file.gathering.is_some())
    }

    fn is_gathering(&self) -> bool {
        self.files.values().any(|file| file.gathering.is_some())
    }

    /// The owner knows of a write that was gathered. Gives closes that waited for it.
    pub(super) fn note_known(&mut self, node: u64, number: u64) -> Vec<Request> {
        let Some(file) = self.files.get_mut(&node) else { return Vec::new() };
        let Some(at) = file.gathered.iter().position(|(other, _)| *other == number) else { return Vec::new() };
        let (_, bytes) = file.gathered.swap_remove(at);
        assert!(self.gathered_bytes >= bytes, "what is gathered is counted");
        self.gathered_bytes -= bytes;
        let first = file.gathered.iter().map(|(number, _)| *number).min().unwrap_or(u64::MAX);
        let mut closes = Vec::new();
        while file.closing.front().is_some_and(|(last, _)| *last < first) {
            closes.extend(file.closing.pop_front().map(|(_, request)| request));
        }
        if !file.has_gathered()
            && let Some(number) = file.returning.take()
        {
            self.returns.push((node, number));
        }
        closes
    }

    /// Gathers a part of a write that lies in one piece. False: it does not fit in.
    fn gather_part(&mut self, request: &Request, node: u64, range: &Range<u64>, data: &[u8], now_ms: u64) -> bool {
        if self.gathered_bytes + data.len() > GATHERED_BYTES_MAX || self.jobs.len() >= QUEUE_MAX {
            return false;
        }
        let follows = |gathering: &Gathering| {
            let is_within = gathering.offset <= range.start && range.end <= gathering.end();
            let is_next = gathering.end() == range.start && range.end <= piece_end(gathering.offset);
            is_within || is_next
        };
        let file = self.files.entry(node).or_default();
        if !file.gathering.as_ref().is_none_or(follows) {
            self.send(node);
        }
        let file = self.files.entry(node).or_default();
        let overlaps = |(_, other): &(u64, Range<u64>)| other.start < range.end && range.start < other.end;
        if file.under_way.iter().any(overlaps) {
            return false;
        }
        let gathering = file.gathering.get_or_insert_with(|| {
            let mut head = request.message();
            head.truncate(DATA_AT);
            Gathering { head, offset: range.start, bytes: Vec::new(), since_ms: now_ms }
        });
        let before = gathering.bytes.len();
        let at = (range.start - gathering.offset) as usize;
        let covered = data.len().min(before.saturating_sub(at));
        gathering.bytes[at..at + covered].copy_from_slice(&data[..covered]);
        gathering.bytes.extend_from_slice(&data[covered..]);
        self.gathered_bytes += gathering.bytes.len() - before;
        assert!(gathering.bytes.len() <= BYTES_MAX, "a piece is sent when it is whole");
        if gathering.end() == piece_end(gathering.offset) {
            self.send(node);
        }
        true
    }
}

impl Direct {
    /// The owner lets this machine gather a file.
    pub fn granted(&self, node: u64) {
        let mut queue = self.queue.lock();
        if queue.granted.len() >= GRANTED_MAX {
            // Whoever asks for one of them hears that nothing is gathered.
            queue.granted.clear();
        }
        *queue.granted.entry(node).or_default() += 1;
    }

    /// The owner does not let it go on with that: there is too little room, perhaps. What comes now it is asked for.
    pub fn not_granted(&self, node: u64) {
        self.queue.lock().granted.remove(&node);
    }

    /// The owner takes that back: it hears when all that is gathered has arrived.
    pub fn recalled(&self, node: u64, number: u64) {
        let mut queue = self.queue.lock();
        queue.granted.remove(&node);
        queue.send(node);
        match queue.files.get_mut(&node).filter(|file| file.has_gathered()) {
            Some(file) => file.returning = Some(number),
            None => queue.returns.push((node, number)),
        }
        drop(queue);
        self.tell_all();
    }

    /// There is no owner: nothing is gathered, and what is goes to the next one.
    pub fn disconnected(&self) {
        let mut queue = self.queue.lock();
        queue.granted.clear();
        queue.send_all();
        queue.returns.clear();
        queue.forgotten.clear();
        queue.files.values_mut().for_each(|file| file.returning = None);
        drop(queue);
        self.tell_all();
    }

    /// Wakes as many threads as there is more to write than there was, and whoever tells the owner if there is something to tell: most writes
    /// are only gathered, and wake nobody.
    pub(super) fn wake(&self, queue: &Queue, jobs_before: usize) {
        for _ in jobs_before..queue.jobs.len() {
            self.arrived.notify_one();
        }
        if !queue.returns.is_empty() || !queue.forgotten.is_empty() {
            self.due.notify_one();
        }
    }

    pub(super) fn tell_all(&self) {
        self.arrived.notify_all();
        self.due.notify_all();
    }

    /// Gathers a write, and answers it. Gives back what is not to be gathered.
    pub(super) fn gather(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        request: Request,
        state: &Mutex<State>,
    ) -> Result<(), Request> {
        let Some((node, range)) = short_write(&request) else { return Err(request) };
        let is_behind = queue.files.get(&node).is_some_and(|file| !file.behind.is_empty());
        if queue.granted.get(&node).is_none_or(|count| *count < GATHER_AFTER)
            || is_behind
            || !queue.behind_all.is_empty()
        {
            return Err(request);
        }
        if super::direct_range(&request).is_some() && self.content.is_some() {
            return Err(request);
        }
        let Operation::Write(Write { data, .. }) = request.operation() else { return Err(request) };
        let middle = piece_end(range.start).min(range.end);
        let (first, second) = data.split_at((middle - range.start) as usize);
        let now_ms = self.now_ms();
        let (jobs, was_begun) = (queue.jobs.len(), queue.has_begun(node));
        {
            // Kept before it may be sent by anybody, and answered after that.
            let mut state = state.lock();
            if state.retained.is_full() {
                return Err(request);
            }
            if !queue.gather_part(&request, node, &(range.start..middle), first, now_ms) {
                self.wake(&queue, jobs);
                return Err(request);
            }
            state.gathered(node, range.start, first);
        }
        // What does not fit in any more is written as if it had come by itself, which programs are used to.
        let mut written = first.len();
        if !second.is_empty() && queue.gather_part(&request, node, &(middle..range.end), second, now_ms) {
            state.lock().gathered(node, middle, second);
            written += second.len();
        }
        self.wake(&queue, jobs);
        if !was_begun {
            self.due.notify_one();
        }
        drop(queue);
        self.counted.gathered.fetch_add(1, Ordering::Relaxed);
        request.reply_written(u32::try_from(written).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Writes that this machine has answered by itself.
    pub fn gathered(&self) -> u64 {
        self.counted.gathered.load(Ordering::Relaxed)
    }

    /// Writes that were sent of them.
    pub fn sent(&self) -> u64 {
        self.counted.sent.load(Ordering::Relaxed)
    }

    pub(super) fn note_sent(&self) {
        self.counted.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// A close(2) waits until the owner has room for what was gathered. Gives back one that need not.
    pub fn hold_close(&self, request: Request) -> Option<Request> {
        if request.opcode() != opcode::FLUSH {
            return Some(request);
        }
        let mut queue = self.queue.lock();
        let node = request.node();
        if queue.is_over || !queue.files.get(&node).is_some_and(File::has_gathered) {
            return Some(request);
        }
        queue.send(node);
        let last = queue.next;
        queue.files.entry(node).or_default().closing.push_back((last, request));
        drop(queue);
        self.tell_all();
        None
    }

    /// Closes that wait, and have to be let go.
    pub fn take_closes(&self) -> Vec<Request> {
        let mut queue = self.queue.lock();
        queue.files.values_mut().flat_map(|file| file.closing.drain(..).map(|(_, request)| request)).collect()
    }

    /// An answer may show files as they were before what is gathered. A listing shows their names alone then; a name is looked up again when
    /// that was sent. True: this one is.
    pub fn puts_back(&self, number: u64, answer: &mut Answer, state: &Mutex<State>) -> bool {
        let mut queue = self.queue.lock();
        let mut state = state.lock();
        let Some((operation, nodes)) = state.shown_by(number, answer) else { return false };
        let is_gathered = |node: u64| queue.files.get(&node).is_some_and(File::has_gathered);
        let is_old = |node: &u64| is_gathered(*node) || state.is_before_sent(number, *node);
        let old: Vec<u64> = nodes.into_iter().filter(is_old).collect();
        let Some(first) = old.first().copied() else { return false };
        // The owner has counted what the kernel does not get.
        let forgotten: Vec<(u64, u64)> = old.iter().map(|node| (*node, 1)).collect();
        if operation == opcode::READDIRPLUS {
            raw::hide_attributes(&mut answer.bytes, |node| old.contains(&node));
            queue.forgotten.extend(forgotten);
            drop((state, queue));
            self.tell_all();
            return false;
        }
        let is_gathered = is_gathered(first);
        let Some(request) = state.take_again(number) else { return false };
        drop(state);
        queue.forgotten.extend(forgotten);
        match queue.files.get_mut(&first).filter(|_| is_gathered) {
            Some(file) => file.behind.push_back(request),
            // Whoever receives never sends.
            None => queue.jobs.push_back(Job { content: Content::Again(request), node: 0, number: 0, range: 0..0 }),
        }
        queue.send(first);
        drop(queue);
        self.tell_all();
        true
    }

    /// Sends what has waited for so long, until the end, and says what is to be told to the owner. For a thread of its own.
    pub fn send_in_time(&self, mut tell: impl FnMut(Vec<(u64, u64)>, Vec<(u64, u64)>)) {
        let mut queue = self.queue.lock();
        while !queue.is_over {
            let now_ms = self.now_ms();
            let is_due =
                |file: &File| file.gathering.as_ref().is_some_and(|gathering| gathering.since_ms + GATHER_MS <= now_ms);
            let due: Vec<u64> = queue.files.iter().filter(|(_, file)| is_due(file)).map(|(node, _)| *node).collect();
            if !due.is_empty() {
                due.into_iter().for_each(|node| queue.send(node));
                self.arrived.notify_all();
            }
            let returns = std::mem::take(&mut queue.returns);
            let forgotten = std::mem::take(&mut queue.forgotten);
            if !returns.is_empty() || !forgotten.is_empty() {
                MutexGuard::unlocked(&mut queue, || tell(returns, forgotten));
                continue;
            }
            match queue.is_gathering() {
                true => drop(self.due.wait_for(&mut queue, std::time::Duration::from_millis(LOOK_MS))),
                false => self.due.wait(&mut queue),
            }
        }
    }
}
