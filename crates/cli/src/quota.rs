//! `stere volume` and `stere quota`: who may take how much, and who does. Accounts are kept by the pool's daemon.
//!
//! A volume is deleted in two steps: the daemon is told that the next removal of this directory takes all that is in it, and then the
//! directory is removed by rmdir(2), so that the kernel asks for permission and forgets what it knew of it.

use std::path::Path;

use serde::Serialize;

use crate::arguments::quota::{AccountsArguments, QuotaCommand, VolumeCommand};
use crate::attach;
use crate::json::to_json;
use crate::policy;
use crate::terminal::plain;
use stere_control::connection::Connection;
use stere_control::junction::JunctionLine;
use stere_control::locate;
use stere_control::message::{Answer, Request};
use stere_control::quota::{AccountLine, AccountsReport, Most, Order, Wanted};
use stere_machine::error::{At, DONE, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// A line of `stere volume list --json`.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed<'a> {
    Volume(&'a AccountLine),
    Attached(&'a JunctionLine),
}

/// Limits and policy out of `KEY=VALUE`.
fn settings_of(words: &[String]) -> Result<(Wanted, Vec<String>)> {
    let (mut wanted, mut rest) = (Wanted::default(), Vec::new());
    for word in words {
        let most = |value: &str, parse: fn(&str) -> std::result::Result<u64, String>| match value {
            "none" => Ok(Some(Most::Unlimited)),
            _ => parse(value).map(|number| Some(Most::Of(number))).map_err(Error::Usage),
        };
        let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is not a number of inodes"));
        let grace = |text: &str| {
            let seconds =
                stere_policy::parse_length(text).filter(|seconds| (1..=u64::from(u32::MAX)).contains(seconds));
            seconds
                .ok_or_else(|| format!("'{text}' is no length of time; write a number and a unit, such as 7d or 12h"))
        };
        match word.split_once('=') {
            Some(("bytes", value)) => wanted.bytes = most(value, size::parse)?,
            Some(("inodes", value)) => wanted.inodes = most(value, number)?,
            Some(("stored", value)) => wanted.stored = most(value, size::parse)?,
            Some(("soft_bytes", value)) => wanted.soft_bytes = most(value, size::parse)?,
            Some(("soft_inodes", value)) => wanted.soft_inodes = most(value, number)?,
            Some(("soft_stored", value)) => wanted.soft_stored = most(value, size::parse)?,
            Some(("grace", value)) => wanted.grace = most(value, grace)?,
            Some(_) => rest.push(word.clone()),
            None => return Err(Error::Usage(format!("'{word}' is not KEY=VALUE; write for example bytes=10G"))),
        }
    }
    Ok((wanted, rest))
}

/// What an order came to that tells nothing else.
pub fn done(answer: Answer) -> Result<u8> {
    match answer {
        Answer::Done => Ok(DONE),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

fn ask(connection: &mut Connection, order: Order) -> Result<Answer> {
    connection.wait_without_limit()?;
    connection.ask(Request::Accounts { order })
}

fn report(connection: &mut Connection) -> Result<AccountsReport> {
    match ask(connection, Order::List)? {
        Answer::Accounts(report) => Ok(*report),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

fn connect(registry: &Registry, pool: &str) -> Result<Connection> {
    match Connection::open(registry, pool) {
        Some(connection) => Ok(connection),
        None => refused(format!("the pool '{pool}' is not mounted; its accounts are kept by its mount: mount it")),
    }
}

pub fn run_volume(registry: &Registry, command: &VolumeCommand) -> Result<u8> {
    match command {
        VolumeCommand::Create { path, settings } => create(registry, path, settings),
        VolumeCommand::List(AccountsArguments { pool, bytes, json }) => {
            let mut connection = connect(registry, pool)?;
            let report = report(&mut connection)?;
            let junctions = attach::lines(&mut connection)?;
            match json {
                true => {
                    let listed: Vec<Listed<'_>> = report
                        .volumes
                        .iter()
                        .map(Listed::Volume)
                        .chain(junctions.iter().map(Listed::Attached))
                        .collect();
                    println!("{}", to_json(&listed)?);
                }
                false => {
                    show_volumes(&report, *bytes);
                    junctions.iter().for_each(|line| {
                        println!("{}: the pool {}, with an owner of its own", plain(&line.path), line.pool)
                    });
                }
            }
            Ok(DONE)
        }
        VolumeCommand::Attach { path, pool } => attach::attach(registry, path, pool),
        VolumeCommand::Detach { path } => attach::detach(registry, path),
        VolumeCommand::Set { path, settings } => {
            let (limits, rest) = settings_of(settings)?;
            let (_, mut connection, inode) = locate::connect(registry, path)?;
            done(ask(&mut connection, Order::SetVolume { inode, limits })?)?;
            policy::set(path, &rest)?;
            Ok(DONE)
        }
        VolumeCommand::Delete { path, keep: true, .. } => {
            let (_, mut connection, inode) = locate::connect(registry, path)?;
            done(ask(&mut connection, Order::Dissolve { inode })?)
        }
        VolumeCommand::Delete { path, yes, wait, .. } => delete(registry, path, *yes, *wait),
    }
}

/// Makes a directory; false if it is there already.
pub fn make_directory(path: &Path) -> Result<bool> {
    match std::fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).at("make the directory", path),
    }
}

fn create(registry: &Registry, path: &Path, settings: &[String]) -> Result<u8> {
    let (limits, rest) = settings_of(settings)?;
    let is_new = make_directory(path)?;
    let made = locate::connect(registry, path)
        .and_then(|(_, mut connection, inode)| done(ask(&mut connection, Order::CreateVolume { inode, limits })?))
        .and_then(|_| policy::set(path, &rest));
    if made.is_err() && is_new {
        let _as_it_was = std::fs::remove_dir(path);
    }
    made.map(|()| DONE)
}

fn delete(registry: &Registry, path: &Path, yes: bool, wait: bool) -> Result<u8> {
    let (about, mut connection, inode) = locate::connect(registry, path)?;
    if !yes {
        let full = std::fs::canonicalize(path).at("find", path)?;
        let within = full.strip_prefix(&about.mountpoint).unwrap_or(&full);
        let below = format!("/{}", within.display());
        let report = report(&mut connection)?;
        let found = report.volumes.iter().find(|line| line.path.as_deref() == Some(&below));
        let Some(line) = found else {
            return refused(format!(
                "{} is no volume; `stere volume list {}` tells which there are",
                path.display(),
                about.pool
            ));
        };
        return refused(format!(
            "{} with {} files and directories ({}) would be deleted for good; repeat it with --yes, or with --keep to keep them",
            path.display(),
            line.inodes,
            size::show(line.bytes)
        ));
    }
    done(ask(&mut connection, Order::Condemn { inode })?)?;
    if let Err(error) = std::fs::remove_dir(path) {
        let _nothing_is_condemned = ask(&mut connection, Order::Spare);
        return Err(error).at("delete", path);
    }
    while wait && report(&mut connection)?.is_emptying {
        std::thread::sleep(POLL);
    }
    Ok(DONE)
}

pub fn run_quota(registry: &Registry, command: &QuotaCommand) -> Result<u8> {
    match command {
        QuotaCommand::Set { pool, who, settings, wait } => {
            let (limits, rest) = settings_of(settings)?;
            if let Some(word) = rest.first() {
                return Err(Error::Usage(format!(
                    "'{word}' is no limit; write bytes=, inodes=, stored=, soft_bytes=, soft_inodes=, soft_stored= or grace="
                )));
            }
            let mut connection = connect(registry, pool)?;
            let order = match who.split_once(':') {
                Some(("user", name)) => Order::SetUser { name: name.into(), limits },
                Some(("group", name)) => Order::SetGroup { name: name.into(), limits },
                _ if who == "users" || who == "groups" => Order::SetOthers { groups: who == "groups", limits },
                _ if Path::new(who).is_dir() => {
                    let (about, _, inode) = locate::connect(registry, Path::new(who))?;
                    if about.pool != *pool {
                        return refused(format!("{who} is on the pool '{}', not on '{pool}'", about.pool));
                    }
                    Order::SetVolume { inode, limits }
                }
                _ => {
                    return Err(Error::Usage(format!(
                        "'{who}' is not user:NAME, group:NAME, users, groups or the path of a volume"
                    )));
                }
            };
            done(ask(&mut connection, order)?)?;
            while *wait && report(&mut connection)?.state == "counting" {
                std::thread::sleep(POLL);
            }
            Ok(DONE)
        }
        QuotaCommand::List(AccountsArguments { pool, bytes, json }) => {
            let report = report(&mut connect(registry, pool)?)?;
            match json {
                true => println!("{}", to_json(&report)?),
                false => show(&report, *bytes),
            }
            Ok(DONE)
        }
    }
}

fn of(used: u64, most: Option<u64>, show: impl Fn(u64) -> String) -> String {
    format!("{} of {}", show(used), most.map_or_else(|| "any".into(), show))
}

/// What there is to say of soft limits.
fn soft(line: &AccountLine, exact: bool) -> String {
    let part = |soft: Option<String>, what: &str, left: Option<u64>| {
        let soft = soft?;
        Some(match left {
            None => format!("soft {soft}{what}"),
            Some(0) => format!("soft {soft}{what}: more for too long, nothing is added"),
            Some(left) => format!("soft {soft}{what}: more for {} at most", stere_policy::show_length(left)),
        })
    };
    let bytes = line.bytes_soft.map(|bytes| size::show_as(bytes, exact));
    let inodes = line.inodes_soft.map(|inodes| inodes.to_string());
    let stored = line.stored_soft.map(|bytes| size::show_as(bytes, exact));
    let parts = [
        part(bytes, "", line.bytes_grace_left),
        part(inodes, " inodes", line.inodes_grace_left),
        part(stored, " stored", line.stored_grace_left),
    ];
    let by_default = line.by_default.then(|| "by default".to_owned());
    let parts: Vec<String> = parts.into_iter().flatten().chain(by_default).collect();
    if parts.is_empty() { String::new() } else { format!("  ({})", parts.join("; ")) }
}

fn print(name: &str, line: &AccountLine, keeps_stored: bool, exact: bool) {
    let bytes = of(line.bytes, line.bytes_max, |bytes| size::show_as(bytes, exact));
    let inodes = of(line.inodes, line.inodes_max, |inodes| inodes.to_string());
    let stored = of(line.stored, line.stored_max, |bytes| size::show_as(bytes, exact));
    let stored = if keeps_stored { format!("  {stored:>24} stored") } else { String::new() };
    println!("{bytes:>24}  {inodes:>20}{stored}  {}{}", plain(name), soft(line, exact));
}

fn say_state(report: &AccountsReport) {
    match report.state.as_str() {
        "off" => {
            println!("nobody has a quota, so nothing is counted; `stere quota set` and `stere volume create` begin it")
        }
        "counting" => {
            println!("what exists is still being counted: the numbers are too small, and limits count what they say")
        }
        "moving" => println!("directories that were moved, or made volumes, are still being followed"),
        _ => {}
    }
}

fn show_volumes(report: &AccountsReport, exact: bool) {
    for line in &report.volumes {
        let deleted = format!("(deleted, volume {})", line.number);
        print(line.path.as_deref().unwrap_or(&deleted), line, report.keeps_stored, exact);
    }
    say_state(report);
}

fn show(report: &AccountsReport, exact: bool) {
    for (name, line) in [("other users, each", &report.default_user), ("other groups, each", &report.default_group)] {
        if let Some(line) = line {
            print(name, line, report.keeps_stored, exact);
        }
    }
    for (word, lines) in [("user", &report.users), ("group", &report.groups)] {
        for line in lines {
            let name = stere_people::name(word == "group", line.number);
            print(&format!("{word} {name}"), line, report.keeps_stored, exact);
        }
    }
    show_volumes(report, exact);
}
