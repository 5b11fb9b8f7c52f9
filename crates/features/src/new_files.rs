//! New and changed files below directories that go down are found by what was written, not by walking over names.
//!
//! Files tell when something was entered into them (`stere-file`, `written.rs`). All names below what goes down are walked over only where
//! that is not known: at the first look after a mount, when very many were written, when volumes were added or changed, and once in a while,
//! so that nothing depends on it for ever. Read next: `quiescence.rs`, `reconciler.rs`.

use std::collections::BTreeSet;

use stere_format::FileKind;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;

use crate::reconciler::Reconciler;

/// More files are looked at by their directories; where there are more of those, all of what goes down is.
const LOOKED_AT_MAX: usize = 1024;

impl Reconciler {
    /// Whether something was written, or waits for its unit to be quiet, since somebody looked.
    pub fn is_anything_new(&self) -> bool {
        self.core.files.written.is_any()
    }

    /// Has what was written since this was called last sent down, as policies say, or all that they say it of.
    pub fn send_new_down(&self, caller: &Caller<'_>, looks_at_all: bool) -> Result<(), Error> {
        self.try_new_again(caller)?;
        let written = self.core.files.written.take().filter(|_| !looks_at_all);
        let concerned = match written {
            Some(inodes) => self.where_written(caller, inodes)?,
            None => None,
        };
        let roots = match concerned {
            Some(roots) => roots,
            None => self.tiers.tiered_roots(caller.io)?,
        };
        for root in roots {
            match self.reconcile_new(caller, root) {
                // It was removed meanwhile.
                Ok(()) | Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where to look for what was written in these, as far as it goes down; none for everywhere.
    fn where_written(&self, caller: &Caller<'_>, inodes: BTreeSet<u64>) -> Result<Option<BTreeSet<u64>>, Error> {
        let (mut concerned, mut parents) = (BTreeSet::new(), BTreeSet::new());
        for inode in inodes {
            let value = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, inode))?;
            let Some(value) = value else { continue };
            let goes_down = match value.kind() {
                Some(FileKind::File) => {
                    let effective = self.core.store.view(caller.io, |view| {
                        Ok::<_, Error>(self.core.files.policies.effective(view, inode, &value)?)
                    })?;
                    self.core.files.policies.media_of(effective.wish.tier).is_some_and(|set| set != 0)
                }
                // A unit that was not quiet.
                Some(FileKind::Directory) => true,
                _ => false,
            };
            if goes_down {
                concerned.insert(inode);
                parents.insert(if value.kind() == Some(FileKind::File) { value.parent } else { inode });
            }
        }
        let all = if concerned.len() > LOOKED_AT_MAX { parents } else { concerned };
        Ok(Some(all).filter(|all| all.len() <= LOOKED_AT_MAX))
    }
}
