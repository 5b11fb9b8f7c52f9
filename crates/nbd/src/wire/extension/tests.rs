use super::*;
use proptest::prelude::*;

/// Bytes as docs/format/node-extension.md writes them down.
#[test]
fn the_extension_is_as_it_is_written_down() {
    assert_eq!(encode_version(), [0, 0, 0, 2]);
    let provide = Provide { name: "ab".into(), size_bytes: 0x0102 };
    assert_eq!(provide.encode(), [0, 0, 0, 0, 0, 0, 1, 2, b'a', b'b']);
    let provided = Provided { size_bytes: 0x0102, epoch: 7 };
    assert_eq!(provided.encode(), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 7]);
    let told = Told { length: 0x0100_0000, settings: "a=1,b=2".into() };
    assert_eq!(told.encode(), *b"\0\0\0\0\x01\0\0\0a=1,b=2");
    let head = crate::wire::request(crate::wire::Command::Tell, 1, 7, 15);
    assert_eq!((&head[4..8], &head[24..]), (&[0, 0, 0x73, 0x75][..], &[0, 0, 0, 15][..]));
    let head = crate::wire::request(crate::wire::Command::Fence, 1, 7, 0);
    assert_eq!(head[4..8], [0, 0, 0x73, 0x74]);
    assert_eq!(head[16..], [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0]);
}

/// P-246.
#[test]
fn only_plain_names_are_names() {
    let long = "a".repeat(NAME_BYTES_MAX);
    for name in ["a", "disk-0_1.raw", "A..b", &long] {
        assert!(is_name(name), "{name}");
    }
    let longer = "a".repeat(NAME_BYTES_MAX + 1);
    for name in ["", ".", "..", ".a", "a/b", "/a", "a b", "a\0", "a\n", "ä", "~", "a,b", &longer] {
        assert!(!is_name(name), "{name:?}");
    }
}

#[test]
fn what_is_cut_or_longer_is_refused() {
    for bytes in [&[][..], &[0, 0, 0], &[0, 0, 0, 0], &[0, 0, 0, 1, 0]] {
        assert!(decode_version(bytes).is_err(), "{bytes:?}");
    }
    assert!(Provide::decode(&[0; 7]).is_err() && Provide::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff]).is_err());
    let told = Told { length: 4096, settings: "copies=2".into() }.encode();
    assert!(Told::decode(&told).is_ok() && Told::decode(&told[..7]).is_err());
    assert!(Told::decode(&[0; 8]).is_err(), "a range of nothing");
    assert!(Told::decode(&[&told[..8], &[0xff]].concat()).is_err());
    assert!(Told::decode(&[1; TOLD_BYTES_MAX + 1]).is_err());
    assert!(Provided::decode(&[0; 15]).is_err() && Provided::decode(&[0; 17]).is_err());
}

proptest! {
    #[test]
    fn harmed_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        fuzz(&bytes);
    }
}
