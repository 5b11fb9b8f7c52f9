//! What anybody who can use a mount may ask its daemon, and how it is known who asks.
//!
//! The control socket is for those who may change a pool. This one is for everybody: an abstract unix socket, named after the device
//! number that everything in the mount has. Who asks is told by the kernel; what it may ask about, it proves by an open handle: that
//! it got as far as there. A handle of another file system is refused. The client in turn looks whose socket it is: anybody could take
//! the name while no daemon has it. One question a conversation, one line of JSON; answers a line each.
//! Read next: `find.rs`; `mount/public.rs` is the daemon's side.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use stere_client_wire::handles;
use stere_client_wire::meet::{self, DeviceNumber, Place};

use crate::error::{At, Error, Result, refused};

pub use stere_client_wire::meet::{Peer, listen};

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    Find(crate::find::Asked),
    /// What the pool can now.
    Capabilities,
    /// Who wrote a file, or what happened to files.
    Watched {
        asked: crate::watch::Asked,
    },
    /// To read and write the file without the kernel in between: what follows are frames.
    Library {
        version: u32,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum PublicAnswer {
    /// Some of the files; maybe none, while the daemon goes on looking.
    Found {
        files: Vec<crate::find::FoundLine>,
    },
    /// That was all.
    Counted {
        files: u64,
    },
    /// Some of what was noted.
    Watched {
        facts: Vec<serde_json::Value>,
    },
    Capabilities {
        pool: serde_json::Value,
    },
    /// The session of the library begins.
    Library {
        version: u32,
    },
    /// It does not, and what open(2) would say to that.
    NotOpened {
        errno: i32,
        message: String,
    },
    /// With `is_usage` the question makes no sense.
    Refused {
        message: String,
        is_usage: bool,
    },
}

/// What was asked, by whom, and about which handles.
pub struct Asked {
    pub peer: Peer,
    /// Of the first handle, which is of this mount.
    pub place: Place,
    /// Both of them, where there are two.
    pub handles: Vec<OwnedFd>,
    pub question: Question,
}

/// A daemon that says nothing for so long is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that does not say what it wants is sent away.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that reads no answer for so long is given up.
const READER_PATIENCE: Duration = Duration::from_secs(600);
const QUESTION_BYTES_MAX: u64 = 1 << 20;

/// Asks the daemon that serves a path; gives where its answers come from.
pub fn ask(path: &Path, question: &Question) -> Result<Answers> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at("look at", path)?;
    let stream = meet::connect(&handle).map_err(|error| match error {
        stere_client_wire::Error::NotStere => Error::Refused(format!("{}: {error}", path.display())),
        stere_client_wire::Error::System(error) => Error::System(error),
        other => Error::Refused(other.to_string()),
    })?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(Error::System)?;
    handles::send(&stream, &[handle.as_fd()]).map_err(Error::System)?;
    // An open handle would keep the mount busy.
    drop(handle);
    let mut line = serde_json::to_vec(question).map_err(|error| Error::System(error.into()))?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(Error::System)?;
    Ok(Answers { reader: BufReader::new(stream) })
}

/// What a daemon answers, one by one.
pub struct Answers {
    reader: BufReader<UnixStream>,
}

impl Answers {
    pub fn next(&mut self) -> Result<PublicAnswer> {
        let mut line = String::new();
        let length = self.reader.read_line(&mut line).map_err(Error::System)?;
        if length == 0 {
            return refused("the pool's daemon ended before it answered; see its log");
        }
        match serde_json::from_str(&line) {
            Ok(PublicAnswer::Refused { message, is_usage: true }) => Err(Error::Usage(message)),
            Ok(PublicAnswer::Refused { message, .. }) => refused(message),
            Ok(answer) => Ok(answer),
            Err(error) => refused(format!(
                "the pool's daemon is of another version ({error}); unmount the pool and mount it again"
            )),
        }
    }
}

/// Takes a question: who asks, about which inode, and what.
pub fn hear(stream: &UnixStream, device: DeviceNumber) -> Result<Asked> {
    stream.set_read_timeout(Some(QUESTION_TIMEOUT)).map_err(Error::System)?;
    stream.set_write_timeout(Some(READER_PATIENCE)).map_err(Error::System)?;
    let peer = meet::credentials(stream).map_err(Error::System)?;
    let mut handles = handles::take(stream).map_err(Error::System)?;
    let Some(first) = handles.first() else {
        return refused("the question comes without an open handle of what it is about");
    };
    let place = meet::place_of(first).map_err(Error::System)?;
    if place.device != device {
        return refused("the question is about another file system");
    }
    let count = handles.len();
    if count == 1 {
        // It has told what it is of, and would keep the mount busy.
        handles.clear();
    }
    let mut line = String::new();
    let limited = std::io::Read::take(stream, QUESTION_BYTES_MAX);
    BufReader::new(limited).read_line(&mut line).map_err(Error::System)?;
    let question = match serde_json::from_str(&line) {
        Ok(question) => question,
        Err(error) => {
            return refused(format!("the question is not understood: {error}; is `stere` of another version?"));
        }
    };
    // With each question comes what it is about; only the library brings its memory as well.
    let wanted = if matches!(question, Question::Library { .. }) { 2 } else { 1 };
    if count != wanted {
        return refused(format!("the question needs {wanted} handles and comes with {count}"));
    }
    Ok(Asked { peer, place, handles, question })
}

/// Sends an answer; tells whether anybody still listens.
pub fn tell(mut stream: &UnixStream, answer: &PublicAnswer) -> bool {
    let Ok(mut line) = serde_json::to_vec(answer) else { return false };
    line.push(b'\n');
    stream.write_all(&line).is_ok()
}
