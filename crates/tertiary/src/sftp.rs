//! A directory that ssh reaches as a volume: SFTP 3 over the pipes of the machine's own `ssh`.
//!
//! `ssh` is run as a person would run it, so hosts, keys, agents, jumps and `known_hosts` are what the user who mounts has in `~/.ssh`; it
//! asks nothing (`BatchMode`), so a host whose key is not known is not spoken to, and a key with a passphrase is of use in an agent
//! only. An object is a file: written under another name, synced and renamed over what is there, and the directory synced, where the
//! server can (OpenSSH's extensions).
//!
//! Invariants: a session is used by one call at a time, at most `SESSIONS_MAX` at once; one that was left in the middle of something is
//! used by nobody else. A server that lets nobody in is not asked again at once.
//! Read next: `sftp/connection.rs`, `sftp/transfer.rs`, `place/sftp.rs`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stere_device::{Cancellation, LOOK_BYTES, MediumWait, PIECE_BYTES, Take, Volume, VolumeError};

use crate::partial::{Partials, is_partial};
use crate::place::{PlaceError, SftpPlace};
use crate::{LIST_TIME, LIST_WITHOUT_END, NAMES_MAX};

mod connection;
mod files;
pub mod packet;
mod transfer;

use connection::{Connection, Fault};

/// Threads that wait for the same server.
const SESSIONS_MAX: usize = 4;
/// A server that lets nothing move for so long is away.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a server that was not reached is left alone: at first, at most, and where it refuses who comes.
const AGAIN: Duration = Duration::from_millis(250);
const AGAIN_MAX: Duration = Duration::from_secs(8);
const AGAIN_REFUSED: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// What is always said to ssh: it asks nobody, opens nothing but SFTP, and notices that a server is gone.
const OPTIONS: [&str; 12] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "ControlMaster=no",
    "ControlPath=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
];

/// A directory on another machine.
pub struct SftpVolume {
    place: SftpPlace,
    text: String,
    partials: Partials,
    sessions: Mutex<Sessions>,
    freed: Condvar,
}

#[derive(Default)]
struct Sessions {
    idle: Vec<Connection>,
    busy: usize,
    failure: Option<Failure>,
}

/// The server was not reached.
struct Failure {
    why: String,
    until: Instant,
    wait: Duration,
}

/// A turn at the server; it is given back in any case.
struct Turn<'a>(&'a SftpVolume);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut sessions = self.0.sessions.lock();
        assert!(sessions.busy > 0, "a turn is given back once");
        sessions.busy -= 1;
        drop(sessions);
        self.0.freed.notify_one();
    }
}

impl SftpVolume {
    /// Says nothing to the server yet.
    pub fn new(place: &SftpPlace) -> SftpVolume {
        let user = if place.user.is_empty() { String::new() } else { format!("{}@", place.user) };
        let host = if place.host.contains(':') { format!("[{}]", place.host) } else { place.host.clone() };
        let port = place.port.map_or(String::new(), |port| format!(":{port}"));
        let path = if place.path.starts_with('/') { place.path.clone() } else { format!("/~/{}", place.path) };
        let text = format!("sftp://{user}{host}{port}{path}");
        let (sessions, freed) = (Mutex::default(), Condvar::new());
        SftpVolume { place: place.clone(), text, partials: Partials::default(), sessions, freed }
    }

    /// The same for a place in words.
    pub fn open(place: &str) -> Result<SftpVolume, String> {
        let place: SftpPlace = place.parse().map_err(|error: PlaceError| error.to_string())?;
        Ok(SftpVolume::new(&place))
    }

