//! `stere status`: from the daemon of a mounted pool, else read from its devices.

use std::path::Path;

use crate::arguments::StatusArguments;
use crate::json::to_json;
use crate::report;
use stere_client_wire::mounts::{Listed, list_of};
use stere_control::connection::{self, Connection};
use stere_control::junction::JunctionReport;
use stere_control::message::{Answer, Request};
use stere_control::status::{Finding, RecoveryFacts, State, StatusReport};
use stere_machine::error::{DONE, ERROR, Result, refused};
use stere_machine::mountinfo;
use stere_machine::registry::Registry;
use stere_online::open::open_to_read;
use stere_online::report::Facts;

pub fn run(registry: &Registry, arguments: &StatusArguments) -> Result<u8> {
    if arguments.words.is_empty() {
        return of_all(registry, arguments);
    }
    let report = match of(registry, &arguments.words) {
        Ok(report) => report,
        // Whoever reads JSON is told there; what is no pool at all is an error of the question.
        Err(error) if arguments.json && is_known(registry, &arguments.words)? => {
            let unreachable = Known::Unreachable { name: arguments.words.join(" "), why: error.to_string() };
            println!("{}", to_json(&unreachable.json())?);
            return Ok(unreachable.exit_code());
        }
        Err(error) => return Err(error),
    };
    match arguments.json {
        true => println!("{}", to_json(&report)?),
        false => report::print_status(&report, arguments.bytes, arguments.verbose),
    }
    Ok(report.exit_code())
}

/// Whether these words are the name of one pool that is known here.
fn is_known(registry: &Registry, words: &[String]) -> Result<bool> {
    let [name] = words else { return Ok(false) };
    Ok(names(registry)?.contains(name))
}

/// A pool, or why nothing can be said of it. In JSON both have `pool`, `state`, `survives`, `devices` and `next`.
enum Known {
    Told(Box<StatusReport>),
    Unreachable { name: String, why: String },
}

impl Known {
    fn json(&self) -> serde_json::Value {
        match self {
            Known::Told(report) => serde_json::to_value(report).unwrap_or_default(),
            Known::Unreachable { name, why } => serde_json::json!({
                "pool": name, "state": "unreachable", "survives": 0, "devices": [], "next": why,
            }),
        }
    }

    fn print(&self, exact: bool, is_verbose: bool) {
        match self {
            Known::Told(report) => report::print_status(report, exact, is_verbose),
            Known::Unreachable { name, why } => println!("pool {name}: unreachable\n{why}"),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Known::Told(report) => report.exit_code(),
            Known::Unreachable { .. } => ERROR,
        }
    }
}

/// Every pool that is known, whatever is wrong with one of them. As JSON always a list.
fn of_all(registry: &Registry, arguments: &StatusArguments) -> Result<u8> {
    let known: Vec<Known> = names(registry)?
        .into_iter()
        .map(|name| match of(registry, std::slice::from_ref(&name)) {
            Ok(report) => Known::Told(Box::new(report)),
            Err(error) => Known::Unreachable { name, why: error.to_string() },
        })
        .collect();
    if arguments.json {
        println!("{}", to_json(&known.iter().map(Known::json).collect::<Vec<_>>())?);
    } else {
        if known.is_empty() {
            println!("no pool is known here; make one with `stere create`, or find one with `stere pool import`");
        }
        for (at, one) in known.iter().enumerate() {
            if at > 0 {
                println!("\n");
            }
            one.print(arguments.bytes, arguments.verbose);
        }
    }
    Ok(known.iter().map(Known::exit_code).max().unwrap_or(DONE))
}

fn names(registry: &Registry) -> Result<Vec<String>> {
    let mut names: Vec<String> = registry.list()?.into_iter().map(|record| record.name).collect();
    names.extend(connection::daemons(registry).into_iter().map(|about| about.pool));
    names.sort();
    names.dedup();
    Ok(names)
}

/// The state of the pool that these words name.
pub fn of(registry: &Registry, words: &[String]) -> Result<StatusReport> {
    if let [name] = words
        && let Some(mut connection) = Connection::open(registry, name)
    {
        return of_mounted(name, &mut connection);
    }
    let (assembly, opened, duration) = open_to_read(registry, words)?;
    let dead = dead_mounts(&assembly.newest.pool_name);
    let facts = Facts {
        mountpoint: None,
        warnings: opened.warnings.iter().cloned().chain(dead).collect(),
        warnings_of_absent: opened.warnings_of_absent.clone(),
        recovery: RecoveryFacts::new(&opened.recovery, duration.as_millis() as u64),
    };
    Ok(stere_online::report::gather(&stere_online::media::take_over(registry, &assembly, None, opened), &facts, None))
}

/// What belongs to the pool's directories on this machine and is in other pools.
fn add_junctions(report: &mut StatusReport, junctions: Vec<JunctionReport>) {
    for away in junctions.iter().filter(|junction| !junction.is_mounted) {
        let why = away.why.as_deref().unwrap_or("its mount is beginning");
        let what = format!("{} is the pool {}, which is not mounted on this machine", away.path, away.pool);
        if report.state == State::Healthy {
            report.state = State::Degraded;
            report.next = format!("{what}: {why}");
        }
        report.findings.push(Finding { kind: "pool_not_mounted".into(), what, next: why.to_owned(), degrades: true });
    }
    report.junctions = junctions;
}

/// What is still mounted of a pool that no process serves here.
fn dead_mounts(pool: &str) -> Vec<String> {
    let all = list_of(Path::new("/proc/self/mountinfo"));
    let is_its = |one: &Listed| one.mount.is_stere() && one.mount.source == pool;
    let dead = all.into_iter().filter(is_its).map(|one| one.mount.mountpoint).filter(|place| mountinfo::is_dead(place));
    dead.map(|place| {
        format!(
            "the mount on {0} answers nothing, because its process has ended; mount the pool there again, or take it away with `stere umount {0}`",
            place.display()
        )
    })
    .collect()
}

/// From the daemon. Where another machine owns the pool, it is the owner's that tells, and this machine's how that is reached.
fn of_mounted(name: &str, connection: &mut Connection) -> Result<StatusReport> {
    const STRANGE: &str = "the pool's daemon gave an answer that was not asked for; unmount and mount it again";
    let Answer::About(about) = connection.ask(Request::Reach)? else { return refused(STRANGE) };
    if let Some(problem) = about.through.as_ref().and_then(|through| through.problem(name)) {
        return refused(problem);
    }
    let Answer::Status(report) = connection.ask(Request::Status)? else { return refused(STRANGE) };
    let mountpoint = Some(about.mountpoint.display().to_string());
    let mut report = StatusReport { mountpoint, read_only: about.read_only, through: about.through, ..*report };
    add_junctions(&mut report, about.junctions);
    Ok(report)
}
