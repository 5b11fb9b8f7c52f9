//! Names that nobody used for a while are put away by themselves (`user.stere.names=90d`).
//!
//! The nearest directory above that says something decides. That one stays with its entries, as the one that `fold_below` was said of;
//! what lies below the directories in it goes when nobody listed, looked up, opened or changed something there for so long.
//!
//! No names are walked over for it. Each directory that may go has a note (`NamesUse`): when it was used, and when it need be looked at.
//! Notes come from who uses a directory, from names that come back, and once from above downwards where somebody says `names=` or moves a
//! directory. When one is due its directory is looked at alone, and when it went as a whole, the one above it. What cannot go is looked at
//! after an eighth of the age again. So a round over the notes costs in proportion to them, and a directory that is away has none.
//!
//! Invariants: a directory here below one that says so has a note, or one above it says that its directories are not noted yet; what was
//! used since it was looked at does not go. A crash forgets the uses of a minute, and what was gathered: nothing was changed by it.
//! Read next: `fold.rs`, `cold/uses.rs`, `docs/design/folding.md`.

mod round;
mod uses;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stere_format::{FileKind, Key, NamesUse, key};
use stere_policy::{PolicyError, Source, parse_length, show_length};
use stere_store::{Store, Transaction, View, Wait, passing_over};

use crate::error::Error;
use crate::policy::nearest;
use crate::{Caller, FileSystem, SetMode, xattr};

/// The attribute that says how long.
pub(crate) const ATTRIBUTE: &[u8] = b"user.stere.names";
const EXPECTED: &str = "how long nobody may have used them (90d; s, m, h, d, w, y), or no";
/// The longest that can be asked for, so that adding it to any moment makes a moment.
const SECONDS_MAX: u64 = 10_000 * 365 * 86_400;

/// What a mount knows of it.
#[derive(Default)]
pub(crate) struct Cold {
    /// Whether anybody says something, or notes are left.
    is_on: AtomicBool,
    uses: Mutex<uses::Uses>,
    round: Mutex<round::Round>,
    /// Somebody says something else: all notes are to be looked at.
    is_said_anew: AtomicBool,
}

/// What a directory says; 0 where names stay.
fn said(view: &View<'_>, inode: u64) -> Result<Option<u64>, Error> {
    let bytes = view.get(&Key::names_age(inode))?;
    Ok(bytes.and_then(|bytes| bytes[..].try_into().ok()).map(u64::from_le_bytes))
}

/// The note of a directory.
fn note_of(bytes: &[u8]) -> NamesUse {
    // One that cannot be read is one that says nothing.
    NamesUse::decode(bytes).unwrap_or_default()
}

fn seconds(caller: &Caller<'_>) -> u64 {
    u64::try_from(caller.now.seconds).unwrap_or(0)
}

impl Cold {
    /// Reads whether there is anything to do.
    pub fn load(store: &Store) -> Result<Cold, Error> {
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        let is_on = store.view(Wait::Allowed, |view| {
            let mut is_on = false;
            let mut note = |is_it: bool| {
                is_on |= is_it;
                if is_on { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            view.scan(Key::names_use(0), Key::names_use(u64::MAX), |_, _| note(true))?;
            view.scan(from, to, |key, _| note(key.kind == key::kind::NAMES_AGE))?;
            Ok::<_, Error>(is_on)
        })?;
        let cold = Cold { is_said_anew: AtomicBool::new(true), ..Cold::default() };
        cold.switch(store, is_on);
        Ok(cold)
    }

    fn switch(&self, store: &Store, is_on: bool) {
        self.is_on.store(is_on, Ordering::Release);
        store.note_unfolded(is_on);
    }

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }
}

impl FileSystem {
    /// Says after how long names below a directory go, or that they stay, or leaves it to those above.
    pub(crate) fn set_names(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: Option<&[u8]>,
        mode: SetMode,
    ) -> Result<(), Error> {
        let age_seconds = parse(value)?;
        self.cold.switch(&self.store, true);
        let changed = self.changing_attribute(caller, inode, |transaction, inode_value| {
            if inode_value.kind() != Some(FileKind::Directory) {
                return Err(Error::NotPermitted("names lie in directories; set it on one"));
            }
            xattr::check_mode(mode, transaction.get(&Key::names_age(inode))?.is_some())?;
            match age_seconds {
                Some(age_seconds) => transaction.put(Key::names_age(inode), &age_seconds.to_le_bytes()),
                None => transaction.delete(Key::names_age(inode)),
            }
            note_new(transaction, caller, inode);
            Ok(())
        });
        self.saying.note_change();
        self.cold.is_said_anew.store(true, Ordering::Release);
        changed
    }

    pub(crate) fn own_names(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        Ok(text(self.store.view(caller.wait, |view| said(view, inode))?.ok_or(Error::NoAttribute)?))
    }

    /// After how long the names below an inode go, and which directory says so.
    pub(crate) fn effective_names(&self, caller: &Caller<'_>, inode: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let found = self.store.view(caller.wait, |view| nearest(view, inode, |at, _| said(view, at)))?;
        let (at, age_seconds) = found.ok_or(Error::NoAttribute)?;
        Ok((text(age_seconds), self.source_text(caller, inode, Source::Inode(at), &[])?))
    }

    /// A directory came to lie elsewhere, with all that is below it.
    pub(crate) fn note_moved(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        directory: u64,
    ) -> Result<(), Error> {
        if self.cold.is_on() {
            note_new(transaction, caller, directory);
            let mut uses = self.cold.uses.lock();
            uses.note(directory, seconds(caller));
            uses.has_news = true;
        }
        Ok(())
    }

    /// Puts away some names that nobody used for long enough. Tells whether there is more to do.
    pub(crate) fn put_away_cold(&self, caller: &Caller<'_>, budget: usize) -> Result<bool, Error> {
        if !self.cold.is_on() {
            return Ok(false);
        }
        let mut round = self.cold.round.lock();
        // None of this brings anything back.
        passing_over(|| self.step_round(caller, &mut round, budget))
    }

    /// The shortest age that any directory says, and whether any says something.
    fn ages(&self, wait: Wait) -> Result<(Option<u64>, bool), Error> {
        let saying = self.all_that_say(wait, key::kind::NAMES_AGE, Key::names_age)?;
        let ages: BTreeSet<u64> = self.store.view(wait, |view| {
            saying.iter().filter_map(|inode| said(view, *inode).transpose()).collect::<Result<_, Error>>()
        })?;
        Ok((ages.into_iter().find(|age| *age > 0), !saying.is_empty()))
    }
}

/// A directory is to be looked at, and those below it.
fn note_new(transaction: &mut Transaction<'_>, caller: &Caller<'_>, directory: u64) {
    let note = NamesUse { is_new: true, used_seconds: seconds(caller), look_seconds: 0 };
    transaction.put(Key::names_use(directory), &note.encode());
}

fn parse(value: Option<&[u8]>) -> Result<Option<u64>, Error> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
    let refused = || PolicyError::BadValue {
        key: "names",
        value: String::from_utf8_lossy(value).into_owned(),
        expected: EXPECTED,
    };
    match std::str::from_utf8(value) {
        Ok("no") => Ok(Some(0)),
        Ok(text) => {
            let age_seconds = parse_length(text).filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
            Ok(Some(age_seconds.ok_or_else(refused)?))
        }
        Err(_) => Err(refused().into()),
    }
}

fn text(age_seconds: u64) -> Vec<u8> {
    if age_seconds == 0 { b"no".to_vec() } else { show_length(age_seconds).into_bytes() }
}
