//! Talking to the daemon of a mounted pool through its control socket, and finding who serves which pool.
//!
//! The socket's path may be longer than the kernel takes, so it is always reached through an open directory.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use zeroize::Zeroizing;

use crate::message::{About, Answer, Request};
use stere_machine::error::{At, Error, Result, refused};
use stere_machine::registry::Registry;

/// Requests that only ask are answered at once; a daemon that does not is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

fn through_directory<T>(directory: &Path, name: &str, work: impl FnOnce(&Path) -> std::io::Result<T>) -> Result<T> {
    let open = std::fs::File::open(directory).at("open", directory)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
    work(&path).at("use the control socket in", directory)
}

/// What the names of owners' processes end with.
const OWNER: &str = ".owner";

fn socket_name(pool: &str) -> String {
    format!("{pool}.sock")
}

/// Under what name an owner's process is asked that serves a mount of its machine which stands by.
pub fn owner_name(pool: &str) -> String {
    format!("{pool}{OWNER}")
}

/// Connects to whoever answers under this name.
pub fn connect(registry: &Registry, name: &str) -> Option<UnixStream> {
    let directory = registry.run_directory().ok()?;
    through_directory(&directory, &socket_name(name), |path| UnixStream::connect(path)).ok()
}

/// Makes the socket of a pool. What a killed daemon left is replaced; the devices' locks say that it is dead.
pub fn listen(registry: &Registry, pool: &str) -> Result<UnixListener> {
    let directory = registry.run_directory()?;
    through_directory(&directory, &socket_name(pool), |path| {
        if std::fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_socket()) {
            std::fs::remove_file(path)?;
        }
        UnixListener::bind(path)
    })
}

/// Takes the socket away when the daemon ends.
pub fn remove(registry: &Registry, pool: &str) {
    if let Ok(directory) = registry.run_directory() {
        drop(std::fs::remove_file(directory.join(socket_name(pool))));
    }
}

/// A conversation with a daemon.
pub struct Connection {
    reader: BufReader<UnixStream>,
}

impl Connection {
    /// None if no daemon serves this pool.
    pub fn open(registry: &Registry, pool: &str) -> Option<Connection> {
        let stream = connect(registry, pool)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
        Some(Connection { reader: BufReader::new(stream) })
    }

    /// One that is begun already.
    pub fn of(stream: UnixStream) -> Connection {
        Connection { reader: BufReader::new(stream) }
    }

    /// Lets answers take as long as they take.
    pub fn wait_without_limit(&mut self) -> Result<()> {
        self.reader.get_ref().set_read_timeout(None).map_err(Error::System)
    }

    pub fn send(&mut self, request: &Request) -> Result<()> {
        // There may be a secret in it.
        let mut line = Zeroizing::new(serde_json::to_vec(request).map_err(|error| Error::System(error.into()))?);
        line.push(b'\n');
        self.reader.get_mut().write_all(&line).map_err(Error::System)
    }

    pub fn ask(&mut self, request: Request) -> Result<Answer> {
        self.send(&request)?;
        self.next_answer()?.map_or_else(|| refused("the pool's daemon ended before it answered; see its log"), Ok)
    }

    /// The next answer, or none if the daemon has ended.
    pub fn next_answer(&mut self) -> Result<Option<Answer>> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(Error::System(error)),
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Failed { message, ended: false }) => refused(message),
            Ok(answer) => Ok(Some(answer)),
            Err(error) => {
                refused(format!("the pool's daemon is of another version ({error}); unmount it with umount(8)"))
            }
        }
    }
}

/// Sends one answer; a client that has gone is no error.
pub fn send(stream: &mut UnixStream, answer: &Answer) {
    let _whether_heard = try_send(stream, answer);
}

/// Sends a message; tells whether the other side is still there.
pub fn try_send(stream: &mut UnixStream, message: &impl Serialize) -> bool {
    let Ok(mut line) = serde_json::to_vec(message) else { return false };
    assert!(!line.contains(&b'\n'), "a message is a line");
    line.push(b'\n');
    stream.write_all(&line).is_ok()
}

/// Everybody who serves a pool now.
pub fn daemons(registry: &Registry) -> Vec<About> {
    let Ok(entries) = registry.run_directory().and_then(|path| std::fs::read_dir(&path).at("read", &path)) else {
        return Vec::new();
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let pools = names.filter_map(|name| name.strip_suffix(".sock").map(str::to_owned));
    // Behind those of owners' processes is no mount of anybody's.
    let pools = pools.filter(|pool| !pool.ends_with(OWNER));
    let mut found: Vec<About> = pools.filter_map(|pool| about(registry, &pool)).collect();
    found.sort_by(|one, other| one.pool.cmp(&other.pool));
    found
}

/// Who serves this pool, if anybody does.
pub fn about(registry: &Registry, pool: &str) -> Option<About> {
    match Connection::open(registry, pool)?.ask(Request::About) {
        Ok(Answer::About(about)) => Some(about),
        _ => None,
    }
}
