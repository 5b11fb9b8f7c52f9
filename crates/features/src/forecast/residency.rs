//! The same of what stays on devices: how many files would be pinned, and how many directories be units or let names go.

use std::sync::Arc;

use stere_file::inode_if_any;
use stere_format::{FileKind, Timestamp};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::names::Form;
use stere_namespace::walk::Met;
use stere_policy::{KeptBy, ResidencySetting, ResidencySettings, RuleSet, Statements};
use stere_residency::residency_policy::said;
use stere_store::Io;

use super::{KEPT_MAX, RulesForecast};
use crate::forecast::Forecasts;

/// Counted below a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResidencyCounts {
    /// Files that are pinned.
    pub pinned_files: u64,
    /// Directories that are a unit with all below them.
    pub units: u64,
    /// Directories below which names go when nobody uses them.
    pub names: u64,
}

impl Forecasts {
    /// Whether anything is said by rules, or would be.
    pub fn may_keep_otherwise(&self, io: Io<'_>, set: &RuleSet) -> Result<bool, Error> {
        let (ruled, classes) = (self.residency.ruled(io)?, self.core.files.resolver().classes());
        let says = |keep| set.rules().iter().any(|rule| stere_policy::residency_of(rule, &classes).says(keep));
        Ok(ruled.pin || ruled.unit || ruled.names || ResidencySetting::ALL.into_iter().any(says))
    }
}

impl RulesForecast<'_> {
    /// Counts what the walk came to, as it is and as it would be.
    pub fn count_residency(&mut self, caller: &Caller<'_>, met: &Met) -> Result<(), Error> {
        let Some(mut counts) = self.residency else { return Ok(()) };
        if !matches!(met.kind, FileKind::File | FileKind::Directory) {
            return Ok(());
        }
        let now = self.forecasts.residency.statements_by_first_name(caller.io, caller.now, met.inode)?;
        let then = match met.kind {
            FileKind::Directory => self.statements_then(caller.io, met.inode)?,
            _ => self.statements_of(caller.io, caller.now, met.inode)?,
        };
        for (counts, statements) in counts.iter_mut().zip([now, then]) {
            let begins_here = |by: KeptBy| match by {
                KeptBy::Object(object) | KeptBy::Lock(object) | KeptBy::Rule { object, .. } => object == met.inode,
                KeptBy::Pool => false,
            };
            if met.kind == FileKind::File {
                counts.pinned_files +=
                    u64::from(statements.kept(|residency| residency.pin).is_some_and(|(pin, _)| pin));
                continue;
            }
            let is_unit = statements
                .kept(|residency: &ResidencySettings| residency.unit)
                .is_some_and(|(is, by)| is && begins_here(by));
            let names = statements.kept(|residency| residency.names_seconds);
            counts.units += u64::from(is_unit);
            counts.names += u64::from(names.is_some_and(|(seconds, by)| seconds > 0 && begins_here(by)));
        }
        let pinned_max = self.files + u64::from(met.kind == FileKind::File);
        assert!(counts.iter().all(|one| one.pinned_files <= pinned_max), "no more than {pinned_max} files are pinned");
        self.residency = Some(counts);
        Ok(())
    }

    /// What would be said of a directory at or below the one that gets other rules.
    fn statements_then(&mut self, io: Io<'_>, directory: u64) -> Result<Arc<Statements>, Error> {
        if let Some(known) = self.statements.get(&directory) {
            return Ok(known.clone());
        }
        let statements = self.statements_of(io, Timestamp::default(), directory)?;
        if self.statements.len() >= KEPT_MAX {
            self.statements.clear();
        }
        self.statements.insert(directory, statements.clone());
        Ok(statements)
    }

    fn statements_of(&mut self, io: Io<'_>, now: Timestamp, inode: u64) -> Result<Arc<Statements>, Error> {
        let forecasts = self.forecasts;
        let (classes, default) =
            (forecasts.core.files.resolver().classes(), forecasts.core.files.resolver().default_class());
        let value = forecasts.core.store.view(io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        let mut says = forecasts.core.store.view(io, |view| said(view, inode, &value, Some(&classes)))?;
        says.has_rules |= inode == self.other.0;
        if value.parent == inode {
            return Ok(Arc::new(Statements::of_pool(classes.residency(default))).below(inode, &says, &[]));
        }
        let (above, scopes) = match inode == self.other.0 {
            true => (forecasts.residency.statements(io, value.parent)?, forecasts.rules.scopes(io, value.parent)?),
            false => (self.statements_then(io, value.parent)?, self.scopes_in(io, value.parent)?),
        };
        let name = forecasts.core.store.view(io, |view| forecasts.core.names.name_of(view, inode, &value))?;
        let matched = match name.filter(|(_, form)| *form != Form::Opaque) {
            Some((name, _)) => scopes.residency(&name, &value, now, &mut |_, _| {}),
            None => Vec::new(),
        };
        Ok(above.below(inode, &says, &matched))
    }
}
