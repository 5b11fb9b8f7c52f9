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
    assert_eq!(VolumeLabel::decode(&bytes), Some(label()));
    for at in 0..bytes.len() - 1 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(VolumeLabel::decode(&damaged), None, "byte {at}");
        assert_eq!(VolumeLabel::decode(&bytes[..at]), None, "cut at {at}");
    }
    assert_eq!(VolumeLabel::decode(b""), None);
    assert_eq!(VolumeLabel::decode(b"\xff\xfe"), None);
}

#[test]
fn an_entry_is_read_back() {
    let entry = VolumeEntry {
        number: 3,
        id: VolumeId([9; 16]),
        class: 3,
        is_offline: true,
        name: "cold".into(),
        place: "dir:/mnt/cold".into(),
    };
    let bytes = entry.encode();
    assert_eq!(VolumeEntry::decode(3, &bytes), Ok(entry));
    assert!(VolumeEntry::decode(15, &bytes).is_err(), "there are 15 volumes at most");
    assert!((0..bytes.len()).all(|end| VolumeEntry::decode(3, &bytes[..end]).is_err()));
}

#[test]
fn objects_tell_their_segment() {
    let name = object_name(0x12, u64::MAX);
    assert_eq!(name, "segments/0000000000000012-ffffffffffffffff");
    assert_eq!(segment_of_object(&name), Some((0x12, u64::MAX)));
    for other in ["segments/12-3", "stere-volume", "segments/0000000000000012", ""] {
        assert_eq!(segment_of_object(other), None, "{other}");
    }
}
