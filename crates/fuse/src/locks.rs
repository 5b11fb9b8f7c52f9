//! Locks of flock(2) and fcntl(2), where several machines mount a pool: their kernels ask, and nobody but this table knows them all.
//!
//! A lock belongs to an owner, which its kernel names; the same number of two kernels means two owners. What conflicts is refused, or
//! waits in the order of arrival. Invariants: locks of two owners that overlap are both shared; one owner's locks do not overlap;
//! who waits is answered once. Deadlocks of waiters are not found: one of them has to be interrupted.
//! Read next: `front.rs`, which asks here; `ranges.rs` of fuse-wire, the table without requests.

use std::collections::{HashMap, VecDeque};

use fuse_wire::abi::opcode;
use fuse_wire::ranges::{Owner, Ranges, Wanted};
use fuse_wire::{Lock, Operation, Request};
use parking_lot::Mutex;

#[cfg(test)]
mod tests;

/// Requests of one kernel that may wait for locks: they keep their places in its transport, of which others need some.
const WAITING_MAX: usize = 16;

/// Somebody who waits.
struct Waiting {
    request: Request,
    wanted: Wanted,
}

#[derive(Default)]
struct OfInode {
    flock: Ranges,
    posix: Ranges,
    waiting: VecDeque<(bool, Waiting)>,
}

impl OfInode {
    fn of_kind(&mut self, is_flock: bool) -> &mut Ranges {
        if is_flock { &mut self.flock } else { &mut self.posix }
    }

    fn is_empty(&self) -> bool {
        self.flock.is_empty() && self.posix.is_empty() && self.waiting.is_empty()
    }

    /// Gives those who wait what is free now, in their order.
    fn grant(&mut self) -> Vec<Request> {
        let mut granted = Vec::new();
        for (is_flock, waiting) in std::mem::take(&mut self.waiting) {
            let ranges = self.of_kind(is_flock);
            if ranges.conflict(&waiting.wanted).is_none() {
                ranges.set(&waiting.wanted);
                granted.push(waiting.request);
            } else {
                self.waiting.push_back((is_flock, waiting));
            }
        }
        granted
    }
}

/// All locks of a pool.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<u64, OfInode>>);

impl Locks {
    /// Whether requests of this kind come here.
    pub fn concern(operation: u32) -> bool {
        matches!(operation, opcode::GETLK | opcode::SETLK | opcode::SETLKW | opcode::FLUSH)
    }

    /// Answers a request about locks, now or when they are free.
    pub fn serve(&self, request: Request) {
        match request.operation() {
            Operation::Getlk { node, owner, lock, flock, .. } => {
                let wanted = Wanted::new(Owner { kernel: request.remote_tag(), number: owner }, &lock);
                let found = self.0.lock().get_mut(&node).and_then(|inode| inode.of_kind(flock).conflict(&wanted));
                let free = Lock { kind: libc::F_UNLCK.cast_unsigned(), ..lock };
                request.reply_lock(&found.unwrap_or(free));
            }
            Operation::Setlk { node, owner, lock, flock, wait, .. } => {
                let wanted = Wanted::new(Owner { kernel: request.remote_tag(), number: owner }, &lock);
                match wanted.kind {
                    None => self.unlock(request, node, flock, &wanted),
                    Some(_) => self.lock(request, node, flock, wanted, wait),
                }
            }
            Operation::Flush { node, lock_owner, .. } => {
                // Closing any descriptor of a file lets all locks of its process go.
                self.release(node, Owner { kernel: request.remote_tag(), number: lock_owner }, false);
                request.reply_ok();
            }
            _ => request.reply_error(libc::EIO),
        }
    }

    /// A file is closed for good.
    pub fn closed(&self, request: &Request) {
        if let Operation::Release { node, lock_owner, flock_unlock: true, .. } = request.operation() {
            self.release(node, Owner { kernel: request.remote_tag(), number: lock_owner }, true);
        }
    }

