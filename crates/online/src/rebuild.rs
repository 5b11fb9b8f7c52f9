//! Repair of an open pool: one step at a time, or until nothing is left, and how far it is.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::running::Running;
use stere_control::status::WorkReport;
use stere_machine::error::Result;

/// So many bytes in one step; what is waited for is asked for again after each.
pub const STEP_BYTES: u64 = 8 << 20;

impl Running {
    /// One step of repair; tells how many bytes it moved. Without any, nothing can be done now.
    pub fn mend_step(&self, budget_bytes: u64) -> Result<u64> {
        let start = Instant::now();
        let progress = self.store.rebuilder.mend_step(budget_bytes)?;
        self.mending.note(progress.bytes_written, start.elapsed());
        // Bookkeeping without bytes is work too.
        Ok(if progress.is_done { 0 } else { progress.bytes_written.max(1) })
    }

    /// Repairs until nothing is left that can be done, for pools that are not mounted.
    pub fn mend_all(&self, mut tell: impl FnMut(&WorkReport)) -> Result<WorkReport> {
        loop {
            let moved = self.mend_step(STEP_BYTES)?;
            let report = self.work();
            tell(&report);
            if moved == 0 {
                self.remember();
                return Ok(report);
            }
        }
    }

    pub fn work(&self) -> WorkReport {
        let status = self.store.rebuilder.mend_status();
        let bytes_per_second = self.mending.bytes_per_second();
        WorkReport {
            bytes_left: status.bytes_left,
            chunks_left: status.chunks_left,
            bytes_done: self.mending.bytes_done.load(Ordering::Relaxed),
            impossible_chunks: status.impossible_chunks,
            unreadable_chunks: status.unreadable_chunks,
            waiting_bytes: status.waiting_bytes,
            bytes_per_second,
            seconds_left: status.bytes_left.div_ceil(bytes_per_second.max(1)),
            rebalancing: status.is_rebalancing,
            settling: status.is_settling || crate::shrink::is_any(self),
        }
    }
}
