//! Notes what was done to files whose plugins want to be told afterwards, in the transaction that does it.
//!
//! Nobody who changes a file has to think of it: every transaction is looked at before it takes effect, as for accounts, and what its
//! inodes and names are before and after tells what was done. Events of a file that wait are one value, so the list is as long as
//! there are such files; of removed ones it takes a bounded number. Invariants: each event is there once, in the order in which each was
//! last; a change is durable exactly with its event; files without such plugins pay one look at a flag a transaction.
//! Read next: `stere_format::FollowValue`; `crates/features/src/asynchronous_events.rs` serves the list.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use stere_faults::{Bug, is_planted};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, FollowValue, InodeValue, Key, key};
use stere_plugin::EventKind;
use stere_policy::Resolver;
use stere_store::{Error, Io, Store, Transaction};

use crate::plugins::Plugins;
use crate::policy::effective;
use crate::versions::OF_VERSIONS;

/// Removed files that may wait.
pub const REMOVED_MAX: u64 = 65_536;

/// What of the list is in memory.
pub struct Following {
    plugins: Arc<Plugins>,
    resolver: Arc<Resolver>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Something came since somebody looked.
    has_new: AtomicBool,
    removed: AtomicU64,
    /// Removals of which nobody is told, since the mount.
    lost: AtomicU64,
    now_seconds: AtomicI64,
}

/// What was done to one file.
struct Done {
    inode: u64,
    events: Vec<EventKind>,
    /// The file, of a removed one as it was.
    value: InodeValue,
    old_name: Vec<u8>,
}

/// Names that a transaction takes away and makes, by inode.
#[derive(Default)]
struct Names {
    gone: BTreeMap<u64, Vec<u8>>,
    made: Vec<u64>,
}

impl Following {
    pub(crate) fn load(store: &Store, plugins: Arc<Plugins>, resolver: Arc<Resolver>) -> Result<Following, Error> {
        let (removed, any) = store.view(Io::BLOCKING, |view| {
            let (mut removed, mut any) = (0, false);
            view.scan(Key::follow(0), Key::follow(u64::MAX), |_, bytes| {
                any = true;
                removed += u64::from(FollowValue::decode(bytes).is_ok_and(|value| is_of_removed(&value)));
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>((removed, any))
        })?;
        let shared = Shared { has_new: any.into(), removed: removed.into(), ..Shared::default() };
        Ok(Following { plugins, resolver, shared: Arc::new(shared) })
    }

    /// Whether something came since this was asked last.
    pub fn take_new(&self) -> bool {
        self.shared.has_new.swap(false, Ordering::AcqRel)
    }

    /// Somebody wants it looked at.
    pub fn put_new(&self) {
        self.shared.has_new.store(true, Ordering::Release);
    }

    /// Removals of which nobody is told, since the mount: too many waited.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Acquire)
    }

    /// What the caller's clock says; asked for now and then.
    pub fn note_time(&self, seconds: i64) {
        self.shared.now_seconds.store(seconds, Ordering::Release);
    }

    /// Something of a removed file was taken off the list.
    pub fn note_taken(&self, value: &FollowValue) {
        if is_of_removed(value) {
            let before = self.shared.removed.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "what is taken off the list was counted when it was put there");
        }
    }

    /// Adds to a transaction that it changes the content of a file, where its times do not tell.
    pub(crate) fn note_content(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        value: &InodeValue,
    ) -> Result<(), Error> {
        if !self.plugins.has_stacks() || !self.plugins.has_followers() || !is_living(value) {
            return Ok(());
        }
        let (events, value) = (vec![EventKind::Close], value.clone());
        self.note_if_followed(transaction, Done { inode, events, value, old_name: Vec::new() })
    }

    /// Adds to a transaction what it does.
    pub(crate) fn settle(&self, transaction: &mut Transaction<'_>) -> Result<(), Error> {
        if !self.plugins.has_stacks() || !self.plugins.has_followers() {
            return Ok(());
        }
        for done in self.done(transaction)? {
            self.note_if_followed(transaction, done)?;
        }
        Ok(())
    }

    /// Notes what the plugins of a file want to be told of.
    fn note_if_followed(&self, transaction: &mut Transaction<'_>, mut done: Done) -> Result<(), Error> {
        let stack = match effective(&self.resolver, transaction, done.inode, &done.value) {
            Ok(effective) => effective.plugins,
            Err(crate::Error::Store(error)) => return Err(error),
            Err(error) => {
                // Nobody who changes a file is kept from it for this.
                tracing::error!(inode = done.inode, %error, "which plugins are to be told of a change is not known");
                return Ok(());
            }
        };
        let follows = self.plugins.follows(stack);
        done.events.retain(|event| follows.has(*event));
        if done.events.is_empty() { Ok(()) } else { self.note(transaction, &done, stack) }
    }

