//! Reading records back. The fast path: all parts of all requests, sorted by device and place, as few device reads as
//! can be, straight into the callers' memory, then each granule checked by the caller's own checksum. Whatever fails
//! there (a device, a checksum, a missing chunk) goes granule by granule to `recover`.
//!
//! Invariant: `Ok` for a request means that `verify` accepted every granule of it as it now lies in `out`.

use std::ops::Range;
use std::sync::Arc;

use stere_device::{Device, DeviceError, Job, Scatter};
use stere_faults::{Bug, is_planted};
use stere_format::{Address, SegmentChunks};

use crate::devices::{SLOW_COST_MIN, SLOW_FACTOR, run_on_devices};
use crate::error::{BadChunk, StripeError};
use crate::geometry::{RowPiece, check_chunk_range, record_range, row_pieces};
use crate::{PoolDevice, Stripe, parity};

/// A gap of so many bytes between two wanted parts is read and thrown away rather than seeked over.
pub(crate) const GAP_BYTES_MAX: u64 = 64 << 10;

/// Where an unverified read takes its bytes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// The data chunks, or the copy that is cheapest to read now.
    Cheapest,
    /// The copy of this number; for k > 1 the data chunks themselves (the number must be 0).
    Primary(usize),
    /// As if the chunks in this bit set were lost: from other copies, or rebuilt.
    Reconstruct { exclude: u32 },
}

/// A part of a record that is wanted.
pub struct ReadRequest<'a> {
    pub segment: &'a SegmentChunks,
    pub address: Address,
    /// Bytes of the record.
    pub range: Range<u32>,
    /// As long as `range`.
    pub out: &'a mut [u8],
    /// `verify` is asked for each piece of `out` of so many bytes (the last may be shorter); at least 1.
    pub granule_bytes: usize,
    /// Whether these bytes, which lie at this place in `out`, are right.
    pub verify: &'a dyn Fn(usize, &[u8]) -> bool,
}

/// How a read went that ended well.
#[derive(Debug, Clone, Default)]
pub struct ReadReport {
    /// Parts of chunks that gave an error or wrong bytes, to be counted and repaired.
    pub bad: Vec<BadChunk>,
    /// Bytes of `out` that had to be recovered: from another copy or by reconstruction.
    pub recovered_bytes: usize,
}

/// A part of a request on one device.
struct Part<'a> {
    device: Arc<PoolDevice>,
    offset: u64,
    request: usize,
    chunk: usize,
    /// Whether the bytes can be had elsewhere, so that nobody waits long for the device.
    can_be_left: bool,
    out: &'a mut [u8],
}

/// What the fast path did before recovery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    /// The copy that was read.
    pub copy: usize,
    /// Chunks that were too slow to be waited for, as a bit set.
    pub left: u32,
}

/// How the fast path went for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fast {
    Read,
    /// Something is away or failed.
    Failed,
    /// Put together from other chunks, with its neighbours, and not verified yet.
    Rebuilt,
}

impl Stripe {
    /// Reads one request, verified.
    pub fn read_verified(&self, request: ReadRequest<'_>) -> Result<ReadReport, StripeError> {
        let mut outcomes = self.read_many(&mut [request]);
        outcomes.pop().expect("one outcome for one request")
    }

