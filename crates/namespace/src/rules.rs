//! Rules at work: which apply in a directory, what they decide for a file, and the pool's own rules with their history.
//!
//! What rules decide is noted in the inode, so that reading and writing never look at a rule: when a file is made, named anew, and
//! when the reconciler meets it. Authority, from the top: overriding rules of the pool; the file itself; then from its directory
//! upward, at each one its rules before its attributes; the pool's rules; the pool's default class.
//! Invariant: what is kept of a directory's rules is used only at the resolver's generation at which it was made out, so a
//! decision is never older than the transaction that it is part of.

mod review;
mod scopes;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use stere_file::named_in::has_several_names;
use stere_format::{
    DecodeError, InodeValue, Key, PLACE_NUMBER_MIN, RuleLogValue, RulesValue, TERTIARY_MAX, Timestamp, key,
};
use stere_policy::{Class, Classes, Decision, Places, Rule, RuleSet, Stacks, TierWish, Vocabulary};
use stere_store::{Io, Store, Transaction};

use crate::call::Caller;
use crate::encryption::EncryptionKeys;
use crate::error::Error;
use crate::inode::{Core, OneName};
use crate::places::{Known, Numbering};
use crate::plugins::PluginRegistry;
use crate::walk::path_of;
use crate::xattr;

pub use scopes::{Matched, Scopes, Watches};

/// Flag of directories that have rules of their own.
pub const HAS_RULES: u32 = 8;
/// The attribute that holds them.
pub const ATTRIBUTE: &[u8] = b"user.stere.rules";
/// Directories whose rules are kept in memory.
const KEPT_MAX: usize = 65_536;
/// Directories whose rules stay understood while policies change.
const UNDERSTOOD_MAX: usize = 1024;
/// Changes that the log keeps.
const LOG_ENTRIES_MAX: u64 = 1000;

/// Rules in memory, and what they decide.
pub struct PolicyRules {
    core: Arc<Core>,
    registry: Arc<PluginRegistry>,
    encryption: Arc<EncryptionKeys>,
    kept: Mutex<FxHashMap<u64, Arc<Scopes>>>,
    /// Of directories, as they were understood last.
    understood: Mutex<FxHashMap<u64, Understood>>,
    pool: Mutex<(u64, Option<Arc<RuleSet>>)>,
    /// Held by tests to keep the pool's rules as they are here.
    switching: Mutex<()>,
    /// Held by who changes a class.
    class_changes: Mutex<()>,
    next_log_entry: AtomicU64,
    /// When what changes by itself is looked at next, in seconds.
    next_review: AtomicU64,
    /// Files that were closed or changed since they were looked at.
    changed: Mutex<BTreeSet<u64>>,
    places: Known,
    /// About what all rules of directories take in memory, and how much they may while others are kept beside those in use.
    weight: Arc<AtomicUsize>,
    weight_max: usize,
}

/// What rules of directories may take in memory unless the mount says otherwise.
const WEIGHT_MAX: usize = 32 << 20;
/// Of rules in memory those stay, when there are too many, that take less than this part of what all may.
const LIGHT_DIVISOR: usize = 256;

/// Rules that mean the same as long as text and classes are the same.
struct Understood {
    text: Vec<u8>,
    classes: Arc<Classes>,
    rules: Arc<RuleSet>,
}

/// A version of the pool's rules, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesVersion {
    pub version: u64,
    pub rules: RulesValue,
}

/// Writes down which stacks rules name; all of them are one here.
#[derive(Default)]
struct NamedStacks(std::cell::RefCell<Vec<String>>);

impl Stacks for NamedStacks {
    fn stack(&self, text: &str) -> Option<u16> {
        self.0.borrow_mut().push(text.to_owned());
        Some(0)
    }
}