    fn lock(&self, request: Request, node: u64, is_flock: bool, wanted: Wanted, wait: bool) {
        let mut table = self.0.lock();
        let kernel = request.remote_tag();
        let waiting: usize = if wait { count_waiting(&table, kernel) } else { 0 };
        let inode = table.entry(node).or_default();
        let is_free = inode.of_kind(is_flock).conflict(&wanted).is_none();
        if is_free {
            inode.of_kind(is_flock).set(&wanted);
            // A lock that got smaller or weaker may be what another waits for.
            let granted = inode.grant();
            drop(table);
            granted.into_iter().for_each(Request::reply_ok);
            return request.reply_ok();
        }
        let errno = match (wait, waiting < WAITING_MAX) {
            (false, _) => libc::EAGAIN,
            (true, false) => libc::ENOLCK,
            (true, true) if request.cancel().is_cancelled() => libc::EINTR,
            (true, true) => return inode.waiting.push_back((is_flock, Waiting { request, wanted })),
        };
        drop(table);
        request.reply_error(errno);
    }

    fn unlock(&self, request: Request, node: u64, is_flock: bool, wanted: &Wanted) {
        self.change(node, |inode| inode.of_kind(is_flock).set(wanted));
        request.reply_ok();
    }

    fn release(&self, node: u64, owner: Owner, is_flock: bool) {
        self.change(node, |inode| inode.of_kind(is_flock).remove(|held| held == owner));
    }

    /// Changes the locks of an inode that has some, and gives to others what is free then.
    fn change(&self, node: u64, change: impl FnOnce(&mut OfInode)) {
        let mut table = self.0.lock();
        let Some(inode) = table.get_mut(&node) else { return };
        change(inode);
        let granted = inode.grant();
        if inode.is_empty() {
            table.remove(&node);
        }
        drop(table);
        granted.into_iter().for_each(Request::reply_ok);
    }

    /// Whoever waits with this request got a signal.
    pub fn interrupt(&self, kernel: Option<u64>, unique: u64) {
        let is_it = |request: &Request| request.remote_tag() == kernel && request.context().unique == unique;
        self.end_waiting(is_it).into_iter().for_each(|request| request.reply_error(libc::EINTR));
    }

    /// A kernel is gone, with all that it had.
    pub fn end(&self, kernel: u64) {
        drop(self.end_waiting(|request| request.remote_tag() == Some(kernel)));
        let nodes: Vec<u64> = self.0.lock().keys().copied().collect();
        for node in nodes {
            self.change(node, |inode| {
                inode.flock.remove(|held| held.kernel == Some(kernel));
                inode.posix.remove(|held| held.kernel == Some(kernel));
            });
        }
    }

    /// This machine's kernel is gone.
    pub fn end_local(&self) {
        let is_local = |request: &Request| request.remote_tag().is_none();
        self.end_waiting(is_local).into_iter().for_each(|request| request.reply_error(libc::EINTR));
    }

    /// Nobody is served any more: those who still wait are told.
    pub fn end_all(&self) {
        self.end_waiting(|_| true).into_iter().for_each(|request| request.reply_error(libc::EINTR));
    }

    fn end_waiting(&self, is_over: impl Fn(&Request) -> bool) -> Vec<Request> {
        let mut ended = Vec::new();
        for inode in self.0.lock().values_mut() {
            for (is_flock, waiting) in std::mem::take(&mut inode.waiting) {
                match is_over(&waiting.request) {
                    true => ended.push(waiting.request),
                    false => inode.waiting.push_back((is_flock, waiting)),
                }
            }
        }
        ended
    }
}

fn count_waiting(table: &HashMap<u64, OfInode>, kernel: Option<u64>) -> usize {
    let of_kernel = |(_, waiting): &&(bool, Waiting)| waiting.request.remote_tag() == kernel;
    table.values().map(|inode| inode.waiting.iter().filter(of_kernel).count()).sum()
}
