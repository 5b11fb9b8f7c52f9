//! The process that takes what strangers pass: a program of its own beside the daemon, which may be lost.
//!
//! Anybody may connect to a mount's public socket and pass open files with the question. To close one asks the file system that it is of, which
//! may never answer (a FUSE server of the client's own), and a thread that waits for it cannot be killed. So the daemon never holds a
//! stranger's descriptor: this process accepts connections, and a child of it, one for each, receives the greeting, judges it, closes the
//! files and hands the daemon what is harmless: the connection, and memory that the library shares. The child lives until the daemon has
//! closed the connection, so that files that are still queued in it are closed by the child and not by the daemon.
//!
//! Invariants: the daemon neither receives nor closes last a descriptor that a client passed; the number of children is bounded, in all and for
//! each user; connections beyond that are set aside, shut, and closed by one child a user. One thread only, so `fork` is safe.
//! Read next: `public.rs` (the daemon's end), `receiver/judge.rs`.

pub mod judge;

use std::io::{BufRead, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};
use serde::{Deserialize, Serialize};
use stere_client_wire::handles;
use stere_client_wire::meet::{self, DeviceNumber, Peer, Place};

use stere_control::public::{self, PublicAnswer, Question};
use stere_machine::error::{Error, Result, refused};

/// Children that serve connections, in all and of one user: sessions of the library are among them.
const CHILDREN_MAX: usize = 128;
const CHILDREN_OF_USER_MAX: usize = 24;

/// A client has so long to say what it wants, from the first byte to the last.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
const QUESTION_BYTES_MAX: usize = 1 << 20;

/// After which it is looked again whether descriptors are free.
const AGAIN: Duration = Duration::from_millis(100);

/// What the daemon gets of a question that was found to be in order.
#[derive(Debug, Serialize, Deserialize)]
pub struct Heard {
    pub peer: Peer,
    pub place: Place,
    /// What the descriptor of a session lets its holder do, and the length of the memory that comes with it.
    pub session: Option<(Rights, u64)>,
    pub question: Question,
}

/// What a descriptor lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
}

/// A client as the daemon has it. The fields go in this order: the receiver's child is let go when it is the last to hold the connection.
#[derive(Debug)]
pub struct Client {
    pub stream: UnixStream,
    child: UnixStream,
}

/// The daemon's end: where clients arrive.
pub struct Receiver {
    channel: UnixStream,
}

impl Receiver {
    /// Starts the process on this socket, of which the daemon keeps nothing.
    pub fn start(listener: UnixListener, (major, minor): DeviceNumber, only: Option<u32>) -> Result<Receiver> {
        let (ours, theirs) = UnixStream::pair().map_err(Error::System)?;
        // This very program, also when another version was put in its place.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("stere").arg("receive").arg(major.to_string()).arg(minor.to_string());
        command.args(only.map(|only| format!("--only={only}")));
        command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::from(OwnedFd::from(theirs)));
        command.stderr(Stdio::null()).current_dir("/");
        // SAFETY: setsid is async-signal-safe.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        // It ends when the daemon does, and is waited for by nobody: it may be lost.
        drop(command.spawn().map_err(Error::System)?);
        Ok(Receiver { channel: ours })
    }

    /// The next client, with its memory if it is one of the library; none when the receiver has ended.
    pub fn next(&self) -> std::io::Result<Option<(Client, Option<OwnedFd>)>> {
        let mut handles = handles::take(&self.channel)?.into_iter();
        let (Some(child), Some(stream)) = (handles.next(), handles.next()) else { return Ok(None) };
        let client = Client { stream: stream.into(), child: child.into() };
        Ok(Some((client, handles.next())))
    }
}

impl Client {
    /// What it asks; the receiver's child says so.
    pub fn heard(&self) -> Result<Heard> {
        let mut line = String::new();
        std::io::BufReader::new(&self.child).read_line(&mut line).map_err(Error::System)?;
        serde_json::from_str(&line).map_err(|error| Error::System(error.into()))
    }
}

/// One child.
struct Child {
    process: OwnedFd,
    pid: Pid,
    uid: u32,
    is_closer: bool,
}

/// What the process is told when it is started.
#[derive(Debug, Clone)]
pub struct Start {
    pub mount: DeviceNumber,
    /// Nobody but this user and root is answered.
    pub only: Option<u32>,
}

