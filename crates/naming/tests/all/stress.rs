//! Many threads on one file system over slow devices, with little memory, then a power cut: what was fsynced is there, and every
//! count is right. Then the ways in which removed files were kept for ever, each alone.

use crate::store_support as support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stere_naming::{
    Caller, Error, FileSystem, Io, OpenFlags, Options, RENAME_EXCHANGE, ROOT, SetAttributes, Timestamp, check,
};
use stere_store::Store;
use support::{Random, Rig, Watchdog, duration, seed};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };
const BLOCK: u64 = 4096;
/// Blocks of a file of a thread's own.
const BLOCKS: u64 = 160;
const WORKERS: usize = 6;

fn caller<'a>(io: Io<'a>) -> Caller<'a> {
    let now = Timestamp { seconds: 5, nanoseconds: 0 };
    Caller { uid: 0, gid: 0, groups: &[], umask: 0o022, now, io, process: 0, request: None }
}

fn file_system(store: Store) -> FileSystem {
    // So little that writers keep saving each other's files.
    let files = stere_file::Options { dirty_bytes_max: 1 << 20, ..stere_file::Options::default() };
    FileSystem::new(Arc::new(store), Options { files, ..Options::default() }).expect("a file system")
}

fn formatted(store: Store) -> FileSystem {
    FileSystem::format(&store, caller(Io::BLOCKING).now).expect("a root");
    store.commit(Io::BLOCKING).expect("the root is durable");
    file_system(store)
}

/// First without waiting, then with.
fn ask<T>(fs: &FileSystem, call: impl Fn(&FileSystem, &Caller<'_>) -> Result<T, Error>) -> Result<T, Error> {
    match call(fs, &caller(Io::NON_BLOCKING)) {
        Err(Error::WouldBlock) => call(fs, &caller(Io::BLOCKING)),
        outcome => outcome,
    }
}

fn fill(inode: u64, block: u64, version: u64) -> Vec<u8> {
    let words = [inode, block, version, inode ^ block << 20 ^ version << 40];
    let line: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    line.repeat(BLOCK as usize / line.len())
}

/// The version of a block as it was read; zeros are version 0.
fn version(inode: u64, block: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
    if version == 0 {
        assert!(bytes.iter().all(|byte| *byte == 0), "inode {inode}, block {block}");
    } else {
        assert!(bytes == fill(inode, block, version), "inode {inode}, block {block}, version {version}");
    }
    version
}

fn read_block(fs: &FileSystem, inode: u64, block: u64) -> u64 {
    let mut out = vec![0; BLOCK as usize];
    let io = caller(Io::BLOCKING);
    let length = fs.read(&io, inode, block * BLOCK, &mut out).expect("a read");
    out[length..].fill(0);
    version(inode, block, &out)
}

/// The inode of a file and, for each block, what it may hold after a power cut: what was made durable, and all since.
type Model = (u64, Vec<Vec<u64>>);

struct Shared<'a> {
    fs: &'a FileSystem,
    watchdog: &'a Watchdog,
    until: Instant,
}

fn own_file(shared: &Shared<'_>, worker: usize, mut random: Random) -> Model {
    let fs = shared.fs;
    let name = format!("own{worker}");
    let (made, handle) = ask(fs, |fs, c| fs.create(c, ROOT, name.as_bytes(), 0o644, FLAGS)).expect("a new file");
    let inode = made.inode;
    ask(fs, |fs, c| fs.fsync(c, inode, false)).expect("fsync");
    let mut model = vec![vec![0]; BLOCKS as usize];
    let mut newest = 0;
    while Instant::now() < shared.until {
        let block = random.below(BLOCKS);
        let most = if random.below(4) == 0 { 70 } else { 3 };
        let blocks = block..BLOCKS.min(block + 1 + random.below(most));
        match random.below(12) {
            0..=6 => {
                shared.watchdog.step(worker, "writing");
                newest += 1;
                let data: Vec<u8> = blocks.clone().flat_map(|block| fill(inode, block, newest)).collect();
                let written = ask(fs, |fs, c| fs.write(c, inode, block * BLOCK, &data, false)).expect("a write");
                assert_eq!(written, data.len());
                blocks.for_each(|block| model[block as usize].push(newest));
            }
            7 => {
                shared.watchdog.step(worker, "fsync");
                ask(fs, |fs, c| fs.fsync(c, inode, false)).expect("fsync");
                model.iter_mut().for_each(|versions| drop(versions.drain(..versions.len() - 1)));
            }
            8 => {
                shared.watchdog.step(worker, "cutting");
                let set = SetAttributes { size: Some(block * BLOCK), ..SetAttributes::default() };
                ask(fs, |fs, c| fs.setattr(c, inode, &set)).expect("truncating");
                model[block as usize..].iter_mut().for_each(|versions| versions.push(0));
            }
            _ => {
                shared.watchdog.step(worker, "reading");
                assert_eq!(
                    Some(&read_block(fs, inode, block)),
                    model[block as usize].last(),
                    "inode {inode}, block {block}"
                );
            }
        }
    }
    ask(fs, |fs, c| fs.release(c, inode, handle)).expect("closing");
    (inode, model)
}

