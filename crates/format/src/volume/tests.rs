use super::*;

fn label() -> VolumeLabel {
    VolumeLabel {
        pool: PoolId([0xab; 16]),
        pool_name: "tank".into(),
        volume: VolumeId([7; 16]),
        name: "LAB-0042".into(),
    }
}

#[test]
fn a_label_is_read_back_and_nothing_else_is() {
    let bytes = label().encode();
    assert_eq!(VolumeLabel::decode(&bytes), Ok(label()));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(VolumeLabel::decode(&damaged).is_err(), "byte {at}");
        assert!(VolumeLabel::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    for other in [&b""[..], b"\xff\xfe", &[&bytes[..], b"\n"].concat()] {
        assert!(VolumeLabel::decode(other).is_err());
    }
    let long = VolumeLabel { name: "x".repeat(VolumeLabel::BYTES_MAX), ..label() };
    assert!(VolumeLabel::decode(&long.encode()).is_err());
}

#[test]
fn an_entry_is_read_back() {
    let entry = VolumeEntry {
        number: 3,
        id: VolumeId([9; 16]),
        class: 3,
        is_offline: true,
        takes_metadata: false,
        succession: Succession::Retiring(2),
        name: "cold".into(),
        place: "dir:/mnt/cold".into(),
    };
    let bytes = entry.encode();
    assert_eq!(VolumeEntry::decode(3, &bytes), Ok(entry));
    assert!(VolumeEntry::decode(15, &bytes).is_err(), "there are 15 volumes at most");
    assert!((0..bytes.len()).all(|end| VolumeEntry::decode(3, &bytes[..end]).is_err()));
}

#[test]
fn marks_are_percent_in_order() {
    let marks = TierMarks::new(90, 80).expect("possible marks");
    assert_eq!(TierMarks::decode(&marks.encode()), Ok(marks));
    for bytes in [&[1, 80, 90][..], &[1, 80, 80], &[1, 101, 80], &[1, 80, 0], &[2, 90, 80], &[1, 90], &[1, 90, 80, 0]] {
        assert!(TierMarks::decode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn objects_tell_their_segment() {
    let name = object_name(0x12, u64::MAX, 1);
    assert_eq!(name, "segments/0000000000000012-ffffffffffffffff");
    assert_eq!(segment_of_object(&name), Some((0x12, u64::MAX)));
    assert_eq!(data_chunks_of_object(&name), Some(1));
    let wide = object_name(0x12, 3, 10);
    assert_eq!(wide, "segments/0000000000000012-0000000000000003-0a");
    assert_eq!((segment_of_object(&wide), data_chunks_of_object(&wide)), (Some((0x12, 3)), Some(10)));
    for other in ["-00", "-01", "-0a-", "-a", "-+a", "-100"] {
        assert_eq!(
            data_chunks_of_object(&format!("segments/0000000000000012-0000000000000003{other}")),
            None,
            "{other}"
        );
    }
    let name = metadata_name(0x12, 3, 0x400);
    assert_eq!(name, "metadata/0000000000000012-0000000000000003-00000400");
    assert_eq!((metadata_of_object(&name), segment_of_object(&name)), (Some((0x12, 3, 0x400)), None));
    assert_eq!(metadata_of_object("metadata/0000000000000012-0000000000000003-00000400-"), None);
    assert_eq!((state_name(5), state_of_object(&state_name(5))), ("states/0000000000000005".into(), Some(5)));
    for other in
        ["segments/12-3", "segments/+000000000000012-0000000000000003", "stere-volume", "segments/0000000000000012", ""]
    {
        assert_eq!(segment_of_object(other), None, "{other}");
        assert_eq!((metadata_of_object(other), state_of_object(other)), (None, None), "{other}");
    }
}

/// Rows follow each other behind one block of header, whatever the count of data chunks.
#[test]
fn rows_lie_on_end_in_objects() {
    let address = |row_block, offset| Address { segment: 1, row_block, offset, length: 512 };
    assert_eq!(range_in_object(1, &address(1, 512)), 4608..5120);
    assert_eq!(range_in_object(1, &address(7, 0)), 7 * 4096..7 * 4096 + 512);
    assert_eq!(range_in_object(3, &address(1, 0)), 4096..4608);
    assert_eq!(range_in_object(3, &address(7, 512)), 4096 + 6 * 3 * 4096 + 512..4096 + 6 * 3 * 4096 + 1024);
    // From media: no row begins in the header, and nothing overflows.
    assert_eq!(range_in_object(3, &address(0, 0)).start, 4096);
    assert!(range_in_object(255, &address(u32::MAX, u32::MAX)).end > 1 << 50);
    assert_eq!(
        [object_bytes(1, 7), object_bytes(2, 7), object_bytes(4, 1), object_bytes(4, 0)],
        [7, 13, 1, 1].map(|blocks| blocks * 4096)
    );
}
