//! Units, heat and what is recalled, in histories with volumes.
//!
//! What must be so is worked out here from the model (which directory is the nearest that says something of units), from the reads that
//! the history makes itself, and from the table of segments. `tiers/heat.rs`: what is released is what the order names first, and nothing
//! but reading is a use (P-137, P-138). `tiers/units.rs`: a unit comes, goes down and is as old as one (P-145). `tiers/ahead.rs`: what was
//! recalled together is known, and comes before it is asked for, within its bounds (P-146). `tiers/turns.rs`: who waits for whom, and who is
//! refused (P-139). Each proof begins with all that was sent down on its volumes, and is left out where room, limits or faults of devices
//! may be the reason for something else. Read next: `tertiary.rs`, `area.rs`.

pub(crate) mod ahead;
pub(crate) mod heat;
pub(crate) mod turns;
pub(crate) mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use stere_naming::OpenFlags;
use stere_store::Store;

use crate::area::further;
use crate::content::pattern;
use crate::history::{Budget, History, Slot, Stop};
use crate::medium::Survival;
use crate::model::{Kind, Model, Node, ROOT};
use crate::operation::{CrashManner, DIRECTORIES, Operation, Path, Releasing, Target};
use crate::pool::{PoolUnderTest, caller};
use crate::random::Random;
use crate::tertiary::{self, TIER};
use crate::{
    execute::{contents, names},
    observe, watermark_eviction,
};

pub(crate) const UNIT: &[u8] = b"user.stere.unit";
/// Steps in which what was asked for must be back.
const STEPS_MAX: u8 = 200;
const SECOND_NS: u64 = 1_000_000_000;
/// Of devices, what files apart from one another may take with all that is there.
const USED_PERCENT_MAX: u64 = 75;
/// Chunks that one segment may take.
const CHUNKS_MAX: u64 = 2;

/// What comes between asking for a unit and its coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    Not,
    /// The power goes off.
    Crash,
    /// What is to come is taken back, and something else is to come.
    Cancel,
}

/// What is done or proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierStep {
    /// A directory of `DIRECTORIES` says that it is a unit (1), or none (2), or nothing any more.
    SayUnit { directory: u8, says: u8 },
    /// What goes first, of what is more than may have come back, or as marks say, is what the order says.
    ProveOrder { order: u8, by_marks: bool, seed: u64 },
    /// One file is recalled, and its unit comes.
    ProveUnit { pick: u16, interrupted: Interrupted },
    /// Files of a unit and others are sent down by turns.
    ProveDown { directory: u8, seed: u64 },
    /// What is recalled one after the other is known to be.
    ProveFollowers { seed: u64 },
    /// What followed comes ahead the next time.
    ProveAhead { seed: u64 },
    /// Several users read what is on volumes only, within limits.
    ProveTurns { seed: u64 },
    /// Whoever is refused recalls gets nothing that is on volumes only.
    ReadRefused { path: Path },
}

/// Puts files that go down, what is said of units, and proofs into a history.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    let mut at = operations.len().min(9);
    let put = |operations: &mut Vec<Operation>, at: &mut usize, operation: Operation| {
        operations.insert(*at, operation);
        *at = (*at + 1).min(operations.len());
    };
    for _ in 0..random.between(1, 2) {
        put(operations, &mut at, Operation::AddVolume { is_slow: random.chance(1, 5) });
    }
    for name in 3..5 {
        put(operations, &mut at, Operation::Mkdir { path: Path { directory: 0, name } });
    }
    put(operations, &mut at, Operation::Mkdir { path: Path { directory: 1, name: 5 } });
    for _ in 0..random.between(2, 4) {
        for _ in 0..random.between(1, 3) {
            let (directory, says) = (random.below(4) as u8, *random.pick(&[0, 1, 1, 1, 1, 2, 2]));
            put(operations, &mut at, Operation::Tiers(TierStep::SayUnit { directory, says }));
        }
        for _ in 0..random.between(2, 5) {
            let path = Path { directory: random.below(4) as u8, name: random.below(3) as u8 };
            let (length, seed) = (random.between(30_000, 700_000) as u32, random.next_u64());
            put(operations, &mut at, Operation::Create { path, slot: 1 });
            let target = Target::Path(path);
            put(operations, &mut at, Operation::Write { target, offset: 0, length, seed });
            put(operations, &mut at, Operation::Archive { path, volumes: u8::MAX });
            if random.chance(1, 3) {
                put(operations, &mut at, Operation::SettleVolumes);
            }
            at = further(at, 3, operations, random);
        }
        if random.chance(1, 4) {
            let manner = *random.pick(&[CrashManner::Nothing, CrashManner::Everything, CrashManner::Mixed]);
            put(operations, &mut at, Operation::Crash { manner, again: None });
        }
        for _ in 0..random.between(1, 3) {
            put(operations, &mut at, Operation::Tiers(draw(random)));
        }
        if random.chance(1, 3) {
            let path = Path { directory: 0, name: 3 };
            put(operations, &mut at, Operation::Release { path, releasing: Releasing::Commit });
        }
        at = further(at, 8, operations, random);
    }
}

