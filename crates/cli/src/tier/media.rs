//! `stere media`: the volumes of a pool, one by one. Read next: `tier.rs`, whose orders it gives.

use crate::arguments::tier::MediaCommand;
use crate::json::to_json;
use crate::tier::ask::{ask, ask_tier, open};
use crate::tier::report::print_volumes;
use crate::tier::retire;
use stere_control::tier::Order;
use stere_control::tier::report::{CartridgeReport, RepackReport, Told};
use stere_machine::error::{DEGRADED, DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

fn print_cartridges(cartridges: &[CartridgeReport]) {
    for cartridge in cartridges {
        let CartridgeReport { name, kind, place, objects, bytes, complaint } = cartridge;
        println!("  cartridge {name}  {kind}  {place}  {objects} objects, {}", size::show(*bytes));
        if let Some(complaint) = complaint {
            println!("    {complaint}");
        }
    }
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
            println!("{} are free on each medium", size::show(all.bytes_emptied.saturating_sub(all.bytes_made)));
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
                return refused(format!("the pool '{pool}' has no medium '{volume}'; see `stere media list {pool}`"));
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
