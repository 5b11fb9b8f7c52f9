//! Reading records wherever they still are: where a table says, else where chunk headers were found.
//!
//! Invariants: bytes are handed out only after the caller's check accepted them, so that a stale, moved or forged chunk does no
//! harm; slots are looked through once, and only when the tables are not enough. Read next: `rows.rs`, `keys.rs`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use stere_format::segment::ChunkPlaces;
use stere_format::{Address, BLOCK_BYTES, Checksums, ChunkPlace, Scheme, SegmentChunks, SegmentKind};
use stere_stripe::{ReadRequest, Stripe};

use crate::sources::{Members, read_header};

/// A segment as its chunks' headers tell of it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub kind: SegmentKind,
    scheme: Scheme,
    /// Where each chunk was found; several places where one was moved or is left from another history.
    chunks: Vec<Vec<ChunkPlace>>,
}

impl Found {
    /// Ways to read the segment, the first with as many chunks as were found.
    pub fn ways(&self) -> Vec<SegmentChunks> {
        assert_eq!(self.chunks.len(), self.scheme.width(), "there is a place for each chunk of {:?}", self.scheme);
        let most = self.chunks.iter().map(Vec::len).max().unwrap_or(0);
        (0..most)
            .map(|way| {
                let mut missing = 0;
                let places: ChunkPlaces = (0u32..)
                    .zip(&self.chunks)
                    .map(|(chunk, places)| match places.get(way).or(places.first()) {
                        Some(place) => *place,
                        None => {
                            missing |= 1 << chunk;
                            ChunkPlace { device: 0, slot: 0 }
                        }
                    })
                    .collect();
                SegmentChunks { scheme: self.scheme, missing, chunks: places }
            })
            .collect()
    }
}

/// A run of blocks of a record, each with its own checksum; a run that is the whole record is held to its digest too.
pub(crate) struct Run<'a> {
    pub place: &'a SegmentChunks,
    pub address: Address,
    /// Bytes of the record; begins at a block, ends at one or with the record.
    pub range: Range<u32>,
    pub checksums: &'a Checksums,
    pub out: &'a mut [u8],
}

impl Run<'_> {
    fn assert_invariants(&self) {
        let (range, length) = (&self.range, self.address.length);
        assert_eq!(self.out.len(), range.len(), "the bytes {range:?} fit exactly in their place");
        assert_eq!(range.start as usize % BLOCK_BYTES, 0, "a run begins at a block, not at byte {}", range.start);
        assert!(range.end <= length, "the bytes {range:?} are wanted of a record of {length}");
    }

    fn matches(&self, at: usize, bytes: &[u8]) -> bool {
        let block = (self.range.start as usize + at) / BLOCK_BYTES;
        self.checksums.get(block) == Some(&stere_format::crc32c(bytes))
    }

    /// Whether it is not the whole of a record whose digest is another, although each block has its CRC.
    fn has_digest(&self) -> bool {
        self.range.len() < self.address.length as usize || self.checksums.is_digest_of(self.out)
    }
}

/// What can be read of a pool.
pub(crate) struct Media {
    pub members: Members,
    /// Segments of the tree, from the checkpoint record.
    pub meta: HashMap<u64, SegmentChunks>,
    found: Option<Arc<BTreeMap<u64, Found>>>,
}

impl Media {
    pub fn new(members: Members) -> Media {
        Media { members, meta: HashMap::new(), found: None }
    }

    pub fn stripe(&self) -> &Stripe {
        &self.members.stripe
    }

    /// All segments whose chunks have headers; the slots are looked through at the first call.
    pub fn found(&mut self) -> Arc<BTreeMap<u64, Found>> {
        if let Some(found) = &self.found {
            return found.clone();
        }
        let mut found: BTreeMap<u64, Found> = BTreeMap::new();
        for member in &self.members.members {
            for slot in 0..member.layout.slot_count {
                let Some(offset) = member.layout.slot_offset(slot) else { break };
                if offset >= member.device.size_bytes() {
                    break;
                }
                let Some(header) = read_header(&*member.device, offset) else { continue };
                if header.pool != self.members.pool {
                    continue;
                }
                let scheme = header.place.scheme;
                let segment = found.entry(header.segment).or_insert_with(|| Found {
                    kind: header.kind,
                    scheme,
                    chunks: vec![Vec::new(); scheme.width()],
                });
                if segment.scheme == scheme
                    && let Some(places) = segment.chunks.get_mut(usize::from(header.chunk))
                {
                    places.push(ChunkPlace { device: member.handle, slot });
                }
            }
        }
        let found = Arc::new(found);
        self.found = Some(found.clone());
        found
    }

