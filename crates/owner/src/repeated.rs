//! Requests that an owner before this one may have performed: its client never heard, and asks again.
//!
//! What was made or removed already is no error then. Nothing on media tells whether it was this request that did it; who has just been
//! told that a name was free, and finds it taken by what it wanted to make there, takes it for its own, as clients of NFS do.
//! Read next: `session.rs`, which asks here.

use fuse_wire::abi::opcode;
use fuse_wire::raw;

#[cfg(test)]
mod tests;

/// Where CREATE has the flags of open(2).
const CREATE_FLAGS_AT: usize = raw::HEADER_BYTES;

/// Makes a repeated request one that does not mind what it did itself.
pub(crate) fn relax(message: &mut [u8]) {
    let is_create = raw::header(message).is_some_and(|header| header.opcode == opcode::CREATE);
    if let Some(flags) = message.get_mut(CREATE_FLAGS_AT..).and_then(|rest| rest.first_chunk_mut::<4>())
        && is_create
    {
        let asked = u32::from_ne_bytes(*flags) & !libc::O_EXCL.cast_unsigned();
        *flags = asked.to_ne_bytes();
    }
}

/// What an error of a repeated request means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// What it says.
    Error,
    /// It was done before.
    Done,
    /// It was done before, and is answered as this request is.
    As(Vec<u8>),
}

/// The name that an operation makes, behind its fixed structure.
fn made_name(operation: u32, message: &[u8]) -> Option<&[u8]> {
    let fixed = match operation {
        opcode::MKDIR => 8,
        opcode::MKNOD => 16,
        opcode::SYMLINK => 0,
        opcode::LINK => 8,
        _ => return None,
    };
    let rest = message.get(raw::HEADER_BYTES + fixed..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    rest.get(..=end)
}

/// What an error of this repeated request means.
pub(crate) fn meaning(message: &[u8], errno: i32) -> Meaning {
    let Some(header) = raw::header(message) else { return Meaning::Error };
    match (header.opcode, errno) {
        (opcode::UNLINK | opcode::RMDIR | opcode::RENAME | opcode::RENAME2, libc::ENOENT)
        | (opcode::REMOVEXATTR, libc::ENODATA)
        | (opcode::SETXATTR, libc::EEXIST) => Meaning::Done,
        (operation, libc::EEXIST) => match made_name(operation, message) {
            Some(name) => Meaning::As(raw::message(opcode::LOOKUP, header.nodeid, &[name])),
            None => Meaning::Error,
        },
        _ => Meaning::Error,
    }
}
