use stere_format::{
    Address, Checksums, ChunkPlace, STRIPE_UNIT_BYTES, Scheme, SegmentChunks, SegmentState, SegmentValue,
};

use super::*;

fn segment(data: u8, parity: u8, missing: u32) -> Segment {
    let chunks = (0..u16::from(data + parity)).map(|device| ChunkPlace { device, slot: 7 }).collect();
    let value = SegmentValue {
        place: SegmentChunks { scheme: Scheme::new(data, parity).unwrap(), missing, chunks },
        class: 1,
        kind: SegmentKind::Data,
        temperature: 0,
        state: SegmentState::Sealed,
        written_blocks: 100,
        live_bytes: 4096,
        sequence: 1,
        tertiary: stere_format::Tertiary::default(),
        site: stere_format::Site::ANYWHERE,
    };
    Segment::from_value(3, &value)
}

#[test]
fn a_segment_bears_as_many_losses_as_it_has_parity() {
    let lost = |segment: &Segment, gone: &[u16]| lost_chunks(segment, &|device| gone.contains(&device));
    let single = segment(1, 0, 0);
    assert_eq!((lost(&single, &[]), lost(&single, &[1]), lost(&single, &[0])), (0, 0, 1));
    let copies = segment(1, 2, 0);
    assert_eq!((lost(&copies, &[0, 2]), lost(&copies, &[0, 1, 2])), (0, 1));
    let parity = segment(4, 1, 0);
    assert_eq!((lost(&parity, &[3]), lost(&parity, &[3, 4]), lost(&parity, &[1, 3])), (0, 0b1000, 0b1010));
    // A chunk that was never written counts as lost.
    let degraded = segment(4, 1, 0b10);
    assert_eq!((lost(&degraded, &[]), lost(&degraded, &[0])), (0, 0b11));
}

#[test]
fn lost_ranges_are_exactly_the_blocks_that_touch_a_lost_chunk() {
    let mut cases = 0;
    for length in [1, 4096, 4097, 30_000, 32_768, 65_537, 131_072, 199_999] {
        for sectors in [1, 7, 8, 63, 64, 65, 200] {
            for data in 1..6u8 {
                for lost in 1..1u32 << data {
                    check_lost_ranges(length, sectors, data, lost);
                    cases += 1;
                }
            }
        }
    }
    assert!(cases > 3000, "{cases} cases");
}

fn check_lost_ranges(length: u32, sectors: u32, data: u8, lost: u32) {
    let scheme = Scheme::new(data, 1).unwrap();
    let address = Address { segment: 3, row_block: 5, offset: sectors * 512, length };
    let checksums: Checksums = (0..length.div_ceil(4096)).collect();
    let value = BlobValue::plain(address, checksums);
    let ranges = lost_ranges(&value, scheme, lost);
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "in order, neighbours joined");
    for block in 0..value.blocks() {
        let (from, to) = (block * 4096, ((block + 1) * 4096).min(length));
        // By the definition of stripes, sector by sector.
        let chunk = |at: u32| (address.offset + at) / STRIPE_UNIT_BYTES as u32 % u32::from(data);
        let is_lost = data == 1 || (from..to).step_by(512).any(|at| lost & 1 << chunk(at) != 0);
        let is_told = ranges.iter().any(|range| range.start <= from && to <= range.end);
        assert_eq!(is_lost, is_told, "block {block} of {length} bytes at sector {sectors}, {data} data chunks");
    }
}
