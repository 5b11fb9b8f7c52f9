//! Keeping what a file holds before it changes: the first change of a session makes a copy by reference first.
//!
//! A session is from the first handle to the last. The file stays locked from the look at it until its copy is whole, so nothing
//! changes in between. What is to be kept, and where, the layer above knows.
//! Invariant: the copy's number is greater than the file's, for it was made later; so locks are taken in the order of numbers.

use stere_format::{FileKind, InodeValue};

use crate::context::Context;
use crate::copy::{Copier, Copy};
use crate::error::Error;
use crate::keys;
use crate::state::laid_over;

/// A file whose content is about to change; it is locked, and all of it is saved.
pub struct Unchanged<'a> {
    copier: &'a Copier,
    context: Context<'a>,
    inode: u64,
    /// The file as users see it.
    pub value: InodeValue,
}

impl Copier {
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
            let content = self.writeback.load(context, inode, &mut state)?;
            if content.is_dirty() {
                self.writeback.save_all(context, inode, content)?;
            }
            keep(&Unchanged { copier: self, context: *context, inode, value })?;
        }
        state.is_kept = state.opens > 0;
        Ok(())
    }
}

impl Unchanged<'_> {
    /// Gives a new file, which nobody knows yet, the same content: by reference, but for what is encrypted.
    pub fn copy_to(&self, target: u64) -> Result<(), Error> {
        assert!(target > self.inode, "a copy is made after what it is a copy of");
        let length = self.value.size;
        let held = self.copier.table.hold(target);
        let mut state = held.write(self.context.io)?;
        let content = self.copier.writeback.load(&self.context, target, &mut state)?;
        // Each call copies a part. A signal does not cost what was there: the copy goes on. Who is killed changes nothing.
        let mut done = 0;
        while done < length {
            if self.context.io.is_abandoned() {
                return Err(Error::Abandoned);
            }
            let rest = Copy { from: done, to: done, length: length - done };
            let copied = self.copier.copy(&self.context, self.inode, length, target, content, &rest)?;
            if copied == 0 {
                return Err(Error::Store(stere_store::Error::NoSpace));
            }
            done += copied;
        }
        assert_eq!(done, length, "a copy is as long as what it is a copy of");
        if content.is_dirty() {
            self.copier.writeback.save_all(&self.context, target, content)?;
        }
        state.content = None;
        Ok(())
    }
}
