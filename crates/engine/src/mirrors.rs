//! Which devices mirror the journal, and how large it is on them. Read next: `checkpoint.rs`, which changes them.

use std::collections::BTreeSet;

use stere_device::Device;
use stere_faults::{Bug, is_planted};
use stere_format::{DeviceIndex, Superblock};
use stere_journal::{Journal, Mirror};

use crate::engine::Engine;

/// With one mirror only, its device takes what was synced since the last checkpoint with it.
const JOURNAL_MIRRORS_MIN: usize = 2;

/// Who shall mirror the journal: those who do and can, and more until there are as many as copies of metadata.
pub(crate) fn wanted_mirrors(engine: &Engine, current: &[Mirror], region_bytes: u64) -> Vec<Mirror> {
    let stripe = &engine.log.stripe;
    let count = engine.places().meta_scheme().width().min(Superblock::JOURNAL_DEVICES_MAX);
    let mut able: Vec<Mirror> = current.iter().filter(|mirror| stripe.slots.is_open(mirror.device)).cloned().collect();
    for device in stripe.devices.all() {
        let is_new = !able.iter().any(|mirror| mirror.device == device.index());
        let is_fit = stripe.slots.is_open(device.index()) && device.layout().journal_bytes >= region_bytes;
        if is_new && is_fit {
            able.push(Mirror { device: device.index(), offset: device.layout().journal_offset });
        }
    }
    // Every commit waits for the mirrors: slow ones only where there are not enough others.
    let slow = if able.len() > count { stripe.devices.slow() } else { Vec::new() };
    let (able, slow): (Vec<Mirror>, Vec<Mirror>) = able.into_iter().partition(|mirror| !slow.contains(&mirror.device));
    let kept = able.iter().filter(|mirror| current.contains(mirror)).count();
    let wanted: Vec<Mirror> = able.into_iter().chain(slow).take(count.max(kept)).collect();
    assert!(wanted.len() <= Superblock::JOURNAL_DEVICES_MAX, "a superblock names no {} mirrors", wanted.len());
    if wanted.is_empty() { current.to_vec() } else { wanted }
}

/// The same, and how large the journal shall be: where the others are too small for what it is, it shrinks to what a second one
/// has room for. The caller makes the change with a checkpoint, which leaves the journal empty.
pub(crate) fn wanted_journal(engine: &Engine, current: &[Mirror], region_bytes: u64) -> (Vec<Mirror>, u64) {
    if engine.options.tail.is_some() {
        return (Vec::new(), region_bytes);
    }
    let mirrors = wanted_mirrors(engine, current, region_bytes);
    if mirrors.len() >= JOURNAL_MIRRORS_MIN.min(engine.places().meta_scheme().width()) {
        return (mirrors, region_bytes);
    }
    let stripe = &engine.log.stripe;
    let others = stripe.devices.all().into_iter().filter(|device| {
        stripe.slots.is_open(device.index()) && mirrors.iter().all(|mirror| mirror.device != device.index())
    });
    match others.map(|device| device.layout().journal_bytes).max() {
        Some(smaller) if smaller < region_bytes => (wanted_mirrors(engine, current, smaller), smaller),
        _ => (mirrors, region_bytes),
    }
}

/// Whether a checkpoint would give the journal another set of mirrors.
pub(crate) fn lacks_mirrors(engine: &Engine) -> bool {
    let journal = engine.journal.lock();
    wanted_journal(engine, &journal.mirrors, journal.region_bytes) != (journal.mirrors.clone(), journal.region_bytes)
}

/// Of the mirrors of the journal the last one that answers is waited for: without any nothing can be made durable.
pub(crate) fn note_answering(engine: &Engine, journal: &Journal) {
    let open = engine.open_devices();
    let devices = engine.log.stripe.devices.all();
    let answers = |index: &DeviceIndex| {
        let device = devices.iter().find(|device| device.index() == *index);
        open.contains(index) && device.is_some_and(|device| device.silent_for().is_none())
    };
    let mirrors: Vec<DeviceIndex> = match &journal.tail {
        // Whichever device answers will do.
        Some(_) => open.clone(),
        None => journal.mirrors.iter().map(|mirror| mirror.device).collect(),
    };
    assert!(journal.mirrors.len() <= Superblock::JOURNAL_DEVICES_MAX, "a journal has few mirrors");
    let mut candidates: BTreeSet<DeviceIndex> = mirrors.into_iter().filter(answers).collect();
    if is_planted(Bug::LastOneGivenUp) {
        candidates.insert(DeviceIndex::MAX);
    }
    engine.answering.set(candidates);
}
