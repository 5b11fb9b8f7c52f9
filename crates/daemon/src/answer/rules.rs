//! Rules of the pool: loaded and told; and what rules would change, file by file.

use stere_naming::{FileSystem, Io};

use crate::answer::tier::costs;
use stere_control::message::Answer;
use stere_control::rules::{ChangeReport, LogReport, Order, ResidencyForecast, VersionReport};
use stere_machine::clock;
use stere_machine::error::Result;

/// Names looked at between two answers of a forecast.
const NAMES_PER_ANSWER: usize = 4096;

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    match order {
        Order::Load { text } => {
            let caller = clock::own_caller(Io::BLOCKING);
            filesystem.command(&caller, || filesystem.policy().load_rules(&caller, &text))?;
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
    let mut left = costs::ToArchive::new();
    while let Some(changes) = forecast.step(&caller, NAMES_PER_ANSWER)? {
        for change in &changes {
            for (number, bytes) in &change.goes_to {
                *left.entry((*number, change.goes_in_data_chunks)).or_default() += bytes;
            }
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
    let costs = costs::of_archiving(filesystem.store(), &left)?;
    let residency = forecast.residency.map(|[now, then]| ResidencyForecast {
        pinned_files: [now.pinned_files, then.pinned_files],
        units: [now.units, then.units],
        names: [now.names, then.names],
    });
    Ok(Answer::RulesTested { files: forecast.files, costs, residency })
}