/// The process itself: the socket is its standard input, the channel to the daemon its standard output.
pub fn run(arguments: &Start) -> u8 {
    // SAFETY: both were given to this process for this purpose, and nothing else here uses them.
    let (listener, channel) = unsafe { (UnixListener::from_raw_fd(0), UnixStream::from_raw_fd(1)) };
    raise_limit();
    let mut state = State { arguments, channel, children: Vec::new(), aside: Vec::new() };
    loop {
        let mut ends: Vec<PollFd<'_>> = vec![
            PollFd::new(&listener, PollFlags::IN),
            // Readable only when the daemon has gone: it sends nothing.
            PollFd::new(&state.channel, PollFlags::IN),
        ];
        ends.extend(state.children.iter().map(|child| PollFd::new(&child.process, PollFlags::IN)));
        if poll(&mut ends, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return stere_machine::error::ERROR;
        }
        let (has_client, is_over) = (!ends[0].revents().is_empty(), !ends[1].revents().is_empty());
        drop(ends);
        if is_over {
            return stere_machine::error::DONE;
        }
        state.bury();
        if has_client {
            match listener.accept() {
                Ok((stream, _)) => state.meet(stream),
                // Out of descriptors: some are set aside, and will be closed.
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
    }
}

/// Connections that are set aside take descriptors; a user can have no more under way than his own limit.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _whether_raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

struct State<'a> {
    arguments: &'a Start,
    channel: UnixStream,
    children: Vec<Child>,
    /// Refused, shut and not closed yet.
    aside: Vec<(u32, UnixStream)>,
}

impl State<'_> {
    /// Takes note of children that have ended.
    fn bury(&mut self) {
        self.children.retain(|child| !matches!(waitpid(Some(child.pid), WaitOptions::NOHANG), Ok(Some(_)) | Err(_)));
        self.close_aside();
    }

    fn meet(&mut self, stream: UnixStream) {
        let Ok(peer) = meet::credentials(&stream) else { return self.set_aside(u32::MAX, stream) };
        if self.arguments.only.is_some_and(|only| peer.uid != only && peer.uid != 0) {
            return self.refuse(
                &peer,
                stream,
                "this mount is for the user who made it only; ask for -o allow_other, or look at it as that user",
            );
        }
        let serving = || self.children.iter().filter(|child| !child.is_closer);
        let of_user = serving().filter(|child| child.uid == peer.uid).count();
        if of_user >= CHILDREN_OF_USER_MAX || serving().count() >= CHILDREN_MAX {
            let why = match of_user >= CHILDREN_OF_USER_MAX {
                true => {
                    "too many questions and files of the library of this user are under way in this pool; try again when one has ended"
                }
                false => "too many questions are under way in this pool; try again when one has ended",
            };
            return self.refuse(&peer, stream, why);
        }
        let uid = peer.uid;
        let (device, channel) = (self.arguments.mount, self.channel.try_clone());
        let Ok(channel) = channel else { return self.set_aside(uid, stream) };
        self.start(uid, false, vec![stream], move |mut streams| {
            if let Some(stream) = streams.pop() {
                serve(&channel, stream, &peer, device);
            }
        });
    }

    fn refuse(&mut self, peer: &Peer, stream: UnixStream, why: &str) {
        drop(stream.set_nonblocking(true));
        public::tell(&stream, &PublicAnswer::Refused { message: why.into(), is_usage: false });
        self.set_aside(peer.uid, stream);
    }

    /// Nothing more can be sent there; what is queued there already is closed by a child.
    fn set_aside(&mut self, uid: u32, stream: UnixStream) {
        drop(stream.shutdown(Shutdown::Both));
        self.aside.push((uid, stream));
        self.close_aside();
    }

    /// One child for each user closes what was set aside. If it is lost, the rest of that user's stays open here.
    fn close_aside(&mut self) {
        let users: std::collections::BTreeSet<u32> = self.aside.iter().map(|(uid, _)| *uid).collect();
        for user in users {
            if self.children.iter().any(|child| child.is_closer && child.uid == user) {
                continue;
            }
            let streams = self.aside.extract_if(.., |(uid, _)| *uid == user).map(|(_, stream)| stream).collect();
            self.start(user, true, streams, drop);
        }
    }

    /// Forks a child that gets these connections; they are closed here while it surely lives, so that it is the last to hold them.
    fn start(&mut self, uid: u32, is_closer: bool, streams: Vec<UnixStream>, work: impl FnOnce(Vec<UnixStream>)) {
        let Ok((mut ours, theirs)) = UnixStream::pair() else {
            self.aside.extend(streams.into_iter().map(|stream| (uid, stream)));
            return;
        };
        // SAFETY: this process has one thread only.
        match unsafe { libc::fork() } {
            0 => {
                drop(ours);
                // All of these are held by the parent too until it is told.
                self.aside.clear();
                self.children.clear();
                // SAFETY: the socket, which the parent has too; nothing here uses it any more.
                unsafe { libc::close(0) };
                let is_told = (&theirs).write_all(b"r").is_ok();
                if is_told && (&theirs).read_exact(&mut [0]).is_ok() {
                    work(streams);
                }
                std::process::exit(0);
            }
            pid if pid > 0 => {
                drop(theirs);
                let child = Pid::from_raw(pid);
                let is_ready = ours.read_exact(&mut [0]).is_ok();
                match child.map(|pid| (pid, pidfd_open(pid, PidfdFlags::empty()))) {
                    Some((pid, Ok(process))) if is_ready => {
                        self.children.push(Child { process, pid, uid, is_closer });
                        drop(streams);
                        drop(ours.write_all(b"g"));
                    }
                    // It ends without having touched them.
                    _ => {
                        self.aside.extend(streams.into_iter().map(|stream| (uid, stream)));
                    }
                }
            }
            _ => self.aside.extend(streams.into_iter().map(|stream| (uid, stream))),
        }
    }
}

