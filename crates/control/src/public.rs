//! What anybody who can use a mount may ask its daemon, and how it is known who asks.
//!
//! The control socket is for those who may change a pool. This one is for everybody who may use the mount: a unix socket below a directory of
//! whoever mounted, named after the device number that everything in the mount has. Who asks is told by the kernel; what it may ask about,
//! it proves by an open handle: that it got as far as there. A handle of another file system is refused. A mount without `allow_other` answers its
//! owner and root. The client in turn looks whose directory and socket it is. One question a conversation, one line of JSON; answers a
//! line each.
//! Read next: `find.rs`; in the crate `daemon`, `receiver.rs` takes questions and `public.rs` answers them.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use stere_client_wire::{handles, meet};

use stere_machine::error::{At, Error, Result, refused};

pub use stere_client_wire::meet::Peer;

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

/// A daemon that says nothing for so long is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks the daemon that serves a path; gives where its answers come from.
pub fn ask(path: &Path, question: &Question) -> Result<Answers> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at("look at", path)?;
    let stream = meet::connect(&handle).map_err(|error| match error {
        stere_client_wire::Error::NotStere => Error::Refused(format!("{}: {error}", path.display())),
        // The kernel itself keeps others out of a mount without allow_other.
        stere_client_wire::Error::System(error) if error.kind() == ErrorKind::PermissionDenied => {
            Error::Refused(format!(
                "{}: only the user who mounted it, and root, may ask; for others it is mounted with `-o allow_other`",
                path.display()
            ))
        }
        stere_client_wire::Error::System(error) => Error::System(error),
        other => Error::Refused(other.to_string()),
    })?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(Error::System)?;
    unless_refused(handles::send(&stream, &[handle.as_fd()]))?;
    // An open handle would keep the mount busy.
    drop(handle);
    let mut line = serde_json::to_vec(question).map_err(|error| Error::System(error.into()))?;
    line.push(b'\n');
    unless_refused((&stream).write_all(&line))?;
    Ok(Answers { reader: BufReader::new(stream) })
}

/// A question that is refused before it was heard cannot be sent: the answer says why.
fn unless_refused(sent: std::io::Result<()>) -> Result<()> {
    match sent {
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(()),
        other => other.map_err(Error::System),
    }
}

/// What a daemon answers, one by one.
pub struct Answers {
    reader: BufReader<UnixStream>,
}

impl Answers {
    pub fn next_answer(&mut self) -> Result<PublicAnswer> {
        let mut line = String::new();
        let length = match self.reader.read_line(&mut line) {
            // Closed with the question in it, and perhaps before the reason could be read.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return refused("the pool's daemon takes no question of this user now; try again in a moment");
            }
            other => other.map_err(Error::System)?,
        };
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

/// Sends an answer; tells whether anybody still listens.
pub fn tell(mut stream: &UnixStream, answer: &PublicAnswer) -> bool {
    let Ok(mut line) = serde_json::to_vec(answer) else { return false };
    line.push(b'\n');
    stream.write_all(&line).is_ok()
}
