//! Names in histories that are put away: by command and by themselves, while everything else goes on, crashes come at any write, and
//! volumes are away for a while.
//!
//! The root goes to a volume, and says `names=`; a directory of its own lies below it, deeper than others. After names went, all steps of
//! histories meet them: what they look at comes back, and the model says what must be there (P-141). While volumes are away, a directory
//! lists what it has or fails, and is whole afterwards. What is used every day does not go, and what is not has gone when its time is
//! over: a command finds next to nothing left (P-152). Volumes do nothing wrong here but for that, for every call may need one. Read next:
//! `tertiary.rs`, `docs/design/folding.md`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stere_format::{Key, Scheme};
use stere_naming::{Error, OffloadOutcome, OpenFlags};

use crate::area::{Area, further};
use crate::content::pattern;
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Kind, Node, ROOT};
use crate::observe::{self, Trouble};
use crate::operation::{CrashManner, Operation};
use crate::pool::{PoolUnderTest, caller};
use crate::random::Random;
use crate::tertiary::{self, TIER};
use crate::volume::VolumeTrouble;
use crate::{
    execute::{contents, names},
    retention, watermark_eviction,
};

const NAMES: &[u8] = b"user.stere.names";
/// What the root says of names.
const AGE: &str = "2d";
const HOUR_NS: u64 = 3_600_000_000_000;
/// The directories below one another that are its own.
const OWN: [&[u8]; 3] = [b"cold", b"deep", b"deeper"];
const FILES: usize = 3;
const FILE_BYTES: usize = 9_000;
/// Steps in which the background must be through.
const STEPS_MAX: usize = 2_000;
/// Keys of names below one entry of the root that are not worth a bundle.
const KEYS_LEFT_MAX: u64 = 14;

/// What is done to names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdStep {
    /// The root goes to a volume and says how long names stay.
    Begin,
    /// All that is on its volumes is released.
    Down,
    /// All that can go goes.
    Command,
    /// Days pass, and the background works.
    Pass { days: u8 },
    /// Volumes are away for a while.
    Outage,
    /// What is used stays.
    ProveUsed,
    /// What is not used goes.
    ProveGone,
}

/// Puts names that go into a history, and leaves out what volumes do wrong.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    operations.retain(|operation| {
        !matches!(
            operation,
            Operation::Trouble { .. }
                | Operation::Harm { .. }
                | Operation::TakeVolumeAway { .. }
                | Operation::RemoveVolume { .. }
                | Operation::WriteMeanwhile { .. }
                | Operation::ReadWithoutRecall { .. }
        )
    });
    let mut at = operations.len().min(9);
    operations.insert(at, Operation::AddVolume { is_slow: random.chance(1, 4) });
    operations.insert(at + 1, Operation::Cold(ColdStep::Begin));
    at += 2;
    for _ in 0..random.between(2, 4) {
        at = further(at, 12, operations, random);
        let mut round = vec![match random.chance(1, 2) {
            true => Operation::Cold(ColdStep::Command),
            false => Operation::Cold(ColdStep::Down),
        }];
        if random.chance(1, 3) {
            let events = random.between(1, 30) as u32;
            round.insert(0, Operation::ArmCrash { events, manner: CrashManner::Mixed });
        }
        if random.chance(1, 2) {
            round.push(Operation::Cold(ColdStep::Pass { days: random.between(1, 4) as u8 }));
        }
        round.push(match random.below(5) {
            0 => Operation::Crash { manner: CrashManner::Mixed, again: None },
            1 => Operation::Remount,
            2 => Operation::VerifyAll,
            _ => Operation::Cold(ColdStep::Outage),
        });
        if random.chance(1, 2) {
            let used = random.chance(1, 2);
            round.push(Operation::Cold(if used { ColdStep::ProveUsed } else { ColdStep::ProveGone }));
        }
        for operation in round {
            operations.insert(at, operation);
            at += 1;
        }
    }
}

impl PoolUnderTest {
    fn keys_away(&self) -> u64 {
        let folds = self.mounted().store.offload().folds(stere_store::Io::BLOCKING).unwrap_or_default();
        folds.iter().map(|fold| u64::from(fold.keys)).sum()
    }
}

