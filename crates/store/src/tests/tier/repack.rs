//! P-87: repacking gives room on volumes back, nothing is lost, and there are never fewer copies.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use stere_device::{Medium, MediumWait, Volume, VolumeError};

use super::*;
use crate::Belonging;
use crate::tests::remove_file;

/// Two volumes that both have files of which most are removed, on volumes only.
fn mostly_dead() -> (Rig, Store, [Arc<MemoryVolume>; 2], Files) {
    let (rig, store, first) = with_volume();
    let second = Arc::new(MemoryVolume::new("colder"));
    add(&store, "colder", &second);
    let files: Files = (100..160).map(|inode| (inode, placement(1, 1), 60_000)).collect();
    write(&store, &files);
    archive(&store, &files, 3).unwrap();
    settle(&store);
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    let (dead, alive): (Files, Files) = files.into_iter().partition(|(inode, _, _)| inode % 10 != 0);
    dead.iter().for_each(|(inode, _, _)| remove_file(&store, *inode));
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    (rig, store, [first, second], alive)
}

fn objects(volume: &MemoryVolume) -> BTreeSet<String> {
    volume.objects().into_iter().filter(|name| name.starts_with("segments/")).collect()
}

fn repack_all(store: &Store) -> u64 {
    let mut emptied = 0;
    loop {
        let done = store.tier.repacker.repack_step(3, 50, &Belonging::NONE, &describe).unwrap();
        emptied += done.segments_emptied;
        if done.waits_for.is_some() || done.segments_emptied + done.segments_left == 0 {
            return emptied;
        }
    }
}

#[test]
fn dead_bytes_on_volumes_are_freed() {
    let (rig, store, volumes, alive) = mostly_dead();
    let stored =
        |store: &Store| store.tier.media.volume_statuses().iter().map(|status| status.stored_bytes).sum::<u64>();
    let (before, old) = (stored(&store), objects(&volumes[0]));
    assert!(repack_all(&store) > 1);
    assert!(stored(&store) * 3 < before, "{} of {before}", stored(&store));
    for volume in &volumes {
        assert!(objects(volume).is_disjoint(&old), "the old objects are gone");
    }
    assert_eq!(objects(&volumes[0]), objects(&volumes[1]));
    assert!(is_released(&store, &alive), "what was on volumes only is there only");
    assert_readable(&store, &alive);
    assert_clean(&store);
    // Either volume alone has everything.
    for away in [0, 1] {
        volumes[away].set_fault(Some(VolumeFault::Away));
        assert_readable(&store, &alive);
        volumes[away].set_fault(None);
    }
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1]);
    (0..2).for_each(|number| {
        store.tier.media.attach_volume(number, volumes[usize::from(number)].clone(), None, true).unwrap()
    });
    assert_readable(&store, &alive);
    assert_clean(&store);
}

/// Whatever request to one of the volumes is the last, the other copy and all that was there stays, and the work goes on.
#[test]
fn every_request_while_repacking_may_be_the_last() {
    for at in 0.. {
        let (rig, mut store, volumes, alive) = mostly_dead();
        let before = volumes[1].requests();
        volumes[1].fail_after(at);
        repack_all(&store);
        let is_over = volumes[1].requests() - before < at;
        for (inode, _, _) in &alive {
            let sets = blobs_of(&store, *inode).into_iter().map(|id| store.view(Io::BLOCKING, |view| view.blob(id)));
            assert!(sets.into_iter().all(|blob| blob.unwrap().media() == 3), "two copies, before and after");
        }
        if at % 2 == 1 {
            drop(store);
            rig.lose_power(|_| false);
            store = rig.open(&[0, 1]);
            for number in 0..2 {
                store.tier.media.attach_volume(number, volumes[usize::from(number)].clone(), None, false).unwrap();
            }
        }
        assert_readable(&store, &alive);
        volumes[1].set_fault(None);
        store.tier.retry_uploads();
        settle(&store);
        repack_all(&store);
        assert_readable(&store, &alive);
        (0..2).for_each(|number| drop(store.tier.sweeper.sweep_volume(number, true).unwrap()));
        assert_eq!(objects(&volumes[0]), objects(&volumes[1]));
        assert_clean(&store);
        if is_over {
            println!("{at} cuts");
            return;
        }
    }
}

