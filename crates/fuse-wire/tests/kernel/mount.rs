//! Real mounts, real system calls, over both transports. Needs root and /dev/fuse; says so when it has not.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fuse_wire::{BlockDevice, Error, Session, Transport, TransportChoice, Unmount};

use crate::support::{Hooked, TestMount, WATCHDOG, eventually, hearing_signals, mount_point, options, say, transports};

/// Bytes that differ from place to place, so that a misplaced piece shows.
fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

fn drop_cached_pages(file: &fs::File) {
    // SAFETY: a live descriptor and plain numbers.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0);
}

#[test]
fn the_transport_asked_for_is_used() {
    for choice in transports("the_transport_asked_for_is_used") {
        let mut mount = TestMount::new(choice);
        let negotiated = *mount.session().negotiated();
        let expected = match choice {
            TransportChoice::Device => Transport::Device,
            _ => Transport::IoUring,
        };
        assert_eq!(negotiated.transport, expected);
        assert_eq!(negotiated.max_write_bytes, 1 << 20);
        assert!(!negotiated.syncfs);
        assert_eq!(read_ahead_kb(&mount.path), "1024");
        mount.finish().unwrap();
    }
}

fn read_ahead_kb(mountpoint: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == mountpoint.to_str()).unwrap();
    let number = line.split(' ').nth(2).unwrap();
    fs::read_to_string(format!("/sys/class/bdi/{number}/read_ahead_kb")).unwrap().trim().to_owned()
}

/// The work of an ordinary program, with answers from the transport threads and then from workers.
#[test]
fn files_behave_like_files() {
    for choice in transports("files_behave_like_files") {
        for offload in [false, true] {
            let mut mount = TestMount::new(choice);
            mount.filesystem.offload.store(offload, Ordering::SeqCst);
            data_survives(&mount.path);
            names_behave(&mount.path);
            attributes_behave(&mount.path);
            direct_io_behaves(&mount.path);
            assert_eq!(mount.filesystem.misaligned.load(Ordering::SeqCst), 0, "{choice:?}");
            let alive = || mount.filesystem.null.nodes_alive();
            assert!(eventually(|| alive() == 1), "{choice:?}: {} nodes were not forgotten", alive());
            mount.finish().unwrap_or_else(|error| panic!("{choice:?}: {error}"));
        }
    }
}

fn data_survives(root: &Path) {
    let path = root.join("data");
    let content = pattern(5 * 1024 * 1024 + 123, 7);
    fs::write(&path, &content).unwrap();
    let mut file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    drop_cached_pages(&file);
    let mut back = Vec::new();
    file.read_to_end(&mut back).unwrap();
    assert!(back == content, "{} bytes came back wrong", content.len());
    file.write_all_at(b"in the middle", 1_000_001).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"behind").unwrap();
    file.sync_data().unwrap();
    drop_cached_pages(&file);
    let mut piece = [0; 13];
    file.read_exact_at(&mut piece, 1_000_001).unwrap();
    assert_eq!(&piece, b"in the middle");
    assert_eq!(file.metadata().unwrap().len(), content.len() as u64 + 6);
    file.set_len(10).unwrap();
    assert_eq!(fs::read(&path).unwrap(), &content[..10]);
    drop(file);
    fs::remove_file(&path).unwrap();
}

