//! What anybody who can use a mount may ask its daemon, and how it is known who asks.
//!
//! The control socket is for those who may change a pool. This one is for everybody: an abstract unix socket, named after the device
//! number that everything in the mount has. Who asks is told by the kernel; what it may ask about, it proves by an open handle: that
//! it got as far as there. A handle of another file system is refused. The client in turn looks whose socket it is: anybody could take
//! the name while no daemon has it. One question a conversation, one line of JSON; answers a line each.
//! Read next: `find.rs`; `mount/public.rs` is the daemon's side.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use serde::{Deserialize, Serialize};

use crate::error::{At, Error, Result, refused};
use crate::mountinfo;

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    Find(crate::find::Asked),
    /// What the pool can now.
    Capabilities,
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
    Capabilities {
        pool: serde_json::Value,
    },
    /// With `is_usage` the question makes no sense.
    Refused {
        message: String,
        is_usage: bool,
    },
}

/// Who asks, and about what.
#[derive(Debug)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// Further groups that a process can have.
const GROUPS_MAX: usize = 65_536;
/// A daemon that says nothing for so long is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A client that does not say what it wants is sent away.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that reads no answer for so long is given up.
const READER_PATIENCE: Duration = Duration::from_secs(600);
const QUESTION_BYTES_MAX: u64 = 1 << 20;
/// What carries the handle.
const GREETING: u8 = b'?';

fn address(device: (u32, u32)) -> Result<SocketAddr> {
    let (major, minor) = device;
    SocketAddr::from_abstract_name(format!("stere/{major}:{minor}")).map_err(Error::System)
}

/// The device number and inode number of an open handle, without asking its file system.
fn place_of(handle: impl AsFd) -> Result<((u32, u32), u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = statx(handle, "", flags, StatxFlags::INO).map_err(|error| Error::System(error.into()))?;
    Ok(((facts.stx_dev_major, facts.stx_dev_minor), facts.stx_ino))
}

/// Makes the socket of a mount.
pub fn listen(device: (u32, u32)) -> Result<UnixListener> {
    UnixListener::bind_addr(&address(device)?).map_err(Error::System)
}

/// Asks the daemon that serves a path; gives where its answers come from.
pub fn ask(path: &Path, question: &Question) -> Result<Answers> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at("look at", path)?;
    let (device, _) = place_of(&handle)?;
    let Some(mount) = mountinfo::find_device(device).filter(mountinfo::Mount::is_stere) else {
        return refused(format!("{} is not on a stere mount; `stere pool list` shows them", path.display()));
    };
    let not_there =
        || Error::Refused(format!("the daemon of the pool '{}' does not answer; see its log", mount.source));
    let stream = UnixStream::connect_addr(&address(device)?).map_err(|_| not_there())?;
    let server = credentials(&stream)?.uid;
    let own = rustix::process::geteuid().as_raw();
    if server != 0 && server != own && Some(server) != mount.owner {
        return refused(format!("user {server}, whose mount this is not, answers for it; tell the administrator"));
    }
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(Error::System)?;
    send_handle(&stream, handle.as_raw_fd()).map_err(Error::System)?;
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
pub fn hear(stream: &UnixStream, device: (u32, u32)) -> Result<(Peer, u64, Question)> {
    stream.set_read_timeout(Some(QUESTION_TIMEOUT)).map_err(Error::System)?;
    stream.set_write_timeout(Some(READER_PATIENCE)).map_err(Error::System)?;
    let peer = credentials(stream)?;
    let Some(handle) = take_handle(stream).map_err(Error::System)? else {
        return refused("the question comes without an open handle of what it is about");
    };
    let (found, inode) = place_of(&handle)?;
    drop(handle);
    if found != device {
        return refused("the question is about another file system");
    }
    let mut line = String::new();
    let limited = std::io::Read::take(stream, QUESTION_BYTES_MAX);
    BufReader::new(limited).read_line(&mut line).map_err(Error::System)?;
    match serde_json::from_str(&line) {
        Ok(question) => Ok((peer, inode, question)),
        Err(error) => refused(format!("the question is not understood: {error}; is `stere` of another version?")),
    }
}

/// Sends an answer; tells whether anybody still listens.
pub fn tell(mut stream: &UnixStream, answer: &PublicAnswer) -> bool {
    let Ok(mut line) = serde_json::to_vec(answer) else { return false };
    line.push(b'\n');
    stream.write_all(&line).is_ok()
}

/// Who is at the other end, as the kernel noted it when the connection, or the socket, was made.
fn credentials(stream: &UnixStream) -> Result<Peer> {
    // SAFETY: all zeros is a valid ucred.
    let mut user: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option writes at most `length` bytes to where the pointer leads, which live until the call returns.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut user).cast(),
            &raw mut length,
        )
    };
    if code != 0 || length as usize != size_of::<libc::ucred>() {
        return Err(Error::System(std::io::Error::last_os_error()));
    }
    let mut groups: Vec<u32> = vec![0; GROUPS_MAX];
    let mut length = (GROUPS_MAX * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: as above.
    let code = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if code != 0 {
        return Err(Error::System(std::io::Error::last_os_error()));
    }
    groups.truncate(length as usize / size_of::<u32>());
    Ok(Peer { uid: user.uid, gid: user.gid, groups })
}

/// Room for one handle, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

fn message(iov: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeros is a valid msghdr: null pointers and lengths of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    message
}

fn send_handle(stream: &UnixStream, handle: RawFd) -> std::io::Result<()> {
    let mut greeting = [GREETING];
    let mut iov = libc::iovec { iov_base: greeting.as_mut_ptr().cast(), iov_len: greeting.len() };
    let mut control = Control([0; 64]);
    let mut message = message(&mut iov, &mut control);
    let bytes = size_of::<RawFd>() as u32;
    // SAFETY: the control buffer is longer than one header and a descriptor, aligned, and lives until the call returns; the first
    // header is therefore within it.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(handle);
        libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The handle that comes with the greeting; none if there is none, or more than one.
fn take_handle(stream: &UnixStream) -> std::io::Result<Option<File>> {
    let mut greeting = [0];
    let mut iov = libc::iovec { iov_base: greeting.as_mut_ptr().cast(), iov_len: greeting.len() };
    let mut control = Control([0; 64]);
    let mut message = message(&mut iov, &mut control);
    // SAFETY: all that the message leads to lives until the call returns.
    let received = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut handles: Vec<File> = Vec::new();
    // SAFETY: the kernel filled the buffer with whole headers, as long as it says; every descriptor in them is ours now, and of
    // nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<RawFd>() {
                    handles.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()).into());
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    let is_greeting = received == 1 && greeting == [GREETING];
    Ok(handles.pop().filter(|_| is_greeting && handles.is_empty()))
}
