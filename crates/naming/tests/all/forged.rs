//! Metadata that decodes and is not what this code writes: a disk that somebody forged, with right checksums, must end in errors.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use stere_format::{Key, key};
use stere_naming::{FileSystem, Io, KEEP_SIZE, OpenFlags, PUNCH_HOLE, ROOT, SetAttributes, SetMode};

use crate::support::edits::{Random, set};
use crate::support::files::{make, mkdir};
use crate::support::{Rig, caller};

/// Some of each kind of thing: records, holes, preallocated room, several names, attributes, policy, versions, an orphan.
fn filled() -> (Rig, FileSystem) {
    let (rig, fs) = Rig::new(2, 64 << 20);
    let (one, two) = (mkdir(&fs, ROOT, "one"), mkdir(&fs, ROOT, "two"));
    set(&fs, two, "compress", "lz4");
    set(&fs, two, "versions", "3");
    let large = make(&fs, one, "large", &vec![3; 400_000]);
    fs.fallocate(&caller(2), large, 8192, 50_000, PUNCH_HOLE | KEEP_SIZE).unwrap();
    fs.fallocate(&caller(2), large, 500_000, 300_000, 0).unwrap();
    fs.link(&caller(2), large, two, b"second").unwrap();
    let small = make(&fs, two, "small", b"some text of a small file");
    fs.write(&caller(3), small, 5, b"other", false).unwrap();
    fs.setxattr(&caller(2), small, b"user.note", &[7; 300], SetMode::Any, false).unwrap();
    fs.symlink(&caller(2), one, b"link", b"/somewhere").unwrap();
    let (gone, handle) = crate::support::files::create(&fs, one, "gone");
    fs.write(&caller(2), gone, 0, &[1; 70_000], false).unwrap();
    fs.unlink(&caller(2), one, b"gone").unwrap();
    fs.syncfs(&caller(2)).unwrap();
    let _ = handle;
    (rig, fs)
}

