//! Devices that come, go, fail and are replaced.

pub(crate) mod crashes;
pub(crate) mod rig;
mod rot;
mod together;

use stere_device::Operation;
use stere_device::memory::Fault;
use stere_format::{DeviceId, DeviceIndex, DeviceState};

use crate::{Change, Error, Label, Placement, Store};
use rig::*;

/// P-19: with a device gone everything is read and written, and when it comes back only what it missed is copied.
#[test]
fn a_device_that_was_away_is_caught_up_on_what_it_missed() {
    [2, 3].into_iter().for_each(catch_up);
}

fn catch_up(devices: u16) {
    let copies = placement(1, 1);
    let (rig, store) = Rig::new(&vec![64 * MIB; usize::from(devices)]);
    let before = some_files(Files { placement: copies, bytes: 700_000 }, 10..30);
    write(&store, &before);
    store.close().unwrap();
    rig.devices[1].set_offline(true);
    store.devices.detach_device(1, false).unwrap();
    assert_readable(&store, &before);
    let during = some_files(Files { placement: copies, bytes: 300_000 }, 40..44);
    write(&store, &during);
    assert_readable(&store, &during);
    let status = store.rebuilder.mend_status();
    assert_eq!((status.chunks_left, status.impossible_chunks), (0, 0), "{status:?}");
    assert!(status.waiting_chunks > 0);
    rig.devices[1].set_offline(false);
    let (missed, written) = (status.waiting_bytes, rig.written_bytes(1));
    store.devices.attach_device(rig.device_in(1)).unwrap();
    let progress = mend(&store);
    let written = rig.written_bytes(1) - written;
    println!("missed {missed} bytes, caught up with {} bytes, device took {written}", progress.bytes_written);
    assert!(progress.bytes_written <= missed + u64::from(CHUNK_BYTES), "{progress:?} for {missed}");
    // Of 20 files of 0.7 MB twice nothing is copied; what is written besides is superblocks and a checkpoint.
    assert!(written < 6 * MIB, "{written}");
    assert_complete(&store, &[]);
    assert_readable(&store, &before);
    assert_readable(&store, &during);
    assert_clean(&store);
    store.close().unwrap();
    drop(store);
    // Without any one of the others everything is there.
    for gone in 0..devices {
        let rest: Vec<DeviceIndex> = (0..devices).filter(|index| *index != gone).collect();
        let copy = rig.copy();
        let store = copy.open(&rest);
        assert_readable(&store, &before);
        assert_readable(&store, &during);
    }
}

/// P-19: where too few devices are left, chunks are owed to the one that is away, and paid when it is back.
#[test]
fn chunks_are_owed_to_a_device_that_is_away() {
    for (data, parity, devices) in [(1, 1, 2), (4, 1, 5), (2, 2, 4)] {
        let asked = placement(data, parity);
        let (rig, store) = Rig::new(&vec![64 * MIB; devices]);
        let before = some_files(Files { placement: asked, bytes: 500_000 }, 10..14);
        write(&store, &before);
        rig.devices[0].set_offline(true);
        store.devices.detach_device(0, false).unwrap();
        assert_eq!(store.fit(asked.scheme), asked.scheme);
        let during = some_files(Files { placement: asked, bytes: 900_000 }, 20..24);
        write(&store, &during);
        let owed = store.segments().all().into_iter().filter(|segment| segment.missing() != 0).count();
        assert!(owed > 0);
        assert_readable(&store, &during);
        rig.devices[0].set_offline(false);
        store.devices.attach_device(rig.device_in(0)).unwrap();
        assert!(mend(&store).chunks > 0);
        assert_complete(&store, &[]);
        assert_readable(&store, &before);
        assert_readable(&store, &during);
        assert_clean(&store);
    }
}

