//! What the bytes of requests and answers tell to those who pass them on: which handles and nodes are in them.
//!
//! Messages are as /dev/fuse has them, header first; answers are what lies behind their header. Whatever does not fit tells nothing.
//! Read next: `remote.rs`.

use std::mem::offset_of;

use zerocopy::IntoBytes;

use crate::abi::structs::{
    AttrOut, BatchForgetIn, CopyFileRangeIn, Dirent, EntryOut, FileAttr, FlushIn, ForgetIn, ForgetOne, GetattrIn,
    InHeader, OpenOut, SetattrIn, split,
};
use crate::abi::{fattr, flag, opcode};

#[cfg(test)]
mod tests;

pub const HEADER_BYTES: usize = size_of::<InHeader>();
const HANDLE_BYTES: usize = size_of::<u64>();

/// The header of a message.
#[must_use]
pub fn header(message: &[u8]) -> Option<InHeader> {
    split::<InHeader>(message).map(|(header, _)| header)
}

/// A message of an operation, made here and not by a kernel: as root, about `node`.
#[must_use]
pub fn message(operation: u32, node: u64, arguments: &[&[u8]]) -> Vec<u8> {
    let header = InHeader { unique: 1, nodeid: node, ..InHeader::default() };
    message_as(header.as_bytes(), operation, arguments)
}

/// A message of the same caller about the same node, for another operation: `head` is what stays of the one that there is.
#[must_use]
pub fn message_as(head: &[u8], operation: u32, arguments: &[&[u8]]) -> Vec<u8> {
    assert!(head.len() >= HEADER_BYTES, "a message begins with its header, and not with {} bytes", head.len());
    let bytes = head.len() + arguments.iter().map(|part| part.len()).sum::<usize>();
    let mut message = Vec::with_capacity(bytes);
    message.extend_from_slice(head);
    arguments.iter().for_each(|part| message.extend_from_slice(part));
    set_half(&mut message, offset_of!(InHeader, len), u32::try_from(bytes).unwrap_or(u32::MAX));
    set_half(&mut message, offset_of!(InHeader, opcode), operation);
    message
}

/// Whether a request of this kind makes, moves or removes a name.
#[must_use]
pub const fn changes_names(operation: u32) -> bool {
    matches!(
        operation,
        opcode::CREATE
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::LINK
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
    )
}

