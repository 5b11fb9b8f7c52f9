//! `stere class`: what classes a pool has and what they ask for. They are kept and changed by the pool's daemon.

use crate::arguments::policy::ClassCommand;
use crate::json::to_json;
use crate::reconcile;
use stere_control::class::{ClassLine, Order, Settings};
use stere_control::connection::Connection;
use stere_control::message::{Answer, Request};
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::Registry;

fn settings_of(words: &[String]) -> Result<Settings> {
    let pair = |word: &String| match word.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Error::Usage(format!("'{word}' is not KEY=VALUE; write for example copies=2"))),
    };
    words.iter().map(pair).collect()
}

pub fn run(registry: &Registry, command: &ClassCommand) -> Result<u8> {
    let (pool, order, waits) = match command {
        ClassCommand::List { pool, .. } | ClassCommand::Show { pool, .. } => (pool, Order::List, false),
        ClassCommand::Create { pool, name, settings } => {
            (pool, Order::Create { name: name.clone(), settings: settings_of(settings)? }, false)
        }
        ClassCommand::Change { pool, name, settings, wait } => {
            (pool, Order::Change { name: name.clone(), settings: settings_of(settings)? }, *wait)
        }
        ClassCommand::Delete { pool, name, into, wait, .. } => {
            (pool, Order::Delete { name: name.clone(), into: into.clone() }, *wait)
        }
    };
    let Some(mut connection) = Connection::open(registry, pool) else {
        return refused(format!("the pool '{pool}' is not mounted; its classes are kept by its mount: mount it"));
    };
    if let ClassCommand::Delete { name, into, yes: false, .. } = command {
        return forecast(&mut connection, name, into);
    }
    match connection.ask(Request::Classes { order })?.told() {
        Answer::Classes { classes } => show(command, &classes),
        Answer::Said { said } => {
            println!("{said}");
            Ok(DONE)
        }
        Answer::Done if waits => reconcile::wait(&mut connection),
        Answer::Done => {
            tell(command);
            Ok(DONE)
        }
        _ => unexpected(),
    }
}

fn unexpected() -> Result<u8> {
    refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again")
}

/// What deleting a class would change; nothing does without --yes.
fn forecast(connection: &mut Connection, name: &str, into: &str) -> Result<u8> {
    let Answer::Classes { classes } = connection.ask(Request::Classes { order: Order::List })? else {
        return unexpected();
    };
    let Some(class) = classes.iter().find(|class| class.name == name) else { return refused(no_such(name, &classes)) };
    refused(format!(
        "'{name}' ({}) is set on {} files and directories and named by rules in {} places, which would all be of class '{into}'; repeat it with --yes",
        class.words(),
        class.members,
        class.rules
    ))
}

fn no_such(name: &str, classes: &[ClassLine]) -> String {
    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    format!("the pool has no class '{name}'; it has {}", names.join(", "))
}

fn show(command: &ClassCommand, classes: &[ClassLine]) -> Result<u8> {
    match command {
        ClassCommand::Show { name, json, .. } => {
            let Some(class) = classes.iter().find(|class| class.name == *name) else {
                return refused(no_such(name, classes));
            };
            match json {
                true => println!("{}", to_json(class)?),
                false => {
                    let kind = if class.is_built_in { "built in" } else { "defined by the pool" };
                    println!("{}: {}; {kind}", class.name, class.words());
                    println!(
                        "set on {} files and directories, named by rules in {} places",
                        class.members, class.rules
                    );
                }
            }
        }
        ClassCommand::List { json: true, .. } => println!("{}", to_json(&classes)?),
        _ => classes.iter().for_each(|class| println!("{:16}  {}", class.name, class.words())),
    }
    Ok(DONE)
}

fn tell(command: &ClassCommand) {
    match command {
        ClassCommand::Create { pool, name, .. } => {
            println!("made; use it with `stere policy set PATH class={name}`, or in rules of the pool '{pool}'");
        }
        ClassCommand::Change { pool, .. } | ClassCommand::Delete { pool, .. } => {
            println!("files are brought in line; `stere reconcile status {pool}` tells how far");
        }
        ClassCommand::List { .. } | ClassCommand::Show { .. } => {}
    }
}
