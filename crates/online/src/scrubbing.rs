//! What is known of scrubbing while the pool is open. Read next: `scrub.rs`, which does it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use stere_format::ScrubCursor;

use stere_control::scrub::Damage;

#[derive(Default)]
pub struct Scrubbing {
    pub(crate) is_wanted: AtomicBool,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub(crate) cursor: Option<ScrubCursor>,
    pub(crate) saved: Option<Instant>,
    pub(crate) damages: Vec<Damage>,
    pub(crate) ended: Option<i64>,
    /// Somebody said so.
    pub(crate) is_paused: bool,
    /// Steps that failed one after the other, and why the last one did.
    pub(crate) failures: u32,
    pub(crate) failure: Option<String>,
    /// Of the last pass since the pool was opened.
    pub(crate) last: Option<Totals>,
    pub(crate) is_loaded: bool,
}

#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub(crate) bytes_checked: u64,
    pub(crate) repaired_blocks: u64,
    pub(crate) findings: u64,
}

impl Scrubbing {
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }
}
