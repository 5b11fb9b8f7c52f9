//! Placement in histories: files, directories and rules say on which devices data is to lie, or rather to lie, while devices are labelled
//! otherwise, emptied, lost and brought back.
//!
//! Which devices words mean is worked out here again from the table of devices, and what holds for a file from the attributes that the model
//! has. After every step no chunk of a segment with a requirement lies on a device that is not meant, but for what lay there when
//! words last meant others (P-142). A write that is refused for want of room fails the history, so nothing is refused for a wish (P-143).
//! At checks, once the background is done, what can lie as it is asked to does. Every requirement keeps devices enough for its data: steps
//! that would leave too few are left out. Files that share content, or had several names, are not looked at. Read next:
//! `docs/design/placement.md`, `device_lifecycle.rs`.

use std::collections::{BTreeMap, BTreeSet};

use stere_format::{DEVICE_CLASS_WORDS, DeviceEntry, DeviceState, ExtentFlags, ExtentValue, Key, SegmentKind};
use stere_naming::{Error, OpenFlags};
use stere_store::{Io, Label};

use crate::area::{Area, further};
use crate::content::pattern;
use crate::device_lifecycle::{self, SLOTS_PLENTY};
use crate::execute::{contents, names};
use crate::history::{Budget, History, Plan, Slot, Stop};
use crate::model::{Kind, Model, Node, ROOT};
use crate::operation::{Operation, Path};
use crate::policy_lists::{self, places};
use crate::pool::{PoolConfig, caller};
use crate::random::Random;
use crate::run::MIB;

/// Devices that such a pool has at least.
const DEVICES_MIN: usize = 4;
const DEVICE_BYTES_MIN: u64 = 200 * MIB;
/// Words of places, in the order in which they are told. The last ones mean one device, and none.
const WORDS: [&str; 7] =
    ["fast", "safe", "fast,safe", "hdd", "simulated-0,simulated-1,simulated-3", "simulated-2", "nowhere"];
/// Tags that devices get: first those of a new pool, by turns.
const TAGS: [&[&str]; 5] = [&["fast"], &["fast", "safe"], &["safe", "fast"], &["safe"], &[]];
const CLASSES: [u8; 4] = [2, 2, 2, 1];
/// The two keys.
const KEYS: [&str; 2] = ["only", "on"];
/// What is decided of a key for which names; the empty name is any.
type Decisions = &'static [(&'static str, &'static str)];
/// Rules of directories, and what they decide of each key.
const RULES: [(&str, [Decisions; 2]); 3] = [
    ("a: only=fast; *: on=safe", [&[("a", "fast")], &[("", "safe")]]),
    ("b: only=safe, on=simulated-2; c: on=nowhere", [&[("b", "safe")], &[("b", "simulated-2"), ("c", "nowhere")]]),
    ("a: on=fast; *: only=fast,safe", [&[("", "fast,safe")], &[("a", "fast")]]),
];
const RULES_ATTRIBUTE: &[u8] = b"user.stere.rules";
/// The file that is written to see where it lies.
const PLACED: &[u8] = b"placed";
const PLACED_BYTES: usize = 150_000;

/// What a history knows of places.
#[derive(Debug, Default)]
pub(crate) struct PlacesKnown {
    /// Words that something requires, or required.
    required: BTreeSet<&'static str>,
    /// What each place meant when it was last looked at.
    meant: BTreeMap<u8, BTreeSet<u16>>,
    /// Chunks that lay on devices which were not meant any more when words came to mean others: segment and device.
    astray: BTreeSet<(u64, u16)>,
    /// Tags of devices, which keep their names: the last ones, and others that a crash may leave.
    tags: BTreeMap<String, Vec<Vec<String>>>,
    /// Files that share content with others.
    sharing: BTreeSet<u64>,
}

impl PlacesKnown {
    /// Every device has the tags that it got, or that a crash may have left it.
    fn check_labels(&mut self, members: Vec<(usize, DeviceEntry)>) -> Result<(), Stop> {
        for (_, entry) in members {
            let Some(possible) = self.tags.get_mut(&entry.name) else { continue };
            if !possible.contains(&entry.tags) {
                let text =
                    format!("device {} has the tags {:?}, one of {possible:?} is right", entry.index, entry.tags);
                return Err(Stop::Failure(text));
            }
            *possible = vec![entry.tags];
        }
        Ok(())
    }

