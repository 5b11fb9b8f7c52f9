//! Files with several names: where those lie, and that what holds for the file is the strictest of what they would give.
//!
//! Of each key the strictest holds live (`Effective::or_stricter`), as long as the name is there. Two things outlive a name, because they are of those who do
//! not trust whoever removes it: what the administrator locked for it, and that content is encrypted, become the file's own. What `parent` is
//! good for (in which volume the file counts, which path is shown first) follows the names that are left.
//! Here too: pools from before learn where names lie, in steps. Invariant: `stere_file::named_in`. Read next: `docs/design/policy.md`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stere_file::named_in::{NamePlace, count_name, has_several_names, named_in_known, note_names};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, InodeValue, Key, NamedInValue, key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::{classes, tiers};
use stere_policy::{Effective, Own, Switch, Versions, Wish};
use stere_store::Transaction;

use crate::accounting::Quotas;
use crate::retention::Retentions;

/// Names of a pool from before that are counted in one step.
const NAMES_PER_STEP: usize = 128;

/// What of a policy decides how a file is stored and looked after, whoever said it.
fn content_of(effective: &Effective) -> (Wish, u16, Option<Versions>, [bool; Switch::ALL.len()]) {
    (effective.wish, effective.plugins, effective.versions, effective.switches.map(|(is_on, _)| is_on))
}

/// What holds for files with several names.
pub struct MultipleNames {
    pub core: Arc<Core>,
    pub quotas: Arc<Quotas>,
    pub retention: Arc<Retentions>,
}

impl MultipleNames {
    /// Names of an inode change: one goes, or one comes, or both. `before` is the inode as it was, `value` as it is to be, with its count of links and
    /// the directory that is to be its `parent` if that has a name of it; the caller puts it. What is stored otherwise now is noted.
    pub fn names_change(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        before: &InodeValue,
        value: &mut InodeValue,
        from: Option<NamePlace>,
        to: Option<NamePlace>,
    ) -> Result<(), Error> {
        assert!(from != to, "inode {inode} gets or loses a name");
        if !has_several_names(before) && !has_several_names(value) {
            return Ok(());
        }
        let held = self.core.files.policies.effective(transaction, inode, before)?;
        note_names(transaction, inode, before, value, from, to)?;
        if value.kind() == Some(FileKind::File) {
            self.keep_for_good(transaction, inode, &held, value)?;
        }
        let now = self.core.files.policies.effective(transaction, inode, value)?;
        // A name that is gone asks for nothing any more, by rules too.
        let is_ruled = from.is_some() && !stere_file::rule_decision(value).is_nothing();
        let is_stored = matches!(value.kind(), Some(FileKind::File | FileKind::Symlink));
        if is_stored && (is_ruled || content_of(&now) != content_of(&held)) {
            self.core.reconcile.note(transaction, inode)?;
        }
        Ok(())
    }

    /// A name of what has others goes for good.
    pub fn lose_name(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        before: &InodeValue,
        value: &mut InodeValue,
        from: NamePlace,
    ) -> Result<(), Error> {
        if !has_several_names(before) {
            return Ok(());
        }
        assert!(value.nlink < before.nlink, "inode {inode} had {} names and has {}", before.nlink, value.nlink);
        self.names_change(transaction, inode, before, value, Some(from), None)?;
        if value.parent != before.parent {
            // Removing is never refused for a quota.
            transaction.set_charge_pending();
            self.quotas.count_where_it_lies(transaction, inode, value)?;
            self.retention.await_retention(transaction, inode, value)?;
        }
        Ok(())
    }

    /// What was locked for a name, and that content is encrypted, stays with the file.
    fn keep_for_good(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        held: &Effective,
        value: &mut InodeValue,
    ) -> Result<(), Error> {
        let locks = stere_file::own_locks(value);
        let kept = held.locks_beyond(&self.core.files.policies.effective(transaction, inode, value)?, locks);
        let named = classes::Named::of(value);
        if kept != locks {
            stere_file::set_own_locks(value, kept);
        }
        let encryption = held.wish.encryption;
        if encryption.is_on()
            && self.core.files.policies.effective(transaction, inode, value)?.wish.encryption != encryption
        {
            let own = stere_file::own_policy(value);
            stere_file::set_own_policy(value, Own { encryption: encryption.code(), ..own });
        }
        if kept != locks {
            classes::index_member(transaction, inode, named, classes::Named::of(value));
            tiers::note_tiered(transaction, inode, [stere_file::own_policy(value), kept])?;
        }
        Ok(())
    }

