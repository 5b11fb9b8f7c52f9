//! The pool's classes, with the room that there is for each.

use std::collections::BTreeMap;

use stere_format::Scheme;
use stere_naming::Io;
use stere_policy::{Class, Classes, Wish};
use stere_store::Store;

use stere_control::status::ClassReport;

pub fn scheme(wish: Wish, devices: usize) -> Scheme {
    let (data, parity) = wish.scheme(devices.max(1));
    Scheme { data, parity }
}

/// The pool's classes; the built-in ones where they cannot be read.
pub fn classes(store: &Store) -> Classes {
    stere_naming::read_classes(store, Io::BLOCKING).unwrap_or_else(|error| {
        tracing::warn!(%error, "the pool's classes cannot be read");
        Classes::default()
    })
}

/// The classes whose files survive no more than that.
pub fn least_classes(classes: &Classes, have: &BTreeMap<u8, u8>, survives: u8) -> Vec<String> {
    let is_least = |class: &Class| have.get(&class.code()).is_some_and(|of_class| *of_class <= survives);
    classes.in_use().map(|(class, _)| class).filter(is_least).map(|class| classes.name(class)).collect()
}

pub fn class_reports(store: &Store, classes: &Classes, devices: usize, have: &BTreeMap<u8, u8>) -> Vec<ClassReport> {
    let open = store.open_devices().len();
    let report = |class: Class| {
        let scheme = store.fit(scheme(classes.wish(class), devices));
        // While a device is missing new files lack the chunk that is for it.
        let parity = open.saturating_sub(usize::from(scheme.data)).min(usize::from(scheme.parity)) as u8;
        let statistics = store.space().statistics(scheme);
        ClassReport {
            class: classes.name(class),
            scheme: format!("{}+{}", scheme.data, scheme.parity),
            // What new files get, or what files have if that is less.
            survives: have.get(&class.code()).copied().unwrap_or(parity).min(parity),
            total_bytes: statistics.total_bytes,
            free_bytes: statistics.free_bytes.min(statistics.total_bytes),
        }
    };
    classes.in_use().map(|(class, _)| report(class)).collect()
}
