//! What the hot paths cost in processor time, on devices in memory: no device and no kernel is in the numbers.
//!
//! `cargo run --release -p stere-naming --example hot_paths [FILES]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::ops::ControlFlow;

use stere_naming::{FileSystem, OpenFlags, ROOT};
use support::{Rig, caller};

const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };

/// Processor time of this thread, in seconds.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours that lives through the call.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(outcome, 0, "Linux has this clock");
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(what: &str, count: usize, mut call: impl FnMut(usize)) {
    let start = processor_time();
    for at in 0..count {
        call(at);
    }
    let each_us = (processor_time() - start) * 1e6 / count as f64;
    println!("{what:<40} {each_us:8.2} us");
}

fn small_files(fs: &FileSystem, files: usize) {
    let name = |at: usize| format!("file-{at:08}").into_bytes();
    let names: Vec<_> = (0..files).map(name).collect();
    let data = vec![7; 4096];
    let directory = fs.mkdir(&caller(2), ROOT, b"small", 0o755).expect("a directory").inode;
    let mut inodes = Vec::with_capacity(files);
    let mut spent = [0.0; 3];
    measure("create + write 4 KiB + release", files, |at| {
        let start = processor_time();
        let (made, handle) = fs.create(&caller(3), directory, &names[at], 0o644, FLAGS).expect("a new file");
        let created = processor_time();
        fs.write(&caller(3), made.inode, 0, &data, false).expect("a write");
        let written = processor_time();
        fs.release(&caller(3), made.inode, handle).expect("closing");
        spent[0] += created - start;
        spent[1] += written - created;
        spent[2] += processor_time() - written;
        inodes.push(made.inode);
        if at % 4096 == 4095 {
            while fs.store().step(false).expect("a step of the store") {}
        }
    });
    for (what, seconds) in ["create", "write", "release"].iter().zip(spent) {
        println!("    {what:<36} {:8.2} us", seconds * 1e6 / files as f64);
    }
    fs.syncfs(&caller(4)).expect("sync");
    measure("lookup", files, |at| {
        fs.lookup(&caller(4), directory, &names[at]).expect("a name");
    });
    measure("getattr", files, |at| {
        fs.getattr(&caller(4), inodes[at]).expect("attributes");
    });
    let mut out = vec![0; 4096];
    measure("open + read 4 KiB + release", files, |at| {
        let handle = fs.open(&caller(5), inodes[at], OpenFlags::default()).expect("opening");
        assert_eq!(fs.read(&caller(5), inodes[at], 0, &mut out).expect("a read"), 4096);
        fs.release(&caller(5), inodes[at], handle).expect("closing");
    });
    measure("readdir with attributes, each name", 1, |_| {
        fs.readdir(&caller(6), directory, 0, true, &mut |_| ControlFlow::Continue(())).expect("a listing");
    });
    println!("    of {files} names");
    measure("unlink", files, |at| fs.unlink(&caller(7), directory, &names[at]).expect("unlinking"));
}

fn large_file(fs: &FileSystem) {
    const PIECES: usize = 256;
    let data = vec![9; 1 << 20];
    let (made, handle) = fs.create(&caller(3), ROOT, b"large", 0o644, FLAGS).expect("a new file");
    measure("write 1 MiB, aligned", PIECES, |at| {
        fs.write(&caller(3), made.inode, (at as u64) << 20, &data, false).expect("a write");
    });
    let mut out = vec![0; 1 << 20];
    fs.syncfs(&caller(4)).expect("sync");
    measure("read 1 MiB", PIECES, |at| {
        fs.read(&caller(3), made.inode, (at as u64) << 20, &mut out).expect("a read");
    });
    measure("read 4 KiB at random", 20_000, |at| {
        let offset = (at as u64 * 7_919 % (PIECES as u64 * 256)) * 4096;
        fs.read(&caller(3), made.inode, offset, &mut out[..4096]).expect("a read");
    });
    measure("write 4 KiB at random, fsync every 32", 6_400, |at| {
        let offset = (at as u64 * 7_919 % (PIECES as u64 * 256)) * 4096;
        fs.write(&caller(3), made.inode, offset, &data[..4096], false).expect("a write");
        if at % 32 == 31 {
            fs.fsync(&caller(3), made.inode, false).expect("fsync");
        }
    });
    let (appended, second) = fs.create(&caller(3), ROOT, b"appended", 0o644, FLAGS).expect("a new file");
    measure("append 4 KiB", 16_384, |at| {
        fs.write(&caller(3), appended.inode, at as u64 * 4096, &data[..4096], false).expect("a write");
    });
    fs.release(&caller(4), appended.inode, second).expect("closing");
    fs.release(&caller(4), made.inode, handle).expect("closing");
}

fn main() {
    let files = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let (_rig, fs) = Rig::new(1, 4 << 30);
    small_files(&fs, files);
    large_file(&fs);
}
