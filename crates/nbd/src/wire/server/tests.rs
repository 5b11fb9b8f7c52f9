use super::*;
use crate::wire::{Command, Information, OptionKind, OptionReply, Reply, answer_greeting, go, option, request};
use proptest::prelude::*;

#[test]
fn both_sides_understand_each_other() {
    let flags = answer_greeting(&greeting()).unwrap();
    assert_eq!(decode_client_flags(flags), Ok(true));
    let asked = go("disk");
    let head = OptionHead::decode(asked.first_chunk().unwrap()).unwrap();
    assert_eq!((head.kind, head.length), (7, asked.len() - OPTION_HEAD_BYTES));
    assert_eq!(Asked::decode(head.kind, &asked[OPTION_HEAD_BYTES..]), Ok(Asked::Go("disk".into())));
    let hello = option(OptionKind::Hello, &extension::encode_version());
    assert_eq!(
        Asked::decode(extension::HELLO, &hello[OPTION_HEAD_BYTES..]),
        Ok(Asked::Hello { version: extension::VERSION })
    );

    let facts = option_facts(7, 1 << 30, 8 << 20);
    let reply = OptionReply::decode(facts.first_chunk().unwrap(), OptionKind::Go).unwrap();
    let (first, second) = facts[20..].split_at(reply.length);
    assert_eq!(Information::decode(first), Ok(Information::Export { size_bytes: 1 << 30, flags: FLAGS }));
    let blocks = Information::BlockSize { minimum: 1, preferred: 4096, maximum: 8 << 20 };
    assert_eq!(Information::decode(&second[20..]), Ok(blocks));

    let sent = Request::decode(&request(Command::Fence, 9, 5, 0)).unwrap();
    assert_eq!(sent, Request { order: Order::Fence, flags: 0, cookie: 9, offset: 5, length: 0 });
    assert_eq!(Reply::decode(&simple_reply(28, 9)), Ok(Reply::Simple { error: 28, cookie: 9 }));
}

#[test]
fn what_a_client_says_is_bounded() {
    let head = |kind: u32, length: u32| {
        let bytes = [&OPTION.to_be_bytes()[..], &kind.to_be_bytes(), &length.to_be_bytes()].concat();
        <[u8; OPTION_HEAD_BYTES]>::try_from(bytes).unwrap()
    };
    assert!(OptionHead::decode(&head(7, 4096)).is_ok() && OptionHead::decode(&head(7, 1 << 20)).is_err());
    assert!(OptionHead::decode(&[0; OPTION_HEAD_BYTES]).is_err());
    assert!(decode_client_flags([0; 4]).is_err() && decode_client_flags([0xff; 4]).is_err());
    for data in [&[][..], &[0, 0, 0, 9, b'a', 0, 0], &[0, 0, 0, 1, b'a', 0, 1], &[0, 0, 0, 1, 0xff, 0, 0]] {
        assert!(Asked::decode(7, data).is_err(), "{data:?}");
    }
    assert_eq!(Asked::decode(8, &[]), Ok(Asked::Other));
    assert!(Request::decode(&[0; REQUEST_BYTES]).is_err());
    let at = |offset: u64, length: u32| Request { order: Order::Read, flags: 0, cookie: 0, offset, length };
    assert!(at(4096, 4096).is_within(8192) && !at(4096, 4097).is_within(8192) && !at(u64::MAX, 1).is_within(8192));
}

#[test]
fn errors_have_numbers_of_the_protocol() {
    let number = |error: i32| error_number(&std::io::Error::from_raw_os_error(error));
    assert_eq!([28, 122, 27, 5, 1, 107].map(number), [28, 28, 28, 5, 5, 5]);
    assert_eq!(error_number(&std::io::Error::other("x")), 5);
}

proptest! {
    #[test]
    fn harmed_bytes_are_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        kind in prop::sample::select(vec![1, 2, 3, 6, 7, 8, extension::HELLO, extension::PROVIDE]),
    ) {
        let _asked = Asked::decode(kind, &bytes);
        fuzz(&bytes);
        fuzz(&[&OPTION.to_be_bytes()[..], &bytes].concat());
        fuzz(&[&REQUEST.to_be_bytes()[..], &bytes].concat());
    }
}
