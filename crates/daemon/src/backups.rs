//! What is known of backups while the pool is mounted: who asked for one, and how the last one went.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use stere_naming::BackupValue;

use stere_control::backup::Outcome;

/// One destination in memory.
#[derive(Debug, Clone, Default)]
pub struct Told {
    pub is_running: bool,
    pub is_asked: bool,
    /// Since the mount.
    pub last: Option<Outcome>,
    next_try: Option<Instant>,
}

/// All destinations in memory.
#[derive(Default)]
pub struct Backups {
    told: Mutex<BTreeMap<String, Told>>,
    pub(crate) wake: Condvar,
}

impl Backups {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Told>> {
        self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn told(&self, name: &str) -> Told {
        self.lock().get(name).cloned().unwrap_or_default()
    }

    /// Somebody wants it up to date.
    pub fn ask(&self, name: &str) {
        let mut told = self.lock();
        let one = told.entry(name.to_owned()).or_default();
        (one.is_asked, one.next_try, one.last) = (true, None, None);
        self.wake.notify_all();
    }

    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    pub fn wake(&self) {
        self.wake.notify_all();
    }

    /// Whether it is time for a destination; then it is running.
    pub(crate) fn take(&self, value: &BackupValue, now: i64) -> bool {
        let mut told = self.lock();
        let one = told.entry(value.name.clone()).or_default();
        let is_due = value.every_seconds > 0
            && (now - value.done_seconds >= i64::from(value.every_seconds) || now < value.done_seconds);
        if !(is_due || one.is_asked) || one.next_try.is_some_and(|next| Instant::now() < next) {
            return false;
        }
        (one.is_running, one.is_asked) = (true, false);
        true
    }

    /// A run ended, and is tried again after this time if it failed.
    pub(crate) fn ended(&self, name: &str, outcome: Outcome, again: Option<Duration>) {
        if let Some(one) = self.lock().get_mut(name) {
            one.next_try = again.map(|after| Instant::now() + after);
            // What was asked for happens when it can.
            one.is_asked |= again.is_some();
            (one.is_running, one.last) = (false, Some(outcome));
        }
    }

    pub(crate) fn progress(&self, name: &str, outcome: &Outcome) {
        if let Some(one) = self.lock().get_mut(name) {
            // Without names, which may be many; they come at the end.
            one.last = Some(Outcome { problem: None, failed: Vec::new(), ..outcome.clone() });
        }
    }
}
