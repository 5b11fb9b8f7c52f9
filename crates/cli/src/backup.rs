//! `stere backup`: directories outside the pool to which chosen files are copied.
//!
//! The daemon copies (`backup.rs` of the crate `daemon`); what lies at a destination is proven, listed and restored by the command itself, so that no
//! pool is needed for it.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use stere_backup::Destination;
use stere_naming::BackupValue;
use stere_policy::show_moment;

use crate::arguments::backup::{BackupCommand, BackupPlace};
use crate::json::to_json;
use stere_control::backup::{Line, Order, no_destination};
use stere_control::connection::Connection;
use stere_control::message::{Answer, Request};
use stere_machine::error::{At, DATA_LOST, DEGRADED, DONE, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size::{self, count};

const POLL: Duration = Duration::from_millis(100);
const KEEP: u16 = 10;
const PLACE: &str = "a destination is dir:/PATH[,every=1d][,keep=10]";

fn ask(registry: &Registry, pool: &str, order: Order) -> Result<Answer> {
    let Some(mut connection) = Connection::open(registry, pool) else {
        return refused(format!("the pool '{pool}' is not mounted; its mount makes its backups: mount it"));
    };
    connection.wait_without_limit()?;
    connection.ask(Request::Backups { order })
}

fn destinations(registry: &Registry, pool: &str) -> Result<Vec<Line>> {
    match ask(registry, pool, Order::List)? {
        Answer::Backups { destinations } => Ok(destinations),
        _ => refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
}

pub fn run(registry: &Registry, command: &BackupCommand) -> Result<u8> {
    match command {
        BackupCommand::Add { pool, name, place, only, adopt } => {
            let (path, every_seconds, keep) = parse_place(place)?;
            let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
            if name.is_empty() || name.len() > BackupValue::NAME_BYTES_MAX || !is_name(name) {
                return Err(Error::Usage("a name is 1 to 64 letters, digits, '-', '_' and '.'".into()));
            }
            let (name, only) = (name.clone(), only.clone());
            let path = std::path::absolute(&path).at("find", &path)?;
            ask(registry, pool, Order::Add { name, path, every_seconds, keep, only, adopt: *adopt })?;
            Ok(DONE)
        }
        BackupCommand::Remove { pool, name } => {
            ask(registry, pool, Order::Remove { name: name.clone() })?;
            Ok(DONE)
        }
        BackupCommand::Run { pool, name, wait } => run_now(registry, pool, name.as_deref(), *wait),
        BackupCommand::Status { pool, json } => {
            let lines = destinations(registry, pool)?;
            match json {
                true => println!("{}", to_json(&lines)?),
                false => lines.iter().for_each(show),
            }
            Ok(code(&lines))
        }
        BackupCommand::Verify(place) => verify(registry, place),
        BackupCommand::List { place, until, files } => list(registry, place, until.as_deref(), *files),
        BackupCommand::Restore { place, path, to, until, overwrite, preserve } => {
            let destination = open(registry, place)?;
            std::fs::create_dir_all(to).at("make", to)?;
            let top = path.as_ref().map_or(&b""[..], |path| path.as_os_str().as_bytes());
            let top = top.strip_prefix(b"/").unwrap_or(top);
            let top = top.strip_suffix(b"/").unwrap_or(top);
            let preserved = crate::rescue::preserve::Preserved::of(preserve);
            let keep = stere_backup::Preserved { owners: preserved.owners, setid: preserved.setid };
            let restored = destination.restore(until.as_deref(), top, to, *overwrite, keep)?;
            for (path, why) in restored.failed.iter().chain(&restored.unset) {
                eprintln!("/{}: {why}", String::from_utf8_lossy(path).escape_debug());
            }
            println!("{} files restored ({})", restored.files, size::show(restored.bytes));
            tell_left_out(&restored.left_out);
            match restored.failed.len() {
                0 if restored.files == 0 => refused("there is no such file in this state of the backup"),
                0 if restored.unset.is_empty() => Ok(DONE),
                _ => Ok(DEGRADED),
            }
        }
    }
}

/// What gives rights is restored only if it is asked for; what that was is told.
fn tell_left_out(left_out: &stere_backup::LeftOut) {
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut parts = Vec::new();
    if left_out.owners.iter().any(|owner| *owner != me) {
        parts.push("owners and groups (--preserve owners)".to_owned());
    }
    if left_out.with_lists > 0 {
        parts.push(format!("access control lists of {} (--preserve owners)", count(left_out.with_lists, "file")));
    }
    if left_out.with_rights > 0 {
        let files = count(left_out.with_rights, "file");
        parts.push(format!("set-id bits, capabilities and the like of {files} (--preserve setid)"));
    }
    if !parts.is_empty() {
        println!("left out, for it may be meant to harm: {}", parts.join("; "));
    }
}

fn parse_place(text: &str) -> Result<(PathBuf, u32, u16)> {
    let wrong = || Error::Usage(format!("'{text}' is not understood; {PLACE}"));
    let mut words = text.split(',');
    let path = words.next().and_then(|word| word.strip_prefix("dir:")).filter(|path| !path.is_empty());
    let (mut every, mut keep) = (0, KEEP);
    for word in words {
        match word.split_once('=').ok_or_else(wrong)? {
            ("every", value) => {
                let seconds = stere_machine::size::duration(value).ok_or_else(wrong)?.as_secs();
                every = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0).ok_or_else(wrong)?;
            }
            ("keep", value) => keep = value.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    Ok((path.ok_or_else(wrong)?.into(), every, keep))
}

/// 3 where something did not get to where it belongs.
fn code(lines: &[Line]) -> u8 {
    let is_behind = |line: &Line| {
        let last = line.last.as_ref();
        !line.is_attached || last.is_some_and(|last| last.problem.is_some() || last.failed_files > 0)
    };
    if lines.iter().any(is_behind) { DEGRADED } else { DONE }
}

fn run_now(registry: &Registry, pool: &str, name: Option<&str>, wait: bool) -> Result<u8> {
    ask(registry, pool, Order::Run { name: name.map(str::to_owned) })?;
    if !wait {
        println!("it goes on in the background; `stere backup status {pool}` tells how far it is");
        return Ok(DONE);
    }
    loop {
        let mut lines = destinations(registry, pool)?;
        lines.retain(|line| name.is_none_or(|name| line.name == name));
        // One that is away is asked still, and goes on when it is back: nobody waits for that.
        let waits = |line: &Line| {
            let has_failed = line.last.as_ref().is_some_and(|last| last.problem.is_some());
            line.is_running || line.is_asked && !has_failed
        };
        if !lines.iter().any(waits) {
            lines.iter().for_each(show);
            return Ok(code(&lines));
        }
        std::thread::sleep(POLL);
    }
}

fn show(line: &Line) {
    let often = match line.every_seconds {
        0 => "when somebody asks".to_owned(),
        seconds => format!("every {seconds} s"),
    };
    let done = match line.done_seconds {
        Some(seconds) => format!("complete as of {}Z", show_moment(seconds)),
        None => "never complete yet".to_owned(),
    };
    let now = match (line.is_running, line.is_attached) {
        (true, _) => ", running",
        (false, false) => ", AWAY: attach it, and it goes on",
        (false, true) => "",
    };
    println!("{}: {} ({often}), {done}{now}", line.name, line.path.display());
    if !line.only.is_empty() {
        println!("  only {}", line.only);
    }
    let Some(last) = &line.last else { return };
    println!(
        "  last run: {} files, {} copied ({}), {} renamed, {} taken away, {} not copied",
        last.files,
        last.copied_files,
        size::show(last.copied_bytes),
        last.renamed_files,
        last.taken_files,
        last.failed_files
    );
    last.failed.iter().for_each(|(path, why)| println!("  not copied: {}: {why}", path.escape_debug()));
    if let Some(problem) = &last.problem {
        println!("  it did not end: {problem}");
    }
}

/// The directory that is meant, opened and locked.
fn open(registry: &Registry, BackupPlace { place, name }: &BackupPlace) -> Result<Destination> {
    let Some(name) = name else {
        // A word that is a pool's name means the pool, as everywhere.
        let is_pool = !place.contains('/') && registry.find(place)?.is_some();
        let path = if is_pool { only_destination(registry, place)? } else { place.into() };
        return Ok(Destination::open(&path, None)?);
    };
    let lines = destinations(registry, place)?;
    let Some(line) = lines.into_iter().find(|line| line.name == *name) else {
        return no_destination(place, name);
    };
    Ok(Destination::open(&line.path, None)?)
}

fn only_destination(registry: &Registry, pool: &str) -> Result<PathBuf> {
    match destinations(registry, pool)?.as_slice() {
        [] => refused(format!("the pool {pool} has no destination; `stere backup add` names one")),
        [line] => Ok(line.path.clone()),
        lines => {
            let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
            refused(format!("the pool {pool} has several destinations; name one of {}", names.join(", ")))
        }
    }
}

fn verify(registry: &Registry, place: &BackupPlace) -> Result<u8> {
    let mut destination = open(registry, place)?;
    let findings = destination.check(&|| false)?;
    for (path, why) in &findings.bad {
        println!("{}: {why}", String::from_utf8_lossy(path).escape_debug());
    }
    for path in &findings.unknown {
        println!("{}: is not of this backup; it is left alone", String::from_utf8_lossy(path).escape_debug());
    }
    println!("{} files read ({}), {} bad", findings.files, size::show(findings.bytes), findings.bad.len());
    if findings.bad.is_empty() {
        return Ok(DONE);
    }
    println!("the next run copies again what is bad in `current`: `stere backup run`");
    Ok(DATA_LOST)
}

fn list(registry: &Registry, place: &BackupPlace, until: Option<&str>, files: bool) -> Result<u8> {
    let destination = open(registry, place)?;
    if files || until.is_some() {
        for (path, bytes) in destination.list(until)? {
            println!("{bytes:>15}  /{}", String::from_utf8_lossy(&path).escape_debug());
        }
        return Ok(DONE);
    }
    for state in destination.states()? {
        let until = state.until.map_or_else(|| "latest".to_owned(), |until| format!("until {until}"));
        println!("{until:<32} {:>10} files  {:>12}", state.files, size::show(state.bytes));
    }
    Ok(DONE)
}
