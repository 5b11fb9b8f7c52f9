//! Scrubbing: everything that is on media is read and proven, also what nobody reads, and what is bad is written again.
//!
//! A pass looks at the superblock copies, the journal's mirrors, then at every segment with live data: all its chunks, row by
//! row. Every byte of a row follows from its header, its summary and its records, each with its checksum, and the parity from
//! those; so what a chunk should hold is known whatever disagrees. Live records are also held against the blob map and the
//! tree, and their sizes against the segment's account.
//!
//! The caller keeps the cursor and sets the pace: a step does about as much as it is told to. Invariants: only verified bytes
//! are written over anything that could still be of use; a segment is held while it is looked at, so its slots are not used
//! for anything else. Read next: `scrub/segment.rs`, `scrub/ahead.rs`, `scrub/row.rs`, `scrub/metadata.rs`; on reads: the log's `repair.rs`.

mod ahead;
mod live;
mod metadata;
mod names;
mod row;
mod segment;

#[cfg(test)]
mod tests;

use stere_format::{Key, ScrubCursor, ScrubPart};
use stere_log::Io;

use crate::engine::Engine;
use crate::error::Error;

/// Content or metadata that could not be read rightly from what is there, nor be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub segment: u64,
    /// The blob, where it is content.
    pub blob: Option<u64>,
    /// The file, where one names the blob; several files that share it give an entry each.
    pub inode: Option<u64>,
    /// Bytes of the file; of the blob or of the segment's record where there is no file.
    pub offset: u64,
    pub length: u64,
}

/// What a part of scrubbing went through, found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Chunks that were looked at to their end.
    pub chunks_checked: u64,
    /// Bytes read from devices.
    pub bytes_checked: u64,
    /// Blocks that were bad and are right again.
    pub repaired_blocks: u64,
    /// Damage beyond repair.
    pub unrepairable: Vec<Damage>,
    /// Live bytes that cannot be read now because too many devices are away.
    pub unreachable_bytes: u64,
    /// Accounts that are not right, and other things a person should know.
    pub findings: Vec<String>,
}

impl ScrubReport {
    /// Whether nothing was found that is still so.
    pub fn is_clean(&self) -> bool {
        self.unrepairable.is_empty() && self.unreachable_bytes == 0 && self.findings.is_empty()
    }

    /// Takes another part's report into this one.
    pub fn add(&mut self, other: ScrubReport) {
        self.chunks_checked += other.chunks_checked;
        self.bytes_checked += other.bytes_checked;
        self.repaired_blocks += other.repaired_blocks;
        self.unrepairable.extend(other.unrepairable);
        self.unreachable_bytes += other.unreachable_bytes;
        self.findings.extend(other.findings);
    }
}

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

impl Engine {
    /// Scrubs about so many bytes from the cursor on, and moves it.
    pub fn scrub_step(&self, cursor: &mut ScrubCursor, budget_bytes: u64) -> Result<ScrubProgress, Error> {
        if let Some(cause) = self.failure() {
            return Err(Error::ReadOnly { cause });
        }
        self.retire_unwritable()?;
        let mut report = ScrubReport::default();
        let mut is_done = false;
        while !is_done && report.bytes_checked < budget_bytes.max(1) {
            match cursor.part {
                ScrubPart::Superblocks => {
                    self.scrub_superblocks(&mut report);
                    cursor.part = ScrubPart::Journal;
                }
                ScrubPart::Journal => {
                    self.scrub_journal(&mut report)?;
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
            self.log.flush()?;
        }
        self.note_unrepairable(&report.unrepairable);
        if let Err(error) = self.name_files(&mut report) {
            // Metadata that tells of files is damaged itself: they stay without names.
            tracing::warn!(%error, "files that are damaged could not all be named");
        }
        if is_done {
            self.end_pass_of_damage()?;
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
        let value = self.view(Io::BLOCKING, |view| view.get(&Key::scrub()))?;
        // One of a later version: a new pass then.
        Ok(value.and_then(|bytes| ScrubCursor::decode(&bytes).ok()).unwrap_or_default())
    }

    /// Keeps the cursor in the pool; durable with the next commit.
    pub fn save_scrub_cursor(&self, cursor: &ScrubCursor) -> Result<(), Error> {
        let bytes = cursor.encode();
        self.update(Io::BLOCKING, |transaction| {
            transaction.put(Key::scrub(), &bytes);
            Ok::<_, Error>(())
        })
    }
}
