//! What the pool of a mount can now; the keys of the JSON are in `docs/design/capabilities.md` and stay.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use stere_format::{Scheme, WIDTH_MAX};
use stere_naming::{FileSystem, KeyState};
use stere_policy::SchemeWish;

use crate::answer::plugins;
use stere_control::message::About;
use stere_control::status::{self, DeviceReport};
use stere_online::running::Running;
use stere_online::{classes, media_report};

/// The end of the scale of redundancy.
const SCALE_END: u8 = 10;

/// What the pool of a daemon can now.
pub fn gather(about: &About, running: &Running, filesystem: &FileSystem) -> Value {
    let devices = stere_online::report::devices(running);
    let count = devices.len();
    let fit = |wish: SchemeWish| {
        let (data, parity) = wish.scheme(count);
        running.store.fit(Scheme { data, parity })
    };
    let classes = classes::classes(&running.store);
    let class = |report: &status::ClassReport| {
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
    let tiers = media_report::volume_reports(running).into_iter();
    let tiers: Vec<Value> =
        tiers.map(|volume| json!({ "name": volume.name, "class": volume.class, "state": volume.state })).collect();
    let reports = classes::class_reports(&running.store, &classes, count, &BTreeMap::new());
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
