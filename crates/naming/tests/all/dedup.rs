//! Deduplication in the background without a mount (P-94): what is stored twice becomes one, and no file ever holds another byte for it.

use crate::support;

use std::collections::BTreeSet;

use stere_naming::{ROOT, SetMode};
use support::edits::{Random, fact, set};
use support::files::{Walk, assert_clean, check, directory, make, mkdir, stored_bytes};
use support::{Rig, caller, reconcile};

const RECORD: usize = 128 << 10;

fn content(seed: u64, length: usize) -> Vec<u8> {
    Random(seed).noise(length)
}

/// P-94.
#[test]
fn what_is_stored_twice_becomes_one_and_stays_what_it_was() {
    let (rig, fs) = Rig::new(2, 64 << 20);
    let (one, other) = (content(1, 5 * RECORD + 777), content(2, 3 * RECORD));
    let top = mkdir(&fs, ROOT, "top");
    let deep = mkdir(&fs, top, "deep");
    let mixed = [&one[..2 * RECORD], &other[..]].concat();
    let files = [make(&fs, top, "a", &one), make(&fs, deep, "b", &one), make(&fs, deep, "c", &mixed)];
    let outside = make(&fs, ROOT, "outside", &one);
    let before = stored_bytes(&fs);
    set(&fs, top, "dedup", "yes");
    reconcile(&fs);
    let left = (one.len().next_multiple_of(4096) + other.len()) as u64;
    let whole = |length: usize| length.next_multiple_of(512) as u64;
    assert!(before > 2 * left, "{before}");
    // What is outside has a copy of its own.
    assert!(stored_bytes(&fs) <= left + whole(one.len()) + 4096, "{} of {before}", stored_bytes(&fs));
    for (inode, bytes) in files.iter().zip([&one, &one, &mixed]) {
        check(&fs, *inode, bytes);
        assert_eq!(fact(&fs, *inode, "state"), "compliant");
    }
    assert_clean(&fs);
    // What is changed then is changed in one file alone, and what is removed is gone for one.
    fs.write(&caller(5), files[0], 10, b"changed", false).unwrap();
    fs.unlink(&caller(5), deep, b"c").unwrap();
    let mut changed = one.clone();
    changed[10..17].copy_from_slice(b"changed");
    fs.syncfs(&caller(6)).unwrap();
    let fs = rig.reopen(fs, true);
    check(&fs, files[0], &changed);
    check(&fs, files[1], &one);
    check(&fs, outside, &one);
    assert_clean(&fs);
}

/// P-94: nobody who did not ask is looked at, nothing encrypted, and not what is asked for elsewhere.
#[test]
fn domains_keys_and_other_ways_to_be_stored_stay_apart() {
    let (_rig, fs) = Rig::new(2, 64 << 20);
    let bytes = content(3, 2 * RECORD);
    let (left, right) = (directory(&fs, "left", "dedup", "yes"), directory(&fs, "right", "dedup", "yes"));
    let single = mkdir(&fs, left, "single");
    set(&fs, single, "copies", "1");
    for (at, top) in [left, right, single].into_iter().enumerate() {
        make(&fs, top, &format!("f{at}"), &bytes);
    }
    reconcile(&fs);
    assert_eq!(stored_bytes(&fs), 3 * bytes.len() as u64);
    make(&fs, left, "again", &bytes);
    assert_eq!(stored_bytes(&fs), 4 * bytes.len() as u64);
    // Who wrote it notes that it is to be looked at.
    for seconds in [1000, 2000] {
        fs.step(&caller(seconds), 10).unwrap();
    }
    reconcile(&fs);
    assert_eq!(stored_bytes(&fs), 3 * bytes.len() as u64);
    let refused = fs.setxattr(&caller(3), left, b"user.stere.dedup", b"1", SetMode::Any, false);
    assert!(refused.is_err());
    assert_clean(&fs);
}

/// P-94: checksums make candidates and never more. Two contents of one CRC32C, block by block, stay two.
#[test]
fn content_with_the_same_checksums_is_not_the_same_content() {
    let (_rig, fs) = Rig::new(1, 64 << 20);
    let top = directory(&fs, "top", "dedup", "yes");
    let (one, other) = colliding();
    assert_eq!(stere_format::block_checksums(&one), stere_format::block_checksums(&other));
    assert_ne!(one, other);
    let (first, second) = (make(&fs, top, "one", &one), make(&fs, top, "other", &other));
    reconcile(&fs);
    check(&fs, first, &one);
    check(&fs, second, &other);
    assert_eq!(stored_bytes(&fs), 2 * 4096);
}

/// CRC32C is linear: what changes the first word is made good by the last one.
fn colliding() -> (Vec<u8>, Vec<u8>) {
    let one = content(9, 4096);
    let mut other = one.clone();
    other[0] ^= 0x55;
    let wanted = stere_format::crc32c(&one);
    let of = |bits: u32, other: &mut Vec<u8>| {
        other[4092..].copy_from_slice(&bits.to_le_bytes());
        stere_format::crc32c(other)
    };
    let zero = of(0, &mut other);
    // Which bits of the last word change which of the checksum, then the other way by elimination.
    let mut rows: Vec<(u32, u32)> = (0..32).map(|bit| (of(1 << bit, &mut other) ^ zero, 1 << bit)).collect();
    let (mut rest, mut bits) = (wanted ^ zero, 0);
    for at in (0..32).rev() {
        let Some(found) = rows.iter().position(|(effect, _)| effect >> at & 1 == 1) else { continue };
        let row = rows.swap_remove(found);
        for (effect, cause) in &mut rows {
            if *effect >> at & 1 == 1 {
                (*effect, *cause) = (*effect ^ row.0, *cause ^ row.1);
            }
        }
        if rest >> at & 1 == 1 {
            (rest, bits) = (rest ^ row.0, bits ^ row.1);
        }
    }
    assert_eq!(rest, 0, "the last word reaches every checksum");
    assert_eq!(of(bits, &mut other), wanted);
    (one, other)
}

/// P-94: histories of writes, cuts, holes, copies, changes of policy, syncs and crashes.
#[test]
fn histories_leave_what_was_written() {
    // Few different contents, so that much is met again.
    let text = |step: usize, length: usize| content(1 + step as u64 % 3, RECORD)[..length.min(RECORD)].to_vec();
    let asks = |random: &mut Random| {
        let all = [
            ("dedup", "yes"),
            ("dedup", "yes"),
            ("dedup", "no"),
            ("compress", "lz4"),
            ("compress", "none"),
            ("copies", "1"),
            ("copies", "2"),
            ("versions", "5"),
        ];
        all[random.next(all.len() as u64) as usize]
    };
    let mut seen = BTreeSet::new();
    for seed in 1..=30 {
        let (rig, fs) = Rig::new(2, 96 << 20);
        let top = directory(&fs, "top", "dedup", "yes");
        let walk = Walk { steps: 120, reach_bytes: 1 << 20, text, asks };
        let fs = walk.run(&rig, fs, top, &mut Random(seed));
        seen.insert(stored_bytes(&fs));
    }
    assert!(seen.len() > 20, "histories differ");
}
