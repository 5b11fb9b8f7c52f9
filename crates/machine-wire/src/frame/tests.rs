//! Frames (P-237): what is decoded is within bounds and encodes to the same bytes; the images in `golden/` never change.

use proptest::prelude::*;

use super::*;
use crate::{Purpose, VERSION, WINDOW_BYTES};

const MESSAGE: &[u8; 40] = b"a header of a kernel's request: 40 bytes";

/// One of each kind, for the golden image and as seeds.
fn samples() -> Vec<Frame<'static>> {
    vec![
        Frame::Greeting(Greeting { version: VERSION, nonce: [1; 32] }),
        Frame::Challenge(Challenge { version: VERSION, epoch: 2, nonce: [3; 32] }),
        Frame::Hello(Hello {
            pool: [4; 16],
            machine: [5; 16],
            session: [6; 16],
            epoch: 2,
            kernel_minor: 45,
            purpose: Purpose::Mount,
            kernel_flags: 1 << 41,
            proof: [7; 32],
        }),
        Frame::Welcome(Welcome { is_resumed: true, proof: [8; 32] }),
        Frame::Refused(Refusal::Proof),
        Frame::Request {
            number: 9,
            acknowledged: 8,
            is_repeated: true,
            takes_map: true,
            has_keys: true,
            message: MESSAGE,
        },
        Frame::Reply {
            number: 9,
            errno: 0,
            mark: 10,
            place: 4096,
            is_map: true,
            is_leased: false,
            is_uncommitted: false,
            bytes: b"answer",
        },
        Frame::Notify(Notice::Inode { node: 11, offset: -1, length: 0, settled: 16 }),
        Frame::Notify(Notice::Entry { parent: 12, name: b"name".to_vec() }),
        Frame::Definite { mark: 13 },
        Frame::Hold { node: 14, count: 15 },
        Frame::Settled,
        Frame::Ping,
        Frame::Pong,
        Frame::Bye,
        Frame::Refused(Refusal::Waiting),
        Frame::Refused(Refusal::NotAdmitted),
        Frame::Refused(Refusal::Unknown),
        Frame::Hello(Hello {
            pool: [4; 16],
            machine: [5; 16],
            session: [6; 16],
            epoch: 2,
            kernel_minor: 0,
            purpose: Purpose::Commands,
            kernel_flags: 0,
            proof: [7; 32],
        }),
        Frame::Piece { bytes: b"a piece" },
        Frame::Taken { bytes: 7 },
        Frame::Confirm { number: 17 },
        Frame::Confirmed { number: 18 },
        Frame::Reply {
            number: 19,
            errno: 0,
            mark: 20,
            place: 0,
            is_map: false,
            is_leased: true,
            is_uncommitted: false,
            bytes: b"entry",
        },
        Frame::Reply {
            number: 21,
            errno: 0,
            mark: 22,
            place: 1,
            is_map: false,
            is_leased: true,
            is_uncommitted: true,
            bytes: b"entry",
        },
        Frame::Redo { number: 21, inode: 23, seconds: -1, nanoseconds: 999_999_999, message: MESSAGE },
        Frame::Committed { mark: 22 },
        Frame::RecallWrites { node: 24, number: 25 },
        Frame::WritesReturned { node: 24, number: 25 },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_image_is_that_of_version_10() {
    let image: String = samples().iter().map(|frame| hex(&frame.encode()) + "\n").collect();
    assert_eq!(image, include_str!("../../golden/v10.hex"), "a released version's frames never change");
}

#[test]
fn each_kind_is_read_as_it_was_written() {
    for frame in samples() {
        let bytes = frame.encode();
        let (head, body) = bytes.split_first_chunk().expect("a head");
        let head = Head::decode(head).expect("a good head");
        assert_eq!(Frame::decode(head, body), Ok(frame.clone()));
        assert_eq!(head.is_of_greeting(), frame.kind() <= 5);
        let short = Frame::decode(head, &body[..body.len().saturating_sub(1)]);
        assert!(body.is_empty() || short.is_err(), "{frame:?} with a byte too few");
    }
}

#[test]
fn the_head_alone_refuses_what_is_too_long() {
    let head = |length: u32, kind: u8| {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4] = kind;
        Head::decode(&bytes)
    };
    assert_eq!(head(u32::MAX, 6), Err(FrameError::TooLong(u32::MAX as usize)));
    let longest = REQUEST_HEAD_BYTES + MESSAGE_BYTES_MAX;
    assert!(head(longest as u32, 6).is_ok() && head(longest as u32 + 1, 6).is_err());
    let longest = REPLY_HEAD_BYTES + ANSWER_BYTES_MAX;
    assert!(head(longest as u32, 7).is_ok() && head(longest as u32 + 1, 7).is_err());
    assert_eq!(
        (head(1, 13), head(0, 0), head(0, 24)),
        (Err(FrameError::TooLong(1)), Err(FrameError::Kind(0)), Err(FrameError::Kind(24)))
    );
}

