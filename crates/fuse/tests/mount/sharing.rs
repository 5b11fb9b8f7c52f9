//! Many at once: writers, readers, locks, and that a slow request holds up no other.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use stere_device::Operation;

use crate::calls::{self, Mapping, errno};
use crate::{WATCHDOG, finish, memory, mount_on, on_both, options, pattern, transports};

#[test]
fn writers_of_many_files_and_of_one() {
    const WRITERS: usize = 8;
    on_both("writers_of_many_files_and_of_one", |_, root| {
        let shared =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(root.join("shared")).unwrap();
        let barrier = Barrier::new(WRITERS);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (shared, barrier) = (&shared, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for round in 0..40_usize {
                        let data = pattern(10_000 + round, (writer * 1000 + round) as u64);
                        let path = root.join(format!("{writer}-{round}"));
                        fs::write(&path, &data).unwrap();
                        // Places of all writers alternate.
                        shared.write_all_at(&data[..10_000], ((round * WRITERS + writer) * 10_000) as u64).unwrap();
                        if round % 8 == writer % 8 {
                            shared.sync_data().unwrap();
                        }
                        fs::rename(&path, root.join(format!("renamed-{writer}-{round}"))).unwrap();
                        if round % 3 == 0 {
                            fs::remove_file(root.join(format!("renamed-{writer}-{round}"))).unwrap();
                        }
                    }
                });
            }
        });
        calls::drop_caches();
        let all = fs::read(root.join("shared")).unwrap();
        for writer in 0..WRITERS {
            for round in 0..40 {
                let data = pattern(10_000 + round, (writer * 1000 + round) as u64);
                let at = (round * WRITERS + writer) * 10_000;
                assert!(all[at..at + 10_000] == data[..10_000], "writer {writer}, round {round}");
                let path = root.join(format!("renamed-{writer}-{round}"));
                assert_eq!(path.exists(), round % 3 != 0);
                assert!(round % 3 == 0 || fs::read(&path).unwrap() == data);
            }
        }
    });
}

#[test]
fn locks_exclude_others() {
    on_both("locks_exclude_others", |_, root| {
        let path = root.join("locked");
        let open = || OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).unwrap();
        let (first, second) = (open(), open());
        // SAFETY: live descriptors.
        let flock = |file: &File, how: i32| unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) };
        assert_eq!(flock(&first, libc::LOCK_EX), 0);
        assert_eq!(flock(&second, libc::LOCK_SH), -1);
        assert_eq!(flock(&first, libc::LOCK_SH), 0);
        assert_eq!(flock(&second, libc::LOCK_SH), 0);
        // Byte ranges, of open files rather than processes, so that one process can test them.
        let range = |file: &File, start: i64, kind: i32| {
            // SAFETY: zeros are a valid flock structure.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_start, lock.l_len) = (i16::try_from(kind).unwrap(), start, 10);
            // SAFETY: a live descriptor and structure.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }
        };
        assert_eq!(range(&first, 0, libc::F_WRLCK), 0);
        assert_eq!(range(&second, 5, libc::F_RDLCK), -1);
        assert_eq!(range(&second, 10, libc::F_WRLCK), 0);
        assert_eq!(range(&first, 0, libc::F_UNLCK), 0);
        assert_eq!(range(&second, 5, libc::F_RDLCK), 0);
    });
}

/// A byte range of a process's own; gives what the kernel wrote into the structure.
fn lock_range(file: &File, command: i32, start: i64, kind: i32) -> std::io::Result<libc::flock> {
    // SAFETY: zeros are a valid flock structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_start, lock.l_len) = (i16::try_from(kind).unwrap(), start, 10);
    // SAFETY: a live descriptor and structure.
    calls::done(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) })?;
    Ok(lock)
}

