//! A small pool in memory for the tests of this crate, and tests of the whole.

use crate::grants::Grants;
use crate::{ReadReport, ReadRequest, Stripe, StripeError, split_tag};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use stere_device::{Buffer, BufferPool, Completion, Device, DeviceError, MemoryDevice};
use stere_format::{
    Address, ChunkHeader, ChunkPlace, DeviceLayout, PoolId, Scheme, SegmentChunks, SegmentKind, crc32c,
};

pub(crate) const CHUNK_BYTES: u32 = 1 << 20;
const DEVICE_BYTES: u64 = 64 << 20;
pub(crate) const GRANULE: usize = 4096;

pub(crate) struct Pool {
    pub stripe: Stripe,
    pub memories: Vec<Arc<MemoryDevice>>,
}

pub(crate) fn scheme(data: u8, parity: u8) -> Scheme {
    Scheme::new(data, parity).unwrap()
}

impl Pool {
    pub fn new(device_count: usize) -> Pool {
        Pool::with_grants(device_count, None)
    }

    pub fn with_grants(device_count: usize, grants: Option<Arc<Grants>>) -> Pool {
        let stripe = Stripe::new(CHUNK_BYTES, BufferPool::new(16 << 20));
        grants.into_iter().for_each(|grants| stripe.devices.set_grants(grants));
        let memories: Vec<_> = (0..device_count).map(|_| Arc::new(MemoryDevice::new(DEVICE_BYTES))).collect();
        let pool = Pool { stripe, memories };
        (0..device_count).for_each(|index| pool.attach(index));
        pool
    }

    pub fn attach(&self, index: usize) {
        let layout = DeviceLayout::for_size(DEVICE_BYTES, CHUNK_BYTES).unwrap();
        self.stripe.attach(index as u16, self.memories[index].clone(), layout, 1).unwrap();
    }

    pub fn segment(&self, scheme: Scheme) -> SegmentChunks {
        self.stripe.slots.allocate(scheme, 0).unwrap()
    }

    /// Writes a row and waits; returns its height.
    pub fn write(&self, segment: &SegmentChunks, row_block: u32, row: &[u8]) -> u32 {
        let completion = Completion::new();
        let row = Buffer::copy_of(row).share();
        let height = self.stripe.write_row(1, segment, row_block, &row, 7, &completion).unwrap();
        assert!(completion.wait().is_empty());
        height
    }

    pub fn memory_of(&self, place: ChunkPlace) -> &MemoryDevice {
        &self.memories[usize::from(place.device)]
    }

    /// Flips bytes of a chunk on its device.
    pub fn corrupt(&self, segment: &SegmentChunks, chunk: usize, range: Range<u64>) {
        let place = segment.chunks[chunk];
        let start = self.stripe.devices.get(place.device).unwrap().layout().slot_offset(place.slot).unwrap();
        self.memory_of(place).corrupt(start + range.start, range.end - range.start);
    }

    /// Reads a part of a record that should hold `expected`, with a checksum per granule.
    pub fn read(
        &self,
        segment: &SegmentChunks,
        address: Address,
        range: Range<u32>,
        expected: &[u8],
    ) -> Result<(Vec<u8>, ReadReport), StripeError> {
        let mut out = vec![0x77; expected.len()];
        let sums: Vec<u32> = expected.chunks(GRANULE).map(crc32c).collect();
        let verify = |start: usize, bytes: &[u8]| crc32c(bytes) == sums[start / GRANULE];
        let request = ReadRequest { segment, address, range, out: &mut out, granule_bytes: GRANULE, verify: &verify };
        let report = self.stripe.read_verified(request)?;
        Ok((out, report))
    }
}

pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

pub(crate) fn address(row_block: u32, offset: u32, length: u32) -> Address {
    Address { segment: 1, row_block, offset, length }
}

#[test]
fn headers_tell_where_the_siblings_are() {
    let pool = Pool::new(4);
    let place = pool.segment(scheme(2, 1));
    let header = ChunkHeader {
        pool: PoolId([3; 16]),
        segment: 99,
        sequence: 5,
        kind: SegmentKind::Data,
        class: 2,
        chunk: 0,
        place: place.clone(),
    };
    let completion = Completion::new();
    pool.stripe.write_chunk_headers(&header, 1, &completion).unwrap();
    assert!(completion.wait().is_empty());
    for (chunk, &slot) in place.chunks.iter().enumerate() {
        let found = pool.stripe.read_chunk_header(slot).unwrap();
        assert_eq!(found, ChunkHeader { chunk: chunk as u8, ..header.clone() });
    }
    pool.corrupt(&place, 1, 10..11);
    assert!(matches!(pool.stripe.read_chunk_header(place.chunks[1]), Err(StripeError::Decode(_))));
    assert!(matches!(
        pool.stripe.read_chunk_header(ChunkPlace { device: 77, slot: 0 }),
        Err(StripeError::Absent { index: 77 })
    ));
}

