//! Requests that came from a kernel of another machine: as bytes, with a closure that takes the answer.
//!
//! A [`Filesystem`](crate::Filesystem) does not notice: it gets a [`Request`] like any other. Invariants: the message is laid out as
//! /dev/fuse lays it out; the answer closure is called once, or never for what wants no answer; the process number of another machine
//! means nothing here, so it is 0. Read next: `raw.rs`, what such bytes tell without being decoded.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use crate::abi::opcode;
use crate::abi::structs::{InHeader, IoctlIn, IoctlOut, ReadIn, split};
use crate::buffer::Arena;
use crate::dispatch::Shared;
use crate::interrupt::Interrupts;
use crate::operation::arguments::DecodeContext;
use crate::remote_id::RemoteContext;
use crate::remote_memory::{Remote, RemoteReply};
use crate::request::{Origin, Request};

#[cfg(test)]
mod tests;

/// What the requests of one far session have in common.
#[derive(Clone, Debug)]
pub struct RemoteSession {
    tag: u64,
    shared: Arc<Shared>,
}

impl RemoteSession {
    /// `tag` tells its requests from others'; the rest was agreed on between that kernel and whoever serves it.
    #[must_use]
    pub fn new(tag: u64, setxattr_extended: bool, answer_bytes_max: usize) -> Self {
        let decode = DecodeContext { setxattr_extended, payload_bytes_max: answer_bytes_max };
        Self { tag, shared: Shared::new(Interrupts::new(1), decode, false) }
    }

    /// A request of these bytes. `None` if they are none: too short, of another length than they say, or for want of memory.
    #[must_use]
    pub fn request(&self, message: Vec<u8>, reply: RemoteReply) -> Option<Request> {
        self.request_of(RemoteContext::default(), message, reply)
    }

    /// The same for one of which more is said.
    #[must_use]
    pub fn request_of(&self, context: RemoteContext, message: Vec<u8>, reply: RemoteReply) -> Option<Request> {
        let (mut header, body) = split::<InHeader>(&message)?;
        let room = answer_room(header.opcode, body).min(self.shared.decode.payload_bytes_max);
        if header.len as usize != message.len() || usize::from(header.total_extlen) * 8 > body.len() {
            return None;
        }
        header.pid = 0;
        // No kernel gives 0, which no interrupt is of either.
        header.unique = header.unique.max(1);
        let arena = if room > 0 { Some(Arena::new(1, room).ok()?) } else { None };
        let message_bytes = message.len();
        let (reply, place) = (Mutex::new(Some(reply)), AtomicU64::new(0));
        let remote = Remote { tag: self.tag, context, message, arena, reply, place };
        let (shared, origin) = (Arc::clone(&self.shared), Origin::Remote(Box::new(remote)));
        let (companion, when_answered) = (None, None);
        Some(Request { header, slot: 0, message_bytes, origin, shared, answered: false, companion, when_answered })
    }

    /// Nobody waits for any answer any more.
    pub fn end(&self) {
        self.shared.end();
    }
}

/// How many bytes the answer to a request may be written in place.
fn answer_room(operation: u32, body: &[u8]) -> usize {
    match operation {
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
            split::<ReadIn>(body).map_or(0, |(input, _)| input.size as usize)
        }
        opcode::IOCTL => split::<IoctlIn>(body)
            .map_or(0, |(input, _)| (input.out_size as usize).saturating_add(size_of::<IoctlOut>())),
        _ => 0,
    }
}
