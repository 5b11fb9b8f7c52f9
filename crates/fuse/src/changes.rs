//! What a request changes, for kernels of other machines that may have it in memory.
//!
//! They hear of it twice: before it is done, so that nobody believes any longer what is about to change ([`Observer::before`]), and when
//! it was done. Either may have to wait for them. Read next: `door.rs`, through which others hear of it.

use fuse_wire::abi::opcode;
use fuse_wire::{CopyFileRange, OfferWrite, Operation, Request, Write, raw};

use crate::answer::Answer;

/// Attributes of an inode, and content from `offset` for `length` bytes (0: to the end; a negative offset: attributes only).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedInode {
    pub node: u64,
    pub offset: i64,
    pub length: i64,
}

/// What a request has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Whose request it was: a far session, or the kernel of this machine.
    pub by: Option<u64>,
    pub inodes: Vec<ChangedInode>,
    pub names: Vec<(u64, Vec<u8>)>,
    /// That kernel may have something else in memory than was done, anywhere in these inodes.
    pub tell_own: bool,
    /// Others heard of it before it was done.
    pub is_begun: bool,
    /// Inodes whose attributes changed as well, which was known only when it was done: those that lost a name, moved, or were emptied.
    pub late: Vec<u64>,
}

/// What is done when all have heard, on whatever thread.
pub type Next = Box<dyn FnOnce() + Send>;

/// Does something when all who have to hear of a change have heard; at once, if that is nobody.
pub type WhenHeard = Box<dyn FnOnce(Next) + Send>;

/// A change that is about to be made.
#[derive(Default)]
pub struct Begun {
    /// Kept until it is made or has failed.
    pub guard: Option<Box<dyn Send>>,
    /// Whom it waits for; `None`: nobody.
    pub when_heard: Option<WhenHeard>,
}

/// Looks at a request before it is performed, and says whom that waits for.
pub type Asked = Box<dyn Fn(&Request) -> Option<WhenHeard> + Send + Sync>;

/// Hears of all that requests change.
pub struct Observer {
    /// Before anything else, where this machine's kernel asks for something. Whom it waits for; `None`: nobody.
    pub asked: Asked,
    /// Before it is done, where this machine's kernel asks for it. Those of others are told by whoever serves them ([`changes_of`]).
    pub before: Box<dyn Fn(&Changes) -> Begun + Send + Sync>,
    /// When it was done, and before it is answered. Whom the answer waits for; `None`: nobody.
    pub after: Box<dyn Fn(Changes) -> Option<WhenHeard> + Send + Sync>,
}

/// The place that is noted of a request which opens a file, where it has made that.
pub const MADE: u64 = 1;

fn attributes_of(node: u64) -> ChangedInode {
    ChangedInode { node, offset: -1, length: 0 }
}

fn content_of(node: u64, offset: u64, length: u64) -> ChangedInode {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    ChangedInode { node, offset: signed(offset), length: signed(length) }
}

/// Whether a request of this kind can change anything.
fn may_change(operation: u32) -> bool {
    let changes_a_file = matches!(
        operation,
        opcode::WRITE
            | opcode::OFFER_WRITE
            | opcode::ENTER_WRITE
            | opcode::SETATTR
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
    );
    changes_a_file || raw::changes_names(operation)
}

/// What a request changes; `None` if nothing. `appended`: where a write went, and how long it was, that its kernel may have thought of
/// elsewhere.
pub(crate) fn of(request: &Request, appended: Option<(u64, u64)>) -> Option<Changes> {
    if !may_change(request.opcode()) {
        return None;
    }
    let mut changes = Changes { by: request.remote_tag(), tell_own: appended.is_some(), ..Changes::default() };
    let operation = request.operation();
    for (directory, name) in operation.changed().names {
        changes.names.push((directory, name.to_vec()));
        changes.inodes.push(attributes_of(directory));
    }
    match operation {
        Operation::Link { node, .. } => changes.inodes.push(attributes_of(node)),
        Operation::Write(Write { node, offset, data, .. }) => {
            let (offset, length) = appended.unwrap_or((offset, data.len() as u64));
            changes.inodes.push(content_of(node, offset, length));
        }
        // Both: what is read in between waits, and what was read before is old.
        Operation::OfferWrite(OfferWrite { node, offset, length, .. })
        | Operation::EnterWrite { node, offset, length, is_withdrawn: false, .. } => {
            changes.inodes.push(content_of(node, offset, length));
        }
        Operation::Setattr { node, changes: set } => {
            changes.inodes.push(if set.size.is_some() { content_of(node, 0, 0) } else { attributes_of(node) });
        }
        Operation::Fallocate { node, .. } => changes.inodes.push(content_of(node, 0, 0)),
        Operation::CopyFileRange(CopyFileRange { node_out, offset_out, length, .. }) => {
            changes.inodes.push(content_of(node_out, offset_out, length));
        }
        Operation::Setxattr { node, .. } | Operation::Removexattr { node, .. } => {
            changes.inodes.push(attributes_of(node));
        }
        _ if changes.names.is_empty() => return None,
        _ => {}
    }
    Some(changes)
}

/// What a request is about to change, for whoever tells others by himself; `None` if nothing.
#[must_use]
pub fn changes_of(request: &Request) -> Option<Changes> {
    of(request, None)
}

/// What a request has changed that was answered so.
pub(crate) fn done(request: &Request, answer: &Answer) -> Option<Changes> {
    let appended = match answer {
        Answer::Appended(place, bytes) => Some((*place, *bytes as u64)),
        _ => None,
    };
    let mut changes = Changes { is_begun: true, ..of(request, appended)? };
    match answer {
        Answer::Moved(inodes) => {
            changes.late.extend(inodes.iter().flatten());
            changes.inodes.extend(changes.late.iter().map(|inode| attributes_of(*inode)));
        }
        Answer::Created { entry, is_emptied: true, .. } => {
            changes.late.push(entry.node);
            changes.inodes.push(content_of(entry.node, 0, 0));
        }
        _ => {}
    }
    Some(changes)
}