fn draw(random: &mut Random) -> TierStep {
    let seed = random.next_u64();
    match random.below(14) {
        0..3 => TierStep::ProveOrder { order: random.below(4) as u8, by_marks: random.chance(1, 4), seed },
        3..6 => {
            use Interrupted::{Cancel, Crash, Not};
            TierStep::ProveUnit { pick: seed as u16, interrupted: *random.pick(&[Not, Not, Crash, Cancel]) }
        }
        6 | 7 => TierStep::ProveDown { directory: random.below(4) as u8, seed },
        8 => TierStep::ProveFollowers { seed },
        9..12 => TierStep::ProveAhead { seed },
        12 => TierStep::ProveTurns { seed },
        _ => TierStep::ReadRefused { path: Path { directory: 0, name: random.below(3) as u8 } },
    }
}

/// What is known of files that go down, as it lies.
pub(crate) struct Lying {
    /// Files with names, and their segments.
    files: BTreeMap<u64, BTreeSet<u64>>,
    /// Segments in which content lies that no name leads to: versions, files that are open.
    nameless: BTreeSet<u64>,
}

impl PoolUnderTest {
    fn is_released(&self, segment: u64) -> bool {
        self.mounted().store.segments().get(segment).is_some_and(|one| one.is_released() && one.live_bytes() > 0)
    }

    /// All segments of which something is on volumes only.
    fn released(&self) -> BTreeSet<u64> {
        let segments = self.mounted().store.segments().everywhere();
        segments.iter().map(|one| one.id).filter(|id| self.is_released(*id)).collect()
    }
}

pub(crate) fn execute_tiers(history: &mut History, step: TierStep) -> Result<(), Stop> {
    let is_whole = history.pool.is_calm() && history.pool.away().is_none() && !history.pool.has_lost_member();
    let is_bounded = history.plan.may_fill || history.quotas.are_on() || history.plan.budget == Budget::Beyond;
    // Of a file with several names it is not said here in which unit it is.
    let is_plain = history.model.nodes.values().all(|node| node.content().is_none() || node.nlink <= 1);
    match step {
        TierStep::SayUnit { directory, says } => return units::say_unit(history, directory, says),
        TierStep::ReadRefused { path } => return turns::read_refused(history, path),
        _ if !is_whole || is_bounded || !is_plain || !history.mounted().store.tier.media.has_volumes() => {
            return Ok(());
        }
        _ => {}
    }
    history.machine.disarm();
    history.pool.end_troubles();
    history.sync_all()?;
    tertiary::settle_volumes(history)?;
    history.sync_all()?;
    if history.pool.may_lack_content() || history.machine.is_any_harmed() {
        return Ok(());
    }
    match step {
        TierStep::ProveOrder { order, by_marks, seed } => {
            heat::prove_order(history, usize::from(order), by_marks, seed)
        }
        TierStep::ProveUnit { pick, interrupted } => units::prove_unit(history, usize::from(pick), interrupted),
        TierStep::ProveDown { directory, seed } => units::prove_down(history, directory, seed),
        TierStep::ProveFollowers { seed } => ahead::prove_followers_known(history, seed),
        TierStep::ProveAhead { seed } => ahead::prove_ahead(history, seed),
        TierStep::ProveTurns { seed } => turns::prove_turns(history, seed),
        TierStep::SayUnit { .. } | TierStep::ReadRefused { .. } => Ok(()),
    }
}

/// The directory of this number, if there is one.
fn directory_inode(model: &Model, directory: u8) -> Option<u64> {
    let names = DIRECTORIES[usize::from(directory) % DIRECTORIES.len()];
    let inode = names.iter().try_fold(ROOT, |inode, name| model.lookup(inode, name).ok())?;
    model.is_directory(inode).then_some(inode)
}

/// In which directory each file lies.
fn parents(model: &Model) -> BTreeMap<u64, u64> {
    let mut parents = BTreeMap::new();
    for (directory, node) in &model.nodes {
        if let Kind::Directory(names) = &node.kind {
            parents.extend(names.values().map(|inode| (*inode, *directory)));
        }
    }
    parents
}

fn lying(history: &mut History) -> Result<Lying, Stop> {
    let parents = parents(&history.model);
    let mut lying = Lying { files: BTreeMap::new(), nameless: BTreeSet::new() };
    let walked = history.mounted().files.tiers().tier_walk(&caller(&history.machine), ROOT, &mut |met| {
        match parents.contains_key(&met.inode) {
            true if met.segments.is_empty() => {}
            true => drop(lying.files.insert(met.inode, met.segments)),
            false => lying.nameless.extend(met.segments),
        }
        ControlFlow::Continue(())
    });
    history.must("looking for what goes down", walked)?;
    Ok(lying)
}

/// What stays, whoever says so.
fn staying_now(history: &mut History) -> Result<BTreeSet<u64>, Stop> {
    let pinned = watermark_eviction::pinned(history)?;
    let releasable = history.mounted().store.tier.stager.releasable_segments();
    let may_go = watermark_eviction::may_go_down(history, None)?;
    Ok(releasable.difference(&may_go).chain(&pinned).copied().collect())
}

