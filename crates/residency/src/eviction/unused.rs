//! `release=`: archived content that nobody used for as long as policy says is given up on devices, whatever room there is.
//!
//! A segment goes as a whole, and how it was used is known of it as a whole. So it goes when the policy of everything that is alive in it
//! lets it: of several times the longest counts, and what says nothing stays. Who stored something need not be who has it (content that
//! files share, versions, files that were removed): where that may be so the segment stays, for nobody asked those who have it.
//! Invariants: nothing goes that `Choice` would keep (what is pinned, of others, or not on all its media); a pool in which nobody says
//! `release=` pays a look at what is remembered.
//! Read next: `choice.rs`, `../residency_policy.rs`.

use std::sync::atomic::Ordering;

use stere_faults::{Bug, is_planted};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_store::TierPolicy;

use super::choice::Choice;
use super::others::has_all;
use super::{Eviction, RELEASED_AT_ONCE};

/// How often it is looked for what may go, in seconds; more often where policy says shorter times.
const LOOK_SECONDS: i64 = 60;

impl Eviction {
    /// The shortest time without use after which anything goes, where somebody asks for that and it is time to look.
    pub(super) fn due_release(&self, caller: &Caller<'_>) -> Result<Option<u64>, Error> {
        let (now, due) = (caller.now.seconds, self.release_due_seconds.load(Ordering::Relaxed));
        // A clock that was set back looks again.
        if now < due && due.saturating_sub(now) <= LOOK_SECONDS {
            return Ok(None);
        }
        let shortest = self.residency.shortest_release(caller.io)?;
        if let Some(shortest) = shortest {
            let rest = i64::try_from(shortest).unwrap_or(i64::MAX).clamp(1, LOOK_SECONDS);
            self.release_due_seconds.store(now.saturating_add(rest), Ordering::Relaxed);
        }
        Ok(shortest)
    }

    /// Releases what nobody used for so long as its policy says; nothing that was used within the shortest time.
    pub(super) fn release_unused(
        &self,
        caller: &Caller<'_>,
        policy: &TierPolicy,
        shortest_seconds: u64,
    ) -> Result<u64, Error> {
        let now_seconds = u64::try_from(caller.now.seconds).unwrap_or(0);
        let unused_seconds = |used: u64| now_seconds.saturating_sub(used);
        let mut candidates = self.release_candidates(caller)?;
        candidates.retain(|one| unused_seconds(one.heat.used_seconds) >= shortest_seconds);
        let mut due = Vec::new();
        for one in candidates {
            if self.lets_go(caller, one.segment, unused_seconds(one.heat.used_seconds))? {
                due.push(one);
            }
        }
        if due.is_empty() {
            return Ok(0);
        }
        let (mut choice, mut released) = (Choice::new(self, caller, policy, due)?, 0);
        loop {
            let few = choice.next_few(RELEASED_AT_ONCE)?;
            if few.is_empty() {
                return Ok(released);
            }
            released += self.release_few(caller, choice.change(), &few)?;
        }
    }

    /// Whether the policy of all that is alive in a segment lets it go after so long without use.
    fn lets_go(&self, caller: &Caller<'_>, segment: u64, unused_seconds: u64) -> Result<bool, Error> {
        let members = self.core.store.tier.heat.members_of_segment(segment)?;
        if is_planted(Bug::ReleasedTooEarly) {
            return Ok(!members.inodes.is_empty());
        }
        if members.is_shared {
            return Ok(false);
        }
        for (inode, member) in &members.inodes {
            let asked = match self.residency.release_of(caller.io, caller.now, *inode) {
                // It was removed, and something else has what it stored.
                Err(Error::Stale) => return Ok(false),
                found => found?.map(|(seconds, _)| seconds),
            };
            let goes = asked.is_some_and(|seconds| seconds > 0 && unused_seconds >= seconds);
            if !goes || !has_all(&self.core, caller.io, *inode, member)? {
                return Ok(false);
            }
        }
        Ok(!members.inodes.is_empty())
    }
}
