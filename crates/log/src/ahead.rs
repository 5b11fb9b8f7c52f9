//! Reading ahead in the log: small files written one after the other are read back that way.
//!
//! When a small read follows closely behind another one in the same segment, a window is read in one go and kept for a while: the same
//! range of all data chunks, so that the bytes of a row that are dealt over them are there together.
//! Windows hold unverified bytes: every read out of one is checked against the checksums of its blocks, and what does not
//! match is read the careful way. Rows never change, so a window needs no invalidation; one that was read before a row
//! arrived is dropped when it does not match a few times. One bad block costs the others in its window nothing.
//! Invariant: a window has whole stripe units, unless there is one data chunk, and no more than `WINDOW_BYTES`.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::{Buffer, DeviceError};
use stere_format::{Address, BLOCK_BYTES, STRIPE_UNIT_BYTES, Scheme, SegmentChunks};
use stere_stripe::{Attempt, RowPiece, Stripe, StripeError, row_pieces};

use crate::part::Part;

/// What one window covers at most.
const WINDOW_BYTES: usize = 256 << 10;
/// Windows kept.
const WINDOWS_MAX: usize = 48;
/// Ends of recent reads that are remembered.
const TRACKS_MAX: usize = 32;
/// A read this close behind another one follows it.
const FOLLOWS_BYTES: u64 = 64 << 10;
/// Larger reads are worth a device read of their own.
const SMALL_BYTES: usize = 64 << 10;

/// Windows remembered that cannot be read.
const SPOILED_MAX: usize = 32;

/// A window that so many reads found wrong is of no use.
const MISMATCHES_MAX: u32 = 3;

struct Window {
    segment: u64,
    /// From where on each data chunk.
    start: u64,
    /// Data chunks.
    data: usize,
    /// A stripe unit of each data chunk in turn.
    bytes: Arc<Buffer>,
    mismatches: u32,
}

impl Window {
    fn covers(&self, place: &Place) -> bool {
        let end = self.start + (self.bytes.len() / self.data) as u64;
        self.segment == place.segment && self.start <= place.chunks.start && place.chunks.end <= end
    }
}

/// The bytes of these pieces, out of a window that covers them.
fn gather<'a>(bytes: &'a [u8], data: usize, start: u64, pieces: &[RowPiece]) -> Cow<'a, [u8]> {
    let unit = match data {
        1 => bytes.len(),
        _ => STRIPE_UNIT_BYTES,
    };
    let mut runs: Vec<Range<usize>> = Vec::with_capacity(2);
    for piece in pieces {
        let (mut from, mut left) = ((piece.chunk_offset - start) as usize, piece.length);
        while left > 0 {
            let length = left.min(unit - from % unit);
            let at = (from / unit * data + piece.chunk) * unit + from % unit;
            match runs.last_mut() {
                Some(last) if last.end == at => last.end = at + length,
                _ => runs.push(at..at + length),
            }
            (from, left) = (from + length, left - length);
        }
    }
    let gathered: usize = runs.iter().map(Range::len).sum();
    let wanted: usize = pieces.iter().map(|piece| piece.length).sum();
    assert_eq!(gathered, wanted, "a window gives all bytes of the pieces");
    match &runs[..] {
        [run] => Cow::Borrowed(&bytes[run.clone()]),
        _ => Cow::Owned(runs.iter().flat_map(|run| &bytes[run.clone()]).copied().collect()),
    }
}

#[derive(Default)]
struct State {
    /// Newest last.
    windows: VecDeque<Window>,
    /// Segment and place in its log behind recent reads, newest last.
    tracks: VecDeque<(u64, u64)>,
    /// Segment, start and end of windows that a device failed to read, newest last: the bad place may be of nobody's content, so no
    /// read repairs it, and trying again would only count against the device.
    spoiled: VecDeque<(u64, u64, u64)>,
}

/// The windows, and where reads were lately.
#[derive(Default)]
pub(crate) struct ReadAhead {
    state: Mutex<State>,
}

/// Where the whole blocks of a part lie.
struct Place {
    segment: u64,
    scheme: Scheme,
    /// Where they end in the segment, counted over all data chunks.
    log_end: u64,
    /// Where a window that begins with this part begins on each chunk.
    window_start: u64,
    /// From the first byte of any data chunk to the last of any.
    chunks: Range<u64>,
    pieces: Vec<RowPiece>,
}

impl Place {
    fn of(part: &Part<'_>) -> Place {
        let scheme = part.segment.scheme;
        let data = u64::from(scheme.data);
        let covering = part.covering();
        let row_start = u64::from(part.address.row_block) * BLOCK_BYTES as u64;
        let in_row = |at: usize| u64::from(part.address.offset) + at as u64;
        let range = in_row(covering.start)..in_row(covering.end);
        let window_start = match data {
            1 => (row_start + range.start) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64,
            _ => row_start + range.start / (data * STRIPE_UNIT_BYTES as u64) * STRIPE_UNIT_BYTES as u64,
        };
        let log_end = row_start * data + range.end;
        let pieces: Vec<RowPiece> = row_pieces(scheme, part.address.row_block, range).collect();
        let first = pieces.iter().map(|piece| piece.chunk_offset).min().unwrap_or(row_start);
        let last = pieces.iter().map(|piece| piece.chunk_offset + piece.length as u64).max().unwrap_or(first);
        Place { segment: part.segment.id, scheme, log_end, window_start, chunks: first..last, pieces }
    }

