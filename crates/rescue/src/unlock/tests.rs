use stere_crypt::seal_record;
use stere_format::Timestamp;
use stere_plugin::Encoded;
use stere_policy::Compression;
use zeroize::Zeroizing;

use super::*;

const PLACE: Place = Place { inode: 7, offset: 131_072, logical_bytes: 5000, encoding: BlobEncoding::XAES.0 };

fn key(number: u16) -> DataKey {
    DataKey::new(number, Zeroizing::new([number as u8; 32]))
}

fn sealed(place: &Place, content: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    seal_record(&key(3), &[9; 24], place, content, &mut stored);
    stored
}

/// P-40: what does not authenticate is lost, never content.
#[test]
fn a_record_opens_at_its_place_with_its_key_only() {
    let content = vec![5; 5000];
    let stored = sealed(&PLACE, &content);
    let unlocked = Unlocked([(3, key(3))].into());
    assert_eq!(unlocked.content(&PLACE, stored.clone()), Some(content));
    for place in [Place { inode: 8, ..PLACE }, Place { offset: 0, ..PLACE }, Place { logical_bytes: 4999, ..PLACE }] {
        assert_eq!(unlocked.content(&place, stored.clone()), None, "{place:?}");
    }
    let mut changed = stored.clone();
    changed[100] ^= 1;
    assert_eq!(unlocked.content(&PLACE, changed), None);
    assert_eq!(Unlocked::default().content(&PLACE, stored.clone()), None, "without the key");
    assert_eq!(Unlocked([(4, key(4))].into()).content(&PLACE, stored.clone()), None, "with another key");
    for length in 0..stored.len() {
        assert_eq!(unlocked.content(&PLACE, stored[..length].to_vec()), None, "cut at {length}");
    }
}

#[test]
fn what_was_compressed_before_is_decompressed_behind() {
    let content = b"again and again ".repeat(400);
    let wanted = Compression::from_text("zstd").unwrap();
    let Encoded::Stored { encoding, bytes } = stere_plugin::encode(wanted, &content) else { panic!("it compresses") };
    let place = Place { logical_bytes: content.len() as u32, encoding: encoding.encrypted().0, ..PLACE };
    let unlocked = Unlocked([(3, key(3))].into());
    assert_eq!(unlocked.content(&place, sealed(&place, &bytes)), Some(content));
    let plugged = Place { encoding: encoding.plugged().encrypted().0, ..place };
    assert_eq!(unlocked.content(&plugged, sealed(&plugged, &bytes)), None, "plugins are not run");
}

#[test]
fn names_and_targets_open_where_they_belong() {
    let unlocked = Unlocked([(3, key(3))].into());
    let sealed = key(3).seal_name(20, b"letters");
    assert_eq!(unlocked.name(3, 20, &sealed), Opened::Clear(b"letters".to_vec()));
    assert_eq!(unlocked.name(3, 21, &sealed), Opened::False);
    assert_eq!(unlocked.name(2, 20, &sealed), Opened::Locked);
    let target = |flags, symlink_target| {
        let mut value = InodeValue::new(0o120_777, 0, 0, 1, Timestamp::default());
        (value.flags, value.symlink_target) = (flags, symlink_target);
        value
    };
    let sealed = key(3).seal_target(30, b"../there");
    assert_eq!(unlocked.target(30, &target(ENCRYPTED, sealed.clone())), Opened::Clear(b"../there".to_vec()));
    assert_eq!(unlocked.target(31, &target(ENCRYPTED, sealed.clone())), Opened::False);
    assert_eq!(Unlocked::default().target(30, &target(ENCRYPTED, sealed)), Opened::Locked);
    assert_eq!(unlocked.target(30, &target(ENCRYPTED, vec![3])), Opened::False);
    assert_eq!(unlocked.target(30, &target(0, b"plain".to_vec())), Opened::Clear(b"plain".to_vec()));
}
