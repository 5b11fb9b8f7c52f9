//! Reads whose answer is a map: threads of their own read the bytes where the owner said they lie, and answer the kernel.
//!
//! Invariant: a request is answered once, by whoever has it: it left the table when its map came, and goes back there when its bytes could
//! not be read. Read next: `link.rs`; the crate `direct`, which reads.

use std::collections::VecDeque;

use fuse_wire::{Operation, Request};
use parking_lot::{Condvar, Mutex};

/// The bytes of a map, verified, of an inode from an offset on; `None` where they cannot be had, or the map is none.
pub type ReadMap = Box<dyn Fn(&[u8], u64, u64) -> Option<Vec<u8>> + Send + Sync>;

/// Reads from nodes what the owner tells as maps.
pub struct ReadContent {
    /// Whether maps are of use now.
    pub is_ready: Box<dyn Fn() -> bool + Send + Sync>,
    /// Whether anything encrypted can be read.
    pub has_keys: Box<dyn Fn() -> bool + Send + Sync>,
    pub read: ReadMap,
}

/// Reads at the same time: what a kernel reads ahead of one or two streams.
const THREADS: usize = 16;

#[derive(Default)]
struct Queue {
    maps: VecDeque<(Request, Vec<u8>)>,
    is_over: bool,
}

/// The reads that wait for a thread.
pub(crate) struct Mapped {
    content: Option<ReadContent>,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

impl Mapped {
    pub fn new(content: Option<ReadContent>) -> Mapped {
        Mapped { content, queue: Mutex::default(), arrived: Condvar::new() }
    }

    /// How many threads shall read.
    pub fn threads(&self) -> usize {
        if self.content.is_some() { THREADS } else { 0 }
    }

    pub fn is_ready(&self) -> bool {
        self.content.as_ref().is_some_and(|content| (content.is_ready)())
    }

    pub fn has_keys(&self) -> bool {
        self.content.as_ref().is_some_and(|content| (content.has_keys)())
    }

    pub fn push(&self, request: Request, map: Vec<u8>) {
        self.queue.lock().maps.push_back((request, map));
        self.arrived.notify_one();
    }

    pub fn end(&self) {
        self.queue.lock().is_over = true;
        self.arrived.notify_all();
    }

    /// Reads, until the end; `unread` gets those whose bytes could not be had. For threads of their own.
    pub fn read(&self, unread: impl Fn(Request)) {
        let Some(content) = &self.content else { return };
        loop {
            let (request, map) = {
                let mut queue = self.queue.lock();
                loop {
                    if let Some(next) = queue.maps.pop_front() {
                        break next;
                    }
                    if queue.is_over {
                        return;
                    }
                    self.arrived.wait(&mut queue);
                }
            };
            let bytes = match request.operation() {
                Operation::Read { node, offset, .. } => (content.read)(&map, node, offset),
                _ => None,
            };
            match bytes {
                Some(bytes) => drop(request.reply_raw(0, &bytes)),
                None => unread(request),
            }
        }
    }
}
