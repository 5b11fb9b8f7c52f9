//! What the daemon does for `stere tier` and `stere media`, a module for each larger answer.

pub mod costs;
pub mod names;
pub mod policy;
pub mod repack;
pub mod retire;
pub mod survey;

use stere_naming::{FileSystem, Io};

use crate::answer::tier::survey::survey;
use stere_control::tier::Order;
use stere_control::tier::report::{SurveyReport, TierReport, Told, VerifyReport};
use stere_machine::error::{Result, refused};
use stere_machine::{clock, size};
use stere_online::media_report::volume_reports;
use stere_online::running::Running;

pub fn report(filesystem: &FileSystem, running: &Running) -> TierReport {
    // What has an encrypted name is told by number; what cannot be read now is left out.
    let path = |inode: u64| match filesystem.tiers().named_inode(Io::BLOCKING, inode) {
        Ok(Some((path, _))) => String::from_utf8_lossy(&path).into_owned(),
        _ => format!("inode {inode}"),
    };
    let pinned = filesystem.eviction().pinned_roots(Io::BLOCKING).unwrap_or_default().into_iter().map(path).collect();
    let counts = running.store.tier.recalls.tertiary_counts();
    // What cannot be read now is as it is usually.
    let marks = running.store.tier.media.tier_marks(Io::BLOCKING).unwrap_or_default();
    let policy = running.store.tier.heat.tier_policy(Io::BLOCKING).unwrap_or_default();
    let folds = running.store.offload().folds(Io::BLOCKING).unwrap_or_default();
    TierReport {
        volumes: volume_reports(running),
        staging_segments: running.store.tier.recalls.wanted_back(),
        reads_under_way: running.tertiary.turns().0,
        reads_waiting: running.tertiary.turns().1,
        segments_uploaded: counts.segments_uploaded,
        bytes_uploaded: counts.bytes_uploaded,
        fetches: counts.fetches,
        bytes_fetched: counts.bytes_fetched,
        bad_objects: counts.bad_objects,
        requests: running.gate.requests(),
        waits_for: running.tertiary.waits_for(),
        stuck: running.store.tier.stager.stuck_uploads(),
        pinned,
        high: marks.high,
        low: marks.low,
        used_percent: running.store.space().used_percent(),
        order: policy.order.word().to_owned(),
        exponent: f64::from(policy.exponent_hundredths) / 100.0,
        cache_bytes: Some(policy.cache_bytes).filter(|bytes| *bytes > 0),
        back_bytes: running.store.tier.heat.bytes_back(),
        keys_put_away: folds.iter().map(|fold| u64::from(fold.keys)).sum(),
        bundles: folds.len() as u64,
    }
}

/// Gives up what is on devices beside the volumes' copies of all below an inode, but for what is pinned or of others too.
fn release_below(filesystem: &FileSystem, running: &Running, root: u64) -> Result<SurveyReport> {
    let (_, mut segments, inodes) = survey(filesystem, running, root)?;
    let staying = filesystem.eviction().staying_among(&clock::own_caller(Io::BLOCKING), &segments, Some(root))?;
    segments.retain(|segment| !staying.has(*segment));
    let segments: Vec<u64> = segments.into_iter().collect();
    // A reader had it come back before this was said.
    running.store.tier.recalls.want_back_no_more(&segments);
    let released =
        filesystem.tiers().release_as_looked_at(&clock::own_caller(Io::BLOCKING), &segments, staying.change)?;
    running.store.commit(Io::BLOCKING)?;
    running.tertiary.forget_attributes(&inodes);
    let (mut report, _, _) = survey(filesystem, running, root)?;
    report.is_partial = released.waiting > 0;
    report.said = format!(
        "released {} segments, {} of devices become free{}{}{}",
        released.segments,
        size::show(released.bytes),
        match released.waiting {
            0 => String::new(),
            waiting => format!("; {waiting} segments are not on all their media yet and stay"),
        },
        match staying.pinned.len() {
            0 => String::new(),
            pinned => format!("; {pinned} segments hold something that is pinned and stay"),
        },
        match staying.of_others.len() as u64 + released.newly_shared {
            0 => String::new(),
            others => format!("; {others} segments share content with files that do not go to media, and stay"),
        }
    );
    Ok(report)
}

