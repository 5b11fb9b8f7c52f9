//! Sizes of records in histories: files and directories are told one, and what is written then is cut by it (P-118).
//!
//! Contents, names and crashes are judged as in any other history. At checks a file is written anew, and no piece of it may reach over a
//! border of the records that hold for it, nor be stored shorter than they ask for. Read next: `docs/design/policy.md` on records.

use std::collections::BTreeMap;

use stere_format::{ExtentFlags, ExtentValue, Key};

use crate::area::{Area, further, some_path};
use crate::content::pattern;
use crate::history::{History, Plan, Stop};
use crate::model::{Kind, Model, ROOT};
use crate::operation::{Operation, Path};
use crate::pool::caller;
use crate::random::Random;
use crate::{
    execute::{contents, names},
    policy_lists,
};

const ATTRIBUTE: &[u8] = b"user.stere.record";
/// What is told, and how long records are then.
const WISHES: [(&[u8], u64); 6] = [
    (b"4K", 4 << 10),
    (b"8K", 8 << 10),
    (b"16K", 16 << 10),
    (b"64K", 64 << 10),
    (b"128K", 128 << 10),
    (b"1M", 128 << 10),
];
/// The place of what holds where nobody says anything.
const USUAL: usize = 4;
const BYTES: usize = 300_000;

/// Puts sizes of records into a history, and where they are looked at.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(10);
    for _ in 0..random.between(2, 4) {
        let path = random.chance(2, 3).then(|| some_path(random));
        operations.insert(at, Operation::AskRecords { path, pick: random.below(WISHES.len() as u64) as u8 });
        at = further(at + 1, 10, operations, random);
        if random.chance(1, 2) {
            operations.insert(at, Operation::Check);
        }
        at = further(at + 1, 8, operations, random);
    }
}

impl Plan {
    pub(crate) fn has_records(&self) -> bool {
        self.pool.areas.has(Area::Records)
    }
}

/// A file, a directory or the root is to be cut into records of another size.
pub(crate) fn ask_records(history: &mut History, path: Option<Path>, pick: u8) -> Result<(), Stop> {
    let inode = match path {
        None => Some(ROOT),
        Some(path) => names::plain_inode(history, path)?,
    };
    let Some(inode) = inode.filter(|_| history.plan.has_records()) else { return Ok(()) };
    names::put_policy(history, inode, ATTRIBUTE, WISHES[usize::from(pick) % WISHES.len()].0)
}

/// P-118: what is written is cut as is asked for now.
pub(crate) fn prove_records(history: &mut History) -> Result<(), Stop> {
    let is_bounded = history.plan.may_fill || history.quotas.are_on();
    if !history.plan.has_records() || is_bounded || !policy_lists::is_undisturbed(history) {
        return Ok(());
    }
    let is_free = |inode: &&u64| {
        history.model.nodes[*inode].content().is_some() && history.model.check_changeable(**inode).is_ok()
    };
    let files: Vec<u64> = history.model.nodes.keys().filter(is_free).copied().collect();
    if files.is_empty() {
        return Ok(());
    }
    history.machine.disarm();
    check_several_names(history)?;
    let file = *history.random.pick(&files);
    contents::truncate(history, file, 0)?;
    let real = history.mounted().files.getxattr(&caller(&history.machine), file, b"user.stere.effective.record");
    let asked = history.must("the size of records", real)?;
    let own = history.model.nodes[&file].attributes.get(ATTRIBUTE);
    if own.is_some_and(|own| *own != asked) {
        return Err(Stop::Failure(format!("records of {} are not as it says itself", history.model.path_of(file))));
    }
    let Some((_, size)) = WISHES.iter().find(|(text, _)| *text == asked) else {
        return Err(Stop::Failure(format!("records of {:?} were never asked for", String::from_utf8_lossy(&asked))));
    };
    let mut at = 0;
    while at < BYTES {
        let length = (history.random.between(1, 100_000) as usize).min(BYTES - at);
        contents::write(history, file, at as u64, &pattern(file ^ at as u64, length))?;
        at += length;
    }
    history.sync_all()?;
    history.verify_file(file)?;
    let over = pieces_of(history, file)?.into_iter().find(|(start, end)| start / size != (end - 1) / size);
    history.summary.records_proven += 1;
    match over {
        None => Ok(()),
        Some((start, end)) => {
            let path = history.model.path_of(file);
            Err(Stop::Failure(format!("{path} is cut into records of {size}, and one reaches from {start} to {end}")))
        }
    }
}