/// Collects from the pool's lists, entry by entry in the order of their numbers.
pub fn collect<T: Default>(store: &Store, io: Io<'_>, add: impl Fn(&mut T, u8, u64, &[u8])) -> Result<T, Error> {
    store.view(io, |view| {
        let mut found = T::default();
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        view.scan(from, to, |key, bytes| {
            add(&mut found, key.kind, key.object, bytes);
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(found)
    })
}

/// What was written by a newer stere, or is damaged, is told and passed over.
fn understood<T>(what: &str, number: u64, decoded: Result<T, DecodeError>) -> Option<T> {
    decoded.map_err(|error| tracing::error!(number, %error, "{what} is not understood")).ok()
}

impl PolicyRules {
    /// Reads what the pool says.
    pub fn load(
        core: Arc<Core>,
        registry: Arc<PluginRegistry>,
        encryption: Arc<EncryptionKeys>,
    ) -> Result<PolicyRules, Error> {
        let weight_max = match core.options.rules_bytes_max {
            0 => WEIGHT_MAX,
            weight_max => weight_max,
        };
        let (store, classes) = (core.store.clone(), core.files.resolver().classes());
        let rules = PolicyRules {
            places: Known(store.clone()),
            core,
            registry,
            encryption,
            kept: Mutex::default(),
            understood: Mutex::default(),
            pool: Mutex::default(),
            switching: Mutex::default(),
            class_changes: Mutex::default(),
            next_log_entry: AtomicU64::new(0),
            next_review: AtomicU64::new(0),
            changed: Mutex::default(),
            weight: Arc::default(),
            weight_max,
        };
        type Last = (u64, Option<RulesVersion>);
        let (last_entry, newest) = collect(&store, Io::BLOCKING, |last: &mut Last, kind, number, bytes| match kind {
            key::kind::RULE_LOG => last.0 = number,
            key::kind::RULES => last.1 = version_of(number, bytes),
            _ => {}
        })?;
        rules.next_log_entry.store(last_entry + 1, Ordering::Release);
        if let Some(newest) = newest {
            match RuleSet::parse_stored(&newest.rules.text, true, rules.vocabulary(&classes)) {
                Ok(set) => rules.put_pool(newest.version, set),
                // What cannot be understood decides nothing; what was decided before stays as it is.
                Err(error) => tracing::error!(%error, "the pool's rules are not understood; load them anew"),
            }
        }
        Ok(rules)
    }

    /// What words in rules mean here.
    pub fn vocabulary<'a>(&'a self, classes: &'a Classes) -> Vocabulary<'a> {
        let stacks: &dyn Stacks = &**self.core.files.plugins();
        let places: &dyn Places = &self.places;
        Vocabulary { classes, people: self.core.options.people.as_deref(), stacks: Some(stacks), places: Some(places) }
    }

    /// Rules that were understood when they were set; a newer stere may have set them.
    pub fn parse_stored(&self, directory: u64, text: &[u8], classes: &Arc<Classes>) -> Option<Arc<RuleSet>> {
        let is_same = |known: &&Understood| known.text == text && Arc::ptr_eq(&known.classes, classes);
        if let Some(known) = self.understood.lock().get(&directory).filter(is_same) {
            return Some(known.rules.clone());
        }
        let rules = match RuleSet::parse_stored(&String::from_utf8_lossy(text), false, self.vocabulary(classes)) {
            Ok(mut set) => {
                set.count_in(&self.weight);
                self.keep_to_weight();
                Arc::new(set)
            }
            Err(error) => {
                tracing::error!(directory, %error, "rules of a directory are not understood");
                return None;
            }
        };
        if rules.is_of_text_alone() {
            let mut understood = self.understood.lock();
            if understood.len() >= UNDERSTOOD_MAX {
                understood.clear();
            }
            let entry = Understood { text: text.to_vec(), classes: classes.clone(), rules: rules.clone() };
            understood.insert(directory, entry);
            assert!(understood.len() <= UNDERSTOOD_MAX, "rules that are remembered are bounded");
        }
        Some(rules)
    }

    /// Where rules take more memory than they may, forgets those that take much, and if that is not enough all; who uses them keeps them.
    fn keep_to_weight(&self) {
        let is_beyond = || self.weight.load(Ordering::Acquire) > self.weight_max;
        for weight_max in [self.weight_max / LIGHT_DIVISOR, 0] {
            if !is_beyond() {
                return;
            }
            // They are let go when nobody is kept from the others.
            let scopes = take_if(&mut self.kept.lock(), |scopes| scopes.weight_bytes() > weight_max);
            let sets = take_if(&mut self.understood.lock(), |known| known.rules.weight_bytes() > weight_max);
            drop((scopes, sets));
        }
    }

    pub fn put_pool(&self, version: u64, set: RuleSet) {
        let _held = self.switching.lock();
        *self.pool.lock() = (version, (!set.is_empty()).then(|| Arc::new(set)));
    }

    /// One change of classes, or of the pool's rules, at a time.
    pub fn changing_classes(&self) -> MutexGuard<'_, ()> {
        self.class_changes.lock()
    }

    /// The pool's rules, if it has any.
    pub fn pool_rules(&self) -> Option<Arc<RuleSet>> {
        self.pool.lock().1.clone()
    }

    /// Whether the pool's rules name a class.
    pub fn name_class(&self, class: Class) -> bool {
        let pool = self.pool.lock();
        pool.1.as_ref().is_some_and(|set| set.rules().iter().any(|rule| rule.own.class() == Some(class)))
    }

    /// Whether the pool's rules name one of these places.
    pub fn name_places(&self, numbers: &BTreeSet<u8>) -> bool {
        let pool = self.pool.lock();
        pool.1.as_ref().is_some_and(|set| !places_of(set).is_disjoint(numbers))
    }

    /// Holds up whoever changes the pool's rules where they are in the pool already and not here.
    #[doc(hidden)]
    pub fn hold_pool(&self) -> impl Sized + '_ {
        self.switching.lock()
    }
}

