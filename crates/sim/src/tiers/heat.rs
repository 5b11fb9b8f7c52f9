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
use crate::model::ROOT;
use crate::pool::caller;
use crate::random::Random;

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

impl History {
    pub(super) fn prove_order(&mut self, order: usize, by_marks: bool, seed: u64) -> Result<(), Stop> {
        let mut random = Random::new(seed);
        if by_marks && self.make_apart(MANY, seed)?.is_empty() {
            return Ok(());
        }
        // What is counted begins anew where something is given up on devices.
        let is_fresh = self.all_freshly_released()?;
        let counted = self.released();
        if !is_fresh || counted.len() < 2 || !self.all_back()? {
            return Ok(());
        }
        let began_seconds = caller(&self.machine).now.seconds;
        // Of what nobody knows anything, the times of files decide, and of those not all segments need have been read.
        let is_known = |history: &History, one: &u64| history.mounted().store.tier.heat.heat_of(*one).used_seconds > 0;
        let lying = self.lying()?;
        let mut judged: BTreeSet<u64> = lying.files.values().flatten().copied().collect();
        judged.retain(|one| counted.contains(one) && !lying.nameless.contains(one) && is_known(self, one));
        self.machine.pass(SECOND_NS);
        let uses = self.read_some(&lying, &mut random)?;
        self.must_be_used_so(&uses, &judged)?;
        self.look_without_using(&mut random)?;
        self.must_be_used_so(&uses, &judged)?;
        self.prove_heat_kept()?;
        self.machine.pass(random.between(1, 1_000) * SECOND_NS);
        let exponent_hundredths = *random.pick(&[100, 100, 50, 200]);
        let policy = TierPolicy { order: ORDERS[order % ORDERS.len()], exponent_hundredths, cache_bytes: 0 };
        self.must_go_in_order(policy, by_marks, (&lying, &uses, &judged), began_seconds)
    }

    /// Files and parts of them are read, some more than once.
    fn read_some(&mut self, lying: &Lying, random: &mut Random) -> Result<Uses, Stop> {
        let (mut uses, inodes) = (Uses::default(), lying.files.keys().copied().collect::<Vec<_>>());
        for _ in 0..random.between(1, 2 * inodes.len() as u64) {
            self.machine.count_anew();
            let inode = *random.pick(&inodes);
            let seconds = if random.chance(1, 4) { random.between(1, 50) } else { random.between(61, 900) };
            self.machine.pass(seconds * SECOND_NS);
            let size = self.content(inode).size();
            let range = match random.chance(1, 3) && size > 0 {
                true => {
                    let from = random.below(size);
                    from..size.min(from + PART_BYTES as u64)
                }
                false => 0..size,
            };
            let segments = self.segments_of_range(inode, range.clone())?;
            let seconds = match range == (0..size) {
                true => self.read_right(inode)?,
                false => self.read_part(inode, range)?,
            };
            uses.note(&segments, seconds);
        }
        Ok(uses)
    }

    fn segments_of_range(&mut self, inode: u64, range: Range<u64>) -> Result<BTreeSet<u64>, Stop> {
        let store = self.mounted().store.clone();
        let (mut segments, mut from) = (BTreeSet::new(), Some(range.start));
        while let Some(at) = from.filter(|at| *at < range.end) {
            let found = stere_file::stored_extents(&store, Io::BLOCKING, inode, at, 256).map_err(Error::from);
            let (extents, next) = self.must("looking for extents", found)?;
            let touched = extents.iter().filter(|extent| extent.start < range.end && extent.end() > range.start);
            segments.extend(touched.map(|extent| extent.blob.segment_id()));
            from = next;
        }
        Ok(segments)
    }

    fn read_part(&mut self, inode: u64, range: Range<u64>) -> Result<i64, Stop> {
        let user = caller(&self.machine);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = self.mounted().files.read(&user, inode, range.start, &mut bytes);
        let length = self.must("read", read)?;
        let right = self.content(inode).read(range.start, range.end - range.start);
        match bytes[..length] == right[..] {
            true => Ok(user.now.seconds),
            false => Err(Stop::Failure(format!("{}: other bytes in {range:?}", self.model.path_of(inode)))),
        }
    }

