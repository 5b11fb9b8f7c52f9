//! Entries come back as they were (P-250); every changed bit is noticed.

use super::*;

fn sample(state: MachineState) -> MachineEntry {
    MachineEntry { machine: [2; 16], public_key: [3; 32], host: "shed".into(), state, registered: 1_700_000_000 }
}

#[test]
fn entries_come_back_as_they_were() {
    for state in [MachineState::Waiting, MachineState::Admitted, MachineState::Refused] {
        let bytes = sample(state).encode();
        assert_eq!(bytes.len(), MachineEntry::SIZE);
        assert_eq!(MachineEntry::decode(&bytes).expect("it was encoded"), sample(state));
    }
    for admission in [Admission::Open, Admission::Ask] {
        let bytes = PoolAdmission(admission).encode();
        assert_eq!(bytes.len(), PoolAdmission::SIZE);
        assert_eq!(PoolAdmission::decode(&bytes).expect("it was encoded"), PoolAdmission(admission));
    }
}

fn changed(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..bytes.len()).map(|at| {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        changed
    })
}

#[test]
fn what_is_not_whole_is_refused() {
    let bytes = sample(MachineState::Admitted).encode();
    assert!(changed(&bytes).all(|bytes| MachineEntry::decode(&bytes).is_err()));
    assert!(MachineEntry::decode(&bytes[1..]).is_err() && MachineEntry::decode(&[]).is_err());
    let bytes = PoolAdmission(Admission::Ask).encode();
    assert!(changed(&bytes).all(|bytes| PoolAdmission::decode(&bytes).is_err()));
}

#[test]
fn a_state_without_a_meaning_and_the_id_of_the_pool_are_refused() {
    let mut bytes = sample(MachineState::Admitted).encode();
    bytes[9] = 4;
    bytes.truncate(MachineEntry::SIZE - 4);
    crate::wire::seal(&mut bytes, 0, MachineEntry::SIZE);
    assert!(MachineEntry::decode(&bytes).is_err());
    let mut bytes = sample(MachineState::Admitted).encode();
    bytes[12..28].fill(0);
    bytes.truncate(MachineEntry::SIZE - 4);
    crate::wire::seal(&mut bytes, 0, MachineEntry::SIZE);
    assert!(MachineEntry::decode(&bytes).is_err());
}