    /// Two files share what one of them had.
    pub(crate) fn note_sharing(&mut self, one: u64, other: u64) {
        self.sharing.extend([one, other]);
    }
}

/// What somebody says of placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A key, by its number, and its words; `any` behind the last ones.
    Key(u8, u8),
    Rules(u8),
}

/// Gives a pool devices enough for places, none so small that room which is kept for each kind of data takes most of it.
pub(crate) fn furnish(pool: &mut PoolConfig, seed: u64) {
    let mut random = Random::new(seed ^ 0x91ace);
    pool.chunk_bytes = 1 << 20;
    pool.device_bytes.iter_mut().for_each(|bytes| *bytes = (*bytes).max(DEVICE_BYTES_MIN));
    while pool.device_bytes.len() < DEVICES_MIN {
        pool.device_bytes.push(*random.pick(&[200, 300, 700]) * MIB + random.below(64) * 4096);
        pool.block_bytes.push(*random.pick(&[512, 4096]));
    }
}

/// Puts what is said of places into a history, labels that change, and where it is proven.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(8);
    for _ in 0..random.between(2, 4) {
        for _ in 0..random.between(1, 3) {
            let directory = if random.chance(1, 2) { 0 } else { random.below(4) as u8 };
            let path = random.chance(3, 4).then_some(Path { directory, name: random.below(5) as u8 });
            let pick = random.below(WORDS.len() as u64 + 1) as u8;
            let place = match random.chance(1, 5) {
                true => Place::Rules(pick),
                false => Place::Key(random.below(KEYS.len() as u64) as u8, pick),
            };
            operations.insert(at, Operation::AskPlace { path, place });
            at = further(at + 1, 4, operations, random);
        }
        if random.chance(2, 3) {
            let (device, tags) = (random.below(DEVICES_MIN as u64) as u8, random.below(TAGS.len() as u64) as u8);
            operations.insert(at, Operation::Label { device, tags });
            at += 1;
        }
        match random.below(6) {
            0 => operations.insert(at, Operation::EmptyDevice { device: random.below(4) as u8, leaves: false }),
            1 => operations.insert(at, Operation::UseAgain { device: random.below(4) as u8 }),
            2 => operations.insert(at, Operation::MendSome { steps: random.between(1, 4) as u8 }),
            _ => operations.insert(at, Operation::Step { count: random.between(1, 4) as u8, idle: true }),
        }
        at = further(at + 1, 8, operations, random);
        if random.chance(2, 3) {
            operations.insert(at, Operation::Check);
        }
        at = further(at + 1, 8, operations, random);
    }
}

fn is_known_by(entry: &DeviceEntry, word: &str) -> bool {
    let class = DEVICE_CLASS_WORDS.get(usize::from(entry.class)).filter(|_| entry.class != 0);
    entry.name == word || class == Some(&word) || entry.tags.iter().any(|tag| tag == word)
}

fn is_meant(entry: &DeviceEntry, words: &str) -> bool {
    words.split(',').any(|word| is_known_by(entry, word))
}

impl Plan {
    pub(crate) fn has_places(&self) -> bool {
        self.pool.areas.has(Area::Places) && !self.may_fill && self.budget != Budget::Beyond
    }

    /// Devices that a requirement has at least: where a loss must be borne, enough for two copies.
    pub(crate) fn least(&self) -> usize {
        if self.budget == Budget::Tolerated { 2 } else { 1 }
    }
}

/// The labels of a new pool's devices.
pub(crate) fn begin_places(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_places() {
        return Ok(());
    }
    for (number, entry) in history.pool.members() {
        let tags: Vec<String> = TAGS[number % DEVICES_MIN].iter().map(|tag| (*tag).to_owned()).collect();
        let class = Some(CLASSES[number % DEVICES_MIN]);
        let label = Label { tags: Some(tags.clone()), class, ..Label::default() };
        let labelled = history.mounted().store.devices.label_device(entry.index, label);
        history.must("labelling a device", labelled.map_err(Error::from))?;
        history.places.tags.insert(entry.name, vec![tags]);
    }
    Ok(())
}

