//! Hosts as failure domains: where devices stand, and how many hosts may be lost with all that is on them.
//!
//! A host is what `host=` says, else the host in a device's address; a device of neither counts as a host of its own. Placement goes by the
//! label alone, which a device gets from its address when it joins. Read next: `evacuate.rs`, `crates/stripe/src/placement.rs`.

use std::collections::{BTreeMap, BTreeSet};

use stere_format::{DeviceEntry, DeviceIndex};
use stere_machine::places;

use crate::running::Running;

#[cfg(test)]
mod tests;

/// The hosts of a pool's devices, for many questions at the same moment.
pub struct Hosts {
    names: BTreeMap<DeviceIndex, String>,
    present: BTreeSet<DeviceIndex>,
}

impl Hosts {
    /// Where all devices of a pool stand now.
    pub fn of_pool(running: &Running) -> Hosts {
        let entries = running.store.device_entries();
        let named = entries.iter().map(|entry| (entry.index, host_of(running, entry)));
        let names: BTreeMap<DeviceIndex, String> = named.filter(|(_, host)| !host.is_empty()).collect();
        assert!(names.len() <= entries.len(), "a device stands on one host");
        let present = running.store.device_statistics().into_iter().map(|(index, _)| index).collect();
        Hosts { names, present }
    }

    /// The host of a device, if one is known.
    pub fn name(&self, index: DeviceIndex) -> Option<&str> {
        self.names.get(&index).map(String::as_str)
    }

    /// Whether the host of any device is known.
    pub fn are_known(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether some host has several devices, so that losing it is more than losing a device.
    pub fn have_several(&self) -> bool {
        self.names.values().collect::<BTreeSet<_>>().len() < self.names.len()
    }

    /// How many hosts may be lost before chunks on these devices are too few, of which so many are to spare. Chunks of devices that are not
    /// there are lost already.
    pub fn survived_by(&self, devices: &[DeviceIndex], spare: usize) -> u8 {
        let there: Vec<DeviceIndex> = devices.iter().copied().filter(|index| self.present.contains(index)).collect();
        let keys: Vec<(Option<&str>, DeviceIndex)> = there
            .iter()
            .map(|index| self.name(*index).map_or((None, *index), |host| (Some(host), DeviceIndex::MAX)))
            .collect();
        hosts_to_spare(&keys, spare)
    }
}

/// How many of these groups may be lost, the largest first, while no more than `spare` of all are.
fn hosts_to_spare<T: Ord>(chunks: &[T], spare: usize) -> u8 {
    let mut counts: BTreeMap<&T, usize> = BTreeMap::new();
    chunks.iter().for_each(|host| *counts.entry(host).or_default() += 1);
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let mut lost = 0;
    assert_eq!(counts.iter().sum::<usize>(), chunks.len(), "each chunk is on one host");
    let within = counts.iter().take_while(|count| {
        lost += **count;
        lost <= spare
    });
    u8::try_from(within.count()).unwrap_or(u8::MAX)
}

/// The host that a device stands on; empty if nothing tells it.
pub fn host_of(running: &Running, entry: &DeviceEntry) -> String {
    places::host_of(&entry.host, &running.path_of(entry).unwrap_or_default())
}

/// How many hosts all content and all names survive; none where no host has several devices, or nothing is stored. Content that is on media,
/// too, survives the loss of every host.
pub fn hosts_survived(running: &Running) -> Option<u8> {
    let hosts = Hosts::of_pool(running);
    if !hosts.have_several() {
        return None;
    }
    let segments = running.store.segments().all();
    let on_devices = segments.iter().filter(|segment| segment.live_bytes() > 0 && segment.tertiary().there == 0);
    let survived = on_devices.map(|segment| {
        let placed = segment.placed();
        let is_whole = |chunk: &usize| !placed.is_missing(*chunk);
        let whole = (0..placed.chunks.len()).filter(is_whole).map(|chunk| placed.chunks[chunk].device);
        let whole: Vec<DeviceIndex> = whole.filter(|index| hosts.present.contains(index)).collect();
        assert!(whole.len() <= placed.chunks.len(), "a chunk is on one device");
        hosts.survived_by(&whole, whole.len().saturating_sub(usize::from(placed.scheme.data)))
    });
    survived.min()
}
