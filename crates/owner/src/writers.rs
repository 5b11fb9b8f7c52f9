//! Write leases: which machine may gather what it writes to a file, until somebody else asks for that file.
//!
//! The answer to a short write may let its machine answer the next ones to the same file by itself, and send them together. Whoever else
//! asks for the file waits until that machine has sent what it has and gathers no more. A machine that is away is waited for until its
//! session is over, and then has lost what it had gathered. Invariants: a file has one writer at most; it has none while another
//! machine has it open; who waits is answered when the lease has ended, however it does.
//! Read next: `session/work.rs`; `crates/client/src/direct/gather.rs` is the other side.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use fuse_wire::{Operation, Request, raw};
use parking_lot::Mutex;
use stere_fuse::Door;

use crate::session::Session;
use crate::sharing::HeldAnswer;

#[cfg(test)]
mod tests;

/// So long nobody gathers a file after somebody else has asked for it.
const PAUSE: Duration = Duration::from_secs(1);
/// Files that are gathered, or were a moment ago; with more, no lease is given.
const FILES_MAX: usize = 1 << 16;
/// Inodes share places in the table of what was returned.
const PLACES: u64 = 1 << 12;

/// The tag of this machine's own kernel, which is no session.
pub(crate) const OWN: u64 = 0;

/// A machine that gathers.
struct Writer<S, H> {
    tag: u64,
    session: Weak<S>,
    /// The number of the recall, and since when nothing came of what it has gathered.
    recalled: Option<(u64, Instant)>,
    waiting: Vec<Arc<H>>,
}

struct State<S, H> {
    writers: HashMap<u64, Writer<S, H>>,
    /// By which machines a file is open, or being opened, and how often.
    opens: HashMap<u64, Vec<(u64, u32)>>,
    /// How many files each machine gathers.
    machines: HashMap<u64, usize>,
    paused: HashMap<u64, Instant>,
    next: u64,
    /// Rises with each lease that ends.
    sequence: u64,
    /// When a lease on something with this place ended last.
    ended: Box<[u64]>,
}

impl<S, H> State<S, H> {
    /// A lease is over. Gives who waited for that.
    fn end(&mut self, node: u64) -> Vec<Arc<H>> {
        let Some(writer) = self.writers.remove(&node) else { return Vec::new() };
        let count = self.machines.get(&writer.tag).copied().unwrap_or(0);
        assert!(count > 0, "files that are gathered are counted");
        match count {
            1 => drop(self.machines.remove(&writer.tag)),
            count => drop(self.machines.insert(writer.tag, count - 1)),
        }
        self.sequence += 1;
        self.ended[(node % PLACES) as usize] = self.sequence;
        if writer.recalled.is_some() {
            self.paused.insert(node, Instant::now() + PAUSE);
        }
        writer.waiting
    }

    fn is_others(&self, tag: u64, node: u64) -> bool {
        self.writers.get(&node).is_some_and(|writer| writer.tag != tag)
    }
}

/// A machine that is to hear that it may not gather a file any more.
pub(crate) struct WritesRecall<S> {
    pub session: Arc<S>,
    pub node: u64,
    pub number: u64,
}

/// The write leases of all machines (or of what a test puts in their place).
pub(crate) struct Writers<S = Session, H = HeldAnswer> {
    state: Mutex<State<S, H>>,
}

impl<S, H> Default for Writers<S, H> {
    fn default() -> Writers<S, H> {
        let state = State {
            writers: HashMap::new(),
            opens: HashMap::new(),
            machines: HashMap::new(),
            paused: HashMap::new(),
            next: 0,
            sequence: 0,
            ended: vec![0; PLACES as usize].into_boxed_slice(),
        };
        Writers { state: Mutex::new(state) }
    }
}

/// A file is being opened by a machine: nobody else begins to gather it.
pub(crate) struct Opening<S = Session, H = HeldAnswer> {
    writers: Arc<Writers<S, H>>,
    tag: u64,
    node: u64,
}

impl<S, H> Drop for Opening<S, H> {
    fn drop(&mut self) {
        drop(self.writers.closed(self.tag, self.node));
    }
}

/// Has something wait until no other machine gathers these files: it goes on when `held` is let go.
pub(crate) fn wait(writers: &Writers, tag: u64, nodes: &[u64], held: &Arc<HeldAnswer>) {
    let recalls = writers.wait(tag, nodes, held);
    recalls.iter().for_each(|recall| recall.session.recall_writes(recall.node, recall.number));
}