/// Members that take new chunks and are meant, but for this one and one that may be about to go.
fn open_of(history: &History, words: &str, without: Option<usize>, change: Option<(u16, &[String])>) -> usize {
    let store = &history.mounted().store;
    let is_open = |number: usize, entry: &DeviceEntry| {
        let usage = store.devices.device_usage(entry.index).unwrap_or_default();
        let is_there = usage.is_attached && !usage.is_suspended && !history.machine.absent().contains(&number);
        let stays = Some(number) != without && Some(number) != history.pool.exposed;
        is_there && stays && entry.device_state() == DeviceState::Active
    };
    let relabelled = history.pool.members().into_iter().map(|(number, mut entry)| {
        if let Some((_, tags)) = change.filter(|(index, _)| *index == entry.index) {
            entry.tags = tags.to_vec();
        }
        (number, entry)
    });
    relabelled.filter(|(number, entry)| is_open(*number, entry) && is_meant(entry, words)).count()
}

/// Whether what is required has enough devices without this one.
pub(crate) fn places_can_spare(history: &History, device: usize) -> bool {
    let required = &history.places.required;
    !history.plan.has_places()
        || required.iter().all(|words| open_of(history, words, Some(device), None) >= history.plan.least())
}

/// Whether something that must lie in one place has more chunks than this place has of these devices: it stays as it is until there are
/// more, as in a pool that has no others (P-142).
pub(crate) fn has_wide_segments(history: &History, devices: &[&DeviceEntry]) -> bool {
    let store = &history.mounted().store;
    store.segments().all().iter().any(|segment| {
        let words = store.places().place_words(segment.site.only).unwrap_or_default();
        let is_of = |entry: &&&DeviceEntry| words.iter().any(|word| is_known_by(entry, word));
        let is_there = segment.site.only != 0 && segment.live_bytes() > 0 && !segment.is_released();
        is_there && devices.iter().filter(is_of).count() < segment.scheme.width()
    })
}

fn may_require(history: &mut History, words: &'static str) -> bool {
    let may = open_of(history, words, None, None) >= history.plan.least();
    if may {
        history.places.required.insert(words);
    }
    may
}

/// A file, a directory or the root is to lie elsewhere.
pub(crate) fn ask_place(history: &mut History, path: Option<Path>, place: Place) -> Result<(), Stop> {
    if !history.plan.has_places() {
        return Ok(());
    }
    let inode = match path {
        None => Some(ROOT),
        Some(path) => names::plain_inode(history, path)?,
    };
    let Some(inode) = inode else { return Ok(()) };
    match place {
        Place::Key(key, pick) => {
            let words = WORDS.get(usize::from(pick)).copied().unwrap_or("any");
            if key == 0 && words != "any" && !may_require(history, words) {
                return Ok(());
            }
            names::put_policy(history, inode, attribute(usize::from(key)).as_bytes(), words.as_bytes())
        }
        Place::Rules(pick) => {
            let (text, [only, _]) = RULES[usize::from(pick) % RULES.len()];
            let may = only.iter().all(|(_, words)| may_require(history, words));
            if !may || !history.model.is_directory(inode) {
                return Ok(());
            }
            names::put_policy(history, inode, RULES_ATTRIBUTE, text.as_bytes())
        }
    }
}

/// A device gets other tags.
pub(crate) fn label(history: &mut History, device: usize, tags: u8) -> Result<(), Stop> {
    let Some((_, entry)) = history.pool.members().into_iter().find(|(number, _)| *number == device) else {
        return Ok(());
    };
    let tags: Vec<String> = TAGS[usize::from(tags) % TAGS.len()].iter().map(|tag| (*tag).to_owned()).collect();
    let change = Some((entry.index, tags.as_slice()));
    let required = &history.places.required;
    let may = required.iter().all(|words| open_of(history, words, None, change) >= history.plan.least());
    if !history.plan.has_places() || !may || history.pool.away().is_some() {
        return Ok(());
    }
    // Cut short, it leaves those that it has now.
    history.places.tags.entry(entry.name.clone()).or_insert_with(|| vec![entry.tags.clone()]).push(tags.clone());
    let label = Label { tags: Some(tags.clone()), ..Label::default() };
    let labelled = history.mounted().store.devices.label_device(entry.index, label);
    history.must("labelling a device", labelled.map_err(Error::from))?;
    history.places.tags.insert(entry.name, vec![tags]);
    history.places.check_labels(history.pool.members())
}

