//! Looking again, now and then, at files whose rules ask for what changes by itself: size, age, owner, mode.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stere_file::inode_if_any;
use stere_policy::RuleSet;
use stere_store::Transaction;

use crate::error::Error;
use crate::{Caller, FileSystem, ROOT};

/// How often what changes by itself (size, age, owner) is looked at, in seconds.
const REVIEW_SECONDS: u64 = 3600;

impl FileSystem {
    /// Now and then notes that files are to be looked at whose rules ask for what changes without a name being changed.
    pub(crate) fn review_now_and_then(&self, caller: &Caller<'_>) -> Result<(), Error> {
        let now = u64::try_from(caller.now.seconds).unwrap_or(0);
        let due = self.rules.next_review.load(Ordering::Acquire);
        if now < due {
            return Ok(());
        }
        self.rules.next_review.store(now + REVIEW_SECONDS, Ordering::Release);
        if due == 0 {
            return Ok(());
        }
        let changes_by_itself = |set: &Arc<RuleSet>| set.changes_by_itself();
        let mut roots: Vec<u64> = Vec::new();
        if self.rules.pool.lock().1.as_ref().is_some_and(changes_by_itself) {
            roots.push(ROOT);
        }
        for scopes in self.rules.kept.lock().values() {
            let of_directories =
                scopes.levels.iter().filter(|level| level.rules.as_ref().is_some_and(changes_by_itself));
            roots.extend(of_directories.map(|level| level.directory));
        }
        roots.sort_unstable();
        roots.dedup();
        for root in roots {
            self.store.update(caller.wait, |transaction: &mut Transaction<'_>| {
                match inode_if_any(transaction, root)? {
                    Some(_) => self.note_reconcile(transaction, root),
                    None => Ok(()),
                }
            })?;
        }
        Ok(())
    }
}