/// All that may go is on volumes only, and nobody waits for anything.
fn release_all(history: &mut History) -> Result<(), Stop> {
    history.machine.count_anew();
    let all: Vec<u64> = watermark_eviction::may_go_down(history, None)?.into_iter().collect();
    let others = watermark_eviction::of_others(history, None)?;
    let released = history.mounted().files.tiers().release_segments(&caller(&history.machine), &all);
    history.must("releasing", released)?;
    watermark_eviction::must_have_kept(history, &others)?;
    history.sync_all()?;
    let store = history.mounted().store.clone();
    let segments: Vec<u64> = store.segments().everywhere().iter().map(|segment| segment.id).collect();
    // Twice: what was read before is forgotten, and what was asked for because of it.
    for _ in 0..2 {
        store.tier.recalls.want_back_no_more(&segments);
        let asked = history.mounted().files.units().stage_units(&caller(&history.machine));
        history.must("asking for units", asked)?;
    }
    Ok(())
}

/// Steps until nothing is wanted back any more; false if something stays away, for lack of room.
fn bring_back(history: &mut History) -> Result<bool, Stop> {
    let mut is_short = false;
    for _ in 0..STEPS_MAX {
        if history.mounted().store.tier.recalls.wanted_back() == 0 {
            return Ok(!is_short);
        }
        is_short |= tertiary::step_of_volumes(history, false)?.waits_for.is_some_and(|why| why.contains("no room"));
    }
    Ok(false)
}

/// Everything is on devices, and nothing on volumes only; false if not.
fn all_back(history: &mut History) -> Result<bool, Stop> {
    history.machine.count_anew();
    let released: Vec<u64> = history.pool.released().into_iter().collect();
    history.mounted().store.tier.recalls.want_back(&released);
    let is_back = bring_back(history)?;
    history.sync_all()?;
    Ok(is_back && history.pool.released().is_empty())
}

/// Reads a file, which is as the model has it; tells when, in seconds.
fn read_right(history: &mut History, inode: u64) -> Result<i64, Stop> {
    let user = caller(&history.machine);
    let seen = observe::read_file(&history.mounted().files, &user, inode);
    let seen = seen.map_err(|trouble| history.trouble(trouble))?;
    match history.model.nodes.get(&inode).and_then(|node| node.content()).and_then(|mine| mine.difference(&seen)) {
        Some(difference) => Err(Stop::Failure(format!("{}: {difference}", history.model.path_of(inode)))),
        None => Ok(user.now.seconds),
    }
}

/// The store as it is found after a crash in this moment, which keeps all that was written.
fn after_a_crash(history: &mut History) -> Result<Arc<Store>, Stop> {
    let fork = history.machine.fork(history.random.fork());
    fork.power_off();
    fork.power_on(&mut |_, _| Survival::Everything);
    let mounted = history.plan.pool.mount(&fork);
    Ok(mounted.map_err(|text| Stop::Failure(format!("after a crash: {text}")))?.store)
}

/// A file with this content, which goes to all volumes.
fn make_tiered(history: &mut History, directory: u64, name: &[u8], content: &[u8]) -> Result<u64, Stop> {
    if history.model.lookup(directory, name).is_ok() {
        names::remove_name(history, directory, name, false)?;
    }
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let created = history.mounted().files.create(&caller(&history.machine), directory, name, 0o666, flags);
    let (attributes, handle) = history.must("create", created)?;
    let inode = attributes.inode;
    names::made(history, directory, name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
    history.model.open(inode);
    contents::write(history, inode, 0, content)?;
    history.release(Slot { inode, handle })?;
    Ok(inode)
}

fn archive_to_all(history: &mut History, inode: u64) -> Result<(), Stop> {
    let names: Vec<String> =
        history.mounted().store.tier.media.volumes().iter().map(|entry| entry.name.clone()).collect();
    names::put_policy(history, inode, TIER, names.join("+").as_bytes())
}

/// So many small files, each in a segment of its own; none where devices have no room for that.
fn make_apart(history: &mut History, count: u64, seed: u64) -> Result<Vec<u64>, Stop> {
    let device_bytes: u64 = history.plan.pool.device_bytes.iter().sum();
    let needed_bytes = count * u64::from(history.plan.pool.chunk_bytes) * CHUNKS_MAX;
    let used_percent = u64::from(history.mounted().store.space().used_percent());
    if used_percent + needed_bytes * 100 / device_bytes.max(1) > USED_PERCENT_MAX || history.pool.has_changed_devices {
        return Ok(Vec::new());
    }
    let mut made = Vec::new();
    for number in 0..count {
        history.machine.count_anew();
        let length = 5_000 + (seed.wrapping_mul(number + 1) % 30_000) as usize;
        let inode = make_tiered(history, ROOT, format!("apart{number}").as_bytes(), &pattern(seed ^ number, length))?;
        archive_to_all(history, inode)?;
        history.sync_all()?;
        tertiary::settle_volumes(history)?;
        made.push(inode);
    }
    history.sync_all()?;
    Ok(made)
}
