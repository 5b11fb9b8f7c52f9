//! P-116: all that is on a volume that is retired gets to its heir, at every crash, and what was meant for the one goes to the other.

use super::*;

fn segment_objects(volume: &MemoryVolume) -> BTreeSet<String> {
    volume.objects().into_iter().filter(|name| name.starts_with("segments/")).collect()
}

/// Files on the volume `cold` only, and an empty volume `heir`.
fn with_heir() -> (Rig, Store, [Arc<MemoryVolume>; 2], Files) {
    let (rig, store, cold, files) = released();
    let heir = Arc::new(MemoryVolume::new("heir"));
    assert_eq!(add(&store, "heir!", &heir), 1);
    (rig, store, [cold, heir], files)
}

fn names(store: &Store) -> Vec<String> {
    store.tier.media.volumes().into_iter().map(|entry| entry.name).collect()
}

/// Segments of these files are on this set, and meant for it.
fn assert_on(store: &Store, files: &[(u64, Placement, usize)], set: u16) {
    for id in segments_of(store, files) {
        let tertiary = store.segments().get(id).unwrap().tertiary();
        assert_eq!((tertiary.wanted, tertiary.there), (set, set), "segment {id}");
    }
}

fn why<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.expect_err("it is refused").to_string()
}

#[test]
fn all_that_is_on_a_volume_gets_to_its_heir() {
    let (rig, store, [cold, heir], files) = with_heir();
    let later: Files = vec![(50, placement(1, 1), 200_000)];
    write(&store, &later);
    store.tier.media.retire_volume(0, 1).unwrap();
    assert!(
        store.tier.media.left_to_retire(0).0 > 1 && store.tier.media.left_to_retire(0).1 > 1_000_000,
        "{:?}",
        store.tier.media.left_to_retire(0)
    );
    assert_eq!(store.tier.media.usual_tier(), 2, "nothing more is meant for it");
    // What asks for the old one goes to the new one at once.
    archive(&store, &later, 1).unwrap();
    settle(&store);
    assert_eq!(names(&store), ["heir!"]);
    assert_on(&store, &files, 2);
    assert_on(&store, &later, 2);
    assert!(segment_objects(&heir).is_superset(&segment_objects(&cold)));
    cold.set_fault(Some(VolumeFault::Away));
    assert!(is_released(&store, &files), "it came to devices for nothing");
    assert_readable(&store, &files);
    assert_clean(&store);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1]);
    store.tier.media.attach_volume(1, heir, None, true).unwrap();
    assert_eq!(
        (names(&store), store.tier.media.in_place_of(1), store.tier.media.tier_names(1)),
        (vec!["heir!".into()], 2, "heir!".into())
    );
    assert_readable(&store, &files);
    archive(&store, &later, 1).unwrap();
    settle(&store);
    assert_on(&store, &later, 2);
    assert_clean(&store);
}

