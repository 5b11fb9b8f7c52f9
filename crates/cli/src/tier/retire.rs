//! `stere media retire`: a volume is taken out of use, and another one takes over all that is on it and was meant for it.
//!
//! The daemon does the work by itself, as it copies out what is archived; this begins it and tells how far it is.

use std::time::{Duration, Instant};

use crate::json::to_json;
use crate::tier::ask::{POLL, STANDSTILL, ask, ask_tier, open};
use stere_control::connection::Connection;
use stere_control::tier::Order;
use stere_control::tier::report::{RetireReport, Told};
use stere_machine::error::{DEGRADED, DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

const TELL_EVERY: Duration = Duration::from_secs(2);

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
                "medium {} is not being retired any more; {} was removed",
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
            "medium {volume} is no part of the pool any more, {heir} has all of it; what is on {volume} still may be deleted"
        ),
        (_, _, Some(why)) => println!("{left} in {segments_left} segments are left; it goes on by itself: {why}"),
        (..) => println!(
            "{left} in {segments_left} segments go from {volume} to {heir}; `stere media list {pool}` tells how far"
        ),
    }
}
