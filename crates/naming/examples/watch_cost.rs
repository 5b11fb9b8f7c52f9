//! What provenance and audit cost those who do not use them: files made, written a byte, closed, and opened again, in a pool where
//! nobody ever asked, in one where somebody asked elsewhere, and where they are on. In memory, the fastest and the median of the rounds.
#![allow(clippy::unwrap_used, reason = "an example")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use stere_naming::{FileSystem, OpenFlags, ROOT, SetMode};
use support::{Rig, caller};

const FILES: u32 = 10_000;
const ROUNDS: usize = 7;
const FLAGS: OpenFlags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };

fn round(fs: &FileSystem, directory: u64, number: usize) -> [f64; 2] {
    let begun = Instant::now();
    let mut made = Vec::new();
    for file in 0..FILES {
        let name = format!("{number}-{file}");
        let (attributes, handle) = fs.create(&caller(5), directory, name.as_bytes(), 0o644, FLAGS).unwrap();
        fs.release(&caller(5), attributes.inode, handle).unwrap();
        made.push(attributes.inode);
    }
    let created = begun.elapsed();
    let begun = Instant::now();
    for inode in made {
        let handle = fs.open(&caller(6), inode, OpenFlags { write: false, read: true, ..FLAGS }).unwrap();
        fs.release(&caller(6), inode, handle).unwrap();
    }
    [created, begun.elapsed()].map(|time| time.as_secs_f64() * 1e6 / f64::from(FILES))
}

fn main() {
    let (_rig, fs) = Rig::new(1, 512 << 20);
    let say = |inode: u64, key: &str, value: &str| {
        let name = format!("user.stere.{key}");
        fs.setxattr(&caller(2), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false).unwrap();
    };
    let directory = |name: &str| fs.mkdir(&caller(1), ROOT, name.as_bytes(), 0o755).unwrap().inode;
    let (plain, watched) = (directory("plain"), directory("watched"));
    println!("{:>24} {:>22} {:>22}", "", "make, us (median)", "open, us (median)");
    let measure = |what: &str, at: u64, base: usize| {
        let mut times: Vec<[f64; 2]> = (0..ROUNDS).map(|number| round(&fs, at, base + number)).collect();
        let mut column = |index: usize| {
            times.sort_by(|one, other| one[index].total_cmp(&other[index]));
            format!("{:.2} ({:.2})", times[0][index], times[ROUNDS / 2][index])
        };
        println!("{what:>24} {:>22} {:>22}", column(0), column(1));
    };
    measure("nobody asked", plain, 0);
    say(watched, "provenance", "yes");
    measure("asked elsewhere", plain, 100);
    measure("provenance", watched, 200);
    say(watched, "audit", "yes");
    measure("provenance and audit", watched, 300);
}
