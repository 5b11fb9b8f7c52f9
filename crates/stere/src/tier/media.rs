//! `stere media`: the volumes of a pool, one by one. Read next: `tier.rs`, whose orders it gives.

use super::{Order, Told, ask, ask_tier, open, print_volumes};
use crate::cli::MediaCommand;
use crate::error::{DEGRADED, DONE, Result, refused};
use crate::registry::Registry;
use crate::size;
use crate::status::to_json;

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
                    if found.state != "online" {
                        println!(
                            "  bring {} to {}, or say where it is: stere device online {pool} {volume} PATH",
                            found.name, found.place
                        );
                    }
                }
            }
            Ok(if found.state == "online" { DONE } else { DEGRADED })
        }
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