    /// What is known of the use of segments is what the history did.
    fn must_be_used_so(&mut self, uses: &Uses, judged: &BTreeSet<u64>) -> Result<(), Stop> {
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

    /// Everything is proven, moved, repacked and looked at, and nothing of that is a use.
    fn look_without_using(&mut self, random: &mut Random) -> Result<(), Stop> {
        self.machine.count_anew();
        let before = self.heats();
        for entry in self.mounted().store.tier.media.volumes() {
            if let Some(volume) = crate::volume::number_of(&entry.name) {
                self.verify_volume(volume as u8, true)?;
            }
        }
        let walked =
            self.mounted().files.tiers().tier_walk(&caller(&self.machine), ROOT, &mut |_| ControlFlow::Continue(()));
        self.must("looking at everything", walked)?;
        self.check()?;
        self.copy_metadata(2)?;
        for _ in 0..2 {
            let more = self.mounted().files.reconciler().reconcile_step(&caller(&self.machine), 1 << 20);
            self.must("storing files as their policy says", more)?;
            self.step_of_volumes(true)?;
        }
        if random.chance(1, 3) {
            self.repack(99, 2)?;
        }
        let (after, youngest) = (self.heats(), before.values().map(|heat| heat.used_seconds).max().unwrap_or(0));
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

    fn heats(&self) -> BTreeMap<u64, SegmentHeat> {
        let store = &self.mounted().store;
        let archived = store.segments().everywhere().into_iter().filter(|one| !one.tertiary().is_none());
        archived.filter(|one| one.live_bytes() > 0).map(|one| (one.id, store.tier.heat.heat_of(one.id))).collect()
    }

    /// What is kept of heat, as it is each five minutes and at the end of a mount, is there after a crash.
    fn prove_heat_kept(&mut self) -> Result<(), Stop> {
        let kept = self.mounted().store.tier.heat.keep_heat();
        self.must("saving how segments were used", kept.map_err(Error::from))?;
        self.sync_all()?;
        let heats = self.heats();
        let found = self.after_a_crash()?;
        let lost =
            heats.iter().find(|(segment, heat)| heat.used_seconds > 0 && found.tier.heat.heat_of(**segment) != **heat);
        match lost {
            None => Ok(()),
            Some((segment, heat)) => {
                let now = found.tier.heat.heat_of(*segment);
                Err(Stop::Failure(format!(
                    "segment {segment} was used as {heat:?}, and {now:?} is known after a crash"
                )))
            }
        }
    }

    fn must_go_in_order(
        &mut self,
        policy: TierPolicy,
        by_marks: bool,
        (lying, uses, judged): (&Lying, &Uses, &BTreeSet<u64>),
        began_seconds: i64,
    ) -> Result<(), Stop> {
        let pinned = self.pinned_now()?;
        let mut candidates = self.mounted().store.tier.heat.release_candidates();
        candidates.retain(|one| (by_marks || one.heat.is_back) && !pinned.contains(&one.segment));
        let may_go: BTreeSet<u64> = candidates.iter().map(|one| one.segment).collect();
        let (youngest, is_unclear) = self.youngest_of_units(lying, uses, &may_go);
        let mut weighed: BTreeMap<u64, Weighed> = BTreeMap::new();
        for one in candidates.iter().filter(|one| judged.contains(&one.segment) && !is_unclear.contains(&one.segment)) {
            let own = uses.of(one.segment);
            let last_seconds = own.last_seconds.max(youngest.get(&one.segment).copied());
            weighed.insert(one.segment, Weighed { used: Use { last_seconds, ..own }, bytes: one.bytes });
        }
        let half_bytes = (candidates.iter().map(|one| one.bytes).sum::<u64>() / 2).max(1);
        let now_seconds = caller(&self.machine).now.seconds;
        let asked = TierPolicy { cache_bytes: if by_marks { 0 } else { half_bytes }, ..policy };
        self.make_room_so(asked, by_marks)?;
        let gone = self.released();
        let (went, stayed): (Vec<_>, Vec<_>) = weighed.iter().partition(|(segment, _)| gone.contains(segment));
        self.summary.tier.heats_proven += u64::from(!went.is_empty() && !stayed.is_empty());
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
        &self,
        lying: &Lying,
        uses: &Uses,
        may_go: &BTreeSet<u64>,
    ) -> (BTreeMap<u64, i64>, BTreeSet<u64>) {
        let (mut youngest, mut is_unclear) = (BTreeMap::new(), BTreeSet::new());
        // What no name leads to may be a version in any of them, and lie with what was read.
        let may_be_younger = lying.nameless.iter().any(|one| uses.of(*one).last_seconds.is_some());
        for segments in self.units_of(lying).into_values() {
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
    fn make_room_so(&mut self, policy: TierPolicy, by_marks: bool) -> Result<(), Stop> {
        let store = self.mounted().store.clone();
        let usual = self.must("reading the order", store.tier.heat.tier_policy(Io::BLOCKING).map_err(Error::from))?;
        let marks = self.must("reading the marks", store.tier.media.tier_marks(Io::BLOCKING).map_err(Error::from))?;
        let high = store.space().used_percent();
        let lower = TierMarks::new(high, high.saturating_sub(1)).filter(|_| by_marks && high > 1);
        self.must("setting the order", store.tier.heat.set_tier_policy(policy).map_err(Error::from))?;
        if let Some(lower) = lower {
            self.must("setting marks", store.tier.media.set_tier_marks(lower).map_err(Error::from))?;
        }
        self.note_commit();
        let kept = self.mounted().files.eviction().keep_room(&caller(&self.machine));
        self.must("making room", kept)?;
        self.must("setting the order", store.tier.heat.set_tier_policy(usual).map_err(Error::from))?;
        self.must("setting marks", store.tier.media.set_tier_marks(marks).map_err(Error::from))?;
        self.note_commit();
        Ok(())
    }
}