/// The files that a request asks for: by their numbers, and by names as far as it changes them. What this machine's kernel looks up or lists is
/// asked for, too; to other kernels it is told only when nobody gathers it.
pub(crate) fn asked_of(door: &Door, writers: &Writers, tag: u64, request: &Request) -> Vec<u64> {
    let operation = request.operation();
    let mut nodes = match request.opcode() {
        opcode::RELEASE | opcode::FLUSH | opcode::GETLK | opcode::SETLK | opcode::SETLKW => return Vec::new(),
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            raw::handle_places(&request.message()).into_iter().map(|(_, node)| node).collect()
        }
        _ => vec![request.node()],
    };
    let mut names = match operation {
        Operation::Link { node, .. } => {
            nodes.push(node);
            Vec::new()
        }
        Operation::Lookup { parent, name } if tag == OWN => vec![(parent, name)],
        _ => Vec::new(),
    };
    if matches!(request.opcode(), opcode::CREATE | opcode::UNLINK | opcode::RENAME | opcode::RENAME2) {
        names.extend(operation.changed().names);
    }
    for (directory, name) in names {
        match door.named(directory, name) {
            Ok(node) => nodes.extend(node),
            Err(_) => nodes.extend(writers.all_others(tag)),
        }
    }
    if tag == OWN && request.opcode() == opcode::READDIRPLUS {
        let all = writers.all_others(tag).into_iter();
        nodes.extend(all.filter(|node| door.may_be_in(*node, request.node())));
    }
    nodes
}

impl<S, H> Writers<S, H> {
    /// The time at which a question is performed, for `may_be_old`.
    pub fn now(&self) -> u64 {
        self.state.lock().sequence
    }

    /// A machine opens a file from now on.
    pub fn opening(self: &Arc<Self>, tag: u64, node: u64) -> Opening<S, H> {
        self.opened(tag, node);
        Opening { writers: Arc::clone(self), tag, node }
    }

    /// A machine has one more handle of a file.
    pub fn opened(&self, tag: u64, node: u64) {
        assert!(tag != OWN, "a kernel of this machine counts its files itself");
        let mut state = self.state.lock();
        let of = state.opens.entry(node).or_default();
        match of.iter_mut().find(|(by, _)| *by == tag) {
            Some((_, count)) => *count += 1,
            None => of.push((tag, 1)),
        }
    }

    /// It has one less. Who has none gathers no more, having sent what it had: gives who waited for that, to be let go without a lock.
    pub fn closed(&self, tag: u64, node: u64) -> Vec<Arc<H>> {
        let mut state = self.state.lock();
        let Some(of) = state.opens.get_mut(&node) else { return Vec::new() };
        let mut is_closed = false;
        if let Some(at) = of.iter().position(|(by, _)| *by == tag) {
            assert!(of[at].1 > 0, "what is closed was open");
            of[at].1 -= 1;
            if of[at].1 == 0 {
                of.swap_remove(at);
                is_closed = true;
            }
        }
        if of.is_empty() {
            state.opens.remove(&node);
        }
        let is_writer = state.writers.get(&node).is_some_and(|writer| writer.tag == tag);
        if is_closed && is_writer { state.end(node) } else { Vec::new() }
    }

    /// How many handles of a file a machine has.
    pub fn opens(&self, tag: u64, node: u64) -> u32 {
        let state = self.state.lock();
        let of = state.opens.get(&node).into_iter().flatten();
        of.filter(|(by, _)| *by == tag).map(|(_, count)| *count).sum()
    }

    /// Lets a machine gather a file, unless somebody else has to do with it. `is_alone` is asked when others already see that it does.
    pub fn give(&self, (tag, session): (u64, &Arc<S>), node: u64, is_alone: impl FnOnce() -> bool) -> bool {
        {
            let mut state = self.state.lock();
            if let Some(writer) = state.writers.get(&node) {
                return writer.tag == tag && writer.recalled.is_none();
            }
            let is_open_elsewhere = state.opens.get(&node).is_some_and(|of| of.iter().any(|(by, _)| *by != tag));
            assert!(tag != OWN, "a kernel of this machine gathers nothing");
            let now = Instant::now();
            if state.paused.len() > FILES_MAX / 2 {
                state.paused.retain(|_, until| now < *until);
            }
            let is_paused = state.paused.get(&node).is_some_and(|until| now < *until);
            if is_open_elsewhere || is_paused || state.writers.len() + state.paused.len() >= FILES_MAX {
                return false;
            }
            state.paused.remove(&node);
            let writer = Writer { tag, session: Arc::downgrade(session), recalled: None, waiting: Vec::new() };
            state.writers.insert(node, writer);
            *state.machines.entry(tag).or_default() += 1;
        }
        if is_alone() {
            return true;
        }
        // Whoever came meanwhile waits for a machine that does not gather: it says so when it is asked.
        let mut state = self.state.lock();
        let is_unasked = state.writers.get(&node).is_some_and(|writer| writer.tag == tag && writer.recalled.is_none());
        let waiting = if is_unasked { state.end(node) } else { Vec::new() };
        assert!(waiting.is_empty(), "whoever waits has asked");
        false
    }