    /// The window that begins here, of each chunk; none where it would not have all of the part.
    fn window(&self, written_bytes: u64, chunk_bytes: u32) -> Option<Range<u64>> {
        let data = usize::from(self.scheme.data);
        let unit = if data == 1 { 1 } else { STRIPE_UNIT_BYTES as u64 };
        let height = (WINDOW_BYTES / data) as u64 / unit * unit;
        let arrived = written_bytes.saturating_sub(self.window_start).next_multiple_of(unit);
        let there = u64::from(chunk_bytes).saturating_sub(self.window_start) / unit * unit;
        let end = self.window_start + height.min(arrived).min(there);
        (self.window_start < end && self.chunks.end <= end).then_some(self.window_start..end)
    }
}

impl ReadAhead {
    /// Serves a part from a window, verified; false when no window has it whole and right.
    pub fn serve(&self, part: &mut Part<'_>) -> bool {
        if part.into.len() > WINDOW_BYTES || self.state.lock().windows.is_empty() {
            return false;
        }
        let place = Place::of(part);
        let found = {
            let mut state = self.state.lock();
            let Some(window) = state.windows.iter().rev().find(|window| window.covers(&place)) else { return false };
            let found = (window.start, window.bytes.clone());
            state.follow(&place);
            found
        };
        let (window_start, bytes) = found;
        let blocks = gather(&bytes, usize::from(place.scheme.data), window_start, &place.pieces);
        if !part.matches(&blocks) {
            self.state.lock().mismatch(part.segment.id, window_start);
            return false;
        }
        let skip = part.offset as usize - part.covering().start;
        part.into.copy_from_slice(&blocks[skip..skip + part.into.len()]);
        true
    }

    /// Whether a read follows no earlier one, so that no window is read for it.
    pub fn is_alone(&self, part: &Part<'_>) -> bool {
        let place = Place::of(part);
        !self.state.lock().tracks.iter().any(|track| follows(track, &place))
    }

    /// Notes a read that was made elsewhere.
    pub fn note(&self, part: &Part<'_>) {
        self.state.lock().follow(&Place::of(part));
    }

    /// Notes a read that goes to the devices; reads a window first if it follows an earlier one. True when it did.
    pub fn prepare(&self, stripe: &Stripe, part: &Part<'_>, chunk_bytes: u32) -> bool {
        if part.into.len() > SMALL_BYTES {
            return false;
        }
        let place = Place::of(part);
        {
            let mut state = self.state.lock();
            // A window that has this part, wrong, need not be read again: the part is read by itself.
            let is_covered = state.windows.iter().any(|window| window.covers(&place));
            let is_spoiled = state
                .spoiled
                .iter()
                .any(|spoiled| spoiled.0 == place.segment && (spoiled.1..spoiled.2).contains(&place.chunks.start));
            if !state.follow(&place) || is_covered || is_spoiled {
                return false;
            }
        }
        let written = u64::from(part.segment.written_blocks()) * BLOCK_BYTES as u64;
        let Some(window) = place.window(written, chunk_bytes) else { return false };
        let placed = part.segment.placed();
        // All data chunks are in a window: where one of them is slow, computing a small read without it is better.
        if place.scheme.data > 1 && stripe.has_slow_chunk(&placed) {
            return false;
        }
        let read = read_window(stripe, &placed, place.segment, &window);
        let mut state = self.state.lock();
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                if matches!(error, StripeError::Device(DeviceError::Io { .. })) {
                    if state.spoiled.len() >= SPOILED_MAX {
                        state.spoiled.pop_front();
                    }
                    state.spoiled.push_back((part.segment.id, window.start, window.end));
                }
                return false;
            }
        };
        while state.windows.len() >= WINDOWS_MAX {
            state.windows.pop_front();
        }
        let (data, bytes) = (usize::from(place.scheme.data), Arc::new(bytes));
        assert!(bytes.len() % data == 0 && bytes.len() <= WINDOW_BYTES, "a window is as long on each data chunk");
        state.windows.push_back(Window { segment: place.segment, start: window.start, data, bytes, mismatches: 0 });
        true
    }
}

/// Whether a read comes closely behind the end of an earlier one.
fn follows(track: &(u64, u64), place: &Place) -> bool {
    let (segment, end) = (place.segment, place.log_end);
    track.0 == segment && track.1 <= end && end - track.1 <= FOLLOWS_BYTES
}

impl State {
    /// A read found a window wrong.
    fn mismatch(&mut self, segment: u64, start: u64) {
        self.windows.retain_mut(|window| {
            let is_it = (window.segment, window.start) == (segment, start);
            window.mismatches += u32::from(is_it);
            window.mismatches < MISMATCHES_MAX
        });
    }

    /// Notes where a read ended; true when it began closely behind an earlier one's end.
    fn follow(&mut self, place: &Place) -> bool {
        let position = self.tracks.iter().position(|track| follows(track, place));
        if let Some(position) = position {
            self.tracks.remove(position);
        } else if self.tracks.len() >= TRACKS_MAX {
            self.tracks.pop_front();
        }
        assert!(self.tracks.len() < TRACKS_MAX, "few reads are remembered");
        self.tracks.push_back((place.segment, place.log_end));
        position.is_some()
    }
}

/// These bytes of all data chunks, as a row that filled them would have them.
fn read_window(
    stripe: &Stripe,
    placed: &SegmentChunks,
    segment: u64,
    chunks: &Range<u64>,
) -> Result<Buffer, StripeError> {
    let length = (chunks.end - chunks.start) as usize * usize::from(placed.scheme.data);
    let mut bytes = stripe.buffers().take(length);
    // A record that does not exist, but that names just these bytes.
    let address =
        Address { segment, row_block: (chunks.start / BLOCK_BYTES as u64) as u32, offset: 0, length: length as u32 };
    stripe.read(placed, &address, 0..length as u32, bytes.as_mut_slice(), Attempt::Cheapest)?;
    Ok(bytes)
}
