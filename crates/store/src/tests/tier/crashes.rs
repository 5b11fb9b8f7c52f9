//! Crashes at every write to devices and at every request to a volume.

use std::sync::atomic::Ordering;

use super::*;
use crate::tests::devices::crashes::cut_before;

fn small() -> Files {
    (10..12).map(|inode| (inode, placement(1, 1), 150_000)).collect()
}

/// Down, released and back again, as far as it goes.
fn work(store: &Store, files: &[(u64, Placement, usize)]) -> Result<(), Error> {
    archive(store, files, 1)?;
    let steps = |store: &Store| -> Result<(), Error> {
        while store.tier.step(true, &describe)?.is_busy {}
        Ok(())
    };
    steps(store)?;
    let segments = segments_of(store, files);
    store.tier.stager.release(&segments)?;
    store.commit(Io::BLOCKING)?;
    store.checkpoint()?;
    store.checkpoint()?;
    store.tier.recalls.want_back(&segments);
    steps(store)?;
    store.tier.stager.release(&segments)?;
    store.checkpoint()
}

/// A pool that has files and a volume, closed.
pub fn prepared() -> (Rig, Files) {
    let (rig, store, _) = with_volume();
    let files = small();
    write(&store, &files);
    store.close().unwrap();
    (rig, files)
}

pub fn labelled() -> Arc<MemoryVolume> {
    with_volume().2
}

fn assert_all_is_well(store: &Store, files: &[(u64, Placement, usize)]) {
    assert_readable(store, files);
    assert_clean(store);
    archive(store, files, 1).unwrap();
    settle(store);
    store.tier.stager.release(&segments_of(store, files)).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.tier.stager.stuck_uploads(), Vec::<String>::new());
    assert!(is_released(store, files));
    assert_readable(store, files);
    let swept = store.tier.sweeper.sweep_volume(0, true).unwrap();
    assert_eq!((swept.lacking.len(), swept.damaged.len()), (0, 0), "{swept:?}");
    assert_clean(store);
}

/// Loses power before each write that `work` makes to devices, with none, all and half of what was not flushed kept, and shows `proven` the pool as it is
/// opened then. How many cuts it took.
pub fn cut_at_every_write(rig: &Rig, work: impl Fn(&Store) -> Result<(), Error>, proven: impl Fn(&Store)) -> u64 {
    for at in 0.. {
        let mut is_over = true;
        for keep in 0..3 {
            let (copy, volume) = (rig.copy(), labelled());
            let store = copy.open(&[0, 1]);
            store.tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
            let count = cut_before(&copy, at);
            drop(work(&store));
            is_over &= count.load(Ordering::SeqCst) <= at;
            drop(store);
            copy.lose_power(|index| keep == 1 || (keep == 2 && index % 2 == 0));
            let store = copy.open(&[0, 1]);
            store.tier.media.attach_volume(0, volume, None, true).unwrap();
            proven(&store);
        }
        if is_over {
            println!("{at} cuts, three ways each");
            return at;
        }
    }
    unreachable!("the work ends");
}

/// P-64: a crash at any write to devices, while files go down, are released and come back, loses nothing, and the work goes on.
#[test]
fn every_write_to_devices_may_be_the_last() {
    let (rig, files) = prepared();
    let cuts = cut_at_every_write(&rig, |store| work(store, &files), |store| assert_all_is_well(store, &files));
    assert!(cuts > 20);
}

/// The same for every request to the volume, with and without a crash of the pool then.
#[test]
fn every_request_to_a_volume_may_be_the_last() {
    let (rig, files) = prepared();
    for at in 0.. {
        let mut is_over = false;
        for crashes in [false, true] {
            let (copy, volume) = (rig.copy(), labelled());
            let mut store = copy.open(&[0, 1]);
            store.tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
            let before = volume.requests();
            volume.fail_after(at);
            drop(work(&store, &files));
            is_over = volume.requests() - before < at;
            volume.set_fault(None);
            if crashes {
                drop(store);
                copy.lose_power(|_| false);
                store = copy.open(&[0, 1]);
                store.tier.media.attach_volume(0, volume.clone(), None, true).unwrap();
            }
            assert_all_is_well(&store, &files);
        }
        if is_over {
            println!("{at} cuts, two ways each");
            return;
        }
    }
}
