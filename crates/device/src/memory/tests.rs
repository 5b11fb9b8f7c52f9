use super::*;
use crate::Scatter;

#[test]
fn reads_what_was_written_over_page_borders() {
    let device = MemoryDevice::new(1 << 20);
    let bytes: Vec<u8> = (0..8192u32).map(|n| n as u8).collect();
    device.write_bytes(PAGE_BYTES as u64 - 4096, &bytes).unwrap();
    let mut out = vec![0; 9000];
    device.read(PAGE_BYTES as u64 - 4100, &mut out).unwrap();
    assert_eq!(&out[..4], &[0; 4]);
    assert_eq!(&out[4..8196], &bytes[..]);
    assert!(out[8196..].iter().all(|&byte| byte == 0));
}

#[test]
fn scattered_reads_skip() {
    let device = MemoryDevice::new(1 << 20);
    device.write_bytes(0, &(0..512).map(|n| n as u8).collect::<Vec<u8>>()).unwrap();
    let (mut a, mut b) = ([0; 4], [0; 4]);
    device.read_scattered(8, &mut [Scatter::Into(&mut a), Scatter::Skip(10), Scatter::Into(&mut b)]).unwrap();
    assert_eq!((a, b), ([8, 9, 10, 11], [22, 23, 24, 25]));
    assert_eq!(device.counters().reads, 1);
}

#[test]
fn bounds_and_alignment_are_errors() {
    let device = MemoryDevice::new(8192);
    assert!(matches!(device.read(8000, &mut [0; 512]), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(device.read(u64::MAX, &mut [0; 2]), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(device.write_bytes(8192, &[0; 512]), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(device.write_bytes(100, &[0; 512]), Err(DeviceError::Unaligned { .. })));
}

#[test]
fn unflushed_writes_can_be_lost_one_by_one() {
    let device = MemoryDevice::with_volatile_cache(1 << 20);
    device.write_bytes(0, &[1; 512]).unwrap();
    device.flush().unwrap();
    for value in 2..5 {
        device.write_bytes(0, &[value; 512]).unwrap();
    }
    assert_eq!(device.unflushed_count(), 3);
    let copy = device.copy();
    device.lose_unflushed(|index| index == 1);
    let mut out = [0; 512];
    device.read(0, &mut out).unwrap();
    assert_eq!(out, [3; 512]);
    copy.read(0, &mut out).unwrap();
    assert_eq!(out, [4; 512]);
}

#[test]
fn faults_strike_and_a_failed_flush_sticks() {
    let device = MemoryDevice::new(1 << 20);
    device.write_bytes(0, &[1; 512]).unwrap();
    device.set_fault_hook(Some(Box::new(|operation, _, _| match operation {
        Operation::Read => Some(Fault::Corrupt),
        Operation::Write => Some(Fault::Lie),
        Operation::Flush => Some(Fault::Error),
        _ => None,
    })));
    let mut out = [0; 512];
    device.read(0, &mut out).unwrap();
    assert_eq!(out, [!1; 512]);
    device.write_bytes(0, &[2; 512]).unwrap();
    assert!(matches!(device.flush(), Err(DeviceError::Io { .. })));
    device.set_fault_hook(None);
    device.read(0, &mut out).unwrap();
    assert_eq!(out, [1; 512]);
    assert!(matches!(device.flush(), Err(DeviceError::FlushFailed { .. })));
    assert!(matches!(device.write_bytes(0, &[3; 512]), Err(DeviceError::FlushFailed { .. })));
}

#[test]
fn an_offline_device_comes_back_whole() {
    let device = MemoryDevice::new(1 << 20);
    device.write_bytes(512, &[5; 512]).unwrap();
    device.set_offline(true);
    assert!(matches!(device.read(0, &mut [0; 1]), Err(DeviceError::Absent { .. })));
    assert!(matches!(device.flush(), Err(DeviceError::Absent { .. })));
    device.set_offline(false);
    device.flush().unwrap();
    let mut out = [0; 512];
    device.read(512, &mut out).unwrap();
    assert_eq!(out, [5; 512]);
    device.corrupt(512, 1);
    device.read(512, &mut out).unwrap();
    assert_eq!(out[..2], [!5, 5]);
}
