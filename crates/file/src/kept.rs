//! Keeping what a file holds before it changes: the first change of a session makes a copy by reference first.
//!
//! A session is from the first handle to the last. The file stays locked from the look at it until its copy is whole, so nothing
//! changes in between. What is to be kept, and where, the layer above knows.
//! Invariant: the copy's number is greater than the file's, for it was made later; so locks are taken in the order of numbers.

use stere_format::{FileKind, InodeValue};
use stere_store::Io;

use crate::copy::Copy;
use crate::error::Error;
use crate::state::laid_over;
use crate::{Context, Files, keys};

/// A file whose content is about to change; it is locked, and all of it is saved.
pub struct Unchanged<'a> {
    files: &'a Files,
    context: Context<'a>,
    inode: u64,
    /// The file as users see it.
    pub value: InodeValue,
}

impl Files {
    /// To be called before a file's content changes. If `asks` says so of the file, `keep` copies it, once in a session. Where nobody
    /// has it open, every change is a session. An error of `keep` is the caller's, and the change is not made.
    pub fn before_change<E: From<Error>>(
        &self,
        context: &Context<'_>,
        inode: u64,
        asks: impl FnOnce(&InodeValue) -> Result<bool, E>,
        keep: impl FnOnce(&Unchanged<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        if state.is_kept {
            return Ok(());
        }
        let stored = self.store.view(context.io, |view| keys::inode_if_any(view, inode))?;
        let Some(stored) = stored.filter(|value| value.kind() == Some(FileKind::File)) else { return Ok(()) };
        let value = laid_over(stored, &state);
        // Nothing is lost of a file that holds nothing.
        if value.size > 0 && asks(&value)? {
            if !context.io.may_block() {
                return Err(Error::Store(stere_store::Error::WouldBlock).into());
            }
            let content = self.load(context, inode, &mut state)?;
            if content.is_dirty() {
                self.save_all(context, inode, content)?;
            }
            keep(&Unchanged { files: self, context: *context, inode, value })?;
        }
        state.is_kept = state.opens > 0;
        Ok(())
    }

    /// Whether somebody has it open.
    pub fn is_open(&self, inode: u64) -> bool {
        let Some(held) = self.table.find(inode) else { return false };
        held.read(Io::BLOCKING).is_ok_and(|state| state.opens > 0)
    }
}

impl Unchanged<'_> {
    /// Gives a new file, which nobody knows yet, the same content: by reference, but for what is encrypted.
    pub fn copy_to(&self, target: u64) -> Result<(), Error> {
        assert!(target > self.inode, "a copy is made after what it is a copy of");
        let length = self.value.size;
        let held = self.files.table.hold(target);
        let mut state = held.write(self.context.io)?;
        let content = self.files.load(&self.context, target, &mut state)?;
        let copy = Copy { from: 0, to: 0, length };
        let copied = self.files.copy(&self.context, self.inode, length, target, content, &copy)?;
        if content.is_dirty() {
            self.files.save_all(&self.context, target, content)?;
        }
        state.content = None;
        if copied < length { Err(Error::Store(stere_store::Error::NoSpace)) } else { Ok(()) }
    }
}