#[test]
fn a_second_copy_serves_where_the_volume_is_away() {
    let (_rig, store, [cold, heir], files) = with_heir();
    let third = Arc::new(MemoryVolume::new("third"));
    assert_eq!(add(&store, "third vol".replace(' ', "-").as_str(), &third), 2);
    archive(&store, &files, 0b101).unwrap();
    settle(&store);
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    store.checkpoint().unwrap();
    cold.set_fault(Some(VolumeFault::Away));
    assert!(why(store.tier.media.retire_volume(0, 2)).contains("fewer copies"));
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 1);
    store.tier.media.retire_volume(0, 1).unwrap();
    settle(&store);
    assert_eq!(store.tier.media.volumes().len(), 2);
    assert_on(&store, &files, 0b110);
    third.set_fault(Some(VolumeFault::Away));
    assert_readable(&store, &files);
    drop(heir);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (_rig, store, [_, heir], files) = with_heir();
    assert!(why(store.tier.media.retire_volume(0, 0)).contains("itself"));
    assert!(why(store.tier.media.retire_volume(0, 7)).contains("no such medium"));
    heir.set_free_bytes(1000);
    let said = why(store.tier.media.retire_volume(0, 1));
    assert!(said.contains("no room") && said.contains("1000 are free"), "{said}");
    assert!(why(store.tier.media.heir_for(0)).contains("no room"));
    heir.set_free_bytes(1 << 30);
    store.tier.media.take_volume_away(1).unwrap();
    assert!(why(store.tier.media.retire_volume(0, 1)).contains("not there"));
    store.tier.media.attach_volume(1, heir.clone(), None, true).unwrap();
    assert_eq!((store.tier.media.in_place_of(1), store.tier.media.heir_for(0).unwrap()), (1, 1));
    assert_on(&store, &files, 1);
    heir.set_fault(Some(VolumeFault::Full));
    store.tier.media.retire_volume(0, 1).unwrap();
    assert!(why(store.tier.media.retire_volume(1, 0)).contains("being retired"));
    let told = settle(&store).waits_for.expect("it is told why it does not go on");
    assert!(told.contains("full"), "{told}");
    assert_readable(&store, &files);
    // Without its heir the volume is as it was.
    store.tier.media.remove_volume(1).unwrap();
    assert_eq!((names(&store), store.tier.media.in_place_of(1)), (vec!["cold".into()], 1));
    settle(&store);
    assert_on(&store, &files, 1);
    assert_readable(&store, &files);
    assert_clean(&store);
}

#[test]
fn what_is_lost_keeps_its_volume_and_is_told() {
    let (_rig, store, [cold, _], files) = with_heir();
    let lost = segment_objects(&cold).into_iter().next().unwrap();
    cold.tamper(&lost, |_| false);
    store.tier.media.retire_volume(0, 1).unwrap();
    settle(&store);
    assert_eq!(names(&store), ["cold", "heir!"]);
    assert!(
        store.tier.stager.stuck_uploads().iter().any(|text| text.contains("remove the files")),
        "{:?}",
        store.tier.stager.stuck_uploads()
    );
    assert_eq!(store.tier.media.left_to_retire(0).0, 1);
    for (inode, _, _) in &files {
        crate::tests::remove_file(&store, *inode);
    }
    store.checkpoint().unwrap();
    settle(&store);
    assert_eq!(names(&store), ["heir!"]);
    assert_clean(&store);
}

/// Whatever request to the heir, or to the old volume, is the last, everything stays readable, and the work goes on.
#[test]
fn every_request_while_retiring_may_be_the_last() {
    let mut is_over = [false; 2];
    for at in 0.. {
        for failing in [0, 1] {
            let (rig, mut store, volumes, files) = with_heir();
            let before = volumes[failing].requests();
            volumes[failing].fail_after(at);
            store.tier.media.retire_volume(0, 1).unwrap();
            settle(&store);
            is_over[failing] = volumes[failing].requests() - before < at;
            volumes[failing].set_fault(None);
            assert_readable(&store, &files);
            drop(store);
            rig.lose_power(|_| at % 2 == 0);
            store = rig.open(&[0, 1]);
            let known: Vec<u8> = store.tier.media.volumes().iter().map(|entry| entry.number).collect();
            for number in known {
                store.tier.media.attach_volume(number, volumes[usize::from(number)].clone(), None, true).unwrap();
            }
            assert_readable(&store, &files);
            settle(&store);
            assert_eq!(names(&store), ["heir!"], "cut at {at} of {failing}");
            assert_on(&store, &files, 2);
            volumes[0].set_fault(Some(VolumeFault::Away));
            assert_readable(&store, &files);
            assert_clean(&store);
        }
        if is_over == [true; 2] {
            println!("{at} cuts, of each");
            return;
        }
    }
}

