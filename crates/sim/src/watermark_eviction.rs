//! What histories do with marks and with writers that find no room: archived segments go by themselves, pinned ones never.
//!
//! The oracle: below the high mark nothing is released; above it devices come down to the low one, or nothing is left that may go. A
//! write fails for lack of room only when nothing is left that may go. Read next: `tertiary.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use stere_naming::Error;
use stere_store::TierMarks;

use crate::execute::names;
use crate::history::{History, Stop};
use crate::model::{Node, ROOT};
use crate::operation::Path;
use crate::pool::caller;
use crate::tertiary::PIN_ATTRIBUTE;

/// Segments that may be released: on all their volumes, and nothing in them is pinned, or of others.
pub(crate) fn may_go_down(history: &mut History, named: Option<u64>) -> Result<BTreeSet<u64>, Stop> {
    let mut releasable = history.mounted().store.tier.stager.releasable_segments();
    let staying = history.mounted().files.eviction().staying_among(&caller(&history.machine), &releasable, named);
    let staying = history.must("looking for what stays", staying)?;
    releasable.retain(|segment| !staying.has(*segment));
    Ok(releasable)
}

pub(crate) fn pinned(history: &mut History) -> Result<BTreeSet<u64>, Stop> {
    let pinned = history.mounted().files.eviction().pinned_segments(&caller(&history.machine));
    history.must("looking for what is pinned", pinned)
}

/// Segments on devices that files have something in which do not go to media, and are not below `named`. Found by walking over all
/// files, as the product does not.
pub(crate) fn of_others(history: &mut History, named: Option<u64>) -> Result<BTreeSet<u64>, Stop> {
    let (mut segments, mut below) = (BTreeSet::new(), BTreeSet::new());
    let who = caller(&history.machine);
    let tiers = history.mounted().files.tiers();
    let walked = named.map_or(Ok(()), |named| {
        tiers.tier_walk(&who, named, &mut |met| {
            below.insert(met.inode);
            ControlFlow::Continue(())
        })
    });
    let walked = walked.and_then(|()| {
        tiers.tier_walk(&who, ROOT, &mut |met| {
            if !met.is_tiered && !below.contains(&met.inode) {
                segments.extend(met.segments);
            }
            ControlFlow::Continue(())
        })
    });
    let table = history.mounted().store.segments();
    segments.retain(|id| table.get(*id).is_some_and(|segment| !segment.is_released()));
    history.must("looking for what is of others", walked)?;
    Ok(segments)
}

/// P-231: what others need on devices is there after something was released.
pub(crate) fn must_have_kept(history: &mut History, of_others: &BTreeSet<u64>) -> Result<(), Stop> {
    let table = history.mounted().store.segments();
    let is_gone = |id: &&u64| table.get(**id).is_some_and(|segment| segment.is_released());
    match of_others.iter().find(is_gone) {
        Some(segment) => {
            Err(Stop::Failure(format!("segment {segment} was released, and files share it that do not go to media")))
        }
        None => Ok(()),
    }
}

