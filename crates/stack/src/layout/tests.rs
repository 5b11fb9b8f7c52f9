//! Headers and entries come back as they were, and what was changed is none (P-67).

use super::*;

fn header(sequence: u64) -> Header {
    let way = Way::parse("compress=zstd:7,encrypt=yes,plugins=delta:2+rotate").unwrap();
    Header { sequence, id: 7 << 60, size: 3 * RECORD_BYTES + 1, index_offset: 5000, records: 4, index_crc32c: 9, way }
}

#[test]
fn the_newer_of_two_whole_headers_holds() {
    let (old, new) = (header(4), header(5));
    assert_eq!((old.place(), new.place()), (0, 512));
    let mut start = [old.encode(), new.encode()].concat();
    assert_eq!(Header::find(&start), [new.clone(), old.clone()]);
    for at in 0..HEADER_BYTES {
        start[HEADER_BYTES + at] ^= 4;
        assert_eq!(Header::find(&start), std::slice::from_ref(&old), "changed at {at}");
        start[HEADER_BYTES + at] ^= 4;
    }
    assert_eq!(Header::find(&start[..700]), [old]);
    assert_eq!(Header::find(b"stere stack\n and then some"), []);
    assert_eq!(Header::find(&[]), []);
}

#[test]
fn entries_come_back_and_impossible_ones_are_refused() {
    let record = Entry { offset: 1024, stored_bytes: 99, crc32c: 1, content_bytes: 131_072, encoding: 0x1a };
    let entries = [record, Entry::default(), Entry { offset: 1 << 40, ..record }];
    assert_eq!(Entry::decode_all(&Entry::encode_all(&entries)).unwrap(), entries);
    let bad = [
        Entry { offset: 5, ..record },
        Entry { content_bytes: 131_073, ..record },
        Entry { stored_bytes: 1 << 20, ..record },
        Entry { offset: 0, ..record },
    ];
    for entry in bad {
        assert!(Entry::decode_all(&Entry::encode_all(&[entry])).is_err(), "{entry:?}");
    }
}
