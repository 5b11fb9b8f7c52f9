//! Answers that hardly come: a server that trickles holds nobody up for longer than a medium that is away may.
//!
//! What arrives is counted in windows as long as `recall_timeout`, from the first bytes on; a window with less than a trickle ends the
//! request. Before the first bytes the volume's own limits hold: a library may take an hour until a cartridge is in a drive.
//! Invariant: a request that brings more than `BYTES_PER_SECOND_MIN` is never ended. Read next: the crate `tertiary`, `timeouts.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stere_device::{Cancellation, Take, VolumeError};

/// The slowest links give more.
pub(super) const BYTES_PER_SECOND_MIN: u64 = 4 << 10;

/// A shorter window says nothing of a link.
const WINDOW_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Window {
    begun: Instant,
    bytes: u64,
}

/// One request, and how much it brought of late.
#[derive(Debug)]
pub(super) struct Trickle {
    window_length: Duration,
    window: Mutex<Option<Window>>,
    is_over: AtomicBool,
}

impl Trickle {
    /// One of which bytes are told as they arrive.
    pub(super) fn new(timeout: Duration) -> Arc<Trickle> {
        Arc::new(Trickle {
            window_length: timeout.max(WINDOW_MIN),
            window: Mutex::new(None),
            is_over: AtomicBool::new(false),
        })
    }

    /// One that tells nothing until all of its bytes are there: it has the time that they need besides.
    pub(super) fn of_whole(timeout: Duration, bytes: usize) -> Arc<Trickle> {
        let needed = Duration::from_secs(bytes as u64 / BYTES_PER_SECOND_MIN);
        let trickle = Trickle::new(timeout + needed);
        trickle.note(0);
        trickle
    }

    fn note(&self, bytes: usize) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.get_or_insert_with(|| Window { begun: Instant::now(), bytes: 0 }).bytes += bytes as u64;
    }

    fn has_run_dry(&self) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(full) = window.take_if(|known| known.begun.elapsed() >= self.window_length) {
            let is_dry = full.bytes < BYTES_PER_SECOND_MIN * self.window_length.as_secs();
            self.is_over.fetch_or(is_dry, Ordering::Relaxed);
            *window = Some(Window { begun: Instant::now(), bytes: 0 });
        }
        self.is_over.load(Ordering::Relaxed)
    }

    /// The caller's cancellation, or this one's end.
    pub(super) fn cancellation(self: &Arc<Trickle>, of_caller: &Cancellation) -> Cancellation {
        let (trickle, of_caller) = (self.clone(), of_caller.clone());
        Cancellation::when(move || of_caller.is_cancelled() || trickle.has_run_dry())
    }

    /// Hands on what arrives, and counts it.
    pub(super) fn take(self: &Arc<Trickle>, of_caller: &Take) -> Take {
        let (trickle, of_caller) = (self.clone(), of_caller.clone());
        Arc::new(move |bytes| {
            trickle.note(bytes.len());
            of_caller(bytes);
        })
    }

    /// Says why a request ended that ended for this.
    pub(super) fn explain<T>(
        &self,
        outcome: Result<T, VolumeError>,
        volume: impl FnOnce() -> String,
    ) -> Result<T, VolumeError> {
        match outcome {
            Err(VolumeError::GivenUp { .. }) if self.is_over.load(Ordering::Relaxed) => Err(VolumeError::Away {
                volume: volume(),
                why: format!(
                    "less than {BYTES_PER_SECOND_MIN} bytes a second came for {} s; look whether it works, and the way to it",
                    self.window_length.as_secs()
                ),
            }),
            other => other,
        }
    }
}