/// As a mount does now and then.
pub(crate) fn keep_room(history: &mut History, under: u8, by: u8) -> Result<(), Stop> {
    let high = history.mounted().store.space().used_percent().saturating_sub(under).max(2);
    let low = high.saturating_sub(by).max(1);
    let Some(marks) = TierMarks::new(high, low) else { return Ok(()) };
    let set = history.command(|files, _| Ok(files.store().tier.media.set_tier_marks(marks)?));
    if matches!(set, Err(Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    history.must("setting marks", set)?;
    history.note_commit();
    let releasable = history.mounted().store.tier.stager.releasable_segments();
    let (pinned, others) = (pinned(history)?, of_others(history, None)?);
    let before = history.mounted().store.space().used_percent();
    let kept = history.mounted().files.eviction().keep_room(&caller(&history.machine));
    if matches!(kept, Err(Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    let released = history.must("making room", kept)?;
    must_have_kept(history, &others)?;
    let left = may_go_down(history, None)?;
    let store = &history.mounted().store;
    let (after, segments) = (store.space().used_percent(), store.segments());
    let is_gone = |id: &&u64| segments.get(**id).is_some_and(|segment| segment.is_released());
    if let Some(segment) = releasable.intersection(&pinned).find(is_gone) {
        return Err(Stop::Failure(format!("segment {segment} is pinned, and was released by itself")));
    }
    let text = match released {
        None if before >= high => format!("{before} % are in use, the mark is {high}, and nothing is done"),
        Some(_) if before < high && !history.asks_release => {
            format!("{before} % are in use, the mark is {high}, and room is made")
        }
        Some(_) if after > low && !left.is_empty() => {
            format!("{after} % are in use, {low} is low, and segments {left:?} are still there")
        }
        _ => String::new(),
    };
    if !text.is_empty() {
        return Err(Stop::Failure(text));
    }
    if let Some(count) = released.filter(|count| *count > 0) {
        history.summary.tier.segments_evicted += count;
        history.note_commit();
    }
    Ok(())
}

const RELEASE_ATTRIBUTE: &[u8] = b"user.stere.release";
const EFFECTIVE_RELEASE: &[u8] = b"user.stere.effective.release";
const RELEASE_TIMES: [(&[u8], u64); 4] = [(b"1s", 1), (b"1m", 60), (b"1h", 3600), (b"no", 0)];

/// A file or a directory says for how long nobody may have used what is on volumes before devices give it up.
pub(crate) fn ask_release(history: &mut History, path: Path, pick: u8) -> Result<(), Stop> {
    let inode = names::plain_inode(history, path)?.filter(|_| history.mounted().store.tier.media.has_volumes());
    let Some(inode) = inode else { return Ok(()) };
    history.asks_release = true;
    names::put_policy(history, inode, RELEASE_ATTRIBUTE, RELEASE_TIMES[usize::from(pick) % RELEASE_TIMES.len()].0)
}

/// There is room, and what nobody used for long goes all the same: that, and nothing else.
pub(crate) fn keep_unused(history: &mut History) -> Result<(), Stop> {
    let Some(marks) = TierMarks::new(100, 99).filter(|_| history.asks_release) else { return Ok(()) };
    let set = history.command(|files, _| Ok(files.store().tier.media.set_tier_marks(marks)?));
    if matches!(set, Err(Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    history.must("setting marks", set)?;
    history.note_commit();
    if history.mounted().store.space().used_percent() >= 100 {
        return Ok(());
    }
    let (releasable, others) = (history.mounted().store.tier.stager.releasable_segments(), of_others(history, None)?);
    let pinned = pinned(history)?;
    let unused = unused(history, &releasable)?;
    let kept = history.mounted().files.eviction().keep_room(&caller(&history.machine));
    if matches!(kept, Err(Error::NoSpace)) && history.plan.may_fill {
        return Ok(());
    }
    history.must("giving up what nobody uses", kept)?;
    must_have_kept(history, &others)?;
    let segments = history.mounted().store.segments();
    let is_gone = |id: &&u64| segments.get(**id).is_some_and(|segment| segment.is_released());
    let gone: Vec<u64> = releasable.iter().filter(is_gone).copied().collect();
    if let Some(segment) = gone.iter().find(|segment| !unused.contains(segment) || pinned.contains(segment)) {
        return Err(Stop::Failure(format!("segment {segment} was released sooner than its files ask for")));
    }
    history.summary.tier.segments_unused += gone.len() as u64;
    history.note_commit();
    Ok(())
}

/// Of these segments those that everything in them lets go now.
fn unused(history: &mut History, releasable: &BTreeSet<u64>) -> Result<BTreeSet<u64>, Stop> {
    let (store, who) = (history.mounted().store.clone(), caller(&history.machine));
    let now_seconds = u64::try_from(who.now.seconds).unwrap_or(0);
    let used: BTreeMap<u64, u64> =
        store.tier.heat.release_candidates().into_iter().map(|one| (one.segment, one.heat.used_seconds)).collect();
    let mut unused = BTreeSet::new();
    for segment in releasable {
        let members = store.tier.heat.members_of_segment(*segment).map_err(Error::from);
        let members = history.must("what lies in a segment", members)?;
        let rest = now_seconds.saturating_sub(used.get(segment).copied().unwrap_or(now_seconds));
        let mut goes = !members.inodes.is_empty();
        for inode in members.inodes.keys() {
            goes &= match history.mounted().files.getxattr(&who, *inode, EFFECTIVE_RELEASE) {
                Ok(text) => RELEASE_TIMES.iter().any(|(time, least)| *time == text && *least > 0 && rest >= *least),
                // It is gone, and keeps nothing here.
                Err(Error::Stale | Error::NotFound) => true,
                Err(_) => false,
            };
        }
        if goes {
            unused.insert(*segment);
        }
    }
    Ok(unused)
}

/// A write found no room.
pub(crate) fn must_have_no_room(history: &mut History) -> Result<(), Stop> {
    if !history.mounted().store.tier.media.has_volumes() || history.machine.is_off() || !history.pool.is_calm() {
        return Ok(());
    }
    let left = may_go_down(history, None)?;
    // What a pinned file held, and only versions hold since it was cut, the background looks at again, not every writer.
    let is_pinned = |node: &Node| node.attributes.contains_key(PIN_ATTRIBUTE);
    let were_pinned = history.plan.pool.keeps_versions && history.model.nodes.values().any(is_pinned);
    match left.is_empty() || were_pinned {
        true => Ok(()),
        false => Err(Stop::Failure(format!("a write finds no room, and segments {left:?} may be released"))),
    }
}