    /// Reads many requests, verified, each with an outcome of its own. Parts that lie close together on a device are
    /// read in one go, whichever records they belong to.
    pub fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Vec<Result<ReadReport, StripeError>> {
        let checked: Vec<Result<(), StripeError>> =
            requests.iter().map(|request| self.check_request(request)).collect();
        let mut fast = vec![Fast::Read; requests.len()];
        let mut copies = vec![0; requests.len()];
        let mut parts = Vec::with_capacity(requests.len());
        let mut last_copy: Option<(&SegmentChunks, usize)> = None;
        for (index, request) in requests.iter_mut().enumerate() {
            if checked[index].is_err() {
                continue;
            }
            let segment = request.segment;
            let copy = match last_copy {
                // The same copy throughout, so that neighbours stay neighbours.
                Some((last, copy)) if last.chunks == segment.chunks && last.missing == segment.missing => copy,
                _ => self.preferred_copy(segment).unwrap_or(0),
            };
            last_copy = Some((segment, copy));
            copies[index] = copy;
            let before = parts.len();
            if self.collect_parts(index, request, copy, &mut parts).is_none() {
                fast[index] = Fast::Failed;
                parts.truncate(before);
            }
        }
        let mut left = vec![0; fast.len()];
        for group in read_parts(parts) {
            let Some(failure) = group.failure else { continue };
            let is_left = matches!(failure, DeviceError::TooSlow { .. });
            for (request, chunk) in group.requests {
                // Recovery asks again, part by part, and says what exactly is bad. It asks who was left behind last.
                fast[request] = Fast::Failed;
                left[request] |= u32::from(is_left) << chunk;
            }
        }
        self.rebuild_neighbours(requests, &mut fast, &left);
        let mut outcomes = Vec::with_capacity(requests.len());
        for (index, (checked, request)) in checked.into_iter().zip(requests.iter_mut()).enumerate() {
            let before = Before { copy: copies[index], left: left[index] };
            outcomes.push(checked.and_then(|()| self.settle(request, fast[index], before)));
        }
        outcomes
    }

    fn check_request(&self, request: &ReadRequest<'_>) -> Result<(), StripeError> {
        let ReadRequest { segment, address, range, out, granule_bytes, .. } = request;
        assert!(range.start <= range.end && range.end <= address.length, "a part of the record is wanted");
        assert_eq!(out.len(), (range.end - range.start) as usize, "the bytes fit exactly in their place");
        assert!(*granule_bytes > 0, "a granule has bytes");
        self.check_segment(address.segment, segment)?;
        self.check_pieces(address, segment, range).map(drop)
    }

    /// The pieces of a part of a record; none of them leaves its chunk.
    pub(crate) fn check_pieces(
        &self,
        address: &Address,
        segment: &SegmentChunks,
        range: &Range<u32>,
    ) -> Result<Vec<RowPiece>, StripeError> {
        let pieces: Vec<RowPiece> =
            row_pieces(segment.scheme, address.row_block, record_range(address, range)).collect();
        for piece in &pieces {
            check_chunk_range(address.segment, piece.chunk_offset, piece.length, self.chunk_bytes)?;
        }
        Ok(pieces)
    }

    /// The copy that is cheapest to read now.
    pub(crate) fn preferred_copy(&self, segment: &SegmentChunks) -> Option<usize> {
        if !parity::is_copies(segment.scheme) {
            return None;
        }
        let there = (0..segment.chunks.len()).filter(|&chunk| !segment.is_missing(chunk));
        let loads = there.filter_map(|chunk| self.devices.get(segment.chunks[chunk].device).map(|d| (d.load(), chunk)));
        loads.min().map(|(_, chunk)| chunk)
    }

    /// Chunks on devices that are so slow that reading enough others and computing is better; none where there are too few.
    pub(crate) fn slow_chunks(&self, segment: &SegmentChunks) -> u32 {
        let cost_of = |chunk: usize| match segment.is_missing(chunk) {
            true => None,
            false => self.devices.get(segment.chunks[chunk].device).map(|device| (device.cost(), chunk)),
        };
        if (0..segment.chunks.len()).filter_map(cost_of).all(|(cost, _)| cost < SLOW_COST_MIN) {
            return 0;
        }
        let mut costs: Vec<(u64, usize)> = (0..segment.chunks.len()).filter_map(cost_of).collect();
        let needed = usize::from(segment.scheme.data);
        costs.sort_unstable();
        let Some((usual, _)) = needed.checked_sub(1).and_then(|last| costs.get(last)) else { return 0 };
        let limit = (usual * SLOW_FACTOR).max(SLOW_COST_MIN);
        costs.iter().filter(|(cost, _)| *cost >= limit).fold(0, |set, (_, chunk)| set | 1 << chunk)
    }

