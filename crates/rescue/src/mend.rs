//! Mending an open pool that nobody uses: names, inodes, extents and counts that contradict each other are made to agree.
//!
//! Rounds: everything is surveyed (`survey.rs`), the first kind of fault that is found is mended, and then all is surveyed anew,
//! until nothing is found. So each mending step may count on what the steps before it have put right. Nothing is thrown away that
//! has a content: inodes without names get one in `lost+found`. What cannot be given back is told, with its inode.
//! Read next: `mend/names.rs`, `mend/counts.rs`.

mod accounts;
mod counts;
mod names;
mod survey;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use stere_file::find_index::IndexCheck;
use stere_format::{FindIndexValue, Key, Timestamp, key};
use stere_store::{Error, Io, Store};

use survey::Survey;

/// The root directory.
const ROOT: u64 = 1;
/// Enough for faults that hide each other; more is a fault of the mending.
const ROUNDS_MAX: u32 = 24;
/// Changes of one transaction.
const BATCH: usize = 256;

/// Something that was mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    pub inode: Option<u64>,
    /// Whether something is lost for good with it.
    pub data_lost: bool,
    pub text: String,
}

/// Changes to keys; none deletes.
pub(crate) type Changes = BTreeMap<Key, Option<Vec<u8>>>;

/// What one step of a round found to do.
#[derive(Default)]
pub(crate) struct Step {
    pub changes: Changes,
    pub mended: Vec<Mended>,
}

impl Step {
    pub fn put(&mut self, key: Key, value: Vec<u8>) {
        self.changes.insert(key, Some(value));
    }

    pub fn delete(&mut self, key: Key) {
        self.changes.insert(key, None);
    }

    pub fn say(&mut self, inode: u64, data_lost: bool, text: String) {
        self.mended.push(Mended { inode: Some(inode), data_lost, text });
    }
}

/// Brings back names that were put away, and makes everything agree that names, inodes, extents and blobs say of each other; `now` is the time of what is made anew. The
/// caller corrects the accounts of segments afterwards and closes the store.
pub fn mend(store: &Store, now: Timestamp) -> Result<Vec<Mended>, Error> {
    // What cannot be seen must not be taken for missing: without these names nothing is mended.
    for fold in store.offload().folds(Io::BLOCKING)? {
        store.offload().unfold(Io::BLOCKING, fold.number)?;
    }
    let mut mended = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let survey = Survey::new(store)?;
        let Some(step) = next_step(store, &survey, now)? else { return Ok(mended) };
        apply(store, step.changes)?;
        mended.extend(step.mended);
    }
    let text = format!("there is still something to mend after {ROUNDS_MAX} rounds; please report it");
    mended.push(Mended { inode: None, data_lost: false, text });
    Ok(mended)
}

/// The first step that has anything to do.
fn next_step(store: &Store, survey: &Survey, now: Timestamp) -> Result<Option<Step>, Error> {
    let steps: [&dyn Fn() -> Result<Step, Error>; 9] = [
        &|| Ok(survey.unreadable()),
        &|| names::inodes(survey, now),
        &|| names::names(store, survey, now),
        &|| names::buckets(store, survey),
        &|| Ok(counts::inodes(survey)),
        &|| Ok(counts::names_by_directory(survey)),
        &|| counts::blobs(store, survey),
        &|| accounts::accounts(store, survey),
        &|| find_index(store),
    ];
    for step in steps {
        let step = step()?;
        if !step.changes.is_empty() {
            return Ok(Some(step));
        }
    }
    Ok(None)
}

/// An index of searches that is not right is built anew by the next mount.
fn find_index(store: &Store) -> Result<Step, Error> {
    let mut check = IndexCheck::new(store)?;
    let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::NAMES + 1, 0, 0, 0));
    store.for_each_key(from, to, |at, bytes| check.visit(at, bytes))?;
    let mut step = Step::default();
    if !check.finish().is_empty() {
        step.put(Key::find_index(), FindIndexValue::Clearing.encode());
        let text = "the index of searches is built anew in the background".to_owned();
        step.mended.push(Mended { inode: None, data_lost: false, text });
    }
    Ok(step)
}

fn apply(store: &Store, changes: Changes) -> Result<(), Error> {
    let changes: Vec<(Key, Option<Vec<u8>>)> = changes.into_iter().collect();
    for batch in changes.chunks(BATCH) {
        store.update(Io::BLOCKING, |transaction| {
            for (key, value) in batch {
                match value {
                    Some(value) => transaction.put(*key, value),
                    None => transaction.delete(*key),
                }
            }
            Ok::<_, Error>(())
        })?;
    }
    store.commit(Io::BLOCKING)
}