#[test]
fn locks_exclude_other_processes_and_end_with_theirs() {
    on_both("locks_exclude_other_processes_and_end_with_theirs", |_, root| {
        let path = root.join("locked");
        let open = || OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).unwrap();
        let ours = open();
        lock_range(&ours, libc::F_SETLK, 0, libc::F_WRLCK).unwrap();
        // SAFETY: a live descriptor.
        assert_eq!(unsafe { libc::flock(ours.as_raw_fd(), libc::LOCK_EX) }, 0);
        let parent = i32::try_from(std::process::id()).unwrap();
        calls::in_child(|| {
            let theirs = open();
            assert_eq!(errno(lock_range(&theirs, libc::F_SETLK, 5, libc::F_RDLCK)), libc::EAGAIN);
            let found = lock_range(&theirs, libc::F_GETLK, 5, libc::F_RDLCK).unwrap();
            assert_eq!((i32::from(found.l_type), found.l_start, found.l_pid), (libc::F_WRLCK, 0, parent));
            lock_range(&theirs, libc::F_SETLK, 10, libc::F_WRLCK).unwrap();
            // SAFETY: a live descriptor.
            let locked = calls::done(unsafe { libc::flock(theirs.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) });
            assert_eq!(errno(locked), libc::EWOULDBLOCK);
        });
        // What the child held ended with it.
        lock_range(&ours, libc::F_SETLK, 10, libc::F_WRLCK).unwrap();
    });
}

/// Whoever finds a name can open it and sees one whole version, however fast it is replaced.
#[test]
fn names_that_are_replaced_can_always_be_opened() {
    on_both("names_that_are_replaced_can_always_be_opened", |_, root| {
        let name = |number: usize| root.join(format!("name-{}", number % 2));
        for number in 0..2 {
            fs::write(name(number), [b'0'; 5000]).unwrap();
        }
        let until = Instant::now() + Duration::from_secs(2);
        std::thread::scope(|scope| {
            for writer in 0..4_usize {
                scope.spawn(move || {
                    let own = root.join(format!("new-{writer}"));
                    for round in writer.. {
                        if Instant::now() > until {
                            break;
                        }
                        fs::write(&own, [b'a' + (round % 26) as u8; 5000]).unwrap();
                        fs::rename(&own, name(round / 3)).unwrap();
                    }
                });
                scope.spawn(move || {
                    for round in writer.. {
                        if Instant::now() > until {
                            break;
                        }
                        let data = fs::read(name(round)).unwrap();
                        assert!(data.len() == 5000 && data.iter().all(|byte| *byte == data[0]), "a torn version");
                    }
                });
            }
        });
    });
}

/// P-14: a slow request delays no other.
#[test]
fn slow_flushes_hold_up_no_other_request() {
    for transport in transports("slow_flushes_hold_up_no_other_request") {
        let device = memory();
        let mounted = mount_on(&[Arc::clone(&device)], &options(transport));
        let root = mounted.path.clone();
        fs::write(root.join("known"), "K").unwrap();
        let (slow, flushing) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (hook_slow, hook_flushing) = (Arc::clone(&slow), Arc::clone(&flushing));
        device.set_fault_hook(Some(Box::new(move |operation, _, _| {
            if operation == Operation::Flush {
                hook_flushing.fetch_add(1, Ordering::SeqCst);
                while hook_slow.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            None
        })));
        std::thread::scope(|scope| {
            for number in 0..16 {
                let file = File::create(root.join(format!("synced-{number}"))).unwrap();
                file.write_all_at(b"S", 0).unwrap();
                scope.spawn(move || file.sync_all().unwrap());
            }
            while flushing.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(50));
            // Everything else goes on meanwhile.
            let started = Instant::now();
            assert_eq!(fs::read(root.join("known")).unwrap(), b"K");
            for number in 0..100 {
                let path = root.join(format!("meanwhile-{number}"));
                fs::write(&path, pattern(5000, number)).unwrap();
                assert!(fs::read(&path).unwrap() == pattern(5000, number));
                fs::rename(&path, root.join("renamed")).unwrap();
            }
            assert_eq!(fs::read_dir(&root).unwrap().count(), 18);
            let elapsed = started.elapsed();
            slow.store(false, Ordering::SeqCst);
            assert!(elapsed < WATCHDOG / 4, "others waited for the flush: {elapsed:?}");
        });
        device.set_fault_hook(None);
        finish(mounted);
    }
}