    /// Further ways to read a segment, when the one that the table tells has failed: as it was found, and with the chunks that
    /// the table holds for incomplete.
    pub fn other_ways(&mut self, segment: u64, told: Option<&SegmentChunks>) -> Vec<SegmentChunks> {
        let mut ways: Vec<SegmentChunks> = Vec::new();
        if let Some(told) = told.filter(|told| told.missing != 0) {
            ways.push(SegmentChunks { missing: 0, ..told.clone() });
        }
        if let Some(found) = self.found().get(&segment) {
            ways.extend(found.ways());
        }
        ways.retain(|way| Some(way) != told);
        ways
    }

    /// A record that is verified as a whole, from wherever it is right.
    pub fn record(
        &mut self,
        address: &Address,
        told: Option<&SegmentChunks>,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        if let Some(bytes) = told.and_then(|place| self.record_at(address, place, verify)) {
            return Some(bytes);
        }
        let ways = self.other_ways(address.segment, told);
        ways.iter().find_map(|place| self.record_at(address, place, verify))
    }

    /// The same, in one way only.
    pub fn record_at(
        &self,
        address: &Address,
        place: &SegmentChunks,
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let mut bytes = vec![0; address.length as usize];
        let granule_bytes = bytes.len();
        let request = ReadRequest {
            segment: place,
            address: *address,
            range: 0..address.length,
            out: &mut bytes,
            granule_bytes,
            verify: &|_, bytes| verify(bytes),
        };
        self.stripe().read_verified(request).ok()?;
        Some(bytes)
    }

    /// Reads runs together; tells of each whether all its blocks are right.
    pub fn runs(&self, runs: &mut [Run<'_>]) -> Vec<bool> {
        runs.iter().for_each(Run::assert_invariants);
        let checks: Vec<(usize, &Checksums)> =
            runs.iter().map(|run| (run.range.start as usize / BLOCK_BYTES, run.checksums)).collect();
        let verifies: Vec<_> = checks
            .into_iter()
            .map(|(first, checksums)| {
                move |at: usize, bytes: &[u8]| {
                    checksums.get(first + at / BLOCK_BYTES) == Some(&stere_format::crc32c(bytes))
                }
            })
            .collect();
        let mut requests: Vec<ReadRequest<'_>> = runs
            .iter_mut()
            .zip(&verifies)
            .map(|(run, verify)| ReadRequest {
                segment: run.place,
                address: run.address,
                range: run.range.clone(),
                out: &mut *run.out,
                granule_bytes: BLOCK_BYTES,
                verify,
            })
            .collect();
        let right: Vec<bool> = self.members.stripe.read_many(&mut requests).iter().map(Result::is_ok).collect();
        drop(requests);
        assert_eq!(right.len(), runs.len(), "a read tells of each run how it went");
        right.into_iter().zip(runs).map(|(is_right, run)| is_right && run.has_digest()).collect()
    }

    /// One run block by block, in every way there is; tells of each block whether it is right in `out` now. Where all are and the digest
    /// is not, from the chunks that give the record as a whole, or it is all wrong.
    pub fn blocks(&mut self, run: &mut Run<'_>) -> Vec<bool> {
        run.assert_invariants();
        let mut right = self.blocks_alone(run);
        if right.iter().all(|is_right| *is_right) && !run.has_digest() {
            match self.record(&run.address, Some(run.place), &|bytes| run.checksums.are_of(bytes)) {
                Some(record) => run.out.copy_from_slice(&record),
                None => right.fill(false),
            }
        }
        right
    }

    fn blocks_alone(&mut self, run: &mut Run<'_>) -> Vec<bool> {
        let mut right = vec![false; run.out.len().div_ceil(BLOCK_BYTES)];
        let mut ways = vec![run.place.clone()];
        let mut is_first = true;
        loop {
            for place in &ways {
                self.blocks_at(run, place, &mut right);
                if right.iter().all(|is_right| *is_right) {
                    return right;
                }
            }
            if !std::mem::take(&mut is_first) {
                return right;
            }
            ways = self.other_ways(run.address.segment, Some(run.place));
        }
    }

    fn blocks_at(&self, run: &mut Run<'_>, place: &SegmentChunks, right: &mut [bool]) {
        for (block, is_right) in right.iter_mut().enumerate().filter(|(_, is_right)| !**is_right) {
            let start = block * BLOCK_BYTES;
            let end = run.out.len().min(start + BLOCK_BYTES);
            let mut bytes = vec![0; end - start];
            let granule_bytes = bytes.len();
            let verify = |_: usize, bytes: &[u8]| run.matches(start, bytes);
            let request = ReadRequest {
                segment: place,
                address: run.address,
                range: run.range.start + start as u32..run.range.start + end as u32,
                out: &mut bytes,
                granule_bytes,
                verify: &verify,
            };
            if self.stripe().read_verified(request).is_ok() {
                run.out[start..end].copy_from_slice(&bytes);
                *is_right = true;
            }
        }
    }
}
