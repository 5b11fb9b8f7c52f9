use super::*;

#[test]
fn regions_follow_one_another() {
    for chunk_bytes in [1 << 20, 4 << 20, 16 << 20] {
        for size_bytes in [64 << 20, (64 << 20) + 4095, 6 << 30, (2 << 40) + 12_288, 1 << 60] {
            let layout = DeviceLayout::for_size(size_bytes, chunk_bytes).unwrap();
            let [a, b, a_end, b_end] = layout.superblock_offsets();
            assert_eq!((a, b), (0, 65536));
            assert!(layout.journal_offset >= b + 65536);
            assert!(layout.slots_offset >= layout.journal_offset + layout.journal_bytes);
            let last = layout.slot_offset(layout.slot_count - 1).unwrap();
            assert!(last + u64::from(chunk_bytes) <= a_end && b_end + 65536 <= size_bytes);
            assert_eq!(layout.slot_offset(layout.slot_count), None);
            let all_used = layout.slot_count == u32::MAX || a_end - last < 2 * u64::from(chunk_bytes);
            assert!(all_used, "no room for another chunk is left");
            let mut encoded = Vec::new();
            layout.encode_to(&mut encoded);
            assert_eq!(encoded.len(), DeviceLayout::SIZE);
            assert_eq!(DeviceLayout::read(&mut Reader::new("layout", &encoded)), Ok(layout));
        }
    }
}

#[test]
fn generations_alternate() {
    let layout = DeviceLayout::for_size(64 << 20, 1 << 20).unwrap();
    let (even, odd) = (layout.superblock_offsets_of_generation(6), layout.superblock_offsets_of_generation(7));
    let mut all = [even, odd].concat();
    all.sort_unstable();
    assert_eq!(all, layout.superblock_offsets());
}

#[test]
fn what_cannot_be_laid_out_is_refused() {
    assert!(matches!(DeviceLayout::for_size((64 << 20) - 1, 1 << 20), Err(DecodeError::DeviceTooSmall { .. })));
    for chunk_bytes in [0, 4096, 3 << 20, 32 << 20] {
        assert!(matches!(DeviceLayout::for_size(1 << 30, chunk_bytes), Err(DecodeError::ChunkSize { .. })));
    }
}

#[test]
fn a_device_that_grew_keeps_everything_where_it_is() {
    let old = DeviceLayout::for_size(100 << 20, 1 << 20).unwrap();
    let new = old.grown(300 << 20).unwrap();
    assert_eq!(
        (new.journal_offset, new.journal_bytes, new.slots_offset),
        (old.journal_offset, old.journal_bytes, old.slots_offset)
    );
    assert_eq!(new.slot_count, old.slot_count + 200);
    assert!(new.is_possible());
    assert_eq!(new.superblock_offsets()[..2], old.superblock_offsets()[..2]);
    assert_eq!(old.grown(old.size_bytes), None);
    assert_eq!(old.grown(old.size_bytes + 4096), None, "not by a slot");
    assert_eq!(old.grown(0), None);
}
