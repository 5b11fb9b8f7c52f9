use super::*;
use proptest::prelude::*;

/// Bytes as proto.md writes them down.
#[test]
fn requests_are_as_the_protocol_has_them() {
    let bytes = request(Command::Write, 0x0102_0304_0506_0708, 0x1000, 0x200);
    let expected = [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2, 0];
    assert_eq!(bytes, expected);
    let asked = go("ab");
    assert_eq!(&asked[..8], b"IHAVEOPT");
    assert_eq!(&asked[8..], [0, 0, 0, 7, 0, 0, 0, 10, 0, 0, 0, 2, b'a', b'b', 0, 1, 0, 3]);
}

#[test]
fn greetings_are_told_apart() {
    let greeting = |flags: u16| {
        let bytes = [&b"NBDMAGICIHAVEOPT"[..], &flags.to_be_bytes()].concat();
        <[u8; GREETING_BYTES]>::try_from(bytes).unwrap()
    };
    assert_eq!(answer_greeting(&greeting(3)), Ok([0, 0, 0, 3]));
    assert_eq!(answer_greeting(&greeting(1)), Ok([0, 0, 0, 1]));
    assert!(answer_greeting(&greeting(2)).is_err());
    let mut ssh = [b' '; GREETING_BYTES];
    ssh[..8].copy_from_slice(b"SSH-2.0-");
    assert!(answer_greeting(&ssh).unwrap_err().to_string().contains("does not speak NBD"));
}

#[test]
fn replies_are_read_and_bounded() {
    let simple = [&0x6744_6698u32.to_be_bytes()[..], &5u32.to_be_bytes(), &9u64.to_be_bytes()].concat();
    assert_eq!(Reply::decode(&simple), Ok(Reply::Simple { error: 5, cookie: 9 }));
    let structured = |flags: u16, kind: u16, length: u32| {
        let magic = 0x668e_33efu32.to_be_bytes();
        let (flags, kind, cookie) = (flags.to_be_bytes(), kind.to_be_bytes(), 9u64.to_be_bytes());
        [&magic[..], &flags, &kind, &cookie, &length.to_be_bytes()].concat()
    };
    let data = Reply::Structured { is_last: true, kind: ChunkKind::Data, cookie: 9, length: 4104 };
    assert_eq!(Reply::decode(&structured(1, 1, 4104)), Ok(data));
    for (flags, kind, length) in
        [(0, 0, 0), (1, 0, 1), (1, 1, 8), (1, 2, 8), (1, 5, 16), (1, 0x8001, 3), (1, 0x8001, 1 << 30)]
    {
        assert!(Reply::decode(&structured(flags, kind, length)).is_err(), "{flags} {kind} {length}");
    }
    assert!(Reply::decode(&[0; 16]).is_err());
}

#[test]
fn bytes_belong_where_they_were_asked_for() {
    let at = |offset: u64| offset.to_be_bytes();
    assert_eq!(decode_place(&at(4096), 4096, 8192, 8192), Ok(0));
    assert_eq!(decode_place(&at(8192), 4096, 8192, 4096), Ok(4096));
    for (offset, length) in [(0, 4096), (4096, 8193), (12_288, 1), (u64::MAX, 1), (u64::MAX, usize::MAX)] {
        assert!(decode_place(&at(offset), 4096, 8192, length).is_err(), "{offset} {length}");
    }
}

#[test]
fn refusals_are_told_in_words() {
    let reply = OptionReply { kind: (1 << 31) + 6, length: 0 };
    assert_eq!(reply.refusal(b"gone\x1b[2J").as_deref(), Some("it has no such export (gone[2J)"));
    assert_eq!(OptionReply { kind: ACKNOWLEDGED, length: 0 }.refusal(b""), None);
}

#[test]
fn sizes_of_blocks_are_checked() {
    let told = |sizes: [u32; 3]| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        Information::decode(&[&3u16.to_be_bytes()[..], &sizes].concat())
    };
    assert!(told([1, 4096, 1 << 25]).is_ok());
    for sizes in [[0, 4096, 4096], [512, 1000, 4096], [4096, 4096, 512]] {
        assert!(told(sizes).is_err(), "{sizes:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        fuzz(&bytes);
    }

    /// Bytes that begin as they should get further.
    #[test]
    fn harmed_answers_are_answered_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 20..64), which in 0..3usize) {
        let starts: [&[u8]; 3] = [&OPTION_REPLY.to_be_bytes(), &SIMPLE_REPLY.to_be_bytes(), &STRUCTURED_REPLY.to_be_bytes()];
        bytes[..starts[which].len()].copy_from_slice(starts[which]);
        fuzz(&bytes);
    }
}
