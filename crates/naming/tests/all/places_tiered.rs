//! P-207: what is on media too lies on devices where policy says, also where that was said after it went down.

use crate::support;

use std::collections::BTreeSet;
use std::sync::Arc;

use stere_device::{MemoryVolume, VolumeFault};
use stere_format::DeviceIndex;
use stere_naming::{FileSystem, Io, ROOT};
use stere_store::Label;
use support::edits::{fact, set};
use support::files::{assert_clean, check, make, mkdir};
use support::volume::{add_volume, segments_of};
use support::{Rig, caller, reconcile};

const DEVICE_BYTES: u64 = 96 << 20;

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at / 512 * 7 + at + number * 31) as u8).collect()
}

fn tag(fs: &FileSystem, index: DeviceIndex, tags: &[&str]) {
    let tags = Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
    fs.store().devices.label_device(index, Label { tags, ..Label::default() }).unwrap();
}

/// Three files on a volume, in a directory of a pool that has two other devices.
struct Archived {
    _rig: Rig,
    fs: FileSystem,
    volume: Arc<MemoryVolume>,
    folder: u64,
    files: Vec<(u64, Vec<u8>)>,
}

fn settle(fs: &FileSystem) {
    reconcile(fs);
    while fs.store().tier.step(true, &|_| Vec::new()).unwrap().is_busy {
        reconcile(fs);
    }
    while !fs.store().rebuilder.mend_step(8 << 20).unwrap().is_done {}
}

impl Archived {
    fn new() -> Archived {
        let (rig, fs) = Rig::unlike(&[DEVICE_BYTES; 4]);
        [0, 1].into_iter().for_each(|index| tag(&fs, index, &["hdd"]));
        [2, 3].into_iter().for_each(|index| tag(&fs, index, &["ssd"]));
        let volume = add_volume(&fs);
        let folder = mkdir(&fs, ROOT, "folder");
        set(&fs, folder, "on", "hdd");
        let files: Vec<(u64, Vec<u8>)> = (0..3)
            .map(|number| {
                let bytes = content(number, 400_000);
                (make(&fs, folder, &format!("f{number}"), &bytes), bytes)
            })
            .collect();
        fs.syncfs(&caller(3)).unwrap();
        set(&fs, folder, "tier", "cold");
        settle(&fs);
        let archived = Archived { _rig: rig, fs, volume, folder, files };
        archived.assert_lie(&[0, 1, 2], &["d0", "d1"]);
        archived
    }

