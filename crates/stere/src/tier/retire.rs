//! `stere media retire`: a volume is taken out of use, and another one takes over all that is on it and was meant for it.
//!
//! The daemon does the work by itself, as it copies out what is archived; this begins it and tells how far it is.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stere_format::VolumeEntry;
use stere_store::VolumeStatus;

use super::{Order, POLL, STANDSTILL, Told, ask, ask_tier, open};
use crate::control::Connection;
use crate::error::{DEGRADED, DONE, Result, refused};
use crate::registry::Registry;
use crate::running::Running;
use crate::size;
use crate::status::to_json;

const TELL_EVERY: Duration = Duration::from_secs(2);

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetireReport {
    pub volume: String,
    /// Who takes over.
    pub heir: String,
    pub segments_left: u64,
    pub bytes_left: u64,
    /// The volume is no part of the pool any more.
    pub is_done: bool,
    /// Why it does not go on.
    pub waits_for: Option<String>,
}

/// Begins it, for the daemon.
pub fn begin(running: &Running, volume: &str, to: Option<&str>, dry_run: bool) -> Result<Told> {
    let store = &running.store;
    let find = |name: &str| match running.find_volume(name) {
        Some(entry) => Ok(entry),
        None => refused(format!("the pool '{0}' has no volume '{name}'; see `stere media list {0}`", running.pool)),
    };
    let old = find(volume)?;
    let heir = match (to, old.succession.heir()) {
        (Some(name), _) => find(name)?.number,
        (None, Some(heir)) => heir,
        (None, None) => heir_for(running, &old)?,
    };
    let (segments_left, bytes_left) = match dry_run {
        true => store.tier.media.check_retirement(old.number, heir)?,
        false => {
            store.tier.media.retire_volume(old.number, heir)?;
            running.tertiary.push();
            store.tier.media.left_to_retire(old.number)
        }
    };
    let heir = store.tier.media.tier_names(1 << heir);
    let (volume, is_done, waits_for) = (old.name, false, None);
    Ok(Told::Retire(RetireReport { volume, heir, segments_left, bytes_left, is_done, waits_for }))
}

/// The volume that takes over if nobody says which: the only one that can, is there, and costs nothing. A choice is the owner's.
fn heir_for(running: &Running, old: &VolumeEntry) -> Result<u8> {
    let store = &running.store;
    running.look_for_volumes();
    let others: Vec<_> =
        store.tier.media.volume_statuses().into_iter().filter(|status| status.entry.number != old.number).collect();
    let is_free = |status: &&VolumeStatus| {
        let prices = store.tier.media.volume_prices(status.entry.number).ok();
        prices == Some(stere_store::VolumePrices::default()) && !status.entry.place.starts_with("s3:")
    };
    let can = |status: &&VolumeStatus| store.tier.media.check_retirement(old.number, status.entry.number).is_ok();
    let able: Vec<&VolumeStatus> = others.iter().filter(can).collect();
    let suits: Vec<&VolumeStatus> = able
        .iter()
        .copied()
        .filter(|status| status.is_attached && status.complaint.is_none())
        .filter(is_free)
        .collect();
    let names = |statuses: &[&VolumeStatus]| {
        statuses.iter().map(|status| status.entry.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    match (suits.as_slice(), able.as_slice()) {
        ([one], _) => Ok(one.entry.number),
        // Says why not.
        ([], []) => Ok(store.tier.media.heir_for(old.number)?),
        ([], able) => refused(format!(
            "nothing takes over from {} by itself: {} cannot be reached now, or may cost money; say which with --to NAME",
            old.name,
            names(able)
        )),
        (several, _) => {
            refused(format!("{} could take over from {}; say which with --to NAME", names(several), old.name))
        }
    }
}

/// For people.
pub fn retire(registry: &Registry, pool: &str, order: Order, wait: bool, json: bool) -> Result<u8> {
    let is_dry = matches!(order, Order::Retire { dry_run: true, .. });
    let mut connection = open(registry, pool)?;
    let Told::Retire(mut report) = ask(&mut connection, order)? else {
        return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
    };
    if wait && !is_dry {
        follow(&mut connection, &mut report, json)?;
    }
    if json {
        println!("{}", to_json(&report)?);
    } else {
        print(&report, pool, is_dry);
    }
    Ok(if report.waits_for.is_some() { DEGRADED } else { DONE })
}

/// Waits until it is done, or stands still.
fn follow(connection: &mut Connection, report: &mut RetireReport, json: bool) -> Result<()> {
    let (mut told, mut stands_since) = (None::<Instant>, None);
    loop {
        let tier = ask_tier(connection, Order::Push)?;
        let Some(known) = tier.volumes.iter().find(|known| known.name == report.volume) else {
            (report.is_done, report.segments_left, report.bytes_left) = (true, 0, 0);
            return Ok(());
        };
        if known.heir.is_none() {
            return refused(format!(
                "volume {} is not being retired any more; {} was removed",
                known.name, report.heir
            ));
        }
        (report.segments_left, report.bytes_left) = (known.left_segments, known.left_bytes);
        let why = tier.waits_for.clone().or_else(|| tier.stuck.first().cloned());
        stands_since = why.as_ref().map(|_| stands_since.unwrap_or_else(Instant::now));
        if stands_since.is_some_and(|since: Instant| since.elapsed() >= STANDSTILL) {
            report.waits_for = why;
            return Ok(());
        }
        if !json && told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            println!("{} in {} segments are left", size::show(report.bytes_left), report.segments_left);
            told = Some(Instant::now());
        }
        std::thread::sleep(POLL);
    }
}

fn print(report: &RetireReport, pool: &str, is_dry: bool) {
    let RetireReport { volume, heir, segments_left, bytes_left, is_done, waits_for } = report;
    let left = size::show(*bytes_left);
    match (is_dry, is_done, waits_for) {
        (true, ..) => println!("{left} in {segments_left} segments would be copied from {volume} to {heir}"),
        (_, true, _) => println!(
            "volume {volume} is no part of the pool any more, {heir} has all of it; what is on {volume} still may be deleted"
        ),
        (_, _, Some(why)) => println!("{left} in {segments_left} segments are left; it goes on by itself: {why}"),
        (..) => println!(
            "{left} in {segments_left} segments go from {volume} to {heir}; `stere media list {pool}` tells how far"
        ),
    }
}
