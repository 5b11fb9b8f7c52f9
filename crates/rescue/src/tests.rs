//! Pools on devices in memory, damaged in every way there is, and what a rescue makes of them.
//!
//! `rig.rs` makes the pool, whose contents tell file, version and offset of every word; `memory_sink.rs` takes what is rescued;
//! `damage.rs` finds and spoils what is to be spoiled. Every test ends in `judge`, which knows no mercy: nothing called whole may
//! differ from what was, and no word may be anywhere where it never was.

mod damage;
mod memory_sink;
mod random;
pub(crate) mod rig;
mod volumes;

use std::sync::Arc;

use stere_device::MemoryDevice;
use stere_format::{FileKind, RecordSubject};

use crate::sink::Verdict;
use crate::{Error, Options, Report, Source, rescue};
use damage::Damager;
use memory_sink::MemorySink;
use rig::{Expected, Rig};

pub(crate) fn sources(devices: &[Arc<MemoryDevice>]) -> Vec<Source> {
    let source = |(number, device): (usize, &Arc<MemoryDevice>)| Source {
        path: format!("/images/{number}"),
        device: device.clone(),
    };
    devices.iter().enumerate().map(source).collect()
}

/// Rescues and judges.
pub(crate) fn rescued(devices: &[Arc<MemoryDevice>], expected: &Expected) -> (Report, MemorySink) {
    let before: Vec<u64> = devices.iter().map(|device| device.counters().writes).collect();
    let mut sink = MemorySink::default();
    let report =
        rescue(sources(devices), Options::default(), &mut sink).expect("a rescue of damaged devices ends well");
    let after: Vec<u64> = devices.iter().map(|device| device.counters().writes).collect();
    assert_eq!(before, after, "a rescue writes nothing to devices");
    expected.judge(&sink, &report);
    (report, sink)
}

/// How many files are there byte for byte.
fn count(sink: &MemorySink, expected: &Expected) -> usize {
    expected
        .files
        .iter()
        .filter(|(path, file)| sink.content(path).is_some_and(|content| content == file.content))
        .count()
}

#[test]
fn an_intact_pool_is_rescued_whole_with_everything() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let (report, sink) = rescued(&devices, &expected);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.state.root, report.state.is_newest, report.state.journal_groups), ("superblock", true, 0));
    expected.assert_all(&sink, Verdict::Whole);
    expected.assert_attributes(&sink);
    assert_eq!(report.counts.hard_links, 1);
    assert_eq!(report.counts.bytes_lost, 0);
    assert_eq!(sink.verdict(b"/"), Some(Verdict::Whole));
    assert!(sink.content(b"/removed").is_none(), "what was removed comes back");
}

#[test]
fn what_lies_in_the_journal_alone_is_rescued_too() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.abandon();
    let (report, sink) = rescued(&devices, &expected);
    assert!(report.is_whole(), "{report:?}");
    assert!(report.state.journal_groups > 0);
    expected.assert_all(&sink, Verdict::Whole);
    expected.assert_attributes(&sink);
}

#[test]
fn one_device_of_a_mirrored_pool_is_enough() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    for device in &devices {
        let (report, sink) = rescued(std::slice::from_ref(device), &expected);
        assert_eq!(report.state.missing.len(), 1);
        assert!(!report.is_data_lost(), "{:?}", report.damage);
        expected.assert_all(&sink, Verdict::Whole);
    }
}

#[test]
fn parity_gives_back_what_a_lost_device_had_and_names_what_two_had() {
    let (mut rig, mut expected) = Rig::filled(4);
    rig.write_with_parity(&mut expected);
    let devices = rig.close();
    for away in 0..4 {
        let left: Vec<_> = (0..4).filter(|number| *number != away).map(|number| devices[number].clone()).collect();
        let (report, sink) = rescued(&left, &expected);
        assert!(!report.is_data_lost(), "{:?}", report.damage);
        expected.assert_all(&sink, Verdict::Whole);
    }
    let (report, sink) = rescued(&devices[2..], &expected);
    assert!(report.is_data_lost());
    assert_eq!(sink.verdict(b"/parity"), Some(Verdict::Damaged));
    let damage = report.damage.iter().find(|damage| damage.path == "/parity").expect("the file is named");
    let lost: u64 = damage.ranges.iter().map(|range| range.length).sum();
    let size = expected.files[&b"/parity"[..]].content.len() as u64;
    assert!(lost > size / 4 && lost < size, "of {size} bytes {lost} are lost");
    assert!(count(&sink, &expected) > 10, "what had a copy on the devices left is whole");
}

