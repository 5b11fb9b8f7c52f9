//! What the kernel has in memory of files, and when that may differ from what they hold.
//!
//! A store into a shared mapping reaches us when the kernel writes the page back. Where that is refused (the file is retained,
//! encrypted with a locked key, over its quota, the pool is full) the kernel keeps the page and shows it to everybody. So it is told to
//! forget it, after the answer and never by a thread that it waits for.
//!
//! A direct write goes past the kernel's pages, and where it is asynchronous the kernel leaves those in place that were read
//! meanwhile. So before such a write is answered, the kernel is told to forget its range, if it may have pages of the file ([`Paged`]).
//! Invariant: what the kernel may have pages of is known before they are read.
//! Read next: `front.rs`, where this is asked.

use std::sync::atomic::{AtomicU64, Ordering};

use fuse_wire::abi::opcode;
use fuse_wire::{Operation, Request, Write};

/// The attribute that makes a file one that nobody may change.
const RETAIN: &[u8] = b"user.stere.retain";

/// A range of a file's content in the kernel's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedRange {
    pub node: u64,
    pub offset: i64,
    /// 0: to the end.
    pub length: i64,
}

impl CachedRange {
    pub fn whole(node: u64) -> CachedRange {
        CachedRange { node, offset: 0, length: 0 }
    }
}

/// Bits of [`Paged`].
const PAGED_BITS: u64 = 1 << 16;

/// Files of which the kernel may have pages: a bit for many of them, so that all it costs is a notification too many.
#[derive(Debug)]
pub(crate) struct Paged(Box<[AtomicU64]>);

impl Default for Paged {
    fn default() -> Paged {
        Paged((0..PAGED_BITS / 64).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Paged {
    fn bit(&self, node: u64) -> (&AtomicU64, u64) {
        let at = node % PAGED_BITS;
        (&self.0[(at / 64) as usize], 1 << (at % 64))
    }

    /// A request is about to be served after which the kernel may have pages.
    pub fn note(&self, request: &Request) {
        let node = match request.operation() {
            Operation::Read { node, flags, .. } if !is_direct(flags) => node,
            Operation::Write(Write { node, flags, from_cache, .. }) if from_cache || !is_direct(flags) => node,
            _ => return,
        };
        let (word, bit) = self.bit(node);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// What the kernel has to forget before it gets the answer to a request that was done.
    pub fn passed_by(&self, request: &Request) -> Option<CachedRange> {
        if request.opcode() != opcode::WRITE {
            return None;
        }
        match request.operation() {
            Operation::Write(Write { node, offset, data, flags, from_cache: false, .. }) if is_direct(flags) => {
                let (word, bit) = self.bit(node);
                let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
                let range = CachedRange { node, offset: signed(offset), length: signed(data.len() as u64) };
                (word.load(Ordering::SeqCst) & bit != 0).then_some(range)
            }
            _ => None,
        }
    }
}

/// By the flags of open(2) of the file.
fn is_direct(flags: u32) -> bool {
    flags.cast_signed() & libc::O_DIRECT != 0
}

/// Whether a write is to be done whole or answered with an error.
pub(crate) fn must_be_whole(operation: &Operation<'_>) -> bool {
    matches!(operation, Operation::Write(Write { flags, from_cache, .. }) if *from_cache || is_direct(*flags))
}

/// Whether a request says that a file may not be changed from now on.
pub(crate) fn retains(request: &Request) -> bool {
    request.opcode() == opcode::SETXATTR
        && matches!(request.operation(), Operation::Setxattr { name, .. } if name == RETAIN)
}

/// What the kernel may show and the file does not hold, once this request was answered so.
pub(crate) fn doubtful(request: &Request, is_done: bool) -> Option<CachedRange> {
    if !matches!(request.opcode(), opcode::WRITE | opcode::SETXATTR) {
        return None;
    }
    match request.operation() {
        Operation::Write(Write { node, offset, data, from_cache: true, .. }) if !is_done => {
            let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            Some(CachedRange { node, offset: signed(offset), length: signed(data.len() as u64) })
        }
        // Pages that were changed between the two.
        Operation::Setxattr { node, name: RETAIN, .. } if is_done => Some(CachedRange::whole(node)),
        _ => None,
    }
}
