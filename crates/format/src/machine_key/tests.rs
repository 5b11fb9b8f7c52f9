//! A key comes back as it was, or not at all (P-251).

use super::*;

#[test]
fn a_key_comes_back_as_it_was_or_not_at_all() {
    let key = MachineKeyFile { private_key: [9; 32] };
    let bytes = key.encode();
    assert_eq!(bytes.len(), MachineKeyFile::SIZE);
    assert_eq!(MachineKeyFile::decode(&bytes).expect("it was encoded"), key);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(MachineKeyFile::decode(&changed).is_err(), "byte {at}");
    }
    assert!(MachineKeyFile::decode(&bytes[..47]).is_err());
    assert!(MachineKeyFile::decode(&[&bytes[..], &[0]].concat()).is_err());
    assert!(!format!("{key:?}").contains('9'), "it is not shown");
}
