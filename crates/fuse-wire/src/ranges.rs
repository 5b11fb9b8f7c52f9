//! Who has which range of one inode locked, for those who keep the locks of several kernels; pure.
//!
//! Invariants: locks of two owners that overlap are both shared, where whoever sets one has looked for conflicts; one owner's do not overlap.

use crate::operation::Lock;

#[cfg(test)]
mod tests;

/// Whom a lock belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// A far session, or this machine's kernel.
    pub kernel: Option<u64>,
    /// The kernel's number.
    pub number: u64,
}

/// A change of what an owner has locked.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    owner: Owner,
    start: u64,
    /// The last byte.
    end: u64,
    /// Whether for the owner alone; `None` lets go.
    pub kind: Option<bool>,
    pid: u32,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    owner: Owner,
    start: u64,
    end: u64,
    is_exclusive: bool,
    pid: u32,
}

impl Wanted {
    #[must_use]
    pub fn new(owner: Owner, lock: &Lock) -> Wanted {
        let kind = match lock.kind.cast_signed() {
            libc::F_UNLCK => None,
            kind => Some(kind == libc::F_WRLCK),
        };
        Wanted { owner, start: lock.start, end: lock.end.max(lock.start), kind, pid: lock.pid }
    }
}

/// All locks of one kind on an inode.
#[derive(Debug, Default)]
pub struct Ranges(Vec<Held>);

impl Ranges {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn are_held_by(&self, is_it: impl Fn(Owner) -> bool) -> bool {
        self.0.iter().any(|held| is_it(held.owner))
    }

    /// A lock that is in the way.
    #[must_use]
    pub fn conflict(&self, wanted: &Wanted) -> Option<Lock> {
        let is_exclusive = wanted.kind?;
        let is_in_the_way = |held: &&Held| {
            held.owner != wanted.owner
                && held.start <= wanted.end
                && wanted.start <= held.end
                && (held.is_exclusive || is_exclusive)
        };
        self.0.iter().find(is_in_the_way).map(|held| {
            let kind = if held.is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
            // A process of another machine means nothing to who asks.
            let pid = if held.owner.kernel == wanted.owner.kernel { held.pid } else { 0 };
            Lock { start: held.start, end: held.end, kind: kind.cast_unsigned(), pid }
        })
    }

    /// Makes the range what is wanted; what conflicts was looked for before.
    pub fn set(&mut self, wanted: &Wanted) {
        let mut rest = Vec::with_capacity(self.0.len() + 2);
        for held in self.0.drain(..) {
            if held.owner != wanted.owner || held.end < wanted.start || wanted.end < held.start {
                rest.push(held);
                continue;
            }
            if held.start < wanted.start {
                rest.push(Held { end: wanted.start - 1, ..held });
            }
            if wanted.end < held.end {
                rest.push(Held { start: wanted.end + 1, ..held });
            }
        }
        self.0 = rest;
        if let Some(is_exclusive) = wanted.kind {
            let Wanted { owner, start, end, pid, .. } = *wanted;
            self.0.push(Held { owner, start, end, is_exclusive, pid });
        }
    }

    /// All locks, with their owners' numbers.
    pub fn each(&self) -> impl Iterator<Item = (u64, Lock)> + '_ {
        self.0.iter().map(|held| {
            let kind = if held.is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
            (held.owner.number, Lock { start: held.start, end: held.end, kind: kind.cast_unsigned(), pid: held.pid })
        })
    }

    /// Lets go of what belongs to these owners.
    pub fn remove(&mut self, is_over: impl Fn(Owner) -> bool) {
        self.0.retain(|held| !is_over(held.owner));
    }
}
