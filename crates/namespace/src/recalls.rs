//! Who may have bytes fetched from media, and which volumes a call needs: for those who let callers wait.
//!
//! Programs are known by their names, so this is for thumbnailers, indexers and backups, and keeps nobody out who wants in. The machine
//! is asked for names when something has to be fetched, and not before. Read next: the crate `recall`.

use std::sync::{Arc, OnceLock};

use stere_store::{Call, Io, RecallMode};

use crate::error::Error;
use crate::inode::Core;

/// Extents looked at in one view.
const EXTENTS: usize = 256;

/// Which callers may have content fetched from tertiary media, and which media a call needs.
pub struct Recalls {
    pub core: Arc<Core>,
}

impl Recalls {
    /// Whether who reads what is on media only waits for it on this mount.
    pub fn recalls_wait(&self) -> bool {
        self.core.store.tier.recalls.recall_mode() == RecallMode::Block
    }

    /// Whether any programs are refused what is on media only.
    pub fn has_refused_programs(&self) -> bool {
        !self.core.options.refused_programs.is_empty() && self.core.options.processes.is_some()
    }

    /// Whether the program that this task runs is one of them.
    pub fn is_recall_refused(&self, task: u32) -> bool {
        let Some(processes) = self.core.options.processes.as_ref().filter(|_| task != 0 && self.has_refused_programs())
        else {
            return false;
        };
        let names = processes.names(task);
        self.core.options.refused_programs.iter().any(|program| stere_policy::is_named(&names, program))
    }

    /// The call of this task: what is on media only is refused at once if its program is one of those.
    pub fn refusing_recalls(self: &Arc<Self>, task: u32, call: Call) -> Call {
        if !self.has_refused_programs() {
            return call;
        }
        let (filesystem, known) = (Arc::clone(self), OnceLock::new());
        call.refusing_recalls(move || *known.get_or_init(|| filesystem.is_recall_refused(task)))
    }

    /// The volumes that have what of a range of a file is on media only, a set.
    pub fn volumes_of_released(&self, io: Io<'_>, inode: u64, offset: u64, length: u64) -> Result<u16, Error> {
        let (end, mut set) = (offset.saturating_add(length), 0);
        let mut from = Some(offset);
        while let Some(at) = from.filter(|at| *at < end) {
            let (extents, next) = stere_file::stored_extents(&self.core.store, io, inode, at, EXTENTS)?;
            let touched = extents.iter().take_while(|extent| extent.start < end);
            set |= touched.filter(|extent| extent.blob.is_released()).fold(0, |set, extent| set | extent.blob.media());
            from = next;
        }
        Ok(set)
    }
}
