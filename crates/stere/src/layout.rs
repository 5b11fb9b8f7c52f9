//! `stere where`: on which devices a file lies, run by run.

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Wait};

use crate::cli::WhereArguments;
use crate::control::{Answer, Request};
use crate::error::{DONE, Result, refused};
use crate::registry::Registry;
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
}

/// A part of a file's runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Layout {
    pub runs: Vec<Run>,
    /// Where the next part begins.
    pub next: Option<u64>,
}

/// Answers for the daemon.
pub fn gather(filesystem: &FileSystem, inode: u64, from: u64) -> Result<Layout> {
    let (runs, next) = filesystem.layout(&clock::own_caller(Wait::Allowed), inode, from)?;
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
        devices: {
            let volumes = filesystem.store().tier_names(run.volumes);
            let volumes = volumes.split('+').filter(|name| !name.is_empty()).map(str::to_owned);
            run.devices.iter().map(name).chain(volumes).collect()
        },
    };
    Ok(Layout { runs: runs.into_iter().map(run).collect(), next })
}

pub fn run(registry: &Registry, arguments: &WhereArguments) -> Result<u8> {
    let (_, mut connection, inode) = locate::connect(registry, &arguments.path)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let Answer::Layout(layout) = connection.ask(Request::Layout { inode, from: at })? else {
            return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
        };
        for run in layout.runs {
            let alike = |one: &Run| (one.scheme.clone(), one.survives, one.devices.clone());
            match runs.last_mut().filter(|last| last.end == run.start && alike(last) == alike(&run)) {
                Some(last) => last.end = run.end,
                None => runs.push(run),
            }
        }
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
        let away = if run.is_released { " (to be fetched)" } else { "" };
        println!(
            "{start:>10} +{length:<10} {:5} survives {}: {}{away}",
            run.scheme,
            run.survives,
            run.devices.join(" ")
        );
    }
    Ok(DONE)
}