#[test]
fn failed_chunks_are_told_by_their_tags() {
    let pool = Pool::new(3);
    let segment = pool.segment(scheme(2, 1));
    pool.memory_of(segment.chunks[2]).set_offline(true);
    let gone = segment.chunks[0].device;
    pool.stripe.detach(gone).unwrap();
    let completion = Completion::new();
    let row = Buffer::zeroed(8192).share();
    pool.stripe.write_row(1, &segment, 1, &row, 1234, &completion).unwrap();
    let mut failed: Vec<_> = completion.wait().into_iter().map(|(tag, error)| (split_tag(tag), error)).collect();
    failed.sort_by_key(|(tag, _)| *tag);
    assert_eq!(failed.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [(1234, 0), (1234, 2)]);
    assert!(failed.iter().all(|(_, error)| matches!(error, DeviceError::Absent { .. })));
    let marked = SegmentChunks { missing: 0b101, ..segment };
    pool.stripe.write_row(1, &marked, 3, &row, 1, &completion).unwrap();
    assert!(completion.wait().is_empty(), "missing chunks are left out");
}

#[test]
fn a_row_beyond_the_chunk_is_refused() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    let completion = Completion::new();
    let row = Buffer::zeroed(8192).share();
    pool.stripe.write_row(1, &segment, 254, &row, 0, &completion).unwrap();
    assert!(completion.wait().is_empty());
    let refused = pool.stripe.write_row(1, &segment, 255, &row, 0, &completion);
    assert!(matches!(refused, Err(StripeError::OutsideChunk { .. })));
    assert!(completion.wait().is_empty(), "nothing was submitted");
    let beyond = pool.read(&segment, address(255, 0, 8192), 0..8192, &[0; 8192]);
    assert!(matches!(beyond, Err(StripeError::OutsideChunk { .. })));
    let wrong = SegmentChunks { scheme: scheme(2, 1), ..segment };
    let impossible = pool.read(&wrong, address(1, 0, 1), 0..1, &[0]);
    assert!(matches!(impossible, Err(StripeError::ImpossibleSegment { .. })));
}

#[test]
fn a_device_that_returns_keeps_its_slots() {
    let pool = Pool::new(2);
    let segment = pool.segment(scheme(1, 1));
    let before = pool.stripe.slots.usage(0).unwrap();
    pool.stripe.detach(0);
    assert_eq!(pool.stripe.slots.fit(scheme(1, 1)).unwrap(), scheme(1, 0));
    assert!(matches!(pool.stripe.slots.allocate(scheme(1, 1), 0), Err(StripeError::TooFewDevices { present: 1, .. })));
    pool.attach(0);
    assert_eq!(pool.stripe.slots.usage(0).unwrap(), before);
    assert!(segment.chunks.iter().all(|&place| pool.stripe.slots.is_used(place)));
    pool.stripe.slots.set_accepts_chunks(1, false);
    assert_eq!(pool.stripe.slots.capacity(scheme(1, 0)).segments_free, u64::from(before.free));
    pool.stripe.slots.free_later(&segment.chunks, 3);
    assert_eq!(pool.stripe.slots.release(3).len(), 2);
    pool.stripe.slots.discard(segment.chunks[0]).unwrap();
    pool.stripe.forget(0);
    assert!(pool.stripe.slots.usage(0).is_none() && pool.stripe.devices.get(0).is_none());
}

#[test]
fn devices_with_other_chunks_are_refused() {
    let pool = Pool::new(1);
    let layout = DeviceLayout::for_size(DEVICE_BYTES, 2 << 20).unwrap();
    let refused = pool.stripe.attach(3, pool.memories[0].clone(), layout, 1);
    assert!(matches!(refused, Err(StripeError::ChunkBytes { found: 2_097_152, .. })));
}

/// A random history of one segment: rows with records, then losses and rot.
#[derive(Debug, Clone)]
struct History {
    scheme: Scheme,
    rows: Vec<Vec<u32>>,
    seed: u64,
}

fn histories() -> impl Strategy<Value = History> {
    let records = prop::collection::vec(1u32..70_000, 1..5);
    (1u8..6, 0u8..4, prop::collection::vec(records, 1..4), any::<u64>())
        .prop_map(|(data, parity, rows, seed)| History { scheme: scheme(data, parity), rows, seed })
}

/// Writes the history; returns every record with its bytes.
fn write_history(pool: &Pool, segment: &SegmentChunks, history: &History) -> Vec<(Address, Vec<u8>)> {
    let mut records = Vec::new();
    let mut row_block = 1;
    for (number, lengths) in history.rows.iter().enumerate() {
        let mut row = vec![0xee; 512];
        for &length in lengths {
            let bytes = pattern(length as usize, history.seed ^ (number as u64) << 32 ^ u64::from(length));
            records.push((address(row_block, row.len() as u32, length), bytes.clone()));
            row.extend_from_slice(&bytes);
            row.resize(row.len().next_multiple_of(512), 0);
        }
        row.resize(row.len().next_multiple_of(4096), 0);
        row_block += pool.write(segment, row_block, &row);
    }
    records
}

