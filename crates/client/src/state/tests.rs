//! The table of requests: numbers, acknowledgements, and what answers change.

use std::sync::Mutex;

use fuse_wire::{RemoteAnswer, RemoteSession};

use super::*;
use crate::retained::Again;

type Answers = Arc<Mutex<Vec<i32>>>;

fn request(answers: &Answers, message: Vec<u8>) -> Request {
    let answers = Arc::clone(answers);
    let reply = Box::new(move |answer: RemoteAnswer<'_>| answers.lock().expect("no panic").push(answer.errno));
    RemoteSession::new(1, true, 1 << 20).request(message, reply).expect("a whole message")
}

fn write(node: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let size = u32::try_from(data.len()).expect("short");
    let head = [&0_u64.to_ne_bytes()[..], &offset.to_ne_bytes(), &size.to_ne_bytes(), &[0; 20]].concat();
    raw::message(opcode::WRITE, node, &[&head, data])
}

/// What is left of `write(5, offset, b"abc")`.
fn abc_at(offset: u64) -> Again {
    Again::Write { node: 5, offset, bytes: b"abc".to_vec(), mtime: None }
}

fn done(bytes: &[u8]) -> Answer {
    Answer { mark: 1, bytes: bytes.to_vec(), ..Answer::default() }
}

#[test]
fn a_request_waits_until_it_is_answered_and_is_repeated_to_another_owner_only() {
    let (mut state, answers) = (State::default(), Answers::default());
    let first = state.enter(Asker::Kernel(request(&answers, write(5, 0, b"abc"))));
    let second = state.enter(Asker::Kernel(request(&answers, write(5, 3, b"def"))));
    let sent = |state: &mut State, number, epoch| {
        state.goes_on(epoch, epoch == state.written_epoch);
        state.is_told(epoch);
        match state.prepare(number) {
            Ok(Some(one)) => (one.acknowledged, one.is_repeated),
            _ => panic!("it waits"),
        }
    };
    assert_eq!(sent(&mut state, second, 1), (first, false));
    assert_eq!(sent(&mut state, second, 1), (first, false), "the same owner knows what it has performed");
    assert_eq!(sent(&mut state, second, 2), (first, true));
    let answered = state.answered(0, first, done(&[3, 0, 0, 0, 0, 0, 0, 0])).expect("the kernel waits");
    answered.0.reply_raw(0, &[]);
    assert_eq!(sent(&mut state, second, 2).0, second);
    assert!(state.answered(0, first, done(&[])).is_none(), "answered once");
    assert_eq!(state.retained.again(), [abc_at(0)]);
    state.give_up().into_iter().for_each(|request| request.reply_error(libc::ENOTCONN));
    assert_eq!(*answers.lock().expect("no panic"), [0, libc::ENOTCONN]);
}

#[test]
fn a_sync_lets_go_of_what_was_answered_before_it_was_sent() {
    let (mut state, answers) = (State::default(), Answers::default());
    let write_and_answer = |state: &mut State, offset| {
        let number = state.enter(Asker::Kernel(request(&answers, write(5, offset, b"abc"))));
        let answer = Answer { place: offset, ..done(&[3, 0, 0, 0, 0, 0, 0, 0]) };
        state.answered(0, number, answer).expect("the kernel waits").0.reply_raw(0, &[]);
    };
    write_and_answer(&mut state, 0);
    let (tell, told) = mpsc::channel();
    let sync = state.enter(Asker::Own(raw::message(opcode::FSYNC, 5, &[&[0; 16]]), tell));
    write_and_answer(&mut state, 10);
    assert!(state.answered(0, sync, done(&[])).is_none());
    assert_eq!(told.recv().expect("it was answered").errno, 0);
    assert_eq!(state.retained.again(), [abc_at(10)]);
}

#[test]
fn forgets_are_counted_and_the_owner_hears_of_its_own_only() {
    let mut state = State::default();
    state.known.insert(7, References { all: 5, given: 2 });
    let forget =
        |state: &mut State, count: u64| state.forget(&raw::message(opcode::FORGET, 7, &[&count.to_ne_bytes()]));
    assert!(forget(&mut state, 2).is_empty(), "three are left, and the owner has counted two");
    assert_eq!(forget(&mut state, 2), [(7, 1)]);
    assert_eq!(state.known.get(&7), Some(&References { all: 1, given: 1 }));
    assert_eq!(forget(&mut state, 1), [(7, 1)]);
    assert!(state.known.is_empty());
    assert!(forget(&mut state, 1).is_empty());
}

/// LK_IN: handle, owner, start, end, kind, process, flags.
fn set_lock(node: u64, owner: u64, kind: i32) -> Vec<u8> {
    let numbers = [1, owner, 0, u64::MAX >> 1].map(u64::to_ne_bytes).concat();
    raw::message(opcode::SETLK, node, &[&numbers, &kind.to_ne_bytes(), &9_u32.to_ne_bytes(), &[0; 8]])
}

/// FLUSH_IN: handle, unused, owner of locks.
fn close(node: u64, owner: u64) -> Vec<u8> {
    raw::message(opcode::FLUSH, node, &[&1_u64.to_ne_bytes(), &[0; 8], &owner.to_ne_bytes()])
}

#[test]
fn a_close_is_told_where_something_is_locked() {
    let (mut state, answers) = (State::default(), Answers::default());
    let perform = |state: &mut State, message: Vec<u8>| {
        let number = state.enter(Asker::Kernel(request(&answers, message)));
        state.answered(0, number, done(&[])).expect("the kernel waits").0.reply_raw(0, &[]);
    };
    let is_mere = |state: &State, node| {
        let request = request(&Answers::default(), close(node, 77));
        let is_mere = state.is_mere_close(&request);
        request.reply_ok();
        is_mere
    };
    assert!(is_mere(&state, 5));
    perform(&mut state, set_lock(5, 77, libc::F_WRLCK));
    assert!(!is_mere(&state, 5) && is_mere(&state, 6), "its locks end with it");
    perform(&mut state, close(5, 77));
    assert!(is_mere(&state, 5));
}

fn is_mere(state: &State, message: Vec<u8>) -> bool {
    let request = request(&Answers::default(), message);
    let is_mere = state.is_mere_close(&request);
    request.reply_ok();
    is_mere
}

/// Whoever begins a program while another thread has something locked closes that file, too: this waits for nobody (P-281).
#[test]
fn a_close_by_who_has_nothing_locked_is_told_to_nobody() {
    let (mut state, answers) = (State::default(), Answers::default());
    let number = state.enter(Asker::Kernel(request(&answers, set_lock(5, 77, libc::F_WRLCK))));
    state.answered(0, number, done(&[])).expect("the kernel waits").0.reply_raw(0, &[]);
    assert!(is_mere(&state, close(5, 78)) && !is_mere(&state, close(5, 77)));
}

#[test]
fn a_close_without_an_owner_lets_the_kernel_go_and_is_told_later() {
    let (mut state, answers) = (State::default(), Answers::default());
    let number = state.enter(Asker::Kernel(request(&answers, set_lock(5, 77, libc::F_WRLCK))));
    state.answered(0, number, done(&[])).expect("the kernel waits").0.reply_raw(0, &[]);
    let late = state.enter(Asker::Kernel(request(&answers, close(5, 77))));
    let write = state.enter(Asker::Kernel(request(&answers, write(5, 0, b"abc"))));
    let closes = state.let_closes_go();
    assert_eq!(closes.len(), 1, "only a close");
    closes.into_iter().for_each(Request::reply_ok);
    assert!(!is_mere(&state, close(5, 77)), "the owner does not know yet");
    assert!(state.let_closes_go().is_empty());
    let Ok(Some(sent)) = state.prepare(late) else { panic!("it is still told") };
    assert_eq!(raw::closed_by(&sent.message), Some((5, 77)));
    assert!(state.answered(0, late, done(&[])).is_none(), "nobody waits for it");
    assert!(is_mere(&state, close(5, 77)));
    state.answered(0, write, done(&[3, 0, 0, 0, 0, 0, 0, 0])).expect("the kernel waits").0.reply_raw(0, &[]);
}

#[test]
fn a_lock_that_a_killed_process_may_have_is_taken_back() {
    let (mut state, answers) = (State::default(), Answers::default());
    let asked = request(&answers, set_lock(5, 77, libc::F_WRLCK));
    let number = state.end_lock(&asked, true).expect("it may have been granted");
    asked.reply_error(libc::EINTR);
    let Ok(Some(sent)) = state.prepare(number) else { panic!("it is told") };
    assert_eq!(raw::closed_by(&sent.message), Some((5, 77)));
    let held = state.enter(Asker::Kernel(request(&answers, set_lock(5, 77, libc::F_WRLCK))));
    state.answered(0, held, done(&[])).expect("the kernel waits").0.reply_raw(0, &[]);
    let another = request(&answers, set_lock(5, 77, libc::F_WRLCK));
    assert!(state.end_lock(&another, false).is_none(), "what the process has it keeps");
    another.reply_error(libc::EINTR);
}

/// P-278: what is on its way past the owner is kept until that has it, whatever is offered meanwhile.
#[test]
fn an_offer_enters_nothing() {
    let mut state = State::default();
    state.retained.keep(5, 0, b"on its way", crate::retained::UNENTERED);
    let own = |state: &mut State, operation, arguments: [u64; 4]| {
        let message = raw::message(operation, 5, &[&arguments.map(u64::to_ne_bytes).concat()]);
        let number = state.enter(Asker::Own(message, mpsc::channel().0));
        assert!(state.answered(0, number, done(&[])).is_none());
    };
    own(&mut state, opcode::OFFER_WRITE, [1, 0, 10, 0]);
    assert!(state.retained.has_unentered(5, 0, 10));
    own(&mut state, opcode::ENTER_WRITE, [1, 0, 10, 1]);
    assert!(state.retained.has_unentered(5, 0, 10), "it was given up");
    own(&mut state, opcode::ENTER_WRITE, [1, 0, 10, 0]);
    assert!(!state.retained.has_unentered(5, 0, 10));
}

/// P-290: other programs may have seen what it did, and what came of that is made once more only where it is there.
#[test]
fn a_change_whose_process_was_killed_is_asked_for_on_if_it_was_sent() {
    let (mut state, answers) = (State::default(), Answers::default());
    let mkdir = || {
        let mut message = raw::message(opcode::MKDIR, 1, &[&[0; 8], b"name\0"]);
        // The kernel's number.
        message[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        message
    };
    state.goes_on(1, false);
    state.is_told(1);
    for is_sent in [false, true] {
        let number = state.enter(Asker::Kernel(request(&answers, mkdir())));
        if is_sent {
            assert!(matches!(state.prepare(number), Ok(Some(_))));
        }
        state.take(77).expect("it waits").reply_error(libc::EINTR);
        assert_eq!(state.waiting.contains_key(&number), is_sent);
    }
    let number = *state.waiting.first_key_value().expect("one").0;
    let answer = Answer { mark: 9, is_uncommitted: true, ..done(&[]) };
    assert!(state.answered(0, number, answer).is_none());
    assert_eq!(state.retained.requests.all().map(|(mark, _)| mark).collect::<Vec<_>>(), [9]);
    assert_eq!(*answers.lock().expect("no panic"), [libc::EINTR, libc::EINTR]);
}

/// P-280, P-292: sent once more it would come over what others write from now on.
#[test]
fn what_the_next_owner_was_told_is_not_sent_to_it_again() {
    let (mut state, answers) = (State::default(), Answers::default());
    state.goes_on(1, false);
    state.is_told(1);
    state.gathered(5, 0, b"abc");
    let own = state.enter(Asker::Own(write(5, 0, b"abc"), mpsc::channel().0));
    let kernels = state.enter(Asker::Kernel(request(&answers, write(5, 9, b"def"))));
    // The same owner has not heard all of it, perhaps.
    state.goes_on(1, true);
    assert!(matches!(state.prepare(own), Ok(Some(_))));
    state.goes_on(2, false);
    assert_eq!(state.retained.again(), vec![abc_at(0)]);
    state.is_told(2);
    assert!(matches!(state.prepare(own), Ok(None)));
    assert!(matches!(state.prepare(kernels), Ok(Some(_))), "nobody was told that this is done");
    state.answered(0, kernels, done(&[3, 0, 0, 0, 0, 0, 0, 0])).expect("the kernel waits").0.reply_raw(0, &[]);
}

/// P-293: the owner has let others go on, and what they have written since is newer.
#[test]
fn what_was_gathered_is_lost_with_the_session_and_nothing_else() {
    let mut state = State::default();
    state.goes_on(1, false);
    state.is_told(1);
    state.retained.keep(5, 0, b"abc", 3);
    state.gathered(5, 3, b"def");
    state.goes_on(1, true);
    assert_eq!(state.retained.loss(5), None);
    state.goes_on(1, false);
    assert_eq!(state.retained.again(), vec![abc_at(0)]);
    assert_eq!(state.retained.loss(5), Some(libc::EIO));
}
