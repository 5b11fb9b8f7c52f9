//! Tertiary volumes in a rescue: with devices and without any.

use std::sync::Arc;

use stere_device::{MediumWait, MemoryDevice, MemoryVolume, Volume, VolumeFault};
use stere_format::{SegmentKind, Succession, VolumeEntry, VolumeId, metadata_of_object, state_of_object};
use stere_naming::{ROOT, SetMode};

use super::memory_sink::MemorySink;
use super::rig::{Expected, Rig, caller};
use super::sources;
use crate::sink::Verdict;
use crate::sources::{Members, read_header};
use crate::{Error, Options, Report, VolumeSource, rescue_with_volumes};

fn add_volume(rig: &Rig) -> Arc<MemoryVolume> {
    let volume = Arc::new(MemoryVolume::new("cold"));
    let (name, place) = ("cold".to_owned(), "memory:cold".to_owned());
    let id = VolumeId([7; 16]);
    let entry = VolumeEntry {
        number: 0,
        id,
        class: 3,
        is_offline: false,
        takes_metadata: true,
        succession: Succession::Stays,
        name,
        place,
    };
    rig.files.store().tier.media.add_volume(entry, volume.clone(), "tank", false).unwrap();
    volume
}

fn settle(rig: &Rig) {
    while rig.files.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {}
}

/// Sends everything below an inode down.
fn archive(rig: &Rig, inode: u64) {
    rig.files.setxattr(&caller(), inode, b"user.stere.tier", b"cold", SetMode::Any, false).unwrap();
    while rig.files.reconciler().reconcile_step(&caller(), u64::MAX).unwrap() {}
    rig.commit();
    settle(rig);
}

/// Gives up what is on devices beside the volume's copies.
fn release(rig: &Rig) {
    let store = rig.files.store();
    let segments: Vec<u64> = store.segments().all().iter().map(|segment| segment.id).collect();
    assert!(store.tier.stager.release(&segments).unwrap().segments > 0);
}

/// What was released may be found on devices until something else is written there; now no content is.
fn wipe(devices: &[Arc<MemoryDevice>]) {
    for member in Members::gather(sources(devices), Vec::new()).unwrap().members {
        for offset in (0..member.layout.slot_count).filter_map(|slot| member.layout.slot_offset(slot)) {
            let header = read_header(&*member.device, offset);
            if header.is_some_and(|header| header.kind == SegmentKind::Data) {
                member.device.write_bytes(offset, &vec![0; member.layout.chunk_bytes as usize]).unwrap();
            }
        }
    }
}

fn copy_metadata(rig: &Rig) {
    assert!(rig.files.store().tier.copier.begin_metadata_copy(true).unwrap());
    settle(rig);
}

fn sources_of(volumes: &[&Arc<MemoryVolume>]) -> Vec<VolumeSource> {
    let source = |volume: &&Arc<MemoryVolume>| VolumeSource { path: volume.describe(), volume: (*volume).clone() };
    volumes.iter().map(source).collect()
}

fn copy_of(volume: &MemoryVolume) -> Arc<MemoryVolume> {
    let copy = MemoryVolume::new("cold");
    for name in volume.objects() {
        let mut bytes = vec![0; volume.length(&name).unwrap().unwrap() as usize];
        volume.get(&name, 0, &mut bytes, &MediumWait::NONE).unwrap();
        copy.put(&name, &bytes).unwrap();
    }
    Arc::new(copy)
}

fn rescued(volumes: &[&Arc<MemoryVolume>], expected: &Expected) -> (Report, MemorySink) {
    let mut sink = MemorySink::default();
    let report = rescue_with_volumes(Vec::new(), sources_of(volumes), Options::default(), &mut sink).unwrap();
    expected.judge(&sink, &report);
    (report, sink)
}

/// Devices and a volume together have everything, as it was last.
fn assert_whole_with_volume(devices: &[Arc<MemoryDevice>], volume: &Arc<MemoryVolume>, expected: &Expected) {
    let mut sink = MemorySink::default();
    let volumes = sources_of(&[volume]);
    let report = rescue_with_volumes(sources(devices), volumes, Options::default(), &mut sink).unwrap();
    expected.judge(&sink, &report);
    assert!(report.is_whole(), "{report:?}");
    expected.assert_all(&sink, Verdict::Whole);
}

