//! `stere status`: from the daemon of a mounted pool, else read from its devices.

use std::time::{Duration, Instant};

use stere_device::Access;
use stere_pool::{Assembly, OpenOptions, Opened};

use crate::cli::StatusArguments;
use crate::control::{self, Answer, Connection, Request};
use crate::devices::Target;
use crate::error::{DONE, Error, Result, refused};
use crate::registry::Registry;
use crate::report::{self, Facts, RecoveryFacts, StatusReport};
use crate::running::Running;

const MEMORY_BYTES: usize = 256 << 20;

pub fn run(registry: &Registry, arguments: &StatusArguments) -> Result<u8> {
    let reports = if arguments.words.is_empty() { of_all(registry)? } else { vec![of(registry, &arguments.words)?] };
    if arguments.json {
        let text = match reports.as_slice() {
            [one] => to_json(one)?,
            many => to_json(many)?,
        };
        println!("{text}");
    } else {
        if reports.is_empty() {
            println!("no pool is known here; make one with `stere create`, or find one with `stere pool import`");
        }
        for (at, report) in reports.iter().enumerate() {
            if at > 0 {
                println!("\n");
            }
            report.print(arguments.bytes);
        }
    }
    Ok(reports.iter().map(StatusReport::exit_code).max().unwrap_or(DONE))
}

pub fn to_json(value: &(impl serde::Serialize + ?Sized)) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|error| Error::System(error.into()))
}

fn of_all(registry: &Registry) -> Result<Vec<StatusReport>> {
    let mut names: Vec<String> = registry.list()?.into_iter().map(|record| record.name).collect();
    names.extend(control::daemons(registry).into_iter().map(|about| about.pool));
    names.sort();
    names.dedup();
    names.into_iter().map(|name| of(registry, &[name])).collect()
}

/// The state of the pool that these words name.
pub fn of(registry: &Registry, words: &[String]) -> Result<StatusReport> {
    if let [name] = words
        && let Some(mut connection) = Connection::open(registry, name)
    {
        return match connection.ask(Request::Status)? {
            Answer::Status(report) => Ok(*report),
            _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
        };
    }
    let (assembly, opened, duration) = open_to_read(registry, words)?;
    let facts = Facts {
        mountpoint: None,
        warnings: opened.warnings.clone(),
        recovery: RecoveryFacts::new(&opened.recovery, duration.as_millis() as u64),
    };
    Ok(report::gather(&Running::new(registry, &assembly, None, opened), &facts))
}

/// Opens a pool that is not mounted, writing nothing, with whatever devices are there.
pub fn open_to_read(registry: &Registry, words: &[String]) -> Result<(Assembly, Opened, Duration)> {
    let target = Target::parse(registry, words)?;
    let assembly = target.assemble(Access::ReadOnly, Duration::ZERO, None)?;
    let options = OpenOptions { memory_bytes: MEMORY_BYTES, read_only: true, ..OpenOptions::default() };
    let start = Instant::now();
    let path_of =
        |entry: &stere_format::DeviceEntry| registry.place_of(&assembly.newest.pool_name, &entry.id.to_string());
    let opened = assembly.open(&options, &path_of)?;
    Ok((assembly, opened, start.elapsed()))
}
