//! Times of access: kept in memory, saved in batches when the file system is synced or many have gathered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stere_format::{InodeValue, Key, Timestamp};
use stere_store::Io;

use crate::call::{AccessTimes, Caller};
use crate::error::Error;
use crate::inode::Core;

const SHARDS: usize = 16;
/// Saved in one transaction.
const BATCH: usize = 128;
/// Kept in memory before a step saves them.
const KEPT_MAX: usize = 4096;
/// A time of access older than this is renewed by a read even when nothing changed.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Times of access by inode, and how many they are: most calls find none. They are counted with the shard locked, so none is removed
/// before it was counted.
#[derive(Default)]
struct Gathered {
    shards: [Mutex<FxHashMap<u64, Timestamp>>; SHARDS],
    count: AtomicUsize,
}

impl Gathered {
    fn shard(&self, inode: u64) -> &Mutex<FxHashMap<u64, Timestamp>> {
        &self.shards[(inode % SHARDS as u64) as usize]
    }

    #[inline]
    fn get(&self, inode: u64) -> Option<Timestamp> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.shard(inode).lock().get(&inode).copied()
    }

    fn set(&self, inode: u64, time: Timestamp) {
        let mut shard = self.shard(inode).lock();
        if shard.insert(inode, time).is_none() {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn remove(&self, inode: u64) {
        if self.count.load(Ordering::Acquire) > 0 && self.shard(inode).lock().remove(&inode).is_some() {
            let before = self.count.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "what is removed was counted");
        }
    }

    /// Removes entries that are still what was saved.
    fn saved(&self, batch: &[(u64, Timestamp)]) {
        for (inode, time) in batch {
            let mut shard = self.shard(*inode).lock();
            if shard.get(inode) == Some(time) {
                shard.remove(inode);
                let before = self.count.fetch_sub(1, Ordering::AcqRel);
                assert!(before > 0, "what was saved was counted");
            }
        }
    }

    fn all(&self) -> Vec<(u64, Timestamp)> {
        let mut all = Vec::with_capacity(self.count.load(Ordering::Acquire));
        for shard in &self.shards {
            all.extend(shard.lock().iter().map(|(inode, time)| (*inode, *time)));
        }
        all.sort_unstable_by_key(|(inode, _)| *inode);
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "an inode has one time of access");
        all
    }
}

/// Times of access that are not saved yet.
pub struct LazyTimes {
    core: Arc<Core>,
    gathered: Gathered,
}

impl LazyTimes {
    pub fn new(core: Arc<Core>) -> LazyTimes {
        LazyTimes { core, gathered: Gathered::default() }
    }

    pub fn get(&self, inode: u64) -> Option<Timestamp> {
        self.gathered.get(inode)
    }

    pub fn remove(&self, inode: u64) {
        self.gathered.remove(inode);
    }

    /// Notes that an inode was read.
    #[inline]
    pub fn note_access(&self, caller: &Caller<'_>, inode: u64, value: &InodeValue) {
        let atime = self.get(inode).unwrap_or(value.atime);
        let renew = match self.core.options.access_times {
            AccessTimes::Never => false,
            AccessTimes::Strict => atime != caller.now,
            AccessTimes::Relative => {
                atime <= value.mtime
                    || atime <= value.ctime
                    || caller.now.seconds.saturating_sub(atime.seconds) >= DAY_SECONDS
            }
        };
        if renew && atime != caller.now {
            self.gathered.set(inode, caller.now);
        }
    }

    /// Saves times of access when many have gathered.
    pub fn save_many_lazy_times(&self, io: Io<'_>) -> Result<(), Error> {
        if self.gathered.count.load(Ordering::Acquire) > KEPT_MAX { self.save_lazy_times(io) } else { Ok(()) }
    }

    /// Saves all times of access; the caller commits.
    pub fn save_lazy_times(&self, io: Io<'_>) -> Result<(), Error> {
        let mut all = self.gathered.all();
        if self.core.store.offload().has_folds() {
            // A time of access brings nothing back from a medium.
            let (away, here): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|(inode, _)| self.core.store.offload().is_folded(&Key::inode(*inode)));
            self.gathered.saved(&away);
            all = here;
        }
        for batch in all.chunks(BATCH) {
            self.core.store.update(io, |transaction| {
                for (inode, time) in batch {
                    // Somebody may have set the time since the list was made.
                    if self.get(*inode) != Some(*time) {
                        continue;
                    }
                    if let Some(mut value) = stere_file::inode_if_any(transaction, *inode)? {
                        value.atime = *time;
                        stere_file::put_inode(transaction, *inode, &value);
                    }
                }
                Ok::<_, Error>(())
            })?;
            self.gathered.saved(batch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