fn keys(fs: &FileSystem) -> Vec<(Key, Vec<u8>)> {
    let kinds = [key::kind::INODE, key::kind::XATTR, key::kind::DIRENT_HASH, key::kind::DIRENT, key::kind::EXTENT];
    let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::NAMES + 1, 0, 0, 0));
    let found = fs.store().view(Io::BLOCKING, |view| {
        let mut found = Vec::new();
        view.scan(from, to, |key, value| {
            if kinds.contains(&key.kind) || key.kind == key::kind::NAMED_IN {
                found.push((*key, value.to_vec()));
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, stere_store::Error>(found)
    });
    found.unwrap()
}

/// Changes one key or value, as little or as much as comes.
fn forge(fs: &FileSystem, random: &mut Random) -> String {
    let keys = keys(fs);
    let (key, mut value) = keys[random.next(keys.len() as u64) as usize].clone();
    let mut to = key;
    match random.next(8) {
        0 => to.position = to.position.wrapping_add(random.next(20_000)),
        1 => to.position = to.position.wrapping_sub(random.next(20_000)),
        2 => to.object = keys[random.next(keys.len() as u64) as usize].0.object,
        3 if !value.is_empty() => value.truncate(random.next(value.len() as u64) as usize),
        4 => value = keys[random.next(keys.len() as u64) as usize].1.clone(),
        _ => {
            for _ in 0..=random.next(2) {
                if !value.is_empty() {
                    let at = random.next(value.len() as u64) as usize;
                    value[at] = match random.next(3) {
                        0 => value[at] ^ (1 << random.next(8)),
                        1 => [0, 1, 0x7f, 0xff][random.next(4) as usize],
                        _ => random.next(256) as u8,
                    };
                }
            }
        }
    }
    let keeps = random.next(2) == 0;
    let changed = fs.store().update(Io::BLOCKING, |transaction| {
        if to != key && !keeps {
            transaction.delete(key);
        }
        transaction.put(to, &value);
        Ok::<_, stere_store::Error>(())
    });
    format!("{key} -> {to}, {} bytes: {changed:?}", value.len())
}

/// What people do with a disk. Errors are right, whichever; only a panic is wrong.
fn use_all(fs: &FileSystem) {
    let user = caller(9);
    let mut inodes: Vec<u64> = keys(fs).iter().map(|(key, _)| key.object).collect();
    inodes.dedup();
    let mut buffer = vec![0; 900_000];
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    for inode in inodes {
        let _ = fs.getattr(&user, inode);
        let _ = fs.readlink(&user, inode);
        let _ = fs.listxattr(&user, inode);
        for name in [&b"user.note"[..], b"user.stere.effective.copies", b"user.stere.state", b"user.stere.residency"] {
            let _ = fs.getxattr(&user, inode, name);
        }
        let _ = fs.path_of(Io::BLOCKING, inode);
        for name in [&b"one"[..], b"two", b"large", b"second", b"small", b"link"] {
            let _ = fs.lookup(&user, inode, name);
        }
        let _ = fs.read(&user, inode, 0, &mut buffer);
        let _ = fs.read(&user, inode, 390_000, &mut buffer[..30_000]);
        if let Ok(handle) = fs.open(&user, inode, write) {
            let _ = fs.write(&user, inode, 100, &[9; 5000], false);
            let _ = fs.write(&user, inode, 450_000, &[9; 70_000], false);
            let _ = fs.fsync(&user, inode, false);
            let _ = fs.fallocate(&user, inode, 0, 600_000, 0);
            let _ = fs.fallocate(&user, inode, 20_000, 100_000, PUNCH_HOLE | KEEP_SIZE);
            let _ = fs.copy_range(&user, inode, 0, inode, 1 << 20, 200_000);
            let _ = fs.setattr(&user, inode, &SetAttributes { size: Some(123_456), ..SetAttributes::default() });
            let _ = fs.release(&user, inode, handle);
        }
        let _ = fs.setxattr(&user, inode, b"user.stere.compress", b"zstd", SetMode::Any, false);
        let _ = fs.setattr(&user, inode, &SetAttributes { mode: Some(0o640), ..SetAttributes::default() });
    }
    let _ = fs.syncfs(&user);
    for _ in 0..50 {
        if !matches!(fs.reconciler().reconcile_step(&user, 1 << 20), Ok(true)) {
            break;
        }
    }
    let _ = fs.rename(&user, ROOT, b"one", ROOT, b"three", 0);
    if let Ok(directory) = fs.lookup(&user, ROOT, b"three") {
        let _ = fs.rename(&user, directory.inode, b"large", ROOT, b"moved", 0);
        let _ = fs.unlink(&user, directory.inode, b"link");
    }
    let _ = fs.unlink(&user, ROOT, b"moved");
    if let Ok(directory) = fs.lookup(&user, ROOT, b"two") {
        for name in [&b"second"[..], b"small"] {
            let _ = fs.unlink(&user, directory.inode, name);
        }
        let _ = fs.rmdir(&user, ROOT, b"two");
    }
    while matches!(fs.step(&user, 64), Ok(true)) {}
    let _ = fs.syncfs(&user);
    let _ = stere_naming::check(fs.store());
    let _ = fs.store().checkpoint();
}

/// P-11: what decodes and cannot be is an error, or what can be read of it, and never a panic. `FORGED` and
/// `FORGED_FROM` say how many seeds, and the first.
#[test]
fn forged_metadata_panics_nobody() {
    let mut panics = Vec::new();
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("FORGED_FROM").unwrap_or(0);
    for seed in first..first + number("FORGED").unwrap_or(150) {
        let mut random = Random(seed * 7919 + 11);
        let (rig, fs) = filled();
        let what: Vec<String> = (0..=random.next(2)).map(|_| forge(&fs, &mut random)).collect();
        fs.store().commit(Io::BLOCKING).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            drop(fs);
            if let Ok(fs) = rig.try_open(&rig.devices) {
                use_all(&fs);
            }
        }));
        if outcome.is_err() {
            panics.push((seed, what));
        }
    }
    assert!(panics.is_empty(), "{} panicked: {panics:#?}", panics.len());
}
