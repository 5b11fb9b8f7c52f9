//! Requests that came from a kernel of another machine: as bytes, with a closure that takes the answer.
//!
//! A [`Filesystem`](crate::Filesystem) does not notice: it gets a [`Request`] like any other. Invariants: the message is laid out as
//! /dev/fuse lays it out; the answer closure is called once, or never for what wants no answer; the process number of another machine
//! means nothing here, so it is 0. Read next: `raw.rs`, what such bytes tell without being decoded.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::abi::opcode;
use crate::abi::structs::{InHeader, IoctlIn, IoctlOut, ReadIn, split};
use crate::buffer::{Arena, PAGE_BYTES};
use crate::dispatch::Shared;
use crate::interrupt::Interrupts;
use crate::operation::arguments::{Arguments, DecodeContext};
use crate::request::{Body, Origin, Request};

#[cfg(test)]
mod tests;

/// What a request is answered with.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAnswer<'a> {
    /// Positive; 0: done.
    pub errno: i32,
    /// What lies behind the answer's header.
    pub bytes: &'a [u8],
    /// Where a write went, as `Request::note_place` said.
    pub place: u64,
}

/// Takes an answer.
pub type RemoteReply = Box<dyn FnOnce(RemoteAnswer<'_>) + Send>;

/// What the requests of one far session have in common.
#[derive(Clone, Debug)]
pub struct RemoteSession {
    tag: u64,
    shared: Arc<Shared>,
}

/// Memory behind one request.
pub(crate) struct Remote {
    pub tag: u64,
    message: Vec<u8>,
    /// For answers that are written in place.
    arena: Option<Arena>,
    reply: Mutex<Option<RemoteReply>>,
    pub place: AtomicU64,
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Remote").field("tag", &self.tag).field("bytes", &self.message.len()).finish()
    }
}

/// A page, to have an address of one where there is no memory.
#[repr(align(4096))]
struct Page;

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
        let remote = Remote { tag: self.tag, message, arena, reply: Mutex::new(Some(reply)), place: AtomicU64::new(0) };
        let (shared, origin) = (Arc::clone(&self.shared), Origin::Remote(Box::new(remote)));
        Some(Request { header, slot: 0, message_bytes, origin, shared, answered: false })
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

impl Remote {
    pub fn payload(&self) -> (NonNull<u8>, usize) {
        match &self.arena {
            Some(arena) => (arena.payload(0), arena.payload_bytes()),
            None => (NonNull::<Page>::dangling().cast(), 0),
        }
    }

    pub fn arguments(&self, request: &Request) -> Arguments<'_> {
        Arguments::of_message(&self.message, &request.header, &request.shared.decode)
    }

    pub fn answer(&self, errno: i32, body: &Body<'_>) {
        let Some(reply) = self.reply.lock().take() else { return };
        let place = self.place.load(Ordering::Relaxed);
        match (body, &self.arena) {
            (Body::Bytes(bytes), _) => reply(RemoteAnswer { errno, bytes, place }),
            (Body::InPlace(0), _) | (Body::InPlace(_), None) => reply(RemoteAnswer { errno, bytes: &[], place }),
            (Body::InPlace(bytes), Some(arena)) => {
                assert!(*bytes <= arena.payload_bytes(), "answer of {bytes} bytes");
                // SAFETY: in bounds of memory that is this request's alone, and initialised as zeros or by us.
                let bytes = unsafe { std::slice::from_raw_parts(arena.payload(0).as_ptr(), *bytes) };
                reply(RemoteAnswer { errno, bytes, place });
            }
        }
    }
}

const _: () = assert!(align_of::<Page>() == PAGE_BYTES);