/// What a call on names that others change too may answer.
fn allowed<T>(outcome: Result<T, Error>) {
    match outcome {
        Ok(_) | Err(Error::NotFound | Error::Exists | Error::Stale | Error::IsADirectory | Error::NotADirectory) => {}
        Err(error) => panic!("{error}"),
    }
}

fn shared_names(shared: &Shared<'_>, worker: usize, mut random: Random) {
    let fs = shared.fs;
    while Instant::now() < shared.until {
        let name = format!("n{}", random.below(6)).into_bytes();
        let other = format!("n{}", random.below(6)).into_bytes();
        match random.below(8) {
            0..=2 => {
                shared.watchdog.step(worker, "creating");
                let Ok((made, handle)) = ask(fs, |fs, c| fs.create(c, ROOT, &name, 0o644, FLAGS)) else { continue };
                let (at, data) = (random.below(1 << 20), vec![1; random.below(300_000) as usize]);
                allowed(ask(fs, |fs, c| fs.write(c, made.inode, at, &data, false)));
                if random.below(8) == 0 {
                    allowed(ask(fs, |fs, c| fs.fsync(c, made.inode, false)));
                }
                allowed(ask(fs, |fs, c| fs.release(c, made.inode, handle)));
            }
            3 => {
                shared.watchdog.step(worker, "unlinking");
                allowed(ask(fs, |fs, c| fs.unlink(c, ROOT, &name)));
            }
            4 => {
                shared.watchdog.step(worker, "renaming");
                let flags = if random.below(2) == 0 { 0 } else { RENAME_EXCHANGE };
                allowed(ask(fs, |fs, c| fs.rename(c, ROOT, &name, ROOT, &other, flags)));
            }
            5 => {
                shared.watchdog.step(worker, "linking");
                let Ok(found) = ask(fs, |fs, c| fs.lookup(c, ROOT, &name)) else { continue };
                allowed(ask(fs, |fs, c| fs.link(c, found.inode, ROOT, &other)));
            }
            _ => {
                shared.watchdog.step(worker, "reading names' files");
                let Ok(found) = ask(fs, |fs, c| fs.lookup(c, ROOT, &name)) else { continue };
                let mut out = vec![0; 100_000];
                let at = random.below(1 << 20);
                allowed(fs.read(&caller(Io::BLOCKING), found.inode, at, &mut out));
            }
        }
    }
}

fn background(fs: &FileSystem, over: &AtomicBool, seed: u64) {
    let mut random = Random(seed);
    while !over.load(Ordering::SeqCst) {
        fs.step(&caller(Io::BLOCKING), 8).expect("a step");
        fs.store().step(true).expect("a step of the store");
        match random.below(40) {
            0 => fs.store().checkpoint().expect("a checkpoint"),
            1 => fs.syncfs(&caller(Io::BLOCKING)).expect("sync"),
            _ => std::thread::sleep(Duration::from_micros(random.below(2000))),
        }
    }
}

fn finish_orphans(fs: &FileSystem) {
    for _ in 0..10_000 {
        if !fs.step(&caller(Io::BLOCKING), 100).expect("a step") {
            return;
        }
    }
    panic!("steps always say that there is more to do");
}

