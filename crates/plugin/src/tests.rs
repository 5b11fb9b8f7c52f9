use proptest::prelude::*;

use super::*;

fn compression(text: &str) -> Compression {
    Compression::from_text(text).expect("a setting")
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 3u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

fn text(length: usize) -> Vec<u8> {
    let line = |at: usize| format!("record number {:>4} of the segment, all well\n", at * 31 % 1000).into_bytes();
    (0..length / 40 + 1).flat_map(line).take(length).collect()
}

fn check_round_trip(compression: Compression, content: &[u8]) -> Encoded {
    let encoded = encode(compression, content);
    assert_eq!(encode(compression, content), encoded, "the same bytes give the same bytes");
    if let Encoded::Stored { encoding, bytes } = &encoded {
        let mut out = vec![0xaa; content.len()];
        decode(*encoding, bytes, &mut out).expect("what was encoded decodes");
        assert!(out == content, "the content comes back");
        assert!(is_as_asked(compression, *encoding, BlobFlags::NONE));
        let saved = content.len().div_ceil(512) - bytes.len().div_ceil(512);
        assert!(saved >= 1 && saved >= content.len() / 512 / 8, "it was worth it: {saved} sectors");
    }
    encoded
}

#[test]
fn what_becomes_smaller_is_stored_so_and_comes_back() {
    for setting in ["lz4", "zstd", "zstd:1", "zstd:19"] {
        for length in [600, 1024, 4096, 5000, 131_072, 1 << 20] {
            let encoded = check_round_trip(compression(setting), &text(length));
            assert!(matches!(encoded, Encoded::Stored { .. }), "{setting} of {length}");
        }
        let Encoded::Stored { bytes, .. } = check_round_trip(compression(setting), &vec![0; 131_072]) else {
            panic!("zeros become smaller");
        };
        assert!(bytes.len() < 1024);
    }
}

#[test]
fn what_does_not_is_given_up_and_that_is_noted() {
    for (setting, flag) in
        [("lz4", BlobFlags::GAVE_UP_LZ4), ("zstd", BlobFlags::GAVE_UP_ZSTD), ("zstd:19", BlobFlags::GAVE_UP_ZSTD)]
    {
        for content in [noise(131_072), noise(4096), text(512), text(1), Vec::new()] {
            let wanted = compression(setting);
            assert_eq!(encode(wanted, &content), Encoded::Plain { gave_up: flag });
            assert!(is_as_asked(wanted, BlobEncoding::PLAIN, flag));
            assert!(!is_as_asked(wanted, BlobEncoding::PLAIN, BlobFlags::NONE));
        }
    }
    assert_eq!(encode(Compression::NONE, &text(4096)), Encoded::Plain { gave_up: BlobFlags::NONE });
    // LZ4 gave up; Zstandard, which does more, was not tried.
    assert!(!is_as_asked(compression("zstd"), BlobEncoding::PLAIN, BlobFlags::GAVE_UP_LZ4));
}

#[test]
fn what_was_given_up_or_refused_before_changes_nothing() {
    let expected = ["zstd:1", "zstd:9", "lz4", "zstd"].map(|setting| encode(compression(setting), &text(700)));
    let Encoded::Stored { encoding, bytes } = &expected[0] else { panic!("smaller") };
    for (setting, expected) in ["zstd:1", "zstd:9", "lz4", "zstd"].iter().zip(&expected) {
        for other in ["zstd:1", "zstd:3", "zstd:9", "zstd:19", "lz4"] {
            assert!(matches!(encode(compression(other), &noise(131_072)), Encoded::Plain { .. }));
            assert!(decode(*encoding, &bytes[..bytes.len() - 3], &mut [0; 700]).is_err());
            assert_eq!(encode(compression(setting), &text(700)), *expected, "{setting} after {other}");
            let mut out = [0; 700];
            decode(*encoding, bytes, &mut out).expect("a good record after a bad one");
        }
    }
}

#[test]
fn what_is_stored_otherwise_is_told_apart() {
    for (setting, right) in [("none", BlobEncoding::PLAIN), ("lz4", BlobEncoding::LZ4), ("zstd:7", BlobEncoding::ZSTD)]
    {
        for encoding in [BlobEncoding::PLAIN, BlobEncoding::LZ4, BlobEncoding::ZSTD, BlobEncoding(77)] {
            assert_eq!(is_as_asked(compression(setting), encoding, BlobFlags::SHARED), encoding == right);
        }
    }
}

#[test]
fn an_encoding_that_is_not_known_is_refused_by_name() {
    assert!((0..3).all(|code| BlobEncoding(code).is_known()));
    for code in 3..=255 {
        let mut out = [0; 16];
        assert_eq!(decode(BlobEncoding(code), &[1, 2, 3], &mut out), Err(PluginError::UnknownEncoding { code }));
        // Those that are encrypted, or that users' plugins had, are undone by others.
        let encoding = BlobEncoding(code);
        assert!(!encoding.is_known() || encoding.is_encrypted() || encoding.is_plugged());
    }
}

#[test]
fn bytes_that_decode_to_another_length_are_refused() {
    for setting in ["lz4", "zstd"] {
        let Encoded::Stored { encoding, bytes } = encode(compression(setting), &text(5000)) else { panic!("smaller") };
        for length in [0, 4999, 5001, 10_000] {
            assert!(decode(encoding, &bytes, &mut vec![0; length]).is_err(), "{setting} {length}");
        }
        for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            assert!(decode(encoding, &bytes[..cut], &mut vec![0; 5000]).is_err(), "{setting} cut at {cut}");
        }
    }
    assert!(decode(BlobEncoding::PLAIN, &[1, 2], &mut [0; 3]).is_err());
}

proptest! {
    /// P-11: whatever the bytes are, decoding answers or refuses.
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), length in 0usize..9000, at in any::<u16>(), code in 0u8..4) {
        let mut out = vec![0; length];
        drop(decode(BlobEncoding(code), &bytes, &mut out));
        for setting in ["lz4", "zstd"] {
            let Encoded::Stored { encoding, bytes: mut damaged } = encode(compression(setting), &text(8192)) else { panic!("smaller") };
            for (index, byte) in bytes.iter().enumerate() {
                let place = (usize::from(at) + index * 7) % damaged.len();
                damaged[place] = *byte;
            }
            drop(decode(encoding, &damaged, &mut [0; 8192]));
        }
    }

    #[test]
    fn any_content_comes_back(seed in any::<u64>(), length in 0usize..20_000, period in 1usize..5000, level in 1u8..10) {
        let mut state = seed;
        let unit: Vec<u8> = (0..period).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 57) as u8
        }).collect();
        let content: Vec<u8> = unit.iter().copied().cycle().take(length).collect();
        check_round_trip(Compression::LZ4, &content);
        check_round_trip(compression(&format!("zstd:{level}")), &content);
    }
}
