//! Counts: links, sizes of directories, allocated bytes, the list of orphans, references of blobs.

use std::collections::BTreeMap;

use stere_file::named_in::has_several_names;
use stere_format::{BlobFlags, BlobValue, FileKind, InodeValue, Key, NamedInValue};
use stere_store::{Error, Io, Store};

use super::survey::{Seen, Survey};
use super::{ROOT, Step};

/// On the list of orphans: freed at the next mount; its extents behind the size are.
const REMOVED: u8 = 1;
const TRUNCATING: u8 = 2;
/// Its names go one after the other, then it is freed itself.
const EMPTYING: u8 = 3;

/// Makes every inode's counts what its names and extents say.
pub(super) fn inodes(survey: &Survey) -> Step {
    let mut step = Step::default();
    let mut named: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    for name in &survey.names {
        let (count, directory) = named.entry(name.inode).or_default();
        (*count, *directory) = (*count + 1, name.directory);
    }
    for (inode, seen) in &survey.inodes {
        let (names, directory) = named.get(inode).copied().unwrap_or_default();
        let Some(value) = &seen.value else { continue };
        let right = right_value(*inode, seen, value, names, directory);
        if right != *value {
            step.say(*inode, false, difference(value, &right));
            step.put(Key::inode(*inode), right.encode());
        }
        list(survey, *inode, seen, &right, names, &mut step);
    }
    for inode in survey.orphans.keys().filter(|inode| survey.inodes.get(inode).is_none_or(|seen| seen.value.is_none()))
    {
        step.delete(Key::orphan(*inode));
        step.say(*inode, false, "it does not exist and is taken off the list of orphans".into());
    }
    if survey.preallocated_bytes != survey.preallocated_counted {
        let bytes = survey.preallocated_bytes;
        match bytes {
            0 => step.delete(Key::preallocated()),
            _ => step.put(Key::preallocated(), bytes.to_le_bytes().to_vec()),
        }
        let text = format!("{bytes} bytes are set aside, and {} were counted", survey.preallocated_counted);
        step.mended.push(super::Mended { inode: None, data_lost: false, text });
    }
    step
}

fn right_value(inode: u64, seen: &Seen, value: &InodeValue, names: u32, directory: u64) -> InodeValue {
    let mut right = value.clone();
    if seen.is_directory() {
        right.size = seen.weight;
        right.next_dirent_sequence = right.next_dirent_sequence.max(seen.last_sequence + u64::from(seen.entries > 0));
        if names > 0 || inode == ROOT {
            right.nlink = 2 + seen.directories;
        }
        if names > 0 {
            right.parent = directory;
        }
    } else {
        right.blocks_bytes = seen.allocated;
        right.charged_bytes = seen.charged_bytes;
        right.nlink = names;
    }
    right
}

fn difference(value: &InodeValue, right: &InodeValue) -> String {
    let mut texts = Vec::new();
    let mut tell = |what: &str, was: u64, is: u64| {
        if was != is {
            texts.push(format!("{what} {was} is {is}"));
        }
    };
    tell("count of links", value.nlink.into(), right.nlink.into());
    tell("size", value.size, right.size);
    tell("allocated bytes", value.blocks_bytes, right.blocks_bytes);
    tell("stored bytes", value.charged_bytes, right.charged_bytes);
    tell("parent", value.parent, right.parent);
    tell("next sequence", value.next_dirent_sequence, right.next_dirent_sequence);
    texts.join(", ")
}

