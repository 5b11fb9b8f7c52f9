//! Servers that misbehave, played by a thread at the other end of two pipes.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::thread::JoinHandle;

use super::connection::Fault;
use super::packet::{put_text, request};
use super::*;

/// What a played server was asked: type, number, and the rest.
struct Asked {
    kind: u8,
    number: u32,
    body: Vec<u8>,
}

struct Player {
    from: PipeReader,
    to: PipeWriter,
}

impl Player {
    fn next(&mut self) -> Option<Asked> {
        let mut length = [0; 4];
        self.from.read_exact(&mut length).ok()?;
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.from.read_exact(&mut bytes).ok()?;
        let number = u32::from_be_bytes(bytes[1..5].try_into().unwrap());
        Some(Asked { kind: bytes[0], number, body: bytes.split_off(5) })
    }

    fn say(&mut self, kind: u8, number: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        request(&mut bytes, kind, number, body);
        drop(self.to.write_all(&bytes));
    }

    fn status(&mut self, number: u32, code: u32) {
        self.say(101, number, |to| {
            to.extend(code.to_be_bytes());
            put_text(to, b"words");
            put_text(to, b"");
        });
    }

    fn data(&mut self, number: u32, bytes: &[u8]) {
        self.say(103, number, |to| put_text(to, bytes));
    }
}

type Session = Result<Connection, Fault>;

/// A session with a server that answers the greeting and then does this.
fn played(play: impl FnOnce(Player) + Send + 'static) -> (Session, JoinHandle<()>) {
    raw(|mut player| {
        let hello = player.next().unwrap();
        assert_eq!((hello.kind, hello.number), (packet::INIT, 3));
        player.say(2, 3, |_| ());
        play(player);
    })
}