#[test]
fn without_superblocks_the_checkpoint_is_found_in_the_segments() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.abandon();
    let damager = Damager::new(&devices);
    damager.superblocks(0..2);
    let (report, sink) = rescued(&devices, &expected);
    assert_eq!(report.state.root, "checkpoint");
    assert!(!report.state.is_newest && !report.is_data_lost(), "{report:?}");
    assert!(report.state.journal_groups > 0);
    expected.assert_all(&sink, Verdict::Older);
    expected.assert_attributes(&sink);
}

#[test]
fn a_device_whose_superblocks_are_gone_still_serves() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let damager = Damager::new(&devices);
    damager.superblocks(1..2);
    let (report, sink) = rescued(&devices, &expected);
    assert!(report.state.missing.is_empty(), "the device is recognised by its chunks");
    assert!(report.state.is_newest);
    expected.assert_all(&sink, Verdict::Whole);
    // And that it does serve: alone.
    let (report, sink) = rescued(&devices[1..], &expected);
    assert_eq!(report.state.root, "checkpoint");
    expected.assert_all(&sink, Verdict::Older);
}

#[test]
fn without_any_root_leaves_stand_in_for_the_tree() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let damager = Damager::new(&devices);
    damager.superblocks(0..2);
    let spoiled = damager.records(|subject| match subject {
        RecordSubject::Node { level, .. } => *level > 0,
        RecordSubject::Checkpoint { .. } => true,
        RecordSubject::Blob { .. } => false,
    });
    assert!(spoiled > 4, "there was something to spoil");
    let (report, sink) = rescued(&devices, &expected);
    assert_eq!(report.state.root, "segments");
    assert!(!report.state.is_newest);
    expected.assert_all(&sink, Verdict::Older);
    expected.assert_attributes(&sink);
}

#[test]
fn a_damaged_inner_node_costs_nothing_but_certainty() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let damager = Damager::new(&devices);
    let node = damager.live_node(1, |_| true).expect("the tree has inner nodes");
    damager.node(&node);
    let (report, sink) = rescued(&devices, &expected);
    assert!(!report.is_whole());
    let contents =
        expected.files.iter().filter(|(path, file)| sink.content(path).as_deref() == Some(&file.content[..]));
    assert_eq!(contents.count(), expected.files.len(), "{report:?}");
}

#[test]
fn a_damaged_leaf_costs_its_own_keys_only() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let damager = Damager::new(&devices);
    let all = damager.live_leaves();
    assert!(all.len() > 4, "{} leaves", all.len());
    for leaf in all {
        let copies: Vec<_> = devices.iter().map(|device| Arc::new(device.copy())).collect();
        Damager::new(&copies).node(&leaf);
        let (report, sink) = rescued(&copies, &expected);
        assert!(!report.is_whole(), "{report:?}");
        assert!(report.damaged_nodes > 0);
        let whole = expected.files.keys().filter(|path| sink.verdict(path) == Some(Verdict::Whole)).count();
        // One leaf in many: most files never heard of it. Not even if it is the root directory's.
        assert!(whole * 10 > expected.files.len() || report.counts.nameless > 0, "{whole} files are whole: {report:?}");
        let found = expected.files.values().filter(|file| sink.contents().any(|content| content == file.content));
        assert!(found.count() * 2 > expected.files.len(), "{report:?}");
    }
}

#[test]
fn rotten_data_is_a_hole_just_where_it_is() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let damager = Damager::new(&devices);
    let (path, file) = expected.files.iter().find(|(_, file)| file.content.len() > 300_000).expect("a large file");
    let (blob_offset, ranges) = damager.spoil_block_of(file.inode, 40);
    assert_eq!(ranges, 2, "both copies are spoiled");
    let (report, sink) = rescued(&devices, &expected);
    assert_eq!(report.damage.len(), 1, "{:?}", report.damage);
    let damage = &report.damage[0];
    assert_eq!(damage.path.as_bytes(), &path[..]);
    assert_eq!((damage.ranges[0].offset, damage.ranges[0].length), (blob_offset, 4096));
    assert_eq!(report.counts.bytes_lost, 4096);
    let content = sink.content(path).expect("the file is there");
    let differ: Vec<usize> = (0..content.len())
        .step_by(4096)
        .filter(|at| {
            let end = (at + 4096).min(content.len());
            content[*at..end] != file.content[*at..end]
        })
        .collect();
    assert_eq!(differ, [blob_offset as usize]);
    assert_eq!(sink.verdict(path), Some(Verdict::Damaged));
    assert_eq!(report.counts.damaged, 1);
}

