//! What stays on devices, and in what company: `pin`, `release`, `unit` and `names`, as directories, rules and classes say them.
//!
//! What is set on an inode is a key of the pool each. Rules and classes are not noted in inodes, for a rule that matches a directory holds for
//! all below it: what holds is made out when somebody asks (before a segment is released, when something was recalled), from the inode upwards.
//! For directories that is remembered until a policy changes; where nothing is said on the way it costs a look-up. Whose rules say something of this is
//! a key of the pool too, so nobody looks for them. Invariants: the order is that of `stere_policy::Statements`; what is remembered was read
//! after the last change that has returned. A name that nobody can read now might be any: what is below it counts as pinned where rules pin
//! anything. Read next: `residency_policy/stored.rs`, `units.rs`, `offload.rs`, `eviction/choice.rs`.

mod stored;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stere_file::named_in::{directories_of, has_several_names};
use stere_file::{Keys, inode_if_any};
use stere_format::{FileKind, InodeValue, Key, Timestamp, key};
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::error::Error;
use stere_namespace::flagged::FlaggedInodes;
use stere_namespace::inode::Core;
use stere_namespace::names::Form;
use stere_namespace::rules::{HAS_RULES, PolicyRules};
use stere_namespace::xattr;
use stere_policy::{Classes, KeptBy, MatchedRules, ResidencySetting, ResidencySettings, Rule, Said, Statements};
use stere_store::Io;

pub use stored::{encode_stored, key_of, own};

/// Directories that are remembered at a time.
const REMEMBERED_MAX: usize = 1 << 16;
/// Directories above one another beyond which metadata is damaged.
const DEPTH_MAX: usize = 4096;

/// Counts changes of policy, and of what is set: what was made out at one count holds while it is the same.
pub type Count = (u64, u64);
/// A directory, and the name of something in it where rules ask for that.
type InDirectory = (u64, Option<(Vec<u8>, Form)>);

/// Which keys rules and classes say something of, anywhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ruled {
    pub pin: bool,
    pub unit: bool,
    pub names: bool,
    /// The shortest time after which they let names go.
    pub shortest_seconds: Option<u64>,
    /// The shortest time after which they let content on media go from devices.
    pub release_seconds: Option<u64>,
    /// The pool's rules do, or classes.
    pub may_be_anywhere: bool,
    says_release: bool,
    by_classes: bool,
    by_rules: bool,
}

impl Ruled {
    fn add(&mut self, residency: &ResidencySettings) {
        self.pin |= residency.says(ResidencySetting::Pin);
        self.unit |= residency.says(ResidencySetting::Unit);
        self.names |= residency.says(ResidencySetting::Names);
        let seconds = residency.names_seconds.filter(|seconds| *seconds > 0);
        self.shortest_seconds = [self.shortest_seconds, seconds].into_iter().flatten().min();
        self.says_release |= residency.says(ResidencySetting::Release);
        let seconds = residency.release_seconds.filter(|seconds| *seconds > 0);
        self.release_seconds = [self.release_seconds, seconds].into_iter().flatten().min();
    }

    fn is_any(&self) -> bool {
        self.pin || self.unit || self.names || self.says_release
    }
}

/// What of files stays on devices, and in what company.
pub struct ResidencyPolicy {
    core: Arc<Core>,
    flagged: Arc<FlaggedInodes>,
    rules: Arc<PolicyRules>,
    /// Owners, groups and modes of directories that changed, which rules may ask for.
    changes: AtomicU64,
    ruled: Mutex<Option<(Count, Ruled)>>,
    directories: Mutex<(Count, FxHashMap<u64, Arc<Statements>>)>,
}

/// The directory, or file, with which it begins.
fn begins_at(by: KeptBy) -> u64 {
    match by {
        KeptBy::Object(object) | KeptBy::Lock(object) | KeptBy::Rule { object, .. } => object,
        KeptBy::Pool => ROOT,
    }
}

/// What an inode says itself, of which classes speak only where any says something of this.
pub fn said(keys: &impl Keys, inode: u64, value: &InodeValue, classes: Option<&Classes>) -> Result<Said, Error> {
    let of_class = |own: stere_policy::Own| Some(classes?.residency(own.class()?));
    Ok(Said {
        own: own(keys, inode)?,
        class: of_class(stere_file::own_policy(value)),
        locked: of_class(stere_file::own_locks(value)),
        has_rules: value.flags & HAS_RULES != 0,
    })
}

