//! One request of a session.
//!
//! Bytes go through a buffer of this process in both directions. A write stores the buffer, so checksum and content are of the same
//! bytes whatever the client does meanwhile; a read is verified in the buffer, so a client cannot make a device look bad.

use stere_client_wire::frame::{Kind, Reply, Request, TEXT_BYTES_MAX};
use stere_fuse::Claim;
use stere_naming::{Caller, Error, Io};
use stere_store::Call;

use crate::daemon::Daemon;
use crate::library::session::Session;

const CAPABILITY: &[u8] = b"security.capability";

/// Why a request failed.
enum Failure {
    /// It has to wait, and may not.
    WouldBlock,
    /// For the program, and for the person.
    Told { errno: i32, text: String },
}

impl Failure {
    fn told(self) -> (i32, String) {
        match self {
            Failure::WouldBlock => (libc::EIO, "a call that may wait says that it would have to".into()),
            Failure::Told { errno, text } => (errno, text),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::WouldBlock => Failure::WouldBlock,
            error => Failure::Told { errno: error.errno(), text: error.to_string() },
        }
    }
}

fn failure(errno: i32, text: &str) -> Failure {
    Failure::Told { errno, text: text.to_owned() }
}

/// Does what is asked; the buffer is this thread's. No answer: it has to wait for more than it may.
pub fn perform(
    daemon: &Daemon,
    session: &Session,
    request: &Request,
    io: Io<'_>,
    buffer: &mut Vec<u8>,
) -> Option<Reply> {
    assert!(request.is_within(session.memory_bytes), "a request beyond its memory was let in");
    let caller = Caller { io, ..super::caller_of(&session.peer) };
    let outcome = match request.kind {
        Kind::Read => read(daemon, &caller, session, request, buffer),
        Kind::Write => write(daemon, &caller, session, request, buffer),
        Kind::Sync => daemon.filesystem.fsync(&caller, session.inode, false).map(|()| 0).map_err(Failure::from),
        Kind::Size => {
            let attributes = daemon.filesystem.getattr(&caller, session.inode);
            attributes.map(|attributes| attributes.size).map_err(Failure::from)
        }
    };
    Some(match outcome {
        Ok(value) => Reply { tag: request.tag, errno: 0, value, text_bytes: 0 },
        Err(Failure::WouldBlock) if !io.may_recall() => return None,
        Err(failure) => {
            let (errno, text) = failure.told();
            let room = usize::try_from(session.memory_bytes - request.place).unwrap_or(usize::MAX);
            let text = cut(&text, TEXT_BYTES_MAX.min(room));
            // Where it does not get there, the number says enough.
            let is_told = put(session, request.place, text.as_bytes()).is_ok();
            let text_bytes = if is_told { text.len() as u32 } else { 0 };
            Reply { tag: request.tag, errno: errno.unsigned_abs(), value: 0, text_bytes }
        }
    })
}

/// The same for who may wait, also for media: it is refused what its program is not to have from there, and waits for its turn.
pub fn perform_in_turn(daemon: &Daemon, session: &Session, request: &Request, buffer: &mut Vec<u8>) -> Reply {
    let (filesystem, turns) = (&daemon.filesystem, &daemon.library.turns);
    let mut reply = None;
    let mut turn = None;
    if filesystem.recalls().recalls_wait() && matches!(request.kind, Kind::Read | Kind::Write) {
        reply = perform(daemon, session, request, Io::DEVICES_ONLY, buffer);
        if reply.is_none() && !filesystem.recalls().is_recall_refused(session.peer.process) {
            let (inode, offset, length) = (session.inode, request.offset, u64::from(request.length));
            let volumes = match turns.are_by_volumes() {
                // What cannot be found out now is told when it is read.
                true => filesystem.recalls().volumes_of_released(Io::DEVICES_ONLY, inode, offset, length).unwrap_or(0),
                false => 0,
            };
            turn = turns.wait(Claim { user: session.peer.uid, volumes });
        }
    }
    let reply = reply.or_else(|| {
        let call = filesystem.recalls().refusing_recalls(session.peer.process, Call::default());
        perform(daemon, session, request, Io::BLOCKING.of(&call), buffer)
    });
    drop(turn);
    reply.expect("a request that may wait is answered")
}

/// The beginning of a text, in whole characters.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn room(buffer: &mut Vec<u8>, length: u32) -> &mut [u8] {
    let length = length as usize;
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    &mut buffer[..length]
}

fn read(
    daemon: &Daemon,
    caller: &Caller<'_>,
    session: &Session,
    request: &Request,
    buffer: &mut Vec<u8>,
) -> Result<u64, Failure> {
    if !session.rights.read {
        return Err(failure(libc::EBADF, "the file is not open for reading; open it so"));
    }
    let out = room(buffer, request.length);
    let count = daemon.filesystem.read(caller, session.inode, request.offset, out)?;
    assert!(count <= out.len(), "{count} bytes were read where {} were asked for", out.len());
    put(session, request.place, &out[..count])?;
    Ok(count as u64)
}

fn write(
    daemon: &Daemon,
    caller: &Caller<'_>,
    session: &Session,
    request: &Request,
    buffer: &mut Vec<u8>,
) -> Result<u64, Failure> {
    if !session.rights.write {
        return Err(failure(libc::EBADF, "the file is not open for writing; open it so"));
    }
    let data = room(buffer, request.length);
    get(session, request.place, data)?;
    let filesystem = &daemon.filesystem;
    if caller.uid == 0 && filesystem.getxattr(caller, session.inode, CAPABILITY).is_ok() {
        // Set-id bits stay where root writes, as through the mount; capabilities never do.
        match filesystem.removexattr(caller, session.inode, CAPABILITY) {
            Ok(()) | Err(Error::NoAttribute) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let count = filesystem.write(caller, session.inode, request.offset, data, caller.uid != 0)?;
    assert!(count <= data.len(), "{count} bytes were written where {} were given", data.len());
    filesystem.durability.make_durable(caller, &[session.inode])?;
    if count > 0
        && let Err(error) = daemon.forgetter.forget_range(session.inode, request.offset, count as u64)
    {
        tracing::warn!(inode = session.inode, %error, "the kernel could not be told what was written past it");
        return Err(failure(libc::EIO, "what was written may not be seen through the mount; see the daemon's log"));
    }
    Ok(count as u64)
}

/// Bytes to the client's memory.
fn put(session: &Session, place: u64, bytes: &[u8]) -> Result<(), Failure> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(&session.memory, &bytes[done..], place + done as u64) {
            Ok(0) => return Err(no_memory()),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(no_memory()),
        }
    }
    Ok(())
}

/// Bytes from the client's memory; it may be changing them, and they are never looked at again where they were.
fn get(session: &Session, place: u64, bytes: &mut [u8]) -> Result<(), Failure> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(&session.memory, &mut bytes[done..], place + done as u64) {
            Ok(0) => return Err(no_memory()),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(no_memory()),
        }
    }
    Ok(())
}

fn no_memory() -> Failure {
    failure(libc::EFAULT, "the session's memory cannot be used; leave its seals and flags as they were")
}
