//! Figures of cleaning: how full segments are, and what is moved for what is written.
//!
//! Source: Rosenblum and Ousterhout 1991, 3.4 and 3.5 (distribution of segments' utilisation, write cost). Read next: the
//! engine's `clean.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Parts into which utilisation from nothing to everything is cut.
pub const UTILISATION_PARTS: usize = 10;

/// What was counted since the pool was opened.
#[derive(Debug, Default)]
pub struct CleaningTally {
    written_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    emptied_segments: AtomicU64,
}

impl CleaningTally {
    /// Content as it is stored, for the first time.
    pub fn note_written(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The same, moved out of a segment that is cleaned.
    pub fn note_moved(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn note_emptied(&self) {
        self.emptied_segments.fetch_add(1, Ordering::Relaxed);
    }
}

/// What cleaning does, and what it finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleaningFigures {
    /// Stored bytes of content that were written since the pool was opened, without copies and parity.
    pub written_bytes: u64,
    /// Those that cleaning moved.
    pub moved_bytes: u64,
    pub emptied_segments: u64,
    /// Sealed segments of content on devices by how much of them is live: what users wrote,
    pub segments_new: [u64; UTILISATION_PARTS],
    /// and what survived a cleaning.
    pub segments_survived: [u64; UTILISATION_PARTS],
}

impl CleaningFigures {
    /// With what was counted so far, and no segments.
    pub fn of(tally: &CleaningTally) -> CleaningFigures {
        CleaningFigures {
            written_bytes: tally.written_bytes.load(Ordering::Relaxed),
            moved_bytes: tally.moved_bytes.load(Ordering::Relaxed),
            emptied_segments: tally.emptied_segments.load(Ordering::Relaxed),
            ..CleaningFigures::default()
        }
    }

    /// Counts in a segment of so many bytes; survivors of a cleaning have a temperature.
    pub fn add(&mut self, live_bytes: u64, segment_bytes: u64, temperature: u8) {
        assert!(segment_bytes > 0, "a segment has room");
        let part = live_bytes.saturating_mul(UTILISATION_PARTS as u64) / segment_bytes;
        let parts = if temperature == 0 { &mut self.segments_new } else { &mut self.segments_survived };
        parts[(part as usize).min(UTILISATION_PARTS - 1)] += 1;
    }
}
