//! Limits of stored bytes (P-124), one story each: what a file counts with copies, in the middle of a write, shared, moved by policy,
//! and what was there before anybody asked.

use crate::support;

use stere_naming::{
    Account, AccountValue, AccountsState, Error, FileSystem, Holder, Io, KEEP_SIZE, Limits, PUNCH_HOLE, ROOT,
};
use support::edits::{Random, set};
use support::files::{assert_clean, check, create, make, mkdir};
use support::{Rig, caller, reconcile};

const MIB: u64 = 1 << 20;

fn new() -> (Rig, FileSystem) {
    Rig::new(3, 256 << 20)
}

fn settle(fs: &FileSystem) {
    while fs.step(&caller(5), 100).unwrap() {}
}

fn stored(limit: u64) -> Limits {
    Limits { stored: Some(Some(limit)), ..Limits::default() }
}

/// A directory that is a volume, in which files have so many copies.
fn volume(fs: &FileSystem, name: &str, copies: u8, limits: Limits) -> (u64, u32) {
    let inode = mkdir(fs, ROOT, name);
    set(fs, inode, "copies", &copies.to_string());
    let number = fs.quotas().create_volume(&caller(2), inode, limits).unwrap();
    settle(fs);
    (inode, number)
}

fn account(fs: &FileSystem, number: u32) -> AccountValue {
    let infos = fs.quotas().accounts(Io::BLOCKING, Holder::Volume).unwrap();
    infos.into_iter().find(|info| info.account.number == number).map(|info| info.value).unwrap_or_default()
}

fn is_over<T: std::fmt::Debug>(outcome: Result<T, Error>) {
    assert!(matches!(outcome, Err(Error::OverQuota(_))), "{outcome:?}");
}

/// Bytes that no compression makes less.
fn noise(length: u64) -> Vec<u8> {
    Random(7).noise(length as usize)
}

/// P-124: with two copies a byte counts twice; a write stops where the limit is, and what was accepted is there after a crash.
#[test]
fn a_limit_of_stored_bytes_in_the_middle_of_a_write_stops_there() {
    let (rig, fs) = new();
    let (top, number) = volume(&fs, "v", 2, stored(2 * MIB));
    let (inode, handle) = create(&fs, top, "f");
    let data = noise(3 * MIB);
    assert_eq!(fs.write(&caller(3), inode, 0, &data, false).unwrap() as u64, MIB);
    is_over(fs.write(&caller(3), inode, MIB, &data[..1], false));
    is_over(fs.write(&caller(3), inode, 100 * MIB, &data[..1], false));
    // A hole costs nothing, and what is there can be written over.
    assert_eq!(fs.write(&caller(3), inode, 0, &data[..70_000], false).unwrap(), 70_000);
    fs.release(&caller(4), inode, handle).unwrap();
    fs.syncfs(&caller(4)).unwrap();
    assert_eq!((account(&fs, number).stored, account(&fs, number).bytes), (2 * MIB, MIB));
    let fs = rig.reopen(fs, true);
    assert_eq!(account(&fs, number).stored, 2 * MIB);
    check(&fs, inode, &data[..MIB as usize]);
    // Cutting a hole gives room back, and removing all of it.
    fs.fallocate(&caller(6), inode, MIB / 2, MIB / 4, PUNCH_HOLE | KEEP_SIZE).unwrap();
    assert_eq!(account(&fs, number).stored, 2 * MIB - MIB / 2);
    assert_eq!(fs.write(&caller(6), inode, MIB / 2, &data[..8192], false).unwrap(), 8192);
    fs.unlink(&caller(6), top, b"f").unwrap();
    settle(&fs);
    assert_eq!(account(&fs, number).stored, 0);
    fs.syncfs(&caller(7)).unwrap();
    assert_clean(&fs);
}

