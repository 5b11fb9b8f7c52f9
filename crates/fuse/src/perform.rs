//! What each operation asks of naming.
//!
//! Nothing in here waits when it is told not to, and everything can be repeated after `WouldBlock`. Permissions were
//! checked by the kernel (`default_permissions`, POSIX ACLs). Read next: `perform/names.rs`, `perform/content.rs`,
//! `perform/directory.rs`, `perform/attributes.rs`.

mod attributes;
mod content;
mod directory;
mod names;
mod trim;

use fuse_wire::{Operation, Request};
use stere_naming::Io;

use crate::performer::{Outcome, Performer};
use directory::Listing;

impl Performer {
    /// Does what the request asks, as far as it can be done without waiting if `wait` says so.
    pub(crate) fn perform(&self, request: &mut Request, io: Io<'_>) -> Outcome {
        let operation = request.operation();
        match operation {
            // These write into the request's buffer, so the borrow of the operation has to end.
            Operation::Read { node, handle, offset, size, .. } => {
                self.used(request, node, handle);
                self.read(request, io, node, offset, size)
            }
            Operation::Readdir { node, handle, offset, size } => {
                self.readdir(request, io, Listing { node, handle, offset, size }, false)
            }
            Operation::Readdirplus { node, handle, offset, size } => {
                self.readdir(request, io, Listing { node, handle, offset, size }, true)
            }
            Operation::Lookup { .. }
            | Operation::Readlink { .. }
            | Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Create { .. }
            | Operation::Tmpfile { .. } => self.name_operation(request, &operation, io),
            Operation::Getattr { .. }
            | Operation::Setattr { .. }
            | Operation::Statx { .. }
            | Operation::Statfs { .. }
            | Operation::Setxattr { .. }
            | Operation::Getxattr { .. }
            | Operation::Listxattr { .. }
            | Operation::Removexattr { .. } => self.attribute_operation(request, &operation, io),
            _ => self.content_operation(request, &operation, io),
        }
    }
}
