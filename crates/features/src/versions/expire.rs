//! Versions that go: those beyond their age or their number, and when the pool is nearly full those that would go first.
//!
//! All of it is background work in bounded steps; what is read meanwhile stays until it is closed.

use std::ops::ControlFlow;

use stere_file::{Gone, Keys, OF_VERSIONS, inode_if_any, set_version_order, version_order};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, Key, key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::names::damaged;
use stere_namespace::walk::Met;
use stere_policy::Versions as Wanted;
use stere_store::{Io, Transaction};

use super::directory::{ORDER_BY_MOMENT, entry_of, order};
use crate::versions::Versions;

/// Versions that one step removes at most, of each kind of reason.
const GONE_PER_STEP: usize = 256;
/// Directories whose number of versions one step looks at.
const COUNTED_PER_STEP: usize = 64;

impl Versions {
    /// Removes what is not to be kept any more, some of it. Tells whether there is more.
    pub fn expire_versions(&self, caller: &Caller<'_>, budget: usize) -> Result<bool, Error> {
        if !self.is_used() {
            return Ok(false);
        }
        let limit = budget.clamp(1, GONE_PER_STEP);
        let now = ORDER_BY_MOMENT.saturating_add(u64::try_from(caller.now.seconds).unwrap_or(0));
        let due = self.next_to_go(caller.io, now + 1, limit)?;
        assert!(due.len() <= limit, "one step removes a bounded number");
        self.remove_versions(caller, &due)?;
        let counted = self.count_versions(caller, limit)?;
        let pressed = self.make_room(caller, limit)?;
        Ok(due.len() == limit || counted || pressed)
    }

