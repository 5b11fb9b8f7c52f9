//! Changing a file's size.
//!
//! Invariants: shrinking takes effect at once, with all extents behind the new end gone or (when there are many) the inode
//! on the list of truncations to finish; growing makes a hole; the size on media never exceeds what data on media allows.

use stere_format::{InodeValue, Key};

use crate::allocate::Allocator;
use crate::block::BLOCK;
use crate::context::Context;
use crate::error::Error;
use crate::extents::{self, EXTENTS_PER_STEP};
use crate::keys;
use crate::options::FILE_BYTES_MAX;
use crate::orphans::OrphanKind;
use crate::state::{Content, laid_over_content};

/// A change of other attributes that takes effect together with the size.
pub type AttributeChange<'a> = &'a dyn Fn(&mut stere_store::Transaction<'_>, &mut InodeValue) -> Result<(), Error>;

impl Allocator {
    /// Sets the size, and in the same transaction what `change` does to the inode.
    pub fn set_size(
        &self,
        context: &Context<'_>,
        inode: u64,
        size: u64,
        change: AttributeChange<'_>,
    ) -> Result<InodeValue, Error> {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooBig);
        }
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        let content = self.writeback.load(context, inode, &mut state)?;
        let value = self.resize(context, inode, content, size, change)?;
        Ok(value)
    }

    fn resize(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        size: u64,
        change: AttributeChange<'_>,
    ) -> Result<InodeValue, Error> {
        // With data in memory behind the stored end, growth reaches media together with that data.
        let dirty_end = content.records.last_key_value().is_some_and(|(index, record)| {
            Content::record_start(*index) + u64::from(record.dirty().end().unwrap_or(0)) > content.stored_size
        });
        let grows = size > content.size;
        let stored_size = if grows && !dirty_end { size } else { content.stored_size.min(size) };
        let cuts = size < content.extents_end;
        if grows {
            self.grants.grant_size(context, inode, content, size)?;
        }
        let resized = self.store.update(context.io, |transaction| {
            if !grows {
                transaction.set_freeing();
            }
            let mut value = keys::inode(transaction, inode)?;
            let mut complete = true;
            if cuts {
                let (allocation, all) = extents::cut_end(transaction, inode, size, EXTENTS_PER_STEP)?;
                value.blocks_bytes = allocation.apply(value.blocks_bytes);
                complete = all;
            }
            let blocks_bytes = value.blocks_bytes;
            let mut value = laid_over_content(value, content);
            value.size = size;
            change(transaction, &mut value)?;
            value.size = stored_size;
            value.blocks_bytes = blocks_bytes;
            keys::put_inode(transaction, inode, &value);
            if !complete {
                transaction.put(Key::orphan(inode), &OrphanKind::Truncating.to_bytes());
            }
            self.grants.pay(transaction, inode, size, stored_size);
            Ok::<_, Error>((value, complete))
        });
        if resized.is_err() {
            self.grants.keep_promised(inode, content);
        }
        let (mut value, complete) = resized?;
        if !complete {
            self.orphans.note(inode, crate::orphans::OrphanKind::Truncating);
        }
        if size < content.size {
            let freed = content.cut(size);
            self.table.note_memory(freed, 0);
        }
        self.table.note_dirty(content);
        content.size = size;
        content.stored_size = stored_size;
        if cuts {
            content.extents_end = size.next_multiple_of(BLOCK);
        }
        (content.modified, content.changed) = (None, None);
        content.assert_invariants();
        value.size = size;
        if !complete {
            // The rest goes now if it may; else the next change of this file, or a step, finishes it.
            let later = self.orphans.finish_truncation(context, inode);
            if later.as_ref().is_err_and(|error| !error.would_block()) {
                later?;
            }
        }
        Ok(value)
    }
}
