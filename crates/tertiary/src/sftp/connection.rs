//! One SFTP session over two pipes: requests go out, replies come in, and no wait is without an end.
//!
//! A session is used by one call at a time. A call may have many requests under way; whose replies nobody wants any more (`abandon`) are
//! passed over when they come. Invariants: memory is bounded whatever the server sends (`REPLY_BYTES_MAX`, `WINDOW_BYTES`); a reply to
//! what was not asked ends the session; so does a server that lets nothing move for `answer`, or a caller who is gone.
//! Read next: `packet.rs`, `transfer.rs`, `../sftp.rs`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use stere_device::{Cancellation, VolumeError};

use super::packet::{self, Reply, put_text};

/// How often it is looked whether anybody still wants the answer.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// What moves at least while a reply is waited for, in twice the time that nothing may move.
const LEAST_BYTES: usize = 4 << 10;
/// A reply is not longer: a piece of a file, or a part of a list.
const REPLY_BYTES_MAX: usize = 512 << 10;
/// What is on its way in one direction at most.
pub(super) const WINDOW_BYTES: usize = 2 << 20;
/// What every server takes in one request, and what we ask for at most where it says that it takes more.
const PIECE_BYTES: u64 = 32 << 10;
const PIECE_BYTES_MAX: u64 = 255 << 10;
/// Of what `ssh` complains about.
const WORDS_BYTES_MAX: usize = 4 << 10;
const HANDLE_BYTES_MAX: usize = 256;
/// Time for names, keys and greetings.
const HELLO: Duration = Duration::from_secs(30);

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server said so; the session goes on.
    Status { code: u32, words: String },
    /// The session has ended, or is of no use.
    Lost(String),
    /// Nobody wants it any more; the session is in the middle of something.
    GivenUp,
    /// What is wrong with an object; the session goes on.
    Object(VolumeError),
}

/// What a server can.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Abilities {
    pub(super) read_bytes: usize,
    pub(super) write_bytes: usize,
    pub(super) has_fsync: bool,
    pub(super) has_posix_rename: bool,
    pub(super) has_statvfs: bool,
}

/// A program that is the other end of the pipes. It ends with the session.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(super) struct Connection {
    /// Who cancels the request that has the session now.
    pub(super) cancellation: Cancellation,
    to: OwnedFd,
    from: OwnedFd,
    complaints: Option<OwnedFd>,
    complained: Vec<u8>,
    incoming: Vec<u8>,
    /// Where in `incoming` the next reply begins.
    start: usize,
    outgoing: Vec<u8>,
    last_number: u32,
    abandoned: BTreeSet<u32>,
    answer: Duration,
    /// How long was waited since a reply was whole or much had moved, and how many bytes moved meanwhile.
    waited: Duration,
    trickled: usize,
    pub(super) abilities: Abilities,
    _peer: Option<Peer>,
}

