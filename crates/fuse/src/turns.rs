//! Whose turn it is to wait for media: as many reads as the mount lets one user, and one set of volumes, have under way.
//!
//! What is beyond that waits here in the order in which it came, without a thread, and others pass it by: but one that was passed by
//! too often keeps free what it needs. Invariants: a turn is given back exactly once, whatever becomes of who had it; what begins
//! is begun outside the lock. Read next: `front.rs` (requests), `waiter.rs` (who was killed while he waited).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use stere_faults::{Bug, is_planted};

#[cfg(test)]
mod tests;

/// Who was passed by so often by somebody who needs the same keeps it free for himself.
const PASSED_MAX: u32 = 64;
/// How often it is looked whether those who wait for a turn still live.
const LOOK: Duration = Duration::from_millis(100);

/// How many reads may be under way at volumes at a time; none for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecallLimits {
    /// Of one user, other than root.
    pub user: Option<usize>,
    /// From one set of volumes.
    pub tier: Option<usize>,
}

/// What a read needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who reads.
    pub user: u32,
    /// The volumes that have it, a set.
    pub volumes: u16,
}

/// What a limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    User(u32),
    Volumes(u16),
}

/// What comes of waiting for a turn.
pub enum Come {
    /// It goes on; the turn ends when this is dropped.
    Turn(Turn),
    /// Nobody wants it any more.
    Gone,
}

type Begin = Box<dyn FnOnce(Come) + Send>;
type IsGone = Box<dyn Fn() -> bool + Send>;

struct Waiting {
    claim: Claim,
    passed: u32,
    begin: Begin,
    is_gone: IsGone,
}

#[derive(Default)]
struct State {
    under_way: BTreeMap<Of, usize>,
    waiting: Vec<Waiting>,
    turns: usize,
    has_watcher: bool,
    /// Everybody goes on.
    is_over: bool,
}

/// The turns of a mount.
pub struct Turns {
    limits: RecallLimits,
    /// A thread looks whether those who wait still live.
    is_watched: bool,
    state: Mutex<State>,
    ended: Condvar,
}

/// Somebody's turn.
pub struct Turn {
    turns: Arc<Turns>,
    claim: Claim,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.give_back(self.claim);
    }
}

impl Turns {
    /// Turns within these limits.
    pub fn new(limits: RecallLimits) -> Arc<Turns> {
        Arc::new(Turns { limits, is_watched: true, state: Mutex::default(), ended: Condvar::new() })
    }

    /// The same, where the caller looks whether those who wait still live (`look`), and no thread does.
    pub fn unwatched(limits: RecallLimits) -> Arc<Turns> {
        Arc::new(Turns { limits, is_watched: false, state: Mutex::default(), ended: Condvar::new() })
    }

    /// Whether it matters which volumes a read needs.
    pub fn are_by_volumes(&self) -> bool {
        self.limits.tier.is_some()
    }