impl PolicyRules {
    /// The rules that apply in a directory.
    pub fn scopes(&self, io: Io<'_>, directory: u64) -> Result<Arc<Scopes>, Error> {
        let generation = self.core.files.resolver().generation();
        if let Some(scopes) = self.kept.lock().get(&directory).filter(|kept| kept.generation == generation) {
            return Ok(scopes.clone());
        }
        let scopes = self.read_scopes(io, directory, generation, None)?;
        if !scopes.is_empty() {
            self.core.policy.note_rules();
        }
        let scopes = Arc::new(scopes);
        self.keep_to_weight();
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        assert!(scopes.generation <= self.core.files.resolver().generation(), "no rules are from a later policy");
        kept.insert(directory, scopes.clone());
        assert!(kept.len() <= KEPT_MAX, "directories whose rules are remembered are bounded");
        Ok(scopes)
    }

    /// Whether what is known of a directory's rules is still so; asked within the transaction that relies on it.
    pub fn is_current(&self, scopes: &Scopes) -> bool {
        scopes.generation == self.core.files.resolver().generation()
    }

    /// Notes in a file what the rules decide for it under this name; true where that changes something.
    pub fn apply_rules(&self, scopes: &Scopes, name: &[u8], value: &mut InodeValue, now: Timestamp) -> bool {
        let before = stere_file::rule_decision(value);
        if scopes.is_empty() && before.is_nothing() {
            return false;
        }
        let decision = scopes.decide(name, value, now, &mut |_, _| {});
        stere_file::set_rule_decision(value, decision);
        decision != before
    }

    /// As `apply_rules` for a further name: of each key the more conservative value stays.
    pub fn apply_rules_too(&self, scopes: &Scopes, name: &[u8], value: &mut InodeValue, now: Timestamp) {
        let before = stere_file::rule_decision(value);
        if !scopes.is_empty() {
            let decision = scopes.decide(name, value, now, &mut |_, _| {});
            stere_file::set_rule_decision(value, before.or_more(&decision, &scopes.classes));
        }
    }

    /// What rules decide for a file of this path in this directory, and which.
    pub fn decide(
        &self,
        caller: &Caller<'_>,
        directory: u64,
        path: &[u8],
        inode: u64,
    ) -> Result<(Decision, Vec<String>), Error> {
        let scopes = self.scopes(caller.io, directory)?;
        let value = self.core.files.attributes(caller.io, inode)?.filter(|_| !scopes.is_empty());
        let Some(value) = value else { return Ok(Default::default()) };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut by: Vec<String> = Vec::new();
        let mut visit = |_, rules: &[&Rule]| by.extend(rules.iter().map(|rule| rule.text.clone()));
        let decision = scopes.decide(name, &value, caller.now, &mut visit);
        Ok((decision, by))
    }