/// Stops what is under way below an inode: what is to come back, and what is to go down if it was told to itself.
fn cancel_below(filesystem: &FileSystem, running: &Running, root: u64, goes_down: bool) -> Result<Told> {
    let (mut report, segments, _) = survey(filesystem, running, root)?;
    let segments: Vec<u64> = segments.into_iter().collect();
    filesystem.units().forget_coming_units();
    let (staging, uploads) = match goes_down {
        true => (
            running.store.tier.recalls.want_back_no_more(&segments),
            running.store.tier.uploader.upload_no_more(&segments)?,
        ),
        false => (running.store.tier.recalls.want_back_no_more(&segments), 0),
    };
    let words = [(staging, "to come back"), (uploads, "to be copied out")].into_iter().filter(|(count, _)| *count > 0);
    let words = words.map(|(count, what)| format!("segments that were {what} and stay where they are: {count}"));
    report.said = words.collect::<Vec<_>>().join("; ");
    Ok(Told::Survey(report))
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, running: &Running, order: &Order) -> Result<Told> {
    match order {
        Order::Tell => Ok(Told::Tier(report(filesystem, running))),
        Order::Push => {
            running.tertiary.push();
            Ok(Told::Tier(report(filesystem, running)))
        }
        Order::Survey(root) => Ok(Told::Survey(survey(filesystem, running, *root)?.0)),
        Order::Policy(change) => {
            policy::apply(filesystem, running, change)?;
            Ok(Told::Tier(report(filesystem, running)))
        }
        Order::Release(root) => Ok(Told::Survey(release_below(filesystem, running, *root)?)),
        Order::PutAway(root) => Ok(Told::Survey(names::put_away_below(filesystem, running, *root)?)),
        Order::Pin(root, is_pinned) => {
            let caller = clock::own_caller(Io::BLOCKING);
            filesystem.command(&caller, || filesystem.eviction().set_pinned(caller.io, *root, *is_pinned))?;
            running.store.commit(Io::BLOCKING)?;
            match is_pinned {
                true => serve(filesystem, running, &Order::Stage(*root)),
                false => Ok(Told::Survey(survey(filesystem, running, *root)?.0)),
            }
        }
        Order::Stage(root) => {
            // Names first: what they lead to is known then.
            filesystem.offload().reload_below(&clock::own_caller(Io::BLOCKING), *root)?;
            let (mut report, segments, inodes) = survey(filesystem, running, *root)?;
            let (caller, segments) = (clock::own_caller(Io::BLOCKING), segments.into_iter().collect::<Vec<_>>());
            filesystem.tiers().bring_back(&caller, &segments, &inodes)?;
            running.tertiary.wake();
            running.tertiary.forget_attributes(&inodes);
            report.said = format!("bringing {} back", size::show(report.released_bytes));
            Ok(Told::Survey(report))
        }
        Order::Cancel(root, goes_down) => cancel_below(filesystem, running, *root, *goes_down),
        Order::Costs(root, to) => costs::forecast(filesystem, running, *root, to.as_deref()),
        Order::Price(volume, change) => costs::price(filesystem, running, volume, change),
        Order::Retire { volume, to, dry_run } => retire::begin(running, volume, to.as_deref(), *dry_run),
        Order::Repack { volume, below } => repack::repack_some(filesystem, running, volume.as_deref(), *below),
        Order::Verify { volume, reads } => {
            let Some(entry) = running.find_volume(volume) else {
                return refused(format!("the pool '{}' has no medium '{volume}'", running.pool));
            };
            let swept = running.store.tier.sweeper.sweep_volume(entry.number, *reads)?;
            running.store.commit(Io::BLOCKING)?;
            Ok(Told::Verify(VerifyReport {
                volume: entry.name,
                objects: swept.objects,
                bytes: swept.bytes,
                deleted: swept.deleted,
                lacking: swept.lacking,
                damaged: swept.damaged,
            }))
        }
    }
}
