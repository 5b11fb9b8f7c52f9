//! `stere policy`: the attributes `user.stere.*` of a path, set and read as anybody can with setxattr(2).

use std::collections::BTreeMap;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use stere_policy::{
    Classes, List, NODE_KEY_PREFIX, RuleError, RuleSet, Setting, Vocabulary, lockable_keys, node_attribute, policy_key,
    settable_keys,
};

use crate::arguments::PolicyCommand;
use crate::json::to_json;
use crate::rules;
use stere_machine::error::{At, DONE, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::size;

/// How the source of a locked value begins.
const LOCKED: &str = "locked";
const VALUE_BYTES_MAX: usize = 65_536;

/// The rules of a directory, which are no value of its own.
const RULES: &str = "rules";

/// The stack of users' plugins, which is a list.
const PLUGINS: &str = "plugins";

/// Until when files stay as they are, which is no way to store them.
const RETAIN: &str = "retain";

/// The attribute with which nobody but root retains anything below a directory.
const RETAIN_LOCK: &str = "trusted.stere.retain";

/// Which versions of files are kept.
const VERSIONS: &str = "versions";

/// Whether content stays on devices.
const PIN: &str = "pin";
const UNIT: &str = "unit";

/// After how long without use names are put away.
const NAMES: &str = "names";

/// After how long without use devices give up what is on media.
const RELEASE: &str = "release";

/// How the state begins of what cannot be stored as it should.
pub const IMPOSSIBLE: &str = "impossible: ";
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
        PolicyCommand::Lock { path, settings, wait } => {
            lock(path, settings)?;
            warn_if_unkept(path, settings);
            if *wait { crate::reconcile::wait_for(registry, path) } else { Ok(DONE) }
        }
        PolicyCommand::Unlock { path, keys } => unlock(path, keys),
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

/// All settings are looked at before the first is set.
fn pairs(settings: &[String]) -> Result<Vec<(&str, &str)>> {
    let mut pairs = Vec::new();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| Error::Usage(format!("'{setting}' is not KEY=VALUE; write for example copies=2")))?;
        pairs.push((check_key(key)?, value));
    }
    Ok(pairs)
}