    /// Whether reading without some chunk is better than waiting for it.
    pub fn has_slow_chunk(&self, segment: &SegmentChunks) -> bool {
        self.slow_chunks(segment) != 0
    }

    /// Whether all bytes can be had without any one of the chunks.
    fn has_spare(&self, segment: &SegmentChunks) -> bool {
        let is_there =
            |chunk: &usize| !segment.is_missing(*chunk) && self.devices.get(segment.chunks[*chunk].device).is_some();
        segment.scheme.parity > 0
            && !is_planted(Bug::SlowWaitedFor)
            && (0..segment.chunks.len()).filter(is_there).count() > usize::from(segment.scheme.data)
    }

    /// Adds the parts of a request; `None` if one of its chunks cannot be read.
    fn collect_parts<'a>(
        &self,
        index: usize,
        request: &'a mut ReadRequest<'_>,
        copy: usize,
        parts: &mut Vec<Part<'a>>,
    ) -> Option<()> {
        let segment = request.segment;
        let is_copies = parity::is_copies(segment.scheme);
        let slow = if is_copies { 0 } else { self.slow_chunks(segment) };
        let can_be_left = self.has_spare(segment);
        let mut rest = &mut request.out[..];
        for piece in
            row_pieces(segment.scheme, request.address.row_block, record_range(&request.address, &request.range))
        {
            let (out, later) = rest.split_at_mut(piece.length);
            rest = later;
            let chunk = if is_copies { copy } else { piece.chunk };
            if slow >> chunk & 1 == 1 {
                return None;
            }
            let (device, chunk_start) = self.chunk(segment, chunk).ok()??;
            let offset = chunk_start + piece.chunk_offset;
            parts.push(Part { device, offset, request: index, chunk, can_be_left, out });
        }
        assert!(rest.is_empty(), "the parts are the whole request");
        Some(())
    }

    /// Verifies what the fast path read and recovers the rest.
    fn settle(&self, request: &mut ReadRequest<'_>, fast: Fast, before: Before) -> Result<ReadReport, StripeError> {
        let mut report = ReadReport::default();
        let (granule_bytes, length) = (request.granule_bytes, request.out.len());
        let granules = (0..length).step_by(granule_bytes);
        let granules = granules.map(|start| start..start.saturating_add(granule_bytes).min(length));
        let verify = request.verify;
        if fast == Fast::Failed {
            // Most likely a device is away: all at once then, with few large reads.
            let accepts = |bytes: &[u8]| granules.clone().all(|granule| verify(granule.start, &bytes[granule]));
            match self.recover(&request.address, request.segment, &request.range, request.out, &accepts, before) {
                Ok(bad) => return Ok(ReadReport { bad, recovered_bytes: length }),
                // Different chunks may be bad in different granules: one by one then.
                Err(StripeError::Damaged { .. } | StripeError::TooFewChunks { .. }) if length > granule_bytes => {}
                Err(error) => return Err(error),
            }
        }
        for granule in granules {
            let out = &mut request.out[granule.clone()];
            if fast != Fast::Failed && verify(granule.start, out) {
                report.recovered_bytes += if fast == Fast::Rebuilt { granule.len() } else { 0 };
                continue;
            }
            let range = request.range.start + granule.start as u32..request.range.start + granule.end as u32;
            let accepts = |bytes: &[u8]| verify(granule.start, bytes);
            report.bad.extend(self.recover(&request.address, request.segment, &range, out, &accepts, before)?);
            report.recovered_bytes += granule.len();
        }
        Ok(report)
    }

    /// Reads without any check, from where it is told. For scrubbing copies one by one, and for tools.
    pub fn read(
        &self,
        segment: &SegmentChunks,
        address: &Address,
        range: Range<u32>,
        out: &mut [u8],
        attempt: Attempt,
    ) -> Result<(), StripeError> {
        self.check_segment(address.segment, segment)?;
        assert_eq!(out.len(), range.end.saturating_sub(range.start) as usize, "the bytes fit exactly in their place");
        let pieces = self.check_pieces(address, segment, &range)?;
        let is_copies = parity::is_copies(segment.scheme);
        let copy = match attempt {
            Attempt::Reconstruct { exclude } => {
                return self.reconstruct(address.segment, segment, &pieces, out, exclude);
            }
            Attempt::Cheapest => self.preferred_copy(segment).unwrap_or(0),
            Attempt::Primary(copy) if copy == 0 || (is_copies && copy < segment.scheme.width()) => copy,
            Attempt::Primary(_) => {
                return Err(StripeError::ImpossibleSegment { segment: address.segment, reason: "copy number" });
            }
        };
        let (mut parts, mut rest) = (Vec::with_capacity(pieces.len()), out);
        for piece in pieces {
            let (out, later) = rest.split_at_mut(piece.length);
            rest = later;
            let chunk = if is_copies { copy } else { piece.chunk };
            let index = segment.chunks[chunk].device;
            let (device, start) = self.chunk(segment, chunk)?.ok_or(StripeError::Absent { index })?;
            let can_be_left = attempt == Attempt::Cheapest && self.has_spare(segment);
            parts.push(Part { device, offset: start + piece.chunk_offset, request: 0, chunk, can_be_left, out });
        }
        assert!(rest.is_empty(), "the parts are the whole range");
        let groups = read_parts(parts);
        groups.into_iter().find_map(|group| group.failure).map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Parts that one device read covers.
struct Group<'a> {
    device: Arc<PoolDevice>,
    offset: u64,
    scattered: Vec<Scatter<'a>>,
    /// Which requests it is for, and of which chunk.
    requests: Vec<(usize, usize)>,
    can_be_left: bool,
    failure: Option<DeviceError>,
}

