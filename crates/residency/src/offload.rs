//! Names that nobody used for a while are put away by themselves (`names=90d`).
//!
//! The nearest directory above that says something, or that a rule or class says it of (`residency_policy.rs`), decides. That one stays with its entries, as the one that `fold_below` was said of;
//! what lies below the directories in it goes when nobody listed, looked up, opened or changed something there for so long.
//!
//! No names are walked over for it. Each directory that may go has a note (`NamesUse`): when it was used, and when it need be looked at.
//! Notes come from who uses a directory, from names that come back, and once from above downwards where somebody says `names=` or moves a
//! directory. When one is due its directory is looked at alone, and when it went as a whole, the one above it. What cannot go is looked at
//! after an eighth of the age again. So a round over the notes costs in proportion to them, and a directory that is away has none.
//!
//! Invariants: a directory here below one that says so has a note, or one above it says that its directories are not noted yet; what was
//! used since it was looked at does not go. A crash forgets the uses of a minute, and what was gathered: nothing was changed by it.
//! Read next: `fold.rs`, `offload/uses.rs`, `docs/design/folding.md`.

mod round;
mod uses;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_format::{Key, NamesUse, key};
use stere_namespace::access_times::LazyTimes;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::flagged::FlaggedInodes;
use stere_namespace::inode::Core;
use stere_namespace::tiers::Tiers;
use stere_store::{Io, Transaction};

use crate::residency_policy;
use crate::residency_policy::ResidencyPolicy;

/// Sends metadata that nobody uses down to media, and reloads it.
pub struct Offload {
    pub core: Arc<Core>,
    pub flagged: Arc<FlaggedInodes>,
    pub residency: Arc<ResidencyPolicy>,
    pub tiers: Arc<Tiers>,
    pub access_times: Arc<LazyTimes>,
    /// Whether anybody says something, or notes are left.
    is_on: AtomicBool,
    uses: Mutex<uses::Uses>,
    round: Mutex<round::Round>,
    /// Somebody says something else: all notes are to be looked at.
    is_said_anew: AtomicBool,
}

/// The note of a directory.
fn note_of(bytes: &[u8]) -> NamesUse {
    // One that cannot be read is one that says nothing.
    NamesUse::decode(bytes).unwrap_or_default()
}

fn seconds(caller: &Caller<'_>) -> u64 {
    u64::try_from(caller.now.seconds).unwrap_or(0)
}

impl Offload {
    /// Reads whether there is anything to do.
    pub fn load(
        core: Arc<Core>,
        flagged: Arc<FlaggedInodes>,
        residency: Arc<ResidencyPolicy>,
        tiers: Arc<Tiers>,
        access_times: Arc<LazyTimes>,
    ) -> Result<Offload, Error> {
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        let is_on = core.store.view(Io::BLOCKING, |view| {
            let mut is_on = false;
            let mut note = |is_it: bool| {
                is_on |= is_it;
                if is_on { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            view.scan(Key::names_use(0), Key::names_use(u64::MAX), |_, _| note(true))?;
            view.scan(from, to, |key, _| note(key.kind == key::kind::NAMES_AGE))?;
            Ok::<_, Error>(is_on)
        })?;
        let (uses, round) = Default::default();
        let (is_on_now, is_said_anew) = (AtomicBool::new(is_on), AtomicBool::new(true));
        let offload =
            Offload { core, flagged, residency, tiers, access_times, is_on: is_on_now, uses, round, is_said_anew };
        offload.switch(is_on || offload.residency.ruled(Io::BLOCKING)?.names);
        Ok(offload)
    }

    fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Release);
        self.core.store.offload().note_unfolded(is_on);
    }

    #[inline]
    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }
}

impl Offload {
    /// There is something to do from now on.
    pub fn begin_offload(&self) {
        self.switch(true);
    }

    /// All notes are looked at in the next round: something else is said of names.
    pub fn look_at_all_names(&self) {
        self.is_said_anew.store(true, Ordering::Release);
    }

    /// A directory came to lie elsewhere, with all that is below it.
    pub fn note_moved(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        directory: u64,
    ) -> Result<(), Error> {
        if self.is_on() {
            note_new(transaction, caller, directory);
            let mut uses = self.uses.lock();
            uses.note(directory, seconds(caller));
            uses.has_news = true;
        }
        Ok(())
    }

    /// Puts away some names that nobody used for long enough. Tells whether there is more to do.
    pub fn offload_cold(&self, caller: &Caller<'_>, budget: usize) -> Result<bool, Error> {
        if !self.is_on() {
            return Ok(false);
        }
        let mut round = self.round.lock();
        // None of this brings anything back.
        self.step_round(&caller.skipping_offloaded(), &mut round, budget)
    }

    /// The shortest age that any directory says, or rules and classes, and whether any says something.
    fn ages(&self, io: Io<'_>) -> Result<(Option<u64>, bool), Error> {
        let flagged_by = self.flagged.inodes_with(io, key::kind::NAMES_AGE, Key::names_age)?;
        let mut ages: BTreeSet<u64> = self.core.store.view(io, |view| {
            let own = |inode: &u64| Ok(residency_policy::own(view, *inode)?.names_seconds);
            flagged_by.iter().filter_map(|inode| own(inode).transpose()).collect::<Result<_, Error>>()
        })?;
        let ruled = self.residency.ruled(io)?;
        ages.extend(ruled.shortest_seconds);
        Ok((ages.into_iter().find(|age| *age > 0), !flagged_by.is_empty() || ruled.names))
    }
}

/// A directory is to be looked at, and those below it.
pub fn note_new(transaction: &mut Transaction<'_>, caller: &Caller<'_>, directory: u64) {
    let note = NamesUse { is_new: true, used_seconds: seconds(caller), look_seconds: 0 };
    transaction.put(Key::names_use(directory), &note.encode());
}
