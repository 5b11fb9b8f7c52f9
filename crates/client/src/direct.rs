//! Writes past the owner: large writes go to the nodes from here, and the owner is told what they are.
//!
//! A write is offered to the owner, answered to the kernel when the owner has a row for it, written to the nodes by a thread of its own, and
//! entered. Its bytes are kept like those of all writes that are not durable, so whatever fails on the way is written through the owner
//! instead, by this one or the next. Invariants: of one file nothing that depends on its content is sent to the owner while a write to it is
//! under way here; two writes under way do not overlap; nothing is written to a row when this side has not heard from the owner
//! that gave it within `HEARD_MS_MAX`. Read next: `direct/write.rs`, `mapped.rs`, `docs/design/direct.md`.

mod gather;
mod write;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::offset_of;
use std::ops::Range;

use fuse_wire::abi::opcode;
use fuse_wire::abi::structs::{FileAttr, Statx, StatxOut};
use fuse_wire::{Operation, Request, Write, raw};
use parking_lot::{Condvar, Mutex};
use stere_format::ChecksumKind;

use crate::state::State;
use gather::Gathering;

/// A shorter write costs less through the owner.
const BYTES_MIN: usize = 256 << 10;
/// What the owner gives rows for at a time.
const BYTES_MAX: usize = stere_format::OFFERED_BYTES_MAX as usize;
const BLOCK: u64 = stere_format::BLOCK_BYTES as u64;
/// Writes under way at a time.
const THREADS: usize = 16;
/// The same where all go through the owner.
const THREADS_THROUGH: usize = 8;
/// Where a message of WRITE has its data: behind the header and its arguments.
const DATA_AT: usize = raw::HEADER_BYTES + 40;
/// Writes that wait for a thread; more are not taken.
const QUEUE_MAX: usize = 64;
/// So long writes to a file go through the owner after it wanted the bytes, or something failed.
const PAUSE_MS: u64 = 1000;
/// Whoever gave a row must have been heard so lately. Less than the owner holds a row that was dropped.
const HEARD_MS_MAX: u64 = 4000;

/// How the owner wants content encoded; `None` before it has said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The policy's code.
    pub compression: u8,
    pub checksum: ChecksumKind,
    /// Number of the key; 0 for none.
    pub key: u16,
    /// Number of the stack of users' plugins; 0 for none.
    pub stack: u16,
    pub record_bytes: u32,
}

/// Writes records from this one on into a row; whether all of it is there.
pub type WriteRow = Box<dyn Fn(&stere_format::RowGrant, usize) -> bool + Send>;

/// Content that was encoded.
pub struct Prepared {
    /// Where in the content each record begins, and where the last one ends.
    pub begins: Vec<u64>,
    /// A `stere_format::WriteOffer` of the records from this one on.
    pub offer: Box<dyn Fn(usize) -> Vec<u8> + Send>,
    /// Writes records from this one on into the row of a `stere_format::RowGrant`. False: not all of it is there.
    pub write: WriteRow,
}

/// Encodes content of an inode that begins at an offset; `None` where it cannot be encoded so here.
pub type Prepare = Box<dyn Fn(Option<Wanted>, u64, u64, Vec<u8>) -> Option<Prepared> + Send + Sync>;