/// The same for every write to devices.
#[test]
fn every_write_while_retiring_may_be_the_last() {
    use crate::tests::devices::crashes::cut_before;
    use std::sync::atomic::Ordering;
    let (rig, store, volumes, files) = with_heir();
    store.close().unwrap();
    drop(store);
    for at in 0.. {
        let mut is_over = true;
        for keep in 0..2 {
            let copy = rig.copy();
            let attach = |store: &Store| {
                for entry in store.tier.media.volumes() {
                    store
                        .tier
                        .media
                        .attach_volume(entry.number, volumes[usize::from(entry.number)].clone(), None, true)
                        .unwrap();
                }
            };
            let store = copy.open(&[0, 1]);
            attach(&store);
            let count = cut_before(&copy, at);
            let work = || -> Result<(), Error> {
                store.tier.media.retire_volume(0, 1)?;
                while store.tier.step(true, &describe)?.is_busy {}
                store.checkpoint()
            };
            drop(work());
            is_over &= count.load(Ordering::SeqCst) <= at;
            drop(store);
            copy.lose_power(|index| keep == 1 && index % 2 == 0);
            let store = copy.open(&[0, 1]);
            attach(&store);
            assert_readable(&store, &files);
            if store.tier.media.volumes().len() == 2 {
                store.tier.media.retire_volume(0, 1).unwrap();
            }
            settle(&store);
            assert_eq!((names(&store), store.tier.media.in_place_of(1)), (vec!["heir!".into()], 2), "cut at {at}");
            assert_on(&store, &files, 2);
            assert_readable(&store, &files);
            assert_clean(&store);
        }
        if is_over {
            println!("{at} cuts, two ways each");
            return;
        }
    }
}

/// Two volumes beside the one that has the files: numbers 1 and 2.
fn with_two_heirs() -> (Rig, Store, [Arc<MemoryVolume>; 3], Files) {
    let (rig, store, [cold, heir], files) = with_heir();
    let third = Arc::new(MemoryVolume::new("third"));
    assert_eq!(add(&store, "third-volume", &third), 2);
    (rig, store, [cold, heir, third], files)
}

/// A volume that takes from another is not retired before it has all of it; the same is asked for twice, and nothing else instead.
#[test]
fn one_after_the_other_is_retired() {
    let (rig, store, volumes, files) = with_two_heirs();
    volumes[1].set_fault(Some(VolumeFault::Full));
    store.tier.media.retire_volume(0, 1).unwrap();
    settle(&store);
    store.tier.media.retire_volume(0, 1).expect("it goes on with what was begun");
    let said = why(store.tier.media.retire_volume(0, 2));
    assert!(said.contains("already") && said.contains("heir!"), "{said}");
    // Whoever takes over cannot go meanwhile, to nobody.
    let said = why(store.tier.media.retire_volume(1, 2));
    assert!(said.contains("wait until that is done"), "{said}");
    let said = why(store.tier.media.retire_volume(2, 0));
    assert!(said.contains("being retired itself"), "{said}");
    assert_eq!(
        (store.tier.media.in_place_of(1), store.tier.media.in_place_of(2), store.tier.media.in_place_of(4)),
        (2, 2, 4)
    );
    // All of this is known after a crash.
    drop(store);
    rig.lose_power(|_| false);
    let store = rig.open(&[0, 1]);
    for number in 0..3 {
        store.tier.media.attach_volume(number, volumes[usize::from(number)].clone(), None, true).unwrap();
    }
    volumes[1].set_fault(None);
    settle(&store);
    assert_eq!(names(&store), ["heir!", "third-volume"]);
    store.tier.media.retire_volume(1, 2).unwrap();
    settle(&store);
    assert_eq!(
        (names(&store), store.tier.media.in_place_of(1), store.tier.media.in_place_of(3)),
        (vec!["third-volume".into()], 4, 4)
    );
    assert_on(&store, &files, 4);
    volumes[..2].iter().for_each(|volume| volume.set_fault(Some(VolumeFault::Away)));
    assert_readable(&store, &files);
    assert_clean(&store);
}

/// Where nobody says which, the one with most room takes over, and none that is being retired or has too little.
#[test]
fn the_heir_with_most_room_is_chosen() {
    let (_rig, store, volumes, _files) = with_two_heirs();
    volumes[1].set_free_bytes(1 << 30);
    volumes[2].set_free_bytes(2 << 30);
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 2);
    volumes[2].set_free_bytes(1 << 29);
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 1);
    volumes[1].set_free_bytes(1000);
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 2);
    let (segments, bytes) = store.tier.media.check_retirement(0, 2).unwrap();
    assert!(segments > 1 && bytes > 2_000_000, "{segments} {bytes}");
    volumes[2].set_free_bytes(bytes);
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 2, "it is just enough");
    volumes[2].set_free_bytes(bytes - 1);
    assert!(why(store.tier.media.heir_for(0)).contains("no room"));
}

