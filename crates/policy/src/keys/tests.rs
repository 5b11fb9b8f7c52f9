//! P-203: the table against what is recognised.

use super::*;
use crate::attribute::{Name, parse_name};
use crate::error::PolicyError;

#[test]
fn every_key_is_recognised_and_every_recognised_key_is_in_the_table() {
    for key in policy_keys() {
        let recognised = parse_name(format!("user.stere.{}", key.word).as_bytes());
        assert!(matches!(recognised, Some(Ok(name)) if !matches!(name, Name::Computed(_))), "{key:?}");
        let locked = parse_name(format!("trusted.stere.{}", key.word).as_bytes());
        assert_eq!(matches!(locked, Some(Ok(_))), key.is_lockable, "{key:?}");
        assert!(!key.expected.is_empty() && policy_key(key.word) == Some(key));
    }
    let words: Vec<_> = policy_keys().map(|key| key.word).collect();
    let known = Setting::ALL.into_iter().map(Setting::word).chain(List::ALL.into_iter().map(List::word));
    for word in known.chain(ResidencySetting::ALL.into_iter().map(ResidencySetting::word)).chain(["retain", "rules"]) {
        assert_eq!(words.iter().filter(|one| **one == word).count(), 1, "{word}");
    }
    // Whatever looks like a key and is in no list is none.
    for word in ["state", "effective.copies", "source.copies", "chain", "compression", ""] {
        assert_eq!(policy_key(word), None, "{word}");
    }
}

#[test]
fn messages_list_every_key() {
    let unknown = PolicyError::UnknownKey("x".into()).to_string();
    let computed = PolicyError::Computed("state").to_string();
    let unlockable = PolicyError::NotLockable("x".into()).to_string();
    for key in policy_keys() {
        for message in [&unknown, &computed] {
            assert!(message.split([' ', ',']).any(|word| word == key.word), "{message} lacks {}", key.word);
        }
        assert_eq!(unlockable.split([' ', ',']).any(|word| word == key.word), key.is_lockable, "{unlockable}");
    }
}
