//! INIT with kernels old, new and strange.

use super::*;

fn message(major: u32, minor: u32, flags: u64) -> Vec<u8> {
    let header = InHeader { opcode: opcode::INIT, unique: 2, ..InHeader::default() };
    let input = InitIn {
        major,
        minor,
        max_readahead: 131_072,
        flags: u32::try_from(flags & 0xffff_ffff).unwrap(),
        flags2: u32::try_from(flags >> 32).unwrap(),
        ..InitIn::default()
    };
    [header.as_bytes(), input.as_bytes()].concat()
}

fn agreed(message: &[u8], options: &InitOptions, io_uring: bool) -> (InitOut, Negotiated) {
    match negotiate(message, options, io_uring).unwrap() {
        Reaction::Agreed { unique: 2, answer, negotiated } => (answer, negotiated),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_what_is_offered_and_wanted_is_switched_on() {
    let granted = RECOMMENDED | init::INIT_EXT | init::ABORT_ERROR | init::OVER_IO_URING;
    let offered = granted | init::WRITEBACK_CACHE | init::POSIX_LOCKS;
    let (answer, negotiated) = agreed(&message(7, 45, offered), &InitOptions::default(), true);
    assert_eq!(negotiated.flags, granted);
    assert_eq!(negotiated.transport, Transport::IoUring);
    assert_eq!((answer.max_write, answer.max_pages, answer.time_gran), (1 << 20, 256, 1));
    assert_eq!((answer.max_background, answer.max_readahead), (64, 131_072));
    let flags = u64::from(answer.flags) | u64::from(answer.flags2) << 32;
    assert_eq!(flags, negotiated.flags);
}

#[test]
fn io_uring_needs_both_sides() {
    let with = message(7, 45, init::INIT_EXT | init::OVER_IO_URING);
    assert_eq!(agreed(&with, &InitOptions::default(), false).1.transport, Transport::Device);
    let without = message(7, 45, init::INIT_EXT);
    assert_eq!(agreed(&without, &InitOptions::default(), true).1.transport, Transport::Device);
    // Asking for the flag by hand does not promise rings that were not set up.
    let options = InitOptions { flags: init::OVER_IO_URING, ..InitOptions::default() };
    assert_eq!(agreed(&with, &options, false).1.flags & init::OVER_IO_URING, 0);
}

#[test]
fn kernels_without_flags2_send_a_short_structure() {
    let short = &message(7, 31, RECOMMENDED & 0x3fff_ffff)[..56];
    let (answer, negotiated) = agreed(short, &InitOptions::default(), true);
    assert_eq!((answer.flags2, negotiated.kernel_minor), (0, 31));
    assert_eq!(negotiated.flags & init::HANDLE_KILLPRIV_V2, init::HANDLE_KILLPRIV_V2);
}

#[test]
fn versions_are_settled() {
    let options = InitOptions::default();
    let newer = negotiate(&message(8, 0, 0), &options, true).unwrap();
    assert!(matches!(newer, Reaction::AskAgain { unique: 2, answer: InitOut { major: 7, .. } }));
    for (major, minor) in [(6, 99), (7, 30)] {
        let error = negotiate(&message(major, minor, 0), &options, true).unwrap_err();
        assert!(matches!(error, Error::ProtocolVersion { .. }), "{error}");
    }
}

#[test]
fn broken_messages_are_errors() {
    let whole = message(7, 45, init::INIT_EXT);
    for length in 0..whole.len() {
        assert!(negotiate(&whole[..length], &InitOptions::default(), true).is_err(), "{length}");
    }
    let mut other = whole;
    other[4] = 1;
    assert!(matches!(negotiate(&other, &InitOptions::default(), true), Err(Error::Handshake(_))));
}

#[test]
fn options_are_checked() {
    for bytes in [0, 4095, 5000, 1 << 30] {
        let options = InitOptions { max_write_bytes: bytes, ..InitOptions::default() };
        assert!(matches!(options.validate(), Err(Error::Option { option: "max_write_bytes", .. })));
    }
    assert!(InitOptions::default().validate().is_ok());
}
