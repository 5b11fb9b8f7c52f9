//! P-137, P-138: uses of segments as the history makes them, by the model kept here; and what the order then names first.
//!
//! Everything comes back, so that all counts begin anew. Files and parts of them are read at known moments, everything is looked at, proven,
//! moved and repacked, which is no use, and then some of it is released. Of what was not read it is only known that it is older.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};

use stere_format::TierMarks;
use stere_naming::{Error, Io};
use stere_store::{ReleaseOrder, SegmentHeat, TierPolicy};

use super::{Lying, SECOND_NS};
use crate::history::{History, Stop};
use crate::model::{Model, ROOT};
use crate::pool::{PoolUnderTest, caller};
use crate::random::Random;
use crate::{
    tertiary,
    tiers::{self, ahead},
};

const ORDERS: [ReleaseOrder; 4] =
    [ReleaseOrder::LeastRecent, ReleaseOrder::SpaceTime, ReleaseOrder::Once, ReleaseOrder::Largest];
/// Reads that are nearer to each other are one use.
const APART_SECONDS: i64 = 60;
/// Segments of which so many are released before it is looked again how full devices are, and a few more.
const MANY: u64 = 20;
/// What two ways of computing a product of size and age may differ by.
const TOLERANCE: f64 = 0.001;
/// What is read of a file in part.
const PART_BYTES: usize = 16 << 10;

/// How a segment was used since it came back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Use {
    /// None: not at all.
    last_seconds: Option<i64>,
    count: u8,
}

/// What the history read.
#[derive(Default)]
struct Uses(BTreeMap<u64, Use>);

impl Uses {
    fn note(&mut self, segments: &BTreeSet<u64>, seconds: i64) {
        for segment in segments {
            let one = self.0.entry(*segment).or_default();
            let is_new = one.last_seconds.is_none_or(|last| seconds - last >= APART_SECONDS);
            *one = Use { last_seconds: Some(seconds), count: one.count + u8::from(is_new) };
        }
    }

    fn of(&self, segment: u64) -> Use {
        self.0.get(&segment).copied().unwrap_or_default()
    }
}

/// One that may go: how it was used, itself and with its unit, and what it takes.
#[derive(Debug, Clone, Copy)]
struct Weighed {
    used: Use,
    bytes: u64,
}

/// Whether the first may go while the second stays.
fn may_go_before(policy: &TierPolicy, began_seconds: i64, now_seconds: i64, first: Weighed, second: Weighed) -> bool {
    let (before, behind) = (first.used.last_seconds, second.used.last_seconds);
    match policy.order {
        ReleaseOrder::LeastRecent => before <= behind,
        ReleaseOrder::Largest => {
            (second.bytes, before) < (first.bytes, behind) || (second.bytes == first.bytes && before <= behind)
        }
        ReleaseOrder::Once => {
            let (is_once, is_other_once) = (first.used.count <= 1, second.used.count <= 1);
            is_once && !is_other_once || is_once == is_other_once && before <= behind
        }
        // How old what was not read is, is not known here: older than when this began.
        ReleaseOrder::SpaceTime => before.is_none_or(|then| {
            let exponent = f64::from(policy.exponent_hundredths) / 100.0;
            let product = |seconds: i64, bytes: u64| {
                let age = (now_seconds - seconds).max(1) as f64;
                exponent * age.ln() + (bytes.max(1) as f64).ln()
            };
            product(then, first.bytes) + TOLERANCE >= product(behind.unwrap_or(began_seconds), second.bytes)
        }),
    }
}

impl PoolUnderTest {
    /// What is known of the use of segments is what the history did.
    fn must_be_used_so(&self, uses: &Uses, judged: &BTreeSet<u64>) -> Result<(), Stop> {
        for segment in judged {
            let (heat, right) = (self.mounted().store.tier.heat.heat_of(*segment), uses.of(*segment));
            let is_gone = self.mounted().store.segments().get(*segment).is_none_or(|one| one.live_bytes() == 0);
            let is_right = heat.references == right.count
                && right.last_seconds.is_none_or(|seconds| heat.used_seconds == seconds.unsigned_abs());
            if !is_gone && !is_right {
                return Err(Stop::Failure(format!(
                    "segment {segment} was used as {right:?}, and is said to be {heat:?}"
                )));
            }
        }
        Ok(())
    }