fn names_behave(root: &Path) {
    let directory = root.join("names");
    fs::create_dir(&directory).unwrap();
    let mut names: Vec<String> = (0..3000).map(|number| format!("{number:0width$}", width = 4 + number % 97)).collect();
    for name in &names {
        fs::File::create(directory.join(name)).unwrap();
    }
    let mut seen: Vec<String> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    seen.sort();
    assert!(seen == names, "{} of {} names were listed", seen.len(), names.len());
    fs::rename(directory.join(&names[0]), root.join("renamed")).unwrap();
    assert!(!directory.join(&names[0]).exists());
    assert_eq!(fs::remove_dir(&directory).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_file(root.join("renamed")).unwrap();
    for name in &names[1..] {
        fs::remove_file(directory.join(name)).unwrap();
    }
    fs::remove_dir(&directory).unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let long = root.join("x".repeat(255));
    fs::write(&long, b"long").unwrap();
    assert_eq!(fs::read(&long).unwrap(), b"long");
    fs::remove_file(&long).unwrap();
}

fn attributes_behave(root: &Path) {
    let path = root.join("attributes");
    let file = fs::OpenOptions::new().create_new(true).write(true).mode(0o640).open(&path).unwrap();
    let before = fs::metadata(&path).unwrap();
    assert_eq!((before.mode() & 0o7777, before.nlink(), before.len()), (0o640, 1, 0));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.set_modified(time).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.mode() & 0o7777, after.uid(), after.gid()), (0o600, 12, 34));
    assert_eq!(after.modified().unwrap(), time);
    assert_eq!(fs::metadata(root.join("missing")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    drop(file);
    fs::remove_file(&path).unwrap();
}

fn direct_io_behaves(root: &Path) {
    #[repr(align(4096))]
    struct Aligned([u8; 256 * 1024]);
    let path = root.join("direct");
    let file = fs::OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    let mut block = Box::new(Aligned([0; 256 * 1024]));
    block.0.copy_from_slice(&pattern(256 * 1024, 99));
    file.write_all_at(&block.0, 0).unwrap();
    let mut back = Box::new(Aligned([0; 256 * 1024]));
    file.read_exact_at(&mut back.0, 0).unwrap();
    assert!(back.0 == block.0, "direct I/O came back wrong");
    drop(file);
    fs::remove_file(&path).unwrap();
}

#[test]
fn many_threads_at_once() {
    for choice in transports("many_threads_at_once") {
        let mut mount = TestMount::new(choice);
        for offload in [false, true] {
            mount.filesystem.offload.store(offload, Ordering::SeqCst);
            std::thread::scope(|scope| {
                for thread in 0..8_u32 {
                    let root = mount.path.join(format!("t{thread}"));
                    scope.spawn(move || {
                        fs::create_dir(&root).unwrap();
                        for number in 0..100_u32 {
                            let path = root.join(number.to_string());
                            let content = pattern(40_000, thread * 1000 + number);
                            fs::write(&path, &content).unwrap();
                            drop_cached_pages(&fs::File::open(&path).unwrap());
                            assert!(fs::read(&path).unwrap() == content);
                            fs::remove_file(&path).unwrap();
                        }
                        fs::remove_dir(&root).unwrap();
                    });
                }
            });
        }
        mount.finish().unwrap();
    }
}

/// Requests that wait in other threads hold up nobody: thousands go by before they are answered.
#[test]
fn delayed_answers_hold_up_nobody() {
    for choice in transports("delayed_answers_hold_up_nobody") {
        let mut mount = TestMount::new(choice);
        // Each ring keeps room: with all of a ring's entries waiting, its CPU would wait too.
        let slow = 6;
        // In a directory of their own: a lookup under way locks its directory against changes.
        let held = mount.path.join("held");
        fs::create_dir(&held).unwrap();
        let waiters: Vec<_> = (0..slow)
            .map(|number| {
                let path = held.join(format!("slow-{number}"));
                std::thread::spawn(move || fs::metadata(path).unwrap_err().raw_os_error())
            })
            .collect();
        let waiting = || mount.filesystem.slow_waiting.load(Ordering::SeqCst);
        assert!(eventually(|| waiting() == slow), "{choice:?}: {} of {slow} wait", waiting());
        let start = Instant::now();
        for number in 0..2000 {
            let path = mount.path.join(number.to_string());
            fs::write(&path, b"fast").unwrap();
            fs::remove_file(&path).unwrap();
        }
        let elapsed = start.elapsed();
        assert!(elapsed < WATCHDOG / 2, "{choice:?}: {elapsed:?}");
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "nothing was delayed at all");
        mount.filesystem.open_gate();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(libc::ENOENT));
        }
        mount.finish().unwrap();
    }
}

#[test]
fn a_request_dropped_unanswered_is_an_io_error() {
    for choice in transports("a_request_dropped_unanswered_is_an_io_error") {
        let mut mount = TestMount::new(choice);
        let error = fs::metadata(mount.path.join("dropped-1")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        fs::write(mount.path.join("after"), b"goes on").unwrap();
        mount.finish().unwrap();
    }
}

#[test]
fn interrupts_reach_the_handler() {
    for choice in transports("interrupts_reach_the_handler") {
        let mut mount = TestMount::new(choice);
        for (before, signal) in [libc::SIGTERM, libc::SIGKILL].into_iter().enumerate() {
            let mut command = std::process::Command::new("stat");
            let mut child = hearing_signals(&mut command).arg(mount.path.join("slow-x")).spawn().unwrap();
            let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst) - before;
            assert!(eventually(|| count(&mount.filesystem.slow_waiting) == 1));
            let pid = i32::try_from(child.id()).unwrap();
            // SAFETY: signals a child of ours that was not waited for yet.
            assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
            let cancelled = || count(&mount.filesystem.slow_cancelled) == 1;
            assert!(eventually(cancelled), "{choice:?}: signal {signal} did not cancel the request");
            assert!(!child.wait().unwrap().success());
            assert!(eventually(|| count(&mount.filesystem.interrupted) == 1));
        }
        fs::write(mount.path.join("after"), b"goes on").unwrap();
        mount.finish().unwrap();
    }
}

