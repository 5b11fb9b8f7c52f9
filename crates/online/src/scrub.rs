//! Scrubbing: everything that is stored is read, verified and repaired, a step at a time.
//!
//! How far it is stands in the pool; whether it is wanted, and when the last pass ended, in the registry. So a pass goes on
//! after a remount.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stere_format::ScrubCursor;
use stere_store::Io;

use crate::running::{Running, lock};
use crate::scrubbing::{State, Totals};
use stere_control::message::ScrubOrder;
use stere_control::scrub::{Damage, ScrubReport};
use stere_machine::clock;
use stere_machine::error::{Result, refused};

/// How often the cursor is written down.
const SAVE_EVERY: Duration = Duration::from_secs(20);

/// More places than this are counted, not named.
const DAMAGES_MAX: usize = 1000;

/// So many steps fail one after the other before a pass is given up.
const FAILURES_MAX: u32 = 5;

fn io_damage(damage: &stere_store::Damage) -> Damage {
    Damage { path: None, inode: damage.inode.unwrap_or(0), offset: damage.offset, length: damage.length }
}

impl Running {
    fn load_scrub(&self, state: &mut State) {
        if std::mem::replace(&mut state.is_loaded, true) {
            return;
        }
        // A cursor that cannot be read begins again.
        state.cursor = self.store.scrubber.load_scrub_cursor().ok();
        if let Ok(Some(record)) = self.registry.find(&self.pool)
            && record.id == self.id
        {
            state.ended = record.scrub.ended;
            state.is_paused = record.scrub.is_paused;
            self.scrubbing.is_wanted.store(record.scrub.is_wanted, Ordering::Release);
        }
    }

    /// Notes in the registry whether a pass is wanted and when the last one ended.
    fn remember_scrub(&self, state: &State) -> Result<()> {
        let Some(mut record) = self.registry.find(&self.pool)?.filter(|record| record.id == self.id) else {
            return Ok(());
        };
        record.scrub = stere_machine::registry::ScrubRecord {
            is_wanted: self.scrubbing.is_wanted(),
            is_paused: state.is_paused,
            ended: state.ended,
        };
        self.registry.save(&record)
    }

    pub fn scrub_order(&self, order: ScrubOrder) -> Result<ScrubReport> {
        if self.read_only && order != ScrubOrder::Tell {
            return refused(format!(
                "the pool '{}' is open for reading only; mount it for writing to scrub it",
                self.pool
            ));
        }
        let mut state = lock(&self.scrubbing.state);
        self.load_scrub(&mut state);
        match order {
            ScrubOrder::Tell => {}
            ScrubOrder::Start | ScrubOrder::Restart => {
                let is_fresh = state.cursor.as_ref().is_none_or(|cursor| cursor.bytes_checked == 0);
                if order == ScrubOrder::Restart || is_fresh {
                    let passes = state.cursor.as_ref().map_or(0, |cursor| cursor.passes);
                    state.cursor = Some(ScrubCursor { passes, ..ScrubCursor::default() });
                    state.damages.clear();
                }
                self.scrubbing.is_wanted.store(true, Ordering::Release);
                (state.is_paused, state.failures, state.failure) = (false, 0, None);
                self.remember_scrub(&state)?;
                self.mending.wake();
            }
            ScrubOrder::Pause => {
                self.scrubbing.is_wanted.store(false, Ordering::Release);
                state.is_paused = true;
                if let Some(cursor) = &state.cursor {
                    self.store.scrubber.save_scrub_cursor(cursor)?;
                    self.store.commit(Io::BLOCKING)?;
                }
                self.remember_scrub(&state)?;
            }
        }
        drop(state);
        Ok(self.scrub_report())
    }

    /// Begins a pass if the last one ended longer ago than this and none was paused. The first is due that long after the pool was
    /// first mounted here.
    pub fn begin_scheduled_scrub(&self, every: Option<Duration>) -> Result<()> {
        let mut state = lock(&self.scrubbing.state);
        self.load_scrub(&mut state);
        let Some(every) = every.filter(|_| !self.scrubbing.is_wanted() && !state.is_paused) else { return Ok(()) };
        let now = clock::now().seconds;
        let Some(ended) = state.ended else {
            state.ended = Some(now);
            return self.remember_scrub(&state);
        };
        if now - ended >= every.as_secs().cast_signed() {
            tracing::info!(pool = self.pool, "a scheduled scrub begins");
            self.scrubbing.is_wanted.store(true, Ordering::Release);
            self.remember_scrub(&state)?;
        }
        Ok(())
    }

