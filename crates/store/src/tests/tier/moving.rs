//! Down, released, read, back: what is expected to work.

use super::*;

/// P-60: what is archived is on its volume, proven, before anything else counts on it; released it takes no room on devices and is
/// read from the volume; brought back it is on devices again. All of it is there after the pool was closed and opened.
#[test]
fn files_go_down_and_come_back() {
    let (rig, store, volume) = with_volume();
    let files = some();
    write(&store, &files);
    let free_before = free_slots(&store);
    archive(&store, &files, 1).unwrap();
    let segments = segments_of(&store, &files);
    let early = store.tier.stager.release(&segments).unwrap();
    assert_eq!(
        (early.segments, early.waiting),
        (0, segments.len() as u64),
        "nothing is released before it is elsewhere"
    );
    settle(&store);
    assert_eq!(store.tier.recalls.tertiary_counts().segments_uploaded, segments.len() as u64);
    assert_readable(&store, &files);
    assert_eq!(store.tier.recalls.tertiary_counts().fetches, 0, "what is on devices is read there");
    let released = store.tier.stager.release(&segments).unwrap();
    assert_eq!(released.segments, segments.len() as u64);
    assert!(is_released(&store, &files));
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    assert!(free_slots(&store) > free_before, "{} slots, {free_before} before", free_slots(&store));
    assert_readable(&store, &files);
    assert!(store.tier.recalls.tertiary_counts().fetches > 0);
    assert_clean(&store);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1]);
    assert!(is_released(&store, &files));
    let refused = read_range(&store, 10, 0, 4096);
    assert!(matches!(refused, Err(Error::Elsewhere { .. })), "nobody knows where the volume is: {refused:?}");
    store.tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
    assert_readable(&store, &files);
    store.tier.recalls.want_back(&segments);
    settle(&store);
    assert!(!is_released(&store, &files));
    let fetches = store.tier.recalls.tertiary_counts().fetches;
    assert_readable(&store, &files);
    assert_eq!(store.tier.recalls.tertiary_counts().fetches, fetches, "they are on devices again");
    assert_complete(&store, &[]);
    assert_clean(&store);
}

/// P-61: bringing a segment back reads its object once, whoever and how many want it; many small files cost few requests.
#[test]
fn small_files_cost_few_requests() {
    let (_rig, store, volume) = with_volume();
    let files: Vec<_> = (1000..2000).map(|inode| (inode, placement(1, 1), 4096)).collect();
    write(&store, &files);
    let before = volume.requests();
    archive(&store, &files, 1).unwrap();
    settle(&store);
    let segments = segments_of(&store, &files);
    let requests = volume.requests() - before;
    // One to look, one for the names, one to store, one to read back.
    assert!(requests <= 4 * segments.len() as u64 + 1, "{requests} requests for {} segments", segments.len());
    assert_eq!(store.tier.stager.release(&segments).unwrap().segments, segments.len() as u64);
    let before = volume.requests();
    store.tier.recalls.want_back(&segments);
    settle(&store);
    assert_eq!(volume.requests() - before, segments.len() as u64, "one request for each segment");
    assert_readable(&store, &files);
}

/// The second read of a released segment fetches it whole, and it is on devices after that.
#[test]
fn what_is_read_again_comes_back() {
    let (_rig, store, _volume, files) = archived();
    let segments = segments_of(&store, &files);
    store.tier.stager.release(&segments).unwrap();
    let before = store.tier.recalls.tertiary_counts().bytes_fetched;
    read_range(&store, 10, 0, 4096).unwrap();
    assert_eq!(
        store.tier.recalls.tertiary_counts().bytes_fetched - before,
        4096,
        "the first read fetches what it needs"
    );
    assert_eq!(store.tier.recalls.wanted_back(), 0);
    read_range(&store, 10, 8192, 4096).unwrap();
    assert_eq!(store.tier.recalls.wanted_back(), 1);
    let before = store.tier.recalls.tertiary_counts().fetches;
    read_range(&store, 10, 16384, 4096).unwrap();
    assert_eq!(store.tier.recalls.tertiary_counts().fetches, before, "it is in memory");
    settle(&store);
    assert!(!store.segments().get(segments_of(&store, &files[..1])[0]).unwrap().is_released());
    assert_readable(&store, &files);
    assert_clean(&store);
}

