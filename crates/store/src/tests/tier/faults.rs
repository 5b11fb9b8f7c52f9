//! Volumes that are away, full, forget, lie, or are somebody else's.

use super::*;
use crate::tests::remove_file;

/// P-62: while a volume is away everything local goes on, and what waits for it goes on by itself when it is back.
#[test]
fn a_volume_that_is_away_stops_nothing_else() {
    let (_rig, store, volume, files) = released();
    volume.set_fault(Some(VolumeFault::Away));
    let outcome = read_range(&store, 10, 0, 4096);
    let is_away = |error: &Error| matches!(error, Error::Elsewhere { refusal: crate::Refusal::Away, .. });
    assert!(outcome.as_ref().is_err_and(is_away), "{outcome:?}");
    let more = vec![(30, placement(1, 1), 900_000)];
    write(&store, &more);
    archive(&store, &more, 1).unwrap();
    let progress = settle(&store);
    assert!(progress.waits_for.is_some_and(|why| why.contains("cold")));
    store.checkpoint().unwrap();
    assert_readable(&store, &more);
    let waiting = store.tier.stager.release(&segments_of(&store, &more)).unwrap();
    assert_eq!((waiting.segments, waiting.waiting > 0), (0, true), "bytes that are nowhere else are never dropped");
    assert_eq!(store.failure(), None);
    volume.set_fault(None);
    assert_readable(&store, &files);
    settle(&store);
    assert!(store.tier.stager.release(&segments_of(&store, &more)).unwrap().segments > 0);
    assert_readable(&store, &more);
    assert_clean(&store);
}

/// A volume that says it stored what it did not, or other bytes, or half of them, is found out before anything counts on it.
#[test]
fn volumes_that_lie_are_found_out() {
    for fault in [VolumeFault::Forgets, VolumeFault::Garbles, VolumeFault::Halves, VolumeFault::Full] {
        let (_rig, store, volume) = with_volume();
        let files = some();
        write(&store, &files);
        archive(&store, &files, 1).unwrap();
        volume.set_fault(Some(fault));
        let progress = settle(&store);
        assert!(progress.waits_for.is_some(), "{fault:?}");
        assert_eq!(store.tier.stager.release(&segments_of(&store, &files)).unwrap().segments, 0, "{fault:?}");
        volume.set_fault(None);
        store.tier.retry_uploads();
        settle(&store);
        assert!(store.tier.stager.release(&segments_of(&store, &files)).unwrap().segments > 0, "{fault:?}");
        assert_readable(&store, &files);
        assert_clean(&store);
    }
}

