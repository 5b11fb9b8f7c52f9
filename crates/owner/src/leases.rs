//! Leases: which machines may believe what they were told of names and attributes, until they are told that it changes.
//!
//! An answer that shows a name or attributes gives its machine a lease on them, and says so. Before anything changes them, all other
//! machines that have one are told, and the change waits until they have heard: whoever asks after the change was answered never sees
//! what was before. Nothing that is being changed is leased, nor what has changed since the question came, for the answer may be older.
//! A lease ends when it is recalled, when the machine's kernel has forgotten the inode, and with the machine's connection; a machine that
//! hears nothing of its owner believes nothing, sooner than its owner gives it up (`LEASE_SECONDS`).
//!
//! Invariants: who has a lease, what is being changed and what has changed is under one lock; a lease on a directory's names outlives the
//! change of one of them, which its machine is told by name. Read next: `session.rs`; `crates/client/src/leased.rs` is the other side.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use stere_fuse::Changes;
use stere_machine_wire::Notice;

use crate::session::Session;

#[cfg(test)]
mod tests;

/// Inodes share places in the table of what has changed: one too many costs a lease.
const PLACES: u64 = 1 << 12;
/// Leases of all machines; with more, none is given.
const LEASES_MAX: usize = 4 << 20;

/// Who has a lease on something.
type Holders<S> = HashMap<u64, Vec<(u64, Weak<S>)>>;

struct State<S> {
    /// On all names in directories that were told.
    names: Holders<S>,
    attributes: Holders<S>,
    count: usize,
    /// How many changes of each inode, or of names in it, are under way.
    changing: HashMap<u64, u32>,
    /// When something with this place was changed last.
    changed: Box<[u64]>,
    sequence: u64,
}

impl<S> State<S> {
    fn note_changed(&mut self, node: u64) {
        self.sequence += 1;
        self.changed[(node % PLACES) as usize] = self.sequence;
    }

    fn has_changed(&self, node: u64, since: u64) -> bool {
        self.changed[(node % PLACES) as usize] > since
    }

    /// Whether what is told of an inode by an answer to a question of that time may be older than a change.
    fn may_be_old(&self, node: u64, since: u64) -> bool {
        self.changing.contains_key(&node) || self.has_changed(node, since)
    }

    fn end_change(&mut self, nodes: &[u64]) {
        for node in nodes {
            let count = self.changing.get(node).copied().unwrap_or(0);
            assert!(count > 0, "a change of inode {node} ends that did not begin");
            match count {
                1 => drop(self.changing.remove(node)),
                count => drop(self.changing.insert(*node, count - 1)),
            }
            self.note_changed(*node);
        }
    }
}

fn let_go<S>(holders: &mut Holders<S>, node: u64, tag: u64) -> usize {
    let Some(of) = holders.get_mut(&node) else { return 0 };
    let before = of.len();
    of.retain(|(holder, _)| *holder != tag);
    let gone = before - of.len();
    if of.is_empty() {
        holders.remove(&node);
    }
    gone
}

/// What a machine is to hear before a change goes on.
#[derive(Debug)]
pub(crate) struct Recall<S> {
    pub tag: u64,
    pub session: Arc<S>,
    pub notices: Vec<Notice>,
}

#[derive(Debug)]
struct Recalls<S>(Vec<Recall<S>>);

impl<S> Recalls<S> {
    fn add(&mut self, tag: u64, holder: &Weak<S>, notice: Notice) {
        if let Some(known) = self.0.iter_mut().find(|known| known.tag == tag) {
            return known.notices.push(notice);
        }
        let session = holder.upgrade();
        self.0.extend(session.map(|session| Recall { tag, session, notices: vec![notice] }));
    }
}

/// The leases of all machines (or of what a test puts in their place).
pub(crate) struct Leases<S = Session> {
    state: Mutex<State<S>>,
}

impl<S> Default for Leases<S> {
    fn default() -> Leases<S> {
        let state = State {
            names: HashMap::new(),
            attributes: HashMap::new(),
            count: 0,
            changing: HashMap::new(),
            changed: vec![0; PLACES as usize].into_boxed_slice(),
            sequence: 0,
        };
        Leases { state: Mutex::new(state) }
    }
}

/// A change that is under way: nothing of it is leased as long as this lives.
pub(crate) struct Changing<S> {
    leases: Arc<Leases<S>>,
    nodes: Vec<u64>,
    begun: u64,
}

impl<S> Changing<S> {
    /// The change is made. Gives since when its answer is right, if nobody else has changed meanwhile what it tells of these inodes and of
    /// others (`found`).
    pub fn end(mut self, found: &[u64]) -> Option<u64> {
        let nodes = std::mem::take(&mut self.nodes);
        let mut state = self.leases.state.lock();
        let is_alone =
            nodes.iter().all(|node| state.changing.get(node) == Some(&1) && !state.has_changed(*node, self.begun));
        let is_alone = is_alone
            && found.iter().filter(|node| !nodes.contains(node)).all(|node| !state.may_be_old(*node, self.begun));
        state.end_change(&nodes);
        assert!(state.sequence > self.begun, "a change moves the time on");
        is_alone.then_some(state.sequence)
    }
}

