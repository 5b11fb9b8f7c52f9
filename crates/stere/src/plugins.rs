//! `stere plugin`: users' plugins of a pool. They are kept and run by the pool's daemon, which takes a new one while it is mounted.
//!
//! Which files have which is policy: `stere policy set PATH plugins=...`. Read next: `docs/design/plugins.md`.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stere_naming::{FileSystem, FollowChange, FollowInfo, Io, PluginInfo};
use stere_plugin::Loader;
use stere_sandbox::{Limits, Sandbox};

use crate::cli::PluginCommand;
use crate::clock;
use crate::control::{Answer, Connection, Request};
use crate::error::{At, DEGRADED, DONE, Error, Result, refused};
use crate::registry::Registry;
use crate::status::to_json;

/// What is asked about plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    Add { name: String, module: Vec<u8> },
    Remove { name: String },
    Queue,
    Change { change: Change },
}

/// What is to be done about what waits for plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Retry,
    DropGivenUp,
    DropAll,
}

/// What waits for plugins that are told afterwards, for people and programs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct QueueReport {
    pub waiting: u64,
    pub given_up: u64,
    /// Removals that nobody is told of, since the mount.
    pub lost: u64,
    /// At most a thousand of them, those given up first.
    pub files: Vec<WaitingReport>,
}

/// A file of which plugins are still to be told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitingReport {
    pub path: String,
    pub events: Vec<String>,
    pub plugins: String,
    pub since_seconds: i64,
    pub failures: u8,
    pub next_seconds: i64,
    pub is_given_up: bool,
    pub cause: String,
}

/// Files that a report names.
pub const NAMED_MAX: usize = 1000;

/// A plugin, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PluginReport {
    pub name: String,
    pub number: u16,
    pub module_bytes: u32,
    pub added_seconds: i64,
    /// Whether its name means it, and not a newer one.
    pub is_current: bool,
    /// Whether it turns records into something else.
    pub is_codec: bool,
    /// What it is asked about.
    pub events: Vec<String>,
    /// What it is told of afterwards.
    #[serde(default)]
    pub follows: Vec<String>,
    /// Why it cannot be run, if it cannot.
    pub failure: Option<String>,
}

/// What runs plugins in this process; none where the machine cannot, and then files that have some cannot be used.
pub fn loader() -> Option<Arc<dyn Loader>> {
    match Sandbox::new(Limits::default()) {
        Ok(sandbox) => Some(Arc::new(sandbox)),
        Err(failure) => {
            tracing::error!(%failure, "plugins cannot be run here");
            None
        }
    }
}

/// Whether plugins can be run on this machine.
pub fn can_run() -> bool {
    Sandbox::new(Limits::default()).is_ok()
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    let said = match order {
        Order::List => {
            return Ok(Answer::Plugins {
                plugins: filesystem.plugins().plugin_list().into_iter().map(report).collect(),
            });
        }
        Order::Queue => return Ok(Answer::PluginQueue { queue: queue(filesystem)? }),
        Order::Change { change } => {
            let change = match change {
                Change::Retry => FollowChange::Retry,
                Change::DropGivenUp => FollowChange::DropGivenUp,
                Change::DropAll => FollowChange::DropAll,
            };
            changed(
                change == FollowChange::Retry,
                filesystem.asynchronous_events().change_follow_list(&caller, change)?,
            )
        }
        Order::Add { name, module } => {
            filesystem.plugins().add_plugin(&caller, &name, &module)?;
            format!("the pool has the plugin '{name}'; give it to files with `stere policy set PATH plugins={name}`")
        }
        Order::Remove { name } => {
            filesystem.plugins().remove_plugin(&caller, &name)?;
            format!("the plugin '{name}' is gone")
        }
    };
    Ok(Answer::Said { said })
}

/// What was done about what waits.
pub fn changed(is_retry: bool, files: u64) -> String {
    let what = if is_retry { "are tried again now" } else { "are forgotten; their plugins are not told" };
    format!("{files} files {what}")
}

fn queue(filesystem: &FileSystem) -> Result<QueueReport> {
    let list = filesystem.asynchronous_events().follow_list(&clock::own_caller(Io::BLOCKING), NAMED_MAX)?;
    let waiting = |info: FollowInfo| {
        let FollowInfo { path, events, plugins, since_seconds, failures, next_seconds, is_given_up, cause } = info;
        let (path, events) = (String::from_utf8_lossy(&path).into_owned(), words(events));
        WaitingReport { path, events, plugins, since_seconds, failures, next_seconds, is_given_up, cause }
    };
    let files = list.some.into_iter().map(waiting).collect();
    Ok(QueueReport { waiting: list.waiting, given_up: list.given_up, lost: list.lost, files })
}

