//! The fast path of a segment that has lost data chunks: requests that lie close together are rebuilt together, so that
//! a stream is still read in large pieces and decoded in few goes. Nothing is verified here: `read` does that next, and
//! sends what is wrong to `recover`.

use crate::Stripe;
use crate::error::StripeError;
use crate::geometry::{RowPiece, record_range, row_pieces};
use crate::parity;
use crate::read::{Fast, GAP_BYTES_MAX, ReadRequest};
use crate::read_window::ReadWindow;
use std::ops::Range;

/// Most bytes of one chunk that are rebuilt in one go; bounds memory.
const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// A request that failed, with the range of the chunks it needs.
struct Degraded {
    request: usize,
    window: Range<u64>,
}

impl Stripe {
    /// Rebuilds failed requests in groups; those that worked are marked so. `left` are the chunks of each that were too slow.
    pub(crate) fn rebuild_neighbours(&self, requests: &mut [ReadRequest<'_>], fast: &mut [Fast], left: &[u32]) {
        assert!(fast.len() == requests.len() && left.len() == requests.len(), "each request has its outcome");
        let mut degraded: Vec<Degraded> = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            // Copies are not rebuilt, they are read elsewhere.
            if fast[index] == Fast::Failed && !parity::is_copies(request.segment.scheme) {
                let pieces = pieces_of(request);
                let start = pieces.iter().map(|piece| piece.chunk_offset).min().unwrap_or(0);
                let end = pieces.iter().map(|piece| piece.chunk_offset + piece.length as u64).max().unwrap_or(0);
                degraded.push(Degraded { request: index, window: start..end });
            }
        }
        degraded.sort_by_key(|one| (requests[one.request].address.segment, one.window.start));
        let mut rest = &degraded[..];
        while let Some(first) = rest.first() {
            let segment = requests[first.request].segment;
            let mut window = first.window.clone();
            let mut count = 1;
            for one in &rest[1..] {
                let is_near =
                    one.window.start <= window.end + GAP_BYTES_MAX && one.window.end - window.start <= WINDOW_BYTES_MAX;
                if !is_near || requests[one.request].segment != segment {
                    break;
                }
                window.end = window.end.max(one.window.end);
                count += 1;
            }
            let (group, later) = rest.split_at(count);
            rest = later;
            let left = group.iter().fold(0, |set, one| set | left[one.request]);
            if self.rebuild_group(requests, group, left).is_ok() {
                group.iter().for_each(|one| fast[one.request] = Fast::Rebuilt);
            }
        }
    }

    fn rebuild_group(
        &self,
        requests: &mut [ReadRequest<'_>],
        group: &[Degraded],
        left: u32,
    ) -> Result<(), StripeError> {
        let first = &requests[group[0].request];
        let (number, segment) = (first.address.segment, first.segment);
        let each: Vec<Vec<RowPiece>> = group.iter().map(|one| pieces_of(&requests[one.request])).collect();
        let all: Vec<RowPiece> = each.iter().flatten().copied().collect();
        // A chunk that is there and very slow is rebuilt like one that is away.
        let mut window = ReadWindow::new(self, number, segment, &all).without(self.slow_chunks(segment) | left);
        let lost = window.load_touched(&all)?;
        let rebuilt = window.rebuild_touched(&all, lost)?;
        if window.failed().is_empty() {
            for (one, pieces) in group.iter().zip(&each) {
                window.assemble(pieces, &rebuilt, requests[one.request].out);
            }
            return Ok(());
        }
        // A device that is there gave errors: request by request, so that each report names what is bad.
        Err(StripeError::Absent { index: window.failed()[0].place.device })
    }
}

fn pieces_of(request: &ReadRequest<'_>) -> Vec<RowPiece> {
    let range = record_range(&request.address, &request.range);
    row_pieces(request.segment.scheme, request.address.row_block, range).collect()
}
