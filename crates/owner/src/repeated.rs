//! Requests that an owner before this one may have performed: its client never heard, and asks again.
//!
//! Those that would do something else the second time are noted by the transaction that performs them (`crates/file/src/requests.rs`). One
//! that is noted is answered as what it has done; one that is not noted was not done, and is performed as if it were new. Of
//! attributes those are not noted that come to the same when they are made again, and what then is no error is said here. Read next: `session.rs`.

use fuse_wire::abi::opcode;
use fuse_wire::raw;
use stere_naming::requests::Noted;

#[cfg(test)]
mod tests;

/// Where CREATE has the flags of open(2).
const CREATE_FLAGS_AT: usize = raw::HEADER_BYTES;
/// Where WRITE has its offset and the flags of open(2).
const WRITE_OFFSET_AT: usize = raw::HEADER_BYTES + 8;
const WRITE_FLAGS_AT: usize = raw::HEADER_BYTES + 32;

const GETATTR_BYTES: usize = 16;

fn change_flags(message: &mut [u8], at: usize, without: i32) {
    if let Some(flags) = message.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        let asked = u32::from_ne_bytes(*flags) & !without.cast_unsigned();
        *flags = asked.to_ne_bytes();
    }
}

fn is_append(message: &[u8]) -> bool {
    let flags = message.get(WRITE_FLAGS_AT..).and_then(|rest| rest.first_chunk::<4>());
    flags.is_some_and(|flags| u32::from_ne_bytes(*flags) & libc::O_APPEND.cast_unsigned() != 0)
}

/// Whether a request is noted when it is performed.
pub(crate) fn is_noted(message: &[u8]) -> bool {
    raw::header(message).is_some_and(|header| match header.opcode {
        opcode::WRITE => is_append(message),
        // What cuts content is the same the second time.
        opcode::SETATTR => !raw::sets_size(message),
        operation => raw::changes_names(operation),
    })
}

/// What there is to do for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing.
    Done,
    /// This, whose answer is that of the request.
    Perform(Vec<u8>),
}

/// What is left of a request that was performed.
pub(crate) fn rest_of(mut message: Vec<u8>, noted: &Noted) -> Rest {
    assert!(is_noted(&message), "only what is noted is known to be done");
    let Some(header) = raw::header(&message) else { return Rest::Done };
    match header.opcode {
        // It is there, and is opened.
        opcode::CREATE => change_flags(&mut message, CREATE_FLAGS_AT, libc::O_EXCL | libc::O_TRUNC),
        // The same bytes at the same place: what was lost of them is there then.
        opcode::WRITE => {
            raw::set_number(&mut message, WRITE_OFFSET_AT, noted.place);
            change_flags(&mut message, WRITE_FLAGS_AT, libc::O_APPEND);
        }
        opcode::SETATTR => return Rest::Perform(raw::message(opcode::GETATTR, header.nodeid, &[&[0; GETATTR_BYTES]])),
        operation => {
            let name = made_name(operation, &message);
            return name.map_or(Rest::Done, |name| Rest::Perform(raw::message(opcode::LOOKUP, header.nodeid, &[name])));
        }
    }
    Rest::Perform(message)
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

/// Whether an error says that a repeated request, which is not noted, was performed before.
pub(crate) fn is_done_before(message: &[u8], errno: i32) -> bool {
    let operation = raw::header(message).map(|header| header.opcode);
    matches!((operation, errno), (Some(opcode::REMOVEXATTR), libc::ENODATA) | (Some(opcode::SETXATTR), libc::EEXIST))
}