/// P-63: an object that is missing, cut or changed is an error for what it held, never other bytes; others are read.
#[test]
fn bad_objects_are_errors_and_never_other_bytes() {
    type Change = fn(&mut Vec<u8>) -> bool;
    let changes: [Change; 4] = [
        |_| false,
        |bytes| {
            bytes.truncate(8192);
            true
        },
        |bytes| {
            bytes.iter_mut().for_each(|byte| *byte ^= 1);
            true
        },
        |bytes| {
            bytes.clear();
            true
        },
    ];
    for change in changes {
        let (_rig, store, volume, files) = released();
        let bad = volume.objects().into_iter().find(|name| name.starts_with("segments/")).unwrap();
        volume.tamper(&bad, change);
        let mut outcomes = (0, 0);
        for (inode, _, length) in &files {
            match crate::tests::read_file(&store, *inode, *length) {
                Ok(bytes) => {
                    assert_eq!(bytes, content(*inode, *length));
                    outcomes.0 += 1;
                }
                Err(Error::Damaged { .. }) => outcomes.1 += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(outcomes.1 > 0, "{outcomes:?}");
        let swept = store.tier.sweeper.sweep_volume(0, true).unwrap();
        assert_eq!(swept.lacking.len() + swept.damaged.len(), 1, "{swept:?}");
        // Removing works all the same.
        files.iter().for_each(|(inode, _, _)| remove_file(&store, *inode));
        store.checkpoint().unwrap();
        assert_clean(&store);
    }
}

/// One block of a thousand is wrong: one block is lost.
#[test]
fn one_bad_block_costs_one_block() {
    let (_rig, store, volume, _) = released();
    let bad = volume.objects().into_iter().find(|name| name.starts_with("segments/")).unwrap();
    let value = store.view(Io::BLOCKING, |view| view.blob(blobs_of(&store, 10)[0])).unwrap();
    let address = value.value.address;
    volume.tamper(&bad, |bytes| {
        bytes[address.row_block as usize * 4096 + address.offset as usize + 5 * 4096] ^= 1;
        true
    });
    let outcomes: Vec<bool> = (0..32).map(|block| read_range(&store, 10, block * 4096, 4096).is_ok()).collect();
    assert_eq!(outcomes.iter().filter(|is_right| !**is_right).count(), 1, "{outcomes:?}");
    assert!(!outcomes[5]);
}

/// P-62: a try that a volume garbled where nothing is stored was taken for another pool's object, and the segment never went down.
#[test]
fn a_bad_byte_between_records_is_written_over() {
    let (_rig, store, volume) = with_volume();
    let files = some();
    write(&store, &files);
    archive(&store, &files, 1).unwrap();
    settle(&store);
    let segment = store.segments().get(segments_of(&store, &files)[0]).unwrap();
    let name = stere_recall::object_of(&segment);
    let is_right =
        |bytes: &[u8]| stere_recall::is_object_of(store.log().pool_id(), segment.id, segment.sequence, bytes);
    let mut changed = 0;
    volume.tamper(&name, |bytes| {
        let zeros: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == 0).collect();
        let unused = zeros.into_iter().rev().find(|at| {
            let mut garbled = bytes.clone();
            garbled[*at] = 1;
            is_right(&garbled)
        });
        bytes[unused.expect("rows do not fill their blocks")] = 1;
        changed += 1;
        true
    });
    assert_eq!(changed, 1);
    segment.set_tertiary(stere_format::Tertiary { wanted: 1, there: 0 });
    settle(&store);
    assert_eq!((store.tier.stager.stuck_uploads(), segment.tertiary().there), (Vec::new(), 1));
    assert!(store.tier.sweeper.sweep_volume(0, true).unwrap().damaged.is_empty());
}

/// What is on devices too heals what a volume lost.
#[test]
fn a_lost_object_is_copied_out_again() {
    let (_rig, store, volume, files) = released();
    store.tier.recalls.want_back(&segments_of(&store, &files));
    settle(&store);
    let segments: Vec<String> = volume.objects().into_iter().filter(|name| name.starts_with("segments/")).collect();
    segments.iter().for_each(|name| volume.tamper(name, |_| false));
    // P-164: what survives is told from this.
    let good = || -> Vec<u16> {
        let of = |id: &u64| store.tier.media.good_of(&store.segments().get(*id).unwrap());
        segments_of(&store, &files).iter().map(of).collect()
    };
    assert!(good().iter().all(|set| *set == 1));
    assert_eq!(store.tier.sweeper.sweep_volume(0, false).unwrap().lacking.len(), segments.len());
    assert!(good().iter().all(|set| *set == 0), "a medium that lacks it is none to fall back on");
    assert_eq!(store.tier.stager.release(&segments_of(&store, &files)).unwrap().segments, 0);
    settle(&store);
    assert!(good().iter().all(|set| *set == 1));
    assert!(store.tier.sweeper.sweep_volume(0, true).unwrap().lacking.is_empty());
    assert!(store.tier.stager.release(&segments_of(&store, &files)).unwrap().segments > 0);
    assert_readable(&store, &files);
}

/// What devices have lost is read from the volume.
#[test]
fn a_volume_stands_in_for_lost_devices() {
    let (rig, store, _, files) = archived_beside(3);
    for segment in segments_of(&store, &files) {
        let segment = store.segments().get(segment).unwrap();
        for place in segment.chunks() {
            let device = &rig.devices[usize::from(place.device)];
            let offset = layout(device).slot_offset(place.slot).unwrap();
            stere_device::Device::write_bytes(&**device, offset + 4096, &vec![0xee; CHUNK_BYTES as usize - 4096])
                .unwrap();
        }
    }
    assert_readable(&store, &files);
}

/// Refusals: who must not wait does not, and says why.
#[test]
fn recalls_are_refused_as_chosen() {
    let (_rig, store, volume, files) = released();
    store.tier.recalls.set_recall_mode(RecallMode::Deny);
    let before = volume.requests();
    let denied = read_range(&store, 10, 0, 4096);
    assert!(matches!(denied, Err(Error::Elsewhere { refusal: crate::Refusal::Denied, .. })), "{denied:?}");
    settle(&store);
    assert_eq!((volume.requests(), store.tier.recalls.wanted_back()), (before, 0), "nothing is fetched");
    store.tier.recalls.set_recall_mode(RecallMode::NoWait);
    let later = read_range(&store, 10, 0, 4096);
    assert!(matches!(later, Err(Error::Elsewhere { refusal: crate::Refusal::Later, .. })), "{later:?}");
    assert_eq!(volume.requests(), before, "the caller fetches nothing");
    settle(&store);
    assert!(read_range(&store, 10, 0, 4096).is_ok(), "it is here meanwhile");
    store.tier.recalls.set_recall_mode(RecallMode::Block);
    assert_readable(&store, &files);
    let waits = store.view(Io::BLOCKING, |view| view.blob(blobs_of(&store, 12)[6])).unwrap();
    let mut out = vec![0; 4096];
    let piece = crate::Piece { blob: waits, offset: 0, length: 4096, at: 0 };
    if piece.blob.is_released() {
        for io in [Io::NON_BLOCKING, Io::DEVICES_ONLY] {
            assert!(matches!(store.read_blobs(io, std::slice::from_ref(&piece), &mut out), Err(Error::WouldBlock)));
        }
    }
}

/// Somebody else's volume is not taken, and not taken for ours.
#[test]
fn strangers_are_refused() {
    let (_rig, store, volume, _) = released();
    let (_other_rig, other) = Rig::new(&[64 * MIB; 2]);
    let taken = other.tier.media.add_volume(entry("theirs", 3), volume.clone(), "other", false);
    assert!(taken.is_err_and(|error| error.to_string().contains("tank")));
    let empty: Arc<MemoryVolume> = Arc::new(MemoryVolume::new("empty"));
    assert!(store.tier.media.attach_volume(0, empty, None, true).is_err());
    assert!(store.tier.media.attach_volume(0, volume, None, true).is_ok());
    let doubled = store.tier.media.add_volume(entry("cold", 3), Arc::new(MemoryVolume::new("x")), "tank", false);
    assert!(doubled.is_err(), "names are given once");
    for name in ["", "none", "a+b", "a/b"] {
        assert!(
            store.tier.media.add_volume(entry(name, 3), Arc::new(MemoryVolume::new("x")), "tank", false).is_err(),
            "{name}"
        );
    }
}

/// A volume that does not keep its label would be a stranger the next time: it does not join, and does when it is honest.
#[test]
fn a_volume_that_lies_about_its_label_does_not_join() {
    for fault in [VolumeFault::Forgets, VolumeFault::Garbles, VolumeFault::Halves] {
        let (_rig, store) = Rig::new(&[64 * MIB; 2]);
        let volume = Arc::new(MemoryVolume::new("cold"));
        volume.set_fault(Some(fault));
        let refused = store.tier.media.add_volume(entry("cold", 3), volume.clone(), "tank", true);
        assert!(refused.is_err_and(|error| error.to_string().contains("label")), "{fault:?}");
        assert!(!store.tier.media.has_volumes(), "{fault:?}");
        volume.set_fault(None);
        store.tier.media.add_volume(entry("cold", 3), volume.clone(), "tank", true).unwrap();
    }
}
