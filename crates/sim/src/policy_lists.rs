//! Lists in histories: rules of directories, a class and locks say, beside attributes, which versions are kept and which plugins are passed.
//!
//! What holds is worked out here again from the attributes that the model has, in the order of authority that is written down, and
//! compared for every file once the background is done: at each check, and after each crash. Of some files it is proven: one that is to
//! have so many versions has that many after it was changed once more often, and what a plugin is to pass cannot be written
//! while that fails. Files that have, or had, several names are left out: which of their decisions counts is told elsewhere.
//! Read next: `versions.rs`, `plugins.rs`, `docs/design/policy.md`.

use std::collections::{BTreeMap, BTreeSet};

use stere_naming::{Error, Io, OpenFlags, SetMode};

use crate::area::{Area, further};
use crate::content::pattern;
use crate::history::{Budget, History, Plan, Slot, Stop};
use crate::model::{Kind, Model, Node, ROOT};
use crate::operation::{Operation, Path};
use crate::plugins::PluginTrouble;
use crate::pool::{caller, superuser};
use crate::random::Random;
use crate::{
    execute::{contents, names},
    observe,
};

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListChange {
    Own,
    Lock,
    Unlock,
    Rules,
    Class,
}

/// The lists: what they are called.
const LISTS: [&str; 2] = ["versions", "plugins"];
const VALUES: [&[&str]; 2] = [&["2", "3", "1", "no", "4,9d"], &["played", "none", "played,played:again"]];
/// What is decided of a list for which names; the empty name is any.
type Decisions = &'static [(&'static str, &'static str)];

/// Rules of directories, and what they decide of each list.
const RULES: [(&str, [Decisions; 2]); 4] = [
    ("a: versions=2; *: versions=1", [&[("a", "2"), ("", "1")], &[]]),
    ("b: versions=3, plugins=played; c: versions=no", [&[("b", "3"), ("c", "no")], &[("b", "played")]]),
    ("*: plugins=played; a: versions=no, plugins=none", [&[("a", "no")], &[("", "played")]]),
    ("a: versions=1; [ab]: versions=3; b: plugins=none", [&[("a", "3"), ("b", "3")], &[("b", "none")]]),
];
const RULES_ATTRIBUTE: &[u8] = b"user.stere.rules";
const CLASS_ATTRIBUTE: &[u8] = b"user.stere.class";
const CLASS: &str = "papers";
/// What the class says of each list; nothing if it is empty.
const SETTINGS: [[&str; 2]; 4] = [["3", ""], ["1", "played"], ["", "none"], ["2", "played,played:again"]];
/// Rounds after which the background must have nothing left to do.
const ROUNDS_MAX: usize = 1000;
/// Files of which a check proves what holds.
const PROVEN_MAX: usize = 2;

/// What a history knows of lists.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// What the class says, by its place in the settings; the last one, and others that a crash may leave.
    class: Vec<usize>,
    /// Files that had several names.
    pub(crate) named_twice: BTreeSet<u64>,
}

impl Lists {
    /// Notes which files have several names.
    pub(crate) fn note_several_names(&mut self, model: &Model) {
        let several = model.nodes.iter().filter(|(_, node)| node.nlink > 1 && node.content().is_some());
        self.named_twice.extend(several.map(|(inode, _)| *inode));
    }

    /// What holds for a file, from what everybody above it says.
    fn held(&self, model: &Model, file: u64, list: usize) -> Held {
        if let Some(locked) = locked(model, file, list) {
            return Some((locked, true));
        }
        let places = places(model);
        let (own, of_class) = (attribute(list), SETTINGS[*self.class.last()?][list]);
        let name = places.get(&file)?.1.clone();
        let (mut at, mut is_classed) = (file, false);
        loop {
            let attributes = &model.nodes.get(&at)?.attributes;
            let rules = attributes.get(RULES_ATTRIBUTE).filter(|_| at != file);
            if let Some(decided) = rules.and_then(|text| decided(text, list, &name)) {
                return Some((decided.to_owned(), false));
            }
            if let Some(value) = attributes.get(&own) {
                return Some((String::from_utf8_lossy(value).into_owned(), false));
            }
            if let Some(class) = attributes.get(CLASS_ATTRIBUTE).filter(|_| !is_classed) {
                is_classed = true;
                if class == CLASS.as_bytes() && !of_class.is_empty() {
                    return Some((of_class.to_owned(), false));
                }
            }
            if at == ROOT {
                return None;
            }
            at = places.get(&at)?.0;
        }
    }

