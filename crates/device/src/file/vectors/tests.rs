use super::*;
use crate::Buffer;
use proptest::prelude::*;
use std::io::Write;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn an_aligned_piece_needs_no_scratch() {
    let transfer = Transfer { is_direct: true, offset_alignment: 512, memory_alignment: 512 };
    let mut target = Buffer::zeroed(8192);
    let plan = Plan::new(&transfer, 0, &[Scatter::Into(&mut target)], 0);
    assert_eq!(plan.vectors, [Vector::Direct { piece: 0, range: 0..8192 }]);
    assert_eq!((plan.scratch_bytes(), plan.copies.len()), (0, 0));
}

#[test]
fn odd_ends_go_through_scratch_and_the_middle_direct() {
    let transfer = Transfer { is_direct: true, offset_alignment: 512, memory_alignment: 4 };
    let mut target = Buffer::zeroed(2000);
    // Head of 12: the piece covers 12..2012 of 2048; 512..1536 of it can go direct.
    let plan = Plan::new(&transfer, 12, &[Scatter::Into(&mut target)], 36);
    let direct = Vector::Direct { piece: 0, range: 500..1524 };
    assert_eq!(plan.vectors, [Vector::Scratch(512), direct, Vector::Scratch(512)]);
    assert_eq!(plan.copies[0], CopyOut { scratch_at: 12, piece: 0, range: 0..500 });
    assert_eq!(plan.copies[1], CopyOut { scratch_at: 512, piece: 0, range: 1524..2000 });
}

#[test]
fn too_many_pieces_are_read_whole() {
    let transfer = Transfer { is_direct: true, offset_alignment: 512, memory_alignment: 4 };
    let mut targets: Vec<Buffer> = (0..1200).map(|_| Buffer::zeroed(512)).collect();
    let pieces: Vec<Scatter<'_>> = targets.iter_mut().map(|target| Scatter::Into(target)).collect();
    let plan = Plan::new(&transfer, 0, &pieces, 0);
    assert_eq!(plan.vectors, [Vector::Scratch(1200 * 512)]);
    assert_eq!(plan.copies.len(), 1200);
}

proptest! {
    #[test]
    fn every_plan_reads_what_a_plain_read_would(
        align_shift in 0u32..4, memory_shift in 0u32..6, start_block in 0usize..3, head in 0usize..4096,
        pieces in prop::collection::vec((any::<bool>(), 0usize..6000, 0usize..64), 1..8),
    ) {
        let offset_alignment = if align_shift == 0 { 1 } else { 256 << align_shift };
        let transfer = Transfer { is_direct: true, offset_alignment, memory_alignment: 1 << memory_shift };
        let align = offset_alignment as usize;
        let head = head % align;
        let bytes = pattern(128 << 10);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let mut targets: Vec<Vec<u8>> = pieces.iter().map(|(_, length, shift)| vec![0; length + shift]).collect();
        let start = start_block * align;
        let length: usize = pieces.iter().map(|piece| piece.1).sum();
        let tail = (head + length).next_multiple_of(align) - head - length;
        {
            let mut scattered: Vec<Scatter<'_>> = pieces.iter().zip(&mut targets).map(|((wanted, length, shift), target)| {
                if *wanted { Scatter::Into(&mut target[*shift..]) } else { Scatter::Skip(*length) }
            }).collect();
            let plan = Plan::new(&transfer, head, &scattered, tail);
            let mut scratch = vec![0; plan.scratch_bytes()];
            plan.read(&file, start as u64, &mut scattered, &mut scratch).unwrap();
        }
        let mut at = start + head;
        for ((wanted, length, shift), target) in pieces.iter().zip(&targets) {
            if *wanted {
                prop_assert_eq!(&target[*shift..], &bytes[at..at + length]);
            }
            at += length;
        }
    }
}
