//! Those who are no clients, or bad ones (P-237): they are refused or cut off, and others do not notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use stere_machine_tls::{TlsReader, TlsWriter};
use stere_machine_wire::{
    Direction, Frame, Greeting, Hello, Incoming, Outgoing, Purpose, Refusal, Secret, StreamError, VERSION,
};

use crate::site::{OWNER, POOL, ROOT, Serving, Site, key_of, until};

type FromOwner = Incoming<TlsReader<TcpStream>>;
type ToOwner = Outgoing<TlsWriter<TcpStream>>;
type Halves = (FromOwner, ToOwner);

fn connect(serving: &Serving) -> TcpStream {
    let socket = TcpStream::connect(serving.owner.address()).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    socket
}

/// A connection of TLS, as machine 1 has one.
fn connect_encrypted(serving: &Serving) -> Halves {
    let socket = connect(serving);
    let reader = socket.try_clone().expect("a socket");
    let (reader, writer) =
        stere_machine_tls::connect(&key_of(1), key_of(OWNER).public(), reader, socket).expect("the owner has its key");
    (Incoming::new(reader), Outgoing::new(writer))
}

/// Greets as a client does; gives what the owner says at last.
fn greet(
    serving: &Serving,
    secret: [u8; 32],
    pool: [u8; 16],
    version: u16,
    epoch: u64,
) -> (Halves, Result<(), Refusal>) {
    let (mut incoming, mut outgoing) = connect_encrypted(serving);
    let (secret, greeting) = (Secret(secret), Greeting { version, nonce: [1; 32] });
    outgoing.send(&Frame::Greeting(greeting.clone())).expect("sent");
    let challenge = match incoming.next_frame().expect("an answer") {
        Frame::Challenge(challenge) => challenge,
        Frame::Refused(refusal) => return ((incoming, outgoing), Err(refusal)),
        other => panic!("answered {other:?}"),
    };
    let (machine, purpose) = ([1; 16], Purpose::Mount);
    let (session, kernel_minor, kernel_flags, proof) = ([3; 16], 45, 0, [0; 32]);
    let hello = Hello { pool, machine, session, epoch, kernel_minor, purpose, kernel_flags, proof };
    let proof = secret.client_proof(&greeting, &challenge, &hello);
    outgoing.send(&Frame::Hello(Hello { proof, ..hello })).expect("sent");
    let outcome = match incoming.next_frame().expect("an answer") {
        Frame::Welcome(_) => Ok(()),
        Frame::Refused(refusal) => Err(refusal),
        other => panic!("answered {other:?}"),
    };
    if outcome.is_ok() {
        incoming.set_seal(secret.seal(&greeting, &challenge, Direction::ToClient));
        outgoing.set_seal(secret.seal(&greeting, &challenge, Direction::ToOwner));
    }
    ((incoming, outgoing), outcome)
}

/// Whether the owner ends a connection by itself.
fn is_ended(incoming: &mut FromOwner) -> bool {
    loop {
        match incoming.next_frame() {
            Ok(_) => {}
            Err(StreamError::Silence) => return false,
            Err(_) => return true,
        }
    }
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    let site = Site::new();
    let serving = site.serve();
    let secret = site.announcement().expect("an owner").secret;
    assert_eq!(greet(&serving, [0; 32], POOL, VERSION, 1).1, Err(Refusal::Proof));
    assert_eq!(greet(&serving, secret, [0; 16], VERSION, 1).1, Err(Refusal::Pool));
    assert_eq!(greet(&serving, secret, POOL, VERSION + 1, 1).1, Err(Refusal::Version));
    assert_eq!(greet(&serving, secret, POOL, VERSION, 2).1, Err(Refusal::Epoch));
    assert_eq!(greet(&serving, secret, POOL, VERSION, 1).1, Ok(()));
    site.hand_over(serving);
}

#[test]
fn who_is_not_the_owner_is_sent_nothing() {
    let site = Site::new();
    let serving = site.serve();
    let wrong = site.announcement().map(|owner| stere_client::Announcement { secret: [77; 32], ..owner });
    let right = site.announcement();
    site.announce(wrong);
    let kernel = site.client(1);
    std::thread::sleep(Duration::from_millis(500));
    assert!(kernel.link.owner().is_none());
    site.announce(right);
    kernel.mkdir(ROOT, "made").expect("made, when the announcement is right");
    site.hand_over(serving);
}