impl<S> Drop for Changing<S> {
    fn drop(&mut self) {
        if !self.nodes.is_empty() {
            self.leases.state.lock().end_change(&self.nodes);
        }
    }
}

impl<S> Leases<S> {
    /// The time at which a question comes, for `give`.
    pub fn now(&self) -> u64 {
        self.state.lock().sequence
    }

    /// Something is about to change. Who has to hear of it first, besides who changes it.
    pub fn change(self: &Arc<Self>, changes: &Changes) -> (Changing<S>, Vec<Recall<S>>) {
        let mut nodes: Vec<u64> = changes.inodes.iter().map(|inode| inode.node).collect();
        nodes.extend(changes.names.iter().map(|(directory, _)| *directory));
        nodes.sort_unstable();
        nodes.dedup();
        assert!(!nodes.is_empty(), "a change is of something: {changes:?}");
        let mut state = self.state.lock();
        nodes.iter().for_each(|node| *state.changing.entry(*node).or_insert(0) += 1);
        let begun = state.sequence;
        let recalls = Self::recall(&mut state, |tag| changes.by == Some(tag), &changes.names, &nodes);
        drop(state);
        (Changing { leases: Arc::clone(self), nodes, begun }, recalls)
    }

    /// Attributes of these inodes have changed, and nobody said that they would. Who has to hear of it; who changed them knows as little.
    pub fn changed(&self, nodes: &[u64]) -> Vec<Recall<S>> {
        let mut state = self.state.lock();
        nodes.iter().for_each(|node| state.note_changed(*node));
        Self::recall(&mut state, |_| false, &[], nodes)
    }

    fn recall(
        state: &mut State<S>,
        is_own: impl Fn(u64) -> bool,
        names: &[(u64, Vec<u8>)],
        nodes: &[u64],
    ) -> Vec<Recall<S>> {
        let mut recalls = Recalls(Vec::new());
        for (directory, name) in names {
            for (tag, holder) in state.names.get(directory).into_iter().flatten().filter(|(tag, _)| !is_own(*tag)) {
                recalls.add(*tag, holder, Notice::Entry { parent: *directory, name: name.clone() });
            }
        }
        for node in nodes {
            let holders = state.attributes.remove(node).unwrap_or_default();
            assert!(state.count >= holders.len(), "{} leases of {} are recalled", holders.len(), state.count);
            state.count -= holders.len();
            for (tag, holder) in holders.iter().filter(|(tag, _)| !is_own(*tag)) {
                recalls.add(*tag, holder, Notice::Inode { node: *node, offset: -1, length: 0, settled: 0 });
            }
        }
        recalls.0
    }

    /// Gives a lease on what the answer to a question tells: names in directories, and attributes of inodes. False: it may be old.
    pub fn give(&self, (tag, session): (u64, &Arc<S>), since: u64, directories: &[u64], nodes: &[u64]) -> bool {
        let mut state = self.state.lock();
        assert!(since <= state.sequence, "a question came at {since}, and it is {}", state.sequence);
        let may_be_old = directories.iter().chain(nodes).any(|node| state.may_be_old(*node, since));
        if may_be_old || state.count + directories.len() + nodes.len() > LEASES_MAX {
            return false;
        }
        let State { names, attributes, count, .. } = &mut *state;
        let mut put = |holders: &mut Holders<S>, node: u64| {
            let of = holders.entry(node).or_default();
            if !of.iter().any(|(holder, _)| *holder == tag) {
                of.push((tag, Arc::downgrade(session)));
                *count += 1;
            }
        };
        directories.iter().for_each(|node| put(names, *node));
        nodes.iter().for_each(|node| put(attributes, *node));
        assert!(state.count <= LEASES_MAX, "{} leases are given", state.count);
        true
    }

    /// Whether no other machine may believe attributes of an inode, or changes it. What was asked for until now gives none.
    pub fn is_only(&self, tag: u64, node: u64) -> bool {
        let mut state = self.state.lock();
        let has_others = state.attributes.get(&node).is_some_and(|of| of.iter().any(|(holder, _)| *holder != tag));
        let is_only = !has_others && !state.changing.contains_key(&node);
        if is_only {
            state.note_changed(node);
        }
        is_only
    }

    /// Whether a machine has a lease on the names in a directory.
    pub fn has_names(&self, tag: u64, directory: u64) -> bool {
        self.state.lock().names.get(&directory).is_some_and(|of| of.iter().any(|(holder, _)| *holder == tag))
    }

    /// A machine's kernel knows this inode no more.
    pub fn forgotten(&self, tag: u64, node: u64) {
        let mut state = self.state.lock();
        let gone = let_go(&mut state.names, node, tag);
        let gone = gone + let_go(&mut state.attributes, node, tag);
        assert!(gone <= 2, "a machine has one lease on each inode's names and attributes, and not {gone}");
        state.count -= gone;
    }

    /// A machine's connection is gone, and it believes nothing any more.
    pub fn ended(&self, tag: u64) {
        let mut state = self.state.lock();
        let State { names, attributes, count, .. } = &mut *state;
        for holders in [names, attributes] {
            holders.retain(|_, of| {
                let before = of.len();
                of.retain(|(holder, _)| *holder != tag);
                *count -= before - of.len();
                !of.is_empty()
            });
        }
    }
}
