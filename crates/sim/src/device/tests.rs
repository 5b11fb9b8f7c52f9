//! The devices of the simulator do to data what they say, and nothing else.

use super::*;

fn machine() -> (Arc<Machine>, Arc<dyn Device>) {
    let machine = Machine::new(Random::new(1));
    machine.add_device(64 << 20, 512);
    let device = machine.devices().remove(0);
    (machine, device)
}

fn byte_at(device: &Arc<dyn Device>, offset: u64) -> u8 {
    let mut byte = [0];
    device.read(offset, &mut byte).unwrap();
    byte[0]
}

#[test]
fn unflushed_writes_survive_as_told() {
    let (machine, device) = machine();
    device.write_bytes(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    let before = machine.images();
    device.write_bytes(0, &[2; 4096]).unwrap();
    device.write_bytes(8192, &[3; 4096]).unwrap();
    assert_eq!((byte_at(&device, 0), byte_at(&device, 8192)), (2, 3));
    let pending = machine.images();
    assert_eq!(pending[0].pending_count(), before[0].pending_count() + 2);
    for (survival, expected) in [
        (Survival::Nothing, (1, 0)),
        (Survival::Everything, (2, 3)),
        (Survival::Prefix(1), (2, 0)),
        (Survival::Only(1), (1, 3)),
        (Survival::AllBut(0), (1, 3)),
    ] {
        machine.set_images(pending.clone());
        machine.power_on(&mut |_, _| survival.clone());
        assert_eq!((byte_at(&device, 0), byte_at(&device, 8192)), expected, "{survival:?}");
    }
}

#[test]
fn a_torn_write_is_a_mixture_of_blocks() {
    let (machine, device) = machine();
    let mut mixed = 0;
    for _ in 0..50 {
        device.write_bytes(0, &[1; 4096]).unwrap();
        device.flush().unwrap();
        device.write_bytes(0, &[2; 4096]).unwrap();
        machine.power_on(&mut |_, _| Survival::Tear(0));
        let mut bytes = [0; 4096];
        device.read(0, &mut bytes).unwrap();
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]) && matches!(sector[0], 1 | 2));
        }
        mixed += u32::from(bytes.contains(&1) && bytes.contains(&2));
    }
    assert!(mixed > 20, "most tears leave a mixture, {mixed} of 50 did");
}

#[test]
fn power_goes_at_the_very_event() {
    let (machine, device) = machine();
    machine.power_off_after(3);
    device.write_bytes(0, &[1; 512]).unwrap();
    device.flush().unwrap();
    assert!(device.write_bytes(512, &[2; 512]).is_err());
    assert!(machine.is_off() && device.flush().is_err() && device.read(0, &mut [0]).is_err());
    machine.power_on(&mut |_, _| Survival::Everything);
    assert_eq!((byte_at(&device, 0), byte_at(&device, 512)), (1, 2));
}

fn with_fault(kind: FaultKind) -> (Arc<Machine>, Arc<dyn Device>) {
    let (machine, device) = machine();
    device.write_bytes(0, &[1; 8192]).unwrap();
    device.flush().unwrap();
    let mut rates = FaultRates::none();
    rates.set(kind, 1_000_000);
    machine.set_faults(0, rates);
    (machine, device)
}

#[test]
fn each_fault_strikes() {
    let read = |device: &Arc<dyn Device>| {
        let mut bytes = [0; 4096];
        device.read(0, &mut bytes).map(|()| bytes)
    };
    let calm = |machine: &Arc<Machine>| machine.set_faults(0, FaultRates::none());
    let (machine, device) = with_fault(FaultKind::LatentReadError);
    assert!(read(&device).is_err());
    calm(&machine);
    assert!(read(&device).is_err(), "stays until written");
    device.write_bytes(0, &[5; 4096]).unwrap();
    assert_eq!(read(&device).unwrap(), [5; 4096]);

    let (machine, device) = with_fault(FaultKind::TransientReadError);
    assert!(read(&device).is_err());
    calm(&machine);
    assert_eq!(read(&device).unwrap(), [1; 4096]);

    let (machine, device) = with_fault(FaultKind::BitRot);
    let flipped = read(&device).unwrap();
    calm(&machine);
    assert_eq!(read(&device).unwrap().iter().filter(|byte| **byte != 1).count(), 1);
    assert_eq!(flipped, read(&device).unwrap());

    let (_, device) = with_fault(FaultKind::LostWrite);
    device.write_bytes(0, &[9; 4096]).unwrap();
    assert_eq!(read(&device).unwrap(), [1; 4096]);

    let (_, device) = with_fault(FaultKind::MisdirectedWrite);
    device.write_bytes(0, &[9; 4096]).unwrap();
    assert_eq!(read(&device).unwrap(), [1; 4096]);

    let (_, device) = with_fault(FaultKind::FailedWrite);
    assert!(device.write_bytes(0, &[9; 4096]).is_err());

    let (machine, device) = with_fault(FaultKind::FailedFlush);
    assert!(device.flush().is_err());
    calm(&machine);
    assert!(device.flush().is_err(), "a failed flush is sticky");
    machine.reopen_devices();
    assert!(device.flush().is_ok());

    let (machine, device) = with_fault(FaultKind::LyingFlush);
    device.write_bytes(0, &[9; 4096]).unwrap();
    device.flush().unwrap();
    machine.power_on(&mut |_, _| Survival::Nothing);
    assert_eq!(read(&device).unwrap(), [1; 4096]);

    let (_, device) = with_fault(FaultKind::DyingDevice);
    assert!(read(&device).is_err() && device.flush().is_err());

    let (machine, device) = with_fault(FaultKind::SlowDevice);
    let before = machine.now_ns();
    read(&device).unwrap();
    assert!(machine.now_ns() - before >= SLOW_NS);
}

#[test]
fn whoever_can_have_the_bytes_elsewhere_leaves_a_slow_device() {
    let (machine, device) = machine();
    let mut rates = FaultRates::none();
    rates.set(FaultKind::SlowDevice, 1_000_000);
    machine.set_faults(0, rates);
    let mut bytes = [0; 4096];
    let begun_ns = machine.now_ns();
    let left = device.read_scattered_or_leave(0, &mut [Scatter::Into(&mut bytes)]);
    assert!(matches!(left, Err(DeviceError::TooSlow { .. })));
    assert_eq!(machine.now_ns() - begun_ns, LEFT_NS);
    device.read(0, &mut bytes).unwrap();
    assert_eq!(machine.now_ns() - begun_ns, LEFT_NS + SLOW_NS);
}

#[test]
fn a_fork_goes_its_own_way() {
    let (machine, device) = machine();
    device.write_bytes(0, &[1; 4096]).unwrap();
    let fork = machine.fork(Random::new(2));
    let theirs = fork.devices().remove(0);
    theirs.write_bytes(0, &[2; 4096]).unwrap();
    fork.lose_after(0, 0);
    assert_eq!(byte_at(&device, 0), 1);
    assert!(theirs.read(0, &mut [0; 512]).is_err() && !machine.is_lost(0));
}
