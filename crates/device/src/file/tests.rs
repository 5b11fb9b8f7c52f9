use super::*;
use crate::SharedBuffer;

const MIB: u64 = 1 << 20;

fn options(direct: bool, writer_threads: usize) -> FileOptions {
    FileOptions { access: Access::ReadWrite, direct, writer_threads }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(13).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}

/// Direct I/O needs a real file system, which the target folder is on more often than /tmp.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

#[test]
fn writes_come_back_in_every_mode() {
    for (direct, writer_threads) in [(true, 0), (true, 2), (false, 0), (false, 3)] {
        let folder = folder();
        let device = FileDevice::create(&folder.path().join("d"), 8 * MIB, &options(direct, writer_threads)).unwrap();
        assert_eq!(device.size_bytes(), 8 * MIB);
        let completion = Completion::new();
        let data: Vec<SharedBuffer> = (0..16u8).map(|seed| Buffer::copy_of(&pattern(65_536, seed)).share()).collect();
        for (index, shared) in data.iter().enumerate() {
            device.submit_write(index as u64 * 65_536, Arc::clone(shared), 0..65_536, completion.ticket(index as u64));
        }
        assert!(completion.wait().is_empty());
        device.flush().unwrap();
        for (index, shared) in data.iter().enumerate() {
            for (skip, length) in [(0usize, 65_536usize), (1, 100), (511, 4097), (4096, 4096), (65_535, 1)] {
                let mut out = vec![0; length];
                let at = index * 65_536 + skip;
                device.read(at as u64, &mut out).unwrap();
                let end = (skip + length).min(65_536);
                assert_eq!(out[..end - skip], shared[skip..end], "direct {direct}, at {at}, {length} bytes");
            }
        }
        assert_eq!(out_of(&device, 8 * MIB - 5, 5), [0; 5]);
    }
}

fn out_of(device: &FileDevice, offset: u64, length: usize) -> Vec<u8> {
    let mut out = vec![1; length];
    device.read(offset, &mut out).unwrap();
    out
}

#[test]
fn a_device_opens_once() {
    let folder = folder();
    let path = folder.path().join("d");
    let device = FileDevice::create(&path, MIB, &FileOptions::default()).unwrap();
    assert!(matches!(FileDevice::open(&path, &FileOptions::default()), Err(DeviceError::Busy { .. })));
    let read_only = FileOptions { access: Access::ReadOnly, ..FileOptions::default() };
    assert!(matches!(FileDevice::open(&path, &read_only), Err(DeviceError::Busy { .. })));
    drop(device);
    let reader = FileDevice::open(&path, &read_only).unwrap();
    let other = FileDevice::open(&path, &read_only).unwrap();
    assert!(matches!(FileDevice::open(&path, &FileOptions::default()), Err(DeviceError::Busy { .. })));
    assert!(matches!(reader.write_bytes(0, &[0; 4096]), Err(DeviceError::ReadOnly { .. })));
    assert!(matches!(other.discard(0, 4096), Err(DeviceError::ReadOnly { .. })));
    reader.flush().unwrap();
}

#[test]
fn creating_refuses_what_exists_and_opening_what_is_no_device() {
    let folder = folder();
    let path = folder.path().join("d");
    std::fs::write(&path, b"precious").unwrap();
    let error = FileDevice::create(&path, MIB, &FileOptions::default()).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EEXIST));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert!(matches!(
        FileDevice::open(folder.path(), &FileOptions::default()),
        Err(DeviceError::UnsuitableKind { .. })
    ));
    assert!(FileDevice::open(&folder.path().join("none"), &FileOptions::default()).is_err());
}