    /// In a pool from before, counts some names that are not counted yet. Tells whether there are more.
    pub fn count_names(&self, caller: &Caller<'_>) -> Result<bool, Error> {
        if self.core.names_are_counted.load(Ordering::Acquire) {
            return Ok(false);
        }
        // What was put away has one name each, and stays away.
        let is_done = self.core.store.update(caller.io.skipping_offloaded(), |transaction| {
            let known = named_in_known(transaction)?.unwrap_or(NamedInValue::NOTHING);
            if known == NamedInValue::ALL {
                return Ok(true);
            }
            let next = self.count_some_names(transaction, known)?;
            transaction.put(Key::named_in_known(), &next.encode());
            Ok::<_, Error>(next == NamedInValue::ALL)
        })?;
        if is_done {
            self.core.names_are_counted.store(true, Ordering::Release);
        }
        Ok(!is_done)
    }

    fn count_some_names(&self, transaction: &mut Transaction<'_>, from: NamedInValue) -> Result<NamedInValue, Error> {
        let (mut at, mut counted) = (from, 0);
        while counted < NAMES_PER_STEP {
            let (mut names, mut next) = (Vec::new(), None);
            let (begin, end) = (Key::dirent(at.directory, at.sequence), Key::new(key::tree::NAMES + 1, 0, 0, 0));
            let mut keys = 0;
            transaction.scan(begin, end, |key, bytes| {
                keys += 1;
                if key.kind == key::kind::DIRENT {
                    // One that does not decode is a finding of `check`.
                    names.extend(DirentView::decode(bytes).ok().map(|entry| (key.object, entry.inode)));
                    next = Some(NamedInValue { directory: key.object, sequence: key.position + 1 });
                } else if key.kind > key::kind::DIRENT {
                    // Extents and what is behind them name nothing.
                    next = Some(NamedInValue { directory: key.object + 1, sequence: 0 });
                    return ControlFlow::Break(());
                }
                let is_enough = names.len() >= NAMES_PER_STEP || keys >= 8 * NAMES_PER_STEP;
                if is_enough {
                    next = next.max(Some(NamedInValue { directory: key.object, sequence: 0 }));
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            for (directory, inode) in names {
                self.count_one_name(transaction, inode, directory)?;
            }
            // What is looked at counts too, or a long run of files would be one step.
            counted += keys.div_ceil(8);
            assert!(next.is_none_or(|next| next >= at), "names are counted in order");
            match next.filter(|next| *next > at) {
                Some(next) => at = next,
                None => return Ok(NamedInValue::ALL),
            }
        }
        Ok(at)
    }

    fn count_one_name(&self, transaction: &mut Transaction<'_>, inode: u64, directory: u64) -> Result<(), Error> {
        let value = match stere_file::inode_if_any(transaction, inode) {
            Ok(Some(value)) => value,
            Ok(None) => return Ok(()),
            Err(error) => match Error::from(error) {
                Error::Elsewhere(..) => return Ok(()),
                error => return Err(error),
            },
        };
        let is_one = !has_several_names(&value);
        if is_one && value.parent == directory {
            return Ok(());
        }
        let held = self.core.files.policies.effective(transaction, inode, &value)?;
        let changed = count_name(transaction, inode, &value, directory)?;
        let mut after = changed.clone().unwrap_or_else(|| value.clone());
        if changed.is_some() {
            transaction.set_charge_pending();
            self.quotas.count_where_it_lies(transaction, inode, &mut after)?;
            stere_file::put_inode(transaction, inode, &after);
        }
        let now = self.core.files.policies.effective(transaction, inode, &after)?;
        if after.kind() == Some(FileKind::File) && content_of(&now) != content_of(&held) {
            self.core.reconcile.note(transaction, inode)?;
        }
        Ok(())
    }
}