/// Nothing is taken from a volume for a heir that says that it has what it has not.
#[test]
fn a_heir_that_lies_takes_over_nothing() {
    for fault in [VolumeFault::Forgets, VolumeFault::Garbles, VolumeFault::Halves] {
        let (_rig, store, [cold, heir], files) = with_heir();
        heir.set_fault(Some(fault));
        store.tier.media.retire_volume(0, 1).unwrap();
        settle(&store);
        assert_eq!(names(&store), ["cold", "heir!"], "{fault:?}");
        assert!(store.tier.media.left_to_retire(0).0 > 1);
        assert_readable(&store, &files);
        heir.set_fault(None);
        store.tier.retry_uploads();
        settle(&store);
        assert_eq!(names(&store), ["heir!"], "{fault:?}");
        cold.set_fault(Some(VolumeFault::Away));
        assert_readable(&store, &files);
        assert_clean(&store);
    }
}

/// What is on both already, or is asked for on both, is two copies: they do not become one.
#[test]
fn two_copies_do_not_become_one() {
    let (_rig, store, [_, heir], files) = with_heir();
    // Files that are on their way to both.
    heir.set_fault(Some(VolumeFault::Away));
    let both: Files = vec![(70, placement(1, 1), 300_000)];
    write(&store, &both);
    archive(&store, &both, 3).unwrap();
    settle(&store);
    heir.set_fault(None);
    let said = why(store.tier.media.check_retirement(0, 1));
    assert!(said.contains("fewer copies"), "{said}");
    assert!(why(store.tier.media.heir_for(0)).contains("fewer copies"));
    settle(&store);
    assert!(why(store.tier.media.retire_volume(0, 1)).contains("fewer copies"));
    assert_on(&store, &both, 3);
    assert_on(&store, &files, 1);
    crate::tests::remove_file(&store, 70);
    (0..3).for_each(|_| store.checkpoint().unwrap());
    store.tier.media.retire_volume(0, 1).expect("nothing is on both any more");
    settle(&store);
    assert_on(&store, &files, 2);
}

/// What was meant for the volume and never got there goes to its heir, from devices: copied out in part, waiting, or just archived.
#[test]
fn what_waits_for_the_volume_goes_to_its_heir() {
    let (_rig, store, [cold, heir], files) = with_heir();
    cold.set_fault(Some(VolumeFault::Full));
    let waiting: Files = vec![(80, placement(1, 1), 300_000)];
    write(&store, &waiting);
    archive(&store, &waiting, 1).unwrap();
    settle(&store);
    // The segment of this one is not full, and nobody has ended it.
    let archived: Files = vec![(81, placement(1, 1), 50_000)];
    write(&store, &archived);
    archive(&store, &archived, 1).unwrap();
    let (segments, bytes) = store.tier.media.check_retirement(0, 1).unwrap();
    store.tier.media.retire_volume(0, 1).unwrap();
    // What the old volume never had is none of its any more.
    let (left, left_bytes) = store.tier.media.left_to_retire(0);
    assert_eq!(left as usize, segment_objects(&cold).len());
    assert!(segments > left && bytes > left_bytes && left_bytes > 2_700_000, "{segments} {left} {bytes} {left_bytes}");
    settle(&store);
    assert_eq!(names(&store), ["heir!"]);
    for some in [&files, &waiting, &archived] {
        assert_on(&store, some, 2);
    }
    assert!(heir.requests() > 0);
    cold.set_fault(Some(VolumeFault::Away));
    store.tier.stager.release(&segments_of(&store, &waiting)).unwrap();
    [&files, &waiting, &archived].into_iter().for_each(|some| assert_readable(&store, some));
    assert_clean(&store);
}

