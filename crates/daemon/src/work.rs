//! Background work of a mount: old changes are made durable, space is cleaned, orphans are freed.
//!
//! Nothing was asked for a second: the mount is idle, and work that nobody waits for may be done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stere_naming::Io;

use crate::daemon::{Daemon, UnmountOnPanic};
use stere_machine::clock;
use stere_machine::error::{Error, Result};

/// In so many steps a change gets old enough to be handed to the store.
pub const STEPS_PER_COMMIT: u64 = 5;
const TICK: Duration = Duration::from_millis(200);
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Bytes that are stored anew in one step.
const RECONCILE_BYTES: u64 = 32 << 20;

/// While others work, a pause follows each step, of this part of the step's time: a reader's median stays, and a fifth of what devices can is left to others.
const PAUSE_DIVISOR: u32 = 4;

/// Segments that wait for volumes before no more is moved for them than otherwise.
const WAITING_MAX: usize = 16;

/// Pieces of work of the file system in one step.
const PIECES: usize = 1024;

struct Worker<F> {
    daemon: Arc<Daemon>,
    served: F,
    last_served: u64,
    last_request: Instant,
    next_step: Instant,
    next_commit: Instant,
    next_reconcile: Instant,
    /// Whether there was more to be stored anew when that was looked at last.
    is_moving: bool,
    /// What had begun its way to volumes when that was looked at last.
    archived_bytes: u64,
    commit: Duration,
    complaint: String,
}

/// Starts the thread. It ends when the daemon stops; if it panics, the mount is taken down.
pub fn start(
    daemon: Arc<Daemon>,
    served: impl Fn() -> u64 + Send + 'static,
    commit: Duration,
    read_only: bool,
) -> Result<JoinHandle<()>> {
    let run = move || {
        if read_only {
            return;
        }
        let guard = UnmountOnPanic(daemon.clone());
        let now = Instant::now();
        let (next_step, next_commit) = (now + commit / STEPS_PER_COMMIT as u32, now + commit);
        let complaint = String::new();
        Worker {
            daemon,
            served,
            last_served: 0,
            last_request: now,
            next_step,
            next_commit,
            next_reconcile: now,
            is_moving: false,
            archived_bytes: 0,
            commit,
            complaint,
        }
        .run();
        drop(guard);
    };
    std::thread::Builder::new().name("background".into()).spawn(run).map_err(Error::System)
}

impl<F: Fn() -> u64> Worker<F> {
    fn run(&mut self) {
        while !self.daemon.stop.load(Ordering::Acquire) {
            let more = self.tick();
            if !more {
                let pause = self.next_reconcile.saturating_duration_since(Instant::now());
                std::thread::park_timeout(if self.is_moving { pause.min(TICK) } else { TICK });
            }
        }
    }

    /// One round; tells whether the store has more to do at once.
    fn tick(&mut self) -> bool {
        let now = Instant::now();
        let served = (self.served)();
        if served != self.last_served {
            (self.last_served, self.last_request) = (served, now);
        }
        if now >= self.next_step {
            self.next_step = now + self.commit / STEPS_PER_COMMIT as u32;
            match self.daemon.filesystem.step(&clock::own_caller(Io::BLOCKING), PIECES) {
                Ok(true) => self.next_step = now + TICK,
                Ok(false) => {}
                Err(error) => self.complain(&error.to_string()),
            }
        }
        if now >= self.next_commit {
            self.next_commit = now + self.commit;
            if let Err(error) = self.daemon.running.store.commit(Io::BLOCKING) {
                self.complain(&error.to_string());
            }
        }
        let is_idle = now.duration_since(self.last_request) >= IDLE_AFTER;
        let more = self.reconcile(now, is_idle);
        match self.daemon.running.store.step(is_idle) {
            Ok(more_in_store) => more || more_in_store,
            Err(error) => {
                self.complain(&error.to_string());
                false
            }
        }
    }

    /// Moves what policy wants elsewhere: without pause while nobody asks for anything, else with short ones.
    /// What goes to volumes is moved as fast as they take it, so that a few segments always wait for them.
    fn reconcile(&mut self, now: Instant, is_idle: bool) -> bool {
        if !is_idle && now < self.next_reconcile {
            return false;
        }
        let result =
            self.daemon.filesystem.reconciler().reconcile_step(&clock::own_caller(Io::BLOCKING), RECONCILE_BYTES);
        self.is_moving = matches!(result, Ok(true));
        let ended = Instant::now();
        self.next_reconcile =
            if self.is_moving { ended + (ended.duration_since(now) / PAUSE_DIVISOR).min(TICK) } else { now + TICK };
        match result {
            Ok(more) => {
                let is_feeding = self.feeds_volumes();
                if is_feeding {
                    self.next_reconcile = now;
                }
                more && (is_idle || is_feeding)
            }
            Err(error) => {
                self.complain(&error.to_string());
                false
            }
        }
    }

    /// Whether something began its way to volumes since this was asked last, and they could do with more.
    fn feeds_volumes(&mut self) -> bool {
        let running = &self.daemon.running;
        let archived_bytes = running.store.tier.recalls.tertiary_counts().bytes_archived;
        if archived_bytes == self.archived_bytes {
            return false;
        }
        self.archived_bytes = archived_bytes;
        running.tertiary.wake();
        running.store.tier.uploader.waiting_uploads() < WAITING_MAX
    }

    /// Once, not in every round.
    fn complain(&mut self, text: &str) {
        if self.complaint != text {
            tracing::error!("background work: {text}");
            text.clone_into(&mut self.complaint);
        }
    }
}
