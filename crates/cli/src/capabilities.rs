//! `stere capabilities`: what is possible here and now, for people and for programs that want to ask before they do.
//!
//! Three parts: this program, the pool that a path is in, and the path itself. All of it is looked up when it is asked for, from what is
//! stored and from the devices that are there; the keys of the JSON are in `docs/design/capabilities.md` and stay. Anybody who can use
//! the mount may ask; of a path the kernel decides, since it is asked as anybody can with getxattr(2).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use stere_format::{TERTIARY_MAX, WIDTH_MAX};
use stere_naming::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, RECORD_BYTES, VALUE_BYTES_MAX};
use stere_policy::{CLASS_NAME_BYTES_MAX, List, Setting};

use crate::arguments::CapabilitiesArguments;
use crate::json::to_json;
use crate::policy;
use stere_control::public::{self, PublicAnswer, Question};
use stere_machine::error::{DONE, Result, refused};
use stere_machine::plugins;

/// Keys beside those that say how files are stored.
const OTHER_KEYS: [&str; 7] = ["rules", "plugins", "retain", "versions", "pin", "unit", "names"];

/// What policy answers for a path, and nobody can set.
const COMPUTED: [&str; 7] = ["state", "survives", "where", "stored", "residency", "effective.<key>", "source.<key>"];

/// What this program can, whatever it is used on.
fn program() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "keys": Setting::ALL.iter().map(|setting| setting.word()).chain(OTHER_KEYS).collect::<Vec<_>>(),
        "locks": Setting::ALL.iter().map(|setting| setting.word()).chain(List::ALL.map(List::word)).collect::<Vec<_>>(),
        "computed": COMPUTED,
        "compression": { "codecs": ["none", "lz4", "zstd"], "zstd_levels": { "least": 1, "most": 19 } },
        "encryption": { "ciphers": ["XAES-256-GCM"], "names": true },
        "checksums": ["crc32c", "xxh3", "blake3", "none"],
        "plugins": { "runtime": "wasm", "can_run": plugins::can_run() },
        "features": {
            "audit": true,
            "backup": true,
            "classes": true,
            "deduplication": true,
            "links": true,
            "locks": true,
            "posix_acl": true,
            "provenance": true,
            "quotas": true,
            "reflinks": true,
            "retention": true,
            "rules": true,
            "tiers": true,
            "versions": true,
            "volumes": true,
        },
        "limits": {
            "attribute_bytes": VALUE_BYTES_MAX,
            "class_name_bytes": CLASS_NAME_BYTES_MAX,
            "copies": WIDTH_MAX,
            "file_bytes": FILE_BYTES_MAX,
            "links": LINKS_MAX,
            "name_bytes": NAME_BYTES_MAX,
            "record_bytes": RECORD_BYTES,
            "tertiary_volumes": TERTIARY_MAX,
            "units": WIDTH_MAX,
        },
    })
}

/// What a path has: what is set there, what holds and who says so, and what is so.
fn of_path(path: &Path) -> Result<Value> {
    let mut facts = policy::facts(path)?;
    let mut parts: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for key in Setting::ALL.iter().map(|setting| setting.word()).chain(OTHER_KEYS) {
        let source = policy::read(path, &format!("source.{key}")).unwrap_or_default();
        for (part, value) in
            [("own", facts.remove(key)), ("effective", facts.remove(&format!("effective.{key}"))), ("source", source)]
        {
            let part = parts.entry(part).or_default();
            value.map(|value| part.insert(key.into(), json!(value)));
        }
    }
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let places = facts.remove("where").unwrap_or_default();
    Ok(json!({
        "path": path.display().to_string(),
        "own": parts.remove("own"),
        "effective": parts.remove("effective"),
        "source": parts.remove("source"),
        "state": facts.remove("state"),
        "survives": number(facts.remove("survives")),
        "stored_bytes": number(facts.remove("stored")),
        "residency": facts.remove("residency"),
        "where": places.split(' ').filter(|name| !name.is_empty()).collect::<Vec<_>>(),
    }))
}

pub fn run(arguments: &CapabilitiesArguments) -> Result<u8> {
    let mut told = Map::new();
    told.insert("program".into(), program());
    if let Some(path) = &arguments.path {
        let PublicAnswer::Capabilities { pool } = public::ask(path, &Question::Capabilities)?.next_answer()? else {
            return refused("the pool's daemon gave an answer that was not asked for; unmount and mount it again");
        };
        told.insert("pool".into(), pool);
        told.insert("path".into(), of_path(path)?);
    }
    match arguments.json {
        true => println!("{}", to_json(&told)?),
        false => told.iter().for_each(|(part, value)| print(part, value, 0)),
    }
    Ok(DONE)
}

/// Facts for people: a line each, lists of plain things in one.
fn print(key: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) if fields.values().all(is_plain) && depth > 0 => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect();
            println!("{indent}{key}: {}", fields.join(", "));
        }
        Value::Object(fields) => {
            println!("{indent}{key}:");
            fields.iter().for_each(|(key, value)| print(key, value, depth + 1));
        }
        Value::Array(items) if !items.iter().all(is_plain) => {
            println!("{indent}{key}:");
            items.iter().for_each(|item| print("-", item, depth + 1));
        }
        other => println!("{indent}{key}: {}", plain(other)),
    }
}

fn is_plain(value: &Value) -> bool {
    !matches!(value, Value::Object(_)) && value.as_array().is_none_or(|items| items.iter().all(is_plain))
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Array(items) if items.is_empty() => "none".into(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