    /// Notes a decision that differs from the one before, and in the log what it came from.
    pub fn put_decision(
        &self,
        caller: &Caller<'_>,
        path: &[u8],
        inode: u64,
        decision: Decision,
        by: &[String],
    ) -> Result<(), Error> {
        let by = if by.is_empty() { "no rule any more".to_owned() } else { by.join("; ") };
        let text = format!("{}: {by}", String::from_utf8_lossy(path));
        let number = self.next_log_entry.fetch_add(1, Ordering::AcqRel);
        let version = self.pool.lock().0;
        let entry = RuleLogValue { seconds: caller.now.seconds, inode, version, text };
        self.core.changing(caller, inode, None, |transaction, value| {
            stere_file::set_rule_decision(value, decision);
            transaction.put(Key::rule_log(number), &entry.encode());
            if let Some(old) = number.checked_sub(LOG_ENTRIES_MAX) {
                transaction.delete(Key::rule_log(old));
            }
            Ok(())
        })?;
        Ok(())
    }

    /// The rules that matched a file, in the order of authority; of one with several names by those in these directories, if any are given.
    pub fn matched(
        &self,
        io: Io<'_>,
        now: Timestamp,
        inode: u64,
        among: Option<&BTreeSet<u64>>,
    ) -> Result<Vec<Matched>, Error> {
        let Some(value) = self.core.files.attributes(io, inode)? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        if has_several_names(&value) {
            let is_meant = |one: &OneName| among.is_none_or(|among| among.contains(&one.directory));
            let some = self.core.some_names(io, inode, &value)?.into_iter().filter(is_meant);
            names.extend(some.map(|one| (one.directory, one.name)));
        } else if let Some(path) = path_of(&self.core.store, &self.core.names, io, inode)? {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&path);
            names.push((value.parent, name.to_vec()));
        }
        let mut matched = Vec::new();
        for (directory, name) in names {
            let scopes = self.scopes(io, directory)?;
            scopes.decide(&name, &value, now, &mut |directory, rules| {
                let is_overriding = rules.iter().any(|rule| rule.overrides);
                let rules = rules.iter().map(|rule| rule.text.clone()).collect();
                matched.push(Matched { directory, is_overriding, rules });
            });
        }
        Ok(matched)
    }

    /// Rules that somebody sets now.
    pub fn parse_rules(&self, caller: &Caller<'_>, text: &str, may_override: bool) -> Result<RuleSet, Error> {
        let classes = self.core.files.resolver().classes();
        // Stacks of plugins that they name have a number before they are understood.
        let named = NamedStacks::default();
        let places = Numbering(&self.core.store);
        let vocabulary = Vocabulary { stacks: Some(&named), places: Some(&places), ..self.vocabulary(&classes) };
        RuleSet::parse(text, may_override, vocabulary).map_err(stere_policy::PolicyError::from)?;
        self.registry.make_stacks(caller, &named.0.into_inner())?;
        let set =
            RuleSet::parse(text, may_override, self.vocabulary(&classes)).map_err(stere_policy::PolicyError::from)?;
        self.encryption.check_rules_key(&set)?;
        Ok(set)
    }

    /// A directory's rules are to go, or to become others: takes it from the indexes of the classes and places that they name.
    pub fn forget_rules(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &InodeValue,
    ) -> Result<(), Error> {
        if let Some(set) = self.own_rules(transaction, directory, value)? {
            index_entries(&set, directory).into_iter().for_each(|key| transaction.delete(key));
            // A medium that they named may be gone since.
            (0..TERTIARY_MAX as u8).for_each(|number| transaction.delete(Key::media_rules(number, directory)));
        }
        Ok(())
    }

    /// The rules that a directory has.
    pub fn own_rules(
        &self,
        keys: &impl stere_file::Keys,
        directory: u64,
        value: &InodeValue,
    ) -> Result<Option<Arc<RuleSet>>, Error> {
        let text = match value.flags & HAS_RULES {
            0 => None,
            _ => xattr::get(keys, directory, ATTRIBUTE)?,
        };
        Ok(text.and_then(|text| self.parse_stored(directory, &text, &self.core.files.resolver().classes())))
    }

    /// All that the pool's rules ever were, oldest first.
    pub fn rules_history(&self, io: Io<'_>) -> Result<Vec<RulesVersion>, Error> {
        let history = collect(&self.core.store, io, |history: &mut Vec<RulesVersion>, kind, number, bytes| {
            if kind == key::kind::RULES {
                history.extend(version_of(number, bytes));
            }
        })?;
        assert!(history.windows(2).all(|pair| pair[0].version < pair[1].version), "versions are in order");
        Ok(history)
    }

    /// What rules changed of files that existed, oldest first.
    pub fn rule_log(&self, io: Io<'_>) -> Result<Vec<RuleLogValue>, Error> {
        collect(&self.core.store, io, |log: &mut Vec<RuleLogValue>, kind, number, bytes| {
            if kind == key::kind::RULE_LOG {
                log.extend(understood("an entry of the rules' log", number, RuleLogValue::decode(bytes)));
            }
        })
    }
}

