//! Reads of a non-blocking call (`stere_device::Io`): small ones are left for the caller to make, and served when it repeats the call
//! with the bytes, verified like any others. What is wrong, large, on media, or better read with what follows it is left to calls that
//! may block, which count errors, repair, and read other copies.

use stere_device::Io;
use stere_faults::{Bug, is_planted};

use crate::part::Part;
use crate::{Log, LogError};

/// Larger reads are worth a thread of their own: most of their time goes into their bytes.
const SMALL_BYTES: usize = 64 << 10;

impl Log {
    /// Serves these parts from what has arrived, or leaves their reads; `WouldBlock` unless all are served.
    pub(crate) fn read_non_blocking(
        &self,
        io: Io<'_>,
        parts: &mut [Part<'_>],
        wanted: &[usize],
    ) -> Result<(), LogError> {
        if io.collects_reads() {
            self.leave_reads(io, parts, wanted);
            return Err(LogError::WouldBlock);
        }
        if !wanted.iter().all(|index| self.serve_arrived(io, &mut parts[*index])) {
            return Err(LogError::WouldBlock);
        }
        if let [index] = wanted {
            self.ahead.note(&parts[*index]);
        }
        Ok(())
    }

    fn leave_reads(&self, io: Io<'_>, parts: &[Part<'_>], wanted: &[usize]) {
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
        io.leave_reads(reads);
    }

    fn serve_arrived(&self, io: Io<'_>, part: &mut Part<'_>) -> bool {
        let covering = part.covering();
        let range = covering.start as u32..covering.end as u32;
        let skip = part.offset as usize - covering.start;
        let placed = part.segment.placed();
        let address = part.address;
        self.stripe.look_at_arrived(io, &placed, &address, &range, |blocks| {
            assert_eq!(blocks.len(), covering.len(), "all blocks of the part have arrived");
            let is_right = part.matches(blocks) || is_planted(Bug::ArrivedBelieved);
            if is_right {
                part.into.copy_from_slice(&blocks[skip..skip + part.into.len()]);
            }
            is_right
        })
    }
}