#[test]
fn notifications_make_the_kernel_ask_again() {
    for choice in transports("notifications_make_the_kernel_ask_again") {
        let mut mount = TestMount::new(choice);
        let path = mount.path.join("file");
        fs::write(&path, b"x").unwrap();
        let node = fs::metadata(&path).unwrap().ino();
        let counts = || {
            fs::metadata(&path).unwrap();
            let filesystem = &mount.filesystem;
            (filesystem.lookups.load(Ordering::SeqCst), filesystem.getattrs.load(Ordering::SeqCst))
        };
        let cached = counts();
        assert_eq!(counts(), cached, "attributes are cached");
        let notifier = mount.session().notifier();
        notifier.invalidate_inode(node, 0, 0).unwrap();
        assert_eq!(counts(), (cached.0, cached.1 + 1));
        notifier.invalidate_entry(1, b"file").unwrap();
        assert_eq!(counts().0, cached.0 + 1);
        let lookups = counts().0;
        notifier.delete(1, node, b"file").unwrap();
        assert_eq!(counts().0, lookups + 1);
        notifier.delete(1, node, b"never heard of").unwrap();
        notifier.invalidate_entry(1, b"never heard of").unwrap();
        notifier.invalidate_inode(1 << 40, 0, 0).unwrap();
        fs::remove_file(&path).unwrap();
        mount.finish().unwrap();
    }
}

#[test]
fn flush_can_be_switched_off() {
    for choice in transports("flush_can_be_switched_off") {
        for unsupported in [false, true] {
            let mut mount = TestMount::with(choice, |options| options.init.flush_unsupported = unsupported);
            for number in 0..10 {
                fs::write(mount.path.join(number.to_string()), b"x").unwrap();
            }
            let flushes = mount.filesystem.flushes.load(Ordering::SeqCst);
            assert_eq!(flushes, if unsupported { 0 } else { 10 });
            mount.finish().unwrap();
        }
    }
}

/// A fuseblk mount hears sync(2) and is waited for at unmount; a plain one is not. Its loop device goes away.
#[test]
fn syncfs_arrives_at_block_device_mounts() {
    for choice in transports("syncfs_arrives_at_block_device_mounts") {
        if !Path::new("/dev/loop-control").exists() {
            say("SKIPPED: syncfs_arrives_at_block_device_mounts: no loop devices");
            return;
        }
        for block_device in [BlockDevice::No, BlockDevice::Required] {
            let mut mount = TestMount::with(choice, |options| options.mount.block_device = block_device);
            let fuseblk = block_device == BlockDevice::Required;
            assert_eq!(mount.session().negotiated().syncfs, fuseblk);
            assert_eq!(source_of(&mount.path), "test");
            let device = device_of(&mount.path);
            assert_eq!(device.is_some(), fuseblk, "{device:?}");
            fs::write(mount.path.join("file"), b"dirty").unwrap();
            let directory = fs::File::open(&mount.path).unwrap();
            // SAFETY: a live descriptor.
            assert_eq!(unsafe { libc::syncfs(directory.as_raw_fd()) }, 0);
            drop(directory);
            let syncs = mount.filesystem.syncfs.load(Ordering::SeqCst);
            // Other tests may sync too, so more than one is fine.
            assert_eq!(syncs > 0, fuseblk, "{choice:?}: {syncs}");
            let filesystem = std::sync::Arc::clone(&mount.filesystem);
            mount.session().unmounter().unmount(Unmount::Normal).unwrap();
            // At once: umount(2) has waited for the answer.
            assert_eq!(filesystem.destroys.load(Ordering::SeqCst), usize::from(fuseblk), "{choice:?}");
            mount.session.take().unwrap().join().unwrap();
            if let Some(device) = device {
                let backing = device.join("loop/backing_file");
                let ours = || fs::read_to_string(&backing).is_ok_and(|text| text.contains("memfd:fuse-wire"));
                let taken_again = || every_device().contains(&device);
                assert!(eventually(|| !ours() || taken_again()), "{device:?} was not freed");
            }
        }
    }
}

fn is_mounted(mountpoint: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == mountpoint.to_str())
}

fn source_of(mountpoint: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == mountpoint.to_str()).unwrap();
    line.split(' ').next().unwrap().to_owned()
}

/// The loop device under a mount, in sysfs.
fn device_of(mountpoint: &Path) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == mountpoint.to_str()).unwrap();
    device_in(line)
}

fn every_device() -> Vec<PathBuf> {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter_map(device_in).collect()
}

fn device_in(line: &str) -> Option<PathBuf> {
    let number = line.split(' ').nth(2)?;
    number.starts_with("7:").then(|| fs::canonicalize(format!("/sys/dev/block/{number}")).unwrap())
}

