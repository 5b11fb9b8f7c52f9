use super::*;
use crate::Attempt;
use crate::tests::{GRANULE, Pool, address, pattern, scheme};
use stere_device::Operation;
use stere_device::memory::Fault;

const RECORD: u32 = 100_000;

/// One record of 100 000 bytes behind a row header.
fn one_record(pool: &Pool, segment: &SegmentChunks) -> (Address, Vec<u8>) {
    let bytes = pattern(RECORD as usize, 3);
    let mut row = vec![0; 512];
    row.extend_from_slice(&bytes);
    row.resize(row.len().next_multiple_of(4096), 0);
    pool.write(segment, 1, &row);
    (address(1, 512, RECORD), bytes)
}

#[test]
fn suspects_are_all_sets_of_a_size() {
    let all = |size| {
        let mut suspects = Suspects::new(&[1, 3, 4, 6], size);
        std::iter::from_fn(move || suspects.next()).collect::<Vec<u32>>()
    };
    assert_eq!(all(0), [0]);
    assert_eq!(all(1), [0b10, 0b1000, 0b1_0000, 0b100_0000]);
    assert_eq!(all(2).len(), 6);
    assert_eq!(all(4), [0b101_1010]);
    assert!(all(5).is_empty());
}

#[test]
fn every_pair_of_liars_is_found() {
    for (data, parity) in [(2u8, 2u8), (4, 2), (3, 3)] {
        let width = usize::from(data + parity);
        for first in 0..width {
            for second in 0..first {
                let pool = Pool::new(width);
                let segment = pool.segment(scheme(data, parity));
                let (at, bytes) = one_record(&pool, &segment);
                pool.corrupt(&segment, first, 4096..80_000);
                pool.corrupt(&segment, second, 4096..80_000);
                let (out, report) = pool.read(&segment, at, 0..RECORD, &bytes).unwrap();
                assert_eq!(out, bytes, "{data}+{parity}, chunks {first} and {second}");
                // Parity is only found out where it was needed; what is accused must be guilty.
                assert!(report.bad.iter().all(|bad| bad.chunk == first || bad.chunk == second), "{:?}", report.bad);
                let is_data = |chunk: usize| chunk < usize::from(data);
                assert_eq!(report.bad.is_empty(), !is_data(first) && !is_data(second));
            }
        }
    }
}

#[test]
fn different_chunks_may_be_bad_in_different_granules() {
    let pool = Pool::new(4);
    let segment = pool.segment(scheme(3, 1));
    let (at, bytes) = one_record(&pool, &segment);
    // Each granule has one liar at most, though all three data chunks lie somewhere.
    pool.corrupt(&segment, 0, 4096 + 5000..4096 + 5001);
    pool.corrupt(&segment, 1, 4096 + 15_000..4096 + 15_001);
    pool.corrupt(&segment, 2, 4096 + 25_000..4096 + 25_001);
    let (out, report) = pool.read(&segment, at, 0..RECORD, &bytes).unwrap();
    assert_eq!(out, bytes);
    let mut chunks: Vec<usize> = report.bad.iter().map(|bad| bad.chunk).collect();
    chunks.sort_unstable();
    assert_eq!((chunks, report.recovered_bytes), (vec![0, 1, 2], 3 * GRANULE));
}

#[test]
fn repair_makes_the_next_read_clean() {
    for (data, parity) in [(1, 2), (3, 1), (4, 2)] {
        let pool = Pool::new(6);
        let segment = pool.segment(scheme(data, parity));
        let (at, bytes) = one_record(&pool, &segment);
        pool.corrupt(&segment, 0, 4096 + 600..4096 + 9000);
        let range = 100..RECORD;
        let (out, report) = pool.read(&segment, at, range.clone(), &bytes[100..]).unwrap();
        assert_eq!(out, bytes[100..]);
        assert!(!report.bad.is_empty());
        let repaired = pool.stripe.repair(&segment, &at, &range, &out, &report).unwrap();
        assert!(repaired.unwritable.is_empty());
        assert_eq!(repaired.blocks, 3, "{data}+{parity}: blocks from 4096 + 600 to 4096 + 9000");
        let again = pool.stripe.repair(&segment, &at, &range, &out, &report).unwrap();
        assert_eq!(again.blocks, 0, "what is right is not written again");
        assert_eq!(pool.stripe.devices.get(segment.chunks[0].device).unwrap().statistics().repaired, 3);
        let (out, report) = pool.read(&segment, at, range.clone(), &bytes[100..]).unwrap();
        assert_eq!((&out[..], report.bad.len()), (&bytes[100..], 0));
        let mut plain = vec![0; out.len()];
        pool.stripe.read(&segment, &at, range, &mut plain, Attempt::Primary(0)).unwrap();
        assert_eq!(plain, bytes[100..], "the medium itself is good again");
    }
}

