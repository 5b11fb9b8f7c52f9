//! `stere media`: the volumes of a pool, one by one. Read next: `tier.rs`, whose orders it gives.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Io};

use super::{Order, RepackReport, Told, ask, ask_tier, open, print_volumes, retire};
use crate::cli::MediaCommand;
use crate::clock;
use crate::error::{DEGRADED, DONE, Result, refused};
use crate::mount::tertiary::describe;
use crate::registry::Registry;
use crate::running::Running;
use crate::size;
use crate::status::to_json;

/// A cartridge of a library.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CartridgeReport {
    pub name: String,
    /// `unknown`, `blank`, `ours`, `full` or `foreign`.
    pub kind: String,
    /// `slot`, `drive N`, `away` or `unknown`.
    pub place: String,
    pub objects: u64,
    pub bytes: u64,
    pub complaint: Option<String>,
}

impl From<stere_device::Medium> for CartridgeReport {
    fn from(medium: stere_device::Medium) -> CartridgeReport {
        let stere_device::Medium { name, kind, place, objects, bytes, complaint } = medium;
        CartridgeReport { name, kind, place, objects, bytes, complaint }
    }
}

fn print_cartridges(cartridges: &[CartridgeReport]) {
    for cartridge in cartridges {
        let CartridgeReport { name, kind, place, objects, bytes, complaint } = cartridge;
        println!("  cartridge {name}  {kind}  {place}  {objects} objects, {}", size::show(*bytes));
        if let Some(complaint) = complaint {
            println!("    {complaint}");
        }
    }
}

/// One step of repacking, for the daemon.
pub fn repack_some(filesystem: &FileSystem, running: &Running, volume: Option<&str>, below: u8) -> Result<Told> {
    let volumes = match volume.map(|name| (name, running.find_volume(name))) {
        None => running.store.tier.media.volumes().iter().fold(0, |set, entry| set | entry.bit()),
        Some((_, Some(entry))) => entry.bit(),
        Some((name, None)) => return refused(format!("the pool '{}' has no volume '{name}'", running.pool)),
    };
    let describe = |inodes: &BTreeSet<u64>| describe(filesystem, inodes);
    let done =
        filesystem.units().repack_step(&clock::own_caller(Io::BLOCKING), volumes, u64::from(below), &describe)?;
    Ok(Told::Repack(RepackReport {
        segments_emptied: done.segments_emptied,
        bytes_emptied: done.bytes_emptied,
        segments_made: done.segments_made,
        bytes_made: done.bytes_made,
        segments_left: done.segments_left,
        waits_for: done.waits_for,
    }))
}

/// Step after step, until nothing is left to gain or something is in the way.
fn repack(registry: &Registry, pool: &str, volume: Option<&str>, below: u8, json: bool) -> Result<u8> {
    let mut connection = open(registry, pool)?;
    let mut all = RepackReport::default();
    loop {
        let order = Order::Repack { volume: volume.map(str::to_owned), below };
        let Told::Repack(some) = ask(&mut connection, order)? else {
            return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
        };
        all.segments_emptied += some.segments_emptied;
        all.bytes_emptied += some.bytes_emptied;
        all.segments_made += some.segments_made;
        all.bytes_made += some.bytes_made;
        (all.segments_left, all.waits_for) = (some.segments_left, some.waits_for);
        if some.segments_emptied > 0 && !json {
            println!(
                "{} objects of {} became {} of {}; {} left",
                all.segments_emptied,
                size::show(all.bytes_emptied),
                all.segments_made,
                size::show(all.bytes_made),
                all.segments_left
            );
        }
        if all.waits_for.is_some() || some.segments_emptied + some.segments_left == 0 {
            break;
        }
    }
    match (json, &all.waits_for) {
        (true, _) => println!("{}", to_json(&all)?),
        (false, Some(why)) => println!("it cannot go on now: {why}"),
        (false, None) if all.segments_emptied == 0 => {
            println!("no object of which at most {below} % are alive, and can be read whole");
        }
        (false, None) => {
            println!("{} are free on each volume", size::show(all.bytes_emptied.saturating_sub(all.bytes_made)));
        }
    }
    Ok(if all.waits_for.is_some() { DEGRADED } else { DONE })
}

/// `stere media`.
pub fn media(registry: &Registry, command: &MediaCommand) -> Result<u8> {
    match command {
        MediaCommand::List { pool, json } => {
            let report = ask_tier(&mut open(registry, pool)?, Order::Tell)?;
            match json {
                true => println!("{}", to_json(&report.volumes)?),
                false => print_volumes(&report.volumes),
            }
            Ok(DONE)
        }
        MediaCommand::Show { pool, volume, json } => {
            let report = ask_tier(&mut open(registry, pool)?, Order::Tell)?;
            let Some(found) = report.volumes.iter().find(|known| known.name == *volume) else {
                return refused(format!("the pool '{pool}' has no volume '{volume}'; see `stere media list {pool}`"));
            };
            match json {
                true => println!("{}", to_json(found)?),
                false => {
                    print_volumes(std::slice::from_ref(found));
                    println!("  id {}", found.id);
                    print_cartridges(&found.media);
                    if matches!(found.state.as_str(), "away" | "offline") {
                        println!(
                            "  bring {} to {}, or say where it is: stere device online {pool} {volume} PATH",
                            found.name, found.place
                        );
                    }
                }
            }
            Ok(if found.state == "online" { DONE } else { DEGRADED })
        }
        MediaCommand::Retire { pool, volume, to, wait, dry_run, json } => {
            let order = Order::Retire { volume: volume.clone(), to: to.clone(), dry_run: *dry_run };
            retire::retire(registry, pool, order, *wait, *json)
        }
        MediaCommand::Repack { pool, volume, below, json } => repack(registry, pool, volume.as_deref(), *below, *json),
        MediaCommand::Verify { pool, volume, quick, json } => {
            let order = Order::Verify { volume: volume.clone(), reads: !quick };
            let Told::Verify(report) = ask(&mut open(registry, pool)?, order)? else {
                return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
            };
            if *json {
                println!("{}", to_json(&report)?);
            } else {
                println!(
                    "{}: {} objects, {}; {} that nobody needed were deleted",
                    report.volume,
                    report.objects,
                    size::show(report.bytes),
                    report.deleted
                );
                report.lacking.iter().for_each(|segment| println!("segment {segment} is not there"));
                report.damaged.iter().for_each(|segment| println!("segment {segment} is damaged"));
            }
            let is_good = report.lacking.is_empty() && report.damaged.is_empty();
            Ok(if is_good { DONE } else { DEGRADED })
        }
    }
}
