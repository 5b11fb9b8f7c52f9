//! `stere policy load`, `show`, `log` and `test`: rules of the pool, what they did, and what rules of a directory would do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use stere_policy::show_moment;

use crate::arguments::{LoadArguments, LogArguments, ShowArguments, TestArguments};
use crate::json::to_json;
use crate::terminal::plain;
use crate::tier::costs;
use stere_control::connection::Connection;
use stere_control::locate;
use stere_control::message::{Answer, Request};
use stere_control::rules::{ChangeReport, Order};
use stere_machine::error::{At, DONE, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

fn connect(registry: &Registry, pool: &str) -> Result<Connection> {
    match Connection::open(registry, pool) {
        Some(connection) => Ok(connection),
        None => refused(format!("the pool '{pool}' is not mounted; its rules are kept by its mount: mount it")),
    }
}

fn unexpected<T>() -> Result<T> {
    refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again")
}

/// From a file, or standard input.
fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).at("read rules from", path)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).at("read rules from", path)
}

pub fn load(registry: &Registry, arguments: &LoadArguments) -> Result<u8> {
    let text = read(&arguments.file)?;
    let mut connection = connect(registry, &arguments.pool)?;
    match connection.ask(Request::Rules { order: Order::Load { text } })?.told() {
        Answer::Done if arguments.wait => crate::reconcile::wait(&mut connection),
        Answer::Done => {
            println!("files are brought in line; `stere reconcile status {}` tells how far", arguments.pool);
            Ok(DONE)
        }
        _ => unexpected(),
    }
}

pub fn show(registry: &Registry, arguments: &ShowArguments) -> Result<u8> {
    let Answer::Rules { mut versions } =
        connect(registry, &arguments.pool)?.ask(Request::Rules { order: Order::Show })?
    else {
        return unexpected();
    };
    if let Some(wanted) = arguments.number {
        versions.retain(|one| one.version == wanted);
        if versions.is_empty() {
            return refused(format!("there is no version {wanted} of the rules; --history lists them"));
        }
    } else if !arguments.history {
        versions = versions.pop().into_iter().collect();
    }
    if arguments.json {
        println!("{}", to_json(&versions)?);
        return Ok(DONE);
    }
    for one in &versions {
        println!("# version {}, loaded {} by user {}", one.version, show_moment(one.seconds), one.user);
        println!("{}", one.text.trim_end());
    }
    Ok(DONE)
}

pub fn log(registry: &Registry, arguments: &LogArguments) -> Result<u8> {
    let Answer::RuleLog { entries } = connect(registry, &arguments.pool)?.ask(Request::Rules { order: Order::Log })?
    else {
        return unexpected();
    };
    match arguments.json {
        true => println!("{}", to_json(&entries)?),
        false => entries.iter().for_each(|entry| println!("{}  {}", show_moment(entry.seconds), entry.what)),
    }
    Ok(DONE)
}

/// `stere policy test`: RULES is a file with rules, or rules.
/// What all files that rules would change take on devices.
#[derive(Default)]
struct OnDevices {
    now: BTreeMap<String, u64>,
    then_bytes: u64,
    then_on: BTreeSet<String>,
}

impl OnDevices {
    fn add(&mut self, change: &ChangeReport) {
        for (name, bytes) in &change.on_devices {
            *self.now.entry(name.clone()).or_default() += bytes;
        }
        self.then_bytes += change.would_take_bytes;
        self.then_on.extend(change.may_lie_on.iter().cloned());
    }

    fn line(&self) -> Option<String> {
        let now: Vec<String> = self.now.iter().map(|(name, bytes)| format!("{name} {}", size::show(*bytes))).collect();
        let then: Vec<&str> = self.then_on.iter().map(String::as_str).collect();
        (!now.is_empty()).then(|| {
            format!(
                "on devices: {} now ({}); then {}, encoded as now, on {}",
                size::show(self.now.values().sum()),
                now.join(", "),
                size::show(self.then_bytes),
                then.join(", ")
            )
        })
    }
}

pub fn test(registry: &Registry, arguments: &TestArguments) -> Result<u8> {
    let as_file = Path::new(&arguments.rules);
    let rules = if as_file.is_file() || arguments.rules == "-" { read(as_file)? } else { arguments.rules.clone() };
    let (_, mut connection, directory) = locate::connect(registry, &arguments.path)?;
    connection.wait_without_limit()?;
    let (mut all, mut bytes, mut count) = (Vec::new(), 0, 0u64);
    let mut on_devices = OnDevices::default();
    let mut answer = Some(connection.ask(Request::TestRules { directory, rules })?);
    let (files, costs, residency) = loop {
        match answer {
            Some(Answer::RuleChanges { changes }) => {
                for one in changes {
                    (bytes, count) = (bytes + one.bytes, count + 1);
                    on_devices.add(&one);
                    match arguments.json {
                        true => all.push(one),
                        false => println!("{}: {} -> {}", plain(&one.path), one.before, one.after),
                    }
                }
            }
            Some(Answer::RulesTested { files, costs, residency }) => break (files, costs, residency),
            Some(_) => return unexpected(),
            None => return refused("the pool's daemon ended before it answered; see its log"),
        }
        answer = connection.next_answer()?;
    };
    match arguments.json {
        true => println!("{}", to_json(&all)?),
        false => {
            println!("{count} of {files} files would be stored otherwise: {}", size::show(bytes));
            if let Some(line) = on_devices.line() {
                println!("{line}");
            }
            if let Some(residency) = residency {
                println!("{}", residency.line());
            }
            if !costs.is_empty() {
                costs::print(&arguments.path, &costs);
            }
        }
    }
    Ok(DONE)
}
