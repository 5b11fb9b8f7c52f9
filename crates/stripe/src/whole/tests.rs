use super::*;
use crate::{READ_COST_FAST, row_height};
use std::sync::Arc;
use stere_device::{BufferPool, Completion, MemoryDevice};
use stere_format::{DeviceIndex, DeviceLayout, PoolId, SegmentKind};

const CHUNK_BYTES: u32 = 1 << 20;

fn pool(count: u16) -> Stripe {
    let stripe = Stripe::new(CHUNK_BYTES, BufferPool::new(1 << 20));
    let layout = DeviceLayout::for_size(64 << 20, CHUNK_BYTES).unwrap();
    for index in 0..count {
        stripe.attach(index, Arc::new(MemoryDevice::new(64 << 20)), layout, READ_COST_FAST).unwrap();
    }
    stripe
}

fn bytes(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

fn chunk_bytes(stripe: &Stripe, place: ChunkPlace, blocks: u32) -> Vec<u8> {
    let device = stripe.devices.get(place.device).unwrap();
    let mut bytes = vec![0; (blocks as usize - 1) * BLOCK_BYTES];
    device.read(device.slot_offset(place).unwrap() + BLOCK_BYTES as u64, &mut bytes).unwrap();
    bytes
}

/// Every chunk of every scheme, written from what is left without it, is what it was; and rows come out as they went in.
#[test]
fn any_chunk_follows_from_the_others() {
    for (data, parity) in [(1, 0), (1, 1), (1, 2), (2, 1), (4, 1), (4, 2), (3, 3)] {
        let stripe = pool(8);
        let scheme = Scheme::new(data, parity).unwrap();
        let segment = stripe.slots.allocate(scheme, 0).unwrap();
        let completion = Completion::new();
        let rows = [bytes(1, 5 * BLOCK_BYTES), bytes(2, 60 * BLOCK_BYTES), bytes(3, BLOCK_BYTES)];
        let (mut row_block, mut starts) = (1, Vec::new());
        for row in &rows {
            let shared = Buffer::copy_of(row).share();
            let height = stripe.write_row(7, &segment, row_block, &shared, 0, &completion).unwrap();
            assert_eq!(height, row_height(scheme, row.len()));
            starts.push((row_block, height));
            row_block += height;
        }
        assert!(completion.wait().is_empty());
        for chunk in 0..scheme.width() {
            let exclude = if parity == 0 { 0 } else { 1 << chunk };
            let whole = stripe.read_whole(7, &segment, row_block, exclude).unwrap();
            let mut scratch = Vec::new();
            for (row, (start, height)) in rows.iter().zip(&starts) {
                let read = whole.row(*start, *height, &mut scratch).unwrap();
                assert_eq!(&read[..row.len()], &row[..], "{scheme} without chunk {chunk}");
                assert!(read[row.len()..].iter().all(|byte| *byte == 0));
            }
            let content = stripe.chunks_of(whole, &[chunk]).unwrap().remove(0);
            assert_eq!(
                content[..],
                chunk_bytes(&stripe, segment.chunks[chunk], row_block)[..],
                "{scheme} chunk {chunk}"
            );
        }
    }
}

#[test]
fn a_chunk_is_written_to_another_slot_with_its_header() {
    let stripe = pool(3);
    let scheme = Scheme::new(1, 1).unwrap();
    let segment = stripe.slots.allocate(scheme, 0).unwrap();
    let others: Vec<DeviceIndex> = segment.chunks.iter().map(|place| place.device).collect();
    let place = stripe.slots.place_beside(stere_format::Site::ANYWHERE, &others[..1], others[1], None).unwrap();
    assert!(!others.contains(&place.device));
    let header = ChunkHeader {
        pool: PoolId([3; 16]),
        segment: 9,
        sequence: 1,
        kind: SegmentKind::Data,
        class: 0,
        chunk: 1,
        place: segment.clone(),
    };
    let content = Buffer::copy_of(&bytes(9, 3 * BLOCK_BYTES)).share();
    let completion = Completion::new();
    stripe.write_chunk(place, &header, &content, completion.ticket(0)).unwrap();
    assert!(completion.wait().is_empty());
    assert_eq!(stripe.read_chunk_header(place).unwrap(), header);
    assert_eq!(chunk_bytes(&stripe, place, 4), content[..]);
}

#[test]
fn a_row_is_replaced_where_it_lies() {
    let stripe = pool(6);
    let scheme = Scheme::new(4, 1).unwrap();
    let segment = stripe.slots.allocate(scheme, 0).unwrap();
    let completion = Completion::new();
    let good = Buffer::copy_of(&bytes(4, 40 * BLOCK_BYTES)).share();
    let height = stripe.write_row(7, &segment, 1, &good, 0, &completion).unwrap();
    assert!(completion.wait().is_empty());
    let mut whole = stripe.read_whole(7, &segment, 1 + height, 0).unwrap();
    let other = bytes(5, 40 * BLOCK_BYTES);
    whole.put_row(1, &other);
    let mut scratch = Vec::new();
    assert_eq!(&whole.row(1, height, &mut scratch).unwrap()[..other.len()], &other[..]);
    assert_eq!(whole.row(2, height, &mut scratch), None, "beyond the end");
}
