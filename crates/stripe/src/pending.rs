//! Small reads that the caller makes itself and comes back with (`stere_device::Io`): the data chunks, or the copy that is cheapest
//! to read now, as on the fast path of `read.rs`. Whatever is not as it should be there goes that way instead.

use crate::geometry::{RowPiece, record_range, row_pieces};
use crate::{Stripe, parity};
use std::ops::Range;
use stere_device::pending::{Name, PendingRead};
use stere_device::{Device, Io};
use stere_format::{Address, SegmentChunks};

fn name(segment: u64, piece: &RowPiece) -> Name {
    [segment, piece.chunk as u64, piece.chunk_offset]
}

impl Stripe {
    /// The reads of a part of a record; none where a chunk is away, slow, or on a device that has to read by itself.
    pub fn pending_reads(
        &self,
        segment: &SegmentChunks,
        address: &Address,
        range: &Range<u32>,
    ) -> Option<Vec<PendingRead>> {
        self.check_segment(address.segment, segment).ok()?;
        let pieces = self.check_pieces(address, segment, range).ok()?;
        let copy = parity::is_copies(segment.scheme).then(|| self.preferred_copy(segment).unwrap_or(0));
        let slow = if copy.is_some() { 0 } else { self.slow_chunks(segment) };
        let mut reads = Vec::with_capacity(pieces.len());
        for piece in &pieces {
            let chunk = copy.unwrap_or(piece.chunk);
            if slow >> chunk & 1 == 1 {
                return None;
            }
            let (device, start) = self.chunk(segment, chunk).ok()??;
            let read = device.pending_read(start + piece.chunk_offset, piece.length)?;
            reads.push(read.named(name(address.segment, piece)));
        }
        Some(reads)
    }

    /// Shows these bytes of a record, unverified, if all of them have arrived for this call.
    pub fn look_at_arrived(
        &self,
        io: Io<'_>,
        segment: &SegmentChunks,
        address: &Address,
        range: &Range<u32>,
        look: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let mut pieces = row_pieces(segment.scheme, address.row_block, record_range(address, range));
        let Some(first) = pieces.next() else { return false };
        let Some(second) = pieces.next() else {
            return io.look(name(address.segment, &first), first.length, look).unwrap_or(false);
        };
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for piece in [first, second].into_iter().chain(pieces) {
            let copied = io.look(name(address.segment, &piece), piece.length, |found| bytes.extend_from_slice(found));
            if copied.is_none() {
                return false;
            }
        }
        assert_eq!(bytes.len(), (range.end - range.start) as usize, "the pieces are the whole part");
        look(&bytes)
    }
}
