//! `stere capabilities`: what is possible here and now, for people and for programs that want to ask before they do.
//!
//! Three parts: this program, the pool that a path is in, and the path itself. All of it is looked up when it is asked for, from what is
//! stored and from the devices that are there; the keys of the JSON are in `docs/design/capabilities.md` and stay. Anybody who can use
//! the mount may ask; of a path the kernel decides, since it is asked as anybody can with getxattr(2).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};
use stere_format::{Scheme, TERTIARY_MAX, WIDTH_MAX};
use stere_naming::{FILE_BYTES_MAX, FileSystem, KeyState, LINKS_MAX, NAME_BYTES_MAX, RECORD_BYTES, VALUE_BYTES_MAX};
use stere_policy::{CLASS_NAME_BYTES_MAX, List, SchemeWish, Setting};

use crate::cli::CapabilitiesArguments;
use crate::control::About;
use crate::error::{DONE, Result, refused};
use crate::policy;
use crate::public::{self, PublicAnswer, Question};
use crate::report::{self, DeviceReport};
use crate::running::Running;
use crate::status::to_json;
use crate::{plugins, tier};

/// The end of the scale of redundancy.
const SCALE_END: u8 = 10;
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

/// What the pool of a daemon can now.
pub fn gather(about: &About, running: &Running, filesystem: &FileSystem) -> Value {
    let devices = report::devices(running);
    let count = devices.len();
    let fit = |wish: SchemeWish| {
        let (data, parity) = wish.scheme(count);
        running.store.fit(Scheme { data, parity })
    };
    let classes = report::classes(&running.store);
    let class = |report: &report::ClassReport| {
        json!({
            "name": report.class, "scheme": report.scheme, "survives": report.survives,
            "free_bytes": report.free_bytes, "total_bytes": report.total_bytes,
        })
    };
    let keys = filesystem.encryption().keys();
    let encryption = json!({
        "keys": keys.iter().filter(|key| key.state != KeyState::Removed).count(),
        "unlocked": keys.iter().filter(|key| key.state == KeyState::Unlocked).count(),
    });
    let plugins: Vec<Value> = filesystem
        .plugins()
        .plugin_list()
        .into_iter()
        .map(plugins::report)
        .filter(|plugin| plugin.is_current)
        .map(|plugin| {
            let runs = plugin.failure.is_none();
            json!({ "name": plugin.name, "is_codec": plugin.is_codec, "events": plugin.events, "runs": runs })
        })
        .collect();
    let tiers = tier::volume_reports(running).into_iter();
    let tiers: Vec<Value> =
        tiers.map(|volume| json!({ "name": volume.name, "class": volume.class, "state": volume.state })).collect();
    let reports = report::class_reports(&running.store, &classes, count, &BTreeMap::new());
    json!({
        "name": about.pool,
        "mountpoint": about.mountpoint.display().to_string(),
        "read_only": running.read_only,
        "classes": reports.iter().map(class).collect::<Vec<_>>(),
        "redundancy": (0..=SCALE_END).map(|place| place_on_scale(place, fit(SchemeWish::Scale(place)))).collect::<Vec<_>>(),
        "survivable": survivable(count, &fit),
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
        "failure_domains": failure_domains(&devices),
        "encryption": encryption,
        "plugins": plugins,
        "tiers": tiers,
    })
}

fn place_on_scale(place: u8, scheme: Scheme) -> Value {
    json!({ "place": place, "scheme": scheme.to_string(), "survives": scheme.parity })
}

/// For each number of losses that can be survived: by how many copies, and by which parity with the least room.
fn survivable(devices: usize, fit: &dyn Fn(SchemeWish) -> Scheme) -> Vec<Value> {
    let most = devices.min(WIDTH_MAX).saturating_sub(1) as u8;
    let possible = |losses: &u8| fit(SchemeWish::Copies(losses + 1)).parity == *losses;
    let of = |losses: u8| {
        let parity = fit(SchemeWish::Parity { data: 0, parity: losses });
        let parity = (losses > 0 && parity.parity == losses).then(|| parity.to_string());
        json!({ "losses": losses, "copies": losses + 1, "parity": parity })
    };
    (0..=most).filter(possible).map(of).collect()
}

fn device(report: &DeviceReport) -> Value {
    json!({
        "name": report.name, "class": report.class, "state": report.state, "tags": report.tags,
        "host": report.host, "shelf": report.shelf, "size_bytes": report.size_bytes,
    })
}

/// Where devices are, as far as somebody said so: what goes down together.
fn failure_domains(devices: &[DeviceReport]) -> Value {
    let named = |of: &dyn Fn(&DeviceReport) -> &String| {
        devices.iter().map(|one| of(one).clone()).filter(|name| !name.is_empty()).collect::<BTreeSet<_>>()
    };
    json!({ "hosts": named(&|one| &one.host), "shelves": named(&|one| &one.shelf), "devices": devices.len() })
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
        let PublicAnswer::Capabilities { pool } = public::ask(path, &Question::Capabilities)?.next()? else {
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
