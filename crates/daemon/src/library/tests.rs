//! Limits of sessions and threads (P-90), and texts that are cut.

use super::perform::cut;
use super::{SESSIONS_MAX, SESSIONS_OF_USER_MAX, Shares, THREADS_MAX, THREADS_OF_USER_MAX};

#[test]
fn a_user_gets_its_part_and_all_together_what_there_is() {
    let mut shares = Shares::default();
    let mut sessions = 0;
    for uid in 0..10 {
        let granted = (0..100).filter(|_| shares.take_session(uid)).count();
        assert_eq!(granted, SESSIONS_OF_USER_MAX.min(SESSIONS_MAX - sessions));
        sessions += granted;
    }
    assert_eq!(sessions, SESSIONS_MAX);
    let threads: usize = (0..10).map(|uid| (0..100).filter(|_| shares.take_thread(uid)).count()).sum();
    assert_eq!(threads, THREADS_MAX);
    shares.give_back(0, THREADS_OF_USER_MAX);
    assert!(shares.take_session(9), "what was given back is there for others");
    assert!(shares.take_thread(9));
}

#[test]
#[should_panic(expected = "gives back what was not taken")]
fn nothing_is_given_back_twice() {
    let mut shares = Shares::default();
    assert!(shares.take_session(7));
    shares.give_back(7, 0);
    shares.give_back(7, 0);
}

#[test]
fn texts_are_cut_between_characters() {
    assert_eq!((cut("größe", 3), cut("größe", 4), cut("größe", 99), cut("ö", 1)), ("gr", "grö", "größe", ""));
}