fn raw(play: impl FnOnce(Player) + Send + 'static) -> (Session, JoinHandle<()>) {
    let ((from_us, to), (from, to_us)) = (pipe().unwrap(), pipe().unwrap());
    let server = std::thread::spawn(move || play(Player { from: from_us, to: to_us }));
    let answer = Duration::from_millis(500);
    (Connection::open((to.into(), from.into()), None, None, answer), server)
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Offset and length of a READ of the file `h`.
fn range(asked: &Asked) -> (usize, usize) {
    assert_eq!((asked.kind, &asked.body[..5]), (packet::READ, &[0, 0, 0, 1, b'h'][..]));
    (word(&asked.body, 9), word(&asked.body, 13))
}

/// P-150: replies in another order, and short ones, are put together as the file is.
#[test]
fn pieces_are_put_in_order() {
    let content: Vec<u8> = (0..300_000u32).map(|at| ((at * 13) >> 3) as u8).collect();
    let wanted = content.clone();
    let (session, server) = played(move |mut player| {
        let mut asked: Vec<Asked> = (0..4).map(|_| player.next().unwrap()).collect();
        // The last first, and each in two parts.
        while let Some(one) = asked.pop() {
            let (at, length) = range(&one);
            let half = length.div_ceil(2);
            player.data(one.number, &content[at..at + half]);
            if half < length {
                let rest = player.next().unwrap();
                assert_eq!(range(&rest), (at + half, length - half));
                player.data(rest.number, &content[at + half..at + length]);
            }
        }
        assert!(player.next().is_none());
    });
    let mut session = session.unwrap();
    let mut found: Vec<u8> = Vec::new();
    let given = session.read(b"h", 100, 120_000, &mut |piece| {
        found.extend(piece);
        Ok(())
    });
    assert_eq!(given.unwrap(), 120_000);
    assert!(found == wanted[100..120_100]);
    drop(session);
    server.join().unwrap();
}

/// A file that ends is short, and the session serves the next call: what was still asked for is passed over.
#[test]
fn the_end_of_a_file_ends_no_session() {
    let (session, server) = played(|mut player| {
        let asked: Vec<Asked> = (0..3).map(|_| player.next().unwrap()).collect();
        player.data(asked[0].number, &[1; 32 << 10]);
        player.data(asked[1].number, &[2; 10]);
        let rest = player.next().unwrap();
        player.status(rest.number, packet::STATUS_END);
        player.status(asked[2].number, packet::STATUS_END);
        let next = player.next().unwrap();
        player.say(105, next.number, |to| {
            to.extend(1u32.to_be_bytes());
            to.extend(77u64.to_be_bytes());
        });
        player.next();
    });
    let mut session = session.unwrap();
    let mut count = 0;
    let given = session.read(b"h", 0, 80_000, &mut |piece| {
        count += piece.len();
        Ok(())
    });
    assert_eq!((given.unwrap(), count), ((32 << 10) + 10, (32 << 10) + 10));
    assert_eq!(session.length_of(b"h").unwrap(), Some(77));
    drop(session);
    server.join().unwrap();
}

/// P-150: what no server should say ends the session with words, and never the program.
#[test]
fn servers_that_lie_are_left() {
    let lost = |play: fn(Player), words: &str| {
        let (session, server) = played(play);
        let outcome = session.and_then(|mut session| session.stat("x"));
        assert!(matches!(&outcome, Err(Fault::Lost(why)) if why.contains(words)), "{outcome:?}, not {words}");
        server.join().unwrap();
    };
    lost(
        |mut player| {
            let asked = player.next().unwrap();
            player.status(asked.number + 1, 0);
        },
        "not asked",
    );
    lost(
        |mut player| {
            let asked = player.next().unwrap();
            player.data(asked.number, b"x");
        },
        "something else",
    );
    lost(|mut player| drop(player.to.write_all(b"Welcome to the shed!")), "prints something");
    lost(|mut player| drop(player.to.write_all(&[0, 0, 0, 5, 99, 0, 0, 0, 1])), "unknown type");
    lost(|mut player| drop(player.next()), "has ended");
    // It takes the request and says nothing.
    lost(|mut player| while player.next().is_some() {}, "does not answer");
    let (session, server) = raw(|mut player| {
        player.next();
        player.say(2, 6, |_| ());
    });
    assert!(matches!(session.map(drop), Err(Fault::Lost(why)) if why.contains("SFTP 6")));
    server.join().unwrap();
}

/// P-202: a reply that comes a byte at a time ends the session.
#[test]
fn what_trickles_is_left() {
    let (session, server) = played(|mut player| {
        let asked = player.next().unwrap();
        let mut reply = Vec::new();
        request(&mut reply, 103, asked.number, |to| put_text(to, &[0; 200]));
        for byte in reply {
            std::thread::sleep(Duration::from_millis(100));
            if player.to.write_all(&[byte]).is_err() {
                break;
            }
        }
    });
    let begun = Instant::now();
    let outcome = session.and_then(|mut session| session.stat("x"));
    assert!(matches!(&outcome, Err(Fault::Lost(why)) if why.contains("bytes moved in 1 s")), "{outcome:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(outcome);
    server.join().unwrap();
}

/// P-202: a list without end is refused, also one of names that cannot be, which nobody keeps.
#[test]
fn lists_without_end_are_refused() {
    for name in [&b"segment"[..], b"a/b"] {
        let (session, server) = played(move |mut player| {
            let asked = player.next().unwrap();
            assert_eq!(asked.kind, packet::OPENDIR);
            player.say(102, asked.number, |to| put_text(to, b"h"));
            while let Some(asked) = player.next().filter(|asked| asked.kind == packet::READDIR) {
                player.say(104, asked.number, |to| {
                    to.extend(20_000_u32.to_be_bytes());
                    for _ in 0..20_000 {
                        put_text(to, name);
                        put_text(to, b"");
                        to.extend(0_u32.to_be_bytes());
                    }
                });
            }
        });
        let outcome = session.and_then(|mut session| session.list("x").map(|names| names.len()));
        assert!(matches!(&outcome, Err(Fault::Lost(why)) if why.contains("does not end")), "{outcome:?}");
        server.join().unwrap();
    }
}

/// A write that a server refuses in the middle ends there, and the session goes on.
#[test]
fn a_refused_write_says_why() {
    let (session, server) = played(|mut player| {
        let mut asked = 0;
        while let Some(one) = player.next() {
            asked += 1;
            match one.kind {
                packet::WRITE => player.status(one.number, if asked == 3 { packet::STATUS_FAILURE } else { 0 }),
                _ => player.say(105, one.number, |to| to.extend(0u32.to_be_bytes())),
            }
        }
    });
    let mut session = session.unwrap();
    let outcome = session.write(b"h", &vec![7; 3 << 20]);
    assert!(matches!(outcome, Err(Fault::Status { code: packet::STATUS_FAILURE, .. })), "{outcome:?}");
    assert!(session.stat("x").is_ok());
    drop(session);
    server.join().unwrap();
}

/// P-95: who is gone waits for no answer.
#[test]
fn who_is_gone_waits_for_no_answer() {
    let (session, server) = raw(|mut player| {
        player.next();
        player.say(2, 3, |_| ());
        while player.next().is_some() {}
    });
    let mut session = session.unwrap();
    let start = Instant::now();
    let is_gone = move || start.elapsed() > Duration::from_millis(50);
    session.cancellation = Cancellation::when(is_gone);
    let outcome = session.stat("x");
    assert!(matches!(outcome, Err(Fault::GivenUp)), "{outcome:?}");
    drop(session);
    server.join().unwrap();
}

/// P-149: what is told to ssh has nothing secret, and a host is never an option.
#[test]
fn ssh_is_asked_for_one_thing_only() {
    let volume = SftpVolume::open("sftp://me@[::1]:2022/x,identity=/a b,known_hosts=/c").unwrap();
    assert_eq!(volume.describe(), "sftp://me@[::1]:2022/x");
    let command = volume.command();
    let words: Vec<&str> = command.get_args().map(|word| word.to_str().unwrap()).collect();
    assert!(words.ends_with(&["-p", "2022", "-l", "me", "-s", "--", "::1", "sftp"]), "{words:?}");
    assert!(words.contains(&"BatchMode=yes") && words.contains(&"IdentityFile=\"/a b\""), "{words:?}");
    assert_eq!(SftpVolume::open("sftp://shed/~/x").unwrap().describe(), "sftp://shed/~/x");
}

/// A server that lets nobody in is not asked again at once, and readers are not kept.
#[test]
fn a_server_that_is_not_there_is_left_alone_for_a_while() {
    let volume = SftpVolume::open("sftp://127.0.0.1:1/x").unwrap();
    let error = volume.length("x").unwrap_err();
    assert!(matches!(error, VolumeError::Away { .. }), "{error}");
    let wait = |volume: &SftpVolume| volume.sessions.lock().failure.as_ref().map(|failure| failure.wait);
    assert_eq!(wait(&volume), Some(AGAIN));
    assert_eq!(volume.length("x").unwrap_err(), error, "at once, with the same words");
    volume.sessions.lock().failure.as_mut().unwrap().until = Instant::now();
    assert!(volume.length("x").is_err());
    assert_eq!(wait(&volume), Some(AGAIN * 2));
    assert_eq!(volume.sessions.lock().busy, 0);
}