/// One connection, in a process of its own.
fn serve(channel: &UnixStream, stream: UnixStream, peer: &Peer, device: DeviceNumber) {
    if let Err(error) = receive(channel, &stream, peer, device) {
        public::tell(&stream, &PublicAnswer::Refused { message: error.to_string(), is_usage: false });
        drop(stream.shutdown(Shutdown::Both));
    }
}

/// Hears a question and passes it on; returns when the daemon has let go of the connection.
fn receive(channel: &UnixStream, stream: &UnixStream, peer: &Peer, device: DeviceNumber) -> Result<()> {
    stream.set_write_timeout(Some(QUESTION_TIMEOUT)).map_err(Error::System)?;
    let deadline = Instant::now() + QUESTION_TIMEOUT;
    stream.set_read_timeout(Some(QUESTION_TIMEOUT)).map_err(Error::System)?;
    let handles = handles::take(stream).map_err(Error::System)?;
    let question = hear(stream, deadline)?;
    let (place, session, memory) = judge::judge(handles, device, &question)?;
    let heard = Heard { peer: peer.clone(), place, session, question };
    let mut line = serde_json::to_vec(&heard).map_err(|error| Error::System(error.into()))?;
    line.push(b'\n');
    let (mut ours, theirs) = UnixStream::pair().map_err(Error::System)?;
    let mut passed = vec![theirs.as_fd(), stream.as_fd()];
    passed.extend(memory.iter().map(AsFd::as_fd));
    handles::send(channel, &passed).map_err(Error::System)?;
    drop((theirs, memory));
    ours.write_all(&line).map_err(Error::System)?;
    // Nothing comes; it ends when the daemon has closed the connection.
    drop(ours.read(&mut [0]));
    Ok(())
}

/// The question, within the time that there is for all of it.
fn hear(mut stream: &UnixStream, deadline: Instant) -> Result<Question> {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    while !line.contains(&b'\n') {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return refused(format!("the question took longer than {} s; ask again", QUESTION_TIMEOUT.as_secs()));
        }
        stream.set_read_timeout(Some(left)).map_err(Error::System)?;
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::System(error)),
        }
        if line.len() > QUESTION_BYTES_MAX {
            return refused(format!("the question is longer than {QUESTION_BYTES_MAX} bytes"));
        }
    }
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    serde_json::from_slice(&line[..end])
        .or_else(|error| refused(format!("the question is not understood: {error}; is `stere` of another version?")))
}