/// P-142: after each step, nothing lies on a device that its segment does not allow, but what lay there when words came to mean others.
pub(crate) fn watch_places(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_places() || history.pool.mounted.is_none() {
        return Ok(());
    }
    let store = history.mounted().store.clone();
    let entries = store.device_entries();
    let mut meant: BTreeMap<u8, BTreeSet<u16>> = BTreeMap::new();
    let mut astray = BTreeSet::new();
    for segment in store.segments().all() {
        let only = segment.site.only;
        if only == 0 || segment.kind != SegmentKind::Data || segment.is_released() {
            continue;
        }
        let devices = meant.entry(only).or_insert_with(|| {
            let words = store.places().place_words(only).unwrap_or_default();
            let is_of = |entry: &&DeviceEntry| words.iter().any(|word| is_known_by(entry, word));
            entries.iter().filter(is_of).map(|entry| entry.index).collect()
        });
        let places = segment.placed();
        let wrong = places.chunks.iter().filter(|place| !devices.contains(&place.device));
        astray.extend(wrong.map(|place| (segment.id, place.device)));
    }
    let is_as_before =
        meant.iter().all(|(number, devices)| history.places.meant.get(number).is_none_or(|before| before == devices));
    let new = astray.difference(&history.places.astray).next().copied();
    history.places.meant.extend(meant);
    // A crash may bring back what had moved.
    history.places.astray.extend(astray);
    match new.filter(|_| is_as_before) {
        Some((segment, device)) => {
            Err(Stop::Failure(format!("segment {segment} was put on device {device}, where it must not lie")))
        }
        None => Ok(()),
    }
}

/// What holds of a key for a file, from what everybody above it says.
fn placed(model: &Model, file: u64, key: usize) -> Option<String> {
    let (places, own) = (places(model), attribute(key));
    let name = places.get(&file)?.1.clone();
    let mut at = file;
    let said = loop {
        let attributes = &model.nodes.get(&at)?.attributes;
        let rules = attributes.get(RULES_ATTRIBUTE).filter(|_| at != file);
        if let Some(decided) = rules.and_then(|text| decided(text, key, &name)) {
            break decided.to_owned();
        }
        if let Some(value) = attributes.get(own.as_bytes()) {
            break String::from_utf8_lossy(value).into_owned();
        }
        if at == ROOT {
            return None;
        }
        at = places.get(&at)?.0;
    };
    (said != "any").then_some(said)
}

/// P-142, P-143: every file lies as it is asked to, once the background is done.
pub(crate) fn check_places(history: &mut History) -> Result<(), Stop> {
    if !history.plan.has_places() || !policy_lists::is_undisturbed(history) {
        return Ok(());
    }
    history.machine.disarm();
    history.places.check_labels(history.pool.members())?;
    history.sync_all()?;
    device_lifecycle::mend_all(history)?;
    watch_places(history)?;
    if !policy_lists::is_undisturbed(history) {
        return Ok(());
    }
    let is_plain = |inode: &u64, node: &Node| {
        let is_alone = !history.lists.named_twice.contains(inode) && !history.places.sharing.contains(inode);
        node.content().is_some() && node.nlink == 1 && is_alone
    };
    let files: Vec<u64> =
        history.model.nodes.iter().filter(|(inode, node)| is_plain(inode, node)).map(|(inode, _)| *inode).collect();
    for file in files {
        check_place_of(history, file, true)?;
    }
    history.summary.places_compared += 1;
    Ok(())
}

