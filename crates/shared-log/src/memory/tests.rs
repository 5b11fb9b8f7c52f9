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