impl Group<'_> {
    fn read(&mut self) {
        let outcome = match self.can_be_left {
            true => self.device.read_scattered_or_leave(self.offset, &mut self.scattered),
            false => self.device.read_scattered(self.offset, &mut self.scattered),
        };
        self.failure = outcome.err();
    }
}

/// Joins sorted parts that lie close together.
fn group(parts: Vec<Part<'_>>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut end = 0;
    for part in parts {
        let part_end = part.offset + part.out.len() as u64;
        match groups.last_mut() {
            Some(group)
                if group.device.index() == part.device.index()
                    && part.offset >= end
                    && part.offset - end <= GAP_BYTES_MAX =>
            {
                if part.offset > end {
                    group.scattered.push(Scatter::Skip((part.offset - end) as usize));
                }
                group.scattered.push(Scatter::Into(part.out));
                group.requests.push((part.request, part.chunk));
                group.can_be_left &= part.can_be_left;
            }
            _ => groups.push(Group {
                device: part.device,
                offset: part.offset,
                scattered: vec![Scatter::Into(part.out)],
                requests: vec![(part.request, part.chunk)],
                can_be_left: part.can_be_left,
                failure: None,
            }),
        }
        end = part_end;
    }
    groups
}

/// Reads parts, neighbours together and devices side by side.
fn read_parts(mut parts: Vec<Part<'_>>) -> Vec<Group<'_>> {
    parts.sort_by_key(|part| (part.device.index(), part.offset));
    let bytes = parts.iter().map(|part| part.out.len()).sum();
    let mut groups = group(parts);
    let mut devices = Vec::new();
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for of_device in groups.chunk_by_mut(|one, next| one.device.index() == next.device.index()) {
        devices.push(Arc::clone(&of_device[0].device));
        jobs.push(Box::new(move || of_device.iter_mut().for_each(Group::read)));
    }
    run_on_devices(&devices, bytes, jobs);
    groups
}

#[cfg(test)]
mod tests;