    /// How many have a turn, and how many wait for one.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.turns, state.waiting.len())
    }

    fn limits_of(&self, claim: Claim) -> impl Iterator<Item = (Of, usize)> + use<> {
        let user = self.limits.user.filter(|_| claim.user != 0).map(|limit| (Of::User(claim.user), limit));
        user.into_iter().chain(self.limits.tier.map(|limit| (Of::Volumes(claim.volumes), limit)))
    }

    /// Calls `begin` when its turn comes, now or from another thread; or when `is_gone` says that nobody wants it any more.
    pub fn ask(
        self: &Arc<Self>,
        claim: Claim,
        begin: impl FnOnce(Come) + Send + 'static,
        is_gone: impl Fn() -> bool + Send + 'static,
    ) {
        let mut state = self.state.lock();
        state.waiting.push(Waiting { claim, passed: 0, begin: Box::new(begin), is_gone: Box::new(is_gone) });
        let come = self.take_come(&mut state);
        if !state.waiting.is_empty() && self.is_watched && !state.has_watcher {
            let turns = Arc::clone(self);
            let watcher = std::thread::Builder::new().name("stere-turns".into()).spawn(move || turns.watch());
            state.has_watcher = watcher.is_ok();
            if let Err(error) = watcher {
                tracing::warn!(%error, "who is killed while he waits for his turn waits until it comes");
            }
        }
        drop(state);
        self.begin_all(come);
    }

    /// The same for a thread that waits itself.
    pub fn wait(self: &Arc<Self>, claim: Claim) -> Option<Turn> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.ask(claim, move |come| drop(sender.send(come)), || false);
        match receiver.recv() {
            Ok(Come::Turn(turn)) => Some(turn),
            _ => None,
        }
    }

    /// No limit holds any more, and nobody waits.
    pub fn end(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.is_over = true;
        let come = self.take_come(&mut state);
        assert!(state.waiting.is_empty(), "{} wait when it is over", state.waiting.len());
        self.ended.notify_all();
        drop(state);
        self.begin_all(come);
    }

    /// Those whose turn has come, in order.
    fn take_come(&self, state: &mut State) -> Vec<Waiting> {
        let (mut come, mut kept) = (Vec::new(), BTreeSet::new());
        let mut passed_by: Vec<usize> = Vec::new();
        let mut index = 0;
        while index < state.waiting.len() {
            let claim = state.waiting[index].claim;
            let under_way = |of: Of| state.under_way.get(&of).copied().unwrap_or(0);
            let more = usize::from(is_planted(Bug::TurnTooMany));
            let is_free = |(of, limit): (Of, usize)| under_way(of) < limit + more && !kept.contains(&of);
            if !state.is_over && !self.limits_of(claim).all(is_free) {
                if state.waiting[index].passed >= PASSED_MAX && !is_planted(Bug::PassedForEver) {
                    kept.extend(self.limits_of(claim).map(|(of, _)| of));
                }
                passed_by.push(index);
                index += 1;
                continue;
            }
            for (of, _) in self.limits_of(claim) {
                *state.under_way.entry(of).or_default() += 1;
                for &earlier in &passed_by {
                    let needs_it = self.limits_of(state.waiting[earlier].claim).any(|(other, _)| other == of);
                    state.waiting[earlier].passed += u32::from(needs_it);
                }
            }
            state.turns += 1;
            come.push(state.waiting.remove(index));
        }
        come
    }

    fn begin_all(self: &Arc<Self>, come: Vec<Waiting>) {
        for one in come {
            (one.begin)(Come::Turn(Turn { turns: Arc::clone(self), claim: one.claim }));
        }
    }

    fn give_back(self: &Arc<Self>, claim: Claim) {
        let mut state = self.state.lock();
        assert!(state.turns > 0, "a turn that ends was counted");
        state.turns -= 1;
        for (of, _) in self.limits_of(claim) {
            let count = state.under_way.get_mut(&of);
            assert!(count.as_ref().is_some_and(|count| **count > 0), "what ends of {of:?} was counted");
            if let Some(count) = count {
                *count -= 1;
                if *count == 0 {
                    state.under_way.remove(&of);
                }
            }
        }
        assert!(state.turns > 0 || state.under_way.is_empty(), "nobody has a turn, and something is under way");
        let come = self.take_come(&mut state);
        drop(state);
        self.begin_all(come);
    }

    /// Looks now and then whether those who wait still live, until none waits.
    fn watch(self: Arc<Self>) {
        let mut state = self.state.lock();
        while !state.waiting.is_empty() && !state.is_over {
            self.ended.wait_for(&mut state, LOOK);
            MutexGuard::unlocked(&mut state, || self.look());
        }
        state.has_watcher = false;
    }

    /// Who does not live any more waits no more.
    pub fn look(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let gone: Vec<Waiting> = state.waiting.extract_if(.., |one| (one.is_gone)()).collect();
        if gone.is_empty() {
            return;
        }
        // What they kept free is others'.
        let come = self.take_come(&mut state);
        drop(state);
        gone.into_iter().for_each(|one| (one.begin)(Come::Gone));
        self.begin_all(come);
    }
}