    /// The program that speaks for us, and its arguments: nothing secret is among them.
    fn command(&self) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.args(OPTIONS.iter().flat_map(|option| ["-o", option]));
        if let Some(path) = &self.place.identity {
            ssh.args(["-o", "IdentitiesOnly=yes", "-o"]).arg(format!("IdentityFile=\"{}\"", path.display()));
        }
        if let Some(path) = &self.place.known_hosts {
            ssh.arg("-o").arg(format!("UserKnownHostsFile=\"{}\"", path.display()));
        }
        if let Some(port) = self.place.port {
            ssh.arg("-p").arg(port.to_string());
        }
        if !self.place.user.is_empty() {
            ssh.args(["-l", &self.place.user]);
        }
        ssh.args(["-s", "--", &self.place.host, "sftp"]);
        ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ssh
    }

    fn connect(&self) -> Result<Connection, Fault> {
        let mut child = self.command().spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Fault::Lost("the program ssh is not installed here; it comes with openssh-client".into())
            }
            _ => Fault::Lost(format!("ssh cannot be run: {error}")),
        })?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Fault::Lost("ssh has no pipes".into()));
        };
        let complaints = child.stderr.take().map(Into::into);
        Connection::open((to.into(), from.into()), complaints, Some(child), ANSWER)
    }

    /// A turn, and a session that nobody uses, if there is one.
    fn turn(&self, cancellation: &Cancellation) -> Result<(Turn<'_>, Option<Connection>), VolumeError> {
        let mut sessions = self.sessions.lock();
        loop {
            let idle = sessions.idle.pop();
            if idle.is_some() || sessions.busy < SESSIONS_MAX {
                sessions.busy += 1;
                drop(sessions);
                return Ok((Turn(self), idle));
            }
            if cancellation.is_cancelled() {
                return Err(VolumeError::GivenUp { volume: self.text.clone() });
            }
            self.freed.wait_for(&mut sessions, LOOK);
        }
    }

    /// A session, a new one if need be. Where nobody was let in just now, that is still so.
    fn session(&self, idle: Option<Connection>) -> Result<Connection, Fault> {
        if let Some(mut session) = idle
            && session.is_alive()
        {
            return Ok(session);
        }
        if let Some(failure) = self.sessions.lock().failure.as_ref().filter(|failure| failure.until > Instant::now()) {
            return Err(Fault::Lost(failure.why.clone()));
        }
        let outcome = self.connect();
        let mut sessions = self.sessions.lock();
        let before = sessions.failure.take().map_or(AGAIN / 2, |failure| failure.wait);
        if let Err(Fault::Lost(why)) = &outcome {
            let is_refused = ["Permission denied", "Host key verification", "Too many authentication"];
            let wait = match is_refused.iter().any(|words| why.contains(words)) {
                true => AGAIN_REFUSED,
                false => (before * 2).min(AGAIN_MAX),
            };
            sessions.failure = Some(Failure { why: why.clone(), until: Instant::now() + wait, wait });
        }
        outcome
    }

    /// Does something in a session.
    fn with<T>(
        &self,
        cancellation: &Cancellation,
        act: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, VolumeError> {
        let (turn, idle) = self.turn(cancellation)?;
        let outcome = self.session(idle).and_then(|mut session| {
            session.cancellation = cancellation.clone();
            let outcome = act(&mut session);
            session.cancellation = Cancellation::NONE;
            if !matches!(outcome, Err(Fault::Lost(_) | Fault::GivenUp)) {
                let mut sessions = self.sessions.lock();
                assert!(sessions.idle.len() < SESSIONS_MAX, "there are {} more sessions", sessions.idle.len());
                sessions.idle.push(session);
            }
            outcome
        });
        drop(turn);
        outcome.map_err(|fault| match fault {
            Fault::GivenUp => VolumeError::GivenUp { volume: self.text.clone() },
            Fault::Object(error) => error,
            Fault::Lost(why) => self.away(why),
            Fault::Status { code: packet::STATUS_DENIED, words } => self.away(format!("the server refuses: {words}")),
            Fault::Status { code, words } => self.away(format!("the server answers {code} {words}")),
        })
    }

    fn away(&self, why: impl std::fmt::Display) -> VolumeError {
        VolumeError::Away { volume: self.text.clone(), why: why.to_string() }
    }

    fn full(&self) -> VolumeError {
        VolumeError::Full { volume: self.text.clone() }
    }

    /// Where an object is on the server.
    fn path(&self, object: &str) -> String {
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        assert!(object.split('/').all(is_plain), "an object's name leads nowhere else: {object}");
        format!("{}/{object}", self.place.path)
    }

    fn root(&self) -> &str {
        if self.place.path.is_empty() { "/" } else { &self.place.path }
    }

    /// Hands on a part of an object, of at least `length` bytes from `offset` on.
    fn read(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        cancellation: &Cancellation,
        give: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), VolumeError> {
        self.with(cancellation, |session| {
            let handle = match session.open_file(&self.path(object), packet::READING) {
                Err(Fault::Status { code: packet::STATUS_NO_SUCH_FILE, .. }) => {
                    return Err(self.missing(session, object)?);
                }
                outcome => outcome?,
            };
            let outcome = session.read(&handle, offset, length, give);
            let length_found = match outcome {
                Ok(given) if given < length => session.length_of(&handle).map(|found| found.unwrap_or(offset)),
                _ => Ok(0),
            };
            session.forget(&handle);
            if outcome? < length {
                return Err(Fault::Object(VolumeError::Short {
                    volume: self.text.clone(),
                    object: object.to_owned(),
                    length: length_found?,
                    needed: offset + length as u64,
                }));
            }
            Ok(())
        })
    }

    /// A missing file means a missing object only where the directory is there.
    fn missing(&self, session: &mut Connection, object: &str) -> Result<Fault, Fault> {
        match session.stat(self.root()) {
            Ok(found) if found.is_directory() => {
                Ok(Fault::Object(VolumeError::NoObject { volume: self.text.clone(), object: object.to_owned() }))
            }
            Ok(_) => Ok(Fault::Object(self.away("it is no directory"))),
            Err(Fault::Status { code: packet::STATUS_NO_SUCH_FILE, .. }) => {
                Ok(Fault::Object(self.away("there is no such directory; make it, or mount what it lies on")))
            }
            Err(fault) => Err(fault),
        }
    }

    /// What is no error where something is to be gone.
    fn unless_missing<T>(
        &self,
        session: &mut Connection,
        object: &str,
        outcome: Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(Fault::Status { code: packet::STATUS_NO_SUCH_FILE, .. }) => match self.missing(session, object)? {
                Fault::Object(VolumeError::NoObject { .. }) => Ok(None),
                fault => Err(fault),
            },
            Err(fault) => Err(fault),
        }
    }

    /// Opens a file to be written; of an earlier try nothing stays, and the object's directory is made.
    fn open_partial(&self, session: &mut Connection, object: &str, partial: &str) -> Result<Vec<u8>, Fault> {
        match session.open_file(partial, packet::WRITING_NEW) {
            Err(Fault::Status { code: packet::STATUS_NO_SUCH_FILE, .. }) => {
                let outcome = self.missing(session, object)?;
                let above = object.rsplit_once('/').map(|(above, _)| self.path(above));
                match (outcome, above) {
                    (Fault::Object(VolumeError::NoObject { .. }), Some(above)) => session.make_directory(&above)?,
                    (fault, _) => return Err(fault),
                }
            }
            Err(Fault::Status { code, .. }) if code != packet::STATUS_DENIED => session.remove(partial)?,
            outcome => return outcome,
        }
        session.open_file(partial, packet::WRITING_NEW)
    }

    fn write(&self, session: &mut Connection, object: &str, partial: &str, bytes: &[u8]) -> Result<(), Fault> {
        let handle = self.open_partial(session, object, partial)?;
        let written = session.write(&handle, bytes);
        let closed = session.sync_and_close(&handle);
        written.and(closed)?;
        let path = self.path(object);
        session.rename_over(partial, &path)?;
        session.sync_directory(path.rsplit_once('/').map_or("/", |(above, _)| above))
    }

    /// Whether a file system on the server has no room for so many bytes: SFTP has no word for it.
    fn is_full(&self, session: &mut Connection, fault: &Fault, bytes: usize) -> bool {
        let Fault::Status { code: packet::STATUS_FAILURE | packet::STATUS_DENIED, words } = fault else { return false };
        let words = words.to_lowercase();
        let is_said = words.contains("no space") || words.contains("quota");
        is_said || session.free_bytes(self.root()).is_ok_and(|free| free.is_some_and(|free| free < bytes as u64))
    }
}

