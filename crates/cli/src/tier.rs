//! `stere tier` and `stere media`: files go down to media, come back, and are looked at there.
//!
//! That files belong on a volume is policy (`user.stere.tier`): it is set on the path, and the rest follows in the background. What is
//! on devices beside a volume's copy is a cache, which is given up and filled by these commands, by reading, and by the mount's own
//! policy. The daemon does the work (`answer/tier.rs` of the crate `daemon`); this asks it.

pub mod ask;
pub mod costs;
pub mod media;
pub mod names;
pub mod policy;
pub mod report;
pub mod retire;

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, removexattr, setxattr};

use crate::arguments::tier::TierCommand;
use crate::json::to_json;
use crate::tier::ask::{POLL, STANDSTILL, ask_survey, ask_tier, open};
use crate::tier::report::{print_queue, print_volumes};
use stere_control::connection::Connection;
use stere_control::message::Request;
use stere_control::tier::Order;
use stere_control::tier::report::TierReport;
use stere_control::{locate, reconcile};
use stere_machine::error::{At, DEGRADED, DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

/// How long after the last look at the earliest, and how many times as long as that took.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOK_PART: u32 = 2;
const PUSH_EVERY: Duration = Duration::from_secs(1);
const ATTRIBUTE: &str = "user.stere.tier";

pub fn run(registry: &Registry, command: &TierCommand) -> Result<u8> {
    match command {
        TierCommand::List { pool, json } | TierCommand::Queue { pool, json } => {
            let report = ask_tier(&mut open(registry, pool)?, Order::Tell)?;
            let is_list = matches!(command, TierCommand::List { .. });
            match (json, is_list) {
                (true, _) => println!("{}", to_json(&report)?),
                (false, true) => print_volumes(&report.volumes),
                (false, false) => print_queue(&report),
            }
            Ok(DONE)
        }
        TierCommand::Policy { pool, settings, high, low, json } => {
            let change = stere_control::tier::policy::Change::parse(settings, high.zip(*low))?;
            let report = ask_tier(&mut open(registry, pool)?, Order::Policy(change))?;
            match json {
                true => println!("{}", to_json(&report)?),
                false => crate::tier::policy::print(&report),
            }
            Ok(DONE)
        }
        TierCommand::Archive { paths, to, dry_run: true, json, .. } => {
            costs::archive(registry, paths, to.as_deref(), *json)
        }
        TierCommand::Stage { paths, dry_run: true, json, .. } => costs::stage(registry, paths, *json),
        TierCommand::Price { pool, volume, settings, json } => costs::show(registry, pool, volume, settings, *json),
        TierCommand::Archive { paths, to, wait, .. } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(archive(registry, path, to.as_deref(), *wait)?)))
        }
        TierCommand::Release { paths, metadata } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(release(registry, path, *metadata)?)))
        }
        TierCommand::Stage { paths, wait, .. } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(stage(registry, path, *wait)?)))
        }
        TierCommand::Pin { paths, wait } => {
            paths.iter().try_fold(DONE, |code, path| Ok(code.max(pin(registry, path, *wait)?)))
        }
        TierCommand::Unpin { paths } => {
            for path in paths {
                let (_, mut connection, inode) = locate::connect(registry, path)?;
                connection.wait_without_limit()?;
                ask_survey(&mut connection, Order::Pin(inode, false))?;
                println!("{} may be released", path.display());
            }
            Ok(DONE)
        }
        TierCommand::Cancel { paths } => {
            paths.iter().try_for_each(|path| cancel(registry, path))?;
            Ok(DONE)
        }
    }
}

/// The volumes that a person means, or the first one.
fn volumes_meant(report: &TierReport, to: Option<&str>, pool: &str) -> Result<String> {
    let name = match (to, report.volumes.iter().find(|volume| volume.state != "offline")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(volume)) => volume.name.clone(),
        (None, None) => {
            return refused(format!(
                "the pool '{pool}' has no medium; add one with `stere device add {pool} dir:/path,name=NAME`"
            ));
        }
    };
    let known = |name: &str| report.volumes.iter().any(|volume| volume.name == name);
    if let Some(unknown) = name.split('+').find(|name| !known(name)) {
        return refused(format!("the pool '{pool}' has no medium '{unknown}'; see `stere tier list {pool}`"));
    }
    Ok(name)
}

/// What a path's own or inherited policy says: the volumes that it goes to, if it says any.
fn volumes_of_policy(path: &Path) -> Result<Option<String>> {
    let names = crate::policy::read(path, "effective.tier")?.filter(|names| !names.is_empty() && names != "none");
    match names {
        Some(names) if names.contains('#') => refused(format!(
            "the policy of {} names a medium that was removed ({names}); say where it goes with --to, or `stere policy set {0} tier=NAME`",
            path.display()
        )),
        names => Ok(names),
    }
}

/// Where a path goes: as somebody says now, else as its policy says, else where something of it is already, else to the first volume. And whether
/// that is to be set as its policy.
pub fn destination(
    connection: &mut Connection,
    pool: &str,
    (path, inode): (&Path, u64),
    to: Option<&str>,
) -> Result<(String, bool)> {
    let report = ask_tier(connection, Order::Tell)?;
    if to.is_none() {
        if let Some(names) = volumes_of_policy(path)? {
            return Ok((names, false));
        }
        let there = ask_survey(connection, Order::Survey(inode))?.volumes;
        if !there.is_empty() && !there.contains('#') {
            return Ok((there, true));
        }
    }
    Ok((volumes_meant(&report, to, pool)?, true))
}