    fn heats(&self) -> BTreeMap<u64, SegmentHeat> {
        let store = &self.mounted().store;
        let archived = store.segments().everywhere().into_iter().filter(|one| !one.tertiary().is_none());
        archived.filter(|one| one.live_bytes() > 0).map(|one| (one.id, store.tier.heat.heat_of(one.id))).collect()
    }
}

pub(crate) fn prove_order(history: &mut History, order: usize, by_marks: bool, seed: u64) -> Result<(), Stop> {
    let mut random = Random::new(seed);
    if by_marks && tiers::make_apart(history, MANY, seed)?.is_empty() {
        return Ok(());
    }
    // What is counted begins anew where something is given up on devices.
    let is_fresh = ahead::all_freshly_released(history)?;
    let counted = history.pool.released();
    if !is_fresh || counted.len() < 2 || !tiers::all_back(history)? {
        return Ok(());
    }
    let began_seconds = caller(&history.machine).now.seconds;
    // Of what nobody knows anything, the times of files decide, and of those not all segments need have been read.
    let is_known = |history: &History, one: &u64| history.mounted().store.tier.heat.heat_of(*one).used_seconds > 0;
    let lying = tiers::lying(history)?;
    let mut judged: BTreeSet<u64> = lying.files.values().flatten().copied().collect();
    judged.retain(|one| counted.contains(one) && !lying.nameless.contains(one) && is_known(history, one));
    history.machine.pass(SECOND_NS);
    let uses = read_some(history, &lying, &mut random)?;
    history.pool.must_be_used_so(&uses, &judged)?;
    look_without_using(history, &mut random)?;
    history.pool.must_be_used_so(&uses, &judged)?;
    prove_heat_kept(history)?;
    history.machine.pass(random.between(1, 1_000) * SECOND_NS);
    let exponent_hundredths = *random.pick(&[100, 100, 50, 200]);
    let policy = TierPolicy { order: ORDERS[order % ORDERS.len()], exponent_hundredths, cache_bytes: 0 };
    must_go_in_order(history, policy, by_marks, (&lying, &uses, &judged), began_seconds)
}

/// Files and parts of them are read, some more than once.
fn read_some(history: &mut History, lying: &Lying, random: &mut Random) -> Result<Uses, Stop> {
    let (mut uses, inodes) = (Uses::default(), lying.files.keys().copied().collect::<Vec<_>>());
    for _ in 0..random.between(1, 2 * inodes.len() as u64) {
        history.machine.count_anew();
        let inode = *random.pick(&inodes);
        let seconds = if random.chance(1, 4) { random.between(1, 50) } else { random.between(61, 900) };
        history.machine.pass(seconds * SECOND_NS);
        let size = history.model.content(inode).size();
        let range = match random.chance(1, 3) && size > 0 {
            true => {
                let from = random.below(size);
                from..size.min(from + PART_BYTES as u64)
            }
            false => 0..size,
        };
        let segments = segments_of_range(history, inode, range.clone())?;
        let seconds = match range == (0..size) {
            true => tiers::read_right(history, inode)?,
            false => read_part(history, inode, range)?,
        };
        uses.note(&segments, seconds);
    }
    Ok(uses)
}