/// What is removed goes from volumes too, and only when no checkpoint names it any more.
#[test]
fn removed_files_leave_their_volumes() {
    let (_rig, store, volume, files) = released();
    let segments = segments_of(&store, &files);
    assert_eq!(volume.objects().len(), 1 + 2 * segments.len(), "a label, and a segment with its names each");
    for (inode, _, _) in &files {
        crate::tests::remove_file(&store, *inode);
    }
    store.commit(Io::BLOCKING).unwrap();
    settle(&store);
    assert_eq!(volume.objects().len(), 1 + 2 * segments.len(), "the checkpoint still names them");
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    settle(&store);
    assert_eq!(volume.objects(), ["stere-volume"]);
    assert_clean(&store);
}

/// Two volumes have a copy each; either alone suffices.
#[test]
fn two_volumes_have_a_copy_each() {
    let (_rig, store) = Rig::new(&[64 * MIB; 2]);
    let volumes = [Arc::new(MemoryVolume::new("one")), Arc::new(MemoryVolume::new("other"))];
    add(&store, "one", &volumes[0]);
    store.tier.media.add_volume(entry("other", 4), volumes[1].clone(), "tank", false).unwrap();
    let set = store.tier.media.tiers_of("one+other").unwrap();
    assert_eq!((set, store.tier.media.tier_names(set)), (3, "one+other".to_owned()));
    let files = some();
    write(&store, &files);
    archive(&store, &files, set).unwrap();
    settle(&store);
    let segments = segments_of(&store, &files);
    assert_eq!(store.tier.stager.release(&segments).unwrap().segments, segments.len() as u64);
    for away in &volumes {
        away.set_fault(Some(VolumeFault::Away));
        assert_readable(&store, &files);
        away.set_fault(None);
    }
    assert!(store.tier.media.remove_volume(1).is_ok(), "the other has everything");
    assert_readable(&store, &files);
    assert!(store.tier.media.remove_volume(0).is_err(), "nobody else has it");
    assert_clean(&store);
}

/// The cleaner and the mender leave alone what is on volumes; what is not there yet is as any data.
#[test]
fn local_work_passes_released_segments_over() {
    let (_rig, store, volume, files) = archived_beside(3);
    store.tier.stager.release(&segments_of(&store, &files)).unwrap();
    volume.set_fault(Some(VolumeFault::Away));
    let requests = volume.requests();
    store.devices.set_device_state(1, stere_format::DeviceState::Leaving).unwrap();
    mend(&store);
    while store.step(true).unwrap() {}
    assert!(store.scrubber.scrub().unwrap().is_clean());
    write(&store, &[(50, placement(1, 1), 900_000)]);
    store.checkpoint().unwrap();
    assert_eq!(volume.requests(), requests, "nothing local asks a volume");
    assert_eq!(store.losses.loss(&|_| false).classes.iter().map(|class| class.touched_bytes).sum::<u64>(), 0);
    volume.set_fault(None);
    assert_readable(&store, &files);
}

/// P-6: what volumes have and devices too is not moved together, so each such segment takes its whole room of what can be promised,
/// however little is in it (the simulator's seed 3677: what had been accepted found no place).
#[test]
fn what_stays_on_devices_beside_its_volume_takes_whole_segments() {
    const SEGMENTS: u64 = 10;
    let (_rig, store, _volume) = with_volume();
    let scheme = placement(1, 1).scheme;
    let files: Files = (10..10 + SEGMENTS).map(|inode| (inode, placement(1, 1), 5_000)).collect();
    write(&store, &files);
    store.checkpoint().unwrap();
    let before = store.space().statistics(scheme).free_bytes;
    for file in &files {
        archive(&store, std::slice::from_ref(file), 1).unwrap();
        settle(&store);
    }
    store.checkpoint().unwrap();
    assert_eq!(segments_of(&store, &files).len() as u64, SEGMENTS, "each file was settled by itself");
    let taken = before - store.space().statistics(scheme).free_bytes;
    let segment_bytes = u64::from(store.log().chunk_bytes());
    assert!(taken >= (SEGMENTS - 2) * segment_bytes * 3 / 4, "{taken} bytes are promised less than before");
}
