//! Machines register, wait, are admitted and refused (P-250).

use stere_shared_log::MemoryLog;

use super::*;

fn key(number: u8) -> MachineKey {
    MachineKey::of([number; 32]).unwrap()
}

fn registered(log: &MemoryLog, machine: u8, key_number: u8) -> MachineState {
    register_as(log, key(key_number), [machine; 16], "shed").unwrap().entry.state
}

#[test]
fn machines_are_admitted_at_once_where_the_pool_is_open_and_wait_where_it_asks() {
    let log = MemoryLog::new();
    assert_eq!(registered(&log, 1, 1), MachineState::Admitted);
    set_admission(&log, Admission::Ask).unwrap();
    assert_eq!(registered(&log, 1, 1), MachineState::Admitted, "who is in stays in");
    assert_eq!(registered(&log, 2, 2), MachineState::Waiting);
    assert_eq!(set_state(&log, "0202", MachineState::Admitted).unwrap().machine, [2; 16]);
    assert_eq!(registered(&log, 2, 2), MachineState::Admitted);
    assert_eq!(registered(&log, 2, 22), MachineState::Waiting, "another key is another machine");
    set_admission(&log, Admission::Open).unwrap();
    assert_eq!(registered(&log, 3, 3), MachineState::Admitted);
}

#[test]
fn who_was_refused_stays_so_until_admitted() {
    let log = MemoryLog::new();
    registered(&log, 1, 1);
    set_state(&log, &id_text(&[1; 16]), MachineState::Refused).unwrap();
    assert_eq!(registered(&log, 1, 1), MachineState::Refused);
    assert_eq!(registered(&log, 1, 9), MachineState::Refused, "a new key changes nothing");
    set_state(&log, "0101", MachineState::Admitted).unwrap();
    assert_eq!(registered(&log, 1, 9), MachineState::Admitted);
}

#[test]
fn a_machine_is_meant_by_id_or_host_and_never_guessed() {
    let log = MemoryLog::new();
    registered(&log, 1, 1);
    register_as(&log, key(2), [0x12; 16], "barn").unwrap();
    register_as(&log, key(3), [1, 1, 1, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9], "shed").unwrap();
    let machines = read(&log).unwrap();
    assert_eq!(find(&machines, "barn").unwrap().machine, [0x12; 16]);
    assert_eq!(find(&machines, "01010101-01").unwrap().machine, [1; 16]);
    for (word, why) in [("shed", "may be any of"), ("0101", "may be any of"), ("01", "no machine"), ("", "no machine")]
    {
        let said = find(&machines, word).unwrap_err().to_string();
        assert!(said.contains(why), "{word}: {said}");
    }
}

#[test]
fn damaged_entries_are_nobodys_and_a_damaged_setting_lets_nobody_in() {
    let log = MemoryLog::new();
    registered(&log, 1, 1);
    log.put_machine([2; 16], None, b"no entry").unwrap();
    log.put_machine([3; 16], None, &register_as(&log, key(1), [1; 16], "shed").unwrap().entry.encode()).unwrap();
    log.put_machine(PoolAdmission::MACHINE, None, b"no setting").unwrap();
    let machines = read(&log).unwrap();
    assert_eq!((machines.entries.len(), machines.admission), (1, Admission::Ask));
    assert_eq!(registered(&log, 2, 2), MachineState::Waiting, "it is written anew");
    let copied = MemoryLog::new();
    copy(&log, &copied).unwrap();
    assert_eq!(copied.machines(), log.machines());
}

#[test]
fn many_register_at_once() {
    let log = MemoryLog::new();
    std::thread::scope(|scope| {
        for number in 0..32_u8 {
            let log = log.another();
            scope.spawn(move || assert_eq!(registered(&log, 1 + number % 4, 1 + number % 4), MachineState::Admitted));
        }
    });
    assert_eq!(read(&log).unwrap().entries.len(), 4);
}