/// What is on both volumes because half of it was passed on already is no second copy: that can be gone on with, and is forecast.
#[test]
fn half_a_retirement_is_gone_on_with() {
    let (_rig, store, [_, heir], files) = with_heir();
    let all = store.tier.media.check_retirement(0, 1).unwrap();
    // It takes some of it and then nothing.
    let before = heir.requests();
    heir.fail_after(before + 6);
    store.tier.media.retire_volume(0, 1).unwrap();
    settle(&store);
    heir.set_fault(None);
    let left = store.tier.media.left_to_retire(0);
    assert!(left.0 > 0 && left.0 < all.0 && left.1 < all.1, "{left:?} of {all:?}");
    assert_eq!(store.tier.media.check_retirement(0, 1).unwrap(), left, "and it is no reason to refuse");
    store.tier.retry_uploads();
    settle(&store);
    assert_eq!(names(&store), ["heir!"]);
    assert_on(&store, &files, 2);
    assert_readable(&store, &files);
}

/// Where nobody knows how much room there is, the volume that holds least takes over; and none that is not there.
#[test]
fn the_emptiest_takes_over_where_room_is_not_known() {
    let (_rig, store, volumes, files) = with_two_heirs();
    let other: Files = vec![(90, placement(1, 1), 400_000)];
    write(&store, &other);
    archive(&store, &other, 2).unwrap();
    settle(&store);
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 2, "volume 1 holds something");
    // Who knows that he has room does not go before who has no bound.
    volumes[1].set_free_bytes(1 << 40);
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 2);
    store.tier.media.take_volume_away(2).unwrap();
    assert_eq!(store.tier.media.heir_for(0).unwrap(), 1);
    store.tier.media.take_volume_away(1).unwrap();
    assert!(why(store.tier.media.heir_for(0)).contains("not there"));
    assert_on(&store, &files, 1);
}

/// What could not be copied out before is tried again when a retirement begins.
#[test]
fn what_was_stuck_is_tried_again() {
    let (_rig, store, [cold, heir], files) = with_heir();
    let lost = segment_objects(&cold).into_iter().next().unwrap();
    let mut kept = Vec::new();
    cold.tamper(&lost, |bytes| {
        kept.clone_from(bytes);
        false
    });
    // A second copy of everything is wanted, and one segment has no right copy to make it from.
    store.tier.media.retire_volume(0, 1).unwrap();
    settle(&store);
    assert!(!store.tier.stager.stuck_uploads().is_empty());
    store.tier.media.remove_volume(1).unwrap();
    let again = Arc::new(MemoryVolume::new("again"));
    let number = add(&store, "again-it-is", &again);
    stere_device::Volume::put(&*cold, &lost, &kept).unwrap();
    store.tier.media.retire_volume(0, number).unwrap();
    settle(&store);
    assert_eq!(names(&store), ["again-it-is"]);
    assert_on(&store, &files, 1 << number);
    assert_readable(&store, &files);
    drop(heir);
}

/// P-116: what devices have lost goes to the heir from the volume that is retired, and waits while nobody can give it (the simulator's
/// seed 780002856: a segment was left for ever, and the volume with it).
#[test]
fn what_devices_lack_goes_to_the_heir_from_the_volume() {
    let (rig, store, cold, files) = archived();
    let heir = Arc::new(MemoryVolume::new("heir"));
    assert_eq!(add(&store, "heir!", &heir), 1);
    for device in &rig.devices {
        let slots = layout(device).slots_offset;
        (0..60).for_each(|slot| device.corrupt(slots + slot * MIB + 300_000, 512));
    }
    cold.set_fault(Some(VolumeFault::Away));
    store.tier.media.retire_volume(0, 1).unwrap();
    let progress = settle(&store);
    assert!(progress.waits_for.is_some_and(|why| why.contains("cold")), "it says whom it waits for");
    assert_eq!(names(&store), ["cold", "heir!"]);
    cold.set_fault(None);
    store.tier.retry_uploads();
    let progress = settle(&store);
    assert_eq!((progress.waits_for, names(&store)), (None, vec!["heir!".into()]));
    assert_on(&store, &files, 2);
    cold.set_fault(Some(VolumeFault::Away));
    assert_readable(&store, &files);
}
