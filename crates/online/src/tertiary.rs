//! What the thread for media and those who ask about it share.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use stere_fuse::Turns;

/// Tells the kernel that what it remembers of an inode is old.
type Forget = Box<dyn Fn(u64) + Send + Sync>;

#[derive(Default)]
struct State {
    is_awake: bool,
    is_pushed: bool,
    /// Rises whenever there was something to copy out, for those who help with it.
    uploads: u64,
    is_over: bool,
    /// Whether anybody uses the mount.
    is_in_use: bool,
    /// Bytes copied out that were paid for with time, and when the next may follow.
    paid_bytes: u64,
    due: Option<Instant>,
    waits_for: Option<String>,
}

#[derive(Default)]
pub struct Tertiary {
    state: Mutex<State>,
    woken: Condvar,
    helpers: Condvar,
    forget: OnceLock<Forget>,
    turns: OnceLock<Arc<Turns>>,
}

impl Tertiary {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to do.
    pub fn wake(&self) {
        self.lock().is_awake = true;
        self.woken.notify_all();
    }

    /// Everything shall get to its volumes now, in segments that are not full too.
    pub fn push(&self) {
        self.lock().is_pushed = true;
        self.wake();
    }

    pub fn take_push(&self) -> bool {
        std::mem::take(&mut self.lock().is_pushed)
    }

    pub fn sleep(&self, duration: Duration) {
        let mut state = self.lock();
        if !state.is_awake {
            state = self.woken.wait_timeout(state, duration).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_awake = false;
    }

    /// Something was copied out, so there may be more.
    pub fn wake_helpers(&self) {
        self.lock().uploads += 1;
        self.helpers.notify_all();
    }

    /// The mount ends: nobody helps any more.
    pub fn end_helpers(&self) {
        self.lock().is_over = true;
        self.helpers.notify_all();
    }

    /// Waits until there may be something to copy out since `seen`; none when the mount ends.
    pub fn wait_for_uploads(&self, seen: u64) -> Option<u64> {
        let is_still = |state: &mut State| state.uploads == seen && !state.is_over;
        let state = self.helpers.wait_while(self.lock(), is_still).unwrap_or_else(PoisonError::into_inner);
        (!state.is_over).then_some(state.uploads)
    }

    pub fn note_in_use(&self, is_in_use: bool) {
        self.lock().is_in_use = is_in_use;
    }

    /// So many bytes were copied out since the mount: how long nothing may follow at this rate. No time at all while nobody uses the mount.
    pub fn pay(&self, bytes: u64, rate_bytes: u64) -> Duration {
        let now = Instant::now();
        let mut state = self.lock();
        let price = Duration::from_secs_f64(bytes.saturating_sub(state.paid_bytes) as f64 / rate_bytes as f64);
        state.paid_bytes = bytes;
        let due = state.due.unwrap_or(now).max(now) + price;
        state.due = Some(due).filter(|_| state.is_in_use);
        state.due.map_or(Duration::ZERO, |due| due - now)
    }

    pub fn note_waiting(&self, why: Option<String>) {
        self.lock().waits_for = why;
    }

    pub fn waits_for(&self) -> Option<String> {
        self.lock().waits_for.clone()
    }

    /// Names who tells the kernel.
    pub fn set_forget(&self, forget: Forget) {
        // Set once, when the pool is mounted.
        drop(self.forget.set(forget));
    }

    /// Names who gives turns to readers.
    pub fn set_turns(&self, turns: Arc<Turns>) {
        // Set once, when the pool is mounted.
        drop(self.turns.set(turns));
    }

    /// Reads that are under way at volumes, and those that wait for their turn.
    pub fn turns(&self) -> (usize, usize) {
        self.turns.get().map_or((0, 0), |turns| turns.counts())
    }

    /// The kernel asks again how much room these take.
    pub fn forget_attributes(&self, inodes: &[u64]) {
        if let Some(forget) = self.forget.get() {
            inodes.iter().for_each(|inode| forget(*inode));
        }
    }
}