    /// The versions that go first, of those before a place in the order.
    fn next_to_go(&self, io: Io<'_>, before: u64, limit: usize) -> Result<Vec<u64>, Error> {
        self.core.store.view(io, |view| {
            let mut inodes = Vec::new();
            view.scan(Key::version(ORDER_BY_MOMENT, 0), Key::version(before, 0), |key, _| {
                if key.kind == key::kind::VERSION {
                    inodes.push(key.position);
                }
                if inodes.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            Ok(inodes)
        })
    }

    fn remove_versions(&self, caller: &Caller<'_>, inodes: &[u64]) -> Result<(), Error> {
        let mut outcome = Ok(());
        for inode in inodes {
            // One that cannot be removed must not keep the others.
            outcome = outcome.and(self.remove_version(caller, *inode));
        }
        outcome
    }

    pub fn remove_version(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.core.files.orphans.removing_unheld(&caller.context(), inode, |transaction, unlink| {
            let Some(mut value) = inode_if_any(transaction, inode)?.filter(|value| value.flags & OF_VERSIONS != 0)
            else {
                return Ok::<_, Error>(((), Gone::Stays));
            };
            let Some(place) = version_order(&value) else { return Ok(((), Gone::Stays)) };
            let drawer = value.parent;
            let mut above = stere_namespace::inode::directory(transaction, drawer)?;
            let found = entry_of(transaction, inode, &value)?;
            self.core.names.remove(transaction, drawer, &mut above, &found)?;
            stere_file::put_inode(transaction, drawer, &above);
            transaction.delete(Key::version(place, inode));
            self.prune(transaction, drawer)?;
            value.nlink = 0;
            Ok(((), unlink.apply(transaction, inode, value, true)?))
        })?;
        self.access_times.remove(inode);
        self.core.names_used.forget(inode);
        Ok(())
    }

    /// Removes the oldest of names that have more than are to be kept.
    fn count_versions(&self, caller: &Caller<'_>, limit: usize) -> Result<bool, Error> {
        let drawers = self.core.store.view(caller.io, |view| {
            let mut drawers = Vec::new();
            view.scan(Key::versions_many(0), Key::versions_many(u64::MAX), |key, _| {
                drawers.push(key.position);
                if drawers.len() < COUNTED_PER_STEP { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            Ok::<_, Error>(drawers)
        })?;
        let (mut left, mut has_more) = (limit, drawers.len() == COUNTED_PER_STEP);
        for drawer in drawers {
            let excess = self.excess(caller.io, drawer)?;
            let some = &excess[..excess.len().min(left)];
            self.remove_versions(caller, some)?;
            assert!(some.len() <= left, "one step removes a bounded number");
            left -= some.len();
            if some.len() < excess.len() {
                return Ok(true);
            }
            has_more |= !self.is_counted(caller, drawer)?;
        }
        Ok(has_more)
    }

    /// Takes a directory off the list of those to be counted, unless there are too many in it.
    fn is_counted(&self, caller: &Caller<'_>, drawer: u64) -> Result<bool, Error> {
        self.core.store.update(caller.io, |transaction| {
            // Others may have come since.
            let is_counted = self.excess_of(transaction, drawer)?.is_empty();
            if is_counted {
                transaction.delete(Key::versions_many(drawer));
            }
            Ok(is_counted)
        })
    }

    fn excess(&self, io: Io<'_>, drawer: u64) -> Result<Vec<u64>, Error> {
        self.core.store.view(io, |view| self.excess_of(view, drawer))
    }

    /// Removes versions while the pool is nearly full. Tells whether it still is and there are more.
    fn make_room(&self, caller: &Caller<'_>, limit: usize) -> Result<bool, Error> {
        for _ in 0..limit {
            if !self.look_for_room() {
                return Ok(false);
            }
            let first = self.next_to_go(caller.io, u64::MAX, 1)?;
            if first.is_empty() {
                return Ok(false);
            }
            self.remove_versions(caller, &first)?;
        }
        Ok(true)
    }

    /// A walk over what a change of policy concerns met what belongs to versions.
    pub fn review_version(&self, caller: &Caller<'_>, met: &Met) -> Result<bool, Error> {
        if !self.is_used() {
            return Ok(false);
        }
        let value = self.core.store.view(caller.io, |view| inode_if_any(view, met.inode))?;
        let Some(value) = value.filter(|value| value.flags & OF_VERSIONS != 0) else { return Ok(false) };
        match met.kind {
            FileKind::Directory => self.core.store.update(caller.io, |transaction| {
                if inode_if_any(transaction, met.inode)?.is_some() {
                    transaction.put(Key::versions_many(met.inode), &[1]);
                }
                Ok::<_, Error>(())
            })?,
            _ if version_order(&value).is_some() => {
                self.core.store.update(caller.io, |transaction| self.reorder(transaction, caller, met.inode))?;
            }
            _ => {}
        }
        Ok(true)
    }
}

impl Versions {
    /// Versions of a name beyond the number that is to be kept, the oldest first.
    fn excess_of(&self, keys: &impl Keys, drawer: u64) -> Result<Vec<u64>, Error> {
        let Some(value) = inode_if_any(keys, drawer)? else { return Ok(Vec::new()) };
        let Some((Wanted::Kept { count: Some(count), .. }, _)) = self.said(keys, drawer, &value)? else {
            return Ok(Vec::new());
        };
        let (mut versions, mut failure) = (Vec::new(), None);
        keys.visit(Key::dirent(drawer, 0), Key::dirent(drawer, u64::MAX), &mut |_, bytes| {
            match DirentView::decode(bytes) {
                Ok(entry) if entry.kind == FileKind::File => versions.push(entry.inode),
                Ok(_) => {}
                Err(error) => failure = Some(damaged(drawer, &error)),
            }
            if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        versions.truncate(versions.len().saturating_sub(count as usize));
        failure.map_or(Ok(versions), Err)
    }

    /// Gives a version the place that what is said now gives it. Where nothing is said it keeps the one it has.
    fn reorder(&self, transaction: &mut Transaction<'_>, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        let Some(mut value) = inode_if_any(transaction, inode)? else { return Ok(()) };
        let Some(above) = inode_if_any(transaction, value.parent)? else { return Ok(()) };
        let said = self.said(transaction, value.parent, &above)?;
        let Some((before, (wanted, _))) = version_order(&value).zip(said) else { return Ok(()) };
        let place = match wanted {
            Wanted::No => order(caller.now.seconds, Some(0)),
            Wanted::Kept { seconds, .. } => order(value.ctime.seconds, seconds),
        };
        if place != before {
            transaction.delete(Key::version(before, inode));
            transaction.put(Key::version(place, inode), &[1]);
            set_version_order(&mut value, place);
            stere_file::put_inode(transaction, inode, &value);
        }
        Ok(())
    }
}