/// What the pool's rules say of every file: they count where no directory says anything.
fn ruled(history: &mut History) -> Result<usize, Stop> {
    let versions = history.mounted().files.rules().rules_history(stere_naming::Io::BLOCKING);
    let text = history.must("the pool's rules", versions)?.pop().map_or(String::new(), |last| last.rules.text);
    let said = text.split_once("record=").map(|(_, rest)| rest.split([',', ';']).next().unwrap_or(rest).trim());
    let place = |said: &str| WISHES.iter().position(|(wish, _)| *wish == said.as_bytes());
    Ok(said.and_then(place).unwrap_or(USUAL))
}

/// P-147: files with several names have the smallest records that one of their names gives.
fn check_several_names(history: &mut History) -> Result<(), Stop> {
    // What rules decided is noted in files, and what is said since holds when these were looked at.
    let pending = history.mounted().files.reconciler().is_reconciling(stere_naming::Io::BLOCKING);
    if history.must("whether files are brought in line", pending)? {
        policy_lists::settle_background(history)?;
    }
    let ruled = ruled(history)?;
    let mut places: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (directory, node) in &history.model.nodes {
        if let Kind::Directory(names) = &node.kind {
            names.values().for_each(|inode| places.entry(*inode).or_default().push(*directory));
        }
    }
    for (file, directories) in places {
        let node = &history.model.nodes[&file];
        if node.content().is_none() || node.nlink < 2 {
            continue;
        }
        let place = |text: &[u8]| WISHES.iter().position(|(wish, _)| *wish == text).unwrap_or(USUAL);
        let own = node.attributes.get(ATTRIBUTE).map(|text| place(text));
        let given =
            directories.iter().map(|directory| said_from(&history.model, *directory).map_or(ruled, |text| place(text)));
        let right = own.or(given.min()).unwrap_or(USUAL);
        let real = history.mounted().files.getxattr(&caller(&history.machine), file, b"user.stere.effective.record");
        let real = history.must("the size of records", real)?;
        if real != WISHES[right].0 {
            let (path, real) = (history.model.path_of(file), String::from_utf8_lossy(&real).into_owned());
            let right = String::from_utf8_lossy(WISHES[right].0).into_owned();
            let text =
                format!("records of {path}, whose names lie in {directories:?}, have {real}, and {right} is right");
            return Err(Stop::Failure(text));
        }
        history.summary.several_names_proven += 1;
    }
    // P-148: they lie where their names are.
    let found = stere_naming::check(&history.mounted().store);
    let found = history.must("a check of names", found)?;
    let lies = |text: &str| text.contains("has no name there") || text.contains("is noted to have names");
    match found.iter().find(|finding| lies(&finding.text)) {
        Some(finding) => Err(Stop::Failure(format!("check: {}", finding.text))),
        None => Ok(()),
    }
}

/// What is said of records from a directory upward.
fn said_from(model: &Model, directory: u64) -> Option<&Vec<u8>> {
    let mut at = directory;
    loop {
        let node = &model.nodes[&at];
        match node.attributes.get(ATTRIBUTE) {
            None if at != ROOT => at = node.parent,
            said => return said,
        }
    }
}

/// Where the pieces of a file begin and end that lie in one blob each.
fn pieces_of(history: &mut History, file: u64) -> Result<Vec<(u64, u64)>, Stop> {
    let mut pieces = Vec::new();
    let read = history.mounted().store.for_each_key(Key::extent(file, 0), Key::extent(file, u64::MAX), |key, bytes| {
        if let Ok(extent) = ExtentValue::decode(bytes)
            && extent.flags == ExtentFlags::Plain
        {
            pieces.push((key.position - u64::from(extent.length), key.position));
        }
    });
    history.must("reading extents", read.map_err(stere_naming::Error::from))?;
    Ok(pieces)
}
