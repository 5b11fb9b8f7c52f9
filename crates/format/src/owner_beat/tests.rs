//! Beats come back as they were; every changed bit is noticed.

use super::*;

fn sample() -> OwnerBeat {
    OwnerBeat {
        owner: [1; 16],
        sequence: 9,
        is_closed: false,
        machine: [2; 16],
        process: 77,
        epoch: 5,
        host: "shed".into(),
        address: "shed.lan:4711".into(),
        secret: [7; 32],
    }
}

#[test]
fn a_beat_comes_back_as_it_was() {
    for is_closed in [true, false] {
        let beat = OwnerBeat { is_closed, ..sample() };
        let bytes = beat.encode();
        assert_eq!(bytes.len(), OwnerBeat::SIZE);
        assert_eq!(OwnerBeat::decode(&bytes).expect("it was encoded"), beat);
    }
}

#[test]
fn what_is_not_whole_is_refused_and_secrets_are_not_shown() {
    let bytes = sample().encode();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(OwnerBeat::decode(&changed).is_err(), "byte {at}");
    }
    assert!(OwnerBeat::decode(&bytes[1..]).is_err() && OwnerBeat::decode(&[]).is_err());
    assert!(!format!("{:?}", sample()).contains('7'.to_string().repeat(2).as_str()));
}