/// P-19: a device that goes without a word, in the middle of writing, stops nobody.
#[test]
fn a_device_that_dies_while_it_is_written_to_stops_nobody() {
    let asked = placement(1, 1);
    let (rig, store) = Rig::new(&[64 * MIB; 3]);
    let files = some_files(Files { placement: asked, bytes: 600_000 }, 10..30);
    write(&store, &files[..8]);
    rig.devices[2].set_offline(true);
    for file in &files[8..] {
        write(&store, std::slice::from_ref(file));
    }
    assert!(store.failure().is_none());
    assert_readable(&store, &files);
    // Only segments that were open when it died lack a chunk.
    let data = store.segments().all().into_iter().filter(|s| s.kind == stere_format::SegmentKind::Data);
    let lacking = data.filter(|segment| segment.missing() != 0).count();
    assert!(lacking <= 1, "{lacking}");
    assert!(store.devices.device_usage(2).unwrap().is_suspended);
    store.devices.set_device_state(2, DeviceState::Failed).unwrap();
    store.devices.detach_device(2, true).unwrap();
    mend(&store);
    assert_complete(&store, &[2]);
    assert_clean(&store);
}

/// P-20: what a failed device held is rebuilt on the others; nothing of it is needed afterwards.
#[test]
fn after_a_loss_full_redundancy_comes_back_by_itself() {
    for (data, parity, devices) in [(1u8, 1u8, 3usize), (4, 1, 6), (1, 2, 4), (4, 2, 8), (2, 1, 4)] {
        let asked = placement(data, parity);
        let (mut rig, store) = Rig::new(&vec![64 * MIB; devices]);
        let files = some_files(Files { placement: asked, bytes: 1_300_000 }, 10..18);
        write(&store, &files);
        rig.devices[1].set_offline(true);
        store.devices.detach_device(1, false).unwrap();
        store.devices.set_device_state(1, DeviceState::Failed).unwrap();
        let live = store.devices.device_usage(1).unwrap();
        let progress = mend(&store);
        println!(
            "{data}+{parity} on {devices}: {} chunks, {} bytes for {live:?}",
            progress.chunks, progress.bytes_written
        );
        assert_eq!(store.rebuilder.mend_status().chunks_left, 0);
        assert_complete(&store, &[1]);
        assert_readable(&store, &files);
        assert_clean(&store);
        store.devices.remove_device(1, false).unwrap();
        store.close().unwrap();
        drop(store);
        let rest: Vec<DeviceIndex> = (0..devices as DeviceIndex).filter(|index| *index != 1).collect();
        rig.devices[1].set_offline(false);
        let store = rig.open(&rest);
        assert_readable(&store, &files);
        assert!(matches!(store.devices.device_usage(1), Err(Error::UnknownDevice { index: 1 })));
        // And again with one more gone, as long as there are devices enough.
        if devices - 1 > usize::from(data + parity) {
            rig.devices[2].set_offline(true);
            store.devices.detach_device(2, false).unwrap();
            store.devices.set_device_state(2, DeviceState::Failed).unwrap();
            mend(&store);
            assert_complete(&store, &[1, 2]);
            assert_readable(&store, &files);
        }
        let _ = rig.buy(64 * MIB);
    }
}

/// P-20: rebuilding costs what is live, not what the device could hold, and nothing at all for segments without live bytes.
#[test]
fn rebuilding_is_in_proportion_to_what_is_live() {
    let asked = placement(1, 1);
    let mut costs = Vec::new();
    for count in [2u64, 8] {
        let (_rig, store) = Rig::new(&[128 * MIB; 3]);
        let files = some_files(Files { placement: asked, bytes: 4_000_000 }, 10..10 + count);
        write(&store, &files);
        store.devices.set_device_state(0, DeviceState::Failed).unwrap();
        let usage = store.devices.device_usage(0).unwrap();
        let progress = mend(&store);
        assert!(
            progress.bytes_written <= usage.live_bytes + usage.live_bytes / 8 + 3 * u64::from(CHUNK_BYTES),
            "{progress:?} {usage:?}"
        );
        costs.push(progress.bytes_written);
    }
    assert!(costs[1] > 2 * costs[0], "{costs:?}");
}

