//! `SEEK_DATA` and `SEEK_HOLE`. What is set aside and unwritten counts as a hole.

use std::ops::ControlFlow;

use crate::allocate::Allocator;
use crate::block::BLOCK;
use crate::context::Context;
use crate::error::Error;
use crate::keys::visit_extents;

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// The next byte of data at or behind the offset.
    Data,
    /// The next hole at or behind the offset; the end of the file is one.
    Hole,
}

impl Allocator {
    /// The next data or hole at or behind `offset`.
    pub fn seek(&self, context: &Context<'_>, inode: u64, offset: u64, whence: Whence) -> Result<u64, Error> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        let content = self.writeback.load(context, inode, &mut state)?;
        if offset >= content.size {
            return Err(Error::NoSuchOffset);
        }
        if content.is_dirty() {
            self.writeback.save_all(context, inode, content)?;
        }
        let size = content.size;
        let found = self.store.view(context.io, |view| {
            let mut data = None;
            let mut hole = offset;
            visit_extents(view, inode, offset, &mut |extent| {
                if extent.is_preallocated() {
                    return ControlFlow::Continue(());
                }
                if data.is_none() {
                    data = Some(extent.start.max(offset));
                }
                if extent.start > hole || whence == Whence::Data {
                    return ControlFlow::Break(());
                }
                hole = extent.end().next_multiple_of(BLOCK);
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>(match whence {
                Whence::Data => data,
                Whence::Hole => Some(hole.min(size)),
            })
        })?;
        assert!(found.is_none_or(|at| at >= offset), "what is found lies at or behind {offset}, not at {found:?}");
        found.filter(|at| *at < size || whence == Whence::Hole).ok_or(Error::NoSuchOffset)
    }
}