#[test]
fn garbage_ends_the_connection_that_it_came_over() {
    let site = Site::new();
    let serving = site.serve();
    let secret = site.announcement().expect("an owner").secret;
    let kernel = site.client(1);
    let folder = kernel.mkdir(ROOT, "folder").expect("a directory");
    for garbage in [&[0xff; 100][..], b"GET / HTTP/1.1\r\n\r\n", &[0; 8]] {
        let mut socket = connect(&serving);
        socket.write_all(garbage).expect("sent");
        // Ended with or without an error.
        drop(socket.read_to_end(&mut Vec::new()));
    }
    // Before the greeting is over, nothing else is taken.
    let (mut incoming, mut outgoing) = connect_encrypted(&serving);
    outgoing.send(&Frame::Ping).expect("sent");
    assert!(is_ended(&mut incoming));
    let bad: [Frame<'_>; 4] = [
        Frame::Definite { mark: 1 },
        Frame::Request {
            number: 1,
            acknowledged: 1,
            is_repeated: false,
            takes_map: false,
            has_keys: false,
            message: &[0; 40],
        },
        Frame::Request {
            number: 0,
            acknowledged: 1,
            is_repeated: false,
            takes_map: false,
            has_keys: false,
            message: &[0; 40],
        },
        Frame::Welcome(stere_machine_wire::Welcome { is_resumed: false, proof: [0; 32] }),
    ];
    for frame in &bad {
        let ((mut incoming, mut outgoing), outcome) = greet(&serving, secret, POOL, VERSION, 1);
        assert_eq!(outcome, Ok(()));
        outgoing.send(frame).expect("sent");
        let is_answered = matches!(frame, Frame::Request { number: 1, .. });
        match is_answered {
            true => loop {
                match incoming.next_frame() {
                    // The session was there before.
                    Ok(Frame::Committed { .. }) => {}
                    Ok(Frame::Reply { errno, .. }) if errno != 0 => break,
                    other => panic!("{other:?}"),
                }
            },
            false => assert!(is_ended(&mut incoming), "after {frame:?}"),
        }
    }
    assert_eq!(kernel.mkdir(ROOT, "folder"), Err(libc::EEXIST));
    assert!(kernel.lookup(folder, "nothing").is_err());
    site.hand_over(serving);
}

#[test]
fn an_unsealed_frame_and_a_handle_of_somebody_else_do_nothing() {
    let site = Site::new();
    let serving = site.serve();
    let secret = site.announcement().expect("an owner").secret;
    let kernel = site.client(1);
    let (node, handle) = kernel.create(ROOT, "file", libc::O_RDWR).expect("a file");
    let ((mut incoming, mut outgoing), _) = greet(&serving, secret, POOL, VERSION, 1);
    for guess in 0..50_u64 {
        let message = fuse_wire::raw::message(fuse_wire::abi::opcode::RELEASE, node, &[&guess.to_ne_bytes(), &[0; 16]]);
        outgoing
            .send(&Frame::Request {
                number: guess + 1,
                acknowledged: 0,
                is_repeated: false,
                takes_map: false,
                has_keys: false,
                message: &message,
            })
            .expect("sent");
        let errno = loop {
            if let Frame::Reply { errno, .. } = incoming.next_frame().expect("an answer") {
                break i32::from(errno);
            }
        };
        assert_eq!(errno, libc::EBADF);
    }
    kernel.unlink(ROOT, "file").expect("removed");
    kernel.write(node, handle, 0, b"it is open").expect("written");
    // A stranger in the middle of the connection has no key.
    outgoing.set_seal(Secret([0; 32]).seal(
        &Greeting { version: VERSION, nonce: [1; 32] },
        &stere_machine_wire::Challenge { version: VERSION, epoch: 1, nonce: [0; 32] },
        Direction::ToOwner,
    ));
    outgoing.send(&Frame::Ping).expect("sent");
    assert!(is_ended(&mut incoming));
    until("only the client is there", || serving.owner.clients() <= 2);
    site.hand_over(serving);
}

#[test]
fn who_is_silent_is_cut_off() {
    let site = Site::new();
    let serving = site.serve();
    let secret = site.announcement().expect("an owner").secret;
    let ((mut incoming, _outgoing), _) = greet(&serving, secret, POOL, VERSION, 1);
    assert!(is_ended(&mut incoming));
    until("its session is over", || serving.owner.clients() == 0);
    site.hand_over(serving);
}

#[test]
fn an_owner_that_falls_silent_is_left_for_another() {
    let site = Site::new();
    let serving = site.serve();
    let real = site.announcement();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let secret = [50; 32];
    site.announce(Some(stere_client::Announcement { address, secret, key: key_of(OWNER).public().0, epoch: 1 }));
    let kernel = site.client(1);
    // It proves itself, and says nothing more.
    let (socket, _) = listener.accept().expect("a client");
    let reader = socket.try_clone().expect("a socket");
    let (reader, writer, _) = stere_machine_tls::accept(&key_of(OWNER), reader, socket).expect("a client");
    let (mut incoming, mut outgoing) = (Incoming::new(reader), Outgoing::new(writer));
    let Ok(Frame::Greeting(greeting)) = incoming.next_frame() else { panic!("no greeting") };
    let challenge = stere_machine_wire::Challenge { version: VERSION, epoch: 1, nonce: [2; 32] };
    outgoing.send(&Frame::Challenge(challenge.clone())).expect("sent");
    let Ok(Frame::Hello(hello)) = incoming.next_frame() else { panic!("no hello") };
    let proof = Secret(secret).owner_proof(&greeting, &challenge, &hello, false);
    outgoing.send(&Frame::Welcome(stere_machine_wire::Welcome { is_resumed: false, proof })).expect("sent");
    until("the client trusts it", || kernel.link.owner() == Some(1));
    site.announce(real);
    let begun = std::time::Instant::now();
    kernel.mkdir(ROOT, "made").expect("made by the other");
    assert!(begun.elapsed() < Duration::from_secs(8), "silence is noticed after five seconds");
    site.hand_over(serving);
}