#[test]
fn a_device_is_evacuated_and_removed() {
    for (data, parity) in [(1, 0), (1, 1), (2, 1)] {
        let asked = placement(data, parity);
        let (rig, store) = Rig::new(&[96 * MIB, 64 * MIB, 64 * MIB, 64 * MIB]);
        let files = some_files(Files { placement: asked, bytes: 1_100_000 }, 10..20);
        write(&store, &files);
        let forecast = store.forecaster.forecast(&Change::Evacuate(0)).unwrap();
        assert!(forecast.fits, "{forecast:?}");
        assert!(matches!(store.devices.remove_device(0, false), Err(Error::NotEmpty { index: 0, .. })));
        store.devices.set_device_state(0, DeviceState::Leaving).unwrap();
        let progress = mend(&store);
        assert!(progress.bytes_written <= forecast.bytes_to_move + 2 * MIB, "{progress:?} {forecast:?}");
        assert_complete(&store, &[0]);
        assert_eq!(store.devices.device_usage(0).unwrap().chunks, 0);
        assert_readable(&store, &files);
        store.devices.remove_device(0, false).unwrap();
        assert!(rig.found(0).is_none(), "what was removed says no more that it is of the pool");
        assert_clean(&store);
        store.close().unwrap();
        drop(store);
        let store = rig.open(&[1, 2, 3]);
        assert_readable(&store, &files);
        assert_eq!(store.device_entries().len(), 3);
        assert_eq!(store.devices.free_device_index(), 0);
    }
}

#[test]
fn a_device_that_shall_be_removed_goes_by_itself_once_it_is_empty() {
    let (rig, store) = Rig::new(&[64 * MIB; 4]);
    let files = some_files(Files { placement: placement(1, 1), bytes: 800_000 }, 10..20);
    write(&store, &files);
    store.devices.set_device_state(3, DeviceState::Removing).unwrap();
    mend(&store);
    assert_eq!(store.device_entries().len(), 3);
    assert!(rig.found(3).is_none());
    assert_readable(&store, &files);
    assert_complete(&store, &[3]);
    assert_clean(&store);
}

#[test]
fn an_absent_device_is_replaced_under_its_index() {
    let asked = placement(1, 1);
    let (mut rig, store) = Rig::new(&[64 * MIB; 3]);
    let files = some_files(Files { placement: asked, bytes: 900_000 }, 10..20);
    write(&store, &files);
    let before: Vec<_> = store.segments().all().iter().map(|segment| (segment.id, segment.chunks())).collect();
    rig.devices[2].set_offline(true);
    store.devices.detach_device(2, false).unwrap();
    let new = rig.buy(96 * MIB);
    let index = store.devices.replace_device(2, rig.new_device(new), rig.entry(new)).unwrap();
    assert_eq!(index, 2);
    assert_readable(&store, &files);
    mend(&store);
    assert_complete(&store, &[]);
    // Nothing else moved.
    for (id, chunks) in before {
        let Some(segment) = store.segments().get(id).filter(|segment| segment.live_bytes() > 0) else { continue };
        assert_eq!(segment.chunks(), chunks, "segment {id}");
    }
    assert_eq!(store.device_entries()[2].id, DeviceId([new as u8 + 1; 16]));
    // The old device is a stranger now.
    rig.devices[2].set_offline(false);
    assert!(store.devices.attach_device(rig.device_in(2)).is_err());
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1, new]);
    assert_readable(&store, &files);
    assert_clean(&store);
}

#[test]
fn a_present_device_is_replaced_by_another_and_is_a_source_meanwhile() {
    for size in [64 * MIB, 128 * MIB] {
        // Nothing is stored twice: all of it must come from the old device.
        let asked = placement(1, 0);
        let (mut rig, store) = Rig::new(&[64 * MIB; 2]);
        let files = some_files(Files { placement: asked, bytes: 900_000 }, 10..20);
        write(&store, &files);
        let new = rig.buy(size);
        let index = store.devices.replace_device(1, rig.new_device(new), rig.entry(new)).unwrap();
        assert_ne!(index, 1);
        assert_readable(&store, &files);
        mend(&store);
        assert_readable(&store, &files);
        assert_complete(&store, &[1]);
        assert_eq!(store.device_entries().iter().map(|entry| entry.index).collect::<Vec<_>>(), [0, index]);
        assert_clean(&store);
    }
}

#[test]
fn a_spare_takes_over_when_a_device_fails() {
    let (rig, store) = Rig::new(&[64 * MIB; 3]);
    store.devices.set_device_state(2, DeviceState::Leaving).unwrap();
    mend(&store);
    store.devices.set_device_state(2, DeviceState::Spare).unwrap();
    let files = some_files(Files { placement: placement(1, 1), bytes: 900_000 }, 10..20);
    write(&store, &files);
    assert_eq!(store.devices.device_usage(2).unwrap().chunks, 0, "a spare holds nothing");
    assert!(matches!(store.devices.set_device_state(0, DeviceState::Spare), Err(Error::NotEmpty { .. })));
    rig.devices[0].set_offline(true);
    store.devices.set_device_state(0, DeviceState::Failed).unwrap();
    mend(&store);
    assert_eq!(store.device_entries()[2].device_state(), DeviceState::Active);
    assert_complete(&store, &[0]);
    assert_readable(&store, &files);
}

