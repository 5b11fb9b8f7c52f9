//! `stere volume` and `stere quota`: who may take how much, and who does. Accounts are kept by the pool's daemon.
//!
//! A volume is deleted in two steps: the daemon is told that the next removal of this directory takes all that is in it, and then the
//! directory is removed by rmdir(2), so that the kernel asks for permission and forgets what it knew of it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stere_naming::{Account, AccountInfo, AccountValue, AccountsState, FileSystem, Holder, Io, Limits};

use crate::cli::{AccountsArguments, QuotaCommand, VolumeCommand};
use crate::control::{Answer, Connection, Request};
use crate::error::{At, DONE, Error, Result, refused};
use crate::registry::Registry;
use crate::status::to_json;
use crate::{clock, locate, people, policy, size};

const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// Limits as they are sent: absent to leave one as it is, null to take it away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inodes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stored: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    soft_bytes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    soft_inodes: Option<Most>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    soft_stored: Option<Most>,
    /// In seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grace: Option<Most>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Most {
    Unlimited,
    Of(u64),
}

impl Most {
    fn number(self) -> Option<u64> {
        match self {
            Most::Unlimited => None,
            Most::Of(number) => Some(number),
        }
    }
}

impl From<Wanted> for Limits {
    fn from(wanted: Wanted) -> Limits {
        let seconds = |most: Most| most.number().map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        Limits {
            bytes: wanted.bytes.map(Most::number),
            inodes: wanted.inodes.map(Most::number),
            stored: wanted.stored.map(Most::number),
            soft_bytes: wanted.soft_bytes.map(Most::number),
            soft_inodes: wanted.soft_inodes.map(Most::number),
            soft_stored: wanted.soft_stored.map(Most::number),
            grace_seconds: wanted.grace.map(seconds),
        }
    }
}

/// What is asked about accounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    CreateVolume {
        inode: u64,
        limits: Wanted,
    },
    SetVolume {
        inode: u64,
        limits: Wanted,
    },
    Dissolve {
        inode: u64,
    },
    Condemn {
        inode: u64,
    },
    Spare,
    SetUser {
        name: String,
        limits: Wanted,
    },
    SetGroup {
        name: String,
        limits: Wanted,
    },
    /// All users, or groups, who have no limits of their own.
    SetOthers {
        groups: bool,
        limits: Wanted,
    },
}

/// An account, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountLine {
    pub number: u32,
    /// Of volumes: from the root of the pool; null when it is deleted and not empty yet.
    pub path: Option<String>,
    /// Of volumes: the number of the volume that it lies in; 0 for none.
    pub parent: u32,
    pub bytes: u64,
    pub inodes: u64,
    /// On devices, with copies or parity; 0 where nobody ever limited that.
    #[serde(default)]
    pub stored: u64,
    pub bytes_max: Option<u64>,
    pub inodes_max: Option<u64>,
    #[serde(default)]
    pub stored_max: Option<u64>,
    pub bytes_soft: Option<u64>,
    pub inodes_soft: Option<u64>,
    #[serde(default)]
    pub stored_soft: Option<u64>,
    /// How long there may still be more than the soft limit, in seconds; null while there is not more.
    pub bytes_grace_left: Option<u64>,
    pub inodes_grace_left: Option<u64>,
    #[serde(default)]
    pub stored_grace_left: Option<u64>,
    /// Whether the limits are those of all who have none of their own.
    pub by_default: bool,
    pub is_deleted: bool,
}

/// All accounts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AccountsReport {
    /// `off`, `counting`, `moving` or `exact`.
    pub state: String,
    /// Whether deleted volumes are still being emptied.
    pub is_emptying: bool,
    /// Whether stored bytes are counted: somebody limited them once.
    #[serde(default)]
    pub keeps_stored: bool,
    pub users: Vec<AccountLine>,
    pub groups: Vec<AccountLine>,
    pub volumes: Vec<AccountLine>,
    /// The limits of those users and groups who have none of their own.
    pub default_user: Option<AccountLine>,
    pub default_group: Option<AccountLine>,
}

