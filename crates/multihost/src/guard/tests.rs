//! P-157: guards with real time on devices in memory.

use stere_device::MemoryDevice;
use stere_pool::{Candidate, CreateOptions, DeviceClass, NewDevice, create};

use super::*;

fn pool() -> Vec<Arc<dyn Device>> {
    let devices: Vec<Arc<dyn Device>> =
        (0..2).map(|_| Arc::new(MemoryDevice::new(64 << 20)) as Arc<dyn Device>).collect();
    let new = |(index, device): (usize, &Arc<dyn Device>)| NewDevice {
        path: format!("/dev/none{index}"),
        device: device.clone(),
        name: String::new(),
        class: DeviceClass::Ssd,
        tags: Vec::new(),
        host: String::new(),
        shelf: String::new(),
        foreign: None,
    };
    let options = CreateOptions { pool_name: "tank".into(), memory_bytes: 64 << 20, ..CreateOptions::default() };
    let mut number = 0_u8;
    let mut random = |bytes: &mut [u8]| {
        for byte in bytes {
            number = number.wrapping_mul(5).wrapping_add(17);
            *byte = number;
        }
    };
    create(devices.iter().enumerate().map(new).collect(), &options, &mut random).unwrap().close().unwrap();
    devices
}

fn assemble(devices: &[Arc<dyn Device>]) -> Assembly {
    let candidate = |(index, device): (usize, &Arc<dyn Device>)| Candidate {
        path: format!("/dev/none{index}"),
        device: device.clone(),
    };
    Assembly::new(devices.iter().enumerate().map(candidate).collect()).unwrap()
}

/// Another machine: nothing proves that its processes have ended.
fn claim(devices: &[Arc<dyn Device>], is_reader: bool) -> (Result<Guard, Error>, Duration) {
    let start = Instant::now();
    let me = crate::claimant(None);
    let guard = Guard::claim(&assemble(devices), me, Multihost::On, is_reader, &mut |_| {});
    (guard, start.elapsed())
}

#[test]
fn a_pool_in_use_is_refused_and_one_that_was_closed_is_had_at_once() {
    let devices = pool();
    let first = claim(&devices, false).0.unwrap();
    for is_reader in [false, true] {
        let (refused, took) = claim(&devices, is_reader);
        assert!(matches!(refused, Err(Error::InUseElsewhere { .. })));
        assert!(took < Duration::from_secs(3), "one beat is enough to tell: {took:?}");
    }
    drop(first);
    let (second, took) = claim(&devices, false);
    assert!(second.is_ok() && took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn an_owner_is_told_that_another_took_over_and_leaves_its_heartbeat_alone() {
    let devices = pool();
    let first = claim(&devices, false).0.unwrap();
    let (sender, told) = channel();
    first.on_lost(Box::new(move |cause| drop(sender.send(cause.to_owned()))));
    // As if this process had stood still for longer than a watch.
    let assembly = assemble(&devices);
    let rival = crate::claimant(None);
    let shared = assembly.shared(&|_| true);
    let mut beat = vec![0; stere_format::Heartbeat::SIZE];
    devices[0].read(shared[0].offset, &mut beat).unwrap();
    let mut beat = stere_format::Heartbeat::decode(&beat).unwrap();
    (beat.owner, beat.host) = (rival.owner, "barn".into());
    devices[0].write_bytes(shared[0].offset, &beat.encode()).unwrap();
    let cause = told.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(cause.contains("barn"), "{cause}");
    assert_eq!(first.lost().as_deref(), Some(&*cause));
    drop(first);
    let mut after = vec![0; stere_format::Heartbeat::SIZE];
    devices[0].read(shared[0].offset, &mut after).unwrap();
    assert_eq!(after, beat.encode());
}

#[test]
fn a_device_that_joins_gets_a_heartbeat_and_one_that_is_let_go_none() {
    let devices = pool();
    let assembly = assemble(&devices);
    let guard = Guard::claim(&assembly, crate::claimant(None), Multihost::On, false, &mut |_| {}).unwrap();
    let shared = assembly.shared(&|_| true);
    let new: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let joined = || Joined {
        path: "/dev/new".into(),
        device: new.clone(),
        id: DeviceId([9; 16]),
        offset: Some(shared[0].offset),
    };
    guard.keep(joined());
    guard.keep(joined());
    let sequence = || {
        let mut beat = vec![0; stere_format::Heartbeat::SIZE];
        new.read(shared[0].offset, &mut beat).unwrap();
        stere_format::Heartbeat::decode(&beat).map(|beat| beat.sequence).unwrap_or(0)
    };
    let until = Instant::now() + Duration::from_secs(10);
    while sequence() < 3 {
        assert!(Instant::now() < until, "no heartbeat on a device that joined");
        std::thread::sleep(Duration::from_millis(50));
    }
    let weak = Arc::downgrade(&new);
    drop(new);
    let until = Instant::now() + Duration::from_secs(10);
    while weak.upgrade().is_some() {
        assert!(Instant::now() < until, "a device that was let go is held by its heartbeat");
        std::thread::sleep(Duration::from_millis(50));
    }
}
