//! Both directions of a connection (P-252): who is at its other end, that neither waits for the other, and what a hand in between can do.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::*;
use crate::{MachineKey, accept, connect};

fn key(number: u8) -> MachineKey {
    MachineKey::of([number; 32]).expect("any 32 bytes are a key")
}

/// Two ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
    let other = listener.accept().expect("a connection").0;
    for socket in [&one, &other] {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        socket.set_write_timeout(Some(Duration::from_secs(20))).expect("a socket");
    }
    (one, other)
}

fn twice(socket: TcpStream) -> (TcpStream, TcpStream) {
    (socket.try_clone().expect("a socket"), socket)
}

type Half = (TlsReader<TcpStream>, TlsWriter<TcpStream>);

/// A client that believes the key `believed`, and an owner with key 2.
fn connected(believed: u8, one: TcpStream, other: TcpStream) -> (Result<Half, TlsError>, Result<Half, TlsError>) {
    let owner = thread::spawn(move || {
        let (reader, writer) = twice(other);
        let (reader, writer, client) = accept(&key(2), reader, writer)?;
        assert_eq!(client, key(1).public(), "the owner is told whose key it is");
        Ok((reader, writer))
    });
    let (reader, writer) = twice(one);
    let client = connect(&key(1), key(believed).public(), reader, writer);
    (client, owner.join().expect("no panic"))
}

#[test]
fn what_is_written_on_one_side_is_read_on_the_other() {
    let (one, other) = pair();
    let (client, owner) = connected(2, one, other);
    let ((mut from_owner, mut to_owner), (mut from_client, mut to_client)) =
        (client.expect("connected"), owner.expect("connected"));
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    thread::scope(|scope| {
        for writer in [&mut to_owner, &mut to_client] {
            scope.spawn(|| writer.write_all(&long).expect("written"));
        }
        for reader in [&mut from_owner, &mut from_client] {
            let mut read = vec![0; long.len()];
            reader.read_exact(&mut read).expect("read");
            assert!(read == long);
        }
    });
    from_client.raw().shutdown(Shutdown::Both).expect("a socket");
    assert_eq!(from_owner.read(&mut [0]).expect("the end"), 0);
}

#[test]
fn another_key_than_the_believed_one_is_refused() {
    let (one, other) = pair();
    let (client, owner) = connected(3, one, other);
    assert!(matches!(client, Err(TlsError::Stranger)));
    assert!(owner.is_err());
}

#[test]
fn what_speaks_no_tls_is_refused() {
    let (mut one, other) = pair();
    let owner = thread::spawn(move || {
        let (reader, writer) = twice(other);
        accept(&key(2), reader, writer).map(drop)
    });
    one.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    assert!(matches!(owner.join().expect("no panic"), Err(TlsError::Tls(_))));
}

/// One direction stands still because nobody reads there; the other goes on.
#[test]
fn a_full_direction_does_not_stop_the_other() {
    let (one, other) = pair();
    let (client, owner) = connected(2, one, other);
    let ((mut from_owner, mut to_owner), (mut from_client, mut to_client)) =
        (client.expect("connected"), owner.expect("connected"));
    let full = vec![7; 64 << 20];
    thread::scope(|scope| {
        let filling = scope.spawn(|| to_owner.write_all(&full));
        thread::sleep(Duration::from_millis(300));
        assert!(!filling.is_finished(), "the direction to the owner is full");
        for number in 0..100_u8 {
            to_client.write_all(&[number; 1000]).expect("written");
            let mut read = [0; 1000];
            from_owner.read_exact(&mut read).expect("read while the other direction is full");
            assert_eq!(read, [number; 1000]);
        }
        let mut read = vec![0; full.len()];
        from_client.read_exact(&mut read).expect("read");
        assert!(read == full);
        filling.join().expect("no panic").expect("written");
    });
}

/// Passes bytes on in one direction, with the byte `at` changed.
fn pass_on(mut from: TcpStream, mut to: TcpStream, at: Option<usize>) -> Vec<u8> {
    let (mut seen, mut bytes) = (Vec::new(), vec![0; 4096]);
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 {
            break;
        }
        if let Some(at) = at.filter(|at| (seen.len()..seen.len() + count).contains(at)) {
            bytes[at - seen.len()] ^= 1;
        }
        seen.extend_from_slice(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
    seen
}

#[test]
fn a_hand_in_between_reads_nothing_and_changes_nothing_unnoticed() {
    let text = b"what is written here is nobody else's business";
    for at in [None, Some(3), Some(100), Some(400), Some(700), Some(1000)] {
        let ((one, near), (far, other)) = (pair(), pair());
        for socket in [&one, &other] {
            // A changed length has one side wait for what never comes.
            socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        }
        let (near_back, far_back) = (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
        let passing = thread::spawn(move || pass_on(near, far, at));
        let back = thread::spawn(move || pass_on(far_back, near_back, None));
        let (client, owner) = connected(2, one, other);
        let mut is_whole = false;
        if let (Ok((reader, mut writer)), Ok((mut from_client, _))) = (client, owner) {
            let mut read = vec![0; text.len()];
            is_whole = (0..20).all(|_| {
                drop(writer.write_all(text));
                let arrived = from_client.read_exact(&mut read).is_ok();
                assert!(!arrived || read == text, "nothing wrong is read");
                arrived
            });
            drop((reader, writer, from_client));
        }
        let seen = passing.join().expect("no panic");
        drop(back);
        assert_eq!(is_whole, at.is_none(), "byte {at:?} of {} was changed", seen.len());
        assert!(!seen.windows(12).any(|part| part == &text[..12]), "it is not there to be read");
    }
}
