//! Requests that were answered and not committed: the next owner performs them once more if this one goes before they are.
//!
//! Invariants: a request is here from its answer until the owner says that its mark is committed; marks are in the order in which the owner
//! made the changes, numbers need not be. Read next: `../restore.rs`; `crates/owner/src/uncommitted.rs` says which requests come here.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};

use fuse_wire::abi::fattr;
use fuse_wire::abi::opcode;
use fuse_wire::abi::structs::{CreateIn, FileAttr, MknodIn, SetattrIn, split};
use fuse_wire::raw;

use super::Time;

#[cfg(test)]
mod tests;

/// A request that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub number: u64,
    /// What has to be done.
    pub message: Vec<u8>,
    /// The inode that it made; 0: none.
    pub inode: u64,
    /// When, as its answer tells; 0: it does not.
    pub at: Time,
}

impl Request {
    /// What an answer says that was done by a request of the kernel.
    pub fn of(number: u64, message: Vec<u8>, answer: &[u8]) -> Request {
        let operation = raw::header(&message).map_or(0, |header| header.opcode);
        let mut inode = 0;
        raw::each_found(operation, answer, |node| inode = node);
        let fields = (offset_of!(FileAttr, ctime), offset_of!(FileAttr, ctimensec));
        let at = time(operation, answer, fields).unwrap_or_default();
        Request { number, message: without_handle(message), inode, at }
    }
}

/// A time in the attributes that an answer tells.
fn time(operation: u32, answer: &[u8], (seconds, nanoseconds): (usize, usize)) -> Option<Time> {
    let place = raw::attribute_places(operation, answer).first().copied()?;
    Some((raw::number_at(answer, place + seconds)?.cast_signed(), raw::half_at(answer, place + nanoseconds)?))
}

/// When the content of a file has changed, as an answer tells.
pub(crate) fn modified(operation: u32, answer: &[u8]) -> Option<Time> {
    time(operation, answer, (offset_of!(FileAttr, mtime), offset_of!(FileAttr, mtimensec)))
}

/// The same for an owner that knows of no handle: what was made is opened later, with all that is open.
pub(crate) fn without_handle(mut message: Vec<u8>) -> Vec<u8> {
    const VALID_AT: usize = raw::HEADER_BYTES + offset_of!(SetattrIn, valid);
    let Some(header) = raw::header(&message) else { return message };
    match header.opcode {
        opcode::CREATE => {
            let Some((create, name)) = message.get(raw::HEADER_BYTES..).and_then(split::<CreateIn>) else {
                return message;
            };
            let arguments = [create.mode, 0, create.umask, 0].map(u32::to_ne_bytes).concat();
            assert_eq!(arguments.len(), size_of::<MknodIn>(), "mode, device, umask and padding");
            raw::message_as(&message[..raw::HEADER_BYTES], opcode::MKNOD, &[&arguments, name])
        }
        opcode::SETATTR => {
            if let Some(valid) = raw::half_at(&message, VALID_AT) {
                message[VALID_AT..VALID_AT + 4]
                    .copy_from_slice(&(valid & !(fattr::FH | fattr::LOCKOWNER)).to_ne_bytes());
            }
            message
        }
        _ => message,
    }
}

/// When a request was answered.
#[derive(Debug)]
struct Answered {
    mark: u64,
    /// Counted with all that is kept.
    order: u64,
    request: Request,
}

/// By their numbers.
#[derive(Debug, Default)]
pub(crate) struct Requests(BTreeMap<u64, Answered>);

impl Requests {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn keep(&mut self, mark: u64, order: u64, request: Request) {
        let number = request.number;
        let before = self.0.insert(number, Answered { mark, order, request });
        assert!(before.is_none(), "request {number} is answered once");
    }

    /// All with this mark or a lower one is committed.
    pub fn let_go_marked(&mut self, mark: u64) {
        self.0.retain(|_, answered| answered.mark > mark);
    }

    /// All that was answered before this was asked for is durable.
    pub fn let_go(&mut self, order: u64) {
        self.0.retain(|_, answered| answered.order >= order);
    }

    /// An owner has performed it once more, or cannot.
    pub fn done(&mut self, number: u64) {
        self.0.remove(&number);
    }

    /// The lowest number.
    pub fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(number, _)| *number)
    }

    /// Each with its mark.
    pub fn all(&self) -> impl Iterator<Item = (u64, &Request)> {
        self.0.values().map(|answered| (answered.mark, &answered.request))
    }
}
