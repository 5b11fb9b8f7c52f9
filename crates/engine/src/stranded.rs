//! When a device dies while it is written to: what reached too few devices is written elsewhere, from memory.
//!
//! Commits do it before they tell anybody that his data is durable. The group of journal records that named the old places is
//! made durable first, so that the next group, which names the new places, proves it: recovery takes the first as it is and verifies the
//! second. Invariants: a commit is acknowledged only when every row that it names is on as many devices as its segment can do
//! with, and what chunks were given up on the way is recorded. What finds no room elsewhere stops the pool, as there is nothing
//! else that keeps the promise. Read next: the log's `rerouted.rs`, `commit.rs`.

use parking_lot::MutexGuard;
use stere_faults::{Bug, is_planted};
use stere_format::SegmentKind;

use crate::batch::Batches;
use crate::engine::Engine;
use crate::error::Error;
use crate::shared::SharedLog;
use stere_journal::Journal;

/// Rounds of writing elsewhere, in each of which devices fail.
const ROUNDS_MAX: u32 = 16;

/// Writes elsewhere what a device did not take, before it is acknowledged.
#[derive(Clone, Copy)]
pub struct Rerouting<'a> {
    pub(crate) engine: &'a Engine,
}

impl<'a> Rerouting<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Rerouting<'a> {
        Rerouting { engine }
    }
}

impl Rerouting<'_> {
    /// After a batch was written: moves what it could not, records what was given up, and commits that. False if the journal has no
    /// room for it: a checkpoint is due, and then this again.
    pub(crate) fn settle_failures(&self, journal: &mut MutexGuard<'_, Journal>) -> Result<bool, Error> {
        for _ in 0..ROUNDS_MAX {
            if is_planted(Bug::StrandedForgotten) || !self.save_stranded().map_err(|error| self.engine.fail(error))? {
                journal.is_unsettled = false;
                self.release_stranded();
                if journal.is_holding() {
                    Batches::of(self.engine).write_proof(journal)?;
                }
                return Ok(true);
            }
            journal.is_unsettled = true;
            if Batches::of(self.engine).write_batch(journal, false)?.is_none() {
                return Ok(false);
            }
            self.release_stranded();
        }
        Err(self.engine.fail(Error::Pool("devices keep failing while data is written to them".into())))
    }

    /// Before everything is frozen for a checkpoint that the journal has no room for: what is on its way arrives, or goes elsewhere.
    pub(crate) fn settle_rows(&self) -> Result<(), Error> {
        for _ in 0..ROUNDS_MAX {
            self.engine.log.close_rows(SegmentKind::Data);
            self.engine.log.wait_for_rows()?;
            self.engine.log.flush()?;
            if !self.save_stranded()? {
                return Ok(());
            }
        }
        Err(Error::Pool("devices keep failing while data is written to them".into()))
    }

    /// Appends live blobs of stranded rows elsewhere. True if the next batch has something to record because of failures.
    fn save_stranded(&self) -> Result<bool, Error> {
        let (stranded, is_unrecorded) = self.engine.log.rows.take_failures();
        let mut moved = 0;
        for (segment, row_block) in stranded {
            moved += self.save_rows(segment, row_block)?;
        }
        Ok(moved > 0 || is_unrecorded)
    }

    fn save_rows(&self, id: u64, mut row_block: u32) -> Result<usize, Error> {
        let Some(segment) = self.engine.log.segments.get(id) else { return Ok(0) };
        assert_eq!(segment.kind, SegmentKind::Data, "what is written of nodes is not valid elsewhere");
        self.engine.log.end_segments(&|open| open.id == id);
        let lost = |cause: String| Error::Pool(format!("data on its way to a device that failed is lost: {cause}"));
        let key = self.engine.moving().cold_stream(&segment);
        let mut count = 0;
        while row_block < segment.written_blocks() {
            let contents = self.engine.log.read_row_contents(&segment, row_block)?;
            let contents = contents.ok_or_else(|| lost(format!("row {row_block} of segment {id} cannot be read")))?;
            let mut moved = Vec::new();
            for (blob, inode, file_offset) in self.engine.moving().live_blobs(&segment, row_block, &contents.entries)? {
                let append = || self.engine.moving().append_copy(&blob, inode, file_offset, &key);
                let copied = SharedLog::of(self.engine).with_held_room(append);
                let (value, to) = copied.map_err(|error| match error {
                    Error::NoSpace => lost("no other device has room for it".into()),
                    error => error,
                })?;
                moved.push((blob, value, to));
            }
            count += self.engine.moving().enter_moved(&moved)?;
            row_block += contents.header.row_height;
        }
        Ok(count)
    }

    /// Lets go of what is elsewhere now.
    fn release_stranded(&self) {
        for id in self.engine.log.rows.rerouted_segments() {
            let Some(segment) = self.engine.log.segments.get(id) else {
                // It was freed, which nobody does while there are records of it to enter.
                self.engine.log.rows.forget_rerouted(id);
                continue;
            };
            let inner = self.engine.inner.read();
            let waiting = inner.perhaps_free.iter().filter(|other| other.id == id).count();
            self.engine.log.release_rerouted(&segment, 1 + waiting);
        }
    }
}
