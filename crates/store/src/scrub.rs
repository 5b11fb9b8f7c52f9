//! Scrubbing: everything that is on media is read and proven, also what nobody reads, and what is bad is written again.
//!
//! A pass looks at the superblock copies, the journal's mirrors, then at every segment with live data: all its chunks, row by
//! row. Every byte of a row follows from its header, its summary and its records, each with its checksum, and the parity from
//! those; so what a chunk should hold is known whatever disagrees. Live records are also held against the blob map and the
//! tree, and their sizes against the segment's account.
//!
//! The caller keeps the cursor and sets the pace: a step does about as much as it is told to. Invariants: only verified bytes
//! are written over anything that could still be of use; a segment is held while it is looked at, so its slots are not used
//! for anything else. Read next: `scrub/segment.rs`, `scrub/ahead.rs`, `rows.rs`, the engine's `twin_copies.rs`; on reads: the log's `repairs.rs`.

mod ahead;
mod names;
mod segment;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use stere_format::{Key, ScrubCursor, ScrubPart};
use stere_log::{Io, Segment};

use stere_engine::{Engine, Error, ScrubReport, TwinCopies};

/// How a step went.
#[derive(Clone, Debug, Default)]
pub struct ScrubProgress {
    /// Of this step alone.
    pub report: ScrubReport,
    /// The pass is at its end; the next step begins another.
    pub is_done: bool,
}

/// Of a whole pass: between steps nothing is read ahead, so they are large.
const PASS_STEP_BYTES: u64 = 256 << 20;

/// Reads and proves everything that is on media.
pub struct Scrubber {
    pub(crate) engine: Arc<Engine>,
}

impl Scrubber {
    pub(crate) fn new(engine: &Arc<Engine>) -> Scrubber {
        Scrubber { engine: engine.clone() }
    }
}

impl Scrubber {
    /// Scrubs about so many bytes from the cursor on, and moves it.
    pub fn scrub_step(&self, cursor: &mut ScrubCursor, budget_bytes: u64) -> Result<ScrubProgress, Error> {
        if let Some(cause) = self.engine.failure() {
            return Err(Error::ReadOnly { cause });
        }
        self.retire_unwritable()?;
        let mut report = ScrubReport::default();
        let mut is_done = false;
        while !is_done && report.bytes_checked < budget_bytes.max(1) {
            match cursor.part {
                ScrubPart::Superblocks => {
                    TwinCopies::of(&self.engine).scrub_superblocks(&mut report);
                    cursor.part = ScrubPart::Journal;
                }
                ScrubPart::Journal => {
                    TwinCopies::of(&self.engine).scrub_journal(&mut report)?;
                    cursor.part = ScrubPart::Segments;
                    (cursor.segment, cursor.block) = (0, 0);
                }
                ScrubPart::Segments => {
                    let left_bytes = budget_bytes.saturating_sub(report.bytes_checked);
                    is_done = self.scrub_segments(cursor, left_bytes, &mut report)?;
                }
            }
        }
        if report.repaired_blocks > 0 || is_done {
            // What is called repaired, or whole because a read had repaired it before, stays so when the power goes.
            self.engine.log().flush()?;
        }
        self.engine.damage().note_unrepairable(&report.unrepairable);
        if let Err(error) = self.name_files(&mut report) {
            // Metadata that tells of files is damaged itself: they stay without names.
            tracing::warn!(%error, "files that are damaged could not all be named");
        }
        if is_done {
            self.engine.damage().end_pass_of_damage()?;
        }
        cursor.bytes_checked += report.bytes_checked;
        cursor.repaired_blocks += report.repaired_blocks;
        cursor.findings += (report.unrepairable.len() + report.findings.len()) as u64;
        if is_done {
            *cursor = ScrubCursor { passes: cursor.passes + 1, ..ScrubCursor::default() };
        }
        Ok(ScrubProgress { report, is_done })
    }

    /// A whole pass from the start.
    pub fn scrub(&self) -> Result<ScrubReport, Error> {
        let mut cursor = ScrubCursor::default();
        let mut whole = ScrubReport::default();
        loop {
            let ScrubProgress { report, is_done } = self.scrub_step(&mut cursor, PASS_STEP_BYTES)?;
            whole.add(report);
            if is_done {
                return Ok(whole);
            }
        }
    }

    /// The cursor as it was last kept in the pool.
    pub fn load_scrub_cursor(&self) -> Result<ScrubCursor, Error> {
        let value = self.engine.view(Io::BLOCKING, |view| view.get(&Key::scrub()))?;
        // One of a later version: a new pass then.
        Ok(value.and_then(|bytes| ScrubCursor::decode(&bytes).ok()).unwrap_or_default())
    }

    /// Keeps the cursor in the pool; durable with the next commit.
    pub fn save_scrub_cursor(&self, cursor: &ScrubCursor) -> Result<(), Error> {
        let bytes = cursor.encode();
        self.engine.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::scrub(), &bytes);
            Ok::<_, Error>(())
        })
    }

    /// Chunks with a bad place that cannot be written count as missing, where all else of their segments is readable.
    pub(crate) fn retire_unwritable(&self) -> Result<(), Error> {
        for (id, chunk) in self.engine.log().repairs.take_unwritable() {
            let Some(segment) = self.engine.log().segments.get(id) else { continue };
            let is_known = segment.missing() >> chunk & 1 == 1;
            if !is_known
                && !segment.is_released()
                && segment.live_bytes() > 0
                && self.engine.rows().is_readable_without(&segment, chunk)?
            {
                self.retire_chunk(&segment, chunk);
            }
        }
        Ok(())
    }

    fn retire_chunk(&self, segment: &Arc<Segment>, chunk: usize) {
        let device = segment.chunks()[chunk].device;
        tracing::warn!(
            segment = segment.id,
            chunk,
            device,
            "a chunk counts as missing: its device takes no right bytes"
        );
        segment.mark_missing(chunk);
        self.engine.log().changed.note(segment);
    }
}