impl Connection {
    /// Greets a server; a server that lets nothing move for `answer` is gone afterwards.
    pub(super) fn open(
        (to, from): (OwnedFd, OwnedFd),
        complaints: Option<OwnedFd>,
        child: Option<Child>,
        answer: Duration,
    ) -> Result<Connection, Fault> {
        let peer = child.map(Peer);
        for pipe in [Some(&to), Some(&from), complaints.as_ref()].into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true).map_err(|error| Fault::Lost(error.to_string()))?;
        }
        let mut connection = Connection {
            cancellation: Cancellation::NONE,
            to,
            from,
            complaints,
            complained: Vec::new(),
            incoming: Vec::new(),
            start: 0,
            outgoing: Vec::new(),
            last_number: 0,
            abandoned: BTreeSet::new(),
            answer: HELLO.min(answer),
            waited: Duration::ZERO,
            trickled: 0,
            abilities: Abilities::default(),
            _peer: peer,
        };
        connection.greet()?;
        connection.answer = answer;
        Ok(connection)
    }

    fn greet(&mut self) -> Result<(), Fault> {
        packet::request(&mut self.outgoing, packet::INIT, packet::VERSION, |_| ());
        let (version, extensions) = self.receive(|_, reply| match reply {
            Reply::Version(version, extensions) => Ok((version, extensions)),
            _ => Err(Fault::Lost("it does not say which SFTP it speaks".into())),
        })?;
        if version != packet::VERSION {
            return Err(Fault::Lost(format!("it speaks SFTP {version}, and not 3")));
        }
        let has = |name: &str, version: &str| extensions.iter().any(|(one, which)| one == name && which == version);
        let mut pieces = (PIECE_BYTES, PIECE_BYTES);
        if has("limits@openssh.com", "1") {
            let number = self.extended("limits@openssh.com", |_| ());
            let said = self.answer_to(number, |reply| match reply {
                Reply::Extended(bytes) => {
                    let mut fields = packet::Fields(bytes);
                    fields.u64().and_then(|_| Ok((fields.u64()?, fields.u64()?))).ok()
                }
                _ => None,
            })?;
            let sized = |said: u64| if said == 0 { PIECE_BYTES } else { said.clamp(1 << 10, PIECE_BYTES_MAX) };
            pieces = (sized(said.0), sized(said.1));
        }
        self.abilities = Abilities {
            read_bytes: pieces.0 as usize,
            write_bytes: pieces.1 as usize,
            has_fsync: has("fsync@openssh.com", "1"),
            has_posix_rename: has("posix-rename@openssh.com", "1"),
            has_statvfs: has("statvfs@openssh.com", "2"),
        };
        Ok(())
    }

    /// Sends a request with the next reply; says its number.
    pub(super) fn ask(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        packet::request(&mut self.outgoing, kind, self.last_number, body);
        self.last_number
    }

    pub(super) fn extended(&mut self, name: &str, body: impl FnOnce(&mut Vec<u8>)) -> u32 {
        self.ask(packet::EXTENDED, |to| {
            put_text(to, name.as_bytes());
            body(to);
        })
    }

    /// Nobody wants this reply.
    pub(super) fn abandon(&mut self, number: u32) {
        let is_new = self.abandoned.insert(number);
        assert!(is_new, "a reply is abandoned once: {number}");
    }

    /// The reply to the only request that is under way; `take` says whether it is of the right kind.
    pub(super) fn answer_to<T>(&mut self, number: u32, take: impl FnOnce(Reply<'_>) -> Option<T>) -> Result<T, Fault> {
        self.receive(|found, reply| match reply {
            _ if found != number => Err(unasked()),
            Reply::Status { code, words } if code != packet::STATUS_OK => Err(Fault::Status { code, words }),
            reply => take(reply).ok_or_else(|| Fault::Lost("it answers something else than was asked".into())),
        })
    }

    /// The same for a request that only succeeds or fails.
    pub(super) fn success_of(&mut self, number: u32) -> Result<(), Fault> {
        self.answer_to(number, |reply| matches!(reply, Reply::Status { .. }).then_some(()))
    }

    pub(super) fn handle_of(&mut self, number: u32) -> Result<Vec<u8>, Fault> {
        self.answer_to(number, |reply| match reply {
            Reply::Handle(handle) if handle.len() <= HANDLE_BYTES_MAX => Some(handle.to_vec()),
            _ => None,
        })
    }

    /// Waits for the next reply.
    pub(super) fn receive<T>(&mut self, take: impl FnOnce(u32, Reply<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        loop {
            let end = loop {
                match self.whole_reply()? {
                    Some(end) => {
                        (self.waited, self.trickled) = (Duration::ZERO, 0);
                        break end;
                    }
                    None => self.move_something()?,
                }
            };
            let bytes = &self.incoming[self.start + 4..end];
            let (number, reply) = packet::decode(bytes).map_err(|error| Fault::Lost(error.to_string()))?;
            if self.abandoned.remove(&number) {
                self.start = end;
                continue;
            }
            let outcome = take(number, reply);
            self.start = end;
            return outcome;
        }
    }

    /// Where the next reply ends, if it is here.
    fn whole_reply(&self) -> Result<Option<usize>, Fault> {
        let Some(length) = self.incoming[self.start..].first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > REPLY_BYTES_MAX {
            let what = "it says what is no SFTP; perhaps its shell prints something when one logs in";
            return Err(Fault::Lost(what.into()));
        }
        let end = self.start + 4 + length;
        Ok((end <= self.incoming.len()).then_some(end))
    }

    /// Waits until a byte went out or came in.
    fn move_something(&mut self) -> Result<(), Fault> {
        let (begun, before) = (Instant::now(), self.incoming.len() - self.start + self.outgoing.len());
        loop {
            if self.try_moving(Some(&LOOK))? {
                let now = self.incoming.len() - self.start + self.outgoing.len();
                return self.judge_trickle(begun.elapsed(), now.abs_diff(before));
            }
            if self.cancellation.is_cancelled() {
                return Err(Fault::GivenUp);
            }
            if begun.elapsed() >= self.answer {
                return Err(Fault::Lost("it does not answer".into()));
            }
        }
    }

    /// A byte now and then is not enough.
    fn judge_trickle(&mut self, waited: Duration, bytes: usize) -> Result<(), Fault> {
        self.waited += waited;
        self.trickled += bytes;
        if self.trickled >= LEAST_BYTES {
            (self.waited, self.trickled) = (Duration::ZERO, 0);
        }
        match self.waited > 2 * self.answer {
            true => {
                let (bytes, seconds) = (self.trickled, self.waited.as_secs());
                Err(Fault::Lost(format!(
                    "{bytes} bytes moved in {seconds} s; look whether it works, and the way to it"
                )))
            }
            false => Ok(()),
        }
    }

    /// Whether a byte went out or came in.
    fn try_moving(&mut self, timeout: Option<&Timespec>) -> Result<bool, Fault> {
        let mut all = vec![PollFd::new(&self.from, PollFlags::IN)];
        all.extend(self.complaints.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        if !self.outgoing.is_empty() {
            all.push(PollFd::new(&self.to, PollFlags::OUT));
        }
        match poll(&mut all, timeout) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(error) => return Err(Fault::Lost(error.to_string())),
        }
        let has_come = !all[0].revents().is_empty();
        drop(all);
        self.hear_complaints();
        let mut has_moved = false;
        if !self.outgoing.is_empty() {
            match rustix::io::write(&self.to, &self.outgoing) {
                Ok(count) => {
                    drop(self.outgoing.drain(..count));
                    has_moved = count > 0;
                }
                Err(error) if is_later(error) => {}
                Err(_) => return Err(self.lost()),
            }
        }
        Ok(self.take_in(has_come)? || has_moved)
    }

    fn take_in(&mut self, has_come: bool) -> Result<bool, Fault> {
        if !has_come {
            return Ok(false);
        }
        if self.start > 0 {
            drop(self.incoming.drain(..self.start));
            self.start = 0;
        }
        let filled = self.incoming.len();
        self.incoming.resize(filled + (64 << 10), 0);
        let outcome = rustix::io::read(&self.from, &mut self.incoming[filled..]);
        self.incoming.truncate(filled + outcome.unwrap_or(0));
        match outcome {
            Ok(0) => Err(self.lost()),
            Ok(_) => Ok(true),
            Err(error) if is_later(error) => Ok(false),
            Err(_) => Err(self.lost()),
        }
    }

    fn hear_complaints(&mut self) {
        let mut bytes = [0; 1024];
        while let Some(pipe) = &self.complaints {
            match rustix::io::read(pipe, &mut bytes) {
                Ok(count) if count > 0 => self.complained.extend(&bytes[..count]),
                Err(error) if is_later(error) => break,
                _ => self.complaints = None,
            }
            let more = self.complained.len().saturating_sub(WORDS_BYTES_MAX);
            drop(self.complained.drain(..more));
        }
    }

    /// The other end is closed: why, as far as it said.
    fn lost(&mut self) -> Fault {
        let begun = Instant::now();
        while self.complaints.is_some() && begun.elapsed() < Duration::from_secs(1) {
            if let Some(pipe) = &self.complaints
                && poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&LOOK)).is_err()
            {
                break;
            }
            self.hear_complaints();
        }
        let said = String::from_utf8_lossy(&self.complained);
        let plain = |line: &str| line.trim().chars().filter(|one| !one.is_control()).take(200).collect::<String>();
        let lines: Vec<String> = said.lines().map(plain).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(2)..].join("; ");
        Fault::Lost(if last.is_empty() { "the connection has ended".into() } else { last })
    }

    /// Whether a session that was not used for a while is still there.
    pub(super) fn is_alive(&mut self) -> bool {
        loop {
            match self.try_moving(Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Ok(true) if self.incoming.len() <= WINDOW_BYTES * 2 => {}
                Ok(has_moved) => return !has_moved,
                Err(_) => return false,
            }
        }
    }
}

pub(super) fn unasked() -> Fault {
    Fault::Lost("it answers what was not asked".into())
}

fn is_later(error: Errno) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