/// P-73: all devices are gone, everything had gone down: everything comes back, with names, attributes and links.
#[test]
fn everything_comes_back_from_a_volume_alone() {
    let (rig, expected) = Rig::filled(2);
    let volume = add_volume(&rig);
    archive(&rig, ROOT);
    copy_metadata(&rig);
    drop(rig);
    let (report, sink) = rescued(&[&volume], &expected);
    assert_eq!((report.state.root, report.state.is_newest), ("volume", false));
    assert!(report.is_whole_as_found(), "{report:?}");
    expected.assert_all(&sink, Verdict::Older);
    expected.assert_attributes(&sink);
}

/// P-73: of what never went down names and attributes come back, and what content lacks is told by path.
#[test]
fn names_come_back_of_what_never_went_down() {
    let (rig, expected) = Rig::filled(3);
    let volume = add_volume(&rig);
    let cold = rig.files.lookup(&caller(), ROOT, b"directory 0").unwrap().inode;
    archive(&rig, cold);
    release(&rig);
    copy_metadata(&rig);
    drop(rig);
    let (report, sink) = rescued(&[&volume], &expected);
    expected.assert_attributes(&sink);
    let is_below = |path: &[u8]| path.starts_with(b"/directory 0/");
    let (mut down, mut lost) = (0, 0);
    for (path, file) in &expected.files {
        let content = sink.content(path).expect("every name is there");
        assert_eq!(content.len(), file.content.len());
        let shown = String::from_utf8_lossy(path);
        if is_below(path) {
            assert!(content == file.content, "{shown} differs");
            down += 1;
        } else if !file.content.is_empty() {
            let is_told = report.damage.iter().any(|damage| damage.inode == file.inode && !damage.ranges.is_empty());
            assert!(is_told, "{shown} lacks its content, and nothing says so");
            lost += 1;
        }
    }
    assert!(down > 20 && lost > 20, "{down} {lost}");
}

/// What was written after the last copy of the metadata is not there, and what is there is as it was then.
#[test]
fn what_came_later_is_not_there() {
    let (mut rig, mut expected) = Rig::filled(2);
    let volume = add_volume(&rig);
    archive(&rig, ROOT);
    copy_metadata(&rig);
    let before = expected.clone();
    rig.write_file(&mut expected, b"too late", 900, 5000);
    rig.commit();
    rig.files.store().checkpoint().unwrap();
    drop(rig);
    let (_, sink) = rescued(&[&volume], &before);
    assert!(sink.content(b"/too late").is_none());
    before.assert_all(&sink, Verdict::Older);
}

/// P-73: contents that are on a volume only come back when it is given beside the devices.
#[test]
fn released_contents_come_back_with_the_volume() {
    let (rig, expected) = Rig::filled(2);
    let volume = add_volume(&rig);
    archive(&rig, ROOT);
    release(&rig);
    rig.commit();
    let devices = rig.close();
    wipe(&devices);
    let mut alone = MemorySink::default();
    let report = rescue_with_volumes(sources(&devices), Vec::new(), Options::default(), &mut alone).unwrap();
    assert!(report.is_data_lost());
    assert_whole_with_volume(&devices, &volume, &expected);
}

/// P-73, P-305: what went down from rows with parity comes back from a volume alone, and from it beside devices; each of them knows
/// a part that the other one does not.
#[test]
fn what_has_parity_comes_back_from_a_volume() {
    let (rig, expected) = Rig::filled(4);
    let volume = add_volume(&rig);
    rig.files.setxattr(&caller(), ROOT, b"user.stere.parity", b"2+1", SetMode::Any, false).unwrap();
    archive(&rig, ROOT);
    let is_wide = |name: &String| stere_format::data_chunks_of_object(name) == Some(2);
    assert!(volume.objects().iter().any(is_wide), "something went down from two data chunks");
    copy_metadata(&rig);
    release(&rig);
    rig.commit();
    let devices = rig.close();
    wipe(&devices);
    let (report, sink) = rescued(&[&volume], &expected);
    assert!(report.is_whole_as_found(), "{report:?}");
    expected.assert_all(&sink, Verdict::Older);
    assert_whole_with_volume(&devices, &volume, &expected);
}

