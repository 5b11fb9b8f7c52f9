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
        Entry { offset: u64::MAX, ..record },
        Entry { content_bytes: u32::MAX, ..Entry::default() },
    ];
    for entry in bad {
        assert!(Entry::decode_all(&Entry::encode_all(&[entry])).is_err(), "{entry:?}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is in users' directories stays readable: version 1, byte by byte (P-12).
#[test]
fn headers_and_entries_are_as_they_were() {
    let bytes = header(5).encode();
    let (fixed, rest) = bytes.split_at(FIXED_BYTES);
    let expected = concat!(
        "737465726520737461636b0a0100000005000000000000000000000000000070",
        "01000600000000008813000000000000040000000900000032000000"
    );
    assert_eq!(hex(fixed), expected);
    let text = b"compress=zstd:7,encrypt=yes,plugins=delta:2+rotate";
    assert_eq!(&rest[..text.len()], text);
    assert!(rest[text.len()..HEADER_BYTES - FIXED_BYTES - 4].iter().all(|byte| *byte == 0));
    assert_eq!(hex(&bytes[HEADER_BYTES - 4..]), "4ab49cec");
    let record = Entry { offset: 1024, stored_bytes: 99, crc32c: 0x0102_0304, content_bytes: 131_072, encoding: 0x1a };
    assert_eq!(hex(&Entry::encode_all(&[record])), "0004000000000000630000000403020100000200".to_owned() + "1a000000");
}

/// P-11 for this form: no bytes make its decoders panic, or believe what cannot be.
#[test]
fn any_bytes_are_decoded_or_refused() {
    let record = Entry { offset: 1024, stored_bytes: 99, crc32c: 1, content_bytes: 131_072, encoding: 0x1a };
    let start = [header(4).encode(), header(5).encode()].concat();
    let index = Entry::encode_all(&[record, Entry::default(), record]);
    for (seed, fuzz) in [(start, fuzz_header as fn(&[u8])), (index, fuzz_index)] {
        for length in 0..=seed.len() {
            fuzz(&seed[..length]);
        }
        for at in 0..seed.len() {
            for byte in 0..=255 {
                let mut bytes = seed.clone();
                bytes[at] = byte;
                fuzz(&bytes);
            }
        }
    }
    // Several bytes at once, the same in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize
    };
    let seed = header(5).encode();
    for _ in 0..20_000 {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + next() % 8 {
            let at = next() % bytes.len();
            bytes[at] = next() as u8;
        }
        fuzz_header(&bytes);
        fuzz_index(&bytes[next() % 24..]);
    }
}