/// Notes of what has several names in which directories they lie, and makes each inode's parent one of them.
pub(super) fn names_by_directory(survey: &Survey) -> Step {
    let mut step = Step::default();
    if !survey.names_are_counted {
        // The next mount goes on finding it out.
        return step;
    }
    if survey.is_counting_bad {
        step.put(Key::named_in_known(), NamedInValue::ALL.encode());
        let text = "in which directories files with several names have them is noted anew".to_owned();
        step.mended.push(super::Mended { inode: None, data_lost: false, text });
    }
    let mut right: BTreeMap<(u64, u64), u32> = BTreeMap::new();
    for name in survey.names.iter().filter(|name| name.kind != FileKind::Directory) {
        *right.entry((name.inode, name.directory)).or_default() += 1;
    }
    let has_several = |inode: &u64| {
        let value = survey.inodes.get(inode).and_then(|seen| seen.value.as_ref());
        value.is_some_and(has_several_names)
    };
    for (inode, seen) in survey.inodes.iter().filter(|(_, seen)| !seen.is_directory()) {
        let Some(value) = seen.value.as_ref().filter(|value| value.nlink > 0) else { continue };
        let Some(((_, first), _)) = right.range((*inode, 0)..=(*inode, u64::MAX)).next() else { continue };
        if !right.contains_key(&(*inode, value.parent)) {
            step.put(Key::inode(*inode), InodeValue { parent: *first, ..value.clone() }.encode());
            step.say(*inode, false, format!("it lies in directory {first} and not in {}", value.parent));
        }
    }
    right.retain(|(inode, _), _| has_several(inode));
    for ((inode, directory), count) in &right {
        if survey.named_in.get(&(*inode, *directory)) != Some(count) {
            step.put(Key::named_in(*inode, *directory), count.to_le_bytes().to_vec());
            step.say(*inode, false, format!("{count} of its names are noted to lie in directory {directory}"));
        }
    }
    for (inode, directory) in survey.named_in.keys().filter(|place| !right.contains_key(place)) {
        step.delete(Key::named_in(*inode, *directory));
        step.say(*inode, false, format!("no name of it is noted to lie in directory {directory} any more"));
    }
    step
}

/// Puts an inode on the list of orphans or takes it off.
fn list(survey: &Survey, inode: u64, seen: &Seen, right: &InodeValue, names: u32, step: &mut Step) {
    let listed = survey.orphans.get(&inode).map(Vec::as_slice);
    let is_nameless = names == 0 && inode != ROOT && right.nlink == 0;
    let is_too_long = !seen.is_directory() && seen.data_end > right.size;
    let wanted = match (is_nameless, is_too_long) {
        (true, _) if seen.is_directory() && seen.entries > 0 => Some(EMPTYING),
        (true, _) if listed == Some(&[EMPTYING]) => Some(EMPTYING),
        (true, _) => Some(REMOVED),
        (false, true) => Some(TRUNCATING),
        (false, false) => None,
    };
    match (wanted, listed) {
        (Some(wanted), listed) if listed != Some(&[wanted]) => {
            step.put(Key::orphan(inode), vec![wanted]);
            step.say(inode, false, "it is on the list of orphans now".into());
        }
        (None, Some([REMOVED | EMPTYING])) => {
            step.delete(Key::orphan(inode));
            step.say(inode, false, "it has a name and is taken off the list of orphans".into());
        }
        _ => {}
    }
}

/// Makes references and live blocks of blobs what the extents say; blobs that nothing names go.
pub(super) fn blobs(store: &Store, survey: &Survey) -> Result<Step, Error> {
    let mut step = Step::default();
    for (id, blob) in &survey.blobs {
        let key = Key::blob(*id);
        let say = |step: &mut Step, text: String| {
            step.mended.push(super::Mended { inode: None, data_lost: false, text });
        };
        if blob.named_references == 0 {
            step.delete(key);
            say(&mut step, format!("blob {id}, which no file named, is freed"));
            continue;
        }
        let is_shared = blob.is_shared || blob.is_named_twice;
        let is_live_wrong = !is_shared && blob.live != blob.named;
        if blob.references == blob.named_references && is_shared == blob.is_shared && !is_live_wrong {
            continue;
        }
        let Some(bytes) = store.view(Io::BLOCKING, |view| view.get(&key))? else { continue };
        let Ok(mut value) = BlobValue::decode(&bytes) else { continue };
        value.references = blob.named_references;
        if is_shared {
            value.flags = BlobFlags(value.flags.0 | BlobFlags::SHARED.0);
            value.live = value.present;
        } else {
            value.live = blob.named;
        }
        step.put(key, value.encode());
        say(&mut step, format!("blob {id} has {} references and {} live blocks", value.references, value.live.count()));
    }
    Ok(step)
}
