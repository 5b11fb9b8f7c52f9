//! The memory behind one request of another machine, and what takes its answer.
//!
//! Invariant: the closure that takes the answer is called once at most. Read next: `remote.rs`, which makes requests of it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::abi::structs::InHeader;
use crate::buffer::{Arena, PAGE_BYTES};
use crate::operation::arguments::{Arguments, DecodeContext};
use crate::remote_id::RemoteContext;

/// What a request is answered with.
#[derive(Clone, Copy, Debug)]
pub struct RemoteAnswer<'a> {
    /// Positive; 0: done.
    pub errno: i32,
    /// What lies behind the answer's header.
    pub bytes: &'a [u8],
    /// Where a write went, as `Request::note_place` said.
    pub place: u64,
    /// The bytes say where what was to be read lies.
    pub is_map: bool,
}

/// Takes an answer.
pub type RemoteReply = Box<dyn FnOnce(RemoteAnswer<'_>) + Send>;

/// Memory behind one request.
pub(crate) struct Remote {
    pub tag: u64,
    pub context: RemoteContext,
    pub message: Vec<u8>,
    /// For answers that are written in place.
    pub arena: Option<Arena>,
    pub reply: Mutex<Option<RemoteReply>>,
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

impl Remote {
    pub fn payload(&self) -> (NonNull<u8>, usize) {
        match &self.arena {
            Some(arena) => (arena.payload(0), arena.payload_bytes()),
            None => (NonNull::<Page>::dangling().cast(), 0),
        }
    }

    pub fn arguments(&self, header: &InHeader, decode: &DecodeContext) -> Arguments<'_> {
        Arguments::of_message(&self.message, header, decode)
    }

    /// Answers with these bytes.
    pub fn answer(&self, errno: i32, bytes: &[u8]) {
        self.give(errno, bytes, false);
    }

    /// Answers a read with where the bytes lie.
    pub fn answer_map(&self, map: &[u8]) {
        assert!(self.context.takes_map, "a map is given to who takes one");
        self.give(0, map, true);
    }

    fn give(&self, errno: i32, bytes: &[u8], is_map: bool) {
        let Some(reply) = self.reply.lock().take() else { return };
        let place = self.place.load(Ordering::Relaxed);
        assert!(errno >= 0, "an error is told as a positive number");
        reply(RemoteAnswer { errno, bytes, place, is_map });
    }

    /// Answers with so many bytes of those that were written in place.
    pub fn answer_in_place(&self, errno: i32, count: usize) {
        let Some(arena) = self.arena.as_ref().filter(|_| count > 0) else { return self.answer(errno, &[]) };
        assert!(count <= arena.payload_bytes(), "an answer of {count} bytes fits in its room");
        // SAFETY: in bounds of memory that is this request's alone, and initialised as zeros or by us.
        let bytes = unsafe { std::slice::from_raw_parts(arena.payload(0).as_ptr(), count) };
        self.answer(errno, bytes);
    }
}

const _: () = assert!(align_of::<Page>() == PAGE_BYTES);