/// Sends a path down.
fn archive(registry: &Registry, path: &Path, to: Option<&str>, wait: bool) -> Result<u8> {
    let (about, mut connection, inode) = locate::connect(registry, path)?;
    connection.wait_without_limit()?;
    let (name, is_new) = destination(&mut connection, &about.pool, (path, inode), to)?;
    match is_new {
        true => setxattr(path, ATTRIBUTE, name.as_bytes(), XattrFlags::empty()).at("set the policy of", path)?,
        // It is looked at now, and not when new files are looked for next.
        false => drop(connection.ask(Request::Reconcile { order: reconcile::Order::Apply(inode) })?),
    }
    if !wait {
        println!("{} goes to {name}; `stere tier queue {}` tells how far", path.display(), about.pool);
        return Ok(DONE);
    }
    // What was written last is gathered in memory still.
    connection.ask(Request::Flush { wait: true })?;
    crate::reconcile::wait_for(registry, path)?;
    let (mut stands_since, mut pushed) = (None, None::<Instant>);
    loop {
        let look = Instant::now();
        // Now and then those who wait for a volume are told to look again.
        let is_pushing = pushed.is_none_or(|at| at.elapsed() >= PUSH_EVERY);
        if is_pushing {
            pushed = Some(look);
        }
        let tier = ask_tier(&mut connection, if is_pushing { Order::Push } else { Order::Tell })?;
        let survey = ask_survey(&mut connection, Order::Survey(inode))?;
        let left = (survey.local_bytes + survey.released_bytes).saturating_sub(survey.tertiary_bytes);
        match (survey.waiting_bytes, left) {
            (0, 0) => {
                // Whoever owns the pool next knows it too.
                connection.ask(Request::Flush { wait: true })?;
                let (size, files) = (size::show(survey.tertiary_bytes), survey.files);
                println!("{} is on {name}: {size} of {files} files", path.display());
                return Ok(DONE);
            }
            (0, _) => {
                let (left, path) = (size::show(left), path.display());
                println!("{left} of {path} do not go down yet; `stere reconcile status {}` tells why", about.pool);
                return Ok(DEGRADED);
            }
            _ => {}
        }
        let why = tier.waits_for.or_else(|| tier.stuck.first().cloned());
        stands_since = why.as_ref().map(|_| stands_since.unwrap_or(look));
        if let Some(why) = why.filter(|_| stands_since.is_some_and(|since| since.elapsed() >= STANDSTILL)) {
            let (size, path) = (size::show(survey.waiting_bytes), path.display());
            println!("{size} of {path} wait to be copied out; it goes on by itself: {why}");
            return Ok(DEGRADED);
        }
        std::thread::sleep(LOOK_AGAIN.max(look.elapsed() * LOOK_PART));
    }
}

fn release(registry: &Registry, path: &Path, names_too: bool) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.wait_without_limit()?;
    let report = ask_survey(&mut connection, Order::Release(inode))?;
    println!("{}: {}", path.display(), report.said);
    if report.tertiary_bytes == 0 && report.files > 0 {
        return refused(format!("nothing of {} is on a medium; archive it first", path.display()));
    }
    let is_partial = match names_too {
        true => !names::release(&mut connection, path, inode)?,
        false => false,
    };
    Ok(if report.is_partial || is_partial { DEGRADED } else { DONE })
}

/// Keeps a path on devices, and brings back what is not there.
fn pin(registry: &Registry, path: &Path, wait: bool) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.wait_without_limit()?;
    let report = ask_survey(&mut connection, Order::Pin(inode, true))?;
    println!("{}: stays on devices; {}", path.display(), report.said);
    Ok(if wait && !wait_until_staged(&mut connection, inode)? { DEGRADED } else { DONE })
}

fn stage(registry: &Registry, path: &Path, wait: bool) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.wait_without_limit()?;
    let report = ask_survey(&mut connection, Order::Stage(inode))?;
    println!("{}: {}", path.display(), report.said);
    if wait && !wait_until_staged(&mut connection, inode)? {
        return Ok(DEGRADED);
    }
    // Once more, now that it is here: what the kernel remembers of sizes is old.
    ask_survey(&mut connection, Order::Stage(inode)).map(|_| DONE)
}

/// False where something cannot come back now, which it tells.
fn wait_until_staged(connection: &mut Connection, inode: u64) -> Result<bool> {
    loop {
        if ask_survey(connection, Order::Survey(inode))?.released_bytes == 0 {
            return Ok(true);
        }
        let tier = ask_tier(connection, Order::Tell)?;
        if tier.staging_segments == 0 || tier.waits_for.is_some() {
            let left = ask_survey(connection, Order::Survey(inode))?.released_bytes;
            if left > 0 {
                let why = tier.waits_for.unwrap_or_else(|| "see `stere tier queue` and the log".into());
                println!("{} are still elsewhere: {why}", size::show(left));
                return Ok(false);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Stops what is under way with a path, in both directions.
fn cancel(registry: &Registry, path: &Path) -> Result<()> {
    let was_to_go_down = match removexattr(path, ATTRIBUTE) {
        Ok(()) => true,
        Err(rustix::io::Errno::NODATA) => false,
        Err(error) => return Err(error).at("unset the policy of", path),
    };
    let (_, mut connection, inode) = locate::connect(registry, path)?;
    connection.wait_without_limit()?;
    let report = ask_survey(&mut connection, Order::Cancel(inode, was_to_go_down))?;
    let path = path.display();
    match (was_to_go_down, report.said.is_empty()) {
        (true, _) => println!("{path} goes down no further; what is on media stays there"),
        (false, true) => println!("{path} was not told to go down itself, and nothing of it is to come back"),
        (false, false) => {}
    }
    if !report.said.is_empty() {
        println!("{path}: {}", report.said);
    }
    Ok(())
}