impl Volume for SftpVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        let partial = self.partials.take(object);
        let path = self.path(&partial.name);
        self.with(&Cancellation::NONE, |session| {
            let outcome = self.write(session, object, &path, bytes);
            match outcome {
                Err(fault @ Fault::Status { .. }) => {
                    let is_full = self.is_full(session, &fault, bytes.len());
                    drop(session.remove(&path));
                    Err(if is_full { Fault::Object(self.full()) } else { fault })
                }
                outcome => outcome,
            }
        })
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        let (length, mut filled) = (into.len(), 0);
        let outcome = self.read(object, offset, length, &wait.cancellation, &mut |bytes| {
            into[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
            Ok(())
        });
        assert!(outcome.is_err() || filled == length, "{filled} bytes of {length} were filled");
        outcome
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        self.stream_part(object, 0, length, take, cancellation)
    }

    fn stream_part(
        &self,
        object: &str,
        offset: u64,
        length: usize,
        take: &Take,
        cancellation: &Cancellation,
    ) -> Result<(), VolumeError> {
        let (mut given, mut looked) = (0, 0);
        self.read(object, offset, length, cancellation, &mut |bytes| {
            bytes.chunks(PIECE_BYTES).for_each(|piece| take(piece));
            given += bytes.len();
            if given - looked >= LOOK_BYTES {
                looked = given;
                if cancellation.is_cancelled() {
                    return Err(Fault::GivenUp);
                }
            }
            Ok(())
        })
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.length_for(object, &Cancellation::NONE)
    }

    fn length_for(&self, object: &str, cancellation: &Cancellation) -> Result<Option<u64>, VolumeError> {
        self.with(cancellation, |session| {
            let found = session.stat(&self.path(object));
            let found = self.unless_missing(session, object, found)?;
            Ok(found.map(|found| found.length.unwrap_or(0)))
        })
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.with(&Cancellation::NONE, |session| {
            let outcome = session.remove(&self.path(object));
            self.unless_missing(session, object, outcome).map(drop)
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.with(&Cancellation::NONE, |session| {
            let (mut found, mut names, begun) = (Vec::new(), 0, Instant::now());
            let mut folders = match prefix.rsplit_once('/') {
                Some((folder, _)) => vec![folder.to_owned()],
                None => vec![String::new()],
            };
            while let Some(folder) = folders.pop() {
                let path = if folder.is_empty() { self.root().to_owned() } else { self.path(&folder) };
                let entries = session.list(&path);
                if begun.elapsed() > LIST_TIME {
                    return Err(Fault::Lost(LIST_WITHOUT_END.into()));
                }
                let Some(entries) = self.unless_missing(session, prefix, entries)? else { continue };
                names += entries.len();
                if names > NAMES_MAX {
                    return Err(Fault::Lost(LIST_WITHOUT_END.into()));
                }
                for (name, attributes) in entries {
                    let whole = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                    if attributes.is_directory() && folder.is_empty() {
                        folders.push(whole);
                    } else if attributes.is_file() && !is_partial(&whole) && whole.starts_with(prefix) {
                        found.push((whole, attributes.length.unwrap_or(0)));
                    }
                }
            }
            found.sort_unstable();
            Ok(found)
        })
    }

    fn free_bytes(&self) -> Option<u64> {
        self.with(&Cancellation::NONE, |session| session.free_bytes(self.root())).ok().flatten()
    }

    fn describe(&self) -> String {
        self.text.clone()
    }

    fn close(&self) {
        self.sessions.lock().idle.clear();
    }
}

#[cfg(test)]
mod tests;
