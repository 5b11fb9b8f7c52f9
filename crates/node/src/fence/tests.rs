use super::*;
use proptest::prelude::*;

/// Bytes as docs/format/node-fence.md writes them down.
#[test]
fn a_record_is_as_it_is_written_down() {
    let bytes = Record { sequence: 2, epoch: 7 }.encode();
    assert_eq!(&bytes[..16], b"STEREFNC\x01\0\0\0\0\0\0\0");
    assert_eq!(bytes[16..32], [2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[32..], crc32c(&bytes[..32]).to_le_bytes());
    assert_eq!(Record::decode(&bytes), Ok(Record { sequence: 2, epoch: 7 }));
}

/// P-245.
#[test]
fn what_was_stored_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let mut fence = Fence::load(path.clone()).unwrap();
    assert_eq!(fence.epoch(), 0);
    for epoch in [7, 9, 9, 1 << 40] {
        fence.store(epoch).unwrap();
        assert_eq!((fence.epoch(), Fence::load(path.clone()).unwrap().epoch()), (epoch, epoch));
    }
    // Made anew for an export that is made anew.
    Fence::remove(&path).unwrap();
    Fence::remove(&path).unwrap();
    assert_eq!(Fence::load(path).unwrap().epoch(), 0);
}

/// P-245: a write that was cut leaves the owner before; a file that says nothing is an error.
#[test]
fn a_damaged_fence_is_never_no_fence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let mut fence = Fence::load(path.clone()).unwrap();
    fence.store(7).unwrap();
    fence.store(9).unwrap();
    let whole = fs::read(&path).unwrap();
    // The second store went to the first slot.
    for at in 0..RECORD_BYTES {
        let mut torn = whole.clone();
        torn[at] ^= 0x10;
        fs::write(&path, &torn).unwrap();
        assert_eq!(Fence::load(path.clone()).unwrap().epoch(), 7, "byte {at}");
        torn[SLOT_BYTES + at] ^= 0x10;
        fs::write(&path, &torn).unwrap();
        assert!(matches!(Fence::load(path.clone()), Err(NodeError::Fence { .. })), "byte {at}");
    }
    for short in [0, 20] {
        fs::write(&path, &whole[..short]).unwrap();
        assert!(Fence::load(path.clone()).is_err(), "{short} bytes");
    }
}

proptest! {
    #[test]
    fn harmed_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        fuzz(&bytes);
        let whole = Record { sequence: 1, epoch: 1 }.encode();
        fuzz(&[&whole[..], &bytes].concat());
    }
}
