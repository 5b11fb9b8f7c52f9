use super::*;

/// Replies as servers give them, without their lengths.
fn replies() -> Vec<Vec<u8>> {
    let named = |kind: u8, body: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        request(&mut bytes, kind, 7, body);
        bytes.split_off(4)
    };
    let attributes = |to: &mut Vec<u8>| {
        to.extend(0x8000_000fu32.to_be_bytes());
        to.extend(5_000_000_000u64.to_be_bytes());
        to.extend([0; 8]);
        to.extend(0o100_644u32.to_be_bytes());
        to.extend([0; 8]);
        to.extend(1u32.to_be_bytes());
        put_text(to, b"kind");
        put_text(to, b"odd");
    };
    vec![
        named(2, &|to| {
            put_text(to, b"fsync@openssh.com");
            put_text(to, b"1");
        }),
        named(101, &|to| {
            to.extend(4u32.to_be_bytes());
            put_text(to, b"Failure");
            put_text(to, b"en");
        }),
        named(102, &|to| put_text(to, &[0, 0, 0, 1])),
        named(103, &|to| put_text(to, b"bytes")),
        named(104, &|to| {
            to.extend(1u32.to_be_bytes());
            put_text(to, b"name");
            put_text(to, b"-rw-r--r-- name");
            attributes(to);
        }),
        named(105, &attributes),
        named(201, &|to| to.extend([1, 2, 3])),
    ]
}

#[test]
fn replies_are_read() {
    let file = Attributes { length: Some(5_000_000_000), mode: Some(0o100_644) };
    let wanted = [
        Reply::Version(7, vec![("fsync@openssh.com".into(), "1".into())]),
        Reply::Status { code: 4, words: "Failure".into() },
        Reply::Handle(&[0, 0, 0, 1]),
        Reply::Data(b"bytes"),
        Reply::Names(vec![(b"name".to_vec(), file)]),
        Reply::Attributes(file),
        Reply::Extended(&[1, 2, 3]),
    ];
    for (bytes, wanted) in replies().iter().zip(wanted) {
        let number = if matches!(wanted, Reply::Version(..)) { 0 } else { 7 };
        assert_eq!(decode(bytes), Ok((number, wanted)));
    }
    assert!(file.is_file() && !file.is_directory());
    assert!(Attributes { length: None, mode: Some(0o040_755) }.is_directory());
    assert_eq!(decode(&[101, 0, 0, 0, 7, 0, 0, 0, 0]), Ok((7, Reply::Status { code: 0, words: String::new() })));
}

/// P-150: whatever a server sends is read or refused.
#[test]
fn harmed_replies_harm_nobody() {
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for right in replies() {
        for end in 0..right.len() {
            drop(decode(&right[..end]));
        }
        for _ in 0..20_000 {
            let mut bytes = right.clone();
            for _ in 0..=next(4) {
                let at = next(bytes.len());
                bytes[at] = next(256) as u8;
            }
            drop(decode(&bytes));
        }
    }
    let many = [104, 0, 0, 0, 7, 255, 255, 255, 255];
    assert_eq!(decode(&many), Err(PacketError::Count(u32::MAX)));
    assert_eq!(decode(&[99, 0, 0, 0, 7]), Err(PacketError::Type(99)));
    assert_eq!(decode(&[]), Err(PacketError::Short));
}