/// Writes to nodes.
pub struct WriteContent {
    /// Whether there is a use in trying now.
    pub is_ready: Box<dyn Fn() -> bool + Send + Sync>,
    pub prepare: Prepare,
    /// Milliseconds of a clock that goes on while the machine sleeps.
    pub now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// One file.
#[derive(Default)]
struct File {
    /// Each with its number.
    under_way: Vec<(u64, Range<u64>)>,
    /// Numbers of those that go through the owner after all.
    through: Vec<u64>,
    /// Requests that wait until nothing is.
    behind: VecDeque<Request>,
    gathering: Option<Gathering>,
    /// Of those under way, what was gathered and the owner has no room for yet.
    gathered: Vec<(u64, usize)>,
    /// Closes that wait for these up to a number.
    closing: VecDeque<(u64, Request)>,
    /// The owner waits until nothing is gathered, with this number.
    returning: Option<u64>,
}

/// What a thread writes.
enum Content {
    Request(Request),
    /// A question that is to be asked once more.
    Again(Request),
    /// The kernel was answered.
    Gathered {
        head: Vec<u8>,
        data: Vec<u8>,
        is_direct: bool,
    },
}

/// A write that a thread takes.
struct Job {
    content: Content,
    node: u64,
    number: u64,
    range: Range<u64>,
}

impl Content {
    fn nothing() -> Content {
        Content::Gathered { head: Vec::new(), data: Vec::new(), is_direct: false }
    }
}

#[derive(Default)]
struct Queue {
    next: u64,
    jobs: VecDeque<Job>,
    files: BTreeMap<u64, File>,
    /// Requests that wait until nothing is under way to any file.
    behind_all: VecDeque<Request>,
    encodings: BTreeMap<u64, Wanted>,
    /// Files that go through the owner, and until when.
    paused: BTreeMap<u64, u64>,
    /// Files that may be gathered, and how many writes to them the owner has answered so.
    granted: HashMap<u64, u32>,
    gathered_bytes: usize,
    /// What is to be told to the owner: leases that have ended, with the numbers of their recalls, and references that the kernel did not get.
    returns: Vec<(u64, u64)>,
    forgotten: Vec<(u64, u64)>,
    is_over: bool,
}

/// Encodings and pauses that are remembered.
const REMEMBERED_MAX: usize = 4096;

impl Queue {
    /// Whether a request may go to the owner now.
    fn may_pass(&self, request: &Request) -> bool {
        if request.opcode() == opcode::SYNCFS {
            return self.files.is_empty();
        }
        if self.waits_for_gathered(request) {
            return false;
        }
        if !depends_on_content(request.opcode()) {
            return true;
        }
        nodes_of(request).into_iter().all(|node| !self.files.contains_key(&node))
    }

    /// Lets a request wait that may not pass.
    fn put_behind(&mut self, request: Request) {
        let node = nodes_of(&request).into_iter().find(|node| self.files.contains_key(node));
        match node.and_then(|node| self.files.get_mut(&node)) {
            Some(file) => file.behind.push_back(request),
            None => self.behind_all.push_back(request),
        }
    }
}

/// The files that a request is about.
fn nodes_of(request: &Request) -> Vec<u64> {
    match request.opcode() {
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            raw::handle_places(&request.message()).into_iter().map(|(_, node)| node).collect()
        }
        opcode::LINK => match request.operation() {
            Operation::Link { node, .. } => vec![node],
            _ => Vec::new(),
        },
        _ => vec![request.node()],
    }
}

/// Whether an operation reads or changes what a file has, or what is told of its content.
fn depends_on_content(operation: u32) -> bool {
    matches!(
        operation,
        opcode::READ
            | opcode::WRITE
            | opcode::FSYNC
            | opcode::SETATTR
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64
            | opcode::LSEEK
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::RELEASE
    )
}

/// The node and range of a write that may go to the nodes from here.
fn direct_range(request: &Request) -> Option<(u64, Range<u64>)> {
    if request.opcode() != opcode::WRITE {
        return None;
    }
    let Operation::Write(Write { node, offset, data, flags, .. }) = request.operation() else { return None };
    let length = data.len() as u64;
    let is_whole = offset.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK);
    let is_appended = flags.cast_signed() & libc::O_APPEND != 0;
    let is_large = (BYTES_MIN..=BYTES_MAX).contains(&data.len());
    (is_large && is_whole && !is_appended).then(|| (node, offset..offset.saturating_add(length)))
}

/// Tells programs to write regular files in pieces that are worth being written past the owner, as network file systems do.
pub(crate) fn show_block_size(operation: u32, answer: &mut [u8]) {
    if operation == opcode::STATX {
        let (mode, at) = (
            offset_of!(StatxOut, stat) + offset_of!(Statx, mode),
            offset_of!(StatxOut, stat) + offset_of!(Statx, blksize),
        );
        let mode = answer.get(mode..).and_then(|rest| rest.first_chunk::<2>()).map(|bytes| u16::from_ne_bytes(*bytes));
        if mode.is_some_and(|mode| u32::from(mode) & libc::S_IFMT == libc::S_IFREG) {
            answer[at..at + 4].copy_from_slice(&(BYTES_MAX as u32).to_ne_bytes());
        }
    }
    for place in raw::attribute_places(operation, answer) {
        let is_file = raw::half_at(answer, place + offset_of!(FileAttr, mode))
            .is_some_and(|mode| mode & libc::S_IFMT == libc::S_IFREG);
        let at = place + offset_of!(FileAttr, blksize);
        if let Some(field) = answer.get_mut(at..at + 4).filter(|_| is_file) {
            field.copy_from_slice(&(BYTES_MAX as u32).to_ne_bytes());
        }
    }
}