    /// Files with one name, which they always had.
    fn listed_files(&self, model: &Model) -> Vec<u64> {
        let is_plain =
            |inode: &u64, node: &Node| node.content().is_some() && node.nlink == 1 && !self.named_twice.contains(inode);
        model.nodes.iter().filter(|(inode, node)| is_plain(inode, node)).map(|(inode, _)| *inode).collect()
    }
}

fn attribute(list: usize) -> Vec<u8> {
    format!("user.stere.{}", LISTS[list]).into_bytes()
}

fn lock(list: usize) -> Vec<u8> {
    format!("trusted.stere.{}", LISTS[list]).into_bytes()
}

/// Puts what is said of lists into a history, and where it is proven.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(10);
    for _ in 0..random.between(2, 4) {
        for _ in 0..random.between(1, 3) {
            let changes = [
                ListChange::Own,
                ListChange::Lock,
                ListChange::Lock,
                ListChange::Unlock,
                ListChange::Rules,
                ListChange::Class,
            ];
            let change = *random.pick(&changes);
            let (name, in_root) = (random.below(5) as u8, random.chance(1, 4));
            let directory = if random.chance(1, 2) { 0 } else { random.below(4) as u8 };
            let path = (!in_root).then_some(Path { directory, name });
            let (list, pick) = (random.below(2) as u8, random.below(5) as u8);
            operations.insert(at, Operation::Say { path, list, change, pick });
            at = further(at + 1, 3, operations, random);
        }
        if random.chance(1, 2) {
            operations.insert(at, Operation::ChangeClass { pick: random.below(SETTINGS.len() as u64) as u8 });
            at += 1;
        }
        if random.chance(2, 3) {
            operations.insert(at, Operation::Check);
        }
        at = further(at + 1, 12, operations, random);
    }
}

/// Where the names of a model are: directory and name of what has one only.
pub(crate) fn places(model: &Model) -> BTreeMap<u64, (u64, Vec<u8>)> {
    let mut places = BTreeMap::new();
    for (directory, node) in &model.nodes {
        let Kind::Directory(names) = &node.kind else { continue };
        places.extend(names.iter().map(|(name, inode)| (*inode, (*directory, name.clone()))));
    }
    places
}

/// What holds, and whether a lock says so.
type Held = Option<(String, bool)>;

impl Plan {
    pub(crate) fn has_lists(&self) -> bool {
        self.pool.areas.has(Area::Lists) && !self.may_fill && self.budget != Budget::Beyond
    }
}

/// The class of a new pool. Versions and plugins are begun.
pub(crate) fn begin_lists(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_lists() {
        return Ok(());
    }
    let created = history.command(|files, caller| files.policy().create_class(caller, CLASS, &settings(0)));
    history.must("making a class", created)?;
    history.lists.class = vec![0];
    history.sync_all()
}

/// Says something of a list, of a file, a directory or the root.
pub(crate) fn say(
    history: &mut History,
    path: Option<Path>,
    list: u8,
    change: ListChange,
    pick: u8,
) -> Result<(), Stop> {
    if !history.plan.has_lists() {
        return Ok(());
    }
    let inode = match path {
        None => Some(ROOT),
        Some(path) => names::plain_inode(history, path)?,
    };
    let Some(inode) = inode else { return Ok(()) };
    let (list, pick) = (usize::from(list), usize::from(pick));
    let value = VALUES[list][pick % VALUES[list].len()];
    match change {
        ListChange::Own => say_own(history, inode, list, value),
        ListChange::Lock => put_lock(history, inode, list, Some(value)),
        ListChange::Unlock => put_lock(history, inode, list, None),
        ListChange::Class => names::put_policy(history, inode, CLASS_ATTRIBUTE, CLASS.as_bytes()),
        ListChange::Rules if history.model.is_directory(inode) => say_rules(history, inode, &RULES[pick % RULES.len()]),
        ListChange::Rules => Ok(()),
    }
}

/// P-121: what contradicts a lock is refused, and nothing else.
fn say_own(history: &mut History, inode: u64, list: usize, value: &str) -> Result<(), Stop> {
    if locked(&history.model, inode, list).is_some_and(|locked| locked != value) {
        return must_refuse(history, inode, &attribute(list), value);
    }
    names::put_policy(history, inode, &attribute(list), value.as_bytes())
}

