//! Requests from bytes: decoded as any other, answered once, and passed on as they came.

use std::sync::Arc;

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::*;
use crate::abi::structs::WriteIn;
use crate::operation::{Operation, Write};
use crate::raw;

type Answers = Arc<Mutex<Vec<(i32, Vec<u8>)>>>;

fn reply(answers: &Answers) -> RemoteReply {
    let answers = Arc::clone(answers);
    Box::new(move |answer| answers.lock().push((answer.errno, answer.bytes.to_vec())))
}

fn session() -> RemoteSession {
    RemoteSession::new(7, true, 1 << 20)
}

#[test]
fn a_write_is_decoded_passed_on_and_answered() {
    let input = WriteIn { fh: 3, offset: 10, size: 5, ..WriteIn::default() };
    let message = raw::message(opcode::WRITE, 9, &[input.as_bytes(), b"hello"]);
    let answers = Answers::default();
    let request = session().request(message.clone(), reply(&answers)).expect("a whole message");
    assert_eq!((request.message(), request.remote_tag()), (message, Some(7)));
    match request.operation() {
        Operation::Write(Write { node: 9, handle: 3, offset: 10, data: b"hello", .. }) => {}
        other => panic!("decoded as {other:?}"),
    }
    request.reply_written(5);
    assert_eq!(*answers.lock(), [(0, vec![5, 0, 0, 0, 0, 0, 0, 0])]);
}

#[test]
fn a_read_is_answered_in_place_and_one_that_is_dropped_with_an_error() {
    let input = ReadIn { size: 8, ..ReadIn::default() };
    let answers = Answers::default();
    let message = raw::message(opcode::READ, 9, &[input.as_bytes()]);
    let mut request = session().request(message.clone(), reply(&answers)).expect("a whole message");
    request.data_buffer()[..8].copy_from_slice(b"contents");
    request.reply_data(8);
    drop(session().request(message, reply(&answers)));
    assert_eq!(*answers.lock(), [(0, b"contents".to_vec()), (libc::EIO, Vec::new())]);
}

#[test]
fn what_is_no_message_is_no_request_and_forgets_have_no_answer() {
    let answers = Answers::default();
    assert!(session().request(vec![0; 10], reply(&answers)).is_none());
    let mut wrong = raw::message(opcode::LOOKUP, 1, &[b"name\0"]);
    wrong.push(0);
    assert!(session().request(wrong, reply(&answers)).is_none());
    let forget = raw::message(opcode::FORGET, 5, &[&1_u64.to_ne_bytes()]);
    let request = session().request(forget, reply(&answers)).expect("a whole message");
    request.reply_none();
    assert!(answers.lock().is_empty());
}

#[test]
fn the_process_of_another_machine_is_nobody_here() {
    let mut message = raw::message(opcode::STATFS, 1, &[]);
    message[32..36].copy_from_slice(&1_u32.to_ne_bytes());
    let answers = Answers::default();
    let request = session().request(message, reply(&answers)).expect("a whole message");
    assert_eq!(request.context().pid, 0);
    assert!(!request.cancel().is_cancelled());
    request.reply_ok();
}