fn words(words: Vec<&'static str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

/// For people and programs.
pub fn report(info: PluginInfo) -> PluginReport {
    let PluginInfo { number, name, module_bytes, added_seconds, is_current, hooks } = info;
    let (is_codec, events, follows, failure) = match hooks {
        Ok(hooks) => (hooks.is_codec, words(hooks.events), words(hooks.follows), None),
        Err(failure) => (false, Vec::new(), Vec::new(), Some(failure)),
    };
    PluginReport { name, number, module_bytes, added_seconds, is_current, is_codec, events, follows, failure }
}

/// A module from a file; text is made one.
pub fn read_module(file: &Path) -> Result<Vec<u8>> {
    let bytes = std::fs::read(file).at("read", file)?;
    match wat::parse_bytes(&bytes) {
        Ok(module) => Ok(module.into_owned()),
        Err(error) => refused(format!("{} is no WebAssembly, and no text of it: {error}", file.display())),
    }
}

/// Where a mount of `stere stack` tells what waits; see `crates/stack/src/server/following.rs`.
const QUEUE_ATTRIBUTE: &str = "user.stere.queue";

/// What waits at a mount of `stere stack`, or what was done about it; nothing if it is none.
fn of_stack(command: &PluginCommand) -> Result<Option<u8>> {
    let PluginCommand::Queue(arguments) = command else { return Ok(None) };
    let mut said = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::getxattr(arguments.place.as_str(), QUEUE_ATTRIBUTE, &mut said[..]) else {
        return Ok(None);
    };
    said.truncate(length);
    let change = match arguments.order() {
        Order::Change { change: Change::Retry } => Some("retry"),
        Order::Change { change: Change::DropGivenUp } => Some("drop"),
        Order::Change { change: Change::DropAll } => Some("drop-all"),
        _ => None,
    };
    let Some(queue) = queue_of_stack(&String::from_utf8_lossy(&said)) else {
        return refused("the mount gave an answer that means nothing here; use the stere that mounted it");
    };
    let Some(change) = change else { return show_queue(command, &queue).map(Some) };
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(arguments.place.as_str(), QUEUE_ATTRIBUTE, change.as_bytes(), flags)
        .map_err(|error| Error::System(error.into()))?;
    let files = if change == "drop" { queue.given_up } else { queue.waiting + queue.given_up };
    println!("{}", changed(change == "retry", files));
    Ok(Some(DONE))
}

fn queue_of_stack(said: &str) -> Option<QueueReport> {
    let mut lines = said.lines();
    let counts: Vec<u64> = lines.next()?.split('\t').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [waiting, given_up, lost] = counts[..] else { return None };
    let file = |line: &str| {
        let [since, failures, next, is_given_up, path, cause] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(WaitingReport {
            path: path.to_owned(),
            events: vec!["change".to_owned()],
            plugins: "the rules".to_owned(),
            since_seconds: since.parse().ok()?,
            failures: failures.parse().ok()?,
            next_seconds: next.parse().ok()?,
            is_given_up: is_given_up == "1",
            cause: cause.to_owned(),
        })
    };
    Some(QueueReport { waiting, given_up, lost, files: lines.map(file).collect::<Option<_>>()? })
}

pub fn run(registry: &Registry, command: &PluginCommand) -> Result<u8> {
    if let Some(code) = of_stack(command)? {
        return Ok(code);
    }
    let (pool, order) = match command {
        PluginCommand::List { pool, .. } => (pool, Order::List),
        PluginCommand::Add { pool, name, file } => {
            (pool, Order::Add { name: name.clone(), module: read_module(file)? })
        }
        PluginCommand::Remove { pool, name } => (pool, Order::Remove { name: name.clone() }),
        PluginCommand::Queue(arguments) => (&arguments.place, arguments.order()),
    };
    let Some(mut connection) = Connection::open(registry, pool) else {
        return refused(format!("the pool '{pool}' is not mounted; its plugins are kept by its mount: mount it"));
    };
    // Looking for what passed a plugin takes its time.
    connection.wait_without_limit()?;
    match connection.ask(Request::Plugins { order })? {
        Answer::Plugins { plugins } => match command {
            PluginCommand::List { json: true, .. } => println!("{}", to_json(&plugins)?),
            _ => print(pool, &plugins),
        },
        Answer::PluginQueue { queue } => return show_queue(command, &queue),
        Answer::Said { said } => println!("{said}"),
        _ => return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
    }
    Ok(DONE)
}

/// Says what waits; degraded where something was given up.
fn show_queue(command: &PluginCommand, queue: &QueueReport) -> Result<u8> {
    if matches!(command, PluginCommand::Queue(arguments) if arguments.json) {
        println!("{}", to_json(queue)?);
    } else {
        print_queue(queue);
    }
    Ok(if queue.given_up > 0 || queue.lost > 0 { DEGRADED } else { DONE })
}

fn print_queue(queue: &QueueReport) {
    println!("{} files wait for plugins; {} were given up", queue.waiting, queue.given_up);
    if queue.lost > 0 {
        println!("{} removals were not noted, for too many waited: their plugins are not told", queue.lost);
    }
    for file in &queue.files {
        let (path, events) = (&file.path, file.events.join(", "));
        let since = stere_policy::show_moment(file.since_seconds);
        let failed = match (file.failures, file.is_given_up) {
            (0, _) => String::new(),
            (failures, true) => format!("; given up after {failures} failures: {}", file.cause),
            (failures, false) => format!("; failed {failures} times: {}", file.cause),
        };
        println!("{path}: {events} since {since}, for {}{failed}", file.plugins);
    }
    if queue.given_up > 0 {
        println!("`stere plugin queue ... --retry` tries all again, `--drop` forgets what was given up");
    }
}

fn print(pool: &str, plugins: &[PluginReport]) {
    if plugins.is_empty() {
        println!("the pool '{pool}' has no plugin yet; add one with `stere plugin add {pool} NAME FILE.wasm`");
    }
    for plugin in plugins {
        let older = if plugin.is_current { "" } else { " (an older one, kept for what is stored with it)" };
        let codec = plugin.is_codec.then(|| "turns records".to_owned());
        let events = (!plugin.events.is_empty()).then(|| format!("is asked before: {}", plugin.events.join(", ")));
        let follows = (!plugin.follows.is_empty()).then(|| format!("is told after: {}", plugin.follows.join(", ")));
        let hooks: Vec<String> = codec.into_iter().chain(events).chain(follows).chain(plugin.failure.clone()).collect();
        println!("{}{older}: {}; {} bytes", plugin.name, hooks.join("; "), plugin.module_bytes);
    }
}