impl ResidencyPolicy {
    pub fn new(core: Arc<Core>, flagged: Arc<FlaggedInodes>, rules: Arc<PolicyRules>) -> ResidencyPolicy {
        let (changes, ruled, directories) = Default::default();
        ResidencyPolicy { core, flagged, rules, changes, ruled, directories }
    }

    /// See [`Count`].
    pub fn policy_count(&self) -> Count {
        (self.core.files.resolver().generation(), self.flagged.changes() + self.changes.load(Ordering::Acquire))
    }

    /// A directory got another owner, group or mode: rules may match it otherwise now, and speak for what is below it.
    pub fn note_directory_changed(&self, io: Io<'_>) {
        // Who cannot tell whether there are any rules may not wait: what was made out is forgotten.
        if self.ruled(io).map_or(true, |ruled| ruled.by_rules) {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Which keys rules and classes say something of.
    pub fn ruled(&self, io: Io<'_>) -> Result<Ruled, Error> {
        let count = self.policy_count();
        if let Some((_, ruled)) = self.ruled.lock().filter(|(known, _)| *known == count) {
            return Ok(ruled);
        }
        let (mut ruled, classes) = (Ruled::default(), self.core.files.resolver().classes());
        for (_, definition) in classes.in_use() {
            ruled.add(&definition.own.residency);
        }
        ruled.by_classes = ruled.is_any();
        // Rules that name a class say what it does.
        ruled.by_rules = ruled.by_classes;
        let add = |ruled: &mut Ruled, rules: &[Rule]| {
            for rule in rules.iter().filter(|rule| !rule.own.residency.is_empty()) {
                ruled.add(&rule.own.residency);
                ruled.by_rules = true;
            }
        };
        let pool_rules = self.rules.pool_rules();
        pool_rules.iter().for_each(|set| add(&mut ruled, set.rules()));
        ruled.may_be_anywhere = ruled.is_any();
        for directory in self.directories_with_such_rules(io)? {
            let text =
                self.core.store.view(io, |view| xattr::get(view, directory, stere_namespace::rules::ATTRIBUTE))?;
            let set = text.and_then(|text| self.rules.parse_stored(directory, &text, &classes));
            set.iter().for_each(|set| add(&mut ruled, set.rules()));
        }
        *self.ruled.lock() = Some((count, ruled));
        Ok(ruled)
    }

    /// The directories whose rules say something of this.
    pub fn directories_with_such_rules(&self, io: Io<'_>) -> Result<Vec<u64>, Error> {
        self.flagged.inodes_with(io, key::kind::RESIDENCY_RULES, Key::residency_rules)
    }

    /// All that is said of a directory and above it.
    pub fn statements(&self, io: Io<'_>, directory: u64) -> Result<Arc<Statements>, Error> {
        let count = self.policy_count();
        let (mut way, mut at, mut above) = (Vec::new(), directory, None);
        while way.len() < DEPTH_MAX && above.is_none() {
            let known = self.directories.lock();
            above = known.1.get(&at).filter(|_| known.0 == count).cloned();
            drop(known);
            if above.is_none() {
                let Some(value) = self.core.store.view(io, |view| inode_if_any(view, at))? else { break };
                let parent = value.parent;
                way.push((at, value));
                if parent == at {
                    break;
                }
                at = parent;
            }
        }
        if let (true, Some(above)) = (way.is_empty(), &above) {
            return Ok(above.clone());
        }
        let (ruled, classes) = (self.ruled(io)?, self.core.files.resolver().classes());
        let default = classes.residency(self.core.files.resolver().default_class());
        let mut statements = above.unwrap_or_else(|| Arc::new(Statements::of_pool(default)));
        let mut is_certain = true;
        for (inode, value) in way.iter().rev() {
            let speaking = ruled.by_classes.then_some(&*classes);
            let mut says = self.core.store.view(io, |view| said(view, *inode, value, speaking))?;
            says.has_rules &= ruled.by_rules;
            let mut matched = Vec::new();
            if ruled.by_rules && value.parent != *inode {
                let name = self.core.store.view(io, |view| self.core.names.name_of(view, *inode, value))?;
                is_certain &= name.as_ref().is_none_or(|(_, form)| *form != Form::Opaque);
                let name = name.map(|(name, form)| (value.parent, name, form));
                matched = self.matched_residency(io, name, value, Timestamp::default(), &ruled)?;
            }
            statements = statements.below(*inode, &says, &matched);
            // What was made out without knowing a name holds until somebody can read it.
            if is_certain {
                let mut known = self.directories.lock();
                if known.0 != count || known.1.len() >= REMEMBERED_MAX {
                    *known = (count, FxHashMap::default());
                }
                known.1.insert(*inode, statements.clone());
                assert!(known.0 == count && known.1.len() <= REMEMBERED_MAX, "what is remembered is of one policy");
            }
        }
        Ok(statements)
    }

    /// What rules say of something by one of its names.
    fn matched_residency(
        &self,
        io: Io<'_>,
        name: Option<(u64, Vec<u8>, Form)>,
        value: &InodeValue,
        now: Timestamp,
        ruled: &Ruled,
    ) -> Result<Vec<MatchedRules>, Error> {
        let Some((directory, name, form)) = name else { return Ok(Vec::new()) };
        if form != Form::Opaque {
            return Ok(self.rules.scopes(io, directory)?.residency(&name, value, now, &mut |_, _| {}));
        }
        let residency = ResidencySettings { pin: ruled.pin.then_some(true), ..ResidencySettings::default() };
        Ok(vec![MatchedRules { place: None, overrides: true, residency, has_class: false }])
    }

    /// What is said of a file by each of its names, or of a directory.
    fn all_statements(&self, io: Io<'_>, now: Timestamp, inode: u64) -> Result<Vec<Arc<Statements>>, Error> {
        let value = self.core.store.view(io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        if value.kind() == Some(FileKind::Directory) {
            return Ok(vec![self.statements(io, inode)?]);
        }
        let (ruled, classes) = (self.ruled(io)?, self.core.files.resolver().classes());
        let speaking = ruled.by_classes.then_some(&*classes);
        let says = self.core.store.view(io, |view| said(view, inode, &value, speaking))?;
        let directories = self.core.store.view(io, |view| directories_of(view, inode, &value))?;
        let mut names: Vec<InDirectory> = Vec::new();
        if !ruled.by_rules {
            names.extend(directories.iter().map(|directory| (*directory, None)));
        } else if has_several_names(&value) {
            let some = self.core.some_names(io, inode, &value)?;
            names.extend(some.into_iter().map(|one| (one.directory, Some((one.name, one.form)))));
            // By more names than anybody looks at it inherits all the same.
            let met: BTreeSet<u64> = names.iter().map(|(directory, _)| *directory).collect();
            names.extend(directories.iter().filter(|directory| !met.contains(directory)).map(|one| (*one, None)));
        } else {
            names.push((value.parent, self.core.store.view(io, |view| self.core.names.name_of(view, inode, &value))?));
        }
        let mut all = Vec::new();
        for (directory, name) in names {
            let name = name.map(|(name, form)| (directory, name, form));
            let matched = self.matched_residency(io, name, &value, now, &ruled)?;
            all.push(self.statements(io, directory)?.below(inode, &says, &matched));
        }
        Ok(all)
    }

    /// What is said of a directory, or of a file by one of its names.
    pub fn statements_by_first_name(&self, io: Io<'_>, now: Timestamp, inode: u64) -> Result<Arc<Statements>, Error> {
        self.all_statements(io, now, inode)?.into_iter().next().ok_or(Error::Stale)
    }

    /// Whether content stays on devices, and who says so: of several names what is locked goes first, then who says that it stays.
    pub fn pin_of(&self, io: Io<'_>, now: Timestamp, inode: u64) -> Result<Option<(bool, KeptBy)>, Error> {
        let all = self.all_statements(io, now, inode)?;
        let found = all.iter().filter_map(|statements| statements.kept(|residency| residency.pin));
        // Of equals the first.
        Ok(found.rev().max_by_key(|(is_pinned, by)| (matches!(by, KeptBy::Lock(_)), *is_pinned)))
    }

    /// After how many seconds without use content on media is given up on devices, 0 for never, and who says so: of several names what is
    /// locked goes first, then who says that it stays, or stays longer.
    pub fn release_of(&self, io: Io<'_>, now: Timestamp, inode: u64) -> Result<Option<(u64, KeptBy)>, Error> {
        let all = self.all_statements(io, now, inode)?;
        let found: Vec<Option<(u64, KeptBy)>> =
            all.iter().map(|statements| statements.kept(|residency| residency.release_seconds)).collect();
        let longer = |seconds: u64| seconds.checked_sub(1).unwrap_or(u64::MAX);
        let is_lock = |by: &KeptBy| matches!(by, KeptBy::Lock(_));
        let is_locked = found.iter().flatten().any(|(_, by)| is_lock(by));
        // By a name of which nobody says anything it stays.
        if found.iter().any(Option::is_none) && !is_locked {
            return Ok(None);
        }
        let of = found.into_iter().flatten().filter(|(_, by)| is_lock(by) || !is_locked);
        Ok(of.max_by_key(|(seconds, _)| longer(*seconds)))
    }

    /// The shortest time without use after which anything on media is given up on devices; none where nobody asks for that.
    pub fn shortest_release(&self, io: Io<'_>) -> Result<Option<u64>, Error> {
        let mut shortest = self.ruled(io)?.release_seconds;
        for inode in self.flagged.inodes_with(io, key::kind::RELEASE_AGE, Key::release_age)? {
            let own = self.core.store.view(io, |view| own(view, inode))?.release_seconds;
            shortest = [shortest, own.filter(|seconds| *seconds > 0)].into_iter().flatten().min();
        }
        Ok(shortest)
    }

    /// Whether content stays on devices; what has been removed meanwhile need not.
    pub fn is_pinned(&self, caller: &Caller<'_>, inode: u64) -> Result<bool, Error> {
        match self.pin_of(caller.io, caller.now, inode) {
            Err(Error::Stale) => Ok(false),
            found => Ok(found?.is_some_and(|(is_pinned, _)| is_pinned)),
        }
    }

    /// What holds for a directory, or for the one that a file got its last name in, and at which directory that begins.
    pub fn kept_in<T>(
        &self,
        io: Io<'_>,
        inode: u64,
        of: impl Fn(&ResidencySettings) -> Option<T>,
    ) -> Result<Option<(T, KeptBy, u64)>, Error> {
        let Some(value) = self.core.store.view(io, |view| inode_if_any(view, inode))? else { return Ok(None) };
        let directory = if value.kind() == Some(FileKind::Directory) { inode } else { value.parent };
        Ok(self.statements(io, directory)?.kept(of).map(|(found, by)| (found, by, begins_at(by))))
    }

    /// The rules that match something and say what of it stays on devices (of one key what holds, or anything), by all of its names.
    pub fn matched_of(
        &self,
        io: Io<'_>,
        now: Timestamp,
        inode: u64,
        held: Option<(ResidencySetting, ResidencySettings)>,
        among: Option<&BTreeSet<u64>>,
    ) -> Result<Vec<stere_namespace::rules::Matched>, Error> {
        let value = self.core.store.view(io, |view| inode_if_any(view, inode))?.ok_or(Error::Stale)?;
        let mut names = Vec::new();
        if has_several_names(&value) {
            let some = self.core.some_names(io, inode, &value)?.into_iter();
            let some = some.filter(|one| among.is_none_or(|among| among.contains(&one.directory)));
            names.extend(some.map(|one| (one.directory, one.name, one.form)));
        } else if value.parent != inode {
            let name = self.core.store.view(io, |view| self.core.names.name_of(view, inode, &value))?;
            names.extend(name.map(|(name, form)| (value.parent, name, form)));
        }
        let mut matched = Vec::new();
        for (directory, name, _) in names.into_iter().filter(|(_, _, form)| *form != Form::Opaque) {
            let scopes = self.rules.scopes(io, directory)?;
            let says = |rule: &&&Rule| {
                let residency = stere_policy::residency_of(rule, &scopes.classes);
                held.map_or(!residency.is_empty(), |(keep, held)| residency.only(keep) == held)
            };
            scopes.residency(&name, &value, now, &mut |directory, rules| {
                let is_overriding = rules.iter().any(|rule| rule.overrides);
                let rules: Vec<String> = rules.iter().filter(says).map(|rule| rule.text.clone()).collect();
                if !rules.is_empty() {
                    matched.push(stere_namespace::rules::Matched { directory, is_overriding, rules });
                }
            });
        }
        Ok(matched)
    }
}

impl ResidencyPolicy {
    /// Refuses what a class that the administrator locked contradicts, here or above.
    pub fn check_keep_locks(&self, caller: &Caller<'_>, inode: u64, asked: &[ResidencySettings]) -> Result<(), Error> {
        for keep in ResidencySetting::ALL {
            let of = |residency: &ResidencySettings| residency.says(keep).then(|| residency.only(keep));
            let mut said = asked.iter().filter_map(of).peekable();
            if said.peek().is_none() {
                continue;
            }
            let held = self.statements_by_first_name(caller.io, caller.now, inode)?.kept(of);
            if let Some((locked, KeptBy::Lock(_))) = held
                && said.any(|one| one != locked)
            {
                return Err(xattr::contradicts_a_lock());
            }
        }
        Ok(())
    }
}