    /// Verifies about so many bytes; tells how many it read.
    pub fn scrub_step(&self, budget_bytes: u64) -> Result<u64> {
        let mut state = lock(&self.scrubbing.state);
        self.load_scrub(&mut state);
        let mut cursor = state.cursor.take().unwrap_or_default();
        let before = cursor;
        let outcome = self.store.scrubber.scrub_step(&mut cursor, budget_bytes);
        state.cursor = Some(if outcome.is_ok() { cursor } else { before });
        let progress = match outcome {
            Ok(progress) => progress,
            Err(error) => return self.scrub_failed(&mut state, error.into()),
        };
        (state.failures, state.failure) = (0, None);
        for damage in &progress.report.unrepairable {
            tracing::error!(?damage, "what is stored here is damaged on every copy");
        }
        progress.report.findings.iter().for_each(|finding| tracing::warn!("scrub: {finding}"));
        let room = DAMAGES_MAX.saturating_sub(state.damages.len());
        state.damages.extend(progress.report.unrepairable.iter().take(room).map(io_damage));
        let is_due = state.saved.is_none_or(|saved| saved.elapsed() >= SAVE_EVERY);
        if progress.is_done || is_due {
            // A pass ends all the same: what is not kept costs another one.
            if let Err(error) = self.store.scrubber.save_scrub_cursor(&cursor) {
                tracing::warn!(%error, "how far scrubbing is could not be kept");
            }
            state.saved = Some(Instant::now());
        }
        if progress.is_done {
            tracing::info!(pool = self.pool, "scrub done");
            self.scrubbing.is_wanted.store(false, Ordering::Release);
            state.ended = Some(clock::now().seconds);
            state.last = Some(Totals {
                bytes_checked: before.bytes_checked + progress.report.bytes_checked,
                repaired_blocks: before.repaired_blocks + progress.report.repaired_blocks,
                findings: before.findings
                    + (progress.report.unrepairable.len() + progress.report.findings.len()) as u64,
            });
            self.remember_scrub(&state)?;
        }
        Ok(progress.report.bytes_checked)
    }

    /// A step failed. It is tried again, but not for ever: the pass is given up, and says why.
    fn scrub_failed(&self, state: &mut State, error: stere_machine::error::Error) -> Result<u64> {
        state.failures += 1;
        if state.failures < FAILURES_MAX {
            return Err(error);
        }
        tracing::error!(pool = self.pool, %error, "scrubbing is given up");
        state.failures = 0;
        state.failure = Some(error.to_string());
        self.scrubbing.is_wanted.store(false, Ordering::Release);
        self.remember_scrub(state)?;
        Ok(0)
    }

    /// Notes how far it is, for the next mount.
    pub fn keep_scrub_cursor(&self) -> Result<()> {
        let state = lock(&self.scrubbing.state);
        match &state.cursor {
            Some(cursor) if state.saved.is_some() => Ok(self.store.scrubber.save_scrub_cursor(cursor)?),
            _ => Ok(()),
        }
    }

    pub fn scrub_report(&self) -> ScrubReport {
        let mut state = lock(&self.scrubbing.state);
        self.load_scrub(&mut state);
        let cursor = state.cursor.unwrap_or_default();
        let is_begun = cursor.bytes_checked > 0;
        let word = match (self.scrubbing.is_wanted(), is_begun, cursor.passes) {
            (true, _, _) => "running",
            (false, _, _) if state.failure.is_some() => "given up",
            (false, true, _) => "paused",
            (false, false, 0) => "never",
            (false, false, _) => "done",
        };
        let under_way = Totals {
            bytes_checked: cursor.bytes_checked,
            repaired_blocks: cursor.repaired_blocks,
            findings: cursor.findings,
        };
        let totals = if word == "done" { state.last.unwrap_or(under_way) } else { under_way };
        let mut damages = state.damages.clone();
        let inodes = damages.iter().map(|damage| damage.inode).filter(|inode| *inode != 0).collect();
        // Without names the inodes stand for the files.
        let paths = crate::paths::paths_of(&self.store, &inodes).unwrap_or_default();
        damages.iter_mut().for_each(|damage| damage.path = paths.get(&damage.inode).cloned());
        ScrubReport {
            state: word.into(),
            bytes_checked: totals.bytes_checked,
            bytes_total: self.stored_bytes(),
            repaired_blocks: totals.repaired_blocks,
            findings: totals.findings,
            passes: cursor.passes,
            ended: state.ended.filter(|_| cursor.passes > 0),
            damages,
            failure: state.failure.clone(),
            known: self.store.damage().damaged_blobs().0 + u64::from(self.store.damage().is_metadata_damaged()),
        }
    }

    /// What a pass reads: all chunks of all segments with live data.
    fn stored_bytes(&self) -> u64 {
        let block = stere_format::BLOCK_BYTES as u64;
        let segments = self.store.segments().all();
        let live = segments.iter().filter(|segment| segment.live_bytes() > 0);
        live.map(|segment| u64::from(segment.written_blocks()) * block * segment.scheme.width() as u64).sum()
    }
}