/// The writes of this machine that are under way past the owner.
pub(crate) struct Direct {
    content: Option<WriteContent>,
    now_ms: fn() -> u64,
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// A write under way has ended.
    ended: Condvar,
    /// Something is gathered, or to be told.
    due: Condvar,
    /// Writes that were gathered, and those that were sent of them.
    counted: gather::Counted,
}

impl Direct {
    pub fn new(content: Option<WriteContent>, now_ms: fn() -> u64) -> Direct {
        let (arrived, ended, due) = (Condvar::new(), Condvar::new(), Condvar::new());
        let counted = gather::Counted::default();
        Direct { content, now_ms, queue: Mutex::default(), arrived, ended, due, counted }
    }

    /// Whether writes may pass the owner at all.
    pub fn is_used(&self) -> bool {
        self.content.is_some()
    }

    /// How many threads shall write.
    pub fn threads(&self) -> usize {
        if self.content.is_some() { THREADS } else { THREADS_THROUGH }
    }

    pub fn now_ms(&self) -> u64 {
        self.content.as_ref().map_or_else(self.now_ms, |content| (content.now_ms)())
    }

    /// Takes a request that is written past the owner, or has to wait for such; gives all others back.
    pub fn take(&self, request: Request, has_owner: bool, state: &Mutex<State>) -> Option<Request> {
        let mut queue = self.queue.lock();
        if queue.is_over {
            return Some(request);
        }
        if request.opcode() == opcode::RELEASE {
            // For the owner that ends the lease, if it was the last handle.
            queue.granted.remove(&request.node());
        }
        let request = match self.gather(queue, request, state) {
            Ok(()) => return None,
            Err(request) => request,
        };
        let mut queue = self.queue.lock();
        if let Some(content) = &self.content
            && let Some((node, range)) = direct_range(&request)
        {
            let jobs = queue.jobs.len();
            queue.send_for(&request);
            self.wake(&queue, jobs);
            let now_ms = (content.now_ms)();
            let is_paused = queue.paused.get(&node).is_some_and(|until| now_ms < *until);
            let file = queue.files.get(&node);
            let overlaps = |(_, other): &(u64, Range<u64>)| other.start < range.end && range.start < other.end;
            let is_free = file.is_none_or(|file| file.behind.is_empty() && !file.under_way.iter().any(overlaps));
            let is_room = queue.jobs.len() < QUEUE_MAX && queue.behind_all.is_empty();
            if is_free && is_room && !is_paused && has_owner && (content.is_ready)() {
                queue.next += 1;
                let number = queue.next;
                assert!(range.start < range.end, "a write has bytes");
                queue.files.entry(node).or_default().under_way.push((number, range.clone()));
                queue.jobs.push_back(Job { content: Content::Request(request), node, number, range });
                self.arrived.notify_one();
                return None;
            }
        }
        if queue.may_pass(&request) {
            return Some(request);
        }
        let jobs = queue.jobs.len();
        queue.send_for(&request);
        queue.put_behind(request);
        self.wake(&queue, jobs);
        None
    }

