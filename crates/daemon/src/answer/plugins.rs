//! Plugins of the pool: told, added, removed; and the events that wait for them.

use std::sync::Arc;

use stere_format::PluginRecord;
use stere_naming::{FileSystem, FollowChange, FollowInfo, Io, PluginInfo};

use stere_control::message::Answer;
use stere_control::plugins::{Change, NAMED_MAX, Order, PluginReport, QueueReport, WaitingReport, changed};
use stere_machine::clock;
use stere_machine::error::{Result, refused};

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
        Order::Stack { number } => return stack(filesystem, number),
        Order::Add { name, module } => {
            filesystem.command(&caller, || filesystem.plugins().add_plugin(&caller, &name, &module))?;
            format!("the pool has the plugin '{name}'; give it to files with `stere policy set PATH plugins={name}`")
        }
        Order::Remove { name } => {
            filesystem.plugins().remove_plugin(&caller, &name)?;
            format!("the plugin '{name}' is gone")
        }
    };
    Ok(Answer::Said { said })
}

/// For a machine that runs it itself.
fn stack(filesystem: &FileSystem, number: u16) -> Result<Answer> {
    let Some((stack, parts)) = filesystem.plugins().plugins().parts(number) else {
        return refused(format!("the pool has no stack {number} of plugins"));
    };
    let part = |(plugin, record, module): (u16, PluginRecord, Arc<[u8]>)| (plugin, record.encode(), module.to_vec());
    Ok(Answer::PluginStack { stack: stack.encode(), plugins: parts.into_iter().map(part).collect() })
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
