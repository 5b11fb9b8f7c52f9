//! `stere policy`: the attributes `user.stere.*` of a path, set and read as anybody can with setxattr(2).

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use stere_policy::{Classes, RuleSet, Setting};

use crate::cli::PolicyCommand;
use crate::error::{At, DONE, Error, Result, refused};
use crate::registry::Registry;
use crate::rules;
use crate::status::to_json;

const VALUE_BYTES_MAX: usize = 65_536;
/// The rules of a directory, which are no value of its own.
const RULES: &str = "rules";
/// The stack of users' plugins, which is a list.
const PLUGINS: &str = "plugins";
const FACTS: [&str; 5] = ["state", "survives", "where", "stored", "residency"];

pub fn run(registry: &Registry, command: &PolicyCommand) -> Result<u8> {
    match command {
        PolicyCommand::Set { path, settings, wait } => {
            set(path, settings)?;
            if *wait { crate::reconcile::wait_for(registry, path) } else { Ok(DONE) }
        }
        PolicyCommand::Get { path, json } => get(path, *json),
        PolicyCommand::Unset { path, keys } => unset(path, keys),
        PolicyCommand::Explain { path } => explain(path),
        PolicyCommand::Load(arguments) => rules::load(registry, arguments),
        PolicyCommand::Show(arguments) => rules::show(registry, arguments),
        PolicyCommand::Log(arguments) => rules::log(registry, arguments),
        PolicyCommand::Test(arguments) => rules::test(registry, arguments),
        PolicyCommand::Apply { path, wait } => crate::reconcile::apply(registry, path, *wait),
    }
}

fn attribute(key: &str) -> String {
    format!("user.stere.{key}")
}

fn set(path: &Path, settings: &[String]) -> Result<()> {
    // All are looked at before the first is set.
    let mut pairs = Vec::new();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| Error::Usage(format!("'{setting}' is not KEY=VALUE; write for example copies=2")))?;
        pairs.push((check_key(key)?, value));
    }
    for (key, value) in pairs {
        match setxattr(path, attribute(key), value.as_bytes(), XattrFlags::empty()) {
            Err(Errno::PERM) if key == RULES => return refused("rules can be set on directories; set them on one"),
            Err(Errno::NOKEY) => {
                return refused(
                    "the pool has no key for this, or it is locked; `stere key list POOL` tells: make it with `stere key create`, or unlock it",
                );
            }
            Err(Errno::INVAL) => {
                return refused(why_not(key, value));
            }
            other => explain_not_here(other, path, "set the policy of")?,
        }
    }
    Ok(())
}

/// Why a value is refused, which the system call does not tell.
fn why_not(key: &str, value: &str) -> String {
    match Setting::from_word(key) {
        Some(setting) => format!("{key} cannot be '{value}'; give {}", setting.expected()),
        None if key == PLUGINS => {
            let expected = "NAME[:PARAMETERS],... of plugins that the pool has, at most 8 (`stere plugin list POOL` tells), or none";
            format!("plugins cannot be '{value}'; give {expected}")
        }
        None => match RuleSet::parse(value, false, &Classes::of_any_name()) {
            Err(error) => format!("the rules are not understood: {error}"),
            Ok(_) => {
                "the rules name a class that the pool does not have; `stere class list POOL` tells which it has".into()
            }
        },
    }
}

fn check_key(key: &str) -> Result<&'static str> {
    if let Some(known) = [RULES, PLUGINS].into_iter().find(|known| *known == key) {
        return Ok(known);
    }
    let known = Setting::ALL.into_iter().map(Setting::word);
    known.clone().find(|word| *word == key).ok_or_else(|| {
        Error::Usage(format!("'{key}' is not a key of policy; the keys are {}", known.collect::<Vec<_>>().join(", ")))
    })
}

fn explain_not_here<T>(result: rustix::io::Result<T>, path: &Path, action: &'static str) -> Result<T> {
    match result {
        Err(Errno::OPNOTSUPP) => {
            refused(format!("{} is not on a stere mount; policy is for files in a pool", path.display()))
        }
        other => other.at(action, path),
    }
}

/// The value of an attribute, or none if there is none.
fn read(path: &Path, key: &str) -> Result<Option<String>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    match getxattr(path, attribute(key), &mut value) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&value[..length]).into_owned())),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => explain_not_here(Err(error), path, "read the policy of"),
    }
}

fn check_is_stere(path: &Path) -> Result<()> {
    match read(path, "effective.class")? {
        Some(_) => Ok(()),
        None => refused(format!("{} is not on a stere mount; policy is for files in a pool", path.display())),
    }
}

fn get(path: &Path, json: bool) -> Result<u8> {
    check_is_stere(path)?;
    let mut facts: BTreeMap<String, String> = BTreeMap::new();
    for key in Setting::ALL.map(Setting::word) {
        for name in [key.to_owned(), format!("effective.{key}")] {
            if let Some(value) = read(path, &name)? {
                facts.insert(name, value);
            }
        }
    }
    for fact in FACTS.into_iter().chain([RULES, PLUGINS, "effective.plugins"]) {
        if let Some(value) = read(path, fact)? {
            facts.insert(fact.into(), value);
        }
    }
    match json {
        true => println!("{}", to_json(&facts)?),
        false => facts.iter().for_each(|(key, value)| println!("{key}={value}")),
    }
    Ok(DONE)
}

fn unset(path: &Path, keys: &[String]) -> Result<u8> {
    let keys = keys.iter().map(|key| check_key(key)).collect::<Result<Vec<_>>>()?;
    for key in keys {
        match removexattr(path, attribute(key)) {
            // It inherits already.
            Err(Errno::NODATA) => {}
            other => explain_not_here(other, path, "unset the policy of")?,
        }
    }
    Ok(DONE)
}

fn explain(path: &Path) -> Result<u8> {
    check_is_stere(path)?;
    for key in Setting::ALL.map(Setting::word) {
        let Some(value) = read(path, &format!("effective.{key}"))? else { continue };
        let source = read(path, &format!("source.{key}"))?.unwrap_or_else(|| "unknown".into());
        println!("{key} is {value}: {source}");
    }
    if let Some(plugins) = read(path, "effective.plugins")?.filter(|plugins| plugins != "none") {
        let source = read(path, "source.plugins")?.unwrap_or_else(|| "unknown".into());
        println!("plugins is {plugins}: {source}");
    }
    let survives = read(path, "survives")?.unwrap_or_default();
    let state = read(path, "state")?.unwrap_or_default();
    let devices = read(path, "where")?.filter(|devices| !devices.is_empty()).unwrap_or_else(|| "nowhere yet".into());
    println!("it survives {survives} device losses; its data lies on: {devices}; state: {state}");
    Ok(DONE)
}
