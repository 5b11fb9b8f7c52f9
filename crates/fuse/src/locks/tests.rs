//! Locks of several kernels: what conflicts waits or is refused, and what is let go is given to who waits.

use std::sync::Arc;

use fuse_wire::abi::flag;
use fuse_wire::{RemoteSession, raw};

use super::*;

type Answers = Arc<Mutex<Vec<(u64, i32)>>>;

/// A request of a kernel: `fuse_lk_in`.
fn ask(locks: &Locks, answers: &Answers, operation: u32, (kernel, owner): (u64, u64), lock: Lock, is_flock: bool) {
    let answers = Arc::clone(answers);
    let number = |value: u64| value.to_ne_bytes();
    let half = |value: u32| value.to_ne_bytes();
    let flags = if is_flock { flag::LK_FLOCK } else { 0 };
    let arguments: [&[u8]; 8] = [
        &number(0),
        &number(owner),
        &number(lock.start),
        &number(lock.end),
        &half(lock.kind),
        &half(lock.pid),
        &half(flags),
        &half(0),
    ];
    let message = raw::message(operation, 5, &arguments);
    let reply = Box::new(move |answer: fuse_wire::RemoteAnswer<'_>| answers.lock().push((kernel, answer.errno)));
    let session = RemoteSession::new(kernel, true, 1 << 20);
    locks.serve(session.request(message, reply).expect("a whole message"));
}

fn lock(kind: i32, start: u64, end: u64) -> Lock {
    Lock { start, end, kind: kind.cast_unsigned(), pid: 1 }
}

#[test]
fn a_lock_is_refused_waits_and_is_given() {
    let (locks, answers) = (Locks::default(), Answers::default());
    ask(&locks, &answers, opcode::SETLK, (1, 7), lock(libc::F_WRLCK, 0, 9), false);
    ask(&locks, &answers, opcode::SETLK, (2, 7), lock(libc::F_RDLCK, 9, 20), false);
    ask(&locks, &answers, opcode::SETLKW, (2, 7), lock(libc::F_RDLCK, 9, 20), false);
    ask(&locks, &answers, opcode::SETLK, (2, 7), lock(libc::F_WRLCK, 10, 20), false);
    assert_eq!(*answers.lock(), [(1, 0), (2, libc::EAGAIN), (2, 0)]);
    ask(&locks, &answers, opcode::SETLK, (1, 7), lock(libc::F_UNLCK, 0, u64::MAX), false);
    assert_eq!(answers.lock()[3..], [(2, 0), (1, 0)], "who waited has it");
}

#[test]
fn locks_of_flock_and_fcntl_do_not_meet_and_a_kernel_takes_its_own_along() {
    let (locks, answers) = (Locks::default(), Answers::default());
    ask(&locks, &answers, opcode::SETLK, (1, 1), lock(libc::F_WRLCK, 0, u64::MAX), true);
    ask(&locks, &answers, opcode::SETLK, (2, 1), lock(libc::F_WRLCK, 0, u64::MAX), false);
    ask(&locks, &answers, opcode::SETLKW, (3, 1), lock(libc::F_WRLCK, 0, u64::MAX), true);
    assert_eq!(*answers.lock(), [(1, 0), (2, 0)]);
    locks.end(1);
    assert_eq!(answers.lock()[2..], [(3, 0)]);
    locks.end(3);
    locks.end(2);
    assert!(locks.0.lock().is_empty());
}

#[test]
fn who_is_interrupted_waits_no_more() {
    let (locks, answers) = (Locks::default(), Answers::default());
    ask(&locks, &answers, opcode::SETLK, (1, 1), lock(libc::F_WRLCK, 0, 5), false);
    ask(&locks, &answers, opcode::SETLKW, (2, 1), lock(libc::F_RDLCK, 0, 5), false);
    locks.interrupt(Some(2), 1);
    assert_eq!(*answers.lock(), [(1, 0), (2, libc::EINTR)]);
    for _ in 0..WAITING_MAX {
        ask(&locks, &answers, opcode::SETLKW, (2, 1), lock(libc::F_RDLCK, 0, 5), false);
    }
    assert_eq!(answers.lock().len(), 2);
    ask(&locks, &answers, opcode::SETLKW, (2, 1), lock(libc::F_RDLCK, 0, 5), false);
    assert_eq!(answers.lock().last(), Some(&(2, libc::ENOLCK)), "places are kept for others");
    locks.end_all();
    assert_eq!(answers.lock().len(), 3 + WAITING_MAX);
}