/// P-124: what is compressed counts what is stored of it.
#[test]
fn compressed_files_count_what_is_stored() {
    let (_rig, fs) = new();
    let (top, number) = volume(&fs, "v", 1, stored(MIB));
    set(&fs, top, "compress", "zstd");
    let (inode, handle) = create(&fs, top, "f");
    for at in 0..20 {
        assert_eq!(fs.write(&caller(3), inode, at * MIB, &vec![0x5a; MIB as usize], false).unwrap() as u64, MIB);
    }
    fs.syncfs(&caller(4)).unwrap();
    let little = account(&fs, number);
    assert!(little.bytes == 20 * MIB && little.stored > 0 && little.stored < MIB / 4, "{little:?}");
    // One write beyond is taken, for nobody knew before what it takes; then nothing is.
    let data = noise(MIB);
    assert_eq!(fs.write(&caller(5), inode, 20 * MIB, &data, false).unwrap() as u64, MIB);
    is_over(fs.write(&caller(5), inode, 21 * MIB, &data, false));
    let much = account(&fs, number).stored;
    assert!((MIB..2 * MIB).contains(&much), "{much}");
    fs.release(&caller(6), inode, handle).unwrap();
    fs.syncfs(&caller(6)).unwrap();
    assert_clean(&fs);
}

/// P-124: a copy by reference counts in full, and is refused beyond the limit; moving into a volume too.
#[test]
fn shared_content_counts_for_each() {
    let (_rig, fs) = new();
    let (top, number) = volume(&fs, "v", 1, stored(3 * MIB / 2));
    set(&fs, ROOT, "copies", "1");
    let source = make(&fs, ROOT, "source", &noise(MIB));
    fs.syncfs(&caller(3)).unwrap();
    let (one, _) = create(&fs, top, "one");
    assert_eq!(fs.copy_range(&caller(3), source, 0, one, 0, MIB).unwrap(), MIB);
    fs.syncfs(&caller(3)).unwrap();
    let each = account(&fs, number).stored;
    assert!(each >= MIB, "{each}");
    let (two, _) = create(&fs, top, "two");
    is_over(fs.copy_range(&caller(3), source, 0, two, 0, MIB));
    is_over(fs.rename(&caller(4), ROOT, b"source", top, b"source", 0));
    assert_eq!(account(&fs, number).stored, each);
    fs.syncfs(&caller(5)).unwrap();
    assert_clean(&fs);
}

/// P-124: what existed is charged, in steps and across crashes; the policy's walk charges what it moved anew.
#[test]
fn what_exists_is_charged_and_what_moves_is_charged_anew() {
    let (rig, fs) = new();
    let (top, number) = volume(&fs, "v", 2, Limits::default());
    // What the names of forty files count.
    const NAMES: u64 = 4096;
    let mut inodes = Vec::new();
    for at in 0..40 {
        inodes.push(make(&fs, top, &format!("f{at}"), &noise(64 << 10)));
    }
    fs.syncfs(&caller(3)).unwrap();
    assert_eq!(account(&fs, number).stored, NAMES, "nobody asked for contents");
    fs.quotas().set_quota(&caller(3), Account { holder: Holder::Volume, number }, stored(1 << 30)).unwrap();
    settle(&fs);
    assert_eq!(fs.quotas().accounts_state(Io::BLOCKING).unwrap(), AccountsState::Exact);
    assert_eq!(account(&fs, number).stored, NAMES + 40 * 2 * (64 << 10));
    fs.syncfs(&caller(3)).unwrap();
    let fs = rig.reopen(fs, true);
    settle(&fs);
    assert_eq!(account(&fs, number).stored, NAMES + 40 * 2 * (64 << 10));
    set(&fs, top, "copies", "");
    set(&fs, top, "parity", "2+1");
    fs.syncfs(&caller(4)).unwrap();
    reconcile(&fs);
    assert_eq!(account(&fs, number).stored, NAMES + 40 * 3 * (32 << 10));
    for inode in inodes {
        check(&fs, inode, &noise(64 << 10));
    }
    fs.syncfs(&caller(7)).unwrap();
    assert_clean(&fs);
}
