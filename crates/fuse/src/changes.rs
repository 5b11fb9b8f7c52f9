//! What a request that was done has changed, for kernels of other machines that may have it in memory.
//!
//! Read next: `door.rs`, through which others hear of it.

use fuse_wire::abi::opcode;
use fuse_wire::{CopyFileRange, OfferWrite, Operation, Request, Write, raw};

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
}

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

/// What a request that was done has changed; `None` if nothing. `appended`: where a write went, and how long it was, that its kernel may
/// have thought of elsewhere.
pub(crate) fn of(request: &Request, appended: Option<(u64, u64)>) -> Option<Changes> {
    if !may_change(request.opcode()) {
        return None;
    }
    let mut changes = Changes { by: request.remote_tag(), tell_own: appended.is_some(), ..Changes::default() };
    let mut name = |parent: u64, name: &[u8]| {
        changes.names.push((parent, name.to_vec()));
        changes.inodes.push(attributes_of(parent));
    };
    match request.operation() {
        Operation::Create { parent, name: made, .. }
        | Operation::Mknod { parent, name: made, .. }
        | Operation::Mkdir { parent, name: made, .. }
        | Operation::Symlink { parent, name: made, .. }
        | Operation::Unlink { parent, name: made }
        | Operation::Rmdir { parent, name: made } => name(parent, made),
        Operation::Rename { parent, name: old, new_parent, new_name, .. } => {
            name(parent, old);
            name(new_parent, new_name);
        }
        Operation::Link { node, new_parent, new_name } => {
            name(new_parent, new_name);
            changes.inodes.push(attributes_of(node));
        }
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
        _ => return None,
    }
    Some(changes)
}
