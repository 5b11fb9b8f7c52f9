//! `stere provenance` and `stere audit`: who wrote files, from what, and what happened to them.
//!
//! The daemon answers through the public socket, and decides what the caller may know.

use serde_json::Value;

use crate::arguments::watch::{AuditArguments, ProvenanceArguments};
use crate::json::to_json;
use crate::terminal::plain;
use stere_control::connection;
use stere_control::public::{self, PublicAnswer, Question};
use stere_control::watch::Asked;
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::Registry;

pub fn run_provenance(arguments: &ProvenanceArguments) -> Result<u8> {
    let question = Question::Watched { asked: Asked::Provenance };
    let mut answers = public::ask(&arguments.path, &question)?;
    let PublicAnswer::Watched { facts } = answers.next_answer()? else {
        return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
    };
    let facts = facts.into_iter().next().unwrap_or_default();
    if arguments.json {
        println!("{}", to_json(&facts)?);
        return Ok(DONE);
    }
    let list = |key: &str| facts[key].as_array().cloned().unwrap_or_default();
    if list("written").is_empty() {
        println!("{}: nothing is known of who wrote it", arguments.path.display());
    }
    list("written").iter().for_each(|record| println!("{}", written_line(record)));
    for (title, key) in [("made from", "from"), ("made from it", "made")] {
        for file in list(key) {
            println!("{title}: {}", plain(&name_of(&file)));
            file["written"].as_array().into_iter().flatten().for_each(|record| println!("  {}", written_line(record)));
        }
    }
    Ok(DONE)
}

fn name_of(file: &Value) -> String {
    match (file["path"].as_str(), file["was"].as_str()) {
        (Some(path), _) => path.to_owned(),
        (None, Some(was)) => format!("{was} (removed since)"),
        (None, None) => format!("inode {}", file["inode"]),
    }
}

fn who(record: &Value) -> String {
    let executable = record["executable"].as_str().unwrap_or("an unknown program");
    let executable = plain(executable);
    let process = record["process"].as_u64().map_or_else(String::new, |process| format!(" ({process})"));
    format!("{} with {executable}{process}", record["user"].as_str().unwrap_or("?"))
}

fn written_line(record: &Value) -> String {
    let words = record["command"].as_array().cloned().unwrap_or_default();
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    let command = if words.is_empty() { String::new() } else { format!(": {}", words.join(" ").escape_debug()) };
    format!("{} written by {}{command}", record["time"].as_str().unwrap_or("?"), who(record))
}

pub fn run_audit(registry: &Registry, arguments: &AuditArguments) -> Result<u8> {
    let pools = connection::daemons(registry).into_iter().filter(|about| about.pool == arguments.place);
    let path = pools.map(|about| about.mountpoint).next().unwrap_or_else(|| arguments.place.clone().into());
    let mut answers = public::ask(&path, &Question::Watched { asked: Asked::Audit })?;
    loop {
        match answers.next_answer()? {
            PublicAnswer::Watched { facts } => {
                for record in facts {
                    if arguments.json {
                        println!("{}", serde_json::to_string(&record).map_err(|error| Error::System(error.into()))?);
                    } else {
                        println!("{}", audit_line(&record));
                    }
                }
            }
            PublicAnswer::Counted { .. } => return Ok(DONE),
            _ => return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again"),
        }
    }
}

fn audit_line(record: &Value) -> String {
    let said = |key: &str| record[key].as_str().map(str::to_owned);
    let path = said("path").unwrap_or_else(|| format!("inode {}", record["inode"]));
    let new_path = said("new_path").map_or_else(String::new, |path| format!(" to {}", path.escape_debug()));
    let refused = record["refused"].as_i64().map_or_else(String::new, |errno| {
        format!(", REFUSED: {}", std::io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0)))
    });
    let (time, event) = (said("time").unwrap_or_default(), said("event").unwrap_or_default());
    format!("{time} {event} {}{new_path} by {}{refused}", path.escape_debug(), who(record))
}
