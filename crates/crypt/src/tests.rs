use proptest::prelude::*;
use stere_format::{EncryptionKey, WrappedKey, Wrapping};
use stere_policy::Encryption;
use zeroize::Zeroizing;

use super::*;

const CHEAP: PassphraseCost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 1 };
const PLACE: Place = Place { inode: 77, offset: 131_072, logical_bytes: 5000, encoding: 0x12 };

fn key(number: u16) -> DataKey {
    DataKey::new(number, Zeroizing::new([number as u8; 32]))
}

fn passphrase(text: &str) -> Secret {
    Secret::Passphrase(Zeroizing::new(text.as_bytes().to_vec()))
}

fn key_file(byte: u8) -> Secret {
    Secret::KeyFile(Zeroizing::new(vec![byte; 32]))
}

fn record(number: u16, name: &str, wrapped: Vec<WrappedKey>) -> EncryptionKey {
    EncryptionKey { number, name: name.into(), is_default: number == 1, made_seconds: 5, wrapped }
}

fn wrapped(key: &DataKey, secret: &Secret, seed: u8) -> WrappedKey {
    wrap(key, secret, CHEAP, &WrappingSeed { salt: [seed; 16], nonce: [seed + 1; 24] }).unwrap()
}

#[test]
fn a_record_opens_at_its_place_and_nowhere_else() {
    let ring = Keyring::new(Some([1; 16]));
    let content = b"a record of somebody's file".repeat(100);
    let mut stored = Vec::new();
    seal_record(&key(3), &ring.nonce().unwrap(), &PLACE, &content, &mut stored);
    assert_eq!((stored.len(), record_key(&stored)), (content.len() + RECORD_EXTRA_BYTES, Ok(3)));
    assert_eq!(open_record(&key(3), &PLACE, &mut stored.clone()).unwrap(), content);
    let elsewhere = [
        Place { inode: 78, ..PLACE },
        Place { offset: 0, ..PLACE },
        Place { logical_bytes: 5001, ..PLACE },
        Place { encoding: 0x11, ..PLACE },
    ];
    for place in elsewhere {
        assert_eq!(
            open_record(&key(3), &place, &mut stored.clone()),
            Err(CryptError::NotAuthentic("encrypted record")),
            "{place:?}"
        );
    }
    let other_bytes = DataKey::new(3, Zeroizing::new([9; 32]));
    assert!(open_record(&other_bytes, &PLACE, &mut stored.clone()).is_err());
    assert!(open_record(&key(4), &PLACE, &mut stored.clone()).is_err());
    for at in 0..stored.len() {
        let mut changed = stored.clone();
        changed[at] ^= 4;
        assert!(open_record(&key(3), &PLACE, &mut changed).is_err(), "a change at {at}");
    }
    for length in 0..stored.len() {
        assert!(open_record(&key(3), &PLACE, &mut stored[..length].to_vec()).is_err(), "cut at {length}");
    }
}

/// P-54: across mounts, and however many records there are.
#[test]
fn no_nonce_comes_twice() {
    let mut seen = std::collections::BTreeSet::new();
    for mount in 0..3 {
        let ring = Keyring::new(Some([mount; 16]));
        assert!((0..1000).all(|_| seen.insert(ring.nonce().unwrap())), "mount {mount}");
    }
    let without = Keyring::new(None);
    assert_eq!(without.nonce(), Err(CryptError::NoSalt));
    without.put(record(1, "a", vec![wrapped(&key(1), &key_file(1), 1)]));
    assert_eq!(without.unlock(key(1)), Err(CryptError::NoSalt));
}

#[test]
fn names_come_back_and_look_like_nothing() {
    let key = key(2);
    for length in [1, 2, 31, 32, 33, 200, 254, 255] {
        let name = vec![b'n'; length];
        let sealed = key.seal_name(9, &name);
        assert_eq!(sealed.len(), 16 + length.next_multiple_of(32).min(255));
        assert_eq!(key.seal_name(9, &name), sealed, "a name is looked up by its bytes");
        assert_ne!(key.seal_name(10, &name), sealed, "each directory has a key of its own");
        assert_eq!(key.open_name(9, &sealed).unwrap(), name);
        assert!(key.open_name(10, &sealed).is_err());
        assert!(!sealed.windows(length.min(4)).any(|window| window == &name[..length.min(4)]) || length < 4);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open_name(9, &changed).is_err());
        }
    }
    let target = b"../a/long/way".repeat(300);
    let sealed = key.seal_target(5, &target);
    assert_eq!(sealed.len(), target.len() + 18);
    assert_eq!(sealed[..2], [2, 0]);
    assert_eq!(key.open_target(5, &sealed[2..]).unwrap(), target);
    assert!(key.open_target(6, &sealed[2..]).is_err() && key.open_target(5, &[1; 15]).is_err());
}

