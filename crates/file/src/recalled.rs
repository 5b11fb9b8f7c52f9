//! What a reader of a released file tells: where the rest of it lies, and that it was recalled.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

/// Files that are remembered to have been recalled.
pub(crate) const RECALLED_MAX: usize = 4096;

/// Wakes whoever looks what was recalled.
pub(crate) type Wake = Box<dyn Fn() + Send + Sync>;

/// Files of which something was recalled lately.
#[derive(Default)]
pub(crate) struct Recalled {
    pub(crate) files: Mutex<BTreeSet<u64>>,
    /// Somebody acts on it at once.
    pub(crate) is_awaited: AtomicBool,
    pub(crate) wake: OnceLock<Wake>,
}