fn segments_of_range(history: &mut History, inode: u64, range: Range<u64>) -> Result<BTreeSet<u64>, Stop> {
    let store = history.mounted().store.clone();
    let (mut segments, mut from) = (BTreeSet::new(), Some(range.start));
    while let Some(at) = from.filter(|at| *at < range.end) {
        let found = stere_file::stored_extents(&store, Io::BLOCKING, inode, at, 256).map_err(Error::from);
        let (extents, next) = history.must("looking for extents", found)?;
        let touched = extents.iter().filter(|extent| extent.start < range.end && extent.end() > range.start);
        segments.extend(touched.map(|extent| extent.blob.segment_id()));
        from = next;
    }
    Ok(segments)
}

fn read_part(history: &mut History, inode: u64, range: Range<u64>) -> Result<i64, Stop> {
    let user = caller(&history.machine);
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let read = history.mounted().files.read(&user, inode, range.start, &mut bytes);
    let length = history.must("read", read)?;
    let right = history.model.content(inode).read(range.start, range.end - range.start);
    match bytes[..length] == right[..] {
        true => Ok(user.now.seconds),
        false => Err(Stop::Failure(format!("{}: other bytes in {range:?}", history.model.path_of(inode)))),
    }
}

/// Everything is proven, moved, repacked and looked at, and nothing of that is a use.
fn look_without_using(history: &mut History, random: &mut Random) -> Result<(), Stop> {
    history.machine.count_anew();
    let before = history.pool.heats();
    for entry in history.mounted().store.tier.media.volumes() {
        if let Some(volume) = crate::volume::number_of(&entry.name) {
            tertiary::verify_volume(history, volume as u8, true)?;
        }
    }
    let walked =
        history.mounted().files.tiers().tier_walk(&caller(&history.machine), ROOT, &mut |_| ControlFlow::Continue(()));
    history.must("looking at everything", walked)?;
    history.check()?;
    tertiary::copy_metadata(history, 2)?;
    for _ in 0..2 {
        let more = history.mounted().files.reconciler().reconcile_step(&caller(&history.machine), 1 << 20);
        history.must("storing files as their policy says", more)?;
        tertiary::step_of_volumes(history, true)?;
    }
    if random.chance(1, 3) {
        tertiary::repack(history, 99, 2)?;
    }
    let (after, youngest) = (history.pool.heats(), before.values().map(|heat| heat.used_seconds).max().unwrap_or(0));
    for (segment, heat) in &after {
        let is_right = match before.get(segment) {
            Some(then) => then == heat,
            // What was put into it is as warm as it was.
            None => heat.used_seconds <= youngest && heat.references == 0,
        };
        if !is_right {
            let then = before.get(segment);
            let text = format!("segment {segment} counts as used ({heat:?}) though nobody read it: {then:?}");
            return Err(Stop::Failure(text));
        }
    }
    Ok(())
}

/// What is kept of heat, as it is each five minutes and at the end of a mount, is there after a crash.
fn prove_heat_kept(history: &mut History) -> Result<(), Stop> {
    let kept = history.mounted().store.tier.heat.keep_heat();
    history.must("saving how segments were used", kept.map_err(Error::from))?;
    history.sync_all()?;
    let heats = history.pool.heats();
    let found = tiers::after_a_crash(history)?;
    let lost =
        heats.iter().find(|(segment, heat)| heat.used_seconds > 0 && found.tier.heat.heat_of(**segment) != **heat);
    match lost {
        None => Ok(()),
        Some((segment, heat)) => {
            let now = found.tier.heat.heat_of(*segment);
            Err(Stop::Failure(format!("segment {segment} was used as {heat:?}, and {now:?} is known after a crash")))
        }
    }
}

