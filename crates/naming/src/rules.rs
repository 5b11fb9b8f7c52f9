//! Rules at work: which apply in a directory, what they decide for a file, and the pool's own rules with their history.
//!
//! What rules decide is noted in the inode, so that reading and writing never look at a rule: when a file is made, named anew, and
//! when the reconciler meets it. Authority, from the top: overriding rules of the pool; the file itself; then from its directory
//! upward, at each one its rules before its attributes; the pool's rules; the pool's default class.
//! Invariant: what is kept of a directory's rules is used only at the resolver's generation at which it was made out, so a
//! decision is never older than the transaction that it is part of.

mod forecast;
mod review;
mod scopes;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use stere_file::Plugins;
use stere_file::named_in::has_several_names;
use stere_format::{DecodeError, InodeValue, Key, PLACE_NUMBER_MIN, RuleLogValue, RulesValue, Timestamp, key};
use stere_policy::{
    Class, Classes, Decision, Keep, Keeping, Own, People, Places, Rule, RuleSet, Setting, Stacks, Switches, Vocabulary,
};
use stere_store::{Store, Transaction, Wait};

pub use forecast::{KeepingCounts, RuleChange, RulesForecast};
pub(crate) use scopes::{Matched, Scopes, Watches};

use crate::error::Error;
use crate::places::{Known, Numbering};
use crate::several_names::OneName;
use crate::walk::path_of;
use crate::{Caller, FileSystem, ROOT, xattr};

/// Flag of directories that have rules of their own.
pub(crate) const HAS_RULES: u32 = 8;
/// The attribute that holds them.
pub(crate) const ATTRIBUTE: &[u8] = b"user.stere.rules";
/// Directories whose rules are kept in memory.
const KEPT_MAX: usize = 65_536;
/// Directories whose rules stay understood while policies change.
const UNDERSTOOD_MAX: usize = 1024;
/// Changes that the log keeps.
const LOG_ENTRIES_MAX: u64 = 1000;

