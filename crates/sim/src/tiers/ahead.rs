//! P-146: what was recalled one after the other is known, after a crash too, and comes before it is asked for.

use std::collections::{BTreeMap, BTreeSet};

use stere_format::Successors;
use stere_store::Prefetch;

use super::SECOND_NS;
use crate::content::pattern;
use crate::history::{History, Stop};
use crate::pool::PoolUnderTest;
use crate::random::Random;
use crate::{execute::contents, tertiary, tiers};

/// Files that are recalled one after the other: more than may be fetched ahead.
const CHAIN: u64 = 10;
/// So many segments are fetched ahead for one, by what followed it before.
const AHEAD_MAX: usize = 6;
/// What was written next has a number that is no farther.
const NEXT_MAX: u64 = 16;
/// The class of volumes from which nothing is fetched because it followed before.
const CLASS_MEDIA: u8 = 4;
/// Steps of the work that must not bring anything to devices.
const STEPS: u8 = 4;

impl PoolUnderTest {
    fn fetches(&self) -> u64 {
        self.mounted().store.tier.recalls.tertiary_counts().fetches
    }

    fn is_on_media(&self, segment: u64) -> bool {
        let store = &self.mounted().store;
        let there = store.segments().get(segment).map_or(0, |one| one.tertiary().there);
        store.tier.media.volumes().iter().any(|entry| entry.bit() & there != 0 && entry.class == CLASS_MEDIA)
    }
}

/// Everything is as if it had just been released; false if that cannot be had.
pub(crate) fn all_freshly_released(history: &mut History) -> Result<bool, Stop> {
    let is_back = tiers::all_back(history)?;
    tiers::release_all(history)?;
    Ok(is_back)
}

/// Files of which all is in one segment that is on volumes only, and which.
fn single(history: &mut History) -> Result<BTreeMap<u64, u64>, Stop> {
    let lying = tiers::lying(history)?;
    let single = lying.files.into_iter().filter_map(|(inode, segments)| match segments.first() {
        Some(first) if segments.len() == 1 && history.pool.is_released(*first) => Some((inode, *first)),
        _ => None,
    });
    Ok(single.collect())
}

/// Files are recalled in this order, each in a segment of its own; those of which a volume was asked, with their segments.
fn recall_in_order(history: &mut History, files: &[(u64, u64)], random: &mut Random) -> Result<Vec<(u64, u64)>, Stop> {
    let store = history.mounted().store.clone();
    let mut recalled: Vec<(u64, u64)> = Vec::new();
    for (inode, segment) in files.iter().copied() {
        if recalled.iter().any(|(_, other)| *other == segment) {
            continue;
        }
        history.machine.count_anew();
        store.tier.recalls.note_time(history.machine.now_ns() / SECOND_NS);
        let before = recalled.last().map(|(_, before)| (*before, store.tier.recalls.recalled_after(*before)));
        let fetches = history.pool.fetches();
        tiers::read_right(history, inode)?;
        // What memory has is not recalled.
        if history.pool.fetches() == fetches {
            continue;
        }
        if let Some((before, followers)) = before
            && followers.len() < Successors::COUNT_MAX
            && !store.tier.recalls.recalled_after(before).contains(&segment)
        {
            let text = format!("segment {segment} was recalled after {before}, and nobody knows: {followers:?}");
            return Err(Stop::Failure(text));
        }
        recalled.push((inode, segment));
        history.machine.pass(random.below(5) * SECOND_NS);
    }
    Ok(recalled)
}

pub(crate) fn prove_followers_known(history: &mut History, seed: u64) -> Result<(), Stop> {
    let mut random = Random::new(seed);
    if !all_freshly_released(history)? {
        return Ok(());
    }
    let store = history.mounted().store.clone();
    store.tier.recalls.set_prefetch(if random.chance(1, 2) { Prefetch::Cluster } else { Prefetch::Sequence });
    let single: Vec<(u64, u64)> = single(history)?.into_iter().collect();
    let files: Vec<(u64, u64)> = random.order(single.len()).into_iter().map(|at| single[at]).collect();
    let recalled = recall_in_order(history, &files, &mut random)?;
    store.tier.recalls.set_prefetch(Prefetch::default());
    tertiary::step_of_volumes(history, false)?;
    history.sync_all()?;
    let found = tiers::after_a_crash(history)?;
    for (_, segment) in &recalled {
        let (before, after) =
            (store.tier.recalls.recalled_after(*segment), found.tier.recalls.recalled_after(*segment));
        if before != after {
            let text =
                format!("{before:?} were recalled after segment {segment}, and {after:?} are known after a crash");
            return Err(Stop::Failure(text));
        }
    }
    history.summary.tier.followers_proven += u64::from(recalled.len() > 1);
    Ok(())
}