#[test]
fn an_open_file_keeps_the_mount_busy() {
    for choice in transports("an_open_file_keeps_the_mount_busy") {
        let mut mount = TestMount::new(choice);
        let file = fs::File::create(mount.path.join("open")).unwrap();
        let unmounter = mount.session().unmounter();
        let error = unmounter.unmount(Unmount::Normal).unwrap_err();
        assert!(matches!(error, Error::UnmountBusy { .. }), "{error}");
        assert!(!mount.session().has_ended());
        drop(file);
        mount.finish().unwrap();
        unmounter.unmount(Unmount::Normal).unwrap();
    }
}

#[test]
fn a_panicking_handler_takes_the_session_down() {
    for choice in transports("a_panicking_handler_takes_the_session_down") {
        let mut mount = TestMount::new(choice);
        fs::write(mount.path.join("before"), b"x").unwrap();
        assert!(fs::metadata(mount.path.join("panic-1")).is_err());
        let session = mount.session.take().unwrap();
        let error = session.join().unwrap_err();
        assert!(matches!(error, Error::HandlerPanicked), "{error}");
        assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 0, "a dead mount is left");
    }
}

#[test]
fn dropping_a_session_unmounts() {
    for choice in transports("dropping_a_session_unmounts") {
        let path = mount_point();
        let session = Session::mount(Hooked::new(), &path, &options(choice)).unwrap();
        fs::write(path.join("file"), b"x").unwrap();
        drop(session);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        fs::remove_dir(&path).unwrap();
    }
}

/// Kept requests are answered after the connection broke: no crash, and `join` waits for them.
#[test]
fn answers_after_the_end_are_harmless() {
    for choice in transports("answers_after_the_end_are_harmless") {
        let mut mount = TestMount::new(choice);
        let path = mount.path.join("slow-late");
        let waiter = std::thread::spawn(move || fs::metadata(path).unwrap_err().raw_os_error());
        assert!(eventually(|| mount.filesystem.slow_waiting.load(Ordering::SeqCst) == 1));
        let session = mount.session.take().unwrap();
        session.unmounter().unmount(Unmount::Force).unwrap();
        // The end of the session cancels the request, its worker answers, and the threads can end.
        session.join().unwrap();
        assert_eq!(mount.filesystem.slow_cancelled.load(Ordering::SeqCst), 1);
        assert!(matches!(waiter.join().unwrap(), Some(libc::ECONNABORTED | libc::ENOTCONN)));
    }
}

#[test]
fn unusable_mount_points_are_refused_with_advice() {
    if transports("unusable_mount_points_are_refused_with_advice").is_empty() {
        return;
    }
    let result = Session::mount(Hooked::new(), "/no/such/place".as_ref(), &options(TransportChoice::Auto));
    let message = result.unwrap_err().to_string();
    assert!(message.contains("/no/such/place") && message.contains("create the directory"), "{message}");
}

/// A session that takes its time to end must not take the next mount on the same place with it.
#[test]
fn a_late_end_spares_the_next_mount() {
    for choice in transports("a_late_end_spares_the_next_mount") {
        let mut mount = TestMount::new(choice);
        mount.filesystem.ignore_cancel.store(true, Ordering::SeqCst);
        let path = mount.path.join("slow-late");
        let waiter = std::thread::spawn(move || fs::metadata(path).is_err());
        assert!(eventually(|| mount.filesystem.slow_waiting.load(Ordering::SeqCst) == 1));
        let session = mount.session.take().unwrap();
        session.unmounter().unmount(Unmount::Force).unwrap();
        assert!(waiter.join().unwrap());
        let next = Session::mount(Hooked::new(), &mount.path, &options(choice)).unwrap();
        mount.filesystem.open_gate();
        session.join().unwrap();
        assert!(is_mounted(&mount.path), "the next mount was taken down");
        fs::write(mount.path.join("still"), b"here").unwrap();
        next.unmounter().unmount(Unmount::Normal).unwrap();
        next.join().unwrap();
    }
}

/// The administrator's way out: the session ends, says so, and leaves no dead mount.
#[test]
fn an_abort_is_told_and_cleaned_up() {
    for choice in transports("an_abort_is_told_and_cleaned_up") {
        let mut mount = TestMount::new(choice);
        fs::write(mount.path.join("file"), b"x").unwrap();
        let control = mount_point();
        let mounted =
            std::process::Command::new("mount").args(["-t", "fusectl", "none"]).arg(&control).status().unwrap();
        assert!(mounted.success());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(4) == mount.path.to_str()).unwrap();
        let minor = line.split(' ').nth(2).unwrap().trim_start_matches("0:").to_owned();
        let aborted = fs::write(control.join(minor).join("abort"), "1");
        assert!(std::process::Command::new("umount").arg(&control).status().unwrap().success());
        fs::remove_dir(&control).unwrap();
        aborted.unwrap();
        let error = mount.session.take().unwrap().join().unwrap_err();
        assert!(matches!(error, Error::Aborted), "{error}");
        assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 0, "a dead mount is left");
    }
}
