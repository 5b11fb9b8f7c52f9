//! What the last look at removed inodes shows: the kernel may ask for attributes of an inode without a name that nobody
//! has open here (an open FIFO, a current directory, an `O_PATH` handle), until it says that it forgot the inode.
//!
//! Invariant: a bounded number is remembered; what is lost early answers `Stale`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stere_format::InodeValue;

/// Remembered at most; the kernel forgets most removed inodes at once.
const GHOSTS_MAX: usize = 8192;

#[derive(Default)]
struct Remembered {
    values: FxHashMap<u64, InodeValue>,
    /// In the order of their removal; forgotten ones may still be in here.
    order: VecDeque<u64>,
}

/// Inodes that were freed and not yet forgotten by the kernel.
#[derive(Default)]
pub(crate) struct Ghosts {
    remembered: Mutex<Remembered>,
    count: AtomicUsize,
}

impl Ghosts {
    pub fn add(&self, inode: u64, value: InodeValue) {
        let mut remembered = self.remembered.lock();
        while remembered.order.len() >= GHOSTS_MAX {
            let Some(oldest) = remembered.order.pop_front() else { break };
            remembered.values.remove(&oldest);
        }
        remembered.order.push_back(inode);
        remembered.values.insert(inode, value);
        self.count.store(remembered.values.len(), Ordering::Release);
    }

    pub fn get(&self, inode: u64) -> Option<InodeValue> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.remembered.lock().values.get(&inode).cloned()
    }

    pub fn forget(&self, inode: u64) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut remembered = self.remembered.lock();
        remembered.values.remove(&inode);
        if remembered.values.is_empty() {
            remembered.order.clear();
        }
        self.count.store(remembered.values.len(), Ordering::Release);
    }
}
