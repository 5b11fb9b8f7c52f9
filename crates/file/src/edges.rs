//! The rest of a block that a write changes in part, where a medium may come to be the only one that has it.
//!
//! What is dirty must never wait for a medium: somebody else's sync would fail, and at the end of a mount it would be lost. So such a
//! rest is read when the block becomes dirty, by the one who writes, who may wait for it or is told. The file is not locked
//! meanwhile. Invariant: no dirty block lacks a part that lies in a segment which may be released.

use std::ops::Range;

use stere_faults::{Bug, is_planted};

use crate::block::BLOCK;
use crate::context::Context;
use crate::error::Error;
use crate::keys::{Extent, extents_touching};
use crate::record::RECORD_BYTES;
use crate::state::Content;
use crate::write::Writer;

/// Bytes beside a write, in a block that it changes in part.
pub(crate) struct Edge {
    range: Range<u64>,
    /// Where they lie: blobs never change, so the bytes are right as long as these are the file's.
    location: Vec<(u64, u32, u64, u32)>,
    /// None before they are read.
    bytes: Option<Vec<u8>>,
}

impl Edge {
    pub(crate) fn is_lacking(&self) -> bool {
        self.bytes.is_none()
    }

    fn is(&self, other: &Edge) -> bool {
        self.range == other.range && self.location == other.location
    }
}

fn place(extent: &Extent) -> (u64, u32, u64, u32) {
    (extent.start, extent.value.length, extent.value.blob, extent.value.blob_offset)
}

/// What lies beside a range in the blocks that it begins and ends in, as far as anything is stored there.
fn rest_of_blocks(content: &Content, range: &Range<u64>) -> [Range<u64>; 2] {
    let stored_end = content.size.min(content.extents_end);
    let first_block = range.start / BLOCK * BLOCK;
    let last_end = range.end.next_multiple_of(BLOCK).min(stored_end);
    [first_block..range.start.min(stored_end), range.end..last_end]
}

impl Writer {
    /// The edges of a write that must be there before it, with the bytes of those that were read and lie where they lay: the file was
    /// not locked in between, so nothing else of what was read may be used.
    pub(crate) fn edges_needed(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &Content,
        range: &Range<u64>,
        mut read: Vec<Edge>,
    ) -> Result<Vec<Edge>, Error> {
        let mut needed = Vec::new();
        if !self.store.tier.media.has_volumes() || is_planted(Bug::EdgesForgotten) {
            return Ok(needed);
        }
        for edge in rest_of_blocks(content, range).into_iter().filter(|edge| !edge.is_empty()) {
            assert!(edge.end - edge.start < BLOCK, "{edge:?} is a part of a block");
            let start = Content::record_start(edge.start / RECORD_BYTES);
            let in_record = (edge.start - start) as u32..(edge.end - start) as u32;
            let record = content.records.get(&(edge.start / RECORD_BYTES));
            if record.is_some_and(|record| record.dirty().gaps(in_record).is_empty()) {
                continue;
            }
            let found = self.store.view(context.io, |view| {
                let mut extents = extents_touching(view, inode, edge.start, edge.end, usize::MAX - 1)?;
                extents.retain(|extent| !extent.is_preallocated());
                let mut may_leave = false;
                for extent in &extents {
                    may_leave |= view.blob(extent.value.blob)?.tertiary_wanted() != 0;
                }
                Ok::<_, Error>(may_leave.then(|| extents.iter().map(place).collect()))
            })?;
            let stale = read.iter().position(|known| known.range == edge && is_planted(Bug::EdgesStale));
            if let Some(at) = stale {
                needed.push(read.swap_remove(at));
            } else if let Some(location) = found {
                let edge = Edge { range: edge, location, bytes: None };
                let known = read.iter().position(|known| known.is(&edge)).map(|at| read.swap_remove(at));
                needed.push(known.unwrap_or(edge));
            }
        }
        Ok(needed)
    }

    /// Reads those edges that were not.
    pub(crate) fn read_edges(&self, context: &Context<'_>, inode: u64, edges: &mut [Edge]) -> Result<(), Error> {
        for edge in edges.iter_mut().filter(|edge| edge.is_lacking()) {
            let mut bytes = vec![0; (edge.range.end - edge.range.start) as usize];
            self.codec.read_stored(context.io, inode, edge.range.start, &mut bytes)?;
            edge.bytes = Some(bytes);
        }
        Ok(())
    }

    /// Lays edges around what was written, where it is in memory still.
    pub(crate) fn put_edges(&self, content: &mut Content, edges: &[Edge]) {
        for edge in edges {
            let bytes = edge.bytes.as_deref().expect("edges are read before they are used");
            assert_eq!(bytes.len() as u64, edge.range.end - edge.range.start, "all of an edge was read");
            let index = edge.range.start / RECORD_BYTES;
            let start = Content::record_start(index);
            let Some(record) = content.records.get_mut(&index) else { continue };
            let before = record.memory_bytes();
            for gap in record.dirty().gaps((edge.range.start - start) as u32..(edge.range.end - start) as u32) {
                let from = (start + u64::from(gap.start) - edge.range.start) as usize;
                record.write(gap.start, &bytes[from..from + gap.len()]);
            }
            let after = record.memory_bytes();
            self.table.note_memory(before, after);
        }
    }
}
