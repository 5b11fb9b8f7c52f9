//! What the descriptors that come with a question are, and may. All of it happens in a process that may be lost, so it may ask other file systems.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, SealFlags};
use stere_client_wire::frame::MEMORY_BYTES_MAX;
use stere_client_wire::meet::{self, DeviceNumber, Place};
use stere_format::FileKind;

use crate::receiver::Rights;
use stere_control::public::Question;
use stere_machine::error::{Error, Result, refused};

/// The kernel's numbers of the file systems that descriptors may be of.
const FUSE_MAGIC: i64 = 0x6573_5546;
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A question in order: where it is about, what a session may and how long its memory is, and the memory.
type Judged = (Place, Option<(Rights, u64)>, Option<OwnedFd>);

/// Judges the descriptors and closes all of them but the library's memory: an open file would keep the mount busy.
pub fn judge(handles: Vec<OwnedFd>, device: DeviceNumber, question: &Question) -> Result<Judged> {
    let Some(first) = handles.first() else {
        return refused("the question comes without an open handle of what it is about");
    };
    let place = meet::place_of(first).map_err(Error::System)?;
    if place.device != device {
        return refused("the question is about another file system");
    }
    // With each question comes what it is about; only the library brings its memory as well.
    let is_session = matches!(question, Question::Library { .. });
    let wanted = if is_session { 2 } else { 1 };
    if handles.len() != wanted {
        return refused(format!("the question needs {wanted} handles and comes with {}", handles.len()));
    }
    let mut handles = handles.into_iter();
    let (Some(file), memory) = (handles.next(), handles.next()) else {
        return refused("the question comes without an open handle of what it is about");
    };
    let Some(memory) = memory else {
        return match is_path(&file)? {
            true => Ok((place, None, None)),
            false => refused("a question comes with a handle that was opened with O_PATH, which opens nothing"),
        };
    };
    let rights = rights_of(&file, place.mode)?;
    let memory_bytes = check_memory(&memory)?;
    Ok((place, Some((rights, memory_bytes)), Some(memory)))
}

fn flags_of(file: &OwnedFd) -> Result<OFlags> {
    rustix::fs::fcntl_getfl(file).map_err(|error| Error::System(error.into()))
}

fn is_path(file: &OwnedFd) -> Result<bool> {
    Ok(flags_of(file)?.contains(OFlags::PATH))
}

/// What the kernel allowed when it was opened.
fn rights_of(file: &OwnedFd, mode: u32) -> Result<Rights> {
    if FileKind::from_mode(mode) != Some(FileKind::File) {
        return refused("the library reads and writes regular files only; use the mount for others");
    }
    let flags = flags_of(file)?;
    if flags.contains(OFlags::PATH) {
        return refused("the file was opened with O_PATH, which allows nothing; open it for reading or writing");
    }
    let access = OFlags::from_bits_retain(flags.bits() & OFlags::ACCMODE.bits());
    let rights = Rights { read: access != OFlags::WRONLY, write: access != OFlags::RDONLY };
    if rights.write && flags.contains(OFlags::APPEND) {
        return refused("the library writes where it is told and does not append; open the file without O_APPEND");
    }
    // An overlay over this mount may tell our device number, and its own kind.
    let kind = rustix::fs::fstatfs(file).map_err(|error| Error::System(error.into()))?.f_type;
    if kind as i64 != FUSE_MAGIC {
        return refused("the file was opened through another file system; open it through the mount of the pool");
    }
    Ok(rights)
}

/// The length of a client's memory, which can neither be changed nor be anything but memory: no access to it waits for anybody, nor does closing it.
fn check_memory(memory: &OwnedFd) -> Result<u64> {
    let system = |error: rustix::io::Errno| Error::System(error.into());
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let is_sealed = rustix::fs::fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(sealed));
    if !is_sealed {
        return refused("the session's memory is no memfd sealed with F_SEAL_SHRINK and F_SEAL_GROW");
    }
    let is_plain = rustix::fs::fstatfs(memory).map_err(system)?.f_type as i64 == TMPFS_MAGIC;
    if !is_plain || flags_of(memory)? & OFlags::ACCMODE != OFlags::RDWR {
        return refused("the session's memory is no plain memfd open for reading and writing");
    }
    let bytes = rustix::fs::fstat(memory.as_fd()).map_err(system)?.st_size.cast_unsigned();
    if bytes == 0 || bytes > MEMORY_BYTES_MAX {
        return refused(format!("the session's memory has {bytes} bytes; 1 to {MEMORY_BYTES_MAX} are possible"));
    }
    Ok(bytes)
}
