//! Room of removed files that the kernel has not let go of yet.
//!
//! A removed file is freed when its last handle is closed and the kernel has forgotten it. The kernel tells both after it has
//! answered the callers (RELEASE and FORGET wait for nobody), so who removes a file and then asks for its room may come first. A call
//! that finds no room, or meets a quota, just after something was removed is therefore repeated for a moment. Calls that may not wait are not.
//! Read next: `front.rs`, the file layer's `orphan.rs`.

use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use parking_lot::Mutex;

/// How long after a removal what the kernel still has may be about to be let go of.
const RECENT: Duration = Duration::from_secs(1);
/// How often a call is repeated, and how long it waits each time.
const TRIES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// When something was removed last.
#[derive(Default)]
pub(crate) struct Removals {
    last: Mutex<Option<Instant>>,
}

impl Removals {
    /// Takes note of a call that may have removed something.
    pub fn note(&self, opcode: u32) {
        if matches!(opcode, opcode::UNLINK | opcode::RENAME | opcode::RENAME2) {
            *self.last.lock() = Some(Instant::now());
        }
    }

    /// Whether something was removed just now.
    pub fn are_recent(&self) -> bool {
        self.last.lock().is_some_and(|last| last.elapsed() < RECENT)
    }

    /// Waits a little for a call that found no room and was repeated so often; false if it is in vain.
    pub fn may_bring_room(&self, tries: u32) -> bool {
        let may = tries < TRIES_MAX && self.are_recent();
        if may {
            std::thread::sleep(PAUSE);
        }
        may
    }
}

#[cfg(test)]
mod tests;