/// The emptiest volume is found that is worth it, and none where nothing can be gained.
#[test]
fn a_volume_is_worth_repacking_until_it_is_repacked() {
    let (_rig, store, volumes, alive) = mostly_dead();
    assert_eq!(store.tier.repacker.volume_to_repack(99), None, "a tenth is alive");
    let first = store.tier.repacker.volume_to_repack(50).expect("nine tenths are dead");
    assert!(first == 1 || first == 2);
    // Who does not answer is left alone.
    store.tier.media.take_volume_away(first.trailing_zeros() as u8).unwrap();
    assert_eq!(store.tier.repacker.volume_to_repack(50), Some(3 - first));
    store
        .tier
        .media
        .attach_volume(first.trailing_zeros() as u8, volumes[first.trailing_zeros() as usize].clone(), None, true)
        .unwrap();
    repack_all(&store);
    assert_eq!(store.tier.repacker.volume_to_repack(50), None);
    assert_readable(&store, &alive);
    assert_clean(&store);
}

/// What is held back is not copied out, by nobody, and goes on afterwards.
#[test]
fn uploads_are_held_back() {
    let (_rig, store, volume) = with_volume();
    let files: Files = vec![(100, placement(1, 1), 60_000)];
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    store.tier.uploader.hold_uploads(true);
    settle(&store);
    assert!(!store.tier.upload_step(&describe).unwrap().is_busy);
    assert!(objects(&volume).is_empty() && store.tier.uploader.waiting_uploads() == 1);
    store.tier.uploader.hold_uploads(false);
    settle(&store);
    assert_eq!((objects(&volume).len(), store.tier.uploader.waiting_uploads()), (1, 0));
}

/// A volume of many media: so many objects go to each, one medium after the other.
struct Changer {
    inner: MemoryVolume,
    places: Mutex<BTreeMap<String, usize>>,
}

impl Changer {
    const OBJECTS: usize = 2;

    fn medium_of(&self, object: &str) -> Option<usize> {
        self.places.lock().get(object).copied()
    }
}

impl Volume for Changer {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        if object.starts_with("segments/") {
            let mut places = self.places.lock();
            let medium = places.len() / Changer::OBJECTS;
            places.insert(object.to_owned(), medium);
        }
        self.inner.put(object, bytes)
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], wait: &MediumWait) -> Result<(), VolumeError> {
        self.inner.get(object, offset, into, wait)
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        self.inner.length(object)
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        self.inner.delete(object)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        self.inner.list(prefix)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn media(&self) -> Vec<Medium> {
        let (kind, place) = ("ours".to_owned(), "slot".to_owned());
        vec![Medium { name: "0".into(), kind, place, objects: 1, bytes: 1, complaint: None }]
    }

    fn estimate(&self, object: &str) -> Option<(String, Duration)> {
        self.medium_of(object).map(|medium| (medium.to_string(), Duration::ZERO))
    }
}

/// P-307: of a library the objects on the cartridge with the least alive bytes go first, all of them at once, though a single object on
/// another one is emptier.
#[test]
fn objects_go_cartridge_by_cartridge() {
    let (_rig, store) = Rig::new(&[64 * MIB; 2]);
    let library = Arc::new(Changer { inner: MemoryVolume::new("shelf"), places: Mutex::default() });
    store.tier.media.add_volume(entry("shelf", stere_recall::CLASS_MEDIA), library.clone(), "tank", false).unwrap();
    let files: Files = (100..220).map(|inode| (inode, placement(1, 1), 60_000)).collect();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    let object_of = |id: u64| crate::object_of(&store.segments().get(id).unwrap());
    // The objects of each medium, in order, and the files in each.
    let mut media: BTreeMap<usize, BTreeMap<String, Files>> = BTreeMap::new();
    for file in &files {
        let segment = segments_of(&store, std::slice::from_ref(file))[0];
        let medium = library.medium_of(&object_of(segment)).unwrap();
        media.entry(medium).or_default().entry(object_of(segment)).or_default().push(*file);
    }
    assert!(media.len() > 2 && media[&0].len() == 2 && media[&1].len() == 2, "{} media", media.len());
    let mut alive = files.clone();
    let mut keep = |files: &Files, percent: usize| {
        for (inode, ..) in &files[files.len() * percent / 100..] {
            remove_file(&store, *inode);
            alive.retain(|(other, ..)| other != inode);
        }
    };
    keep(media[&0].values().next().unwrap(), 10);
    media[&1].values().for_each(|files| keep(files, 40));
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let emptied = |before: BTreeSet<String>| -> Vec<Option<usize>> {
        let gone = before.into_iter().filter(|name| library.inner.length(name).unwrap().is_none());
        gone.map(|name| library.medium_of(&name)).collect()
    };
    assert_eq!(store.tier.repacker.volume_to_repack(20), Some(1), "cartridges give room back");
    for expected in [&[Some(1), Some(1)][..], &[Some(0)]] {
        let before = objects(&library.inner);
        let done = store.tier.repacker.repack_step(1, 50, &Belonging::NONE, &describe).unwrap();
        assert_eq!(done.waits_for, None);
        assert_eq!(emptied(before), expected, "{done:?}");
    }
    assert_readable(&store, &alive);
    assert_clean(&store);
}
