//! Commands of other machines (P-255, P-257): answered over connections of their own, and ended with the machine's admission and the owner.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stere_client::{Announcement, CommandsError, Link};
use stere_format::MachineState;

use crate::site::{OWNER, ROOT, Site, key_of, until};

/// Answers as the owner's process of these tests: each line comes back.
pub fn answer(stream: UnixStream) {
    let Ok(mut back) = stream.try_clone() else { return };
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if back.write_all(format!("heard {line}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// A program that asks through a link, and what becomes of its conversation.
fn ask(link: &Arc<Link>, first: &'static str) -> (BufReader<UnixStream>, std::thread::JoinHandle<Outcome>) {
    let (program, local) = UnixStream::pair().expect("a pair");
    program.set_read_timeout(Some(Duration::from_secs(20))).expect("it takes one");
    let link = Arc::clone(link);
    let carried = std::thread::spawn(move || link.carry(&local, first.as_bytes()));
    (BufReader::new(program), carried)
}

type Outcome = Result<(), CommandsError>;

fn line_of(program: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    program.read_line(&mut line).expect("a line, or the end");
    line
}

#[test]
fn commands_are_answered_while_the_mount_goes_on() {
    let site = Site::new();
    let serving = site.serve();
    let client = site.client(1);
    let (mut program, carried) = ask(&client.link, "one\n");
    assert_eq!(line_of(&mut program), "heard one\n");
    client.mkdir(ROOT, "made").expect("requests go on meanwhile");
    program.get_mut().write_all(b"two\n").expect("asked");
    assert_eq!(line_of(&mut program), "heard two\n");
    drop(program);
    carried.join().expect("no panic").expect("both ended");
    site.hand_over(serving);
}

/// What a conversation ended with that was not to come to its end.
fn why(carried: std::thread::JoinHandle<Outcome>) -> String {
    carried.join().expect("no panic").expect_err("it did not come to its end").to_string()
}

#[test]
fn an_owner_that_is_gone_or_silent_ends_a_command() {
    let site = Site::new();
    let serving = site.serve();
    let client = site.client(1);
    let (mut program, carried) = ask(&client.link, "one\n");
    assert_eq!(line_of(&mut program), "heard one\n");
    let begun = Instant::now();
    site.crash(serving);
    assert!(why(carried).contains("before it had answered"));
    assert_eq!(line_of(&mut program), "", "nobody says more");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let (_program, carried) = ask(&client.link, "two\n");
    assert!(why(carried).contains("nobody owns the pool"));
    // One that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("it listens");
    let address = silent.local_addr().expect("an address").to_string();
    let key = key_of(OWNER).public().0;
    site.announce(Some(Announcement { address, secret: [0; 32], key, epoch: 99 }));
    let begun = Instant::now();
    let (_program, carried) = ask(&client.link, "three\n");
    let why = why(carried);
    assert!(why.contains("says nothing"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn commands_are_ended_with_the_machine_they_are_of_and_others_go_on() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (mut program, carried) = ask(&one.link, "one\n");
    let (mut another, _carried) = ask(&other.link, "another\n");
    assert_eq!((line_of(&mut program), line_of(&mut another)), ("heard one\n".into(), "heard another\n".into()));
    site.set_member(1, MachineState::Refused);
    assert!(why(carried).contains("before it had answered"));
    let (_program, carried) = ask(&one.link, "two\n");
    let why = why(carried);
    assert!(why.contains("was refused") && why.contains("stere pool admit"), "{why}");
    another.get_mut().write_all(b"still\n").expect("asked");
    assert_eq!(line_of(&mut another), "heard still\n");
    site.hand_over(serving);
}

#[test]
fn a_machine_has_so_many_commands_under_way_and_no_more() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let mut asked: Vec<_> = (0..32).map(|_| ask(&one.link, "one\n")).collect();
    asked.iter_mut().for_each(|(program, _)| assert_eq!(line_of(program), "heard one\n"));
    let (_program, carried) = ask(&one.link, "too much\n");
    assert!(why(carried).contains("as many commands of this machine"));
    let (mut program, _carried) = ask(&other.link, "other\n");
    assert_eq!(line_of(&mut program), "heard other\n");
    let (program, carried) = asked.pop().expect("32 of them");
    drop(program);
    carried.join().expect("no panic").expect("both ended");
    until("there is room again", || {
        let (mut program, _carried) = ask(&one.link, "again\n");
        line_of(&mut program) == "heard again\n"
    });
    site.hand_over(serving);
}
