//! When changes are durable, as policy says it, in histories: files and directories are told `sync=`, and a crash shows whether what a
//! call returned for is there (P-301), and whether what was synced, relaxed, comes before what was durable later (P-302).
//!
//! The file system makes a change durable when who answers the call asks it to; here that is done behind each call, as the front end
//! does it. What may be lost is judged as in any other history. Read next: the crate features' `durability.rs`, `remains.rs`.

use stere_naming::Io;
use stere_naming::Sync;

use crate::area::{Area, further, some_path};
use crate::execute::names;
use crate::history::{History, Stop};
use crate::model::ROOT;
use crate::operation::{Operation, Path, Target};
use crate::pool::caller;
use crate::random::Random;

const ATTRIBUTE: &[u8] = b"user.stere.sync";
const VALUES: [&[u8]; 3] = [b"always", b"relaxed", b"asked"];

/// Puts into a history who says when changes are durable.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(6);
    for _ in 0..random.between(2, 5) {
        let path = random.chance(3, 4).then(|| some_path(random));
        operations.insert(at, Operation::AskSync { path, pick: random.below(VALUES.len() as u64) as u8 });
        at = further(at + 1, 12, operations, random);
    }
    strew_unused(operations, random);
}

/// Puts in files that go down, who says how long devices keep them, and days that go by.
fn strew_unused(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(9);
    let put = |operations: &mut Vec<Operation>, at: &mut usize, operation: Operation| {
        operations.insert(*at, operation);
        *at = (*at + 1).min(operations.len());
    };
    put(operations, &mut at, Operation::AddVolume { is_slow: false });
    for _ in 0..random.between(1, 3) {
        for _ in 0..random.between(1, 4) {
            let path = Path { directory: random.below(3) as u8, name: random.below(3) as u8 };
            let (length, seed) = (random.between(30_000, 400_000) as u32, random.next_u64());
            put(operations, &mut at, Operation::Create { path, slot: 1 });
            put(operations, &mut at, Operation::Write { target: Target::Path(path), offset: 0, length, seed });
            put(operations, &mut at, Operation::Archive { path, volumes: u8::MAX });
            if random.chance(3, 4) {
                put(operations, &mut at, Operation::AskRelease { path, pick: random.below(4) as u8 });
            }
        }
        put(operations, &mut at, Operation::SettleVolumes);
        if random.chance(1, 2) {
            put(operations, &mut at, Operation::PassDays { days: 1 });
        }
        put(operations, &mut at, Operation::KeepUnused);
        at = further(at, 10, operations, random);
    }
}

/// A file, a directory or the root is told when its changes are durable.
pub(crate) fn ask_sync(history: &mut History, path: Option<Path>, pick: u8) -> Result<(), Stop> {
    let inode = match path {
        None => Some(ROOT),
        Some(path) => names::plain_inode(history, path)?,
    };
    let Some(inode) = inode.filter(|_| history.plan.pool.areas.has(Area::Syncs)) else { return Ok(()) };
    names::put_policy(history, inode, ATTRIBUTE, VALUES[usize::from(pick) % VALUES.len()])
}

/// What holds for an inode; what a history has no part in is asked for.
pub(crate) fn sync_of(history: &mut History, inode: u64) -> Result<Sync, Stop> {
    if !history.plan.pool.areas.has(Area::Syncs) {
        return Ok(Sync::Asked);
    }
    let found = history.mounted().files.durability.of(Io::BLOCKING, inode);
    history.must("when changes are durable", found)
}

/// Behind a change of these, as the front end does before it answers.
pub(crate) fn answer(history: &mut History, inodes: &[u64]) -> Result<(), Stop> {
    let mut always = Vec::new();
    for inode in inodes {
        if sync_of(history, *inode)? == Sync::Always {
            always.push(*inode);
        }
    }
    if always.is_empty() || history.machine.is_off() {
        return Ok(());
    }
    let made = history.mounted().files.durability.make_durable(&caller(&history.machine), inodes);
    history.must("making a change durable", made)?;
    always.iter().for_each(|inode| history.note_durable(*inode));
    history.note_commit();
    history.summary.syncs_proven += 1;
    Ok(())
}

/// The same of a change of names in a directory.
pub(crate) fn answer_names(history: &mut History, directory: u8) -> Result<(), Stop> {
    if !history.plan.pool.areas.has(Area::Syncs) {
        return Ok(());
    }
    let inode = crate::execute::directory_inode(history, directory)?;
    answer(history, inode.as_slice())
}

/// A file's bytes are durable before anything that is made durable from now on.
pub(crate) fn note_ordered(history: &mut History, inode: u64) {
    let content = history.model.nodes.get(&inode).and_then(|node| node.content()).cloned();
    if let Some(content) = content.filter(|_| !history.remains.keep_all()) {
        history.remains.note_ordered(inode, content);
    }
}