    /// The next write; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.is_over {
                return None;
            }
            self.arrived.wait(&mut queue);
        }
    }

    /// A write is over, in whatever way. Gives what waited for it and may go on.
    fn done(&self, job: &Job) -> Vec<Request> {
        let mut queue = self.queue.lock();
        let (node, number) = (job.node, job.number);
        let mut released = queue.note_known(node, number);
        if let Some(file) = queue.files.get_mut(&node) {
            file.under_way.retain(|(other, _)| *other != number);
            file.through.retain(|other| *other != number);
            if file.under_way.is_empty() {
                released.extend(file.behind.drain(..));
                if file.gathering.is_none() {
                    assert!(
                        file.closing.is_empty() && file.returning.is_none(),
                        "nobody waits for what is not gathered"
                    );
                    queue.files.remove(&node);
                }
            }
        }
        if queue.files.is_empty() {
            released.extend(queue.behind_all.drain(..));
        }
        self.wake(&queue, queue.jobs.len());
        self.ended.notify_all();
        released
    }

    /// A write goes through the owner after all, where it waits for those that are offered: none of them waits for it any more.
    fn stand_back(&self, job: &Job) {
        let mut queue = self.queue.lock();
        if let Some(file) = queue.files.get_mut(&job.node) {
            file.through.push(job.number);
        }
        self.ended.notify_all();
    }

    /// Waits for writes to lower places of the file that began before: a file that a crash cuts off shows no hole where something was written.
    fn wait_for_lower(&self, job: &Job) {
        let mut queue = self.queue.lock();
        let is_lower = |(number, range): &(u64, Range<u64>)| *number < job.number && range.end <= job.range.start;
        let has_lower = |file: &File| {
            let mut lower = file.under_way.iter().filter(|one| is_lower(one));
            lower.any(|(number, _)| !file.through.contains(number))
        };
        while queue.files.get(&job.node).is_some_and(has_lower) && !queue.is_over {
            self.ended.wait(&mut queue);
        }
    }

    /// The owner has room for what was gathered. Gives what has waited for that.
    fn is_known(&self, job: &Job) -> Vec<Request> {
        let mut queue = self.queue.lock();
        let released = queue.note_known(job.node, job.number);
        self.wake(&queue, queue.jobs.len());
        released
    }

    fn is_paused(&self, node: u64) -> bool {
        let now_ms = self.now_ms();
        self.queue.lock().paused.get(&node).is_some_and(|until| now_ms < *until)
    }

    fn encoding(&self, node: u64) -> Option<Wanted> {
        self.queue.lock().encodings.get(&node).copied()
    }

    fn note_encoding(&self, node: u64, wanted: Wanted) {
        let mut queue = self.queue.lock();
        if queue.encodings.len() >= REMEMBERED_MAX {
            queue.encodings.clear();
        }
        queue.encodings.insert(node, wanted);
    }

    /// Writes to this file go through the owner for a while.
    fn pause(&self, node: u64) {
        let until = self.now_ms() + PAUSE_MS;
        let mut queue = self.queue.lock();
        if queue.paused.len() >= REMEMBERED_MAX {
            queue.paused.clear();
        }
        queue.paused.insert(node, until);
    }

    /// Waits until nothing is under way, or for so long.
    pub fn wait_until_idle(&self, until: std::time::Instant) {
        let mut queue = self.queue.lock();
        while !queue.files.is_empty() {
            if self.ended.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }

    /// The kernel waits for nothing any more; gives what no thread has taken.
    pub fn give_up(&self) -> Vec<Request> {
        let mut queue = self.queue.lock();
        queue.granted.clear();
        queue.send_all();
        let mut requests: Vec<Request> = queue.behind_all.drain(..).collect();
        for file in queue.files.values_mut() {
            requests.extend(file.behind.drain(..));
            requests.extend(file.closing.drain(..).map(|(_, request)| request));
        }
        for Job { content, node, number, range } in std::mem::take(&mut queue.jobs) {
            let request = match content {
                Content::Request(request) | Content::Again(request) => request,
                // What was answered is still written.
                content @ Content::Gathered { .. } => {
                    queue.jobs.push_back(Job { content, node, number, range });
                    continue;
                }
            };
            requests.push(request);
            if let Some(file) = queue.files.get_mut(&node) {
                file.under_way.retain(|(other, _)| *other != number);
                if file.under_way.is_empty() {
                    queue.files.remove(&node);
                }
            }
        }
        self.tell_all();
        self.ended.notify_all();
        requests
    }

    pub fn end(&self) {
        self.queue.lock().is_over = true;
        self.tell_all();
        self.ended.notify_all();
    }
}