fn has_cold(history: &History) -> bool {
    let is_whole = history.pool.is_calm() && history.pool.away().is_none() && !history.pool.has_lost_member();
    history.plan.pool.areas.has(Area::Cold)
        && !history.plan.may_fill
        && history.plan.budget != Budget::Beyond
        && !history.quotas.are_on()
        && is_whole
        && history.mounted().store.failure().is_none()
        && history.mounted().store.tier.media.has_volumes()
}

pub(crate) fn execute_cold(history: &mut History, step: ColdStep) -> Result<(), Stop> {
    if !has_cold(history) {
        return Ok(());
    }
    match step {
        ColdStep::Begin => begin_cold(history),
        ColdStep::Down => all_down(history),
        ColdStep::Command => offload_by_command(history).map(drop),
        ColdStep::Pass { days } => pass_hours(history, u64::from(days) * 24),
        ColdStep::Outage => outage_of_names(history),
        ColdStep::ProveUsed => prove_used(history),
        ColdStep::ProveGone => prove_gone(history),
    }
}

fn begin_cold(history: &mut History) -> Result<(), Stop> {
    let Some(volume) = history.mounted().store.tier.media.volumes().first().map(|entry| entry.name.clone()) else {
        return Ok(());
    };
    names::put_policy(history, ROOT, TIER, volume.as_bytes())?;
    names::put_policy(history, ROOT, NAMES, AGE.as_bytes())?;
    own_directory(history).map(drop)
}

/// The lowest of its own directories, made with all above it where they are not there.
fn own_directory(history: &mut History) -> Result<u64, Stop> {
    let mut at = ROOT;
    for name in OWN {
        at = match history.model.lookup(at, name) {
            Ok(inode) => inode,
            Err(_) => {
                let made = history.mounted().files.mkdir(&caller(&history.machine), at, name, 0o777);
                let inode = history.must("mkdir", made)?.inode;
                names::made(history, at, name, inode, Node::new(Kind::Directory(Default::default()), 0o755))?;
                inode
            }
        };
    }
    for number in 0..FILES {
        let name = format!("of {number}").into_bytes();
        if history.model.lookup(at, &name).is_ok() {
            continue;
        }
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let created = history.mounted().files.create(&caller(&history.machine), at, &name, 0o666, flags);
        let (attributes, handle) = history.must("create", created)?;
        let inode = attributes.inode;
        names::made(history, at, &name, inode, Node::new(Kind::File(Default::default()), 0o644))?;
        history.model.open(inode);
        contents::write(history, inode, 0, &pattern(inode, FILE_BYTES))?;
        history.release(Slot { inode, handle })?;
    }
    history.sync_all()?;
    Ok(at)
}

/// Everything is on volumes only, names that were put away too.
fn all_down(history: &mut History) -> Result<(), Stop> {
    history.sync_all()?;
    tertiary::settle_volumes(history)?;
    let mut segments = BTreeSet::new();
    let walked = history.mounted().files.tiers().tier_walk(&caller(&history.machine), ROOT, &mut |met| {
        segments.extend(met.segments);
        ControlFlow::Continue(())
    });
    history.must("looking for segments", walked)?;
    let may_go = watermark_eviction::may_go_down(history, None)?;
    let segments: Vec<u64> = segments.intersection(&may_go).copied().collect();
    let released = history.mounted().files.tiers().release_segments(&caller(&history.machine), &segments);
    history.summary.tier.segments_released += history.must("releasing", released)?.segments;
    let store = &history.mounted().store;
    let done = store.checkpoint().and_then(|()| store.checkpoint());
    history.must("making a release durable", done.map_err(Error::from))?;
    history.note_commit();
    Ok(())
}

/// As the command does, with room made for it. None if the root goes nowhere any more, not all is counted yet, or the pool is full.
fn offload_root(history: &mut History) -> Result<Option<OffloadOutcome>, Stop> {
    let (files, who) = (history.mounted().files.clone(), caller(&history.machine));
    match files.command(&who, || files.offload().offload_below(&who, ROOT)) {
        Err(Error::NotPermitted(_)) => Ok(None),
        Err(Error::NoSpace) if is_full(history) => watermark_eviction::must_have_no_room(history).map(|()| None),
        outcome => history.must("offloading metadata", outcome).map(Some),
    }
}

