//! Telling plugins afterwards what was done to files: the list that transactions leave is served here, piece by piece.
//!
//! An event leaves the list in a transaction of its own, when all plugins of the file that follow it were told: so it is told at least
//! once, whatever crashes when. Events of a file are told in the order in which each was last, and only while nobody has the file open. What
//! fails is tried again after twice the time, and given up after some times; then it stays in the list, with the cause, until something
//! new is done to the file or somebody says otherwise. Nothing here is waited for by anybody.
//! Read next: `crates/file/src/following.rs`, which fills the list.

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use stere_faults::{Bug, is_planted};
use stere_file::inode_if_any;
use stere_format::{FollowValue, InodeValue, Key};
use stere_namespace::call::Caller;
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::plugins::{PluginRegistry, last_name};
use stere_namespace::tiers::Tiers;
use stere_plugin::{Event, EventKind, Stack};
use stere_store::Io;

use crate::backups::Backups;
use crate::extended_attributes::ExtendedAttributes;
use crate::plugin_events::Notes;

/// Entries of the list that are looked at together.
const BATCH: usize = 64;
/// Failures after which nobody tries again.
const FAILURES_MAX: u8 = 8;
/// After the first failure, after which it doubles.
const AGAIN_SECONDS: i64 = 1;
/// How long what cannot be read for now is left alone.
const LATER_SECONDS: i64 = 60;

/// How far going through the list is.
#[derive(Default)]
pub struct Pass {
    from: u64,
    /// When the first of those met is to be tried next.
    due_seconds: Option<i64>,
    /// Something came meanwhile, maybe behind us.
    is_stale: bool,
    rests_until: i64,
}

/// What waits, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowInfo {
    /// Its path; of what was removed the name it had.
    pub path: Vec<u8>,
    pub events: Vec<&'static str>,
    pub plugins: String,
    pub since_seconds: i64,
    pub failures: u8,
    pub next_seconds: i64,
    pub is_given_up: bool,
    pub cause: String,
}

/// What waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FollowList {
    pub waiting: u64,
    pub given_up: u64,
    /// Removals that nobody is told of, since the mount: too many waited.
    pub lost: u64,
    /// Some of them, those given up first.
    pub some: Vec<FollowInfo>,
}

/// What somebody wants done about what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowChange {
    /// All of it is tried at once.
    Retry,
    /// What was given up is forgotten.
    DropGivenUp,
    /// All is forgotten.
    DropAll,
}

/// What came of one entry.
enum Served {
    Done,
    /// Not now, and nobody is to blame.
    Later,
    Failed(String),
}

/// Tells plugins afterwards what was done to files.
pub struct AsynchronousEvents {
    core: Arc<Core>,
    registry: Arc<PluginRegistry>,
    encryption: Arc<EncryptionKeys>,
    tiers: Arc<Tiers>,
    backups: Arc<Backups>,
    attributes: Arc<ExtendedAttributes>,
    pass: Mutex<Pass>,
}

impl AsynchronousEvents {
    pub fn new(
        core: Arc<Core>,
        registry: Arc<PluginRegistry>,
        encryption: Arc<EncryptionKeys>,
        tiers: Arc<Tiers>,
        backups: Arc<Backups>,
        attributes: Arc<ExtendedAttributes>,
    ) -> AsynchronousEvents {
        AsynchronousEvents { core, registry, encryption, tiers, backups, attributes, pass: Mutex::default() }
    }

