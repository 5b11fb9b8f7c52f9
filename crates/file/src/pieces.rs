//! The pieces of blobs that a range of a file consists of.

use std::ops::ControlFlow;

use stere_store::{Piece, View};

use crate::error::Error;
use crate::keys::visit_extents;

/// The pieces of blobs that `length` bytes at `offset` consist of.
pub(crate) fn gather(view: &View<'_>, inode: u64, offset: u64, length: usize) -> Result<Vec<Piece>, Error> {
    let end = offset + length as u64;
    let mut pieces = Vec::new();
    if length == 0 {
        return Ok(pieces);
    }
    let mut failure = None;
    visit_extents(view, inode, offset, &mut |extent| {
        if extent.start >= end {
            return ControlFlow::Break(());
        }
        if extent.is_preallocated() {
            return ControlFlow::Continue(());
        }
        let (from, to) = (extent.start.max(offset), extent.end().min(end));
        match view.blob(extent.value.blob) {
            Ok(blob) => pieces.push(Piece {
                blob,
                offset: extent.value.blob_offset + (from - extent.start) as u32,
                length: (to - from) as u32,
                at: (from - offset) as usize,
            }),
            Err(error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    })?;
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(pieces),
    }
}

/// Zeros between the pieces, which are in order.
pub(crate) fn fill_holes(pieces: &[Piece], out: &mut [u8]) {
    let mut at = 0;
    for piece in pieces {
        assert!(at <= piece.at, "a piece at {} follows one that ends at {at}", piece.at);
        out[at..piece.at].fill(0);
        at = piece.at + piece.length as usize;
    }
    out[at..].fill(0);
}

/// Whether any of them lies on media only.
pub(crate) fn is_any_released(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| piece.blob.is_released())
}
