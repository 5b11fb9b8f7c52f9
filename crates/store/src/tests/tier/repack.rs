//! P-87: repacking gives room on volumes back, nothing is lost, and there are never fewer copies.

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