/// Rules in memory.
#[derive(Default)]
pub(crate) struct Rules {
    kept: Mutex<FxHashMap<u64, Arc<Scopes>>>,
    /// Of directories, as they were understood last.
    understood: Mutex<FxHashMap<u64, Understood>>,
    pool: Mutex<(u64, Option<Arc<RuleSet>>)>,
    /// Held by tests to keep the pool's rules as they are here.
    #[cfg(test)]
    switching: Mutex<()>,
    /// Held by who changes a class.
    class_changes: Mutex<()>,
    /// Counts changes of rules, and of what they depend on, that took effect.
    changes: AtomicU64,
    /// Whether there are, or were since the mount, any rules.
    has_any: AtomicBool,
    next_log_entry: AtomicU64,
    /// When what changes by itself is looked at next, in seconds.
    next_review: AtomicU64,
    /// Files that were closed or changed since they were looked at.
    changed: Mutex<BTreeSet<u64>>,
    people: Option<Arc<dyn People>>,
    plugins: Option<Arc<Plugins>>,
    places: Option<Known>,
    /// About what all rules of directories take in memory, and how much they may while others are kept beside those in use.
    weight: Arc<AtomicUsize>,
    weight_max: usize,
}

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
fn collect<T: Default>(store: &Store, wait: Wait, add: impl Fn(&mut T, u8, u64, &[u8])) -> Result<T, Error> {
    store.view(wait, |view| {
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

impl Rules {
    /// Reads what the pool says.
    pub fn load(
        store: &Arc<Store>,
        classes: &Classes,
        people: Option<Arc<dyn People>>,
        plugins: Arc<Plugins>,
        weight_max: usize,
    ) -> Result<Rules, Error> {
        let places = Some(Known(store.clone()));
        let rules = Rules { people, plugins: Some(plugins), places, weight_max, ..Rules::default() };
        type Last = (u64, Option<RulesVersion>);
        let (last_entry, newest) = collect(store, Wait::Allowed, |last: &mut Last, kind, number, bytes| match kind {
            key::kind::RULE_LOG => last.0 = number,
            key::kind::RULES => last.1 = version_of(number, bytes),
            _ => {}
        })?;
        rules.next_log_entry.store(last_entry + 1, Ordering::Release);
        if let Some(newest) = newest {
            match RuleSet::parse_stored(&newest.rules.text, true, rules.vocabulary(classes)) {
                Ok(set) => rules.put_pool(newest.version, set),
                // What cannot be understood decides nothing; what was decided before stays as it is.
                Err(error) => tracing::error!(%error, "the pool's rules are not understood; load them anew"),
            }
        }
        Ok(rules)
    }

    /// What words in rules mean here.
    pub fn vocabulary<'a>(&'a self, classes: &'a Classes) -> Vocabulary<'a> {
        let stacks = self.plugins.as_deref().map(|plugins| plugins as &dyn Stacks);
        let places = self.places.as_ref().map(|places| places as &dyn Places);
        Vocabulary { classes, people: self.people.as_deref(), stacks, places }
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

    fn put_pool(&self, version: u64, set: RuleSet) {
        #[cfg(test)]
        let _held = self.switching.lock();
        *self.pool.lock() = (version, (!set.is_empty()).then(|| Arc::new(set)));
    }

    /// See `changes`; the same for ever where there are no rules.
    pub fn changes(&self) -> u64 {
        if self.has_any.load(Ordering::Acquire) { self.changes.load(Ordering::Acquire) } else { 0 }
    }

    /// One change of a class at a time.
    pub fn changing_classes(&self) -> MutexGuard<'_, ()> {
        self.class_changes.lock()
    }

    /// As `note_change`, and from now on it is counted.
    pub fn note_first_change(&self) {
        self.has_any.store(true, Ordering::Release);
        self.note_change();
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
    #[cfg(test)]
    pub fn hold_pool(&self) -> impl Sized + '_ {
        self.switching.lock()
    }

    pub fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

impl FileSystem {
    /// The rules that apply in a directory.
    pub(crate) fn scopes(&self, wait: Wait, directory: u64) -> Result<Arc<Scopes>, Error> {
        let generation = self.files.resolver().generation();
        if let Some(scopes) = self.rules.kept.lock().get(&directory).filter(|kept| kept.generation == generation) {
            return Ok(scopes.clone());
        }
        let scopes = self.read_scopes(wait, directory, generation, None)?;
        if !scopes.is_empty() {
            self.rules.has_any.store(true, Ordering::Release);
        }
        let scopes = Arc::new(scopes);
        self.rules.keep_to_weight();
        let mut kept = self.rules.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(directory, scopes.clone());
        Ok(scopes)
    }

    /// Whether what is known of a directory's rules is still so; asked within the transaction that relies on it.
    pub(crate) fn is_current(&self, scopes: &Scopes) -> bool {
        scopes.generation == self.files.resolver().generation()
    }

    /// Notes in a file what the rules decide for it under this name; true where that changes something.
    pub(crate) fn apply_rules(&self, scopes: &Scopes, name: &[u8], value: &mut InodeValue, now: Timestamp) -> bool {
        let before = stere_file::rule_decision(value);
        if scopes.is_empty() && before.is_nothing() {
            return false;
        }
        let decision = scopes.decide(name, value, now, &mut |_, _| {});
        stere_file::set_rule_decision(value, decision);
        decision != before
    }

    /// As `apply_rules` for a further name: of each key the more conservative value stays.
    pub(crate) fn apply_rules_too(&self, scopes: &Scopes, name: &[u8], value: &mut InodeValue, now: Timestamp) {
        let before = stere_file::rule_decision(value);
        if !scopes.is_empty() {
            let decision = scopes.decide(name, value, now, &mut |_, _| {});
            stere_file::set_rule_decision(value, before.or_more(&decision, &scopes.classes));
        }
    }

    /// What rules decide for a file of this path in this directory, and which.
    pub(crate) fn decide(
        &self,
        caller: &Caller<'_>,
        directory: u64,
        path: &[u8],
        inode: u64,
    ) -> Result<(Decision, Vec<String>), Error> {
        let scopes = self.scopes(caller.wait, directory)?;
        let value = self.files.attributes(caller.wait, inode)?.filter(|_| !scopes.is_empty());
        let Some(value) = value else { return Ok(Default::default()) };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let mut by: Vec<String> = Vec::new();
        let mut visit = |_, rules: &[&Rule]| by.extend(rules.iter().map(|rule| rule.text.clone()));
        let decision = scopes.decide(name, &value, caller.now, &mut visit);
        Ok((decision, by))
    }

    /// Notes a decision that differs from the one before, and in the log what it came from.
    pub(crate) fn put_decision(
        &self,
        caller: &Caller<'_>,
        path: &[u8],
        inode: u64,
        decision: Decision,
        by: &[String],
    ) -> Result<(), Error> {
        let by = if by.is_empty() { "no rule any more".to_owned() } else { by.join("; ") };
        let text = format!("{}: {by}", String::from_utf8_lossy(path));
        let number = self.rules.next_log_entry.fetch_add(1, Ordering::AcqRel);
        let version = self.rules.pool.lock().0;
        let entry = RuleLogValue { seconds: caller.now.seconds, inode, version, text };
        self.changing(caller, inode, None, |transaction, value| {
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
    pub(crate) fn matched(
        &self,
        wait: Wait,
        now: Timestamp,
        inode: u64,
        among: Option<&BTreeSet<u64>>,
    ) -> Result<Vec<Matched>, Error> {
        let Some(value) = self.files.attributes(wait, inode)? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        if has_several_names(&value) {
            let is_meant = |one: &OneName| among.is_none_or(|among| among.contains(&one.directory));
            let some = self.some_names(wait, inode, &value)?.into_iter().filter(is_meant);
            names.extend(some.map(|one| (one.directory, one.name)));
        } else if let Some(path) = path_of(&self.store, &self.names, wait, inode)? {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&path);
            names.push((value.parent, name.to_vec()));
        }
        let mut matched = Vec::new();
        for (directory, name) in names {
            let scopes = self.scopes(wait, directory)?;
            scopes.decide(&name, &value, now, &mut |directory, rules| {
                let is_overriding = rules.iter().any(|rule| rule.overrides);
                let rules = rules.iter().map(|rule| rule.text.clone()).collect();
                matched.push(Matched { directory, is_overriding, rules });
            });
        }
        Ok(matched)
    }

    /// Sets or removes a directory's own rules.
    pub(crate) fn set_rules(&self, caller: &Caller<'_>, inode: u64, text: Option<&[u8]>) -> Result<(), Error> {
        let text = text.filter(|text| !text.is_empty());
        let (mut named, mut asked, mut lists, mut keeps_versions) = (Vec::new(), Vec::new(), Vec::new(), false);
        let mut new_set = None;
        if let Some(text) = text {
            let set = self.parse_rules(caller, &String::from_utf8_lossy(text), false)?;
            named = index_entries(&set, inode);
            keeps_versions = set.rules().iter().any(|rule| rule.own.versions.is_some());
            let settings = |rule: &Rule| {
                let own = rule.own;
                Setting::ALL.into_iter().filter(move |key| own.get(*key).is_some()).map(move |key| (key, own))
            };
            asked = set.rules().iter().flat_map(settings).collect();
            lists = set.rules().iter().map(|rule| rule.own).collect();
            let keepings: Vec<Keeping> = lists.iter().map(|own: &Own| own.keeping).collect();
            self.check_keep_locks(caller, inode, &keepings)?;
            new_set = Some(set);
        }
        let says = asked.iter().fold(Switches::default(), |says, (_, own)| says.or_more(own.switches));
        let _until_it_holds = self.changing_policy();
        self.changing(caller, inode, None, |transaction, value| {
            if value.kind() != Some(stere_format::FileKind::Directory) {
                return Err(Error::NotPermitted("rules can be set on directories"));
            }
            self.check_locks(transaction, inode, value, &asked)?;
            self.check_list_locks(transaction, inode, value, &lists)?;
            self.note_watched(transaction, says)?;
            if keeps_versions {
                self.begin_versions(transaction);
            }
            value.ctime = caller.now;
            let old_set = self.own_rules(transaction, inode, value)?;
            self.note_keeping_rules(transaction, caller, inode, [old_set.as_deref(), new_set.as_ref()]);
            self.forget_rules(transaction, inode, value)?;
            named.iter().for_each(|key| transaction.put(*key, &[1]));
            match text {
                Some(text) => {
                    xattr::put(transaction, inode, ATTRIBUTE, text)?;
                    value.flags |= HAS_RULES | xattr::HAS_ATTRIBUTES;
                }
                None => {
                    xattr::remove(transaction, inode, ATTRIBUTE)?;
                    value.flags &= !HAS_RULES;
                }
            }
            self.note_reconcile(transaction, inode)
        })?;
        self.begin_to_watch(says);
        self.files.resolver().invalidate();
        self.saying.note_change();
        self.rules.note_first_change();
        self.keeping_changed();
        if let Some(text) = text {
            // Ready for the first file.
            self.rules.parse_stored(inode, text, &self.files.resolver().classes());
        }
        Ok(())
    }

    /// Rules that somebody sets now.
    pub(crate) fn parse_rules(&self, caller: &Caller<'_>, text: &str, may_override: bool) -> Result<RuleSet, Error> {
        let classes = self.files.resolver().classes();
        // Stacks of plugins that they name have a number before they are understood.
        let named = NamedStacks::default();
        let places = Numbering(&self.store);
        let vocabulary = Vocabulary { stacks: Some(&named), places: Some(&places), ..self.rules.vocabulary(&classes) };
        RuleSet::parse(text, may_override, vocabulary).map_err(stere_policy::PolicyError::from)?;
        self.make_stacks(caller, &named.0.into_inner())?;
        let set = RuleSet::parse(text, may_override, self.rules.vocabulary(&classes))
            .map_err(stere_policy::PolicyError::from)?;
        self.check_rules_key(&set)?;
        Ok(set)
    }

    /// A directory's rules are to go, or to become others: takes it from the indexes of the classes and places that they name.
    pub(crate) fn forget_rules(
        &self,
        transaction: &mut Transaction<'_>,
        directory: u64,
        value: &InodeValue,
    ) -> Result<(), Error> {
        if let Some(set) = self.own_rules(transaction, directory, value)? {
            index_entries(&set, directory).into_iter().for_each(|key| transaction.delete(key));
        }
        Ok(())
    }

    /// The rules that a directory has.
    pub(crate) fn own_rules(
        &self,
        keys: &impl stere_file::Keys,
        directory: u64,
        value: &InodeValue,
    ) -> Result<Option<Arc<RuleSet>>, Error> {
        let text = match value.flags & HAS_RULES {
            0 => None,
            _ => xattr::get(keys, directory, ATTRIBUTE)?,
        };
        Ok(text.and_then(|text| self.rules.parse_stored(directory, &text, &self.files.resolver().classes())))
    }

    /// Makes these the pool's rules. What they change is done in the background.
    pub fn load_rules(&self, caller: &Caller<'_>, text: &str) -> Result<u64, Error> {
        let set = self.parse_rules(caller, text, true)?;
        let last_version: u64 = collect(&self.store, caller.wait, |last, kind, number, _| {
            if kind == key::kind::RULES {
                *last = number;
            }
        })?;
        let version = last_version + 1;
        let says = set.rules().iter().fold(Switches::default(), |says, rule| says.or_more(rule.own.switches));
        let classes = self.files.resolver().classes();
        let old = self.rules.pool_rules();
        let all = || old.iter().flat_map(|set| set.rules()).chain(set.rules());
        let says_names = all().any(|rule| stere_policy::keeping_of(rule, &classes).says(Keep::Names));
        let entry = RulesValue { seconds: caller.now.seconds, user: caller.uid, text: text.to_owned() }.encode();
        let _until_it_holds = self.changing_policy();
        self.store.update(caller.wait, |transaction| {
            transaction.put(Key::rules(version), &entry);
            self.note_watched(transaction, says)?;
            if set.rules().iter().any(|rule| rule.own.versions.is_some()) {
                self.begin_versions(transaction);
            }
            if says_names {
                self.note_names_anew(transaction, caller, ROOT);
            }
            self.note_reconcile(transaction, ROOT)
        })?;
        self.begin_to_watch(says);
        self.rules.put_pool(version, set);
        self.files.resolver().invalidate();
        self.rules.note_first_change();
        self.keeping_changed();
        Ok(version)
    }

    /// All that the pool's rules ever were, oldest first.
    pub fn rules_history(&self, wait: Wait) -> Result<Vec<RulesVersion>, Error> {
        collect(&self.store, wait, |history: &mut Vec<RulesVersion>, kind, number, bytes| {
            if kind == key::kind::RULES {
                history.extend(version_of(number, bytes));
            }
        })
    }

    /// What rules changed of files that existed, oldest first.
    pub fn rule_log(&self, wait: Wait) -> Result<Vec<RuleLogValue>, Error> {
        collect(&self.store, wait, |log: &mut Vec<RuleLogValue>, kind, number, bytes| {
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
pub(crate) fn classes_of(set: &RuleSet) -> Vec<Class> {
    let mut classes: Vec<Class> = set.rules().iter().filter_map(|rule| rule.own.class()).collect();
    classes.sort_unstable_by_key(|class| class.code());
    classes.dedup();
    classes
}

/// Where rules of a directory stand in the indexes of the classes and places that they name, and of those that ask for redundancy.
fn index_entries(set: &RuleSet, directory: u64) -> Vec<Key> {
    let classes = classes_of(set).into_iter().map(|class| Key::class_rules(class.code(), directory));
    let places = places_of(set).into_iter().map(|number| Key::place_rules(number, directory));
    let asks_for_redundancy = set.rules().iter().any(|rule| rule.own.scheme_wish().is_some());
    classes.chain(places).chain(asks_for_redundancy.then(|| Key::redundancy_rules(directory))).collect()
}

/// The places that rules name.
fn places_of(set: &RuleSet) -> BTreeSet<u8> {
    let named = set.rules().iter().flat_map(|rule| [rule.own.on, rule.own.only]);
    named.filter(|number| *number >= PLACE_NUMBER_MIN).collect()
}