pub fn set(path: &Path, settings: &[String]) -> Result<()> {
    let pairs = pairs(settings)?;
    refuse_elsewhere(path)?;
    for (key, value) in pairs {
        match setxattr(path, attribute(key), value.as_bytes(), XattrFlags::empty()) {
            Err(Errno::PERM) if key == RULES && !path.is_dir() => {
                return refused("rules can be set on directories; set them on one");
            }
            Err(Errno::PERM) => return refused(why_not_permitted(path, key)),
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
    warn_if_unkept(path, settings);
    Ok(())
}

/// Other file systems keep such attributes too, and follow none of them: nobody is told there that a policy was set. Who may not
/// read a file may set its policy all the same.
fn refuse_elsewhere(path: &Path) -> Result<()> {
    match getxattr(path, attribute("effective.class"), &mut [0; 256]) {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => not_here(path),
        _ => Ok(()),
    }
}

/// Says so where the pool's devices cannot keep what holds now.
fn warn_if_unkept(path: &Path, settings: &[String]) {
    const ASKED: [&str; 6] = ["class", "copies", "parity", "redundancy", "only", RULES];
    let keys: Vec<&str> = settings.iter().filter_map(|setting| Some(setting.split_once('=')?.0)).collect();
    if !keys.iter().any(|key| ASKED.contains(key)) {
        return;
    }
    // It is set; whether that can be asked now is another matter.
    let state = read(path, "state").ok().flatten().unwrap_or_default();
    if let Some(why) = state.strip_prefix(IMPOSSIBLE) {
        eprintln!("stere: warning: the policy of {} is set and cannot be kept now: {why}", path.display());
    }
}

/// Why a value is refused, which the system call does not tell.
fn why_not(key: &str, value: &str) -> String {
    if key == RULES {
        return match parse(value) {
            Err(error) => format!("the rules are not understood: {error}"),
            Ok(_) => format!(
                "the rules '{value}' name a class or plugins that the pool does not have; `stere class list POOL` and `stere plugin list POOL` tell which it has"
            ),
        };
    }
    let whole = if key.starts_with(NODE_KEY_PREFIX) { "node" } else { key };
    let expected = policy_key(whole).map_or("another value", |known| known.expected);
    format!("{key} cannot be '{value}'; give {expected}")
}

/// Rules, whatever classes and plugins they name.
fn parse(text: &str) -> std::result::Result<RuleSet, RuleError> {
    let (classes, people) = (Classes::of_any_name(), stere_people::system());
    RuleSet::parse(text, false, Vocabulary { classes: &classes, people: people.as_deref(), stacks: None, places: None })
}

/// Why something may not be set, which the system call does not tell.
fn why_not_permitted(path: &Path, key: &str) -> String {
    if key == RETAIN {
        return match read(path, RETAIN).ok().flatten().filter(|_| path.is_file()) {
            Some(until) => format!(
                "{} is retained until {until}; that can be made later, by its owner and root, and never earlier",
                path.display()
            ),
            None => "how long a file is retained, its owner and root say, and root only below a directory where that is locked".into(),
        };
    }
    let mut locked = Vec::new();
    for word in Setting::ALL.map(Setting::word).into_iter().chain(List::ALL.map(List::word)) {
        let source = read(path, &format!("source.{word}")).ok().flatten().unwrap_or_default();
        let value = read(path, &format!("effective.{word}")).ok().flatten();
        if source.starts_with(LOCKED) && (word == key || key == RULES || is_redundancy(key) && is_redundancy(word)) {
            locked.extend(value.map(|value| format!("{word} is {value}: {source}")));
        }
    }
    match locked.is_empty() {
        true => format!("{key} cannot be set on {}: it is not permitted", path.display()),
        false => format!(
            "the {key} asked for contradicts a lock ({}); `stere policy unlock` is the administrator's",
            locked.join("; ")
        ),
    }
}

fn is_redundancy(key: &str) -> bool {
    [Setting::Copies, Setting::Parity, Setting::Redundancy].into_iter().any(|setting| setting.word() == key)
}

/// The attribute that locks a key.
fn lock_attribute(key: &str) -> Result<String> {
    check_key(key)?;
    let of_nodes = key.strip_prefix(NODE_KEY_PREFIX).map(|setting| node_attribute(setting, true));
    let setting = Setting::from_word(key).map(Setting::lock_attribute).or(of_nodes);
    let retain = (key == RETAIN).then(|| RETAIN_LOCK.to_owned());
    match setting.or(List::from_word(key).map(List::lock_attribute)).or(retain) {
        Some(attribute) => Ok(attribute),
        None => Err(Error::Usage(format!("'{key}' cannot be locked; the keys that can are {}", lockable_keys()))),
    }
}

fn may_not_lock<T>() -> Result<T> {
    refused("locks are the administrator's: run this as root")
}

fn lock(path: &Path, settings: &[String]) -> Result<()> {
    let pairs = pairs(settings)?;
    pairs.iter().try_for_each(|(key, _)| lock_attribute(key).map(drop))?;
    refuse_elsewhere(path)?;
    for (key, value) in pairs {
        let attribute = lock_attribute(key)?;
        match setxattr(path, attribute, value.as_bytes(), XattrFlags::empty()) {
            Err(Errno::PERM) => return may_not_lock(),
            Err(Errno::INVAL) if key == RETAIN => {
                return refused("retain can be locked to none only: then nobody but root retains anything there");
            }
            Err(Errno::INVAL) => return refused(why_not(key, value)),
            other => explain_not_here(other, path, "lock the policy of")?,
        }
    }
    Ok(())
}

fn unlock(path: &Path, keys: &[String]) -> Result<u8> {
    let attributes = keys.iter().map(|key| lock_attribute(key)).collect::<Result<Vec<_>>>()?;
    for attribute in attributes {
        match removexattr(path, attribute) {
            // It is not locked here.
            Err(Errno::NODATA) => {}
            Err(Errno::PERM) => return may_not_lock(),
            other => explain_not_here(other, path, "unlock the policy of")?,
        }
    }
    Ok(DONE)
}

fn check_key(key: &str) -> Result<&str> {
    // Which settings a node knows, it says itself.
    let is_of_nodes = key.strip_prefix(NODE_KEY_PREFIX).is_some_and(|setting| !setting.is_empty());
    let is_known = policy_key(if is_of_nodes { "node" } else { key }).is_some();
    is_known
        .then_some(key)
        .ok_or_else(|| Error::Usage(format!("'{key}' is not a key of policy; the keys are {}", settable_keys())))
}

fn not_here<T>(path: &Path) -> Result<T> {
    refused(format!("{} is not on a stere mount; policy is for files in a pool", path.display()))
}

fn explain_not_here<T>(result: rustix::io::Result<T>, path: &Path, action: &'static str) -> Result<T> {
    match result {
        Err(Errno::OPNOTSUPP) => not_here(path),
        other => other.at(action, path),
    }
}

/// The value of a key's attribute, or none if there is none.
pub fn read(path: &Path, key: &str) -> Result<Option<String>> {
    read_attribute(path, &attribute(key))
}

fn read_attribute(path: &Path, attribute: &str) -> Result<Option<String>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    match getxattr(path, attribute, &mut value) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&value[..length]).into_owned())),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => explain_not_here(Err(error), path, "read the policy of"),
    }
}