#[test]
fn a_new_device_takes_its_share_when_asked() {
    let (mut rig, store) = Rig::new(&[64 * MIB; 2]);
    let files = some_files(Files { placement: placement(1, 0), bytes: 2_000_000 }, 10..30);
    write(&store, &files);
    let new = rig.buy(64 * MIB);
    store.devices.add_device(rig.new_device(new), rig.entry(new)).unwrap();
    assert!(mend(&store).chunks == 0, "nothing moves unasked");
    let forecast = store.forecaster.forecast(&Change::Add { slot_count: 1 }).unwrap();
    assert!(forecast.fits);
    store.rebuilder.set_rebalancing(true);
    mend(&store);
    let filled: Vec<u64> = (0..3).map(|index| store.devices.device_usage(index).unwrap().chunks * 100).collect();
    let slots = u64::from(store.devices.device_usage(0).unwrap().slot_count);
    let apart = (filled.iter().max().unwrap() - filled.iter().min().unwrap()) / slots;
    assert!(apart <= 8, "{filled:?}");
    assert_complete(&store, &[]);
    assert_readable(&store, &files);
    assert_clean(&store);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1, new]);
    assert_readable(&store, &files);
}

#[test]
fn hosts_and_shelves_are_kept_apart_and_told_of() {
    let hosts = ["a", "a", "b", "b", "c", "c"];
    let (_rig, store) = Rig::labelled(&[64 * MIB; 6], &hosts, &["1", "2", "1", "2", "1", "2"]);
    let files = some_files(Files { placement: placement(1, 1), bytes: 900_000 }, 10..30);
    write(&store, &files);
    let shared = store.devices.shared_domains();
    assert!(shared.segments > 10);
    assert_eq!((shared.sharing_host, shared.sharing_shelf), (0, 0), "{shared:?}");
    let used: Vec<u64> = (0..6).map(|index| store.devices.device_usage(index).unwrap().chunks).collect();
    assert!(used.iter().max().unwrap() - used.iter().min().unwrap() <= 4, "evenly: {used:?}");
    // Rebuilding keeps to it.
    store.devices.set_device_state(0, DeviceState::Failed).unwrap();
    mend(&store);
    assert_eq!(store.devices.shared_domains().sharing_host, 0);
    // A fourth chunk has no fourth host: it is stored, and told.
    write(&store, &[(50, placement(2, 2), 500_000)]);
    assert!(store.devices.shared_domains().sharing_host > 0);
}

#[test]
fn what_would_be_lost_is_told_and_refused() {
    let (rig, store) = Rig::new(&[64 * MIB; 3]);
    let single = some_files(Files { placement: placement(1, 0), bytes: 900_000 }, 10..13);
    let double = some_files(Files { placement: placement(1, 1), bytes: 900_000 }, 20..23);
    write(&store, &single);
    write(&store, &double);
    let lose = store.forecaster.forecast(&Change::Lose(vec![0])).unwrap();
    let segment_on = |index: DeviceIndex| {
        store
            .segments()
            .all()
            .iter()
            .any(|s| s.scheme.parity == 0 && s.live_bytes() > 0 && s.chunks()[0].device == index)
    };
    assert_eq!(lose.lost_bytes > 0, segment_on(0));
    let holder = (0..3).find(|index| segment_on(*index)).unwrap();
    assert!(matches!(store.devices.detach_device(holder, false), Err(Error::WouldLose { .. })));
    assert!(matches!(store.devices.set_device_state(holder, DeviceState::Offline), Err(Error::WouldLose { .. })));
    let two = store.forecaster.forecast(&Change::Lose(vec![0, 1])).unwrap();
    assert!(two.lost_bytes > lose.lost_bytes);
    let nowhere = store.forecaster.forecast(&Change::Lose(vec![0, 1, 2])).unwrap();
    assert!(!nowhere.fits || nowhere.lost_segments > 0);
    // Forced, only what lay there alone cannot be read.
    store.devices.detach_device(holder, true).unwrap();
    rig.devices[usize::from(holder)].set_offline(true);
    assert_readable(&store, &double);
    let lost = single.iter().filter(|(inode, _, length)| read_file(&store, *inode, *length).is_err()).count();
    assert!(lost > 0);
    write(&store, &[(40, placement(1, 1), 300_000)]);
    assert_readable(&store, &[(40, placement(1, 1), 300_000)]);
    rig.devices[usize::from(holder)].set_offline(false);
    store.devices.attach_device(rig.device_in(holder)).unwrap();
    mend(&store);
    assert_readable(&store, &single);
    assert_complete(&store, &[]);
}

