//! What is durable: answers that wait for a commit, and marks that tell clients which of their writes they need not keep.
//!
//! Whoever waits is answered by one thread, which commits once for all that came meanwhile, and soon after something was answered before
//! its commit. Every few seconds, or when much was written, another makes everything durable and tells the mark. A write's mark is its
//! own, and taken after it was performed; the mark that is told was taken before the sync began, so what has it or a lower one is durable.
//! The same holds of names and attributes, and of commits.
//!
//! Invariant: after a commit has failed nothing is answered and nothing told, because this machine may not be the owner any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stere_fuse::Door;

use crate::uncommitted::Uncommitted;

/// How often what clients wrote is made durable unasked.
const EVERY: Duration = Duration::from_secs(5);
/// How soon what was answered before its commit is committed, if nobody waits for one sooner.
const COMMIT_WITHIN: Duration = Duration::from_millis(5);
/// Bytes of writes after which that is done at once.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// What has to be durable before an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Names and attributes.
    Names,
    /// All of one file.
    File(u64),
}

/// Gives an answer; with an errno if what was done is not durable.
pub(crate) type Tell = Box<dyn FnOnce(Option<i32>) + Send>;

#[derive(Default)]
struct Queue {
    waiting: Vec<(Need, Tell)>,
    /// When to commit, though nobody waits.
    due: Option<Instant>,
    is_over: bool,
}

/// Makes things durable for clients.
pub(crate) struct Definite {
    door: Door,
    pub uncommitted: Arc<Uncommitted>,
    mark: AtomicU64,
    /// What has this mark or a lower one is committed.
    committed: AtomicU64,
    unsynced: AtomicU64,
    has_failed: AtomicBool,
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// For the thread of the marks.
    pause: Mutex<()>,
    due: Condvar,
}

impl Definite {
    pub fn new(door: Door) -> Arc<Definite> {
        Arc::new(Definite {
            door,
            uncommitted: Arc::default(),
            mark: AtomicU64::new(1),
            committed: AtomicU64::new(0),
            unsynced: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            queue: Mutex::default(),
            arrived: Condvar::new(),
            pause: Mutex::new(()),
            due: Condvar::new(),
        })
    }

    /// Whether nobody may be answered any more.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// The mark of what was performed just now: a new one for what has written.
    pub fn mark(&self, written_bytes: u64) -> u64 {
        if written_bytes == 0 {
            return self.mark.load(Ordering::SeqCst);
        }
        if self.unsynced.fetch_add(written_bytes, Ordering::AcqRel) > UNSYNCED_BYTES_MAX {
            self.due.notify_one();
        }
        self.mark.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A mark for a change of names or attributes that was performed just now.
    pub fn mark_of_change(&self) -> u64 {
        self.mark.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Up to which mark all is committed.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    /// Something was answered that is not committed: it will be soon.
    pub fn commit_soon(&self) {
        let mut queue = self.queue.lock();
        if queue.due.is_none() {
            queue.due = Some(Instant::now() + COMMIT_WITHIN);
            drop(queue);
            self.arrived.notify_one();
        }
    }

    /// Answers when what is needed is durable; not at all when it will not be.
    pub fn tell_when(&self, need: Need, tell: Tell) {
        let mut queue = self.queue.lock();
        if queue.is_over || self.has_failed() {
            return;
        }
        queue.waiting.push((need, tell));
        drop(queue);
        self.arrived.notify_one();
    }

    /// Nobody may be answered any more.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut self.queue.lock().waiting);
        drop(waiting);
        self.arrived.notify_all();
    }

    pub fn end(&self) {
        self.queue.lock().is_over = true;
        self.arrived.notify_all();
        // Whoever is about to wait has looked before, with this locked.
        let pause = self.pause.lock();
        self.due.notify_all();
        drop(pause);
    }

    fn is_over(&self) -> bool {
        self.queue.lock().is_over
    }

    /// Answers those who wait, until the end. `committed` hears up to which mark each commit reaches, `failed` once that one has failed.
    /// For a thread of its own.
    pub fn commit_for_all(&self, committed: impl Fn(u64), failed: impl Fn()) {
        loop {
            let waiting = {
                let mut queue = self.queue.lock();
                while queue.waiting.is_empty() && !queue.is_over && !self.has_failed() {
                    let Some(due) = queue.due else {
                        self.arrived.wait(&mut queue);
                        continue;
                    };
                    if self.arrived.wait_until(&mut queue, due).timed_out() {
                        break;
                    }
                }
                queue.due = None;
                let waiting = std::mem::take(&mut queue.waiting);
                if queue.is_over {
                    drop(queue);
                    return drop(waiting);
                }
                waiting
            };
            if !self.commit(waiting, &committed) || self.has_failed() {
                self.fail();
                return failed();
            }
        }
    }

    fn commit(&self, waiting: Vec<(Need, Tell)>, committed: &impl Fn(u64)) -> bool {
        if self.has_failed() {
            return false;
        }
        let mut files: Vec<(u64, Option<i32>)> = Vec::new();
        for (need, _) in &waiting {
            match need {
                Need::File(inode) if !files.iter().any(|(known, _)| known == inode) => {
                    let saved = self.door.sync_file(*inode);
                    files.push((*inode, saved.err().map(|error| error.errno())));
                }
                _ => {}
            }
        }
        let mark = self.mark(0);
        self.uncommitted.commit_begins();
        if let Err(error) = self.door.commit() {
            tracing::error!(%error, "what other machines changed cannot be made durable: they are served no more");
            return false;
        }
        self.uncommitted.commit_is_done();
        assert!(self.committed.swap(mark, Ordering::SeqCst) <= mark, "marks rise");
        // Before whoever asked for it is answered: then nothing is unsynced that was done before.
        committed(mark);
        for (need, tell) in waiting {
            let errno = match need {
                Need::Names => None,
                Need::File(inode) => files.iter().find(|(known, _)| *known == inode).and_then(|(_, errno)| *errno),
            };
            tell(errno);
        }
        true
    }

    /// Makes everything durable now and then, until the end, and tells the mark. For a thread of its own.
    pub fn mark_now_and_then(&self, tell: impl Fn(u64)) {
        while !self.is_over() && !self.has_failed() {
            let deadline = Instant::now() + EVERY;
            let mut pause = self.pause.lock();
            while self.unsynced.load(Ordering::Acquire) <= UNSYNCED_BYTES_MAX && !self.is_over() {
                if self.due.wait_until(&mut pause, deadline).timed_out() {
                    break;
                }
            }
            drop(pause);
            if self.unsynced.swap(0, Ordering::AcqRel) == 0 || self.is_over() {
                continue;
            }
            let mark = self.mark.load(Ordering::SeqCst);
            match self.door.sync() {
                Ok(()) => tell(mark),
                Err(error) => {
                    self.unsynced.fetch_add(1, Ordering::AcqRel);
                    tracing::warn!(%error, "what other machines wrote could not be made durable yet");
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }
}
