//! Who is let in by what was read (P-253).

use std::sync::Arc;
use std::thread;

use super::*;

fn entry(number: u8, state: MachineState) -> MachineEntry {
    MachineEntry { machine: [number; 16], public_key: [number; 32], host: "shed".into(), state, registered: 0 }
}

type Source = Arc<Mutex<Option<Vec<MachineEntry>>>>;

fn members(source: &Source) -> Arc<Members> {
    let source = source.clone();
    Arc::new(Members::new(Box::new(move || source.lock().clone())))
}

#[test]
fn only_who_is_admitted_is_let_in_and_that_is_noticed_soon() {
    use MachineState::{Admitted, Refused, Waiting};
    let source: Source = Arc::new(Mutex::new(Some(vec![entry(1, Admitted), entry(2, Waiting), entry(3, Refused)])));
    let members = members(&source);
    let reading = members.clone();
    let thread = thread::spawn(move || reading.keep_reading(|| ()));
    let judge = |number: u8| members.judge(&PublicKey([number; 32]));
    assert_eq!(judge(1), Ok([1; 16]));
    assert_eq!(
        (judge(2), judge(3), judge(4)),
        (Err(Refusal::Waiting), Err(Refusal::NotAdmitted), Err(Refusal::Unknown))
    );
    *source.lock() = Some(vec![entry(1, Refused), entry(2, Admitted)]);
    assert_eq!(judge(2), Ok([2; 16]), "at once");
    assert_eq!(judge(1), Err(Refusal::NotAdmitted));
    assert!(members.is_out(&PublicKey([1; 32])) && !members.is_out(&PublicKey([2; 32])));
    // The engine is away: what was read last counts.
    *source.lock() = None;
    thread::sleep(BELIEVED + Duration::from_millis(300));
    assert_eq!((judge(2), judge(1)), (Ok([2; 16]), Err(Refusal::NotAdmitted)));
    members.end();
    thread.join().expect("no panic");
}

#[test]
fn nobody_is_let_in_before_anything_was_read_and_nobody_is_out() {
    let members = members(&Source::default());
    assert_eq!(members.judge(&PublicKey([1; 32])), Err(Refusal::Unknown));
    assert!(!members.is_out(&PublicKey([1; 32])));
}

#[test]
fn a_key_of_two_machines_is_refused_if_one_of_them_is() {
    let again = MachineEntry { machine: [9; 16], ..entry(1, MachineState::Refused) };
    let known = Known { entries: Some(vec![entry(1, MachineState::Admitted), again]), ..Known::default() };
    assert_eq!(known.judge(&PublicKey([1; 32])), Err(Refusal::NotAdmitted));
}
