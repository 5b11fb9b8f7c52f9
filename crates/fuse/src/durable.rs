//! Answers that wait until what they tell of is durable: changes of what policy says `sync=always` of.
//!
//! A change is made, and its answer is kept here; one worker at a time takes all answers that wait, hands over what they wrote, commits
//! once, and answers. While it commits the next ones gather: groups are as large as callers are many.
//! Invariants: an answer that was put here is sent exactly once; one is sent as done only when a commit that began after its change has
//! returned. Read next: `front.rs`, the crate features' `durability.rs`.

use fuse_wire::abi::opcode;
use fuse_wire::{Operation, Request, Write};
use parking_lot::Mutex;

use crate::answer::Answer;
use crate::cached::CachedRange;
use crate::changes::{Changes, WhenHeard};

/// A change that was made and is to be durable before it is answered.
pub(crate) struct Waiting {
    pub request: Request,
    pub answer: Answer,
    pub when_heard: Option<WhenHeard>,
    pub doubtful: Option<CachedRange>,
    /// What was changed.
    pub inodes: Vec<u64>,
}

/// What waits, and whether somebody is at work on it.
#[derive(Default)]
pub(crate) struct Durable {
    state: Mutex<(Vec<Waiting>, bool)>,
}

impl Durable {
    /// Puts one to those that wait; true if nobody is at work, who puts it has to begin then.
    pub fn put(&self, waiting: Waiting) -> bool {
        let mut state = self.state.lock();
        state.0.push(waiting);
        !std::mem::replace(&mut state.1, true)
    }

    /// All that wait, for the one who is at work; nothing when he is done.
    pub fn take(&self) -> Vec<Waiting> {
        let mut state = self.state.lock();
        assert!(state.1, "somebody is at work");
        state.1 = !state.0.is_empty();
        std::mem::take(&mut state.0)
    }
}

/// What of a change has to be durable where policy says so: not what a kernel wrote back from its cache, which nobody waits for.
pub(crate) fn subjects(request: &Request, changes: &Changes) -> Vec<u64> {
    let is_from_cache = matches!(request.operation(), Operation::Write(Write { from_cache: true, .. }));
    if is_from_cache || request.opcode() == opcode::OFFER_WRITE {
        return Vec::new();
    }
    let mut inodes: Vec<u64> = changes.inodes.iter().map(|changed| changed.node).collect();
    inodes.sort_unstable();
    inodes.dedup();
    inodes
}