#[test]
fn unlike_sizes_are_used_as_far_as_arithmetic_allows() {
    let (_rig, store) = Rig::new(&[64 * MIB, 64 * MIB, 256 * MIB]);
    let slots = |index| u64::from(store.devices.device_usage(index).unwrap().slot_count);
    // Every pair needs one of the small devices.
    let beyond = slots(2) - slots(0) - slots(1);
    assert_eq!(store.devices.unusable_bytes(placement(1, 1).scheme), beyond * MIB);
    assert_eq!(store.devices.unusable_bytes(placement(1, 0).scheme), 0);
    assert_eq!(store.devices.unusable_bytes(placement(1, 2).scheme), (slots(2) - slots(0)) * MIB);
}

#[test]
fn labels_and_states_are_durable() {
    let (rig, store) = Rig::new(&[64 * MIB; 3]);
    let label = Label {
        name: Some("left".into()),
        shelf: Some("top".into()),
        tags: Some(vec!["old".into()]),
        ..Label::default()
    };
    store.devices.label_device(1, label).unwrap();
    store.devices.set_device_state(2, DeviceState::Leaving).unwrap();
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1, 2]);
    let entries = store.device_entries();
    assert_eq!((&*entries[1].name, &*entries[1].shelf, entries[1].tags.len()), ("left", "top", 1));
    assert_eq!(entries[2].device_state(), DeviceState::Leaving);
    assert_eq!(rig.device_in(1).superblock.shelf, "top");
    write(&store, &[(10, placement(1, 1), 700_000)]);
    assert_eq!(
        store
            .segments()
            .all()
            .iter()
            .filter(|s| s.kind == stere_format::SegmentKind::Data)
            .filter(|s| s.chunks().iter().any(|c| c.device == 2))
            .count(),
        0
    );
}

/// How many blocks of these files are read right.
fn good_blocks(store: &Store, files: &[(u64, Placement, usize)]) -> usize {
    let blocks = |(inode, _, length): &(u64, Placement, usize)| {
        let right = content(*inode, *length);
        let is_good = |at: &usize| {
            let length = (right.len() - *at).min(4096);
            read_range(store, *inode, *at, length).is_ok_and(|bytes| bytes == right[*at..*at + length])
        };
        (0..*length).step_by(4096).filter(is_good).count()
    };
    files.iter().map(blocks).sum()
}

