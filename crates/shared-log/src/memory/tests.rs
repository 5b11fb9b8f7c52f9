//! What every log promises, of the one in memory.

use super::*;

#[test]
fn a_number_is_given_once() {
    let log = MemoryLog::new();
    let other = log.another();
    assert_eq!(log.put(1, b"a"), Ok(Put::Mine));
    assert_eq!(other.put(1, b"a"), Ok(Put::Taken), "equal bytes of somebody else are not mine");
    assert_eq!(log.put(1, b"a"), Ok(Put::Mine), "asked again, it is still mine");
    assert_eq!(other.put(2, b"b"), Ok(Put::Mine));
    assert_eq!(log.bounds(), Ok(Bounds { first: 1, next: 3 }));
    assert!(log.put(5, b"c").is_err(), "no gap");
}

#[test]
fn what_is_trimmed_stays_taken() {
    let log = MemoryLog::new();
    for sequence in 1..=4 {
        assert_eq!(log.put(sequence, &[sequence as u8]), Ok(Put::Mine));
    }
    log.trim(9).expect("the log is there");
    assert_eq!(log.bounds(), Ok(Bounds { first: 4, next: 5 }), "the last record stays");
    assert_eq!(log.another().put(2, b"late"), Ok(Put::Taken));
    assert_eq!(log.read(2, 100), Err(Error::Trimmed { asked: 2, first: 4 }));
}

#[test]
fn a_lost_answer_is_settled_by_asking_again() {
    let log = MemoryLog::new();
    log.lose_answers(1);
    assert!(log.put(1, b"a").is_err_and(|error| error.is_away()));
    assert_eq!(log.put(1, b"a"), Ok(Put::Mine));
}

#[test]
fn a_read_gives_at_least_one_record() {
    let log = MemoryLog::new();
    log.put(1, &[7; 100]).expect("it is free");
    log.put(2, &[8; 100]).expect("it is free");
    assert_eq!(log.read(1, 10).expect("they are there").len(), 1);
    assert_eq!(log.read(1, 200).expect("they are there").len(), 2);
}

#[test]
fn an_entry_is_replaced_only_by_who_knows_it() {
    let log = MemoryLog::new();
    assert_eq!(log.machines(), Ok(Vec::new()));
    assert_eq!(log.put_machine([1; 16], None, b"one"), Ok(Put::Mine));
    assert_eq!(log.put_machine([1; 16], None, b"one"), Ok(Put::Mine), "asked again, it is there");
    assert_eq!(log.another().put_machine([1; 16], None, b"other"), Ok(Put::Taken));
    assert_eq!(log.put_machine([1; 16], Some(b"one"), b"two"), Ok(Put::Mine));
    assert_eq!(log.put_machine([1; 16], Some(b"one"), b"three"), Ok(Put::Taken));
    assert_eq!(log.put_machine([2; 16], Some(b"one"), b"three"), Ok(Put::Taken), "there is none");
    assert_eq!(log.another().machines(), Ok(vec![([1; 16], b"two".to_vec())]));
}

#[test]
fn a_registry_is_bounded() {
    let log = MemoryLog::new();
    let id = |number: usize| (number as u128).to_be_bytes();
    for number in 0..MACHINES_MAX {
        assert_eq!(log.put_machine(id(number), None, b"one"), Ok(Put::Mine));
    }
    assert!(matches!(log.put_machine(id(MACHINES_MAX), None, b"one"), Err(Error::Refused { .. })));
    assert_eq!(log.put_machine(id(0), Some(b"one"), b"two"), Ok(Put::Mine), "who is there may change");
}