    /// A piece of the work: tells plugins of so many files. `is_stopped`: asked while content is read. Tells whether there is more
    /// to do at once.
    pub fn follow_step(
        &self,
        caller: &Caller<'_>,
        budget: usize,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        // One at a time, so that events of a file keep their order.
        let Some(mut pass) = self.pass.try_lock() else { return Ok(false) };
        let now = caller.now.seconds;
        if self.core.files.following().take_new() {
            (pass.is_stale, pass.rests_until) = (true, 0);
        }
        if now < pass.rests_until {
            return Ok(false);
        }
        let batch = self.waiting(caller.io, pass.from, BATCH)?;
        let is_last = batch.len() < BATCH;
        let mut served = 0;
        for (inode, value) in batch {
            if served == budget || is_stopped() {
                return Ok(true);
            }
            assert!(inode >= pass.from, "the queue is gone through in order");
            pass.from = inode + 1;
            if value.is_given_up {
                continue;
            }
            let next = match self.core.files.table.contains(inode) {
                // Somebody has it open, or not all of it is saved.
                true => Some(now + 1),
                false if value.next_seconds > now => Some(value.next_seconds),
                false => {
                    served += 1;
                    self.serve(caller, inode, &value, is_stopped)?
                }
            };
            pass.due_seconds = pass.due_seconds.into_iter().chain(next).min();
        }
        if is_last {
            let due = pass.due_seconds.unwrap_or(i64::MAX);
            let rests_until = if pass.is_stale { 0 } else { due };
            *pass = Pass { rests_until, ..Pass::default() };
        }
        Ok(pass.rests_until <= now)
    }

