use super::*;
use stere_device::{MemoryDevice, Operation, memory::Fault};

fn attach(devices: &Devices, index: DeviceIndex) -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::with_volatile_cache(64 << 20));
    let layout = DeviceLayout::for_size(64 << 20, 1 << 20).unwrap();
    devices.attach(index, memory.clone(), layout, 1);
    memory
}

#[test]
fn only_written_devices_are_flushed_and_only_once() {
    let devices = Devices::default();
    let memories: Vec<_> = (0..3).map(|index| attach(&devices, index)).collect();
    assert!(devices.flush().is_empty());
    devices.get(0).unwrap().write_bytes(0, &[1; 512]).unwrap();
    devices.get(2).unwrap().write_bytes(0, &[1; 512]).unwrap();
    assert!(devices.get(0).unwrap().needs_flush());
    assert!(devices.flush().is_empty());
    assert!(devices.flush().is_empty());
    let flushes: Vec<u64> = memories.iter().map(|memory| memory.counters().flushes).collect();
    assert_eq!(flushes, [1, 0, 1]);
    assert!(memories.iter().all(|memory| memory.unflushed_count() == 0));
    devices.get(0).unwrap().write_bytes(0, &[1; 512]).unwrap();
    devices.get(0).unwrap().flush().unwrap();
    assert!(!devices.get(0).unwrap().needs_flush());
}

#[test]
fn a_failed_flush_is_told_and_not_forgotten() {
    let devices = Devices::default();
    let memories: Vec<_> = (0..3).map(|index| attach(&devices, index)).collect();
    for index in 0..3 {
        devices.get(index).unwrap().write_bytes(0, &[1; 512]).unwrap();
    }
    let fail: stere_device::memory::FaultHook =
        Box::new(|operation, _, _| (operation == Operation::Flush).then_some(Fault::Error));
    memories[1].set_fault_hook(Some(fail));
    let failed: Vec<_> = devices.flush().into_iter().map(|(index, _)| index).collect();
    assert_eq!(failed, [1]);
    assert!(!devices.get(0).unwrap().needs_flush() && !devices.get(2).unwrap().needs_flush());
    assert!(devices.get(1).unwrap().needs_flush());
    assert_eq!(devices.flush().len(), 1, "it fails again until it is replaced");
}

#[test]
fn devices_come_and_go() {
    let devices = Devices::default();
    attach(&devices, 5);
    assert!(devices.get(4).is_none() && devices.get(6).is_none());
    assert_eq!(devices.all().len(), 1);
    assert_eq!(devices.detach(5).unwrap().index(), 5);
    assert!(devices.detach(5).is_none() && devices.get(5).is_none());
    let statistics = {
        attach(&devices, 0);
        let device = devices.get(0).unwrap();
        device.write_bytes(0, &[3; 1024]).unwrap();
        device.read(0, &mut [0; 100]).unwrap();
        assert!(device.read(64 << 20, &mut [0; 1]).is_err());
        device.statistics()
    };
    assert_eq!((statistics.writes, statistics.written_bytes), (1, 1024));
    assert_eq!((statistics.reads, statistics.read_errors, statistics.checksum_errors), (2, 1, 0));
}