fn must_go_in_order(
    history: &mut History,
    policy: TierPolicy,
    by_marks: bool,
    (lying, uses, judged): (&Lying, &Uses, &BTreeSet<u64>),
    began_seconds: i64,
) -> Result<(), Stop> {
    let staying = tiers::staying_now(history)?;
    let mut candidates = history.mounted().store.tier.heat.release_candidates();
    candidates.retain(|one| (by_marks || one.heat.is_back) && !staying.contains(&one.segment));
    let may_go: BTreeSet<u64> = candidates.iter().map(|one| one.segment).collect();
    let (youngest, is_unclear) = youngest_of_units(&history.model, lying, uses, &may_go);
    let mut weighed: BTreeMap<u64, Weighed> = BTreeMap::new();
    for one in candidates.iter().filter(|one| judged.contains(&one.segment) && !is_unclear.contains(&one.segment)) {
        let own = uses.of(one.segment);
        let last_seconds = own.last_seconds.max(youngest.get(&one.segment).copied());
        weighed.insert(one.segment, Weighed { used: Use { last_seconds, ..own }, bytes: one.bytes });
    }
    let half_bytes = (candidates.iter().map(|one| one.bytes).sum::<u64>() / 2).max(1);
    let now_seconds = caller(&history.machine).now.seconds;
    let asked = TierPolicy { cache_bytes: if by_marks { 0 } else { half_bytes }, ..policy };
    make_room_so(history, asked, by_marks)?;
    let gone = history.pool.released();
    let (went, stayed): (Vec<_>, Vec<_>) = weighed.iter().partition(|(segment, _)| gone.contains(segment));
    history.summary.tier.heats_proven += u64::from(!went.is_empty() && !stayed.is_empty());
    for (first, a) in &went {
        let wrong = stayed.iter().find(|(_, b)| !may_go_before(&policy, began_seconds, now_seconds, **a, **b));
        if let Some((second, b)) = wrong {
            let text = format!("{policy:?} at {now_seconds}: segment {first} ({a:?}) went before {second} ({b:?})");
            return Err(Stop::Failure(text));
        }
    }
    Ok(())
}

/// When the youngest member of each unit was used, for each segment that has some of it; and the segments of units of which more was used
/// than what may go.
fn youngest_of_units(
    model: &Model,
    lying: &Lying,
    uses: &Uses,
    may_go: &BTreeSet<u64>,
) -> (BTreeMap<u64, i64>, BTreeSet<u64>) {
    let (mut youngest, mut is_unclear) = (BTreeMap::new(), BTreeSet::new());
    // What no name leads to may be a version in any of them, and lie with what was read.
    let may_be_younger = lying.nameless.iter().any(|one| uses.of(*one).last_seconds.is_some());
    for segments in super::units::units_of(model, lying).into_values() {
        if may_be_younger || segments.iter().any(|one| !may_go.contains(one)) {
            is_unclear.extend(segments);
            continue;
        }
        let Some(last) = segments.iter().filter_map(|one| uses.of(*one).last_seconds).max() else { continue };
        for segment in segments {
            let age = youngest.entry(segment).or_insert(last);
            *age = last.max(*age);
        }
    }
    (youngest, is_unclear)
}

/// Something goes, as the order says, and what was said of that before holds again.
fn make_room_so(history: &mut History, policy: TierPolicy, by_marks: bool) -> Result<(), Stop> {
    let store = history.mounted().store.clone();
    let usual = history.must("reading the order", store.tier.heat.tier_policy(Io::BLOCKING).map_err(Error::from))?;
    let marks = history.must("reading the marks", store.tier.media.tier_marks(Io::BLOCKING).map_err(Error::from))?;
    let high = store.space().used_percent();
    let lower = TierMarks::new(high, high.saturating_sub(1)).filter(|_| by_marks && high > 1);
    set_order(history, policy, lower)?;
    history.note_commit();
    let kept = history.mounted().files.eviction().keep_room(&caller(&history.machine));
    history.must("making room", kept)?;
    set_order(history, usual, Some(marks))?;
    history.note_commit();
    Ok(())
}

fn set_order(history: &mut History, policy: TierPolicy, marks: Option<TierMarks>) -> Result<(), Stop> {
    let set = history.command(|files, _| {
        marks.map_or(Ok(()), |marks| files.store().tier.media.set_tier_marks(marks))?;
        Ok(files.store().tier.heat.set_tier_policy(policy)?)
    });
    history.must("setting order and marks", set)
}
