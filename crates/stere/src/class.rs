//! `stere class`: what classes a pool has and what they ask for. They are kept and changed by the pool's daemon.

use serde::{Deserialize, Serialize};
use stere_naming::{ClassInfo, FileSystem, Io};

use crate::cli::ClassCommand;
use crate::control::{Answer, Connection, Request};
use crate::error::{DONE, Error, Result, refused};
use crate::registry::Registry;
use crate::status::to_json;
use crate::{clock, reconcile};

type Settings = Vec<(String, String)>;

/// What is asked about classes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    Create { name: String, settings: Settings },
    Change { name: String, settings: Settings },
    Delete { name: String, into: String },
}

/// A class, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClassLine {
    pub name: String,
    pub is_built_in: bool,
    /// What it asks for: keys and values.
    pub settings: Settings,
    /// Files and directories that have it themselves.
    pub members: u64,
    /// Places with rules that name it.
    pub rules: u64,
}

impl From<ClassInfo> for ClassLine {
    fn from(info: ClassInfo) -> ClassLine {
        let settings = info.settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let ClassInfo { name, is_built_in, members, rules, .. } = info;
        ClassLine { name, is_built_in, settings, members, rules }
    }
}

impl ClassLine {
    fn words(&self) -> String {
        let words: Vec<String> = self.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if words.is_empty() { "says nothing".into() } else { words.join(" ") }
    }
}

/// Answers for the daemon.
pub fn serve(filesystem: &FileSystem, order: Order) -> Result<Answer> {
    let caller = clock::own_caller(Io::BLOCKING);
    let mut unkept = None;
    match order {
        Order::List => {
            let classes = filesystem.classes().list_classes(Io::BLOCKING)?.into_iter().map(ClassLine::from).collect();
            return Ok(Answer::Classes { classes });
        }
        Order::Create { name, settings } => {
            filesystem.policy().create_class(&caller, &name, &settings)?;
            unkept = filesystem.unmet_policies().why_class_unkept(&name);
        }
        Order::Change { name, settings } => {
            if !filesystem.policy().change_class(&caller, &name, &settings)? {
                return Ok(Answer::Said { said: format!("the class '{name}' is so already") });
            }
            unkept = filesystem.unmet_policies().why_class_unkept(&name);
        }
        Order::Delete { name, into } => filesystem.policy().delete_class(&caller, &name, &into)?,
    }
    filesystem.store().commit(Io::BLOCKING).map_err(stere_naming::Error::from)?;
    Ok(unkept.map_or(Answer::Done, |why| Answer::DoneBut { why }))
}

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
