//! `sync=`: when what programs change is durable, as files, directories, rules and classes say it.
//!
//! `always`: before the call that made the change is answered; `asked`: when somebody calls fsync, as everywhere else; `relaxed`: fsync
//! hands over what is gathered, so that nothing later is durable before it, and does not wait. Who answers calls asks here which it is.
//! Invariants: a pool in which nobody ever said `sync=` pays a look at a flag a call; what cannot be found out without waiting is taken
//! for `always` by those who may not wait. Read next: `docs/design/commit.md`, the crate fuse's `durable.rs`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stere_faults::{Bug, is_planted};
use stere_file::inode_if_any;
use stere_format::Key;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::rules::PolicyRules;
use stere_namespace::walk::path_of;
use stere_policy::{Rule, Sync};
use stere_store::Io;

/// Places told of at most.
const TOLD_MAX: usize = 8;

/// When changes are durable.
pub struct Durability {
    core: Arc<Core>,
    rules: Arc<PolicyRules>,
    /// Whether anybody says `sync=`, or did since the mount.
    is_said: AtomicBool,
}

impl Durability {
    /// Of a pool whose classes and rules are loaded.
    pub fn load(core: Arc<Core>, rules: Arc<PolicyRules>) -> Result<Durability, Error> {
        let classes = core.files.resolver().classes();
        let says = |rule: &Rule| rule.own.sync().is_some();
        let by_all = classes.in_use().any(|(_, definition)| definition.own.sync().is_some())
            || rules.pool_rules().is_some_and(|set| set.rules().iter().any(says));
        let by_some = core.store.view(Io::BLOCKING, |view| {
            let mut is_said = false;
            for of in [Key::sync_member, Key::sync_rules] {
                for code in [Sync::Relaxed, Sync::Asked, Sync::Always].map(Sync::code) {
                    view.scan(of(code, 0), of(code, u64::MAX), |_, _| {
                        is_said = true;
                        ControlFlow::Break(())
                    })?;
                }
            }
            Ok::<_, Error>(is_said)
        })?;
        Ok(Durability { core, rules, is_said: AtomicBool::new(by_all || by_some) })
    }

    /// Somebody says it now.
    pub fn begin(&self) {
        self.is_said.store(true, Ordering::Release);
    }

    /// Whether anybody says `sync=`.
    #[inline]
    pub fn is_said(&self) -> bool {
        self.is_said.load(Ordering::Acquire)
    }

    /// What holds for an inode; what is gone is asked for.
    pub fn of(&self, io: Io<'_>, inode: u64) -> Result<Sync, Error> {
        if !self.is_said() {
            return Ok(Sync::Asked);
        }
        self.core.store.view(io, |view| match inode_if_any(view, inode)? {
            Some(value) => Ok(self.core.files.policies.effective(view, inode, &value)?.wish.sync),
            None => Ok(Sync::Asked),
        })
    }

    /// Whether a change of these is durable before it is answered; true where that cannot be found out without waiting.
    pub fn may_be_always(&self, inodes: impl IntoIterator<Item = u64>) -> bool {
        if !self.is_said() || is_planted(Bug::AlwaysForgotten) {
            return false;
        }
        inodes.into_iter().any(|inode| self.of(Io::NON_BLOCKING, inode).map_or(true, |sync| sync == Sync::Always))
    }

    /// Hands over what was written to a file: nothing that happens later is durable before it.
    pub fn order(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        if is_planted(Bug::RelaxedUnordered) {
            return Ok(());
        }
        let saved = self.core.files.writeback.save(&caller.context(), inode);
        self.core.told(caller.io, inode, saved)
    }

    /// Makes changes of these durable where policy says so; may wait.
    pub fn make_durable(&self, caller: &Caller<'_>, inodes: &[u64]) -> Result<(), Error> {
        if !self.is_said() || is_planted(Bug::AlwaysForgotten) {
            return Ok(());
        }
        let mut is_always = false;
        for inode in inodes {
            if self.of(caller.io, *inode)? == Sync::Always {
                is_always = true;
                let saved = self.core.files.writeback.save(&caller.context(), *inode);
                self.core.told(caller.io, *inode, saved)?;
            }
        }
        if is_always { Ok(self.core.store.commit(caller.io)?) } else { Ok(()) }
    }

    /// Who says that fsync does not wait: paths, classes and rules, a few of them, and whether there are more.
    pub fn relaxed(&self, io: Io<'_>) -> Result<(Vec<String>, bool), Error> {
        if !self.is_said() {
            return Ok((Vec::new(), false));
        }
        let mut told = Vec::new();
        let classes = self.core.files.resolver().classes();
        let of_classes = classes.in_use().filter(|(_, definition)| definition.own.sync() == Some(Sync::Relaxed));
        told.extend(of_classes.map(|(_, definition)| format!("class {}", definition.name)));
        let pool_rules = self.rules.pool_rules();
        let is_relaxed = |rule: &&Rule| rule.own.sync() == Some(Sync::Relaxed);
        let of_pool = pool_rules.iter().flat_map(|set| set.rules()).filter(is_relaxed);
        told.extend(of_pool.map(|rule| format!("rule '{}' of the pool", rule.text)));
        let code = Sync::Relaxed.code();
        let places = self.core.store.view(io, |view| {
            let mut places = BTreeSet::new();
            for key in [Key::sync_member, Key::sync_rules] {
                view.scan(key(code, 0), key(code, u64::MAX), |key, _| {
                    places.insert(key.position);
                    if places.len() > TOLD_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
            Ok::<_, Error>(places)
        })?;
        for inode in places {
            if let Some(path) = path_of(&self.core.store, &self.core.names, io, inode)? {
                told.push(String::from_utf8_lossy(&path).into_owned());
            }
        }
        let has_more = told.len() > TOLD_MAX;
        told.truncate(TOLD_MAX);
        Ok((told, has_more))
    }
}