/// P-160: a failing device that is emptied: what can be read of it comes along, also where other chunks are gone or rotten.
#[test]
fn what_a_failing_device_still_gives_is_saved() {
    let (rig, store) = Rig::new(&[64 * MIB; 3]);
    let single = some_files(Files { placement: placement(1, 0), bytes: 800_000 }, 10..13);
    let double = some_files(Files { placement: placement(1, 1), bytes: 800_000 }, 20..24);
    write(&store, &single);
    write(&store, &double);
    let holder = (0..3)
        .find(|index| {
            let is_here = |segment: &stere_log::Segment| segment.chunks()[0].device == *index;
            store.segments().all().iter().any(|s| s.scheme.parity == 0 && s.live_bytes() > 0 && is_here(s))
        })
        .unwrap();
    // One sector of every MiB of that device cannot be read, and another device has rot.
    let slots = layout(&rig.devices[0]).slots_offset;
    let bad = move |operation, offset: u64, length: u64| {
        let touches = (slots..64 * MIB).step_by(1 << 20).any(|slot| {
            let sector = slot + 300_000;
            offset < sector + 512 && sector < offset + length
        });
        (operation == Operation::Read && touches).then_some(Fault::Error)
    };
    rig.devices[usize::from(holder)].set_fault_hook(Some(Box::new(bad)));
    let other = usize::from((holder + 1) % 3);
    for slot in 0..60 {
        rig.devices[other].corrupt(slots + slot * MIB + 500_000, 512);
    }
    rig.devices[usize::from(holder)].set_fault_hook(None);
    let good_before = good_blocks(&store, &single);
    rig.devices[usize::from(holder)].set_fault_hook(Some(Box::new(bad)));
    store.devices.set_device_state(holder, DeviceState::Leaving).unwrap();
    mend(&store);
    // Of what is stored once only the blobs stay that bad sectors are in.
    let left = store.devices.device_usage(holder).unwrap();
    let blob_bytes = 128 << 10;
    assert!(left.chunks > 0 && left.live_bytes <= left.chunks * blob_bytes, "{left:?}");
    let (known, _) = store.damage().damaged_blobs();
    assert!((1..=8).contains(&known), "{known}");
    assert_readable(&store, &double);
    // The device reads again: all comes along.
    rig.devices[usize::from(holder)].set_fault_hook(None);
    store.damage().review_damage(usize::MAX).unwrap();
    mend(&store);
    assert_eq!(store.devices.device_usage(holder).unwrap().chunks, 0);
    rig.devices[usize::from(holder)].set_offline(true);
    assert_readable(&store, &double);
    // Of one copy nothing is lost but what rot has.
    assert_eq!(good_blocks(&store, &single), good_before);
}

#[test]
fn mending_goes_on_where_it_was_left_when_the_pool_was_closed() {
    let (rig, store) = Rig::new(&[64 * MIB; 3]);
    let files = some_files(Files { placement: placement(1, 1), bytes: 900_000 }, 10..20);
    write(&store, &files);
    store.devices.set_device_state(0, DeviceState::Failed).unwrap();
    let data_on = |store: &Store, index: DeviceIndex| {
        let data = store.segments().all().into_iter().filter(|s| s.kind == stere_format::SegmentKind::Data);
        data.filter(|segment| segment.chunks().iter().any(|chunk| chunk.device == index)).count()
    };
    let (before, all) = (data_on(&store, 0), store.rebuilder.mend_status().bytes_left);
    let progress = store.rebuilder.mend_step(3 * MIB).unwrap();
    assert!(progress.bytes_written >= 3 * MIB && !progress.is_done);
    assert_eq!(store.rebuilder.mend_status().bytes_left, all - progress.bytes_written);
    assert_eq!(store.rebuilder.mend_status().bytes_done, progress.bytes_written);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0, 1, 2]);
    assert!(data_on(&store, 0) <= before - 3, "{} of {before}", data_on(&store, 0));
    mend(&store);
    assert_complete(&store, &[0]);
    assert_readable(&store, &files);
}

/// Metadata that was written while devices were few gets its copies when there are more.
#[test]
fn metadata_gets_its_copies_back() {
    let (mut rig, store) = Rig::new(&[64 * MIB; 3]);
    store.devices.set_device_state(0, DeviceState::Failed).unwrap();
    rig.devices[0].set_offline(true);
    let files = some_files(Files { placement: placement(1, 1), bytes: 300_000 }, 10..20);
    write(&store, &files);
    mend(&store);
    let copies = |store: &Store| {
        let meta = store.segments().all().into_iter().filter(|s| s.kind == stere_format::SegmentKind::Meta);
        meta.filter(|segment| segment.live_bytes() > 0).map(|segment| segment.scheme.width()).min().unwrap()
    };
    assert_eq!(copies(&store), 2);
    let new = rig.buy(64 * MIB);
    store.devices.add_device(rig.new_device(new), rig.entry(new)).unwrap();
    mend(&store);
    assert_eq!(copies(&store), 3);
    assert_complete(&store, &[0]);
    assert_readable(&store, &files);
}

