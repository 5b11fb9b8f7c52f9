//! Open files: the kernel's handles are this side's own, and each is the owner's handle of the moment.
//!
//! Invariant: a handle stays the kernel's until it is released, whatever owner comes; a file that cannot be opened at the next owner is
//! stale and answers so. Read next: `restore.rs`, which opens them anew.

use std::collections::HashMap;

use fuse_wire::raw;

#[cfg(test)]
mod tests;

/// A file that the kernel has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub node: u64,
    /// Of open(2), without those that make or empty.
    pub flags: u32,
    pub is_directory: bool,
    /// `None`: it could not be opened at this owner.
    at_owner: Option<u64>,
}

/// All open files.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: HashMap<u64, OpenFile>,
    last: u64,
}

/// A file cannot be used any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stale;

impl Handles {
    /// The owner has opened a file; gives the kernel's handle.
    pub fn open(&mut self, node: u64, flags: u32, is_directory: bool, at_owner: u64) -> u64 {
        self.last += 1;
        let flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY).cast_unsigned();
        self.open.insert(self.last, OpenFile { node, flags, is_directory, at_owner: Some(at_owner) });
        self.last
    }

    /// Puts the owner's handles into a message where the kernel's are.
    pub fn translate(&self, message: &mut [u8]) -> Result<(), Stale> {
        for (place, node) in raw::handle_places(message) {
            let Some(handle) = raw::number_at(message, place) else { continue };
            // Pages of a mapping are written with whatever handle the kernel finds; the node is what counts.
            let at_owner = match self.open.get(&handle) {
                Some(file) if file.node == node => file.at_owner.ok_or(Stale)?,
                _ => 0,
            };
            raw::set_number(message, place, at_owner);
        }
        Ok(())
    }

    /// The kernel let go of a handle.
    pub fn release(&mut self, message: &[u8]) {
        let place = raw::handle_places(message).first().map(|(place, _)| *place);
        if let Some(handle) = place.and_then(|place| raw::number_at(message, place)) {
            self.open.remove(&handle);
        }
    }

    /// All that has to be opened at another owner.
    pub fn all(&self) -> Vec<(u64, OpenFile)> {
        self.open.iter().map(|(handle, file)| (*handle, *file)).collect()
    }

    /// A file was opened anew, or could not be.
    pub fn reopened(&mut self, handle: u64, at_owner: Option<u64>) {
        if let Some(file) = self.open.get_mut(&handle) {
            file.at_owner = at_owner;
        }
    }
}
