//! Who is told what others changed: the kernels of other machines, and this machine's.
//!
//! Changes are queued by those who made them and told by a thread of its own, because a kernel that is told may wait for a request that
//! is being served. Writes of one file by one kernel are told together. Nobody is promised to hear of a change before a certain time:
//! what is promised, close-to-open, does not need it. Read next: `session.rs`.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};
use stere_fuse::{ChangedInode, Changes};

#[cfg(test)]
mod tests;

/// Changes that nobody was told of yet; then the oldest is left out, and is seen when a kernel asks again.
const QUEUE_MAX: usize = 16_384;

#[derive(Default)]
struct Queue {
    changes: VecDeque<Changes>,
    is_over: bool,
}

/// Changes on their way to others.
#[derive(Default)]
pub(crate) struct Effects {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

/// A range that has both; attributes are part of every range.
fn both(one: ChangedInode, other: ChangedInode) -> ChangedInode {
    let end = |range: &ChangedInode| match range.length {
        0 => i64::MAX,
        length => range.offset.saturating_add(length),
    };
    match (one.offset < 0, other.offset < 0) {
        (true, _) => other,
        (_, true) => one,
        (false, false) => {
            let (offset, end) = (one.offset.min(other.offset), end(&one).max(end(&other)));
            let length = if end == i64::MAX { 0 } else { end - offset };
            ChangedInode { node: one.node, offset, length }
        }
    }
}

/// Whether nothing lies between two ranges: who has written there is not told that others did.
fn touch(one: &ChangedInode, other: &ChangedInode) -> bool {
    let end =
        |range: &ChangedInode| if range.length == 0 { i64::MAX } else { range.offset.saturating_add(range.length) };
    one.offset < 0 || other.offset < 0 || (one.offset <= end(other) && other.offset <= end(one))
}

/// Adds a change to one that is queued, if both are of the same content by the same kernel.
fn merge(last: &mut Changes, next: &Changes) -> bool {
    let ([known], [new]) = (&mut last.inodes[..], &next.inodes[..]) else { return false };
    let is_alike = last.by == next.by
        && last.names.is_empty()
        && next.names.is_empty()
        && known.node == new.node
        && touch(known, new);
    if is_alike {
        *known = both(*known, *new);
        last.tell_own |= next.tell_own;
    }
    is_alike
}

impl Effects {
    /// Somebody has changed something.
    pub fn push(&self, changes: Changes) {
        let mut queue = self.queue.lock();
        if queue.changes.back_mut().is_some_and(|last| merge(last, &changes)) {
            return;
        }
        if queue.changes.len() == QUEUE_MAX {
            queue.changes.pop_front();
        }
        queue.changes.push_back(changes);
        drop(queue);
        self.arrived.notify_one();
    }

    pub fn end(&self) {
        self.queue.lock().is_over = true;
        self.arrived.notify_all();
    }

    /// Tells each change, until the end. For a thread of its own.
    pub fn tell(&self, tell: impl Fn(&Changes)) {
        loop {
            let mut queue = self.queue.lock();
            while queue.changes.is_empty() && !queue.is_over {
                self.arrived.wait(&mut queue);
            }
            if queue.is_over {
                return;
            }
            let changes = std::mem::take(&mut queue.changes);
            drop(queue);
            changes.iter().for_each(&tell);
        }
    }
}
