//! Who is let in (P-253) and what travels (P-252): machines with other keys, machines that wait or were refused, and hands in between.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stere_client::Announcement;
use stere_format::MachineState;
use stere_machine_wire::{Frame, Greeting, Incoming, Outgoing, Refusal, VERSION};

use crate::site::{OWNER, ROOT, Serving, Site, key_of, until};

const SECRET: &[u8] = b"this is what nobody else is to read, on no wire";

/// What the owner says to a machine before anything else.
fn judged(serving: &Serving, machine: u8) -> Result<(), Refusal> {
    let socket = TcpStream::connect(serving.owner.address()).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    let reader = socket.try_clone().expect("a socket");
    let (reader, writer) =
        stere_machine_tls::connect(&key_of(machine), key_of(OWNER).public(), reader, socket).expect("connected");
    let (mut incoming, mut outgoing) = (Incoming::new(reader), Outgoing::new(writer));
    outgoing.send(&Frame::Greeting(Greeting { version: VERSION, nonce: [1; 32] })).expect("sent");
    match incoming.next_frame().expect("an answer") {
        Frame::Challenge(_) => Ok(()),
        Frame::Refused(refusal) => Err(refusal),
        other => panic!("answered {other:?}"),
    }
}

#[test]
fn only_machines_that_are_admitted_are_let_in() {
    let site = Site::new();
    let serving = site.serve();
    site.set_member(7, MachineState::Waiting);
    site.set_member(8, MachineState::Refused);
    assert_eq!(judged(&serving, 1), Ok(()));
    assert_eq!(judged(&serving, 7), Err(Refusal::Waiting));
    assert_eq!(judged(&serving, 8), Err(Refusal::NotAdmitted));
    assert_eq!(judged(&serving, 9), Err(Refusal::Unknown));
    site.set_member(7, MachineState::Admitted);
    assert_eq!(judged(&serving, 7), Ok(()), "at once");
    // While the registry is away, what was read last counts.
    *site.members.lock().expect("no panic") = None;
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((judged(&serving, 7), judged(&serving, 8)), (Ok(()), Err(Refusal::NotAdmitted)));
    site.hand_over(serving);
}

#[test]
fn a_machine_that_waits_goes_on_by_itself_when_it_is_admitted() {
    let site = Site::new();
    let serving = site.serve();
    site.set_member(7, MachineState::Waiting);
    let kernel = site.client(7);
    std::thread::sleep(Duration::from_millis(500));
    assert!(kernel.link.owner().is_none());
    site.set_member(7, MachineState::Admitted);
    kernel.mkdir(ROOT, "made").expect("made, once it is admitted");
    site.hand_over(serving);
}

#[test]
fn a_machine_that_is_refused_is_cut_off_and_others_go_on() {
    let site = Site::new();
    let serving = site.serve();
    let (one, other) = (site.client(1), site.client(2));
    let (node, handle) = one.create(ROOT, "file", libc::O_RDWR).expect("a file");
    one.ask_lock(node, 7, libc::F_WRLCK, false).wait().expect("locked");
    one.write(node, handle, 0, b"before").expect("written");
    one.fsync(node, handle).expect("durable");
    other.lookup(ROOT, "file").expect("there");
    until("both are there", || serving.owner.clients() == 2);
    site.set_member(1, MachineState::Refused);
    let begun = Instant::now();
    until("its session is over", || serving.owner.clients() == 1);
    until("it is told", || one.write(node, handle, 0, b"after ") == Err(libc::EKEYREJECTED));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(one.mkdir(ROOT, "new"), Err(libc::EKEYREJECTED));
    // What it had is given back, and nobody else notices.
    other.ask_lock(node, 8, libc::F_WRLCK, false).wait().expect("its lock is gone");
    let (of_other, _) = other.open(node, libc::O_RDWR).expect("opened");
    assert_eq!(other.read(node, of_other, 0, 100), Ok(b"before".to_vec()));
    // Who is admitted again goes on.
    site.set_member(1, MachineState::Admitted);
    until("it is there again", || one.read(node, handle, 0, 100) == Ok(b"before".to_vec()));
    site.hand_over(serving);
}

#[test]
fn an_owner_with_another_key_is_sent_nothing() {
    let site = Site::new();
    let serving = site.serve();
    let right = site.announcement().expect("an owner");
    site.announce(Some(Announcement { key: key_of(1).public().0, ..right.clone() }));
    let kernel = site.client(2);
    std::thread::sleep(Duration::from_millis(500));
    assert!(kernel.link.owner().is_none() && serving.owner.clients() == 0);
    site.announce(Some(right));
    kernel.mkdir(ROOT, "made").expect("made, when the key is right");
    site.hand_over(serving);
}

/// Passes connections on to the owner, keeps what travels, and changes a byte at a place where it is told to.
struct Between {
    address: String,
    seen: Arc<Mutex<Vec<u8>>>,
    /// The next byte after so many of a connection, in the direction to the owner; none at `usize::MAX`.
    change_at: Arc<AtomicUsize>,
}

impl Between {
    fn new(owner: std::net::SocketAddr) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (seen, change_at): (Arc<Mutex<Vec<u8>>>, _) = (Arc::default(), Arc::new(AtomicUsize::new(usize::MAX)));
        let between = Between { address, seen: seen.clone(), change_at: change_at.clone() };
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(owner) else { return };
                let copies = (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
                let (seen, back) = ((seen.clone(), seen.clone()), Arc::new(AtomicUsize::new(usize::MAX)));
                let change_at = change_at.clone();
                std::thread::spawn(move || pass_on(near, far, &seen.0, &change_at));
                std::thread::spawn(move || pass_on(copies.1, copies.0, &seen.1, &back));
            }
        });
        between
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>, change_at: &AtomicUsize) {
    let (mut bytes, mut before) = (vec![0; 65_536], 0);
    while let Ok(count) = from.read(&mut bytes) {
        let at = change_at.load(Ordering::SeqCst);
        if count > 0 && before + count > at {
            bytes[at.saturating_sub(before).min(count - 1)] ^= 0x10;
            change_at.store(usize::MAX, Ordering::SeqCst);
        }
        seen.lock().expect("no panic").extend_from_slice(&bytes[..count]);
        before += count;
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
    drop(from.shutdown(Shutdown::Both));
}

#[test]
fn nothing_is_read_on_the_wire_and_what_is_changed_there_is_noticed() {
    let site = Site::new();
    let serving = site.serve();
    let between = Between::new(serving.owner.address());
    let right = site.announcement().expect("an owner");
    site.announce(Some(Announcement { address: between.address.clone(), ..right }));
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "a name that is a secret", libc::O_RDWR).expect("a file");
    let mut expected = Vec::new();
    for round in 0..12_usize {
        // In the handshake, and then anywhere in what follows.
        let change = if round % 3 == 2 { 100 } else { round * 1000 };
        if change == 100 {
            kernel.link.cut();
        }
        between.change_at.store(change, Ordering::SeqCst);
        let at = expected.len() as u64;
        kernel.write(node, handle, at, SECRET).expect("written, over another connection if need be");
        expected.extend_from_slice(SECRET);
        assert!(kernel.read(node, handle, 0, 4096).expect("read") == expected, "round {round}");
    }
    kernel.fsync(node, handle).expect("durable");
    let seen = between.seen.lock().expect("no panic").clone();
    assert!(seen.len() > 12 * SECRET.len(), "it went this way");
    for text in [SECRET, b"a name that is a secret", b"stere-mf"] {
        assert!(!seen.windows(text.len()).any(|part| part == text), "{}", String::from_utf8_lossy(text));
    }
    site.hand_over(serving);
}