#[test]
fn opaque_names_name_their_entry() {
    for sequence in [0, 16, u64::MAX] {
        assert_eq!(opaque_sequence(&opaque_name(sequence)), Some(sequence));
    }
    for other in [&b"locked-"[..], b"locked-1", b"locked-000000000000001G", b"Locked-0000000000000010", b"x"] {
        assert_eq!(opaque_sequence(other), None);
    }
}

#[test]
fn what_wraps_a_key_opens_it_and_nothing_else_does() {
    let data = key(4);
    let (first, second, file) = (passphrase("correct horse"), passphrase("battery staple"), key_file(7));
    let mut record = record(4, "family", vec![wrapped(&data, &first, 1), wrapped(&data, &file, 3)]);
    record.wrapped.push(wrapped(&data, &second, 5));
    for (secret, index) in [(&first, 0), (&file, 1), (&second, 2)] {
        let (opened, at) = unwrap(&record, secret).unwrap();
        assert_eq!((opened.bytes(), opened.number(), at), (data.bytes(), 4, index));
    }
    let wrong = |secret: &Secret| unwrap(&record, secret).map(|(key, _)| key.number()).unwrap_err();
    assert!(matches!(wrong(&passphrase("correct hors")), CryptError::WrongSecret { kind: "passphrase", .. }));
    assert!(matches!(wrong(&key_file(8)), CryptError::WrongSecret { kind: "key file", .. }));
    assert_eq!(wrong(&passphrase("")), CryptError::EmptyPassphrase);
    assert_eq!(wrong(&Secret::KeyFile(Zeroizing::new(vec![7; 31]))), CryptError::KeyFileTooShort);
    let only_file = EncryptionKey { wrapped: vec![record.wrapped[1].clone()], ..record.clone() };
    assert!(matches!(unwrap(&only_file, &first).unwrap_err(), CryptError::NoSuchWrapping { .. }));
    // Bound to the key's number and to what the wrapping says of itself.
    let renumbered = EncryptionKey { number: 5, ..record.clone() };
    assert!(unwrap(&renumbered, &file).is_err());
    let mut weakened = record.clone();
    weakened.wrapped[0].wrapping = Wrapping::Passphrase { memory_kib: 32, passes: 1, lanes: 1 };
    weakened.wrapped.truncate(1);
    assert!(unwrap(&weakened, &first).is_err());
    let mut rotten = record;
    rotten.wrapped[1].key[40] ^= 1;
    assert!(unwrap(&rotten, &file).is_err() && unwrap(&rotten, &first).is_ok());
}

#[test]
fn a_keyring_locks_in_two_steps() {
    let ring = Keyring::new(Some([3; 16]));
    assert!(!ring.has_keys() && ring.meant(Encryption::DEFAULT) == Err(CryptError::NoDefaultKey));
    assert_eq!(ring.meant(Encryption::NO), Ok(None));
    ring.put(record(1, "a", vec![wrapped(&key(1), &key_file(1), 1)]));
    ring.put(record(2, "b", vec![wrapped(&key(2), &key_file(1), 1)]));
    assert!(ring.has_keys());
    assert_eq!(ring.meant(Encryption::DEFAULT), Ok(Some(1)));
    assert_eq!(ring.meant(Encryption::with_key(2).unwrap()), Ok(Some(2)));
    assert_eq!(ring.meant(Encryption::with_key(3).unwrap()), Err(CryptError::NoSuchKey(3)));
    assert_eq!(ring.open_key(1).unwrap_err(), CryptError::Locked("a".into()));
    ring.unlock(key(1)).unwrap();
    assert!(ring.open_key(1).is_ok() && ring.open_keys().len() == 1);
    ring.begin_lock(1);
    assert!(ring.open_key(1).is_err() && ring.closing_key(1).is_ok() && ring.open_keys().is_empty());
    ring.abandon_lock(1);
    assert!(ring.open_key(1).is_ok());
    ring.begin_lock(1);
    ring.finish_lock(1);
    assert!(ring.closing_key(1).is_err());
    ring.unlock(key(2)).unwrap();
    ring.put(record(2, "b", Vec::new()));
    assert_eq!(ring.open_key(2).unwrap_err(), CryptError::NoSuchKey(2));
    assert!(ring.unlock(key(2)).is_err() && ring.find("b").is_none() && ring.find("a").is_some());
    let states: Vec<KeyState> = ring.list().into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [KeyState::Locked, KeyState::Removed]);
}

proptest! {
    /// P-11: whatever the bytes are, they are refused.
    #[test]
    fn hostile_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), inode in any::<u64>()) {
        prop_assert!(open_record(&key(1), &PLACE, &mut bytes.clone()).is_err());
        prop_assert!(key(1).open_name(inode, &bytes).is_err() && key(1).open_target(inode, &bytes).is_err());
        let _any = opaque_sequence(&bytes);
        bytes.splice(0..0, [1, 0, 1, 0, 0, 0, 0, 0]);
        prop_assert!(open_record(&key(1), &PLACE, &mut bytes).is_err());
    }
}
