//! `stere plugin`: users' plugins of a pool. They are kept and run by the pool's daemon, which takes a new one while it is mounted.
//!
//! Which files have which is policy: `stere policy set PATH plugins=...`. Read next: `docs/design/plugins.md`.

use std::path::Path;

use crate::arguments::plugin::PluginCommand;
use crate::json::to_json;
use crate::terminal::plain;
use stere_control::connection::Connection;
use stere_control::message::{Answer, Request};
use stere_control::plugins::{Change, Order, PluginReport, QueueReport, WaitingReport, changed};
use stere_machine::error::{At, DEGRADED, DONE, Error, Result, refused};
use stere_machine::registry::Registry;

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
        let (path, events) = (plain(&file.path), file.events.join(", "));
        let since = stere_policy::show_moment(file.since_seconds);
        let failed = match (file.failures, file.is_given_up) {
            (0, _) => String::new(),
            (failures, true) => format!("; given up after {failures} failures: {}", file.cause),
            (failures, false) => format!("; failed {failures} times: {}", file.cause),
        };
        println!("{path}: {events} since {since}, for {}{}", file.plugins, plain(&failed));
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