    /// Whether anybody but this machine gathers anything.
    pub fn has_others(&self, tag: u64) -> bool {
        self.state.lock().machines.keys().any(|other| *other != tag)
    }

    /// How many machines gather, this one among them.
    pub fn machines(&self, tag: u64) -> u64 {
        let state = self.state.lock();
        state.machines.keys().filter(|other| **other != tag).count() as u64 + 1
    }

    /// All files that others gather.
    pub fn all_others(&self, tag: u64) -> Vec<u64> {
        let state = self.state.lock();
        state.writers.iter().filter(|(_, writer)| writer.tag != tag).map(|(node, _)| *node).collect()
    }

    /// Whether what was told of a file in answer to a question of that time may be older than what another machine has written.
    pub fn may_be_old(&self, tag: u64, node: u64, since: u64) -> bool {
        let state = self.state.lock();
        state.is_others(tag, node) || state.ended[(node % PLACES) as usize] > since
    }

    /// Has something wait until no other machine gathers these files. Gives who is to hear that; where that is nobody, nothing waits, or
    /// those who gather have heard already.
    pub fn wait(&self, tag: u64, nodes: &[u64], held: &Arc<H>) -> Vec<WritesRecall<S>> {
        let mut state = self.state.lock();
        let mut recalls = Vec::new();
        for node in nodes {
            if !state.is_others(tag, *node) {
                continue;
            }
            state.next += 1;
            let number = state.next;
            assert!(number > 0, "a recall has a number");
            let Some(writer) = state.writers.get_mut(node) else { continue };
            writer.waiting.push(Arc::clone(held));
            if writer.recalled.is_none() {
                writer.recalled = Some((number, Instant::now()));
                recalls.extend(writer.session.upgrade().map(|session| WritesRecall { session, node: *node, number }));
            }
        }
        recalls
    }

    /// A machine has sent all that it had gathered of a file. Gives who waited for that, to be let go without a lock.
    pub fn returned(&self, tag: u64, node: u64, number: u64) -> Vec<Arc<H>> {
        let mut state = self.state.lock();
        let is_it = |writer: &Writer<S, H>| writer.tag == tag && writer.recalled.is_some_and(|(of, _)| of == number);
        if state.writers.get(&node).is_some_and(is_it) { state.end(node) } else { Vec::new() }
    }

    /// Something of what a machine has gathered has come: it may be slow, and is not given up.
    pub fn goes_on(&self, tag: u64, node: u64) {
        let mut state = self.state.lock();
        if let Some(writer) = state.writers.get_mut(&node).filter(|writer| writer.tag == tag) {
            writer.recalled = writer.recalled.map(|(number, _)| (number, Instant::now()));
        }
    }

    /// What a machine that comes back has to hear once more.
    pub fn recalled_of(&self, tag: u64) -> Vec<(u64, u64)> {
        let state = self.state.lock();
        let of = state.writers.iter().filter(|(_, writer)| writer.tag == tag);
        of.filter_map(|(node, writer)| writer.recalled.map(|(number, _)| (*node, number))).collect()
    }

    /// Machines that others wait for and of which nothing has come for longer than this.
    pub fn overdue(&self, patience: Duration) -> Vec<Arc<S>> {
        let state = self.state.lock();
        let is_overdue = |writer: &&Writer<S, H>| writer.recalled.is_some_and(|(_, since)| since.elapsed() > patience);
        state.writers.values().filter(is_overdue).filter_map(|writer| writer.session.upgrade()).collect()
    }

    /// A machine's session is over, and with it what it had gathered. Gives who waited for that, to be let go without a lock.
    pub fn ended(&self, tag: u64) -> Vec<Arc<H>> {
        let mut state = self.state.lock();
        state.opens.retain(|_, of| {
            of.retain(|(by, _)| *by != tag);
            !of.is_empty()
        });
        let own = state.writers.iter().filter(|(_, writer)| writer.tag == tag);
        let nodes: Vec<u64> = own.map(|(node, _)| *node).collect();
        nodes.into_iter().flat_map(|node| state.end(node)).collect()
    }
}