fn say_rules(history: &mut History, inode: u64, (text, _): &(&str, [&[(&str, &str)]; 2])) -> Result<(), Stop> {
    let contradicts = |list: usize| {
        let locked = locked(&history.model, inode, list);
        // As they are written: of several that match, each says something.
        let said = text.split("; ").flat_map(|rule| rule.split([':', ',']).skip(1));
        let word = format!("{}=", LISTS[list]);
        let mut values = said.filter_map(|setting| setting.trim().strip_prefix(&word));
        locked.is_some_and(|locked| values.any(|value| value != locked))
    };
    if (0..LISTS.len()).any(contradicts) {
        return must_refuse(history, inode, RULES_ATTRIBUTE, text);
    }
    names::put_policy(history, inode, RULES_ATTRIBUTE, text.as_bytes())
}

fn must_refuse(history: &mut History, inode: u64, name: &[u8], value: &str) -> Result<(), Stop> {
    let user = superuser(&history.machine);
    let real = history.mounted().files.setxattr(&user, inode, name, value.as_bytes(), SetMode::Any, false);
    match real {
        Err(Error::NotPermitted(_) | Error::Retained(_)) => Ok(()),
        Err(error) => Err(history.unexpected("setxattr against a lock", error.errno(), &error.to_string())),
        Ok(()) if history.machine.is_off() => Err(Stop::Power),
        Ok(()) => {
            let (path, name) = (history.model.path_of(inode), String::from_utf8_lossy(name));
            Err(Stop::Failure(format!("{path}: {name}={value} is set against a lock")))
        }
    }
}

/// Whether this answer is what a lock gives to whoever sets a list of this inode to something.
pub(crate) fn is_of_locks(history: &History, inode: u64, name: &[u8], value: &[u8]) -> bool {
    let list = (0..LISTS.len()).find(|list| attribute(*list) == name);
    let locked = list.and_then(|list| locked(&history.model, inode, list));
    history.plan.has_lists() && locked.is_some_and(|locked| locked.as_bytes() != value)
}

fn put_lock(history: &mut History, inode: u64, list: usize, value: Option<&str>) -> Result<(), Stop> {
    let (name, user) = (lock(list), superuser(&history.machine));
    let is_there = history.model.nodes[&inode].attributes.contains_key(&name);
    let real = match value {
        Some(value) => history.mounted().files.setxattr(&user, inode, &name, value.as_bytes(), SetMode::Any, false),
        None => history.mounted().files.removexattr(&user, inode, &name),
    };
    let after = history.model.changed_node(inode, |node| {
        match value {
            Some(value) => node.attributes.insert(name, value.as_bytes().to_vec()),
            None => node.attributes.remove(&name),
        };
    });
    let right = if value.is_none() && !is_there { Err(libc::ENODATA) } else { Ok(after) };
    if matches!(real, Err(Error::Retained(_))) && history.model.check_changeable(inode).is_err() {
        return Ok(());
    }
    history.expect_names("a lock of a list", real, right).map(drop)
}

/// The class says something else from now on.
pub(crate) fn change_class(history: &mut History, pick: u8) -> Result<(), Stop> {
    if !history.plan.has_lists() {
        return Ok(());
    }
    let pick = usize::from(pick) % SETTINGS.len();
    let changed = history.command(|files, caller| files.policy().change_class(caller, CLASS, &settings(pick)));
    history.lists.class.push(pick);
    history.must("changing a class", changed)?;
    history.sync_all()?;
    history.lists.class = vec![pick];
    Ok(())
}