fn assert_clean(fs: &FileSystem) {
    assert_eq!(check(fs.store()).expect("the check runs"), []);
    assert_eq!(fs.store().checker.check(true).expect("the check runs").findings, []);
}

#[test]
fn what_was_fsynced_survives_whatever_runs_beside() {
    let seed = seed();
    let (rig, store) = Rig::new(2, 192 << 20, 8 << 20, seed, 200);
    let fs = formatted(store);
    let (watchdog, over) = (Watchdog::new(WORKERS), AtomicBool::new(false));
    let shared = Shared { fs: &fs, watchdog: &watchdog, until: Instant::now() + duration() };
    let models: Vec<Model> = std::thread::scope(|scope| {
        scope.spawn(|| watchdog.watch());
        let background = scope.spawn(|| background(&fs, &over, seed));
        let shared = &shared;
        let random = move |worker: usize| Random(seed ^ (worker as u64) << 32);
        let own: Vec<_> =
            (0..WORKERS / 2).map(|worker| scope.spawn(move || own_file(shared, worker, random(worker)))).collect();
        let names: Vec<_> = (WORKERS / 2..WORKERS)
            .map(|worker| scope.spawn(move || shared_names(shared, worker, random(worker))))
            .collect();
        let names: Vec<_> = names.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        let own: Vec<_> = own.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        watchdog.end();
        background.join().expect("the background");
        names.into_iter().for_each(|outcome| outcome.expect("a thread on names"));
        own.into_iter().map(|outcome| outcome.expect("a thread on its own file")).collect()
    });
    println!("{} steps", watchdog.steps());
    finish_orphans(&fs);
    fs.syncfs(&caller(Io::BLOCKING)).expect("sync");
    assert_clean(&fs);
    // What was done since the last fsync of each file is durable too by now.
    for (inode, model) in &models {
        for (block, versions) in model.iter().enumerate() {
            assert_eq!(Some(&read_block(&fs, *inode, block as u64)), versions.last(), "inode {inode}, block {block}");
        }
    }
    drop(rig);
}

/// The same with the power cut at once: only what was fsynced must be there, and nothing must be there that never was.
#[test]
fn a_power_cut_amid_work_keeps_what_was_fsynced() {
    let seed = seed();
    let (rig, store) = Rig::new(2, 192 << 20, 8 << 20, seed, 200);
    let fs = formatted(store);
    let (watchdog, over) = (Watchdog::new(WORKERS), AtomicBool::new(false));
    let shared = Shared { fs: &fs, watchdog: &watchdog, until: Instant::now() + duration() };
    let models: Vec<Model> = std::thread::scope(|scope| {
        scope.spawn(|| watchdog.watch());
        let background = scope.spawn(|| background(&fs, &over, seed));
        let shared = &shared;
        let own: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || own_file(shared, worker, Random(seed ^ (worker as u64) << 32))))
            .collect();
        let own: Vec<_> = own.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        watchdog.end();
        background.join().expect("the background");
        own.into_iter().map(|outcome| outcome.expect("a thread on its own file")).collect()
    });
    println!("{} steps", watchdog.steps());
    let store = rig.crash(fs, &mut Random(!seed));
    let fs = file_system(store);
    finish_orphans(&fs);
    for (inode, model) in &models {
        for (block, versions) in model.iter().enumerate() {
            let found = read_block(&fs, *inode, block as u64);
            assert!(versions.contains(&found), "inode {inode}, block {block}: {found}, not one of {versions:?}");
        }
    }
    assert_clean(&fs);
}