#[test]
fn waiting_reads_overlap() {
    const FILES: usize = 16;
    const OVERLAPPING: usize = FILES * 3 / 4;
    for transport in transports("waiting_reads_overlap") {
        let device = memory();
        let mounted = mount_on(&[Arc::clone(&device)], &options(transport));
        let root = mounted.path.clone();
        for number in 0..FILES {
            fs::write(root.join(format!("{number}")), pattern(300_000, number as u64)).unwrap();
        }
        mounted.filesystem.syncfs(&crate::support::caller()).unwrap();
        let files: Vec<_> = (0..FILES).map(|number| File::open(root.join(format!("{number}"))).unwrap()).collect();
        calls::drop_caches();
        let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (hook_now, hook_peak) = (Arc::clone(&now), Arc::clone(&peak));
        device.set_fault_hook(Some(Box::new(move |operation, _, length| {
            if operation == Operation::Read && length > 0 {
                hook_peak.fetch_max(hook_now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Until enough of them wait together; how long that takes is the machine's business.
                let began = Instant::now();
                while hook_peak.load(Ordering::SeqCst) < OVERLAPPING && began.elapsed() < WATCHDOG / 20 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                hook_now.fetch_sub(1, Ordering::SeqCst);
            }
            None
        })));
        std::thread::scope(|scope| {
            for (number, file) in files.iter().enumerate() {
                scope.spawn(move || {
                    let mut back = vec![0; 4096];
                    file.read_exact_at(&mut back, 200_704).unwrap();
                    assert!(back == pattern(300_000, number as u64)[200_704..204_800]);
                });
            }
        });
        device.set_fault_hook(None);
        let peak = peak.load(Ordering::SeqCst);
        assert!(peak >= OVERLAPPING, "only {peak} of {FILES} reads overlapped");
        drop(files);
        finish(mounted);
    }
}

/// Starts a program that was just written. A child that another test forked may have it open for writing a moment longer.
fn start(program: &Path) -> Child {
    let began = Instant::now();
    loop {
        match Command::new(program).arg("1000").spawn() {
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) && began.elapsed() < WATCHDOG / 4 => {
                std::thread::sleep(Duration::from_millis(5));
            }
            started => return started.unwrap(),
        }
    }
}

#[test]
fn running_programs_are_not_written() {
    on_both("running_programs_are_not_written", |_, root| {
        for round in 0..10 {
            let program = root.join(format!("sleep-{round}"));
            fs::copy("/bin/sleep", &program).unwrap();
            let mut running = start(&program);
            for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC, libc::O_WRONLY | libc::O_TRUNC]
            {
                assert_eq!(errno(calls::open(&program, flags, 0)), libc::ETXTBSY, "flags {flags:o}");
            }
            assert_eq!(running.try_wait().unwrap(), None, "it still runs");
            running.kill().unwrap();
            running.wait().unwrap();
            assert!(fs::read(&program).unwrap() == fs::read("/bin/sleep").unwrap());
        }
    });
}

#[test]
fn mappings_of_many_writers() {
    on_both("mappings_of_many_writers", |_, root| {
        let file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(root.join("map")).unwrap();
        file.set_len(4 << 20).unwrap();
        let write = |writer: usize| {
            let mut mapping = Mapping::new(&file, 4 << 20);
            let data = pattern(1 << 20, writer as u64);
            mapping.bytes()[writer << 20..(writer + 1) << 20].copy_from_slice(&data);
            mapping.sync();
        };
        calls::in_child(|| {
            std::thread::scope(|scope| (0..4).for_each(|writer| _ = scope.spawn(move || write(writer))));
        });
        drop(file);
        calls::drop_caches();
        let all = fs::read(root.join("map")).unwrap();
        for writer in 0..4 {
            assert!(all[writer << 20..(writer + 1) << 20] == pattern(1 << 20, writer as u64), "writer {writer}");
        }
    });
}
