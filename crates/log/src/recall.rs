//! Reading what lies on tertiary volumes only, and what devices have lost although a volume has it.
//!
//! The log knows neither volumes nor objects: whoever does is asked for bytes of a segment's chunk, with a check that they must
//! pass. Parts that lie close together are asked for together, because every request costs. Nothing is repaired here, and a
//! reader who may not wait for volumes is told so. Read next: `read.rs`, the store's `tertiary.rs`.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use stere_format::{Address, BLOCK_BYTES};

use crate::read::Part;
use crate::segment::{Segment, SegmentTable};
use crate::{Log, LogError, Wait};

/// Why bytes were not fetched, to be told apart by whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No volume that has them can be reached.
    Away,
    /// They may be had, but not while the caller waits.
    Later,
    /// Recalls are refused.
    Denied,
}

/// Why bytes of a segment could not be had from tertiary volumes.
#[derive(Debug, Clone)]
pub enum RecallError {
    /// Every volume that can be reached lacks them or has wrong ones.
    Damaged(String),
    /// They may be right, but cannot be had now.
    Refused(Refusal, String),
}

/// Whoever fetches from tertiary volumes.
pub trait Recall: Send + Sync {
    /// Fills `into` with what the segment's chunk holds from `offset` on, so that `is_right` accepts it. `segments` are those of which
    /// one may be wanted next.
    fn read(
        &self,
        segment: &Arc<Segment>,
        offset: u64,
        into: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
        segments: &SegmentTable,
    ) -> Result<(), RecallError>;
}

/// Parts that are no farther apart are fetched in one go,
const GAP_BYTES_MAX: u64 = 256 << 10;
/// unless that gets larger than this.
const GROUP_BYTES_MAX: u64 = 4 << 20;

thread_local! {
    /// What arrives for a group: fresh memory for each of them would cost as much as copying it.
    static ARRIVING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// So much of it is kept: what the kernel asks for at a time, and records' headers.
const ARRIVING_BYTES_MAX: usize = 2 << 20;

/// A part of a request, and where it lies in its segment's chunk.
struct Wanted {
    index: usize,
    segment: u64,
    range: Range<u64>,
}

fn chunk_range(part: &Part<'_>) -> Range<u64> {
    let covering = part.covering();
    let start = chunk_offset(&part.address);
    start + covering.start as u64..start + covering.end as u64
}

/// Where a record begins in the chunk of a segment with one data chunk.
fn chunk_offset(address: &Address) -> u64 {
    u64::from(address.row_block) * BLOCK_BYTES as u64 + u64::from(address.offset)
}

/// Those that are fetched together.
fn groups(mut wanted: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    wanted.sort_by_key(|one| (one.segment, one.range.start));
    let mut groups: Vec<Vec<Wanted>> = Vec::new();
    for one in wanted {
        let joins =
            groups.last().and_then(|group| Some((group.first()?, group.last()?))).is_some_and(|(first, last)| {
                last.segment == one.segment
                    && one.range.start <= last.range.end + GAP_BYTES_MAX
                    && one.range.end.saturating_sub(first.range.start) <= GROUP_BYTES_MAX
            });
        match groups.last_mut().filter(|_| joins) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

impl Log {
    /// Names who fetches from tertiary volumes.
    pub fn set_recall(&self, recall: Arc<dyn Recall>) {
        *self.recall.write() = Some(recall);
    }

    /// Reads these parts from tertiary volumes, each verified.
    pub(crate) fn recall_parts(&self, wait: Wait, parts: &mut [Part<'_>], indices: &[usize]) -> Result<(), LogError> {
        if wait != Wait::Allowed {
            return Err(LogError::WouldBlock);
        }
        let wanted = indices.iter().map(|&index| {
            let part = &parts[index];
            Wanted { index, segment: part.segment.id, range: chunk_range(part) }
        });
        for group in groups(wanted.collect()) {
            self.recall_group(parts, &group)?;
        }
        Ok(())
    }

    fn recall_group(&self, parts: &mut [Part<'_>], group: &[Wanted]) -> Result<(), LogError> {
        let first = &group[0];
        let end = group.iter().map(|one| one.range.end).max().unwrap_or(first.range.end);
        let (start, segment) = (first.range.start, parts[first.index].segment.clone());
        let mut buffer = ARRIVING.take();
        buffer.resize((end - start) as usize, 0);
        let place = |one: &Wanted| (one.range.start - start) as usize..(one.range.end - start) as usize;
        let fetched = {
            let parts = &*parts;
            let is_right = |bytes: &[u8]| group.iter().all(|one| parts[one.index].matches(&bytes[place(one)]));
            self.recall(&segment, start, &mut buffer, &is_right)
        };
        if let Err(error) = fetched {
            let part = &parts[first.index];
            return Err(match error {
                // One bad record must not take its neighbours with it.
                RecallError::Damaged(_) if group.len() > 1 => {
                    for one in group {
                        let alone = Wanted { index: one.index, segment: one.segment, range: one.range.clone() };
                        self.recall_group(parts, &[alone])?;
                    }
                    return Ok(());
                }
                RecallError::Damaged(why) => {
                    tracing::error!(segment = segment.id, record = part.tag, why, "data cannot be recalled");
                    LogError::Damaged { tag: part.tag, offset: part.offset, length: part.into.len() as u32 }
                }
                RecallError::Refused(refusal, why) => LogError::Elsewhere { why, refusal },
            });
        }
        for one in group {
            let part = &mut parts[one.index];
            let skip = part.offset as usize - part.covering().start;
            let blocks = &buffer[place(one)];
            part.into.copy_from_slice(&blocks[skip..skip + part.into.len()]);
        }
        if buffer.capacity() <= ARRIVING_BYTES_MAX {
            ARRIVING.set(buffer);
        }
        Ok(())
    }

    fn recall(
        &self,
        segment: &Arc<Segment>,
        offset: u64,
        into: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<(), RecallError> {
        let recall = self.recall.read().clone();
        let no_volumes = || RecallError::Refused(Refusal::Away, "no tertiary volume is known here".to_owned());
        recall.ok_or_else(no_volumes)?.read(segment, offset, into, is_right, &self.segments)
    }

    /// A whole record from tertiary volumes.
    pub(crate) fn recall_record(
        &self,
        segment: &Arc<Segment>,
        address: &Address,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; address.length as usize];
        self.recall(segment, chunk_offset(address), &mut bytes, verify).map_err(|error| match error {
            RecallError::Damaged(why) => {
                tracing::error!(segment = segment.id, why, "a record cannot be recalled");
                LogError::Damaged { tag: 0, offset: 0, length: address.length }
            }
            RecallError::Refused(refusal, why) => LogError::Elsewhere { why, refusal },
        })?;
        Ok(bytes)
    }
}