/// What the nearest lock says, of this one and those above.
fn locked(model: &Model, inode: u64, list: usize) -> Option<String> {
    let (places, name) = (places(model), lock(list));
    let mut at = inode;
    loop {
        if let Some(value) = model.nodes.get(&at)?.attributes.get(&name) {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
        if at == ROOT {
            return None;
        }
        at = places.get(&at)?.0;
    }
}

/// Whether nothing is wrong that could keep the background from its work.
pub(crate) fn is_undisturbed(history: &History) -> bool {
    let is_whole = history.pool.is_calm() && history.pool.away().is_none() && !history.pool.has_lost_member();
    is_whole && !history.mounted().store.tier.media.has_volumes() && history.mounted().store.failure().is_none()
}

/// After a crash: the class says what it said before or after its last change.
pub(crate) fn recover_lists(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_lists() {
        return Ok(());
    }
    let told = history.mounted().files.classes().list_classes(Io::BLOCKING);
    let told = history.must("listing classes", told)?;
    let told = told.into_iter().find(|class| class.name == CLASS).map(|class| class.settings).unwrap_or_default();
    let is_said = |pick: usize| {
        let mut left = settings(pick);
        left.retain(|(_, value)| !value.is_empty());
        let (mut told, mut left): (Vec<_>, Vec<_>) =
            (told.iter().map(|(list, value)| (list.to_string(), value.clone())).collect(), left.into_iter().collect());
        told.sort_unstable();
        left.sort_unstable();
        told == left
    };
    match history.lists.class.iter().rev().copied().find(|pick| is_said(*pick)) {
        Some(pick) => history.lists.class = vec![pick],
        None => return Err(Stop::Failure(format!("a crash left a class that says {told:?}"))),
    }
    check_lists(history)
}

/// P-117, P-121: for every file holds what is said, once the background is done.
pub(crate) fn check_lists(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_lists() || !is_undisturbed(history) {
        return Ok(());
    }
    history.machine.disarm();
    settle_background(history)?;
    for file in history.lists.listed_files(&history.model) {
        for (list, list_name) in LISTS.iter().enumerate() {
            let held = history.lists.held(&history.model, file, list).map(|(value, _)| value);
            let unsaid = (list == 1).then(|| "none".to_owned());
            let name = format!("user.stere.effective.{list_name}");
            let real = history.mounted().files.getxattr(&caller(&history.machine), file, name.as_bytes());
            let real = match real {
                Ok(value) => Some(String::from_utf8_lossy(&value).into_owned()),
                Err(Error::NoAttribute) => None,
                Err(error) => return Err(history.unexpected("what holds", error.errno(), &error.to_string())),
            };
            if real != held.clone().or(unsaid) {
                let path = history.model.path_of(file);
                return Err(Stop::Failure(format!("{path}: {list_name} is {real:?}, and {held:?} is said")));
            }
        }
    }
    history.summary.lists_compared += 1;
    Ok(())
}

/// Everything that the background has to do.
pub(crate) fn settle_background(history: &mut History) -> Result<(), Stop> {
    for _ in 0..ROUNDS_MAX {
        let above = history.mounted().files.step(&caller(&history.machine), 256);
        let is_busy = history.must("step of the files", above)?;
        let more = history.mounted().files.reconciler().reconcile_step(&caller(&history.machine), 8 << 20);
        if !history.must("storing files as their policy says", more)? && !is_busy {
            return Ok(());
        }
    }
    Err(Stop::Failure("the background does not come to an end".into()))
}

/// Proves of some files what holds for them.
pub(crate) fn prove_lists(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_lists() || !is_undisturbed(history) || history.quotas.are_on() {
        return Ok(());
    }
    check_lists(history)?;
    let mut files = history.lists.listed_files(&history.model);
    files.retain(|file| {
        let is_open = history.slots.iter().flatten().any(|slot| slot.inode == *file);
        !is_open && history.model.check_changeable(*file).is_ok()
    });
    for _ in 0..PROVEN_MAX.min(files.len()) {
        let file = files.swap_remove(history.random.below(files.len() as u64) as usize);
        prove_versions_of(history, file)?;
    }
    prove_passing(history)
}

/// One change more than there are to be versions leaves as many as there are to be.
fn prove_versions_of(history: &mut History, file: u64) -> Result<(), Stop> {
    let held = history.lists.held(&history.model, file, 0);
    let count: usize = match held.as_ref().map(|(value, _)| value.split(',').next().unwrap_or_default()) {
        Some("no") | None => 0,
        Some(number) => number.parse().unwrap_or(0),
    };
    // Nothing is said, or they are kept by their age alone.
    if held.is_none() || count == 0 && held.as_ref().is_some_and(|(value, _)| value != "no") {
        return Ok(());
    }
    let Some((directory, name)) = places(&history.model).remove(&file) else { return Ok(()) };
    let room = history.mounted().files.statfs();
    if room.blocks_free < room.blocks / 8 {
        return Ok(());
    }
    let before = versions_of(history, directory, &name)?;
    for time in 0..count + 2 {
        let flags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };
        let opened = history.mounted().files.open(&caller(&history.machine), file, flags);
        let handle = history.must("open", opened)?;
        history.model.open(file);
        history.machine.pass(1_000_000_000);
        contents::write(history, file, 0, &pattern(file + time as u64, 3000))?;
        history.release(Slot { inode: file, handle })?;
    }
    history.sync_all()?;
    settle_background(history)?;
    let kept = versions_of(history, directory, &name)?;
    // Where none are to be, others may be there of a file that had this name before.
    if kept == count || count == 0 && kept <= before {
        history.summary.lists_proven += 1;
        return Ok(());
    }
    let path = history.model.path_of(file);
    Err(Stop::Failure(format!("{path} has {kept} versions after {} changes, and {held:?} is said", count + 2)))
}