    fn where_is(&self, file: usize) -> BTreeSet<String> {
        fact(&self.fs, self.files[file].0, "where").split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_lie(&self, files: &[usize], on: &[&str]) {
        for file in files {
            let (inode, bytes) = &self.files[*file];
            let wanted: BTreeSet<String> = on.iter().chain(&["cold"]).map(|name| (*name).to_owned()).collect();
            assert_eq!(self.where_is(*file), wanted, "file {file}");
            assert_eq!(fact(&self.fs, *inode, "state"), "compliant", "file {file}");
            check(&self.fs, *inode, bytes);
        }
    }

    fn release(&self) {
        assert!(
            self.fs.tiers().release_segments(&caller(3), &segments_of(&self.fs, self.folder)).unwrap().segments > 0
        );
        self.fs.store().checkpoint().unwrap();
    }

    /// As `stere tier stage` does.
    fn stage(&self, files: &[usize]) {
        for file in files {
            let inode = self.files[*file].0;
            self.fs.tiers().bring_back(&caller(3), &segments_of(&self.fs, inode), &[inode]).unwrap();
        }
        settle(&self.fs);
    }
}

#[test]
fn what_is_archived_and_on_devices_follows_a_place_that_is_said_later() {
    for key in ["on", "only"] {
        let archived = Archived::new();
        let fs = &archived.fs;
        // One of those that lie together.
        set(fs, archived.files[1].0, key, "ssd");
        assert!(fact(fs, archived.files[1].0, "state").starts_with("pending"), "{key}");
        settle(fs);
        archived.assert_lie(&[1], &["d2", "d3"]);
        archived.assert_lie(&[0, 2], &["d0", "d1"]);
        // All of them, also where nobody says any more where they go down.
        set(fs, archived.folder, "tier", "");
        set(fs, archived.folder, key, "ssd");
        if key == "only" {
            set(fs, archived.folder, "on", "");
        }
        settle(fs);
        archived.assert_lie(&[0, 1, 2], &["d2", "d3"]);
        assert_clean(fs);
    }
}

#[test]
fn what_was_released_comes_back_to_the_place_that_was_said_meanwhile() {
    for key in ["on", "only"] {
        let archived = Archived::new();
        let fs = &archived.fs;
        archived.release();
        set(fs, archived.files[1].0, key, "ssd");
        let before = segments_of(fs, archived.files[1].0);
        settle(fs);
        assert_eq!(segments_of(fs, archived.files[1].0), before, "nothing is fetched for it");
        archived.assert_lie_released(1);
        archived.stage(&[1]);
        archived.assert_lie(&[1], &["d2", "d3"]);
        archived.stage(&[0, 2]);
        archived.assert_lie(&[0, 2], &["d0", "d1"]);
        assert_clean(fs);
    }
}

impl Archived {
    #[track_caller]
    fn assert_lie_released(&self, file: usize) {
        assert_eq!(self.where_is(file), BTreeSet::from(["cold".to_owned()]));
        assert_eq!(fact(&self.fs, self.files[file].0, "state"), "compliant");
    }
}

/// Nobody waits for a volume that is away, and it is not forgotten.
#[test]
fn what_comes_back_later_than_it_was_asked_for_lies_right_too() {
    let archived = Archived::new();
    let fs = &archived.fs;
    archived.release();
    set(fs, archived.files[1].0, "only", "ssd");
    settle(fs);
    archived.volume.set_fault(Some(VolumeFault::Away));
    let mut byte = [0];
    assert!(fs.read(&caller(4), archived.files[0].0, 0, &mut byte).is_err(), "now it is known");
    archived.stage(&[1]);
    assert_eq!(archived.where_is(1), BTreeSet::from(["cold".to_owned()]));
    let blocked = fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().blocked;
    assert!(blocked.len() == 1 && blocked[0].why.contains("wait for devices or media"), "{blocked:?}");
    archived.volume.set_fault(None);
    fs.reconciler().pause_reconcile(false);
    settle(fs);
    archived.stage(&[1]);
    archived.assert_lie(&[1], &["d2", "d3"]);
    assert!(fs.reconciler().reconcile_status(Io::BLOCKING).unwrap().blocked.is_empty());
    assert_clean(fs);
}

#[test]
fn what_is_archived_follows_a_label() {
    let archived = Archived::new();
    let fs = &archived.fs;
    archived.release();
    tag(fs, 0, &[]);
    tag(fs, 2, &["hdd", "ssd"]);
    fs.classes().follow_labels(&caller(3)).unwrap();
    settle(fs);
    archived.stage(&[0, 1, 2]);
    archived.assert_lie(&[0, 1, 2], &["d1", "d2"]);
    tag(fs, 1, &[]);
    tag(fs, 3, &["hdd"]);
    fs.classes().follow_labels(&caller(3)).unwrap();
    settle(fs);
    archived.assert_lie(&[0, 1, 2], &["d2", "d3"]);
    assert_clean(fs);
}

/// Two files share what both want elsewhere.
#[test]
fn what_files_share_lies_where_each_requires_it() {
    let archived = Archived::new();
    let fs = &archived.fs;
    let (source, bytes) = &archived.files[0];
    let copy = make(fs, archived.folder, "copy", &[]);
    fs.copy_range(&caller(3), *source, 0, copy, 0, bytes.len() as u64).unwrap();
    fs.syncfs(&caller(3)).unwrap();
    settle(fs);
    set(fs, copy, "only", "ssd");
    set(fs, *source, "only", "hdd");
    set(fs, archived.folder, "on", "");
    settle(fs);
    check(fs, copy, bytes);
    let lies = |inode: u64| fact(fs, inode, "where").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        (lies(copy), fact(fs, copy, "state").as_str()),
        (vec!["d2".into(), "d3".into(), "cold".into()], "compliant")
    );
    assert_eq!(lies(*source), ["d0", "d1", "cold"]);
    assert_clean(fs);
}