/// Threads make the same file at once: some of them open what one has just made, before that one goes on.
#[test]
fn a_file_opened_by_others_as_it_is_made_keeps_what_all_write() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 1500;
    // Steps of less than what each writes, so that all of the file is written and records are replaced in part.
    const STEP: u64 = 24;
    let (_rig, store) = Rig::new(1, 128 << 20, 32 << 20, 1, 0);
    let fs = formatted(store);
    let start = std::sync::Barrier::new(THREADS as usize);
    let lost = AtomicBool::new(false);
    let worker = |worker: u64| {
        let io = caller(Io::BLOCKING);
        for round in 0..ROUNDS {
            let name = format!("n{round}").into_bytes();
            start.wait();
            let (made, handle) = fs.create(&io, ROOT, &name, 0o644, FLAGS).expect("a new file");
            let blocks = worker * STEP..worker * STEP + 40;
            let data: Vec<u8> = blocks.clone().flat_map(|block| fill(made.inode, block, 1 + worker)).collect();
            // A thread that panics would leave the others waiting.
            let written = fs.write(&io, made.inode, blocks.start * BLOCK, &data, false);
            let closed = fs.release(&io, made.inode, handle);
            if written.is_err() || closed.is_err() {
                lost.store(true, Ordering::SeqCst);
            }
            if start.wait().is_leader() {
                let mut out = vec![0; BLOCK as usize];
                for block in 0..THREADS * STEP {
                    let read = fs.read(&io, made.inode, block * BLOCK, &mut out);
                    if read.is_err() || out.iter().all(|byte| *byte == 0) {
                        lost.store(true, Ordering::SeqCst);
                    }
                }
                if fs.unlink(&io, ROOT, &name).is_err() {
                    lost.store(true, Ordering::SeqCst);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let worker = &worker;
        (0..THREADS).for_each(|number| drop(scope.spawn(move || worker(number))));
    });
    assert!(!lost.load(Ordering::SeqCst), "what one of the threads wrote is lost");
    finish_orphans(&fs);
    assert_clean(&fs);
}

/// A file of so many extents that they do not go in one step.
fn large_file(fs: &FileSystem, name: &[u8]) -> (u64, stere_naming::Handle) {
    let io = caller(Io::BLOCKING);
    let (made, handle) = fs.create(&io, ROOT, name, 0o644, FLAGS).expect("a new file");
    for record in 0..1500 {
        fs.write(&io, made.inode, record * 131_072, &[1; 4096], false).expect("a write");
    }
    fs.fsync(&io, made.inode, false).expect("fsync");
    (made.inode, handle)
}

#[test]
fn a_removed_file_that_is_cut_while_open_is_freed() {
    let (_rig, store) = Rig::new(1, 128 << 20, 32 << 20, 1, 0);
    let (fs, io) = (formatted(store), caller(Io::BLOCKING));
    let (inode, handle) = large_file(&fs, b"large");
    fs.unlink(&io, ROOT, b"large").expect("unlinking");
    let set = SetAttributes { size: Some(4096), ..SetAttributes::default() };
    fs.setattr(&io, inode, &set).expect("truncating");
    fs.release(&io, inode, handle).expect("closing");
    finish_orphans(&fs);
    assert!(matches!(fs.getattr(&io, inode), Err(Error::Stale)), "the inode is kept for ever");
    assert_clean(&fs);
}

#[test]
fn open_removed_files_do_not_keep_others_from_being_freed() {
    let (_rig, store) = Rig::new(1, 128 << 20, 32 << 20, 1, 0);
    let (fs, io) = (formatted(store), caller(Io::BLOCKING));
    let mut open = Vec::new();
    for number in 0..8 {
        let name = format!("open{number}").into_bytes();
        let (made, handle) = fs.create(&io, ROOT, &name, 0o644, FLAGS).expect("a new file");
        fs.unlink(&io, ROOT, &name).expect("unlinking");
        open.push((made.inode, handle));
    }
    let (inode, handle) = large_file(&fs, b"large");
    fs.release(&io, inode, handle).expect("closing");
    fs.unlink(&io, ROOT, b"large").expect("unlinking");
    for _ in 0..100 {
        if !fs.step(&io, 4).expect("a step") {
            break;
        }
    }
    assert!(matches!(fs.getattr(&io, inode), Err(Error::Stale)), "the large file is not freed");
    assert!(!fs.step(&io, 4).expect("a step"), "there is nothing to do while the others are open");
    open.into_iter().for_each(|(inode, handle)| fs.release(&io, inode, handle).expect("closing"));
    finish_orphans(&fs);
    assert_clean(&fs);
}
