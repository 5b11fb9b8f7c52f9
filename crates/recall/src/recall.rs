//! Recall: reads of what only tertiary media have, and of what devices have lost although a medium has it.
//!
//! The log says which parts of a read devices cannot give; they are fetched here, each verified. Parts that lie close together are
//! asked for together, because every request costs. Nothing is repaired here. Read next: the log's `read.rs`, `lib.rs`.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use stere_format::{Address, range_in_object};
use stere_log::{Io, Log, LogError, Part, Segment, SegmentTable};

use super::Volumes;
use crate::blob::BlobHandle;
use crate::error::{ReadError, RecallError};

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

/// A part of a request, and where it lies in its segment's object.
struct Wanted {
    index: usize,
    segment: u64,
    range: Range<u64>,
}

fn covered_range(part: &Part<'_>) -> Range<u64> {
    let covering = part.covering();
    let start = range_in_object(part.segment.scheme.data, &part.address).start;
    (start + covering.start) as u64..(start + covering.end) as u64
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

impl Volumes {
    /// Reads all parts, each verified, from memory, devices and, if the call may recall, tertiary media.
    pub fn read_parts(&self, log: &Log, io: Io<'_>, parts: &mut [Part<'_>]) -> Result<(), ReadError> {
        let on_media = log.read(io, parts).map_err(|error| match error {
            LogError::WouldBlock => ReadError::WouldBlock,
            LogError::Damaged { tag, offset, length } => ReadError::Damaged { blob: tag, offset, length },
            error => ReadError::Log(error),
        })?;
        if on_media.is_empty() {
            return Ok(());
        }
        assert!(io.may_recall(), "only a call that may recall is told what media have");
        let wanted = on_media.into_iter().map(|index| {
            let part = &parts[index];
            Wanted { index, segment: part.segment.id, range: covered_range(part) }
        });
        for group in groups(wanted.collect()) {
            self.recall_group(&log.segments, io, parts, &group)?;
        }
        Ok(())
    }

    fn recall_group(
        &self,
        segments: &SegmentTable,
        io: Io<'_>,
        parts: &mut [Part<'_>],
        group: &[Wanted],
    ) -> Result<(), ReadError> {
        let first = &group[0];
        assert!(group.iter().all(|one| one.segment == first.segment), "what is fetched together lies in one segment");
        let end = group.iter().map(|one| one.range.end).max().unwrap_or(first.range.end);
        let (start, segment) = (first.range.start, parts[first.index].segment.clone());
        assert!(start < end, "a group asks for bytes");
        let mut buffer = ARRIVING.take();
        buffer.resize((end - start) as usize, 0);
        let place = |one: &Wanted| (one.range.start - start) as usize..(one.range.end - start) as usize;
        let fetched = {
            let parts = &*parts;
            let is_right = |bytes: &[u8]| group.iter().all(|one| parts[one.index].matches(&bytes[place(one)]));
            self.read(io, &segment, start, &mut buffer, &is_right, segments)
        };
        if let Err(error) = fetched {
            let part = &parts[first.index];
            return Err(match error {
                // One bad record must not take its neighbours with it.
                RecallError::Damaged(_) if group.len() > 1 => {
                    for one in group {
                        let alone = Wanted { index: one.index, segment: one.segment, range: one.range.clone() };
                        self.recall_group(segments, io, parts, &[alone])?;
                    }
                    return Ok(());
                }
                RecallError::Damaged(why) => {
                    tracing::error!(segment = segment.id, record = part.tag, why, "data cannot be recalled");
                    ReadError::Damaged { blob: part.tag, offset: part.offset, length: part.into.len() as u32 }
                }
                RecallError::Refused(refusal, why) => ReadError::Elsewhere { why, refusal },
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

    /// What is stored of a blob, from wherever it is.
    pub fn read_record_blocks(&self, log: &Log, handle: &BlobHandle) -> Result<Vec<u8>, ReadError> {
        let (address, checksums) = (&handle.value.address, &handle.value.checksums);
        let damaged = || ReadError::Damaged { blob: handle.id, offset: 0, length: handle.value.logical_bytes };
        match log.read_blocks(&handle.segment, address, checksums) {
            Err(LogError::Released { .. }) => {
                let is_right = |bytes: &[u8]| stere_log::are_of(checksums, bytes);
                self.recall_record(&log.segments, Io::BLOCKING, &handle.segment, address, &is_right).map_err(|error| {
                    match error {
                        RecallError::Refused(refusal, why) => ReadError::Elsewhere { why, refusal },
                        RecallError::Damaged(_) => damaged(),
                    }
                })
            }
            outcome => outcome.map_err(|_| damaged()),
        }
    }

    /// A whole record of a released segment.
    pub fn recall_record(
        &self,
        segments: &SegmentTable,
        io: Io<'_>,
        segment: &Arc<Segment>,
        address: &Address,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, RecallError> {
        let mut bytes = vec![0; address.length as usize];
        let start = range_in_object(segment.scheme.data, address).start as u64;
        let fetched = self.read(io, segment, start, &mut bytes, verify, segments);
        fetched.map(|()| bytes).inspect_err(|error| {
            if let RecallError::Damaged(why) = error {
                tracing::error!(segment = segment.id, why, "a record cannot be recalled");
            }
        })
    }
}
