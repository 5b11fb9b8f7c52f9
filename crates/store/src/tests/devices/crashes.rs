//! Crashes at every write of what changes devices and chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stere_device::Operation;
use stere_device::memory::Fault;
use stere_format::{DeviceIndex, DeviceState};

use super::rig::*;
use crate::{Error, Placement, Store};

/// Cuts the power before write number `at` of all devices together; what counts the writes comes back.
pub(crate) fn cut_before(rig: &Rig, at: u64) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    for device in &rig.devices {
        let count = count.clone();
        device.set_fault_hook(Some(Box::new(move |operation, _, _| match operation {
            Operation::Read => None,
            Operation::Write => (count.fetch_add(1, Ordering::SeqCst) >= at).then_some(Fault::Error),
            _ => (count.load(Ordering::SeqCst) > at).then_some(Fault::Error),
        })));
    }
    count
}

/// Plays `work` on copies of a pool, cutting the power before every single write of it in turn, and looks with `check` at what is
/// found then. Of unflushed writes none, all or every other one survives.
pub(super) fn cut_everywhere(
    rig: &Rig,
    first: &[DeviceIndex],
    then: &[DeviceIndex],
    files: &[(u64, Placement, usize)],
    work: impl Fn(&Rig, &Store),
    check: impl Fn(&Rig, &Store),
) {
    for at in 0.. {
        let mut is_over = true;
        for keep in 0..3 {
            let copy = rig.copy();
            let store = copy.open(first);
            let count = cut_before(&copy, at);
            work(&copy, &store);
            is_over &= count.load(Ordering::SeqCst) <= at;
            drop(store);
            copy.lose_power(|index| keep == 1 || (keep == 2 && index % 2 == 0));
            let store = copy.open(then);
            assert_readable(&store, files);
            check(&copy, &store);
            assert_readable(&store, files);
            assert_clean(&store);
        }
        if is_over {
            println!("{at} cuts, three ways each");
            return;
        }
    }
}

fn try_to_mend(store: &Store) {
    while let Ok(progress) = store.rebuilder.mend_step(MIB / 2) {
        // Some of it is entered while the rest is on its way, as it is where there is more to mend.
        if progress.is_done || store.single_steps().enter_rebuilt_but(256 << 10).is_err() {
            break;
        }
    }
}

/// Four devices hold files of this placement when one gets a state in which its chunks shall lie elsewhere; crashes at every write of
/// the work that follows, then the work to its end. `check` looks at the outcome.
fn going_survives(placement: Placement, going: DeviceIndex, state: DeviceState, check: impl Fn(&Store)) {
    let (rig, store) = Rig::new(&[64 * MIB; 4]);
    let files = some_files(Files { placement, bytes: 150_000 }, 10..13);
    write(&store, &files);
    store.devices.set_device_state(going, state).unwrap();
    store.close().unwrap();
    drop(store);
    // What failed is not there to be opened.
    let there: Vec<_> = (0..4).filter(|index| state != DeviceState::Failed || *index != going).collect();
    let work = |_: &Rig, store: &Store| try_to_mend(store);
    cut_everywhere(&rig, &there, &there, &files, work, |_, store| {
        mend(store);
        assert_complete(store, &[going]);
        check(store);
    });
}

/// P-22: a crash at any write of a move, a rebuild or a catch-up loses nothing, and the work goes on.
#[test]
fn moving_survives_a_crash_at_every_write() {
    going_survives(placement(2, 1), 1, DeviceState::Leaving, |_| {});
}

#[test]
fn rebuilding_survives_a_crash_at_every_write() {
    going_survives(placement(1, 1), 1, DeviceState::Failed, |_| {});
}

#[test]
fn removing_survives_a_crash_at_every_write() {
    going_survives(placement(1, 1), 2, DeviceState::Removing, |store| assert_eq!(store.device_entries().len(), 3));
}

#[test]
fn catching_up_survives_a_crash_at_every_write() {
    let (rig, store) = Rig::new(&[64 * MIB; 2]);
    let mut files = some_files(Files { placement: placement(1, 1), bytes: 150_000 }, 10..12);
    write(&store, &files);
    store.close().unwrap();
    drop(store);
    let store = rig.open(&[0]);
    let during = some_files(Files { placement: placement(1, 1), bytes: 150_000 }, 20..23);
    write(&store, &during);
    files.extend(during);
    store.close().unwrap();
    drop(store);
    let come_back = |rig: &Rig, store: &Store| {
        if store.log().stripe.devices.get(1).is_none() {
            store.devices.attach_device(rig.device_in(1))?;
        }
        Ok::<_, Error>(())
    };
    let work = |rig: &Rig, store: &Store| {
        if come_back(rig, store).is_ok() {
            try_to_mend(store);
        }
    };
    cut_everywhere(&rig, &[0], &[0, 1], &files, work, |rig, store| {
        come_back(rig, store).unwrap();
        mend(store);
        assert_complete(store, &[]);
        store.close().unwrap();
        assert_readable(&rig.copy().open(&[1]), &files);
    });
}

#[test]
fn adding_survives_a_crash_at_every_write() {
    let (mut rig, store) = Rig::new(&[64 * MIB; 2]);
    let files = some_files(Files { placement: placement(1, 1), bytes: 150_000 }, 10..13);
    write(&store, &files);
    store.close().unwrap();
    drop(store);
    let new = rig.buy(64 * MIB);
    let add = |rig: &Rig, store: &Store| store.devices.add_device(rig.new_device(new), rig.entry(new));
    let work = |rig: &Rig, store: &Store| {
        if add(rig, store).is_ok() {
            try_to_mend(store);
        }
    };
    cut_everywhere(&rig, &[0, 1], &[0, 1, 2], &files, work, |rig, store| {
        if store.device_entries().len() == 2 {
            add(rig, store).unwrap();
        }
        mend(store);
        assert_eq!(store.device_entries().len(), 3);
        assert_complete(store, &[]);
    });
}

#[test]
fn replacing_survives_a_crash_at_every_write() {
    let (mut rig, store) = Rig::new(&[64 * MIB; 2]);
    let files = some_files(Files { placement: placement(1, 1), bytes: 150_000 }, 10..13);
    write(&store, &files);
    store.close().unwrap();
    drop(store);
    let new = rig.buy(64 * MIB);
    let replace =
        |rig: &Rig, store: &Store| store.devices.replace_device(1, rig.new_device(new), rig.entry(new)).map(drop);
    let work = |rig: &Rig, store: &Store| {
        if replace(rig, store).is_ok() {
            try_to_mend(store);
        }
    };
    cut_everywhere(&rig, &[0], &[0, new], &files, work, |rig, store| {
        if store.log().stripe.devices.get(1).is_none() {
            replace(rig, store).unwrap();
        }
        mend(store);
        assert_complete(store, &[]);
        store.close().unwrap();
        assert_readable(&rig.copy().open(&[new]), &files);
    });
}
