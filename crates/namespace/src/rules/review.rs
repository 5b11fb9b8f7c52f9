//! Looking again at files whose rules ask for what changes without a name being changed: size, owner, group and mode soon after a file
//! is closed or they are changed, age now and then.
//!
//! Which files were changed is in memory only: what a crash takes is found when all are looked at. Without rules nothing is remembered.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use stere_file::inode_if_any;
use stere_format::{FileKind, Key};
use stere_store::Transaction;

use crate::call::{Caller, ROOT};
use crate::error::Error;
use crate::names::Form;
use crate::rules::PolicyRules;

/// How often what changes by itself (size, age, owner) is looked at, in seconds.
const REVIEW_SECONDS: u64 = 3600;
/// When that is done first after a mount.
const REVIEW_FIRST_SECONDS: u64 = 600;
/// Files that are remembered to have changed; of more, those are found when all are looked at.
const CHANGED_MAX: usize = 65_536;
/// Of them, how many one step looks at.
const CHANGED_PER_STEP: usize = 64;

impl PolicyRules {
    /// A file was closed, or its owner, group, mode or size was changed: rules may decide otherwise for it now.
    pub fn note_facts_changed(&self, inode: u64) {
        if self.core.policy.has_rules() {
            let mut changed = self.changed.lock();
            if changed.len() < CHANGED_MAX {
                changed.insert(inode);
            }
        }
    }

    /// Asks the rules again for some of the files that were closed or changed, and notes exactly those for which they decide otherwise.
    /// Whether there are more.
    pub fn review_changed(&self, caller: &Caller<'_>) -> Result<bool, Error> {
        for _ in 0..CHANGED_PER_STEP {
            let Some(inode) = self.changed.lock().pop_first() else { return Ok(false) };
            if self.is_decided_otherwise(caller, inode)? {
                self.core.store.update(caller.io, |transaction| self.core.reconcile.note(transaction, inode))?;
            }
        }
        Ok(!self.changed.lock().is_empty())
    }

    /// Whether rules decide otherwise for a file than is noted. Of one with several names, whether they decide more.
    fn is_decided_otherwise(&self, caller: &Caller<'_>, inode: u64) -> Result<bool, Error> {
        let value = self.core.files.attributes(caller.io, inode)?;
        let is_file = |value: &stere_format::InodeValue| value.kind() == Some(FileKind::File) && value.nlink > 0;
        let Some(value) = value.filter(is_file) else { return Ok(false) };
        let scopes = self.scopes(caller.io, value.parent)?;
        if scopes.is_empty() {
            return Ok(false);
        }
        let name = self.core.store.view(caller.io, |view| self.core.names.name_of(view, inode, &value))?;
        // Rules ask for names, and nobody may be able to read this one now.
        let Some((name, _)) = name.filter(|(_, form)| *form != Form::Opaque) else { return Ok(false) };
        if !scopes.ask_for_facts(&name) {
            return Ok(false);
        }
        let before = stere_file::rule_decision(&value);
        let mut decision = scopes.decide(&name, &value, caller.now, &mut |_, _| {});
        if value.nlink > 1 {
            decision = before.or_more(&decision, &scopes.classes);
        }
        Ok(decision != before)
    }

    /// Now and then notes that files are to be looked at whose rules ask for what changes without a name being changed.
    pub fn review_now_and_then(&self, caller: &Caller<'_>) -> Result<(), Error> {
        let now = u64::try_from(caller.now.seconds).unwrap_or(0);
        let due = self.next_review.load(Ordering::Acquire);
        if now < due {
            return Ok(());
        }
        let next = if due == 0 { REVIEW_FIRST_SECONDS } else { REVIEW_SECONDS };
        self.next_review.store(now + next, Ordering::Release);
        if due == 0 {
            return Ok(());
        }
        let mut roots = self.core.store.view(caller.io, |view| {
            let mut roots: Vec<u64> = Vec::new();
            view.scan(Key::changing_rules(0), Key::changing_rules(u64::MAX), |key, _| {
                roots.push(key.position);
                ControlFlow::Continue(())
            })?;
            Ok::<_, Error>(roots)
        })?;
        if self.pool.lock().1.as_ref().is_some_and(|set| set.changes_by_itself()) {
            roots.push(ROOT);
        }
        // Those from before there was an index, as far as they are in use.
        for scopes in self.kept.lock().values() {
            roots.extend(scopes.changing_by_themselves());
        }
        roots.sort_unstable();
        roots.dedup();
        for root in roots {
            self.core.store.update(caller.io, |transaction: &mut Transaction<'_>| {
                match inode_if_any(transaction, root)? {
                    Some(_) => self.core.reconcile.note(transaction, root),
                    None => Ok(()),
                }
            })?;
        }
        Ok(())
    }
}
