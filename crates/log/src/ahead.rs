//! Reading ahead in the log: small files written one after the other are read back that way.
//!
//! When a small read follows closely behind another one in the same segment, a window of the chunk is read in one go and kept for
//! a while. Windows hold unverified bytes: every read out of one is checked against the checksums of its blocks, and what does not
//! match is read the careful way. Rows never change, so a window needs no invalidation; one that was read before a row
//! arrived is dropped when it does not match a few times. One bad block costs the others in its window nothing.
//! Only for schemes with one data chunk, where the log is contiguous.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_device::{Buffer, DeviceError};
use stere_format::{Address, BLOCK_BYTES};
use stere_stripe::{Attempt, Stripe, StripeError};

use crate::read::Part;
use crate::segment::Segment;

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
    start: u64,
    bytes: Arc<Buffer>,
    mismatches: u32,
}

impl Window {
    fn covers(&self, segment: u64, start: u64, end: u64) -> bool {
        self.segment == segment && self.start <= start && end <= self.start + self.bytes.len() as u64
    }
}

#[derive(Default)]
struct State {
    /// Newest last.
    windows: VecDeque<Window>,
    /// Segment and chunk offset behind recent reads, newest last.
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

/// Where a part begins in the only data chunk of its segment, by whole blocks of its record.
fn chunk_range(part: &Part<'_>) -> (u64, u64) {
    let covering = part.covering();
    let row = u64::from(part.address.row_block) * BLOCK_BYTES as u64 + u64::from(part.address.offset);
    (row + covering.start as u64, row + covering.end as u64)
}

impl ReadAhead {
    /// Serves a part from a window, verified; false when no window has it whole and right.
    pub fn serve(&self, part: &mut Part<'_>) -> bool {
        if part.segment.scheme.data != 1 {
            return false;
        }
        let (start, end) = chunk_range(part);
        let found = {
            let mut state = self.state.lock();
            if state.windows.is_empty() {
                return false;
            }
            let of_part = |window: &&Window| window.covers(part.segment.id, start, end);
            let Some(window) = state.windows.iter().rev().find(of_part) else { return false };
            let found = (window.start, window.bytes.clone());
            state.follow(part.segment.id, end);
            found
        };
        let (window_start, bytes) = found;
        let from = (start - window_start) as usize;
        let blocks = &bytes[from..from + (end - start) as usize];
        if !part.matches(blocks) {
            self.state.lock().mismatch(part.segment.id, window_start);
            return false;
        }
        let skip = part.offset as usize - part.covering().start;
        part.into.copy_from_slice(&blocks[skip..skip + part.into.len()]);
        true
    }

    /// Notes a read that goes to the devices; reads a window first if it follows an earlier one. True when it did.
    pub fn prepare(&self, stripe: &Stripe, part: &Part<'_>, chunk_bytes: u32) -> bool {
        if part.segment.scheme.data != 1 || part.into.len() > SMALL_BYTES {
            return false;
        }
        let (start, end) = chunk_range(part);
        {
            let mut state = self.state.lock();
            // A window that has this part, wrong, need not be read again: the part is read by itself.
            let is_covered = state.windows.iter().any(|window| window.covers(part.segment.id, start, end));
            let is_spoiled = state
                .spoiled
                .iter()
                .any(|spoiled| spoiled.0 == part.segment.id && (spoiled.1..spoiled.2).contains(&start));
            if !state.follow(part.segment.id, end) || is_covered || is_spoiled {
                return false;
            }
        }
        let written = u64::from(part.segment.written_blocks()) * BLOCK_BYTES as u64;
        let window_start = start / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let window_end = (window_start + WINDOW_BYTES as u64).min(written).min(u64::from(chunk_bytes));
        if window_end < end {
            return false;
        }
        let read = read_window(stripe, part.segment, window_start, window_end);
        let mut state = self.state.lock();
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                if matches!(error, StripeError::Device(DeviceError::Io { .. })) {
                    if state.spoiled.len() >= SPOILED_MAX {
                        state.spoiled.pop_front();
                    }
                    state.spoiled.push_back((part.segment.id, window_start, window_end));
                }
                return false;
            }
        };
        while state.windows.len() >= WINDOWS_MAX {
            state.windows.pop_front();
        }
        let window = Window { segment: part.segment.id, start: window_start, bytes: Arc::new(bytes), mismatches: 0 };
        state.windows.push_back(window);
        true
    }
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
    fn follow(&mut self, segment: u64, end: u64) -> bool {
        let follows = |track: &(u64, u64)| track.0 == segment && track.1 <= end && end - track.1 <= FOLLOWS_BYTES;
        let position = self.tracks.iter().position(follows);
        if let Some(position) = position {
            self.tracks.remove(position);
        } else if self.tracks.len() >= TRACKS_MAX {
            self.tracks.pop_front();
        }
        self.tracks.push_back((segment, end));
        position.is_some()
    }
}

fn read_window(stripe: &Stripe, segment: &Arc<Segment>, start: u64, end: u64) -> Result<Buffer, StripeError> {
    let length = (end - start) as usize;
    let mut bytes = stripe.buffers().take(length);
    // A record that does not exist, but that names just these bytes.
    let address = Address {
        segment: segment.id,
        row_block: (start / BLOCK_BYTES as u64) as u32,
        offset: 0,
        length: length as u32,
    };
    let place = segment.placed();
    stripe.read(&place, &address, 0..length as u32, bytes.as_mut_slice(), Attempt::Cheapest)?;
    Ok(bytes)
}