    fn waiting(&self, io: Io<'_>, from: u64, limit: usize) -> Result<Vec<(u64, FollowValue)>, Error> {
        self.core.store.view(io, |view| {
            let mut found = Vec::new();
            view.scan(Key::follow(from), Key::follow(u64::MAX), |key, bytes| {
                match FollowValue::decode(bytes) {
                    Ok(value) => found.push((key.position, value)),
                    Err(error) => tracing::error!(inode = key.position, %error, "what waits for plugins is damaged"),
                }
                if found.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            assert!(found.first().is_none_or(|(first, _)| *first >= from), "the list is read from {from} on");
            Ok::<_, Error>(found)
        })
    }

    /// Tells the plugins of one file, and notes what came of it. Gives when it is to be tried next, if it is.
    fn serve(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        value: &FollowValue,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Option<i64>, Error> {
        if is_planted(Bug::ToldTooEarly) {
            self.core.store.update(caller.io, |transaction| {
                transaction.delete(Key::follow(inode));
                Ok::<_, Error>(())
            })?;
        }
        let served = match self.tell_followers(caller, inode, value, is_stopped) {
            Ok(served) => served,
            Err(error @ Error::WouldBlock) => return Err(error),
            Err(error) => Served::Failed(error.to_string()),
        };
        if is_stopped() && !matches!(served, Served::Done) {
            return Ok(Some(caller.now.seconds));
        }
        let after = after_serving(value, served, caller.now.seconds);
        assert!(
            after.as_ref().is_none_or(|after| after.is_given_up == value.is_given_up || after.failures >= FAILURES_MAX),
            "only what failed often is given up"
        );
        let key = Key::follow(inode);
        let (kept, is_taken) = self.core.store.update(caller.io, |transaction| {
            let Some(now) = transaction.get(&key)?.and_then(|bytes| FollowValue::decode(&bytes).ok()) else {
                // Somebody dropped it meanwhile, and noted that.
                return Ok::<_, Error>((None, false));
            };
            if now.number != value.number {
                // More was done meanwhile.
                return Ok((Some(caller.now.seconds), false));
            }
            match &after {
                Some(after) => transaction.put(key, &after.encode()),
                None => transaction.delete(key),
            }
            let again = after.as_ref().filter(|after| !after.is_given_up).map(|after| after.next_seconds);
            Ok((again, after.is_none()))
        })?;
        if is_taken {
            self.core.files.following().note_taken(value);
        }
        if let Some(given_up) = after.filter(|after| after.is_given_up && !value.is_given_up) {
            let path = self.path_of_waiting(caller.io, inode, &given_up)?;
            let (path, cause) = (String::from_utf8_lossy(&path).into_owned(), given_up.cause);
            tracing::error!(path, cause, "plugins are not told of this file any more; see `stere plugin queue`");
        }
        Ok(kept)
    }

    fn tell_followers(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        waiting: &FollowValue,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Served, Error> {
        let file = self.core.store.view(caller.io, |view| inode_if_any(view, inode))?.filter(|file| file.nlink > 0);
        let is_removed = waiting.events.contains(&(EventKind::Delete as u8));
        let number = match &file {
            Some(file) if !is_removed => self.core.store.view(caller.io, |view| {
                Ok::<_, Error>(self.core.files.policies.effective(view, inode, file)?.plugins)
            })?,
            None if !is_removed => return Ok(Served::Done),
            _ => waiting.stack,
        };
        if number == 0 || self.registry.plugins().is_removed(number) {
            // They are not asked for any more.
            return Ok(Served::Done);
        }
        let stack = self.registry.plugins().stack(number).map_err(Error::Plugin)?;
        if !is_removed && !self.is_readable(caller, inode)? {
            return Ok(Served::Later);
        }
        let path = if is_removed { Vec::new() } else { self.core.path_of(caller.io, inode)? };
        let name = if is_removed { &waiting.old_name } else { last_name(&path) };
        let events = EventKind::ALL.into_iter();
        let events: Vec<EventKind> =
            waiting.events.iter().filter_map(|number| events.clone().find(|kind| *kind as u8 == *number)).collect();
        for kind in events {
            let told = Told { kind, name, waiting, file: file.as_ref() };
            self.tell_one(caller, inode, &stack, &told, is_stopped)?;
        }
        Ok(Served::Done)
    }

    /// Whether the content can be had without fetching it from elsewhere, and with the keys that are there.
    fn is_readable(&self, caller: &Caller<'_>, inode: u64) -> Result<bool, Error> {
        if self.encryption.check_key(caller, inode).is_err() {
            return Ok(false);
        }
        Ok(self.tiers.tier_file(caller, inode)?.residency() == "online")
    }

    fn tell_one(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        stack: &Stack,
        told: &Told<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let Told { kind, name, waiting, file } = *told;
        let is_rename = kind == EventKind::Rename;
        let (name, new_name): (&[u8], &[u8]) = if is_rename { (&waiting.old_name, name) } else { (name, b"") };
        let size = file.map_or(0, |file| file.size);
        let (user, group, length) = (waiting.user, waiting.group, size);
        let event = Event { kind, user, group, offset: 0, length, size, name, new_name };
        let mut read = |offset: u64, out: &mut [u8]| {
            if is_stopped() {
                return Err("the pool is being unmounted".to_owned());
            }
            if file.is_none() {
                return Err("the file was removed".to_owned());
            }
            self.backups.read_for_backup(caller, inode, offset, out).map_err(|error| error.to_string())
        };
        let notes = stack.follow(&event, &mut read).map_err(Error::Plugin)?;
        if file.is_some() {
            self.attributes.put_notes(caller, inode, Notes(notes))?;
        }
        Ok(())
    }

    /// What waits for plugins: how much, and so many of it.
    pub fn follow_list(&self, caller: &Caller<'_>, limit: usize) -> Result<FollowList, Error> {
        let mut list = FollowList { lost: self.core.files.following().lost(), ..FollowList::default() };
        let (mut given_up, mut others, mut from) = (Vec::new(), Vec::new(), 0);
        loop {
            let batch = self.waiting(caller.io, from, BATCH)?;
            let is_last = batch.len() < BATCH;
            for (inode, value) in batch {
                from = inode + 1;
                let (count, some) = match value.is_given_up {
                    true => (&mut list.given_up, &mut given_up),
                    false => (&mut list.waiting, &mut others),
                };
                *count += 1;
                if some.len() < limit {
                    some.push((inode, value));
                }
            }
            if is_last {
                break;
            }
        }
        for (inode, value) in given_up.into_iter().chain(others).take(limit) {
            let path = self.path_of_waiting(caller.io, inode, &value)?;
            let word = |number: &u8| EventKind::ALL.into_iter().find(|kind| *kind as u8 == *number);
            let events = value.events.iter().filter_map(word).map(EventKind::word).collect();
            let plugins = self.registry.plugins().text(value.stack).unwrap_or_default();
            let FollowValue { since_seconds, failures, next_seconds, is_given_up, cause, .. } = value;
            list.some.push(FollowInfo {
                path,
                events,
                plugins,
                since_seconds,
                failures,
                next_seconds,
                is_given_up,
                cause,
            });
        }
        Ok(list)
    }

    /// Does something about what waits. Tells of how many files.
    pub fn change_follow_list(&self, caller: &Caller<'_>, change: FollowChange) -> Result<u64, Error> {
        let (mut changed, mut from) = (0, 0);
        loop {
            let batch = self.waiting(caller.io, from, BATCH)?;
            let is_last = batch.len() < BATCH;
            from = batch.last().map_or(from, |(inode, _)| inode + 1);
            let done = self.core.store.update(caller.io, |transaction| {
                let mut done = Vec::new();
                for (inode, _) in &batch {
                    let key = Key::follow(*inode);
                    // As it is now: it may have been served meanwhile, or more may have come.
                    let now = transaction.get(&key)?.and_then(|bytes| FollowValue::decode(&bytes).ok());
                    let is_meant = |value: &FollowValue| change != FollowChange::DropGivenUp || value.is_given_up;
                    let Some(value) = now.filter(is_meant) else { continue };
                    if change == FollowChange::Retry {
                        let again = FollowValue { is_given_up: false, failures: 0, next_seconds: 0, ..value.clone() };
                        transaction.put(key, &again.encode());
                    } else {
                        transaction.delete(key);
                    }
                    done.push(value);
                }
                Ok::<_, Error>(done)
            })?;
            changed += done.len() as u64;
            if change != FollowChange::Retry {
                done.iter().for_each(|value| self.core.files.following().note_taken(value));
            }
            if is_last {
                break;
            }
        }
        self.core.files.following().put_new();
        self.core.store.commit(caller.io)?;
        Ok(changed)
    }

    fn path_of_waiting(&self, io: Io<'_>, inode: u64, value: &FollowValue) -> Result<Vec<u8>, Error> {
        if value.events.contains(&(EventKind::Delete as u8)) {
            return Ok(if value.old_name.is_empty() { b"(removed)".to_vec() } else { value.old_name.clone() });
        }
        self.core.path_of(io, inode)
    }
}

/// One event, with what is known of the file.
#[derive(Clone, Copy)]
struct Told<'a> {
    kind: EventKind,
    /// The name that it has, or had last.
    name: &'a [u8],
    waiting: &'a FollowValue,
    file: Option<&'a InodeValue>,
}

/// What is in the list afterwards.
fn after_serving(value: &FollowValue, served: Served, now: i64) -> Option<FollowValue> {
    match served {
        Served::Done => None,
        Served::Later => Some(FollowValue { next_seconds: now + LATER_SECONDS, ..value.clone() }),
        Served::Failed(cause) => {
            let failures = value.failures.saturating_add(1);
            let pause = AGAIN_SECONDS << failures.saturating_sub(1).min(FAILURES_MAX);
            let cut =
                (0..=cause.len().min(FollowValue::CAUSE_BYTES_MAX)).rev().find(|end| cause.is_char_boundary(*end));
            let cause = cause[..cut.unwrap_or(0)].to_owned();
            assert!(cause.len() <= FollowValue::CAUSE_BYTES_MAX, "a cause fits its record");
            let is_given_up = failures >= FAILURES_MAX;
            Some(FollowValue { failures, is_given_up, next_seconds: now + pause, cause, ..value.clone() })
        }
    }
}