/// What followed a file before comes with it the next time: no more than may, nothing to devices, and no wrong byte where files are
/// others meanwhile.
pub(crate) fn prove_ahead(history: &mut History, seed: u64) -> Result<(), Stop> {
    let mut random = Random::new(seed);
    let made = tiers::make_apart(history, CHAIN, seed)?;
    if made.is_empty() || !all_freshly_released(history)? {
        return Ok(());
    }
    let store = history.mounted().store.clone();
    store.tier.recalls.set_prefetch(Prefetch::Nothing);
    let single = single(history)?;
    let alone: Vec<(u64, u64)> = made.iter().filter_map(|inode| Some((*inode, *single.get(inode)?))).collect();
    let files: Vec<(u64, u64)> = random.order(alone.len()).into_iter().map(|at| alone[at]).collect();
    let had_room =
        files.first().is_some_and(|(_, one)| store.tier.recalls.recalled_after(*one).len() < Successors::COUNT_MAX);
    let chain = recall_in_order(history, &files, &mut random)?;
    if chain.len() < 3 || !all_freshly_released(history)? {
        return Ok(());
    }
    let changed = random.chance(1, 2).then(|| chain[random.between(1, chain.len() as u64 - 1) as usize].0);
    if let Some(inode) = changed {
        history.machine.count_anew();
        contents::write(history, inode, random.below(4_000), &pattern(seed, 3_000))?;
        history.sync_all()?;
    }
    store.tier.recalls.set_prefetch(Prefetch::Cluster);
    store.tier.recalls.fetch_ahead_in_steps(true);
    let expected = Some(chain[1]).filter(|(inode, _)| had_room && Some(*inode) != changed);
    let outcome = come_ahead(history, chain[0], expected);
    let store = history.mounted().store.clone();
    store.tier.recalls.set_prefetch(Prefetch::default());
    let left = store.tier.recalls.fetch_one_ahead();
    store.tier.recalls.fetch_ahead_in_steps(false);
    outcome?;
    if let Some(segment) = left {
        return Err(Stop::Failure(format!("segment {segment} is fetched ahead though that was said to end")));
    }
    made.iter().try_for_each(|inode| tiers::read_right(history, *inode).map(drop))
}

/// The first file is recalled, and what lent threads would do is done.
fn come_ahead(history: &mut History, first: (u64, u64), second: Option<(u64, u64)>) -> Result<(), Stop> {
    let store = history.mounted().store.clone();
    let fetches = history.pool.fetches();
    tiers::read_right(history, first.0)?;
    if history.pool.fetches() == fetches {
        return Ok(());
    }
    let mut ahead = BTreeSet::new();
    while let Some(segment) = store.tier.recalls.fetch_one_ahead() {
        ahead.insert(segment);
    }
    let next: BTreeSet<u64> = (first.1 + 1..=first.1 + NEXT_MAX).collect();
    let (mut followed, mut ways) = (BTreeSet::new(), vec![first.1]);
    while let Some(from) = ways.pop() {
        ways.extend(store.tier.recalls.recalled_after(from).into_iter().filter(|one| followed.insert(*one)));
    }
    if ahead.len() > AHEAD_MAX + 1 || ahead.iter().filter(|one| !next.contains(one)).count() > AHEAD_MAX {
        return Err(Stop::Failure(format!("for segment {} these are fetched ahead: {ahead:?}", first.1)));
    }
    if let Some(segment) = ahead.iter().find(|one| !followed.contains(one) && !next.contains(one)) {
        return Err(Stop::Failure(format!("segment {segment} is fetched ahead, and never followed {}", first.1)));
    }
    let released: Vec<u64> = ahead.iter().copied().filter(|one| history.pool.is_released(*one)).collect();
    for _ in 0..STEPS {
        tertiary::step_of_volumes(history, false)?;
    }
    if let Some(segment) = released.iter().find(|one| !history.pool.is_released(**one)) {
        return Err(Stop::Failure(format!("segment {segment} came to devices, and nobody read it")));
    }
    let Some((inode, segment)) =
        second.filter(|(_, one)| history.pool.is_released(*one) && !history.pool.is_on_media(*one))
    else {
        return Ok(());
    };
    let fetches = history.pool.fetches();
    tiers::read_right(history, inode)?;
    if !ahead.contains(&segment) || history.pool.fetches() > fetches {
        let text = format!("segment {segment} followed {} before, and was not fetched ahead: {ahead:?}", first.1);
        return Err(Stop::Failure(text));
    }
    history.summary.tier.ahead_proven += 1;
    Ok(())
}
