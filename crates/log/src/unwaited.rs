//! Reads of a call that may not wait (`stere_device::pending`): those that are small are left for the caller to make, and served when it
//! comes back with the bytes, verified like any others. What is wrong, large, elsewhere, or better read with what follows it goes the
//! way of calls that may wait, which knows how to count, repair and look elsewhere.

use stere_device::pending;
use stere_device::planted::{Bug, is_planted};

use crate::read::Part;
use crate::{Log, LogError};

/// Larger reads are worth a thread of their own: most of their time goes into their bytes.
const SMALL_BYTES: usize = 64 << 10;

impl Log {
    /// Serves these parts from what has arrived, or leaves their reads; `WouldBlock` unless all are served.
    pub(crate) fn read_without_waiting(&self, parts: &mut [Part<'_>], wanted: &[usize]) -> Result<(), LogError> {
        if pending::is_collecting() {
            self.leave_reads(parts, wanted);
            return Err(LogError::WouldBlock);
        }
        if !wanted.iter().all(|index| self.serve_arrived(&mut parts[*index])) {
            return Err(LogError::WouldBlock);
        }
        if let [index] = wanted {
            self.ahead.note(&parts[*index]);
        }
        Ok(())
    }

    fn leave_reads(&self, parts: &[Part<'_>], wanted: &[usize]) {
        let bytes: usize = wanted.iter().map(|index| parts[*index].covering().len()).sum();
        if bytes > SMALL_BYTES || wanted.iter().any(|index| parts[*index].segment.is_released()) {
            return;
        }
        let mut reads = Vec::with_capacity(wanted.len());
        for index in wanted {
            let part = &parts[*index];
            let range = part.covering();
            let range = range.start as u32..range.end as u32;
            if wanted.len() == 1 && !self.ahead.is_alone(part) {
                return;
            }
            match self.stripe.pending_reads(&part.segment.placed(), &part.address, &range) {
                Some(mut of_part) => reads.append(&mut of_part),
                None => return,
            }
        }
        pending::leave(reads);
    }

    fn serve_arrived(&self, part: &mut Part<'_>) -> bool {
        let covering = part.covering();
        let range = covering.start as u32..covering.end as u32;
        let skip = part.offset as usize - covering.start;
        let placed = part.segment.placed();
        let address = part.address;
        self.stripe.look_at_arrived(&placed, &address, &range, |blocks| {
            let is_right = part.matches(blocks) || is_planted(Bug::ArrivedBelieved);
            if is_right {
                part.into.copy_from_slice(&blocks[skip..skip + part.into.len()]);
            }
            is_right
        })
    }
}