#[test]
fn values_that_mean_nothing_are_refused() {
    let refuse = |frame: Frame<'_>| {
        let bytes = frame.encode();
        let (head, body) = bytes.split_first_chunk().expect("a head");
        assert!(Head::decode(head).and_then(|head| Frame::decode(head, body)).is_err(), "{frame:?}");
    };
    let reply = |errno, [is_map, is_leased, is_uncommitted]: [bool; 3], bytes| {
        refuse(Frame::Reply { number: 1, errno, mark: 0, place: 0, is_map, is_leased, is_uncommitted, bytes });
    };
    reply(ERRNO_END, [false, false, false], b"");
    reply(5, [false, false, false], b"x");
    reply(5, [false, true, false], b"");
    reply(5, [false, false, true], b"");
    reply(0, [true, true, false], b"x");
    reply(0, [true, false, true], b"x");
    refuse(Frame::Redo { number: 1, inode: 2, seconds: 0, nanoseconds: NANOSECONDS_END, message: MESSAGE });
    refuse(Frame::Redo { number: 1, inode: 2, seconds: 0, nanoseconds: 0, message: b"short" });
    refuse(Frame::Notify(Notice::Inode { node: 1, offset: 0, length: -1, settled: 0 }));
    refuse(Frame::Notify(Notice::Entry { parent: 1, name: b"a/b".to_vec() }));
    refuse(Frame::Notify(Notice::Entry { parent: 1, name: Vec::new() }));
    refuse(Frame::Notify(Notice::Entry { parent: 1, name: vec![b'n'; NAME_BYTES_MAX + 1] }));
    refuse(Frame::Request {
        number: 1,
        acknowledged: 1,
        is_repeated: false,
        takes_map: false,
        has_keys: false,
        message: b"short",
    });
    refuse(Frame::Piece { bytes: b"" });
    refuse(Frame::Piece { bytes: &vec![b'p'; PIECE_BYTES_MAX + 1] });
    refuse(Frame::Taken { bytes: 0 });
    refuse(Frame::Taken { bytes: WINDOW_BYTES + 1 });
}

#[test]
fn a_purpose_that_nobody_knows_is_refused() {
    const PURPOSE_AT: usize = HEAD_BYTES + 60;
    let mut bytes = samples()[2].encode();
    for (purpose, is_known) in [(0, true), (1, true), (2, false), (0x80, false)] {
        bytes[PURPOSE_AT] = purpose;
        let (head, body) = bytes.split_first_chunk().expect("a head");
        let frame = Frame::decode(Head::decode(head).expect("a good head"), body);
        assert_eq!(frame.is_ok(), is_known, "purpose {purpose}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_are_refused_or_encode_to_themselves(kind in 0_u8..20, body in prop::collection::vec(any::<u8>(), 0..160)) {
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&[kind, 0, 0, 0]);
        bytes.extend_from_slice(&body);
        fuzz(&bytes);
        fuzz(&body);
    }

    #[test]
    fn a_frame_with_one_byte_changed_is_refused_or_encodes_to_itself(which in 0_usize..21, at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = samples()[which].encode();
        let at = at.index(bytes.len());
        bytes[at] = to;
        fuzz(&bytes);
    }

    #[test]
    fn requests_and_replies_are_read_as_they_were_written(
        number in any::<u64>(), mark in any::<u64>(), place in any::<u64>(), is_repeated in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 40..4096),
    ) {
        let request = Frame::Request { number, acknowledged: mark, is_repeated, takes_map: !is_repeated, has_keys: is_repeated, message: &bytes };
        let reply = Frame::Reply { number, errno: 0, mark, place, is_map: false, is_leased: false, is_uncommitted: false, bytes: &bytes };
        for frame in [request, reply] {
            let encoded = frame.encode();
            let (head, body) = encoded.split_first_chunk().expect("a head");
            prop_assert_eq!(Frame::decode(Head::decode(head).expect("a good head"), body), Ok(frame));
        }
    }
}
