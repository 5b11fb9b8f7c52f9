//! `stere policy load`, `show`, `log` and `test`: rules of the pool, what they did, and what rules of a directory would do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, Io};
use stere_policy::show_moment;

use crate::cli::{LoadArguments, LogArguments, ShowArguments, TestArguments};
use crate::control::{Answer, Connection, Request};
use crate::error::{At, DONE, Result, refused};
use crate::registry::Registry;
use crate::status::to_json;
use crate::{clock, locate, size, tier};

/// Names looked at between two answers of a forecast.
const NAMES_PER_ANSWER: usize = 4096;

/// What is asked about rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// All versions.
    Show,
    /// A new version.
    Load { text: String },
    /// What rules changed.
    Log,
}

/// A version of the pool's rules.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VersionReport {
    pub version: u64,
    pub seconds: i64,
    pub user: u32,
    pub text: String,
}

/// Something that rules changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogReport {
    pub seconds: i64,
    pub inode: u64,
    pub version: u64,
    pub what: String,
}

/// A file that rules would change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangeReport {
    pub path: String,
    pub bytes: u64,
    pub before: String,
    pub after: String,
    /// What it takes on devices now, by their names.
    #[serde(default)]
    pub on_devices: BTreeMap<String, u64>,
    /// What it would take on all of them, encoded as it is now.
    #[serde(default)]
    pub would_take_bytes: u64,
    #[serde(default)]
    pub may_lie_on: Vec<String>,
}

/// What stays on devices: each now, and with the rules.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ResidencyForecast {
    pub pinned_files: [u64; 2],
    pub units: [u64; 2],
    pub names: [u64; 2],
}

impl ResidencyForecast {
    fn line(&self) -> String {
        let counts = [
            ("files are pinned", self.pinned_files),
            ("directories are units", self.units),
            ("let names go that nobody uses", self.names),
        ];
        let counts = counts.map(|(what, [now, then])| format!("{then} {what} (now {now})"));
        format!("with them {}", counts.join(", "))
    }
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    match order {
        Order::Load { text } => {
            filesystem.policy().load_rules(&clock::own_caller(Io::BLOCKING), &text)?;
            filesystem.store().commit(Io::BLOCKING).map_err(stere_naming::Error::from)?;
            let unkept =
                filesystem.unmet_policies().unkept_rule_of_pool().map(|rule| format!("{}: {}", rule.by, rule.why));
            Ok(unkept.map_or(Answer::Done, |why| Answer::DoneBut { why }))
        }
        Order::Show => {
            let versions = filesystem.rules().rules_history(Io::BLOCKING)?.into_iter().map(|one| VersionReport {
                version: one.version,
                seconds: one.rules.seconds,
                user: one.rules.user,
                text: one.rules.text,
            });
            Ok(Answer::Rules { versions: versions.collect() })
        }
        Order::Log => {
            let entries = filesystem.rules().rule_log(Io::BLOCKING)?.into_iter().map(|one| LogReport {
                seconds: one.seconds,
                inode: one.inode,
                version: one.version,
                what: one.text,
            });
            Ok(Answer::RuleLog { entries: entries.collect() })
        }
    }
}

/// A forecast for the daemon: `send` gets the files as they are found, and says whether anybody still listens.
pub fn forecast(
    filesystem: &FileSystem,
    directory: u64,
    rules: &str,
    send: &mut dyn FnMut(Answer) -> bool,
) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    let mut forecast = filesystem.forecasts().forecast_rules(&caller, directory, rules)?;
    let mut left: BTreeMap<u8, u64> = BTreeMap::new();
    while let Some(changes) = forecast.step(&caller, NAMES_PER_ANSWER)? {
        for (number, bytes) in changes.iter().flat_map(|change| &change.goes_to) {
            *left.entry(*number).or_default() += bytes;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let entries = filesystem.store().device_entries();
        let name = |index: u16| {
            let entry = entries.iter().find(|entry| entry.index == index);
            entry.map_or_else(|| format!("device {index}"), |entry| entry.name.clone())
        };
        let report = |one: stere_naming::RuleChange| ChangeReport {
            path: text(&one.path),
            bytes: one.bytes,
            before: one.before,
            after: one.after,
            on_devices: one.lies_on.into_iter().map(|(index, bytes)| (name(index), bytes)).collect(),
            would_take_bytes: one.would_take_bytes,
            may_lie_on: one.may_lie_on.into_iter().map(name).collect(),
        };
        if !send(Answer::RuleChanges { changes: changes.into_iter().map(report).collect() }) {
            break;
        }
    }
    let costs = tier::of_archiving(filesystem.store(), &left)?;
    let residency = forecast.residency.map(|[now, then]| ResidencyForecast {
        pinned_files: [now.pinned_files, then.pinned_files],
        units: [now.units, then.units],
        names: [now.names, then.names],
    });
    Ok(Answer::RulesTested { files: forecast.files, costs, residency })
}

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
                        false => println!("{}: {} -> {}", one.path, one.before, one.after),
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
                tier::print_costs(&arguments.path, &costs);
            }
        }
    }
    Ok(DONE)
}