#[test]
fn a_file_never_grows() {
    let folder = folder();
    let path = folder.path().join("d");
    let device = FileDevice::create(&path, MIB, &FileOptions::default()).unwrap();
    assert!(matches!(device.write_bytes(MIB, &[0; 4096]), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(device.write_bytes(MIB - 4096, &[0; 8192]), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(device.write_bytes(1, &[0; 4096]), Err(DeviceError::Unaligned { .. })));
    assert!(matches!(device.read(MIB - 1, &mut [0; 2]), Err(DeviceError::OutOfRange { .. })));
    device.write_bytes(MIB - 4096, &[9; 4096]).unwrap();
    drop(device);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB);
}

#[test]
fn dropping_a_device_carries_out_what_is_queued() {
    let folder = folder();
    let path = folder.path().join("d");
    let device = FileDevice::create(&path, 8 * MIB, &options(true, 1)).unwrap();
    let completion = Completion::new();
    let data = Buffer::copy_of(&pattern(4096, 3)).share();
    for index in 0..500u64 {
        device.submit_write(index * 4096, Arc::clone(&data), 0..4096, completion.ticket(index));
    }
    drop(device);
    assert!(completion.is_done());
    assert!(completion.wait().is_empty());
    let contents = std::fs::read(&path).unwrap();
    assert!(contents[..500 * 4096].chunks(4096).all(|block| block == &data[..]));
}

#[test]
fn unaligned_memory_is_written_through_a_copy() {
    let folder = folder();
    let device = FileDevice::create(&folder.path().join("d"), MIB, &FileOptions::default()).unwrap();
    let data = Buffer::copy_of(&pattern(8192, 1)).share();
    device.write(4096, Arc::clone(&data), 3..4099).unwrap();
    assert_eq!(out_of(&device, 4096, 4096), data[3..4099]);
}

#[test]
fn scattered_reads_are_one_transfer() {
    let folder = folder();
    let device = FileDevice::create(&folder.path().join("d"), MIB, &FileOptions::default()).unwrap();
    let bytes = pattern(65_536, 5);
    device.write_bytes(0, &bytes).unwrap();
    let (mut a, mut b) = (Buffer::zeroed(8192), vec![0; 777]);
    device.read_scattered(512, &mut [Scatter::Into(&mut a), Scatter::Skip(1000), Scatter::Into(&mut b)]).unwrap();
    assert_eq!(a[..], bytes[512..8704]);
    assert_eq!(b[..], bytes[9704..10_481]);
}

#[test]
fn discarded_holes_read_as_zeros_from_a_file() {
    let folder = folder();
    let device = FileDevice::create(&folder.path().join("d"), MIB, &FileOptions::default()).unwrap();
    device.write_bytes(0, &pattern(65_536, 5)).unwrap();
    device.discard(4096, 8192).unwrap();
    let out = out_of(&device, 0, 65_536);
    assert_eq!(out[..4096], pattern(4096, 5)[..]);
    if device.open.is_discard_supported.load(Ordering::Relaxed) {
        assert!(out[4096..12_288].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn an_odd_size_is_rounded_down() {
    let folder = folder();
    let path = folder.path().join("d");
    std::fs::write(&path, vec![7; 10_000]).unwrap();
    let device = FileDevice::open(&path, &FileOptions::default()).unwrap();
    let block_bytes = u64::from(device.block_bytes());
    assert_eq!(device.size_bytes(), 10_000 / block_bytes * block_bytes);
    assert_eq!(out_of(&device, device.size_bytes() - 3, 3), [7; 3]);
    assert!(device.describe().contains("regular file"));
}

#[test]
fn gathered_writes_lie_one_after_the_other() {
    for writer_threads in [0, 2] {
        let folder = folder();
        let device = FileDevice::create(&folder.path().join("d"), 16 * MIB, &options(true, writer_threads)).unwrap();
        let data = Buffer::copy_of(&pattern(8 << 20, 9)).share();
        // More pieces than one call takes, in reverse order.
        let pieces: Vec<Piece> =
            (0..2048).rev().map(|index| Piece::new(Arc::clone(&data), index * 4096..(index + 1) * 4096)).collect();
        let completion = Completion::new();
        device.submit_write_gathered(4096, pieces, completion.ticket(0));
        assert!(completion.wait().is_empty());
        let out = out_of(&device, 4096, 8 << 20);
        for (index, block) in out.chunks(4096).rev().enumerate() {
            assert_eq!(block, &data[index * 4096..(index + 1) * 4096]);
        }
        let odd = vec![Piece::new(Arc::clone(&data), 0..4096), Piece::new(data, 0..100)];
        device.submit_write_gathered(0, odd, completion.ticket(1));
        assert!(matches!(completion.wait()[..], [(1, DeviceError::Unaligned { .. })]));
    }
}

#[test]
fn a_submitted_flush_finishes_its_ticket() {
    for writer_threads in [0, 2] {
        let folder = folder();
        let device = FileDevice::create(&folder.path().join("d"), MIB, &options(true, writer_threads)).unwrap();
        device.write_bytes(0, &[1; 4096]).unwrap();
        let completion = Completion::new();
        device.submit_flush(completion.ticket(4));
        assert!(completion.wait().is_empty());
    }
}

/// A read that takes many times longer than usual is left behind; when the device is itself again it is read again.
#[test]
fn a_read_that_takes_too_long_is_left_behind() {
    let folder = folder();
    let path = folder.path().join("d");
    let mut device = FileDevice::create(&path, 8 * MIB, &options(true, 0)).unwrap();
    let open = Arc::get_mut(&mut device.open).unwrap();
    open.faults = Some(Faults::beside(&path));
    device.write_bytes(0, &pattern(65_536, 3)).unwrap();
    let read = |device: &FileDevice| {
        let (mut head, mut tail) = (vec![0; 100], vec![0; 5000]);
        let mut pieces = [Scatter::Into(&mut head), Scatter::Skip(700), Scatter::Into(&mut tail)];
        let begun = std::time::Instant::now();
        let outcome = device.read_scattered_or_leave(10, &mut pieces);
        (outcome.map(|()| (head, tail)), begun.elapsed())
    };
    let expected = pattern(65_536, 3);
    let is_right = |(head, tail): (Vec<u8>, Vec<u8>)| head == expected[10..110] && tail == expected[810..5810];
    assert!(is_right(read(&device).0.unwrap()), "fast: on this thread");
    std::fs::write(folder.path().join("d.slow"), "20").unwrap();
    for _ in 0..4 {
        let begun = std::time::Instant::now();
        // On a busy machine 20 ms may become too long.
        let found = loop {
            match read(&device).0 {
                Err(DeviceError::TooSlow { .. }) if begun.elapsed() < Duration::from_secs(60) => continue,
                outcome => break outcome.unwrap(),
            }
        };
        assert!(is_right(found), "a disk with a head: on another thread");
    }
    std::fs::write(folder.path().join("d.slow"), "3000").unwrap();
    for _ in 0..3 {
        let (outcome, took) = read(&device);
        assert!(matches!(outcome, Err(DeviceError::TooSlow { .. })));
        assert!(took < Duration::from_millis(2500), "{took:?}");
    }
    assert!(device.latency_us() > 100_000, "{}", device.latency_us());
    std::fs::remove_file(folder.path().join("d.slow")).unwrap();
    let begun = std::time::Instant::now();
    while read(&device).0.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is never asked again");
    }
    std::fs::write(folder.path().join("d.fail"), "write").unwrap();
    assert!(device.write_bytes(0, &expected).is_err());
    assert!(device.read(0, &mut [0; 512]).is_ok());
}

/// Reads on another thread, one after the other, all use the same memory.
#[test]
fn reads_that_can_be_left_reuse_their_memory() {
    let begun = std::time::Instant::now();
    // On a busy machine 20 ms may become too long for one of them, and what is left keeps its memory for a while.
    loop {
        match read_slowly_with_memory_of_the_pool() {
            Err(DeviceError::TooSlow { .. }) if begun.elapsed() < Duration::from_secs(60) => continue,
            outcome => break outcome.unwrap(),
        }
    }
}

fn read_slowly_with_memory_of_the_pool() -> Result<(), DeviceError> {
    let folder = folder();
    let path = folder.path().join("d");
    let mut device = FileDevice::create(&path, MIB, &options(true, 0)).unwrap();
    Arc::get_mut(&mut device.open).unwrap().faults = Some(Faults::beside(&path));
    let expected = pattern(65_536, 3);
    device.write_bytes(0, &expected).unwrap();
    std::fs::write(folder.path().join("d.slow"), "20").unwrap();
    // Aligned, so that a read on this thread takes nothing from the pool.
    let mut found = Buffer::zeroed(65_536);
    device.read_scattered_or_leave(0, &mut [Scatter::Into(&mut found)])?;
    assert_eq!(device.bounce.retained_bytes(), 0);
    for _ in 0..4 {
        found.fill(0);
        device.read_scattered_or_leave(0, &mut [Scatter::Into(&mut found)])?;
        assert!(found[..] == expected[..]);
        assert_eq!(device.bounce.retained_bytes(), 65_536, "taken from the pool and given back");
    }
    assert!(!format!("{:?}", device.readers).contains("(0 threads)"), "nothing was read on another thread");
    Ok(())
}

/// The threads that read outlive the device, but hold nothing of it.
#[test]
fn a_device_that_was_dropped_is_opened_again_at_once() {
    let folder = folder();
    let path = folder.path().join("d");
    drop(FileDevice::create(&path, MIB, &options(true, 0)).unwrap());
    std::fs::write(folder.path().join("d.slow"), "10").unwrap();
    for round in 0..20 {
        let mut device = FileDevice::open(&path, &options(true, 0))
            .unwrap_or_else(|error| panic!("round {round}: the file is held by a thread: {error}"));
        Arc::get_mut(&mut device.open).unwrap().faults = Some(Faults::beside(&path));
        for _ in 0..3 {
            match device.read_scattered_or_leave(0, &mut [Scatter::Into(&mut [0; 4096])]) {
                // On a busy machine 10 ms may become too long; what was left comes to its end meanwhile.
                Err(DeviceError::TooSlow { .. }) => std::thread::sleep(Duration::from_millis(500)),
                outcome => outcome.unwrap(),
            }
        }
        let readers = format!("{:?}", device.readers);
        assert!(!readers.contains("(0 threads)"), "nothing was read on another thread: {readers}");
    }
}

/// A device with two writer threads that fails as files beside it say.
fn device_with_faults(path: &Path) -> FileDevice {
    let mut device = FileDevice::create(path, 8 * MIB, &options(true, 0)).unwrap();
    Arc::get_mut(&mut device.open).unwrap().faults = Some(Faults::beside(path));
    device.queue = WriteQueue::start(Arc::clone(&device.open), 2).unwrap();
    device
}

/// P-162: a write or flush that does not come back is given up by the deadline; what is asked meanwhile fails at once, and the device is
/// used again when all of it has come back.
#[test]
fn a_device_that_says_nothing_is_given_up_until_it_answers() {
    for word in ["write", "flush", "write flush read"] {
        let folder = folder();
        let path = folder.path().join("d");
        let device = device_with_faults(&path);
        device.set_deadline(Some(Deadline::of_one_of_many(Duration::from_millis(300))));
        device.write_bytes(0, &pattern(65_536, 3)).unwrap();
        device.flush().unwrap();
        std::fs::write(folder.path().join("d.hang"), word).unwrap();
        let begun = std::time::Instant::now();
        let write = || device.write_bytes(65_536, &pattern(4096, 4));
        let outcome = write().and_then(|()| device.flush());
        assert!(matches!(outcome, Err(DeviceError::Silent { .. })), "{word}: {outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert!(device.silent_for().is_some());
        let begun = std::time::Instant::now();
        for _ in 0..100 {
            assert!(matches!(write(), Err(DeviceError::Silent { .. })));
            assert!(matches!(device.flush(), Err(DeviceError::Silent { .. })));
            assert!(matches!(device.read(0, &mut [0; 4096]), Err(DeviceError::Silent { .. })));
        }
        assert!(begun.elapsed() < Duration::from_millis(250), "{:?}", begun.elapsed());
        std::fs::remove_file(folder.path().join("d.hang")).unwrap();
        let begun = std::time::Instant::now();
        while device.silent_for().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it answers again");
            std::thread::sleep(Duration::from_millis(5));
        }
        write().unwrap();
        device.flush().unwrap();
        let mut bytes = vec![0; 4096];
        device.read(65_536, &mut bytes).unwrap();
        assert_eq!(bytes, pattern(4096, 4));
    }
}

/// P-162: without a deadline, and with one that is never reached, nothing is given up; a slow device is not silent.
#[test]
fn a_slow_device_is_not_silent() {
    let folder = folder();
    let path = folder.path().join("d");
    let device = device_with_faults(&path);
    std::fs::write(folder.path().join("d.slow"), "150").unwrap();
    for deadline in [None, Some(Duration::from_secs(30))] {
        device.set_deadline(deadline.map(Deadline::of_one_of_many));
        let completion = Completion::new();
        for number in 0..6 {
            device.submit_write(
                number * 4096,
                Arc::new(Buffer::copy_of(&pattern(4096, 5))),
                0..4096,
                completion.ticket(number),
            );
        }
        assert!(completion.wait().is_empty());
        device.flush().unwrap();
    }
}

/// P-162: closing a device that says nothing is not waited for, and it stays locked until nothing is under way to it.
#[test]
fn a_silent_device_can_be_closed() {
    let folder = folder();
    let path = folder.path().join("d");
    let device = device_with_faults(&path);
    device.set_deadline(Some(Deadline::of_one_of_many(Duration::from_millis(200))));
    std::fs::write(folder.path().join("d.hang"), "write").unwrap();
    assert!(device.write_bytes(0, &pattern(4096, 3)).is_err());
    let begun = std::time::Instant::now();
    drop(device);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(matches!(FileDevice::open(&path, &options(true, 0)), Err(DeviceError::Busy { .. })));
    std::fs::remove_file(folder.path().join("d.hang")).unwrap();
    let begun = std::time::Instant::now();
    while FileDevice::open(&path, &options(true, 0)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is let go");
        std::thread::sleep(Duration::from_millis(5));
    }
}
