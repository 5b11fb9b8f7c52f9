//! Many threads at once on the same names and files, while steps, syncs and checkpoints go on: nobody deadlocks, every
//! thread reads what it wrote, and every count is right in the end.

use crate::support;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use stere_naming::{
    Caller, Error, FileSystem, Io, KEEP_SIZE, OpenFlags, PUNCH_HOLE, RENAME_EXCHANGE, ROOT, SetAttributes,
};
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };

/// A small generator; the seed is the thread's number.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// First without waiting, then with.
fn ask<T>(fs: &FileSystem, call: impl Fn(&FileSystem, &Caller<'_>) -> Result<T, Error>) -> Result<T, Error> {
    match call(fs, &Caller { io: Io::NON_BLOCKING, ..caller(5) }) {
        Err(Error::WouldBlock) => call(fs, &caller(5)),
        outcome => outcome,
    }
}

/// What a call on names that others change too may answer.
fn allowed(outcome: Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::NotFound | Error::Exists | Error::Stale | Error::IsADirectory | Error::NotADirectory) => {}
        Err(error) => panic!("{error}"),
    }
}

/// A file of the thread's own, compared with a copy in memory.
fn own_file(fs: &FileSystem, thread: u64, rounds: usize) {
    let mut random = Random(thread);
    let name = format!("own{thread}");
    let (made, handle) = ask(fs, |fs, c| fs.create(c, ROOT, name.as_bytes(), 0o644, FLAGS)).expect("a new file");
    let mut copy = Vec::new();
    for round in 0..rounds {
        let offset = random.below(600_000);
        let length = random.below(200_000) as usize;
        match random.below(8) {
            0..=3 => {
                let data: Vec<u8> = (0..length).map(|at| (at as u64 ^ round as u64 ^ thread) as u8).collect();
                ask(fs, |fs, c| fs.write(c, made.inode, offset, &data, false)).expect("a write");
                if !data.is_empty() {
                    copy.resize(copy.len().max(offset as usize + length), 0);
                    copy[offset as usize..offset as usize + length].copy_from_slice(&data);
                }
            }
            4 => {
                let set = SetAttributes { size: Some(offset), ..SetAttributes::default() };
                ask(fs, |fs, c| fs.setattr(c, made.inode, &set)).expect("truncating");
                copy.resize(offset as usize, 0);
            }
            5 => ask(fs, |fs, c| fs.fsync(c, made.inode, false)).expect("fsync"),
            6 if length > 0 => {
                let mode = PUNCH_HOLE | KEEP_SIZE;
                ask(fs, |fs, c| fs.fallocate(c, made.inode, offset, length as u64, mode)).expect("punching");
                let end = copy.len().min(offset as usize + length);
                if (offset as usize) < end {
                    copy[offset as usize..end].fill(0);
                }
            }
            _ => {
                let mut out = vec![0xee; length];
                let read = ask(fs, |fs, c| fs.read(c, made.inode, offset, &mut out.clone())).expect("a read");
                let got = fs.read(&caller(5), made.inode, offset, &mut out).expect("a read");
                assert_eq!(read, got);
                let start = copy.len().min(offset as usize);
                assert!(out[..got] == copy[start..copy.len().min(offset as usize + length)], "thread {thread}");
            }
        }
    }
    ask(fs, |fs, c| fs.release(c, made.inode, handle)).expect("closing");
    let mut out = vec![0; copy.len() + 1];
    let length = fs.read(&caller(5), made.inode, 0, &mut out).expect("a read");
    assert!(out[..length] == copy, "thread {thread}, closed");
}

/// Names that all threads make, move, share and remove.
fn shared_names(fs: &FileSystem, thread: u64, rounds: usize) {
    let mut random = Random(thread + 1000);
    for _ in 0..rounds {
        let name = format!("n{}", random.below(6)).into_bytes();
        let other = format!("n{}", random.below(6)).into_bytes();
        match random.below(9) {
            0..=2 => {
                if let Ok((made, handle)) = ask(fs, |fs, c| fs.create(c, ROOT, &name, 0o644, FLAGS)) {
                    match ask(fs, |fs, c| fs.write(c, made.inode, random_offset(thread), &[1; 5000], false)) {
                        Ok(_) | Err(Error::Stale) => {}
                        Err(error) => panic!("{error}"),
                    }
                    ask(fs, |fs, c| fs.release(c, made.inode, handle)).expect("closing");
                }
            }
            3 => allowed(ask(fs, |fs, c| fs.unlink(c, ROOT, &name))),
            4 => allowed(ask(fs, |fs, c| fs.rename(c, ROOT, &name, ROOT, &other, 0))),
            5 => allowed(ask(fs, |fs, c| fs.rename(c, ROOT, &name, ROOT, &other, RENAME_EXCHANGE))),
            6 => {
                if let Ok(found) = ask(fs, |fs, c| fs.lookup(c, ROOT, &name)) {
                    allowed(ask(fs, |fs, c| fs.link(c, found.inode, ROOT, &other)).map(|_| ()));
                }
            }
            7 => {
                let both = [ask(fs, |fs, c| fs.lookup(c, ROOT, &name)), ask(fs, |fs, c| fs.lookup(c, ROOT, &other))];
                if let [Ok(from), Ok(to)] = both.map(|found| found.map(|found| found.inode)) {
                    match ask(fs, |fs, c| fs.copy_range(c, from, 0, to, 8192, 4096)) {
                        Ok(_) | Err(Error::Stale | Error::Invalid(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            _ => {
                let listed = ask(fs, |fs, c| {
                    let mut names = Vec::new();
                    fs.readdir(c, ROOT, 0, true, &mut |entry| {
                        names.push(entry.name.to_vec());
                        ControlFlow::Continue(())
                    })?;
                    Ok(names)
                })
                .expect("a listing");
                assert!(listed.len() >= 2);
            }
        }
    }
}

fn random_offset(thread: u64) -> u64 {
    thread * 4096
}

#[test]
fn threads_do_not_disturb_each_other() {
    let (rig, fs) = Rig::new(2, 256 << 20);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                fs.step(&caller(6), 4).expect("a step");
                fs.store().step(true).expect("a step of the store");
                fs.syncfs(&caller(6)).expect("sync");
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> =
            (0..6)
                .map(|thread| {
                    let fs = &fs;
                    scope.spawn(move || {
                        if thread % 2 == 0 { own_file(fs, thread, 300) } else { shared_names(fs, thread, 4000) }
                    })
                })
                .collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Release);
        background.join().expect("the background");
        outcomes.into_iter().for_each(|outcome| outcome.expect("a worker"));
    });
    let fs = rig.reopen(fs, false);
    while fs.step(&caller(7), 100).expect("a step") {}
    assert_eq!(stere_naming::check(fs.store()).expect("the check runs"), []);
    assert_eq!(fs.store().checker.check(true).expect("the check runs").findings, []);
}
