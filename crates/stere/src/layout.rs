//! `stere where`: on which devices a file lies, run by run, and which cartridges have to be fetched to read it.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Io};

use crate::cli::WhereArguments;
use crate::control::{Answer, Request};
use crate::error::{DONE, Result, refused};
use crate::registry::Registry;
use crate::running::Running;
use crate::status::to_json;
use crate::{clock, locate, size};

/// Bytes of a file that lie alike.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub scheme: String,
    /// How many device losses they survive.
    pub survives: u8,
    /// Data before parity; then tertiary volumes.
    pub devices: Vec<String>,
    /// Whether it has to be fetched from a volume to be read.
    #[serde(default)]
    pub is_released: bool,
    /// The medium that it has to be fetched from, where its volume has many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Source>,
}

/// A medium that bytes have to be fetched from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub volume: String,
    pub cartridge: String,
    /// Until the first byte, as things were up to now.
    pub seconds: f64,
}

/// A part of a file's runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Layout {
    pub runs: Vec<Run>,
    /// Where the next part begins.
    pub next: Option<u64>,
    /// Media that have to be fetched to read the file, where its volume has many.
    #[serde(default)]
    pub fetches: Vec<Fetch>,
}

/// A medium that has to be brought to a drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    pub volume: String,
    pub cartridge: String,
    pub segments: u64,
    /// Until the first byte, as things were up to now.
    pub seconds: f64,
}

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

/// Answers for the daemon.
pub fn gather(filesystem: &FileSystem, running: &Running, inode: u64, from: u64) -> Result<Layout> {
    let (runs, next) = filesystem.tiers().layout(&clock::own_caller(Io::BLOCKING), inode, from)?;
    let entries = filesystem.store().device_entries();
    let name = |index: &u16| {
        let entry = entries.iter().find(|entry| entry.index == *index);
        entry.map_or_else(|| format!("device {index}"), |entry| entry.name.clone())
    };
    let run = |run: stere_naming::LayoutRun| Run {
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

pub fn run(registry: &Registry, arguments: &WhereArguments) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, &arguments.path)?;
    let (mut runs, mut fetches): (Vec<Run>, Vec<Fetch>) = (Vec::new(), Vec::new());
    let mut from = Some(0);
    while let Some(at) = from {
        let Answer::Layout(layout) = connection.ask(Request::Layout { inode, from: at })? else {
            return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
        };
        for run in layout.runs {
            let medium = |one: &Run| one.from.clone().map(|source| (source.volume, source.cartridge));
            let alike = |one: &Run| (one.scheme.clone(), one.survives, one.devices.clone(), medium(one));
            match runs.last_mut().filter(|last| last.end == run.start && alike(last) == alike(&run)) {
                Some(last) => last.end = run.end,
                None => runs.push(run),
            }
        }
        fetches.extend(layout.fetches);
        from = layout.next;
    }
    if arguments.json {
        println!("{}", to_json(&runs)?);
        return Ok(DONE);
    }
    if runs.is_empty() {
        println!("nothing of {} is stored on devices yet", arguments.path.display());
    }
    for run in runs {
        let (start, length) =
            (size::show_as(run.start, arguments.bytes), size::show_as(run.end - run.start, arguments.bytes));
        let away = match &run.from {
            Some(Source { cartridge, .. }) => format!(" (to be fetched, cartridge {cartridge})"),
            None if run.is_released => " (to be fetched)".to_owned(),
            None => String::new(),
        };
        println!(
            "{start:>10} +{length:<10} {:5} survives {}: {}{away}",
            run.scheme,
            run.survives,
            run.devices.join(" ")
        );
    }
    for Fetch { volume, cartridge, segments, seconds } in fetches {
        println!(
            "{segments} segments come from cartridge {cartridge} of {volume}, the first byte in about {seconds:.0} s"
        );
    }
    Ok(DONE)
}
