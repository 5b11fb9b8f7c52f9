//! The file system that the kernel of a client sees: every request goes to the owner.
//!
//! Read next: `link.rs`.

use std::sync::Arc;

use fuse_wire::abi::opcode;
use fuse_wire::{Negotiated, Notifier, Request};

use crate::link::Link;

/// Gives the kernel's requests to the link.
pub struct Forwarder(pub Arc<Link>);

impl fuse_wire::Filesystem for Forwarder {
    fn init(&self, negotiated: &Negotiated, notifier: Notifier) {
        self.0.set_notifier(notifier);
        self.0.set_kernel(negotiated.kernel_minor, negotiated.flags);
    }

    fn handle(&self, request: Request) {
        match request.opcode() {
            // The mount ends here, not the pool.
            opcode::DESTROY => request.reply_ok(),
            opcode::NOTIFY_REPLY => request.reply_none(),
            // The kernel does these itself once it has heard that nobody else does.
            opcode::ACCESS | opcode::BMAP | opcode::POLL => request.reply_error(libc::ENOSYS),
            _ => self.0.forward(request),
        }
    }

    fn interrupted(&self, unique: u64) {
        self.0.interrupted(unique);
    }

    fn ended(&self) {
        self.0.give_up();
    }
}
