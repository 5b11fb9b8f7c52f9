//! Names and labels that come from media (P-183).

use super::*;

/// P-183.
#[test]
fn names_that_would_lead_somewhere_are_not_read() {
    for good in ["tank", "a", "0.b_c-d", &"x".repeat(63)] {
        assert!(is_pool_name(good), "{good}");
    }
    for bad in [
        "",
        ".",
        "..",
        "../../victim",
        "a/b",
        "-rf",
        ".hidden",
        "a b",
        "a\nb",
        "a\0b",
        "\u{1b}[2J",
        "\u{e4}",
        &"x".repeat(64),
    ] {
        assert!(!is_pool_name(bad), "{bad}");
    }
    let layout = DeviceLayout::for_size(128 << 20, 1 << 20).expect("a device of this size is possible");
    let mut superblock = Superblock::first(PoolId([1; 16]), DeviceId([2; 16]), 0, layout);
    superblock.pool_name = "victims".into();
    let mut bytes = superblock.encode().expect("it is in order");
    let at = bytes.windows(7).position(|window| window == b"victims").expect("the name is there");
    for (name, is_read) in [("victim2", true), ("../../v", false), ("v\n\x1b[2Jx", false), ("v/../../", false)] {
        bytes[at..at + 7].copy_from_slice(&name.as_bytes()[..7]);
        bytes.truncate(Superblock::SIZE - 4);
        seal(&mut bytes, 0, Superblock::SIZE);
        assert_eq!(Superblock::decode(&bytes).is_ok(), is_read, "{name}");
    }
    superblock.pool_name = "../../victim".into();
    assert!(superblock.encode().is_err(), "nor written");
}

#[test]
fn control_characters_of_labels_are_not_read_and_not_written() {
    let mut text = Vec::new();
    text.put_text("a\nb\u{1b}", 64);
    assert_eq!(text, b"\x04a?b?");
    assert!(Reader::new("test", b"\x02a\n").text("label").is_err());
    assert_eq!(Reader::new("test", "\x03a\u{e4}".as_bytes()).text("label").as_deref(), Ok("a\u{e4}"));
}
