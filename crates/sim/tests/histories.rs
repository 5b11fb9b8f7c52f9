//! The simulator at work: histories pass, a seed replays exactly, and what is wrong on purpose is found.

use stere_sim::area::Area;
use stere_sim::clients::crowd::{self, Size};
use stere_sim::exhaustive;
use stere_sim::fault::FaultKind;
use stere_sim::run::{self, Request};

fn request(histories: u64, faults: &[FaultKind]) -> Request {
    Request {
        histories,
        seed: 7_000,
        steps: 60,
        faults: faults.to_vec(),
        threads: 2,
        profile: None,
        canary: false,
        without_areas: false,
        area: None,
        twice: false,
        #[cfg(feature = "planted-bugs")]
        bug: None,
    }
}

/// P-1, P-2, P-4, P-6, P-8, P-15, P-104 to P-106, P-117, P-118, P-120, P-121, P-124, P-128, P-129, P-137 to P-139, P-141 to P-143, P-145, P-146, P-152, P-158: what the oracle demands of every history.
#[test]
fn histories_without_faults_pass() {
    let outcome = run::run_many(&request(150, &[]), 1);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert!(outcome.totals.over_quota > 10, "{:?}", outcome.totals);
    assert!(outcome.totals.torn_crashes > 50 && outcome.totals.remounts > 50, "{:?}", outcome.totals);
    assert!(outcome.totals.digests_proven > 10, "{:?}", outcome.totals);
    assert!(outcome.totals.plugin_troubles > 5, "{:?}", outcome.totals);
    let totals = outcome.totals;
    assert!(totals.lists_compared > 10 && totals.lists_proven > 10, "{totals:?}");
    assert!(totals.backups_done > 5 && totals.backups_cut > 2 && totals.backups_proven > 5, "{totals:?}");
    assert!(totals.records_proven > 10 && totals.told_compared > 10, "{totals:?}");
    assert!(totals.accounts_compared > 10 && totals.stored_reached > 5, "{totals:?}");
    assert!(totals.names_put_away > 100 && totals.names_proven > 2, "{totals:?}");
    assert!(totals.places_compared > 10 && totals.places_met > 10, "{totals:?}");
    assert!(totals.nearly_full > 0, "{totals:?}");
}

/// P-137 to P-139, P-145, P-146: histories in which it matters how segments are used, recalled and kept together.
#[test]
fn histories_of_tiers_prove_something() {
    let outcome = run::run_many(&Request { area: Some(Area::Tiers), ..request(150, &[]) }, 1);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let tier = outcome.totals.tier;
    assert!(tier.heats_proven > 20 && tier.units_proven > 20 && tier.units_down > 2, "{tier:?}");
    assert!(tier.followers_proven > 10 && tier.ahead_proven > 2 && tier.turns_taken > 100, "{tier:?}");
}

/// P-62: an hour of errors is seen to its end in a good part of the histories of its area.
#[test]
fn hours_of_errors_are_outlasted() {
    let outcome = run::run_many(&Request { area: Some(Area::Volumes), ..request(60, &[]) }, 1);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert!(outcome.totals.tier.outlasted > 10, "{:?}", outcome.totals);
}

/// P-20, P-21, P-157, P-160, P-162, P-216: histories in which devices hang, spares take over, and several machines want the pool.
#[test]
fn histories_of_failing_devices_prove_something() {
    let outcome = run::run_many(&Request { area: Some(Area::Failing), ..request(150, &FaultKind::ALL) }, 1);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    let totals = outcome.totals;
    assert!(totals.hangs[0] > 10 && totals.hangs[1] > 2, "{totals:?}");
    assert!(totals.takeovers.iter().sum::<u64>() > 10, "{totals:?}");
    assert!(totals.rivals[0] > 20 && totals.rivals[1] > 20, "{totals:?}");
}

/// P-3, P-4, P-5: what copies bear does no harm, and what they do not bear gives no wrong byte.
#[test]
fn histories_with_faults_pass() {
    let outcome = run::run_many(&request(150, &FaultKind::ALL), 1);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert!(outcome.with_faults > 20, "{:?}", outcome.totals);
    assert!(outcome.totals.tier.changed_meanwhile > 0, "{:?}", outcome.totals);
}

/// P-10.
#[test]
fn one_seed_is_one_history() {
    for faults in [&[][..], &FaultKind::ALL] {
        let outcome = run::run_many(&Request { twice: true, ..request(40, faults) }, 1);
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    }
}

#[test]
fn the_canary_is_found() {
    let outcome = run::run_many(&Request { canary: true, ..request(20, &[]) }, 1);
    assert!(outcome.failed.iter().any(|failed| failed.failure.text.contains("canary")), "{:?}", outcome.failed);
}

/// P-1, P-2: a sample here; `sim --exhaustive` runs all.
#[test]
fn every_crash_point_of_short_workloads() {
    let outcome = exhaustive::run(60, 2);
    assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
    assert!(outcome.recoveries > 1000, "{outcome:?}");
}

