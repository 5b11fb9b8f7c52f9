//! The table of requests: numbers, acknowledgements, and what answers change.

use std::sync::Mutex;

use fuse_wire::{RemoteAnswer, RemoteSession};

use super::*;

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

fn done(bytes: &[u8]) -> Answer {
    Answer { errno: 0, mark: 1, place: 0, bytes: bytes.to_vec() }
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
    let answered = state.answered(first, done(&[3, 0, 0, 0, 0, 0, 0, 0])).expect("the kernel waits");
    answered.0.reply_raw(0, &[]);
    assert_eq!(sent(&mut state, second, 2).0, second);
    assert!(state.answered(first, done(&[])).is_none(), "answered once");
    assert_eq!(state.retained.pieces(), [(5, 0, b"abc".to_vec())]);
    state.give_up().into_iter().for_each(|request| request.reply_error(libc::ENOTCONN));
    assert_eq!(*answers.lock().expect("no panic"), [0, libc::ENOTCONN]);
}

#[test]
fn a_sync_lets_go_of_what_was_answered_before_it_was_sent() {
    let (mut state, answers) = (State::default(), Answers::default());
    let write_and_answer = |state: &mut State, offset| {
        let number = state.enter(Asker::Kernel(request(&answers, write(5, offset, b"abc"))));
        let answer = Answer { place: offset, ..done(&[3, 0, 0, 0, 0, 0, 0, 0]) };
        state.answered(number, answer).expect("the kernel waits").0.reply_raw(0, &[]);
    };
    write_and_answer(&mut state, 0);
    let (tell, told) = mpsc::channel();
    let sync = state.enter(Asker::Own(raw::message(opcode::FSYNC, 5, &[&[0; 16]]), tell));
    write_and_answer(&mut state, 10);
    assert!(state.answered(sync, done(&[])).is_none());
    assert_eq!(told.recv().expect("it was answered").errno, 0);
    assert_eq!(state.retained.pieces(), [(5, 10, b"abc".to_vec())]);
}

#[test]
fn forgets_are_counted() {
    let mut state = State::default();
    state.known.insert(7, 3);
    state.forget(&raw::message(opcode::FORGET, 7, &[&2_u64.to_ne_bytes()]));
    assert_eq!(state.known.get(&7), Some(&1));
    state.forget(&raw::message(opcode::FORGET, 7, &[&1_u64.to_ne_bytes()]));
    assert!(state.known.is_empty());
}
