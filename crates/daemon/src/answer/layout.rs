//! Where a file lies, and which cartridges have to be fetched to read it.

use std::ops::ControlFlow;

use stere_naming::{FileSystem, Io};

use stere_control::layout::{Fetch, Layout, Run, Source};
use stere_machine::clock;
use stere_machine::error::Result;
use stere_online::hosts::Hosts;
use stere_online::running::Running;

/// The medium that a released segment comes from first, if it is on one of many.
fn source_of(running: &Running, segment: u64) -> Option<Source> {
    let (object, there) = running.store.tier.recalls.object_of_released(segment)?;
    let volumes = running.store.tier.media.volumes().into_iter().filter(|entry| there & entry.bit() != 0);
    let estimate = |entry: stere_format::VolumeEntry| {
        let (cartridge, time) = running.gate.estimate(entry.number, &object)?;
        Some(Source { volume: entry.name, cartridge, seconds: time.as_secs_f64() })
    };
    volumes.filter_map(estimate).next()
}

/// From which cartridges the released segments of a file come, and when.
fn fetches(filesystem: &FileSystem, running: &Running, inode: u64) -> Result<Vec<Fetch>> {
    let mut fetches: Vec<Fetch> = Vec::new();
    filesystem.tiers().tier_walk(&clock::own_caller(Io::BLOCKING), inode, &mut |met| {
        for source in met.segments.iter().filter_map(|segment| source_of(running, *segment)) {
            let Source { volume, cartridge, seconds } = source;
            match fetches.iter_mut().find(|one| one.cartridge == cartridge && one.volume == volume) {
                Some(known) => known.segments += 1,
                None => fetches.push(Fetch { volume, cartridge, segments: 1, seconds }),
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(fetches)
}

/// Each host once.
fn named_once<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut named: Vec<String> = Vec::new();
    for host in hosts {
        if !named.iter().any(|known| known == host) {
            named.push(host.to_owned());
        }
    }
    assert!(named.iter().all(|host| !host.is_empty()), "a host has a name");
    named
}

/// How many hosts a run survives. One that is on media, too, survives the loss of all.
fn survives_hosts(hosts: &Hosts, run: &stere_naming::LayoutRun) -> Option<u8> {
    if run.devices.is_empty() || !hosts.are_known() {
        return None;
    }
    let spare = if run.volumes == 0 { usize::from(run.survives) } else { run.devices.len() };
    assert!(spare <= run.devices.len(), "no more is to spare than there is");
    Some(hosts.survived_by(&run.devices, spare))
}

/// Answers for the daemon.
pub fn gather(filesystem: &FileSystem, running: &Running, inode: u64, from: u64) -> Result<Layout> {
    let (runs, next) = filesystem.tiers().layout(&clock::own_caller(Io::BLOCKING), inode, from)?;
    let entries = filesystem.store().device_entries();
    let name = |index: &u16| {
        let entry = entries.iter().find(|entry| entry.index == *index);
        entry.map_or_else(|| format!("device {index}"), |entry| entry.name.clone())
    };
    let hosts = Hosts::of_pool(running);
    let run = |run: stere_naming::LayoutRun| Run {
        hosts: named_once(run.devices.iter().filter_map(|index| hosts.name(*index))),
        survives_hosts: survives_hosts(&hosts, &run),
        start: run.start,
        end: run.end,
        scheme: run.scheme.to_string(),
        survives: run.survives,
        is_released: run.devices.is_empty(),
        from: run.released_in.and_then(|segment| source_of(running, segment)),
        devices: {
            let volumes = filesystem.store().tier.media.tier_names(run.volumes);
            let volumes = volumes.split('+').filter(|name| !name.is_empty()).map(str::to_owned);
            run.devices.iter().map(name).chain(volumes).collect()
        },
    };
    let runs: Vec<Run> = runs.into_iter().map(run).collect();
    let is_released = from == 0 && runs.iter().any(|run| run.is_released);
    let fetches = if is_released { fetches(filesystem, running, inode)? } else { Vec::new() };
    Ok(Layout { runs, next, fetches })
}