/// Whether the pool says that nothing is free, as `df` does: a small one holds room back for each kind of data that there is.
pub(crate) fn is_full(history: &History) -> bool {
    let scheme = Scheme { data: 1, parity: 1 };
    history.mounted().store.space().statistics(scheme).free_bytes == 0
}

/// By command. How many keys those were.
fn offload_by_command(history: &mut History) -> Result<u64, Stop> {
    own_directory(history)?;
    all_down(history)?;
    let Some(outcome) = offload_root(history)? else { return Ok(0) };
    let committed = history.mounted().store.commit(stere_store::Io::BLOCKING);
    history.must("commit", committed.map_err(Error::from))?;
    history.note_commit();
    history.summary.names_put_away += outcome.keys;
    all_down(history)?;
    Ok(outcome.keys)
}

/// Time passes, and all that is to be done in the background is done.
fn pass_hours(history: &mut History, hours: u64) -> Result<(), Stop> {
    history.sync_all()?;
    history.machine.pass(hours * HOUR_NS);
    retention::tell_time(history);
    let before = history.pool.keys_away();
    for _ in 0..STEPS_MAX {
        let more = history.mounted().files.step(&caller(&history.machine), 100);
        if !history.must("step of the files", more)? {
            history.summary.names_put_away += history.pool.keys_away().saturating_sub(before);
            return Ok(());
        }
    }
    Err(Stop::Failure("the work of the files does not end".into()))
}

/// P-141: with all volumes away a directory lists what it has, or fails; and it is whole afterwards.
fn outage_of_names(history: &mut History) -> Result<(), Stop> {
    let count = history.machine.volume_count();
    (0..count).for_each(|volume| history.machine.set_trouble(volume, Some(VolumeTrouble::Outage)));
    let outcome = look_during_outage(history);
    history.pool.end_troubles();
    outcome
}

fn look_during_outage(history: &mut History) -> Result<(), Stop> {
    let nodes = history.model.nodes.iter().filter(|(_, node)| node.nlink > 0);
    let directories = nodes.filter_map(|(inode, node)| match &node.kind {
        Kind::Directory(names) => Some((*inode, names.clone())),
        _ => None,
    });
    let store = history.mounted().store.clone();
    for (directory, names) in directories.collect::<Vec<_>>() {
        let may_fail = store.offload().has_folds();
        match observe::list(&history.mounted().files, &caller(&history.machine), directory) {
            Ok(seen) if seen == names => {}
            Err(Trouble::Call { errno: libc::EIO, .. }) if may_fail => {}
            _ if history.machine.is_off() => return Err(Stop::Power),
            seen => {
                let path = history.model.path_of(directory);
                return Err(Stop::Failure(format!("{path} during an outage: {seen:?}, not {names:?}")));
            }
        }
    }
    Ok(())
}

fn look_at(history: &mut History, directory: u64) -> Result<(), Stop> {
    let seen = observe::list(&history.mounted().files, &caller(&history.machine), directory);
    seen.map_err(|trouble| history.trouble(trouble)).map(drop)
}

/// P-152: what is looked at within its time stays.
fn prove_used(history: &mut History) -> Result<(), Stop> {
    let directory = own_directory(history)?;
    all_down(history)?;
    look_at(history, directory)?;
    // When it came back is known from now on.
    pass_hours(history, 0)?;
    pass_hours(history, 24)?;
    look_at(history, directory)?;
    pass_hours(history, 36)?;
    if history.mounted().store.offload().is_folded(&Key::dirent_hash(directory, 0)) {
        return Err(Stop::Failure("names went that were used less than two days ago".into()));
    }
    history.summary.names_proven += 1;
    Ok(())
}

/// P-152: when its time is over, a command finds next to nothing that it could put away.
fn prove_gone(history: &mut History) -> Result<(), Stop> {
    own_directory(history)?;
    // What is open, or waits for something, has its time.
    pass_hours(history, 1)?;
    all_down(history)?;
    // What could not go then is looked at again after a quarter of a day.
    for hours in [60, 12, 12] {
        pass_hours(history, hours)?;
    }
    let entries = history.model.names(ROOT).map_or(0, |names| names.len()) as u64;
    let Some(left) = offload_root(history)? else { return Ok(()) };
    if left.keys > KEYS_LEFT_MAX * entries {
        return Err(Stop::Failure(format!("names were left that nobody used for three days: {left:?}")));
    }
    history.summary.names_proven += 1;
    Ok(())
}