impl From<AccountInfo> for AccountLine {
    fn from(info: AccountInfo) -> AccountLine {
        let AccountInfo { account, value, most, path } = info;
        let now = clock::now().seconds.try_into().unwrap_or(0);
        let left = |since: u64| (since != 0).then(|| most.left_seconds(since, now).unwrap_or(0));
        AccountLine {
            number: account.number,
            path: path.map(|path| String::from_utf8_lossy(&path).into_owned()),
            parent: value.place.map_or(0, |place| place.parent),
            bytes: value.bytes,
            inodes: value.inodes,
            stored: value.stored,
            bytes_max: most.bytes,
            inodes_max: most.inodes,
            stored_max: most.stored,
            bytes_soft: most.soft.bytes,
            inodes_soft: most.soft.inodes,
            stored_soft: most.soft.stored,
            bytes_grace_left: left(value.soft.bytes_since),
            inodes_grace_left: left(value.soft.inodes_since),
            stored_grace_left: left(value.soft.stored_since),
            by_default: !value.has_limits() && most != stere_naming::Most::default(),
            is_deleted: value.place.is_some_and(|place| place.is_deleted),
        }
    }
}

fn gather(filesystem: &FileSystem) -> Result<AccountsReport> {
    let lines = |holder| -> Result<Vec<AccountLine>> {
        Ok(filesystem.quotas().accounts(Io::BLOCKING, holder)?.into_iter().map(AccountLine::from).collect())
    };
    let state = filesystem.quotas().accounts_state(Io::BLOCKING)?;
    let word = match state {
        AccountsState::Off => "off",
        AccountsState::Counting(_) | AccountsState::Charging => "counting",
        AccountsState::Moving => "moving",
        AccountsState::Exact => "exact",
    };
    let (mut users, mut groups, volumes) = (lines(Holder::User)?, lines(Holder::Group)?, lines(Holder::Volume)?);
    let take_others = |lines: &mut Vec<AccountLine>| {
        lines.iter().position(|line| line.number == AccountValue::OTHERS).map(|at| lines.remove(at))
    };
    let (default_user, default_group) = (take_others(&mut users), take_others(&mut groups));
    let is_emptying = state != AccountsState::Off && filesystem.quotas().is_emptying(Io::BLOCKING)?;
    let keeps_stored = filesystem.quotas().keeps_stored();
    let state = word.into();
    Ok(AccountsReport { state, is_emptying, keeps_stored, users, groups, volumes, default_user, default_group })
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    let set = |holder, number: Option<u32>, name: &str, limits: Wanted| {
        let Some(number) = number.or_else(|| name.parse().ok()) else {
            return refused(format!("there is nobody called '{name}' on this machine; give a name or a number"));
        };
        Ok(filesystem.quotas().set_quota(&caller, Account { holder, number }, limits.into())?)
    };
    let known = people::system();
    let known = known.as_deref();
    match order {
        Order::List => return Ok(Answer::Accounts(Box::new(gather(filesystem)?))),
        Order::CreateVolume { inode, limits } => {
            filesystem.quotas().create_volume(&caller, inode, limits.into()).map(|_number| ())?;
        }
        Order::SetVolume { inode, limits } => filesystem.quotas().set_volume(&caller, inode, limits.into())?,
        Order::Dissolve { inode } => filesystem.quotas().dissolve_volume(&caller, inode)?,
        Order::Condemn { inode } => filesystem.quotas().condemn_volume(&caller, inode)?,
        Order::Spare => filesystem.quotas().spare_volume(),
        Order::SetUser { name, limits } => {
            set(Holder::User, known.and_then(|people| people.user(&name)), &name, limits)?;
        }
        Order::SetGroup { name, limits } => {
            set(Holder::Group, known.and_then(|people| people.group(&name)), &name, limits)?;
        }
        Order::SetOthers { groups, limits } => {
            let holder = if groups { Holder::Group } else { Holder::User };
            set(holder, Some(AccountValue::OTHERS), "", limits)?;
        }
    }
    filesystem.store().commit(Io::BLOCKING).map_err(stere_naming::Error::from)?;
    Ok(Answer::Done)
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

fn done(answer: Answer) -> Result<u8> {
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
            let report = report(&mut connect(registry, pool)?)?;
            match json {
                true => println!("{}", to_json(&report.volumes)?),
                false => show_volumes(&report, *bytes),
            }
            Ok(DONE)
        }
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

fn create(registry: &Registry, path: &Path, settings: &[String]) -> Result<u8> {
    let (limits, rest) = settings_of(settings)?;
    let is_new = match std::fs::create_dir(path) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error).at("make the directory", path),
    };
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
    println!("{bytes:>24}  {inodes:>20}{stored}  {name}{}", soft(line, exact));
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
            let name = people::name(word == "group", line.number);
            print(&format!("{word} {name}"), line, report.keeps_stored, exact);
        }
    }
    show_volumes(report, exact);
}