/// Where handles lie in a message, counted from its first byte, each with the node that it is of.
#[must_use]
pub fn handle_places(message: &[u8]) -> Vec<(usize, u64)> {
    let Some((header, body)) = split::<InHeader>(message) else { return Vec::new() };
    let node = header.nodeid;
    let at = |place: usize, node: u64| (HEADER_BYTES + place, node);
    let places = match header.opcode {
        opcode::READ
        | opcode::WRITE
        | opcode::OFFER_WRITE
        | opcode::READDIR
        | opcode::READDIRPLUS
        | opcode::RELEASE
        | opcode::RELEASEDIR
        | opcode::FLUSH
        | opcode::FSYNC
        | opcode::FSYNCDIR
        | opcode::GETLK
        | opcode::SETLK
        | opcode::SETLKW
        | opcode::IOCTL
        | opcode::POLL
        | opcode::FALLOCATE
        | opcode::LSEEK => vec![at(0, node)],
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => match split::<CopyFileRangeIn>(body) {
            Some((input, _)) => vec![at(0, node), at(24, input.nodeid_out)],
            None => Vec::new(),
        },
        opcode::GETATTR | opcode::STATX => match split::<GetattrIn>(body) {
            Some((input, _)) if input.getattr_flags & flag::GETATTR_FH != 0 => vec![at(8, node)],
            _ => Vec::new(),
        },
        opcode::SETATTR => match split::<SetattrIn>(body) {
            Some((input, _)) if input.valid & fattr::FH != 0 => vec![at(8, node)],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    places.into_iter().filter(|(place, _)| place + HANDLE_BYTES <= message.len()).collect()
}

/// A message that ends all locks of fcntl that `lock_owner` has in a file, as a close(2) does.
#[must_use]
pub fn close_message(node: u64, fh: u64, lock_owner: u64) -> Vec<u8> {
    let input = FlushIn { fh, lock_owner, ..FlushIn::default() };
    message(opcode::FLUSH, node, &[input.as_bytes()])
}

/// Whose locks in which file a message ends, if it is such a one.
#[must_use]
pub fn closed_by(message: &[u8]) -> Option<(u64, u64)> {
    let header = header(message).filter(|header| header.opcode == opcode::FLUSH)?;
    let (input, _) = split::<FlushIn>(message.get(HEADER_BYTES..)?)?;
    Some((header.nodeid, input.lock_owner))
}

/// Where a message of WRITE, OFFER_WRITE or ENTER_WRITE writes: offset and bytes. None where it enters nothing.
#[must_use]
pub fn written_range(message: &[u8]) -> Option<(u64, u64)> {
    let offset = number_at(message, HEADER_BYTES + 8)?;
    let bytes = number_at(message, HEADER_BYTES + 16)?;
    match header(message)?.opcode {
        // Behind the size are flags.
        opcode::WRITE | opcode::OFFER_WRITE => Some((offset, bytes & u64::from(u32::MAX))),
        opcode::ENTER_WRITE if number_at(message, HEADER_BYTES + 24)? == 0 => Some((offset, bytes)),
        _ => None,
    }
}

/// Whether a message of SETATTR sets the size.
#[must_use]
pub fn sets_size(message: &[u8]) -> bool {
    let input = message.get(HEADER_BYTES..).and_then(split::<SetattrIn>);
    input.is_some_and(|(input, _)| input.valid & fattr::SIZE != 0)
}

/// The number at a place that `handle_places` or `opened_place` gave.
#[must_use]
pub fn number_at(bytes: &[u8], place: usize) -> Option<u64> {
    split::<u64>(bytes.get(place..)?).map(|(number, _)| number)
}

/// Puts another number there.
pub fn set_number(bytes: &mut [u8], place: usize, number: u64) {
    if let Some(room) = bytes.get_mut(place..).and_then(|rest| rest.get_mut(..HANDLE_BYTES)) {
        room.copy_from_slice(&number.to_ne_bytes());
    }
}

/// Where the answer to an operation that opens has its handle.
#[must_use]
pub fn opened_place(operation: u32, answer: &[u8]) -> Option<usize> {
    let place = match operation {
        opcode::OPEN | opcode::OPENDIR => 0,
        opcode::CREATE | opcode::TMPFILE => size_of::<EntryOut>(),
        _ => return None,
    };
    (answer.len() >= place + size_of::<OpenOut>()).then_some(place)
}

/// Where an answer has attributes of inodes (`FileAttr`), counted from its first byte.
#[must_use]
pub fn attribute_places(operation: u32, answer: &[u8]) -> Vec<usize> {
    const OF_ENTRY: usize = offset_of!(EntryOut, attr);
    const ENTRY_BYTES: usize = size_of::<EntryOut>() + size_of::<Dirent>();
    let fits = |place: &usize| place + size_of::<FileAttr>() <= answer.len();
    match operation {
        opcode::LOOKUP
        | opcode::LINK
        | opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::CREATE
        | opcode::TMPFILE => Some(OF_ENTRY).filter(fits).into_iter().collect(),
        opcode::GETATTR | opcode::SETATTR => Some(offset_of!(AttrOut, attr)).filter(fits).into_iter().collect(),
        opcode::READDIRPLUS => {
            let (mut places, mut at) = (Vec::new(), 0);
            while let Some((entry, _)) = answer.get(at + size_of::<EntryOut>()..).and_then(split::<Dirent>) {
                places.push(at + OF_ENTRY);
                // Records begin on 8 bytes, and so do both structures end.
                at += ENTRY_BYTES + (entry.namelen as usize).next_multiple_of(8);
            }
            places
        }
        _ => Vec::new(),
    }
}

/// Tells each entry that an answer has: in a listing with its name, else of the name that was asked for. Node 0 is none.
pub fn each_entry(operation: u32, answer: &[u8], mut each: impl FnMut(Option<&[u8]>, &EntryOut)) {
    match operation {
        opcode::LOOKUP
        | opcode::CREATE
        | opcode::TMPFILE
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::SYMLINK
        | opcode::LINK => split::<EntryOut>(answer).into_iter().for_each(|(entry, _)| each(None, &entry)),
        opcode::READDIRPLUS => {
            let mut rest = answer;
            while let Some((entry, after)) = split::<EntryOut>(rest) {
                let Some((name, after)) = split::<Dirent>(after) else { return };
                let length = name.namelen as usize;
                let Some(shown) = after.get(..length) else { return };
                each(Some(shown), &entry);
                // Records begin on 8 bytes, and so do both structures end.
                let Some(next) = after.get(length.next_multiple_of(8)..) else { return };
                rest = next;
            }
        }
        _ => {}
    }
}

/// Tells each node that an answer gives the kernel one more reference to.
pub fn each_found(operation: u32, answer: &[u8], mut each: impl FnMut(u64)) {
    each_entry(operation, answer, |_, entry| {
        if entry.nodeid != 0 {
            each(entry.nodeid);
        }
    });
}

/// Sets how long the kernel may believe what an answer says: names of directories and attributes for so long, other names not at all.
pub fn set_believed(operation: u32, answer: &mut [u8], believed_ms: u64) {
    assert!(believed_ms <= 60_000, "nobody believes an answer for {believed_ms} ms");
    let (seconds, nanoseconds) = (believed_ms / 1000, (believed_ms % 1000) as u32 * 1_000_000);
    match operation {
        opcode::GETATTR | opcode::SETATTR | opcode::STATX => {
            set_number(answer, offset_of!(AttrOut, attr_valid), seconds);
            set_half(answer, offset_of!(AttrOut, attr_valid_nsec), nanoseconds);
        }
        _ => {
            for place in attribute_places(operation, answer) {
                let entry = place - offset_of!(EntryOut, attr);
                let is_directory = half_at(answer, place + offset_of!(FileAttr, mode))
                    .is_some_and(|mode| mode & libc::S_IFMT == libc::S_IFDIR);
                let name = if is_directory { (seconds, nanoseconds) } else { (0, 0) };
                set_number(answer, entry + offset_of!(EntryOut, entry_valid), name.0);
                set_half(answer, entry + offset_of!(EntryOut, entry_valid_nsec), name.1);
                set_number(answer, entry + offset_of!(EntryOut, attr_valid), seconds);
                set_half(answer, entry + offset_of!(EntryOut, attr_valid_nsec), nanoseconds);
            }
        }
    }
}

/// Takes the attributes out of the entries of a listing that are meant: the kernel asks for these by their names when it needs them.
pub fn hide_attributes(listing: &mut [u8], is_meant: impl Fn(u64) -> bool) {
    for place in attribute_places(opcode::READDIRPLUS, listing) {
        let entry = place - offset_of!(EntryOut, attr);
        let node = number_at(listing, entry).unwrap_or(0);
        if let Some(room) = listing.get_mut(entry..entry + size_of::<EntryOut>()).filter(|_| is_meant(node)) {
            room.fill(0);
        }
    }
}

/// The number of 32 bits at a place.
#[must_use]
pub fn half_at(bytes: &[u8], place: usize) -> Option<u32> {
    bytes.get(place..)?.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn set_half(bytes: &mut [u8], place: usize, number: u32) {
    if let Some(room) = bytes.get_mut(place..).and_then(|rest| rest.get_mut(..4)) {
        room.copy_from_slice(&number.to_ne_bytes());
    }
}

/// A message that takes references back, some of each node.
#[must_use]
pub fn forget_message(forgotten: &[(u64, u64)]) -> Vec<u8> {
    assert!(!forgotten.is_empty(), "something is forgotten");
    let count = u32::try_from(forgotten.len()).unwrap_or(u32::MAX);
    let head = BatchForgetIn { count, ..BatchForgetIn::default() };
    let one = |(nodeid, nlookup): &(u64, u64)| ForgetOne { nodeid: *nodeid, nlookup: *nlookup };
    let all: Vec<u8> = forgotten.iter().flat_map(|forget| one(forget).as_bytes().to_vec()).collect();
    message(opcode::BATCH_FORGET, 0, &[head.as_bytes(), &all])
}

/// Tells each node that a message takes references back from, and how many.
pub fn each_forgotten(message: &[u8], mut each: impl FnMut(u64, u64)) {
    let Some((header, body)) = split::<InHeader>(message) else { return };
    match header.opcode {
        opcode::FORGET => {
            split::<ForgetIn>(body).into_iter().for_each(|(input, _)| each(header.nodeid, input.nlookup));
        }
        opcode::BATCH_FORGET => {
            let Some((input, mut rest)) = split::<BatchForgetIn>(body) else { return };
            for _ in 0..input.count {
                let Some((one, after)) = split::<ForgetOne>(rest) else { return };
                each(one.nodeid, one.nlookup);
                rest = after;
            }
        }
        _ => {}
    }
}