/// Which chunks to spoil, drawn from a seed: `count` different ones.
fn victims(width: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut all: Vec<usize> = (0..width).collect();
    let mut state = seed | 1;
    for at in (1..width).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.swap(at, (state >> 33) as usize % (at + 1));
    }
    all.truncate(count);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn up_to_m_chunks_may_be_away_or_rotten(history in histories(), how in prop::collection::vec(0u8..4, 4), cut in 0u32..1000) {
        let pool = Pool::new(history.scheme.width());
        let mut segment = pool.segment(history.scheme);
        let records = write_history(&pool, &segment, &history);
        let spoiled = victims(history.scheme.width(), history.scheme.survives(), history.seed);
        for (&chunk, how) in spoiled.iter().zip(how) {
            match how {
                0 => pool.memory_of(segment.chunks[chunk]).set_offline(true),
                1 => drop(pool.stripe.detach(segment.chunks[chunk].device)),
                2 => segment.missing |= 1 << chunk,
                _ => pool.corrupt(&segment, chunk, 4096..u64::from(CHUNK_BYTES)),
            }
        }
        for (address, bytes) in &records {
            let (out, _) = pool.read(&segment, *address, 0..address.length, bytes).unwrap();
            prop_assert_eq!(&out, bytes);
            let start = cut % address.length;
            let part = &bytes[start as usize..];
            prop_assert_eq!(&pool.read(&segment, *address, start..address.length, part).unwrap().0[..], part);
        }
    }

    /// P-4: no wrong byte, whatever is lost.
    #[test]
    fn more_than_m_lost_never_give_wrong_bytes(history in histories(), rot in any::<bool>()) {
        let pool = Pool::new(history.scheme.width());
        let segment = pool.segment(history.scheme);
        let records = write_history(&pool, &segment, &history);
        for chunk in victims(history.scheme.width(), history.scheme.survives() + 1, history.seed) {
            if rot {
                pool.corrupt(&segment, chunk, 4096..u64::from(CHUNK_BYTES));
            } else {
                pool.stripe.detach(segment.chunks[chunk].device);
            }
        }
        let mut lost = 0;
        for (address, bytes) in &records {
            match pool.read(&segment, *address, 0..address.length, bytes) {
                Ok((out, _)) => prop_assert_eq!(&out, bytes),
                Err(StripeError::Damaged { .. } | StripeError::TooFewChunks { .. }) => lost += 1,
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
        if history.scheme.data == 1 {
            prop_assert_eq!(lost, records.len(), "no copy is left");
        }
    }
}

/// P-165: a slot that is freed is discarded once, never while it is in use, and is free again afterwards.
#[test]
fn freed_slots_are_discarded() {
    let pool = Pool::new(1);
    let places: Vec<ChunkPlace> = (0..8).map(|_| pool.segment(scheme(1, 0)).chunks[0]).collect();
    let free_before = pool.stripe.slots.usage(0).unwrap().free;
    let device = pool.stripe.devices.get(0).unwrap();
    let offset = |place: &ChunkPlace| device.layout().slot_offset(place.slot).unwrap();
    places.iter().for_each(|place| device.write_bytes(offset(place), &[7; 4096]).unwrap());
    let discards = || pool.memories[0].counters().discards;
    assert_eq!(pool.stripe.slots.discard_freed(100), 0, "nothing was freed");
    pool.stripe.slots.free_now(&places[..4]);
    assert_eq!(pool.stripe.slots.discard_freed(3), 3, "no more than was said");
    assert_eq!((pool.stripe.slots.discard_freed(100), discards()), (1, 4));
    assert_eq!((pool.stripe.slots.discard_freed(100), discards()), (0, 4), "once");
    assert_eq!(pool.stripe.slots.usage(0).unwrap().free, free_before + 4);
    for place in &places[4..] {
        let mut bytes = [0; 4096];
        device.read(offset(place), &mut bytes).unwrap();
        assert_eq!(bytes, [7; 4096], "what is in use stays");
    }
    // When it is asked for, all that is free is discarded, also what was free from the beginning.
    let free = pool.stripe.slots.usage(0).unwrap().free;
    assert_eq!(pool.stripe.slots.discard_again(), free as usize);
    let counted = discards();
    assert_eq!(pool.stripe.slots.discard_freed(3), 3);
    while pool.stripe.slots.discard_freed(3) > 0 {}
    assert!(discards() - counted >= u64::from(free - FREE_KEPT), "{} of {free}", discards() - counted);
    assert_eq!(pool.stripe.slots.usage(0).unwrap().free, free);
    // What is in use again is left alone.
    pool.stripe.slots.free_now(&places[4..5]);
    while pool.stripe.slots.usage(0).unwrap().free > FREE_LEFT {
        pool.segment(scheme(1, 0));
    }
    assert_eq!(pool.stripe.slots.discard_freed(100), 0, "few are free: somebody may need them");
}

/// So many free slots may stay undiscarded, because somebody may need them.
const FREE_KEPT: u32 = 16;
/// With so few free slots none is taken away to be discarded.
const FREE_LEFT: u32 = 8;
