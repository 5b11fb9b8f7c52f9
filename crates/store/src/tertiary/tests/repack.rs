//! P-87: repacking gives room on volumes back, nothing is lost, and there are never fewer copies.

use super::*;
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
    store.release(&segments_of(&store, &files)).unwrap();
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
        let done = store.repack_step(3, 50, &describe).unwrap();
        emptied += done.segments_emptied;
        if done.waits_for.is_some() || done.segments_emptied + done.segments_left == 0 {
            return emptied;
        }
    }
}

#[test]
fn dead_bytes_on_volumes_are_freed() {
    let (rig, store, volumes, alive) = mostly_dead();
    let stored = |store: &Store| store.volume_statuses().iter().map(|status| status.stored_bytes).sum::<u64>();
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
    (0..2).for_each(|number| store.attach_volume(number, volumes[usize::from(number)].clone(), None, true).unwrap());
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
            let sets = blobs_of(&store, *inode).into_iter().map(|id| store.view(Wait::Allowed, |view| view.blob(id)));
            assert!(sets.into_iter().all(|blob| blob.unwrap().volumes() == 3), "two copies, before and after");
        }
        if at % 2 == 1 {
            drop(store);
            rig.lose_power(|_| false);
            store = rig.open(&[0, 1]);
            for number in 0..2 {
                store.attach_volume(number, volumes[usize::from(number)].clone(), None, false).unwrap();
            }
        }
        assert_readable(&store, &alive);
        volumes[1].set_fault(None);
        store.retry_uploads();
        settle(&store);
        repack_all(&store);
        assert_readable(&store, &alive);
        (0..2).for_each(|number| drop(store.sweep_volume(number, true).unwrap()));
        assert_eq!(objects(&volumes[0]), objects(&volumes[1]));
        assert_clean(&store);
        if is_over {
            println!("{at} cuts");
            return;
        }
    }
}