/// Whether a file lies where it must, and, where `follows`, where it can and is wished to.
fn check_place_of(history: &mut History, file: u64, follows: bool) -> Result<(), Stop> {
    let said = [placed(&history.model, file, 0), placed(&history.model, file, 1)];
    let path = history.model.path_of(file);
    for (key, said) in KEYS.iter().zip(&said) {
        let name = format!("user.stere.effective.{key}");
        let real = history.mounted().files.getxattr(&caller(&history.machine), file, name.as_bytes());
        let real = match real {
            Ok(value) => Some(String::from_utf8_lossy(&value).into_owned()),
            Err(Error::NoAttribute) => None,
            Err(error) => return Err(history.unexpected("where it lies", error.errno(), &error.to_string())),
        };
        if real != *said {
            return Err(Stop::Failure(format!("{path}: {key} is {real:?}, and {said:?} is said")));
        }
    }
    let [only, on] = said;
    let entries = history.mounted().store.device_entries();
    let allowed: BTreeSet<u16> = meant_by(&entries, only.as_deref());
    let near: BTreeSet<u16> = meant_by(&entries, on.as_deref()).intersection(&allowed).copied().collect();
    let has_room = |index: &&u16| {
        let usage = history.mounted().store.devices.device_usage(**index).unwrap_or_default();
        let is_open = usage.is_attached && !usage.is_suspended && usage.free >= SLOTS_PLENTY;
        is_open && entries.iter().any(|one| one.index == **index && one.device_state() == DeviceState::Active)
    };
    let roomy: BTreeSet<u16> = near.iter().filter(has_room).copied().collect();
    let open = allowed.iter().filter(has_room).count();
    for number in segments_of(history, file)? {
        let Some(segment) = history.mounted().store.segments().get(number) else { continue };
        let placed = segment.placed();
        let devices: BTreeSet<u16> = placed.chunks.iter().map(|place| place.device).collect();
        let text = |what: &str, wanted: &BTreeSet<u16>| {
            format!("{path}, only {only:?}, on {on:?}: segment {number} lies on {devices:?}, {what} {wanted:?}")
        };
        // A chunk that finds no device of its place any more stays.
        let may_stay = follows && open < devices.len();
        if !devices.is_subset(&allowed) && !may_stay {
            return Err(Stop::Failure(text("and must on", &allowed)));
        }
        let follows_not = match roomy.len() >= devices.len() {
            true => !devices.is_subset(&near),
            false => !roomy.is_subset(&devices),
        };
        if follows && on.is_some() && follows_not {
            return Err(Stop::Failure(text("and can on", &roomy)));
        }
        history.summary.places_met += u64::from(only.is_some() || on.is_some());
    }
    Ok(())
}

/// The segments that the content of a file lies in.
fn segments_of(history: &mut History, file: u64) -> Result<BTreeSet<u64>, Stop> {
    let store = history.mounted().store.clone();
    let mut blobs = BTreeSet::new();
    let read = store.for_each_key(Key::extent(file, 0), Key::extent(file, u64::MAX), |_, bytes| {
        if let Ok(extent) = ExtentValue::decode(bytes)
            && extent.flags == ExtentFlags::Plain
        {
            blobs.insert(extent.blob);
        }
    });
    history.must("reading extents", read.map_err(Error::from))?;
    let numbers: Result<BTreeSet<u64>, _> = blobs
        .into_iter()
        .map(|blob| store.view(Io::BLOCKING, |view| view.blob(blob)).map(|handle| handle.value.address.segment))
        .collect();
    history.must("reading blobs", numbers.map_err(Error::from))
}

/// What is written now lies at once where it must.
pub(crate) fn prove_places(history: &mut History) -> Result<(), Stop> {
    check_places(history)?;
    let is_bounded = history.quotas.are_on() || history.plan.pool.keeps_versions;
    if !history.plan.has_places() || is_bounded || !policy_lists::is_undisturbed(history) {
        return Ok(());
    }
    let is_directory = |node: &Node| matches!(node.kind, Kind::Directory(_)) && node.nlink > 0;
    let nodes = history.model.nodes.iter().filter(|(_, node)| is_directory(node));
    let directories: Vec<u64> = nodes.map(|(inode, _)| *inode).collect();
    let directory = *history.random.pick(&directories);
    if history.model.lookup(directory, PLACED).is_ok() {
        return Ok(());
    }
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), directory, PLACED, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, directory, PLACED, inode, Node::new(Kind::File(Default::default()), 0o644))?;
    history.model.open(inode);
    contents::write(history, inode, 0, &pattern(inode, PLACED_BYTES))?;
    history.sync_all()?;
    check_place_of(history, inode, false)?;
    history.release(Slot { inode, handle })?;
    names::remove_name(history, directory, PLACED, false)?;
    history.sync_all()
}

fn attribute(key: usize) -> String {
    format!("user.stere.{}", KEYS[key])
}

/// The devices that words mean; all if nothing is said.
fn meant_by(entries: &[DeviceEntry], words: Option<&str>) -> BTreeSet<u16> {
    let is_of = |entry: &&DeviceEntry| words.is_none_or(|words| is_meant(entry, words));
    entries.iter().filter(is_of).map(|entry| entry.index).collect()
}

/// What rules decide of a key for a file of this name in any directory below theirs.
fn decided(text: &[u8], key: usize, name: &[u8]) -> Option<&'static str> {
    let (_, decisions) = RULES.iter().find(|(rules, _)| rules.as_bytes() == text)?;
    let mut matching = decisions[key].iter().filter(|(of, _)| of.is_empty() || of.as_bytes() == name);
    matching.next().map(|(_, words)| *words)
}
