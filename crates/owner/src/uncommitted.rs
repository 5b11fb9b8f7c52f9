//! What is changed and not committed, and by whom: an answer that another machine could lose with the owner waits for the commit.
//!
//! A machine keeps a request that was answered before the commit, and has the next owner perform it again. That is sound only where its
//! answer came of nothing that others have done and may lose: so whoever sees or changes names or attributes of an inode of which somebody
//! else has changed these since the last commit, is answered after the next one. Content is no part of this (`sharing.rs`).
//!
//! Invariants: a change is listed from before it is made until a commit is done that began after it was made; of an inode that several have
//! changed nobody is the only one. Read next: `session.rs`, which asks; `definite.rs`, which commits.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_fuse::Changes;

#[cfg(test)]
mod tests;

/// Stands for more than one, or for one who will not say it again.
const SEVERAL: u64 = u64::MAX;
/// This machine's own programs: tags of others begin with 1.
const HERE: u64 = 0;
/// Inodes that are listed; with more of them all are taken for changed by several.
const LISTED_MAX: usize = 65_536;

/// Who has changed each inode.
type Changed = HashMap<u64, u64>;

fn join(changed: &mut Changed, node: u64, by: u64) {
    changed.entry(node).and_modify(|known| *known = if *known == by { by } else { SEVERAL }).or_insert(by);
}

#[derive(Default)]
struct State {
    /// How many changes are under way, and whose they are.
    under_way: HashMap<u64, (u32, u64)>,
    /// Since the last commit began.
    since: Changed,
    /// Before it began; it is not done.
    before: Changed,
    /// More than are listed.
    is_more_since: bool,
    is_more_before: bool,
}

impl State {
    fn note(&mut self, node: u64, by: u64) {
        if self.since.len() >= LISTED_MAX {
            self.is_more_since = true;
        } else {
            join(&mut self.since, node, by);
        }
    }
}

/// All that is not committed.
#[derive(Default)]
pub(crate) struct Uncommitted(Mutex<State>);

/// A change that is under way as long as this lives.
pub(crate) struct Pending {
    uncommitted: Arc<Uncommitted>,
    nodes: Vec<u64>,
}

impl Pending {
    /// The inodes of which names or attributes are changed.
    pub fn nodes(&self) -> &[u64] {
        &self.nodes
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut state = self.uncommitted.0.lock();
        for node in &self.nodes {
            let known = state.under_way.remove(node);
            assert!(known.is_some_and(|(count, _)| count > 0), "a change of inode {node} ends that did not begin");
            let Some((count, by)) = known else { continue };
            if count > 1 {
                state.under_way.insert(*node, (count - 1, by));
            }
            // Whose it is by now: an answer to it may have been lost.
            state.note(*node, by);
        }
    }
}

/// The inodes of which a change changes names or attributes.
fn nodes_of(changes: &Changes) -> Vec<u64> {
    let inodes = changes.inodes.iter().filter(|inode| inode.offset < 0).map(|inode| inode.node);
    let mut nodes: Vec<u64> = inodes.chain(changes.names.iter().map(|(directory, _)| *directory)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

impl Uncommitted {
    /// A change is about to be made.
    pub fn begin(self: &Arc<Self>, changes: &Changes) -> Pending {
        let (by, nodes) = (changes.by.unwrap_or(HERE), nodes_of(changes));
        let mut state = self.0.lock();
        for node in &nodes {
            let join = |known: &mut (u32, u64)| *known = (known.0 + 1, if known.1 == by { by } else { SEVERAL });
            state.under_way.entry(*node).and_modify(join).or_insert((1, by));
        }
        drop(state);
        Pending { uncommitted: Arc::clone(self), nodes }
    }

    /// A change was made of which these inodes were not known before.
    pub fn note(&self, by: Option<u64>, nodes: &[u64]) {
        let mut state = self.0.lock();
        nodes.iter().for_each(|node| state.note(*node, by.unwrap_or(HERE)));
    }

    /// The same for one that nobody has begun.
    pub fn note_all(&self, changes: &Changes) {
        self.note(changes.by, &nodes_of(changes));
    }

    /// Whether names or attributes of one of these inodes are what others have made of them, and may be lost with this owner.
    pub fn are_others(&self, tag: u64, nodes: &[u64]) -> bool {
        let state = self.0.lock();
        let is_others = |by: Option<&u64>| by.is_some_and(|by| *by != tag);
        state.is_more_since
            || state.is_more_before
            || nodes.iter().any(|node| {
                is_others(state.since.get(node))
                    || is_others(state.before.get(node))
                    || is_others(state.under_way.get(node).map(|(_, by)| by))
            })
    }

    /// This machine may have lost an answer: what it has changed is not for it alone to keep.
    pub fn disown(&self, tag: u64) {
        let mut state = self.0.lock();
        let State { under_way, since, before, .. } = &mut *state;
        let all = since.values_mut().chain(before.values_mut()).chain(under_way.values_mut().map(|(_, by)| by));
        all.filter(|by| **by == tag).for_each(|by| *by = SEVERAL);
    }

    /// What has been made by now will be committed.
    pub fn commit_begins(&self) {
        let mut state = self.0.lock();
        assert!(state.before.is_empty() && !state.is_more_before, "one commit at a time");
        state.before = std::mem::take(&mut state.since);
        state.is_more_before = std::mem::take(&mut state.is_more_since);
    }

    /// It is.
    pub fn commit_is_done(&self) {
        let mut state = self.0.lock();
        state.before.clear();
        state.is_more_before = false;
    }
}