/// Any object may be missing or changed: nothing that is called whole differs, and no byte is where it never was.
#[test]
fn damaged_objects_cost_what_they_held() {
    let (rig, expected) = Rig::filled(2);
    let volume = add_volume(&rig);
    archive(&rig, ROOT);
    copy_metadata(&rig);
    drop(rig);
    let changes: [fn(&mut Vec<u8>) -> bool; 3] = [
        |_| false,
        |bytes| {
            bytes.truncate(bytes.len() / 2);
            true
        },
        |bytes| {
            let length = bytes.len();
            bytes[length / 3..length / 2].fill(0x5a);
            true
        },
    ];
    let objects = volume.objects();
    assert!(objects.iter().any(|name| metadata_of_object(name).is_some()));
    for name in objects {
        for (kind, change) in changes.into_iter().enumerate() {
            let damaged = copy_of(&volume);
            damaged.tamper(&name, change);
            let (report, _) = rescued(&[&damaged], &expected);
            let is_gone = kind == 0 && (metadata_of_object(&name).is_some() || name.starts_with("segments/"));
            assert!(!is_gone || !report.is_whole_as_found(), "{name}: {report:?}");
            // The record of this or an earlier generation lies in the tree's segments too.
            assert!(state_of_object(&name).is_none() || report.counts.files > 50, "{name}: {report:?}");
        }
    }
}

/// A volume that does not answer is named; with nothing else there is nothing to rescue.
#[test]
fn a_volume_that_is_away_is_named() {
    let (rig, expected) = Rig::filled(2);
    let volume = add_volume(&rig);
    copy_metadata(&rig);
    let devices = rig.close();
    volume.set_fault(Some(VolumeFault::Away));
    let mut sink = MemorySink::default();
    let alone = rescue_with_volumes(Vec::new(), sources_of(&[&volume]), Options::default(), &mut sink);
    assert!(matches!(alone, Err(Error::NothingFound { .. })), "{alone:?}");
    let volumes = sources_of(&[&volume]);
    let report = rescue_with_volumes(sources(&devices), volumes, Options::default(), &mut sink).unwrap();
    let fact = report.devices.iter().find(|fact| fact.path == volume.describe()).unwrap();
    assert!(!fact.is_used && fact.text.contains("cannot be reached"), "{fact:?}");
    expected.assert_all(&sink, Verdict::Whole);
}

/// P-141: names that were put away come back with all others, from a volume alone; where their objects are gone it is told.
#[test]
fn names_that_were_put_away_come_back() {
    let (rig, expected) = Rig::filled(2);
    let volume = add_volume(&rig);
    archive(&rig, ROOT);
    release(&rig);
    let outcome = rig.files.offload().offload_below(&caller(), ROOT).unwrap();
    assert!(outcome.keys > 100, "{outcome:?}");
    rig.commit();
    settle(&rig);
    release(&rig);
    copy_metadata(&rig);
    let folds = rig.files.store().offload().folds(stere_store::Io::BLOCKING).unwrap();
    let bundles: Vec<u64> = folds.iter().map(|fold| fold.blob.segment_id()).collect();
    drop(rig);
    let (report, sink) = rescued(&[&volume], &expected);
    assert!(report.is_whole_as_found(), "{report:?}");
    expected.assert_all(&sink, Verdict::Older);
    expected.assert_attributes(&sink);
    let without = copy_of(&volume);
    for name in without.objects() {
        if stere_format::segment_of_object(&name).is_some_and(|(id, _)| bundles.contains(&id)) {
            without.tamper(&name, |_| false);
        }
    }
    let mut sink = MemorySink::default();
    let report = rescue_with_volumes(Vec::new(), sources_of(&[&without]), Options::default(), &mut sink).unwrap();
    assert!(report.state.notes.iter().any(|note| note.contains("were offloaded")), "{report:?}");
}