fn check_is_stere(path: &Path) -> Result<()> {
    match read(path, "effective.class")? {
        Some(_) => Ok(()),
        None => not_here(path),
    }
}

/// What is set on a path, what holds there, and what is so.
pub fn facts(path: &Path) -> Result<BTreeMap<String, String>> {
    check_is_stere(path)?;
    let mut facts: BTreeMap<String, String> = BTreeMap::new();
    for key in Setting::ALL.map(Setting::word) {
        for name in [key.to_owned(), format!("effective.{key}")] {
            if let Some(value) = read(path, &name)? {
                facts.insert(name, value);
            }
        }
    }
    for setting in Setting::ALL {
        // Nobody but the administrator gets an answer.
        if let Some(value) = read_attribute(path, &setting.lock_attribute())? {
            facts.insert(format!("lock.{}", setting.word()), value);
        }
    }
    let lists = [RULES, PLUGINS, "effective.plugins", VERSIONS, "effective.versions"];
    let others = [
        RETAIN,
        "effective.retain",
        PIN,
        "effective.pin",
        UNIT,
        "effective.unit",
        NAMES,
        "effective.names",
        RELEASE,
        "effective.release",
    ]
    .into_iter()
    .chain(lists);
    for fact in FACTS.into_iter().chain(others) {
        if let Some(value) = read(path, fact)? {
            facts.insert(fact.into(), value);
        }
    }
    Ok(facts)
}

fn get(path: &Path, json: bool) -> Result<u8> {
    let facts = facts(path)?;
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
            Err(Errno::PERM) => return refused(why_not_permitted(path, key)),
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
        if (key, value.as_str()) == ("sync", "relaxed") {
            println!("  fsync does not wait: a crash may lose what was synced within the mount's commit= seconds");
        }
    }
    if let Some(plugins) = read(path, "effective.plugins")?.filter(|plugins| plugins != "none") {
        let source = read(path, "source.plugins")?.unwrap_or_else(|| "unknown".into());
        println!("plugins is {plugins}: {source}");
    }
    for key in [RETAIN, VERSIONS, PIN, UNIT, NAMES, RELEASE] {
        if let Some(value) = read(path, &format!("effective.{key}"))? {
            let source = read(path, &format!("source.{key}"))?.unwrap_or_else(|| "unknown".into());
            println!("{key} is {value}: {source}");
        }
    }
    let survives = read(path, "survives")?.and_then(|count| count.parse().ok()).unwrap_or(0);
    let survives = size::loss_of_devices(survives);
    let state = read(path, "state")?.unwrap_or_default();
    let devices = read(path, "where")?.filter(|devices| !devices.is_empty()).unwrap_or_else(|| "nowhere yet".into());
    println!("it survives {survives}; its data lies on: {devices}; state: {state}");
    if let Some(chain) = read(path, "chain")? {
        println!("all that is said of it, the strongest first:");
        chain.lines().for_each(|line| println!("  {line}"));
    }
    Ok(DONE)
}