/// P-21: the pool goes on without a device over mounts; the stale device is caught up later, and its old contents never win.
#[test]
fn a_stale_device_never_wins() {
    let asked = placement(1, 1);
    let (rig, store) = Rig::new(&[64 * MIB; 2]);
    let files = some_files(Files { placement: asked, bytes: 500_000 }, 10..16);
    write(&store, &files);
    store.close().unwrap();
    drop(store);
    let mut all = files.clone();
    for round in 0..3u64 {
        // Opened without device 1, written to, and crashed.
        let store = rig.open(&[0]);
        assert_readable(&store, &all);
        // Overwritten files: their old contents lie on device 1.
        let fresh = some_files(Files { placement: asked, bytes: 400_000 }, 100 + 10 * round..104 + 10 * round);
        write(&store, &fresh);
        all.extend(fresh);
        drop(store);
        rig.lose_power(|index| index % 2 == 0);
    }
    let store = rig.open(&[0, 1]);
    assert!(store.log().stripe.devices.get(1).is_none(), "a stale device is not taken for a member");
    store.devices.attach_device(rig.device_in(1)).unwrap();
    assert_readable(&store, &all);
    mend(&store);
    assert_complete(&store, &[]);
    assert_clean(&store);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[1]);
    assert_readable(&store, &all);
}

/// The journal has as many mirrors as metadata has copies, whoever comes and goes.
#[test]
fn the_journal_moves_with_the_devices() {
    let (rig, store) = Rig::new(&[64 * MIB; 4]);
    let mirrors = |store: &Store| store.journal_mirrors();
    assert_eq!(mirrors(&store), [0, 1, 2]);
    rig.devices[1].set_offline(true);
    write(&store, &[(10, placement(1, 3), 300_000)]);
    assert_eq!(mirrors(&store), [0, 2]);
    while store.step(false).unwrap() {}
    assert_eq!(mirrors(&store), [0, 2, 3]);
    write(&store, &[(11, placement(1, 3), 300_000)]);
    drop(store);
    rig.lose_power(|_| false);
    // Any one of the mirrors holds all of it.
    for only in [vec![0u16, 2], vec![2, 3], vec![0, 3]] {
        let copy = rig.copy();
        let store = copy.open(&only);
        assert_readable(&store, &[(10, placement(1, 3), 300_000), (11, placement(1, 3), 300_000)]);
    }
}

/// A slot that a chunk left is not used again while somebody reads there.
#[test]
fn a_slot_waits_for_its_last_reader() {
    let (_rig, store) = Rig::new(&[64 * MIB; 3]);
    let files = some_files(Files { placement: placement(1, 0), bytes: 900_000 }, 10..13);
    write(&store, &files);
    let segment = store.segments().all().into_iter().find(|s| s.scheme.parity == 0 && s.live_bytes() > 0).unwrap();
    let before = segment.placed();
    let from = before.chunks[0];
    store.devices.set_device_state(from.device, DeviceState::Leaving).unwrap();
    drop(segment);
    mend(&store);
    store.checkpoint().unwrap();
    assert!(store.log().stripe.slots.is_used(from), "somebody may still read there");
    drop(before);
    store.checkpoint().unwrap();
    assert!(!store.log().stripe.slots.is_used(from));
    assert_readable(&store, &files);
}

/// P-20: a device that is much smaller than the one that is there already takes a mirror of the journal, which shrinks for it; what was
/// synced after the last checkpoint then survives the larger one.
#[test]
fn the_journal_shrinks_to_what_a_second_mirror_has_room_for() {
    let (mut rig, store) = Rig::new(&[128 * MIB]);
    assert_eq!(
        (store.journal_mirrors(), store.space().statistics(placement(1, 1).scheme).journal_bytes),
        (vec![0], 4 * MIB)
    );
    let files = some_files(Files { placement: placement(1, 1), bytes: 200_000 }, 10..13);
    let new = rig.buy(64 * MIB);
    store.devices.add_device(rig.new_device(new), rig.entry(new)).unwrap();
    mend(&store);
    assert_eq!(
        (store.journal_mirrors(), store.space().statistics(placement(1, 1).scheme).journal_bytes),
        (vec![0, 1], 2 * MIB)
    );
    write(&store, &files);
    drop(store);
    for first in [[0].as_slice(), &[1]] {
        let copy = rig.copy();
        copy.lose_power(|_| false);
        let store = copy.open(first);
        assert_readable(&store, &files);
        assert_clean(&store);
    }
    // A crash at any write of it leaves the journal as it was, or as it shall be.
    let (mut rig, store) = Rig::new(&[128 * MIB]);
    let lonely = some_files(Files { placement: placement(1, 0), bytes: 200_000 }, 10..13);
    write(&store, &lonely);
    drop(store);
    let new = rig.buy(64 * MIB);
    crashes::cut_everywhere(
        &rig,
        &[0],
        &[0],
        &lonely,
        |rig, store| drop(store.devices.add_device(rig.new_device(new), rig.entry(new))),
        |_, store| mend_as_far_as_it_goes(store),
    );
}

