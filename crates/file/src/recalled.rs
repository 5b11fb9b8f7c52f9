//! What a reader of a released file tells: where the rest of it lies, and that it was recalled.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_store::Refusal;

use crate::error::Error;

/// Files that are remembered to have been recalled.
const RECALLED_MAX: usize = 4096;

/// Wakes whoever looks what was recalled.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// Files of which something was recalled lately.
#[derive(Default)]
pub struct Recalled {
    files: Mutex<BTreeSet<u64>>,
    /// Somebody acts on it at once.
    is_awaited: AtomicBool,
    wake: OnceLock<Wake>,
}

impl Recalled {
    /// Remembers that a file was recalled, if what came of it was its content, or that it comes later.
    pub(crate) fn note(&self, inode: u64, outcome: &Result<(), Error>) {
        let is_recalled = match outcome {
            Ok(()) => true,
            Err(Error::Store(stere_store::Error::Elsewhere { refusal, .. })) => *refusal == Refusal::Later,
            Err(_) => false,
        };
        let mut recalled = self.files.lock();
        if !is_recalled || recalled.len() >= RECALLED_MAX {
            return;
        }
        let is_news = recalled.insert(inode);
        drop(recalled);
        if is_news && self.is_awaited.load(Ordering::Acquire) {
            self.wake.get().into_iter().for_each(|wake| wake());
        }
    }

    /// Who is told at once when something was recalled, as long as that is awaited.
    pub fn set_wake(&self, wake: Wake) {
        // Set once, when the pool is mounted.
        drop(self.wake.set(wake));
    }

    /// Whether somebody acts at once on what was recalled.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Release);
    }

    /// Files of which something was recalled since this was asked last.
    pub fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.files.lock())
    }
}
