//! Keys are those of RFC 8032, and are not shown (P-251).

use super::*;

fn bytes(hex: &str) -> [u8; 32] {
    let digits: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("two digits")).collect();
    digits.try_into().expect("32 bytes")
}

#[test]
fn a_public_key_is_that_of_the_standard() {
    // The first vector of RFC 8032, 7.1.
    let private = bytes("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
    let public = bytes("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    let key = MachineKey::of(private).expect("any 32 bytes are a key");
    assert_eq!(key.public(), PublicKey(public));
    assert_eq!(PublicKey::of_told(&key.public().told()), Some(PublicKey(public)));
    assert_eq!(PublicKey::of_told(&[0; 44]), None);
}

#[test]
fn keys_differ_and_are_told_by_their_fingerprints() {
    let (one, other) = (MachineKey::new().expect("random bytes"), MachineKey::new().expect("random bytes"));
    assert_ne!(one.public(), other.public());
    assert_ne!(one.public().fingerprint(), other.public().fingerprint());
    assert_eq!(one.public().fingerprint().len(), 39);
    let key = MachineKey::of([0xab; 32]).expect("any 32 bytes are a key");
    assert!(!format!("{key:?}").contains("abab") && !format!("{key:?}").contains("171"));
}