    /// What a transaction does to files.
    fn done(&self, transaction: &Transaction<'_>) -> Result<Vec<Done>, Error> {
        let mut names = Names::default();
        transaction.changed(key::tree::NAMES, key::kind::DIRENT, |_, before, after| {
            names.enter(before, after);
            Ok(())
        })?;
        let mut all = Vec::new();
        transaction.changed(key::tree::NAMES, key::kind::INODE, |key, before, after| {
            let value = |bytes: Option<&[u8]>| bytes.and_then(|bytes| InodeValue::decode(bytes).ok());
            let (before, after) = (value(before).filter(is_living), value(after).filter(is_living));
            let (inode, mut events) = (key.object, Vec::new());
            let mut old_name = Vec::new();
            match (&before, &after) {
                (None, Some(after)) => {
                    events.push(EventKind::Create);
                    events.extend((after.size > 0).then_some(EventKind::Close));
                }
                (Some(before), Some(after)) => {
                    if let Some(name) = names.gone.get(&inode).filter(|_| names.made.contains(&inode)) {
                        events.push(EventKind::Rename);
                        old_name.clone_from(name);
                    }
                    let is_changed = (before.size, before.mtime) != (after.size, after.mtime);
                    events.extend(is_changed.then_some(EventKind::Close));
                }
                (Some(_), None) => {
                    events.push(EventKind::Delete);
                    old_name = names.gone.get(&inode).cloned().unwrap_or_default();
                }
                (None, None) => {}
            }
            if let Some(value) = after.or(before).filter(|_| !events.is_empty()) {
                all.push(Done { inode, events, value, old_name });
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn note(&self, transaction: &mut Transaction<'_>, done: &Done, stack: u16) -> Result<(), Error> {
        assert_ne!(stack, 0, "plugins want to be told of inode {}", done.inode);
        let key = Key::follow(done.inode);
        let before = transaction.get(&key)?.and_then(|bytes| FollowValue::decode(&bytes).ok());
        if is_planted(Bug::FollowerInTheWay) && before.as_ref().is_some_and(|before| before.failures > 0) {
            return Err(Error::Pool("a plugin was not told yet".into()));
        }
        let was_of_removed = before.as_ref().is_some_and(is_of_removed);
        let now = self.shared.now_seconds.load(Ordering::Acquire).max(done.value.ctime.seconds);
        let mut value = before.unwrap_or_else(|| FollowValue { since_seconds: now, ..FollowValue::default() });
        if done.events.contains(&EventKind::Delete) {
            // Of what is gone nothing else can be told.
            if !was_of_removed && self.shared.removed.load(Ordering::Acquire) >= REMOVED_MAX {
                self.lose(transaction, key);
                return Ok(());
            }
            value.events.clear();
            value.old_name.clone_from(&done.old_name);
        } else if done.events.contains(&EventKind::Rename) && !value.events.contains(&(EventKind::Rename as u8)) {
            value.old_name.clone_from(&done.old_name);
        }
        for event in &done.events {
            value.events.retain(|known| *known != *event as u8);
            value.events.push(*event as u8);
        }
        value.old_name.truncate(FollowValue::NAME_BYTES_MAX);
        (value.stack, value.user, value.group) = (stack, done.value.uid, done.value.gid);
        // Something new deserves a new try.
        (value.is_given_up, value.failures, value.next_seconds) = (false, 0, 0);
        value.number += 1;
        transaction.put(key, &value.encode());
        let (shared, is_one_more) = (self.shared.clone(), is_of_removed(&value) && !was_of_removed);
        transaction.on_effect(move || {
            shared.removed.fetch_add(u64::from(is_one_more), Ordering::AcqRel);
            shared.has_new.store(true, Ordering::Release);
        });
        Ok(())
    }

    fn lose(&self, transaction: &mut Transaction<'_>, key: Key) {
        transaction.delete(key);
        let shared = self.shared.clone();
        transaction.on_effect(move || {
            shared.lost.fetch_add(1, Ordering::AcqRel);
        });
    }
}

impl Names {
    fn enter(&mut self, before: Option<&[u8]>, after: Option<&[u8]>) {
        let entry = |bytes: Option<&[u8]>| {
            let view = DirentView::decode(bytes?).ok()?;
            // What is encrypted in the pool is written nowhere else.
            Some((view.inode, if view.key == 0 { view.name.to_vec() } else { Vec::new() }))
        };
        if let Some((inode, name)) = entry(before) {
            self.gone.insert(inode, name);
        }
        self.made.extend(entry(after).map(|(inode, _)| inode));
    }
}

/// A file that has a name, and is no version of one.
fn is_living(value: &InodeValue) -> bool {
    value.kind() == Some(FileKind::File) && value.nlink > 0 && value.flags & OF_VERSIONS == 0
}

fn is_of_removed(value: &FollowValue) -> bool {
    value.events.contains(&(EventKind::Delete as u8))
}