#[test]
fn a_bad_sector_is_read_around_and_rewritten() {
    let pool = Pool::new(3);
    let segment = pool.segment(scheme(2, 1));
    let (at, bytes) = one_record(&pool, &segment);
    let place = segment.chunks[0];
    let start = pool.stripe.devices.get(place.device).unwrap().layout().slot_offset(place.slot).unwrap();
    let sector = start + 4096 + 8192;
    let hook = move |operation, offset: u64, length: u64| {
        let is_hit = operation == Operation::Read && offset < sector + 512 && sector < offset + length;
        is_hit.then_some(Fault::Error)
    };
    pool.memory_of(place).set_fault_hook(Some(Box::new(hook)));
    let (out, report) = pool.read(&segment, at, 0..RECORD, &bytes).unwrap();
    assert_eq!(out, bytes);
    assert!(report.bad.iter().all(|bad| bad.chunk == 0 && matches!(bad.cause, BadCause::Device(_))));
    assert!(!report.bad.is_empty());
    // Whole blocks can be rewritten without reading the bad one.
    pool.stripe.rewrite(1, &segment, 0, 4096 + 8192, &[1; 512]).unwrap();
}

#[test]
fn too_much_loss_says_how_much() {
    let pool = Pool::new(3);
    let segment = pool.segment(scheme(2, 1));
    let (at, bytes) = one_record(&pool, &segment);
    pool.stripe.detach(segment.chunks[0].device);
    pool.memory_of(segment.chunks[2]).set_offline(true);
    match pool.read(&segment, at, 0..RECORD, &bytes) {
        Err(StripeError::TooFewChunks { readable: 1, needed: 2, failed, .. }) => assert_eq!(failed[0].chunk, 2),
        other => panic!("{other:?}"),
    }
    pool.memory_of(segment.chunks[2]).set_offline(false);
    pool.corrupt(&segment, 2, 4096..80_000);
    assert!(matches!(pool.read(&segment, at, 0..RECORD, &bytes), Err(StripeError::Damaged { .. })));
}

#[test]
fn any_chunk_can_be_rebuilt_from_the_others() {
    for (data, parity) in [(1u8, 1u8), (1, 2), (3, 1), (4, 2), (2, 3)] {
        let pool = Pool::new(6);
        let segment = pool.segment(scheme(data, parity));
        one_record(&pool, &segment);
        for chunk in 0..segment.scheme.width() {
            let place = segment.chunks[chunk];
            let start = pool.stripe.devices.get(place.device).unwrap().layout().slot_offset(place.slot).unwrap();
            let mut stored = vec![0; 10 * 4096];
            pool.memory_of(place).read(start + 4096, &mut stored).unwrap();
            let rebuilt = pool.stripe.rebuild_chunk(1, &segment, chunk, 1..11, 0).unwrap();
            assert_eq!(rebuilt[..], stored[..], "{data}+{parity}, chunk {chunk}");
        }
        assert!(pool.stripe.rebuild_chunk(1, &segment, 6, 1..2, 0).is_err());
        assert!(pool.stripe.rebuild_chunk(1, &segment, 0, 200..300, 0).is_err());
    }
}

#[test]
fn chunks_that_disagree_are_found() {
    for (data, parity) in [(1u8, 2u8), (3, 1), (3, 2)] {
        let pool = Pool::new(5);
        let segment = pool.segment(scheme(data, parity));
        one_record(&pool, &segment);
        let width = segment.scheme.width();
        let clean = pool.stripe.check_blocks(1, &segment, 1..20).unwrap();
        let expected = RangeCheck { readable: (1 << width) - 1, differing: vec![], is_compared: true };
        assert_eq!(clean, expected);
        pool.corrupt(&segment, width - 1, 8192..8193);
        assert_eq!(pool.stripe.check_blocks(1, &segment, 1..20).unwrap().differing, [width - 1]);
        assert!(pool.stripe.check_blocks(1, &segment, 3..20).unwrap().differing.is_empty());
        pool.stripe.detach(segment.chunks[0].device);
        let without = pool.stripe.check_blocks(1, &segment, 1..20).unwrap();
        assert_eq!((without.readable & 1, without.is_compared), (0, data == 1));
    }
}
