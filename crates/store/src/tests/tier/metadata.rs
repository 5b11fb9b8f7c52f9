//! Copies of metadata on volumes.

use stere_format::{CheckpointRecord, metadata_name, state_of_object};

use super::*;

fn copy(store: &Store) -> bool {
    let begun = store.tier.copier.begin_metadata_copy(true).unwrap();
    settle(store);
    assert!(!store.tier.copier.is_copying_metadata());
    begun
}

fn read(volume: &MemoryVolume, name: &str) -> Vec<u8> {
    use stere_device::{MediumWait, Volume};
    let mut bytes = vec![0; volume.length(name).unwrap().expect("the object is there") as usize];
    volume.get(name, 0, &mut bytes, &MediumWait::NONE).unwrap();
    bytes
}

fn states(volume: &MemoryVolume) -> Vec<u64> {
    volume.objects().iter().filter_map(|name| state_of_object(name)).collect()
}

/// The volume has exactly one state, whole: every segment of its tree as far as the record says, row by row right.
fn assert_one_whole_state(store: &Store, volume: &MemoryVolume) -> CheckpointRecord {
    let [generation] = states(volume)[..] else { panic!("{:?}", volume.objects()) };
    let record = CheckpointRecord::decode(&read(volume, &stere_format::state_name(generation))).unwrap();
    assert_eq!(record.generation, generation);
    let names: BTreeSet<String> = record
        .meta_segments
        .iter()
        .map(|(id, value)| {
            let name = metadata_name(*id, value.sequence, value.written_blocks);
            let bytes = read(volume, &name);
            assert_eq!(bytes.len(), value.written_blocks as usize * stere_format::BLOCK_BYTES);
            assert!(stere_recall::is_object_of(record.pool, *id, value.sequence, &bytes), "{name}");
            name
        })
        .collect();
    let there: BTreeSet<String> = volume.objects().into_iter().filter(|name| name.starts_with("metadata/")).collect();
    assert_eq!(there, names, "and nothing else");
    assert_eq!(store.tier.media.volume_statuses()[0].metadata_generation, Some(generation));
    record
}

/// P-72: a volume always has the newest copied state whole, with nothing of older ones beside it, and none is copied twice.
#[test]
fn a_volume_has_one_whole_state() {
    let (rig, store, volume) = with_volume();
    let mut generations = Vec::new();
    for round in 0..4u64 {
        let files: Files = (0..300).map(|at| (1000 * (1 + round) + at, placement(1, 1), 4096)).collect();
        write(&store, &files);
        assert!(copy(&store));
        generations.push(assert_one_whole_state(&store, &volume).generation);
        let before = volume.requests();
        assert!(!copy(&store), "nothing has changed");
        assert_eq!(volume.requests(), before);
    }
    assert!(generations.is_sorted_by(|one, next| one < next), "{generations:?}");
    assert_clean(&store);
    store.close().unwrap();
    drop(store);
    // What is there already is not copied again by the next mount.
    let store = rig.open(&[0, 1]);
    store.tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
    let before = volume.requests();
    assert!(copy(&store));
    let requests = volume.requests() - before;
    assert!(requests <= 16, "{requests} requests after a mount");
    assert_one_whole_state(&store, &volume);
}

/// P-72: whatever request is the last one that a volume answers, it has a whole state then, and the next copy puts all in order.
#[test]
fn a_copy_that_is_broken_off_leaves_the_state_before() {
    for at in 0.. {
        let (_rig, store, volume) = with_volume();
        write(&store, &some());
        assert!(copy(&store));
        let [before] = states(&volume)[..] else { panic!("one state") };
        write(&store, &[(50, placement(1, 1), 300_000)]);
        let requests = volume.requests();
        volume.fail_after(at);
        copy(&store);
        let is_over = volume.requests() - requests < at;
        volume.set_fault(None);
        let newest = *states(&volume).last().unwrap();
        assert!(newest >= before);
        let record = CheckpointRecord::decode(&read(&volume, &stere_format::state_name(newest))).unwrap();
        for (id, value) in &record.meta_segments {
            let bytes = read(&volume, &metadata_name(*id, value.sequence, value.written_blocks));
            assert!(stere_recall::is_object_of(record.pool, *id, value.sequence, &bytes), "cut at {at}");
        }
        copy(&store);
        assert!(assert_one_whole_state(&store, &volume).generation >= newest);
        assert_clean(&store);
        if is_over {
            assert!(at > 4, "{at} cuts");
            return;
        }
    }
}

/// A volume that stores something else than it is given has no state; the pool goes on.
#[test]
fn a_volume_that_lies_gets_no_state() {
    for fault in [VolumeFault::Forgets, VolumeFault::Garbles, VolumeFault::Halves, VolumeFault::Full] {
        let (_rig, store, volume) = with_volume();
        write(&store, &some());
        volume.set_fault(Some(fault));
        copy(&store);
        volume.set_fault(None);
        assert_eq!(states(&volume), [], "{fault:?}");
        assert!(copy(&store), "{fault:?}");
        assert_one_whole_state(&store, &volume);
        assert_readable(&store, &some());
    }
}

/// A volume that does not take metadata gets none.
#[test]
fn who_does_not_want_metadata_gets_none() {
    let (_rig, store) = Rig::new(&[64 * MIB; 2]);
    let volume = Arc::new(MemoryVolume::new("cold"));
    let entry = VolumeEntry { takes_metadata: false, ..entry("cold", 3) };
    store.tier.media.add_volume(entry, volume.clone(), "tank", false).unwrap();
    write(&store, &some());
    assert!(!copy(&store));
    assert_eq!(volume.objects(), ["stere-volume"]);
}