fn mend_as_far_as_it_goes(store: &Store) {
    while store.rebuilder.mend_step(4 * MIB).is_ok_and(|progress| !progress.is_done) {}
}

/// P-6: a full pool gets a device, on which all free slots are: what is accepted then has its room, because chunks move there.
#[test]
fn what_a_full_pool_accepts_after_it_grew_has_its_room() {
    const FILE_BYTES: usize = 400_000;
    let copies = placement(1, 1);
    let (mut rig, store) = Rig::new(&[64 * MIB; 2]);
    let fill = |first: u64| {
        for inode in first.. {
            match store.space().reserve(crate::Io::BLOCKING, copies, FILE_BYTES as u64) {
                Ok(_room) => drop(write_file(&store, copies, inode, &content(inode, FILE_BYTES))),
                Err(Error::NoSpace) => return (first..inode).collect::<Vec<u64>>(),
                Err(error) => panic!("{error}"),
            }
            if inode % 16 == 0 {
                store.commit(crate::Io::BLOCKING).unwrap();
                store.step(false).unwrap();
            }
        }
        unreachable!("a pool gets full");
    };
    let mut inodes = fill(100);
    assert!(inodes.len() > 50, "{}", inodes.len());
    let new = rig.buy(512 * MIB);
    store.devices.add_device(rig.new_device(new), rig.entry(new)).unwrap();
    inodes.extend(fill(10_000));
    store.commit(crate::Io::BLOCKING).unwrap();
    for inode in inodes {
        assert!(read_file(&store, inode, FILE_BYTES).unwrap() == content(inode, FILE_BYTES), "file {inode}");
    }
    assert_eq!(store.failure(), None);
    assert_clean(&store);
}

/// P-163: a segment that is wider than what is left, and open, does not keep a device that is to go; the forecast names what is too wide.
#[test]
fn an_open_segment_does_not_keep_a_device_that_is_to_go() {
    let (rig, store) = Rig::new(&[64 * MIB; 4]);
    write(&store, &[(10, placement(3, 1), 200_000)]);
    let forecast = store.forecaster.forecast(&Change::Evacuate(2)).unwrap();
    assert!(!forecast.fits);
    assert_eq!(forecast.devices_left, 3);
    let wide: Vec<_> = forecast.too_wide.keys().copied().collect();
    let class = placement(3, 1).class;
    assert_eq!(wide, [crate::TooWide { class, data: 3, parity: 1, only: 0, devices_left: 3 }]);
    // Its content is stored narrower; the segment stays open, with nothing in it.
    crate::tests::remove_file(&store, 10);
    write(&store, &[(11, placement(2, 1), 200_000)]);
    assert!(store.forecaster.forecast(&Change::Evacuate(2)).unwrap().too_wide.is_empty());
    store.devices.set_device_state(2, DeviceState::Removing).unwrap();
    mend(&store);
    assert!(matches!(store.devices.device_usage(2), Err(Error::UnknownDevice { .. })));
    assert_readable(&store, &[(11, placement(2, 1), 200_000)]);
    drop(rig);
}

/// P-163: what died on a device while it is removed holds it in the pool no longer, though nothing else is written.
#[test]
fn a_device_with_nothing_but_dead_segments_leaves() {
    let (_rig, store) = Rig::new(&[64 * MIB; 3]);
    let files = some_files(Files { placement: placement(1, 1), bytes: 700_000 }, 10..22);
    write(&store, &files);
    store.checkpoint().unwrap();
    store.devices.set_device_state(2, DeviceState::Removing).unwrap();
    files.iter().for_each(|(inode, _, _)| crate::tests::remove_file(&store, *inode));
    mend(&store);
    assert!(store.device_entries().iter().all(|entry| entry.index != 2), "{:?}", store.devices.device_usage(2));
    assert_clean(&store);
}
