//! Conversations over a connection (P-255): all arrives in order, a reader that stands still stops nothing else, and each end is noticed.

use std::io::{BufRead, BufReader};
use std::thread::JoinHandle;

use super::*;
use crate::proof::{Direction, Secret};
use crate::{Challenge, Greeting, Seal, VERSION};

type Carried = JoinHandle<Result<(), StreamError>>;

fn seal(direction: Direction) -> Seal {
    let greeting = Greeting { version: VERSION, nonce: [1; 32] };
    let challenge = Challenge { version: VERSION, epoch: 1, nonce: [2; 32] };
    Secret([3; 32]).seal(&greeting, &challenge, direction)
}

/// The two halves of one end of a connection.
fn halves(socket: &UnixStream, in_by: Direction, out_by: Direction) -> (Incoming<UnixStream>, Outgoing<UnixStream>) {
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("it takes one");
    let clone = || socket.try_clone().expect("a descriptor");
    let (mut incoming, mut outgoing) = (Incoming::new(clone()), Outgoing::new(clone()));
    incoming.set_seal(seal(in_by));
    outgoing.set_seal(seal(out_by));
    (incoming, outgoing)
}

/// One side that carries, and the local socket that it carries.
fn side(socket: &UnixStream, in_by: Direction, out_by: Direction, first: &'static [u8]) -> (UnixStream, Carried) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (mut incoming, outgoing) = halves(socket, in_by, out_by);
    let carried = std::thread::spawn(move || carry(&theirs, first, &mut incoming, outgoing));
    (ours, carried)
}

struct Both {
    /// The program that asks, and the daemon that answers.
    program: BufReader<UnixStream>,
    daemon: BufReader<UnixStream>,
    carried: [Carried; 2],
    connection: UnixStream,
}

fn both(first: &'static [u8]) -> Both {
    let (here, there) = UnixStream::pair().expect("a pair");
    let (program, of_client) = side(&here, Direction::ToClient, Direction::ToOwner, first);
    let (daemon, of_owner) = side(&there, Direction::ToOwner, Direction::ToClient, b"");
    let (program, daemon) = (BufReader::new(program), BufReader::new(daemon));
    Both { program, daemon, carried: [of_client, of_owner], connection: here }
}

fn line_of(reader: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line, or the end");
    line
}

#[test]
fn what_is_said_arrives_in_order_and_the_end_too() {
    let Both { mut program, mut daemon, carried, .. } = both(b"read before\n");
    assert_eq!(line_of(&mut daemon), "read before\n");
    // Longer than a window, both ways, many times.
    for round in 0..20 {
        let long = format!("{round} {}\n", "x".repeat(round * 50_000));
        let say = |to: &BufReader<UnixStream>| to.get_ref().try_clone().expect("a descriptor");
        let (mut asks, mut answers) = (say(&program), say(&daemon));
        std::thread::scope(|scope| {
            scope.spawn(|| asks.write_all(long.as_bytes()).expect("asked"));
            assert!(line_of(&mut daemon) == long);
            scope.spawn(|| answers.write_all(long.as_bytes()).expect("answered"));
            assert!(line_of(&mut program) == long);
        });
    }
    drop(program);
    assert_eq!(line_of(&mut daemon), "", "the daemon hears that nobody listens any more");
    drop(daemon);
    for side in carried {
        side.join().expect("no panic").expect("both ended in order");
    }
}

#[test]
fn what_was_asked_before_the_end_is_heard_and_what_was_answered_too() {
    let Both { program, mut daemon, carried, .. } = both(b"");
    program.get_ref().write_all(b"do it\n").expect("asked");
    drop(program);
    assert_eq!((line_of(&mut daemon), line_of(&mut daemon)), ("do it\n".into(), String::new()));
    drop(daemon);
    carried.into_iter().for_each(|side| side.join().expect("no panic").expect("in order"));
    let Both { mut program, daemon, carried, .. } = both(b"");
    let last = format!("{}\n", "a".repeat(1_000_000));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            daemon.get_ref().write_all(last.as_bytes()).expect("answered");
            drop(daemon);
        });
        assert!(line_of(&mut program) == last);
    });
    assert_eq!(line_of(&mut program), "");
    drop(program);
    carried.into_iter().for_each(|side| side.join().expect("no panic").expect("in order"));
}

#[test]
fn a_reader_that_stands_still_is_waited_for_and_costs_a_window_at_most() {
    let Both { mut program, daemon, carried, .. } = both(b"");
    let line = format!("{}\n", "b".repeat(1023));
    daemon.get_ref().set_write_timeout(Some(Duration::from_millis(300))).expect("it takes one");
    let mut sent = 0;
    while (&mut daemon.get_ref()).write_all(line.as_bytes()).is_ok() {
        sent += 1;
        assert!(sent < 8192, "nobody reads, and yet 8 MiB were taken");
    }
    // Longer than either side bears to hear nothing.
    std::thread::sleep(Duration::from_secs(3));
    assert!(carried.iter().all(|side| !side.is_finished()), "both sides say that they are there");
    let (mut read, mut text) = (0, String::new());
    while read < sent {
        text.clear();
        program.read_line(&mut text).expect("a line");
        assert!(text == line, "line {read}");
        read += 1;
    }
}

#[test]
fn a_connection_that_breaks_is_told_where_the_next_line_begins() {
    let Both { mut program, mut daemon, carried, connection } = both(b"");
    program.get_mut().write_all(b"ask\n").expect("asked");
    assert_eq!(line_of(&mut daemon), "ask\n");
    daemon.get_mut().write_all(b"one\nhalf of a li").expect("answered");
    assert_eq!(line_of(&mut program), "one\n");
    connection.shutdown(Shutdown::Both).expect("it breaks");
    assert_eq!(line_of(&mut daemon), "", "the daemon hears of it");
    for side in carried {
        side.join().expect("no panic").expect_err("it broke");
    }
    assert_eq!(line_of(&mut program), "", "half a line is not passed on");
}

#[test]
fn a_side_that_says_nothing_is_given_up() {
    let (here, _silent) = UnixStream::pair().expect("a pair");
    let (_program, carried) = side(&here, Direction::ToClient, Direction::ToOwner, b"");
    let begun = Instant::now();
    assert!(matches!(carried.join().expect("no panic"), Err(StreamError::Silence)));
    assert!(begun.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_side_that_sends_more_than_there_is_room_for_is_sent_away() {
    let (here, there) = UnixStream::pair().expect("a pair");
    let (_program, carried) = side(&here, Direction::ToClient, Direction::ToOwner, b"");
    let (_, mut outgoing) = halves(&there, Direction::ToOwner, Direction::ToClient);
    assert!(outgoing.send(&Frame::Taken { bytes: 1 }).is_ok());
    assert!(matches!(carried.join().expect("no panic"), Err(StreamError::Order)), "there was a whole window already");
    let (here, there) = UnixStream::pair().expect("a pair");
    let (program, carried) = side(&here, Direction::ToClient, Direction::ToOwner, b"");
    let (_, mut outgoing) = halves(&there, Direction::ToOwner, Direction::ToClient);
    there.set_write_timeout(Some(Duration::from_millis(300))).expect("it takes one");
    // Whole lines that nobody reads: they fill the socket, and then the window.
    let piece = vec![b'\n'; PIECE_BYTES_MAX];
    let sent = (0..64).take_while(|_| outgoing.send(&Frame::Piece { bytes: &piece }).is_ok()).count();
    assert!(sent < 64, "nobody said that so much was taken");
    drop(program);
    assert!(matches!(carried.join().expect("no panic"), Err(StreamError::Order)));
}