#[test]
fn with_all_metadata_gone_contents_are_put_under_their_inodes() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let damager = Damager::new(&devices);
    damager.superblocks(0..2);
    damager.journals();
    damager.records(|subject| !matches!(subject, RecordSubject::Blob { .. }));
    let (report, sink) = rescued(&devices, &expected);
    assert_eq!(report.state.root, "segments");
    let mut found = 0;
    for (path, file) in &expected.files {
        let Some(content) = sink.content(format!("/lost+found/{}", file.inode).as_bytes()) else {
            assert!(file.content.iter().all(|byte| *byte == 0), "{} is lost", String::from_utf8_lossy(path));
            continue;
        };
        // The end of a file may be a hole that no blob tells of.
        assert!(file.content.starts_with(&content), "{}", String::from_utf8_lossy(path));
        assert!(file.content[content.len()..].iter().all(|byte| *byte == 0));
        found += 1;
    }
    assert!(found > 50, "{found} files");
    assert!(report.counts.nameless >= found);
}

#[test]
fn a_cut_and_a_moved_superblock_do_not_confuse() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    // The first half of each device, with its superblocks at the end lost with the rest.
    let cut: Vec<_> = devices.iter().map(|device| damage::first_part(device, 40 << 20)).collect();
    let (report, sink) = rescued(&cut, &expected);
    assert!(report.devices[0].text.contains("cut off"), "{:?}", report.devices);
    assert!(count(&sink, &expected) > 50, "{report:?}");
    // Cut, and without superblocks: the layout follows from the chunks alone.
    Damager::new(&cut).superblocks(0..2);
    let (report, sink) = rescued(&cut, &expected);
    assert_eq!(report.state.root, "checkpoint");
    assert!(count(&sink, &expected) > 50, "{report:?}");
}

#[test]
fn foreign_devices_are_told_apart() {
    let (rig, expected) = Rig::filled(2);
    let mut devices = rig.close();
    let empty = Arc::new(MemoryDevice::new(64 << 20));
    let alone = rescue(sources(std::slice::from_ref(&empty)), Options::default(), &mut MemorySink::default());
    assert!(matches!(alone, Err(Error::NothingFound { .. })));
    let none = rescue(Vec::new(), Options::default(), &mut MemorySink::default());
    assert!(matches!(none, Err(Error::NoDevices)));
    devices.push(empty);
    let (report, sink) = rescued(&devices, &expected);
    assert!(!report.devices[2].is_used);
    expected.assert_all(&sink, Verdict::Whole);
    let other = Rig::empty_of_pool(2, 99).close();
    devices[2] = other[0].clone();
    let mixed = rescue(sources(&devices), Options::default(), &mut MemorySink::default());
    assert!(matches!(mixed, Err(Error::TwoPools { .. })));
}

#[test]
fn the_newest_of_stale_devices_speaks() {
    let (mut rig, mut expected) = Rig::filled(2);
    rig.commit();
    let stale = Arc::new(rig.devices[0].copy_as_flushed());
    let old = expected.clone();
    rig.close_and_reopen();
    rig.write_file(&mut expected, b"later", 900, 200_000);
    let devices = rig.close();
    let (report, sink) = rescued(&[stale.clone(), devices[1].clone()], &expected);
    assert!(!report.is_data_lost(), "{:?}", report.damage);
    expected.assert_all(&sink, Verdict::Whole);
    // Alone it gives what it knows.
    let (_, sink) = rescued(&[stale], &old);
    old.assert_all(&sink, Verdict::Whole);
}

#[test]
fn names_only_reads_no_contents() {
    let (rig, expected) = Rig::filled(2);
    let devices = rig.close();
    let before: u64 = devices.iter().map(|device| device.counters().read_bytes).sum();
    let mut sink = MemorySink::default();
    let report =
        rescue(sources(&devices), Options { names_only: true, ..Options::default() }, &mut sink).expect("it works");
    let after: u64 = devices.iter().map(|device| device.counters().read_bytes).sum();
    let content: usize = expected.files.values().map(|file| file.content.len()).sum();
    assert!(after - before < content as u64, "{} bytes read", after - before);
    assert_eq!(report.counts.files as usize, expected.files.len() - 1, "a hard link is no file of its own");
    assert_eq!(report.counts.bytes, 0);
}

#[test]
fn hostile_names_and_loops_do_no_harm() {
    let (rig, _) = Rig::filled(2);
    rig.forge();
    let devices = rig.close();
    let mut sink = MemorySink::default();
    let report = rescue(sources(&devices), Options::default(), &mut sink).expect("it ends");
    assert!(report.problems.iter().any(|problem| problem.what.contains("second name of a directory")), "{report:?}");
    assert!(report.problems.iter().any(|problem| problem.what.contains("is called")), "{report:?}");
    assert!(sink.paths().all(|path| !path.split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b".."))));
    assert!(report.is_data_lost(), "a name leads to nothing");
    let lost = sink.paths().filter(|path| path.starts_with(b"/lost+found/")).count();
    assert!(lost >= 2, "an inode and a directory without names are found");
    assert_eq!(sink.kind(b"/lost+found/5002"), Some(FileKind::Directory));
}