fn versions_of(history: &mut History, directory: u64, name: &[u8]) -> Result<usize, Stop> {
    let user = caller(&history.machine);
    let files = history.mounted().files.clone();
    let found = files.lookup(&user, directory, b".versions");
    let found = found.and_then(|shelf| files.lookup(&user, shelf.inode, name));
    match found {
        Err(Error::NotFound) => Ok(0),
        found => {
            let drawer = history.must("lookup of versions", found)?.inode;
            let names = observe::list(&files, &user, drawer);
            let names = names.map_err(|trouble| history.trouble(trouble))?;
            let is_file = |inode: &&u64| {
                files.getattr(&user, **inode).is_ok_and(|found| found.mode & libc::S_IFMT == libc::S_IFREG)
            };
            Ok(names.values().filter(is_file).count())
        }
    }
}

/// A new file of some directory cannot be written while the plugin fails exactly if it is to pass it.
fn prove_passing(history: &mut History) -> Result<(), Stop> {
    let directories: Vec<u64> = history
        .model
        .nodes
        .iter()
        .filter(|(_, node)| matches!(node.kind, Kind::Directory(_)))
        .map(|(at, _)| *at)
        .collect();
    let directory = *history.random.pick(&directories);
    let name = history.random.pick(&["a", "b", "c", "other"]).as_bytes();
    if history.model.lookup(directory, name).is_ok() || history.model.nodes[&directory].nlink == 0 {
        return Ok(());
    }
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), directory, name, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let file = attributes.inode;
    names::made(history, directory, name, file, Node::new(Kind::File(Default::default()), 0o644))?;
    history.model.open(file);
    history.sync_all()?;
    let passes = history.lists.held(&history.model, file, 1).is_some_and(|(value, _)| value != "none");
    let data = pattern(file, 5000);
    history.machine.played.set(Some(PluginTrouble::Traps));
    let user = caller(&history.machine);
    let written = history.mounted().files.write(&user, file, 0, &data, false);
    let synced = written.as_ref().map(drop).map_err(ToString::to_string);
    let synced =
        synced.and_then(|()| history.mounted().files.fsync(&user, file, false).map_err(|error| error.to_string()));
    history.machine.played.set(None);
    if synced.is_ok() == passes {
        let path = history.model.path_of(file);
        let text = format!("{path}, which passes a plugin: {passes}, was written while that fails: {synced:?}");
        return Err(Stop::Failure(text));
    }
    if let Ok(length) = written {
        contents::put_written(history, file, &data[..length]);
    }
    history.fsync(file)?;
    history.verify_file(file)?;
    history.release(Slot { inode: file, handle })?;
    history.summary.lists_proven += 1;
    names::remove_name(history, directory, name, false)?;
    history.sync_all()
}

/// What the class is to say.
fn settings(pick: usize) -> Vec<(String, String)> {
    LISTS.iter().zip(SETTINGS[pick]).map(|(list, value)| ((*list).to_owned(), value.to_owned())).collect()
}

/// What rules decide of a list for a file of this name in any directory below theirs: as many versions as one keeps, and plugins rather than
/// none. Other rules than those here say nothing of lists.
fn decided(text: &[u8], list: usize, name: &[u8]) -> Option<&'static str> {
    let (_, decisions) = RULES.iter().find(|(rules, _)| rules.as_bytes() == text)?;
    let mut matching = decisions[list].iter().filter(|(of, _)| of.is_empty() || of.as_bytes() == name);
    matching.next().map(|(_, value)| *value)
}