/// Takes what is meant out of a map.
fn take_if<V>(map: &mut FxHashMap<u64, V>, is_meant: impl Fn(&V) -> bool) -> FxHashMap<u64, V> {
    let (taken, left) = std::mem::take(map).into_iter().partition(|(_, value)| is_meant(value));
    *map = left;
    taken
}

fn version_of(version: u64, bytes: &[u8]) -> Option<RulesVersion> {
    let rules = understood("a version of the pool's rules", version, RulesValue::decode(bytes))?;
    Some(RulesVersion { version, rules })
}

/// The classes that rules name.
pub fn classes_of(set: &RuleSet) -> Vec<Class> {
    let mut classes: Vec<Class> = set.rules().iter().filter_map(|rule| rule.own.class()).collect();
    classes.sort_unstable_by_key(|class| class.code());
    classes.dedup();
    classes
}

/// Where rules of a directory stand in the indexes of the classes, places and media that they name, and of those that ask for redundancy,
/// or for what changes by itself.
pub fn index_entries(set: &RuleSet, directory: u64) -> Vec<Key> {
    let classes = classes_of(set).into_iter().map(|class| Key::class_rules(class.code(), directory));
    let places = places_of(set).into_iter().map(|number| Key::place_rules(number, directory));
    let asks_for_redundancy = set.rules().iter().any(|rule| rule.own.scheme_wish().is_some());
    let media = media_entries(set, directory);
    let changes = set.changes_by_itself().then(|| Key::changing_rules(directory));
    let redundancy = asks_for_redundancy.then(|| Key::redundancy_rules(directory));
    let syncs: BTreeSet<u8> = set.rules().iter().map(|rule| rule.own.sync).filter(|code| *code != 0).collect();
    let syncs = syncs.into_iter().map(|code| Key::sync_rules(code, directory));
    classes.chain(places).chain(media).chain(changes).chain(redundancy).chain(syncs).collect()
}

/// The same of media alone; those of the pool's rules have no directory, 0.
pub fn media_entries(set: &RuleSet, directory: u64) -> Vec<Key> {
    let named = set.rules().iter().filter_map(|rule| match rule.own.tier_wish()? {
        TierWish::Volumes(set) => Some(set),
        TierWish::Unsaid | TierWish::Nowhere | TierWish::Usual => None,
    });
    let named = named.fold(0, |all, set| all | set);
    let numbers = (0..TERTIARY_MAX as u8).filter(|number| named >> number & 1 == 1);
    numbers.map(|number| Key::media_rules(number, directory)).collect()
}

/// The places that rules name.
fn places_of(set: &RuleSet) -> BTreeSet<u8> {
    let named = set.rules().iter().flat_map(|rule| [rule.own.on, rule.own.only]);
    named.filter(|number| *number >= PLACE_NUMBER_MIN).collect()
}