/// P-240 to P-242. `STERE_CLUSTER_HISTORIES` asks for more.
#[test]
fn owners_of_a_shared_log_follow_each_other() {
    let asked = std::env::var("STERE_CLUSTER_HISTORIES").ok().and_then(|text| text.parse().ok());
    let count = asked.unwrap_or(20_000);
    let first = std::env::var("STERE_CLUSTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (seen, failure) = stere_sim::cluster::run_many(first, count, None);
    println!("{seen:?}");
    assert_eq!(failure, None);
    let is_enough = seen.takeovers > count && seen.woken > count / 2 && seen.acknowledged > 4 * count;
    assert!(is_enough && seen.crashes > count / 2 && seen.caught_up > count / 4, "{seen:?}");
    assert!(seen.arrived_late > count && seen.records_late > count / 8, "{seen:?}");
    assert!(seen.stopped_clocks > count / 2 && seen.lease_over > count / 2, "{seen:?}");
    assert!(seen.parted > count / 2 && seen.without_log > count / 8 && seen.rotten > count / 8, "{seen:?}");
}

/// P-266. `STERE_CLIENT_HISTORIES` asks for more.
#[test]
fn what_machines_ask_for_takes_effect_once() {
    let asked = std::env::var("STERE_CLIENT_HISTORIES").ok().and_then(|text| text.parse().ok());
    let count = asked.unwrap_or(2000);
    let first = std::env::var("STERE_CLUSTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (seen, failure) = stere_sim::clients::run_many(first, count, None);
    println!("{seen:?}");
    assert_eq!(failure, None);
    assert!(seen.owners > 3 * count && seen.answered > 20 * count, "{seen:?}");
    assert!(seen.noted > count && seen.duplicates > count && seen.lost > count, "{seen:?}");
}

/// P-266: a thousand machines, one owner, and the next one.
#[test]
fn a_thousand_machines_are_served_by_one_owner_after_the_other() {
    let size = Size { machines: 1000, requests_each: 12 };
    let told = crowd::run(1, size).unwrap();
    println!("{told:?}");
    assert_eq!(told.answered, 12_000);
    assert!(told.noted > 0, "requests that were done came again: {told:?}");
    // Four are under way; those behind the oldest that has no answer keep their notes as well.
    assert!(told.notes <= 8 * size.machines, "notes are bounded: {told:?}");
    assert!(told.all_served_ms < 10_000, "{told:?}");
}

#[cfg(feature = "planted-bugs")]
mod planted {
    use super::*;
    use std::collections::BTreeMap;
    use stere_faults::Bug;

    /// P-114, P-115: in few histories, without faults.
    #[test]
    fn planted_bugs_of_quotas_are_found_soon() {
        for bug in [Bug::GraceBeginsAnew, Bug::OthersIncludeRoot] {
            let outcome = run::run_many(&Request { bug: Some(bug), ..request(400, &[]) }, 1);
            let found = outcome.failed.first().map(|failed| failed.failure.to_string());
            println!("{bug:?}: after {} histories: {found:?}", outcome.histories);
            assert!(found.is_some_and(|text| text.contains("122") || text.contains("a crash left")), "{bug:?}");
        }
    }

    /// P-266.
    #[test]
    fn a_request_that_is_not_noted_is_found() {
        stere_faults::plant(Some(Bug::RequestNotNoted));
        let crowded = crowd::run(1, Size { machines: 100, requests_each: 12 });
        stere_faults::plant(None);
        assert!(crowded.is_err(), "{crowded:?}");
        let (seen, failure) = stere_sim::clients::run_many(1, 200, Some(Bug::RequestNotNoted));
        println!("after {} histories: {failure:?}", seen.histories);
        assert!(failure.is_some());
    }

    /// P-240 to P-242: the bugs of the design of several machines.
    #[test]
    fn planted_bugs_of_the_cluster_are_found() {
        let only = std::env::var("BUG").ok();
        // Bugs that parted nodes show, too.
        let of_nodes = [Bug::CommitWithoutFlush, Bug::StrandedForgotten, Bug::AbsenceForgotten];
        let all = Bug::CLUSTER.into_iter().chain(of_nodes);
        for bug in all.filter(|bug| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"))) {
            // Rare: one history in some twenty thousand. From this one on it is near.
            let first = if bug == Bug::LentForgotten { 21_600 } else { 1 };
            let (seen, failure) = stere_sim::cluster::run_many(first, 1500, Some(bug));
            println!("{bug:?}: after {} histories: {failure:?}", seen.histories);
            assert!(failure.is_some(), "{bug:?} is not found");
        }
    }

    /// P-1, P-2, P-4 to P-7, P-8, P-9, P-13, P-18 to P-23, P-30, P-31, P-50, P-60, P-62 to P-64, P-66, P-75, P-87, P-104 to P-106, P-111 to P-113, P-116 to P-118, P-120, P-121, P-124, P-128, P-129, P-137 to P-139, P-141 to P-143, P-145 to P-148, P-152, P-157, P-160, P-162, P-189: each of these bugs breaks one of them.
    #[test]
    fn every_planted_bug_is_found() {
        let (mut missed, mut seeds) = (Vec::new(), seeds());
        // While one is being written: `BUG=CommitWithoutFlush` looks for that one only.
        let only = std::env::var("BUG").ok();
        let is_asked = |bug: &Bug| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
        for bug in Bug::ALL.into_iter().filter(is_asked) {
            // Few histories replace a lost device where all kinds of faults are drawn.
            let faults = match bug {
                Bug::ReplacementTrusted => &[FaultKind::LostDevice][..],
                Bug::HiddenRowPassed => &[FaultKind::LostWrite],
                // Wrong bytes must lie just where a call that may not wait reads.
                Bug::ArrivedBelieved => &[FaultKind::BitRot],
                _ => &FaultKind::ALL,
            };
            let usual = request(3_000, faults);
            // Rare: one history in some thousands. From these on they are near.
            let seed = match bug {
                Bug::EpochIgnored => 203_600,
                Bug::VersionNeedsRoom => 90_000_000,
                Bug::ScrubTrusting => 10_200,
                Bug::FullestRepacked => 7_150,
                Bug::ToldTooEarly => 7_060,
                Bug::PlacedUntold => 7_110,
                _ => usual.seed,
            };
            // The others are found where they always were.
            let is_of_area = matches!(
                bug,
                Bug::RuledListForgotten
                    | Bug::RecordsUncut
                    | Bug::ListLockIgnored
                    | Bug::ToldTooEarly
                    | Bug::FollowerInTheWay
                    | Bug::MetBelieved
                    | Bug::PlacedUntold
                    | Bug::CopiedInTheClear
            );
            // What needs one area is looked for in histories of that.
            let area = match bug {
                Bug::RequirementForgotten | Bug::CleanedElsewhere | Bug::WishRequired | Bug::WishForgotten => {
                    Some(Area::Places)
                }
                Bug::OtherNamesForgotten | Bug::ParentLeftBehind => Some(Area::Records),
                Bug::ExchangeUnnoticed => Some(Area::Volumes),
                Bug::StoredWhileEndless | Bug::OuterLimitForgotten | Bug::VolumeMovedAlone => Some(Area::Accounts),
                Bug::UnfoldedInPart | Bug::UseOfNamesForgotten => Some(Area::Cold),
                Bug::SilentAskedOnce
                | Bug::LastOneGivenUp
                | Bug::RestDropped
                | Bug::SpareStays
                | Bug::RivalUnwatched
                | Bug::RivalOverwritten
                | Bug::OutdatedBelieved => Some(Area::Failing),
                Bug::HeatForgotten
                | Bug::ProvenIsUsed
                | Bug::LastGoesFirst
                | Bug::TurnTooMany
                | Bug::PassedForEver
                | Bug::UnitNoIgnored
                | Bug::UnitComesApart
                | Bug::UnitAgesApart
                | Bug::UnitGoesApart
                | Bug::FollowersForgotten
                | Bug::AheadUnbounded
                | Bug::AheadToDevices
                | Bug::OthersReleased => Some(Area::Tiers),
                Bug::AlwaysForgotten | Bug::RelaxedUnordered | Bug::ReleasedTooEarly => Some(Area::Syncs),
                _ => None,
            };
            let without_areas = !is_of_area && area.is_none();
            let request = Request { bug: Some(bug), seed, without_areas, area, ..usual };
            let begin = std::time::Instant::now();
            let known = seeds.get(&format!("{bug:?}"));
            let known = known.map(|seed| run::run_many(&Request { histories: 1, seed: *seed, ..request.clone() }, 1));
            let outcome = match known.filter(|outcome| !outcome.failed.is_empty()) {
                Some(outcome) => outcome,
                None => run::run_many(&request, 1),
            };
            let found = outcome.failed.first();
            let text = found.map(|found| found.failure.to_string());
            println!("{bug:?}: after {} histories, {:.1?}: {text:?}", outcome.histories, begin.elapsed());
            match found {
                Some(found) => drop(seeds.insert(format!("{bug:?}"), found.seed)),
                None => missed.push(bug),
            }
        }
        if std::env::var_os("RECORD").is_some() {
            write_seeds(&seeds);
        }
        assert!(missed.is_empty(), "not found: {missed:?}");
    }

    const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/planted.seeds");

    /// Where each was found last: looked at first. Histories change with what they are drawn from, and a seed that shows
    /// its bug no longer costs time only: all histories are looked through then. `RECORD=1` writes them anew.
    fn seeds() -> BTreeMap<String, u64> {
        let text = std::fs::read_to_string(SEEDS).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(bug, seed)| (bug.to_owned(), seed.parse().expect("a seed is a number"))).collect()
    }

    fn write_seeds(seeds: &BTreeMap<String, u64>) {
        let known = |name: &String| Bug::ALL.into_iter().any(|bug| format!("{bug:?}") == *name);
        let lines = seeds.iter().filter(|(name, _)| known(name)).map(|(name, seed)| format!("{name} {seed}\n"));
        std::fs::write(SEEDS, lines.collect::<String>()).expect("seeds are written");
    }
}
