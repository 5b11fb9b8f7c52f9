//! Versions of large files: whole, however long their copies take, and holes cost nothing (P-80, P-82).

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use stere_device::{Call, Cancellation};
use stere_naming::{Caller, FILE_BYTES_MAX, FileSystem, Io, SetAttributes};
use support::edits::set;
use support::files::{assert_clean, create, directory};
use support::keys::create_key;
use support::{Rig, caller};

const PART: usize = 1 << 20;

/// A file of so many parts, each of its own number, that nobody has open.
fn large(fs: &FileSystem, top: u64, parts: u8) -> u64 {
    let (inode, handle) = create(fs, top, "large");
    for part in 0..parts {
        let at = u64::from(part) * PART as u64;
        assert_eq!(fs.write(&caller(2), inode, at, &vec![part + 1; PART], false).unwrap(), PART);
    }
    fs.release(&caller(2), inode, handle).unwrap();
    inode
}

/// The only version of `large`.
fn version(fs: &FileSystem, top: u64) -> u64 {
    let of_name = [b".versions".as_slice(), b"large"].iter().fold(top, |directory, name| {
        fs.lookup(&caller(9), directory, name).unwrap_or_else(|error| panic!("no version is kept: {error}")).inode
    });
    let mut found = Vec::new();
    fs.readdir(&caller(9), of_name, 0, false, &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            found.push(entry.inode);
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(found.len(), 1, "one version is kept");
    found[0]
}

fn assert_parts(fs: &FileSystem, inode: u64, parts: u8) {
    assert_eq!(fs.getattr(&caller(9), inode).unwrap().size, u64::from(parts) * PART as u64);
    let mut bytes = vec![0; PART];
    for part in 0..parts {
        assert_eq!(fs.read(&caller(9), inode, u64::from(part) * PART as u64, &mut bytes).unwrap(), PART);
        assert!(bytes.iter().all(|byte| *byte == part + 1), "part {part} of the version is what the file held");
    }
}

/// P-80: more than one call copies of an encrypted file.
#[test]
fn a_large_encrypted_file_keeps_its_version() {
    let (_rig, fs) = Rig::new(1, 400 << 20);
    create_key(&fs, "main", 1);
    let top = directory(&fs, "vault", "encrypt", "yes");
    set(&fs, top, "versions", "3");
    let inode = large(&fs, top, 70);
    fs.write(&caller(5), inode, 5 << 20, b"new", false).unwrap();
    assert_parts(&fs, version(&fs, top), 70);
    assert_clean(&fs);
}

/// P-80: a program that gets a signal while it writes loses nothing of what was there.
#[test]
fn a_signal_does_not_cost_a_version() {
    for is_encrypted in [false, true] {
        let (_rig, fs) = Rig::new(1, 200 << 20);
        create_key(&fs, "main", 1);
        let top = directory(&fs, "top", "versions", "3");
        if is_encrypted {
            set(&fs, top, "encrypt", "yes");
        }
        let inode = large(&fs, top, 40);
        let call = Call::cancelled_by(Cancellation::when(|| true));
        let stopped = Caller { io: Io::BLOCKING.of(&call), ..caller(5) };
        fs.write(&stopped, inode, 5 << 20, b"new", false).unwrap();
        assert_parts(&fs, version(&fs, top), 40);
    }
}

/// P-80: who is killed while a version is made changes nothing, and waits no longer for it than for a part.
#[test]
fn who_is_killed_meanwhile_changes_nothing() {
    let (_rig, fs) = Rig::new(1, 400 << 20);
    create_key(&fs, "main", 1);
    let top = directory(&fs, "vault", "encrypt", "yes");
    set(&fs, top, "versions", "3");
    let inode = large(&fs, top, 70);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    // Not yet when it begins.
    let call = Call::default().abandoned_when(move || counted.fetch_add(1, Ordering::Relaxed) > 0);
    let killed = Caller { io: Io::BLOCKING.of(&call), ..caller(5) };
    let refused = fs.write(&killed, inode, 5 << 20, b"new", false);
    assert_eq!(refused.unwrap_err().errno(), libc::EINTR);
    assert_eq!(asked.load(Ordering::Relaxed), 2, "it ends with the first part");
    assert_parts(&fs, inode, 70);
    assert!(fs.lookup(&caller(9), top, b".versions").is_err(), "half a version is none");
    fs.write(&caller(6), inode, 5 << 20, b"new", false).unwrap();
    assert_parts(&fs, version(&fs, top), 70);
    assert_clean(&fs);
}

/// P-82: what a file does not hold is not copied, encrypted or not.
#[test]
fn holes_of_a_version_cost_nothing() {
    for is_encrypted in [false, true] {
        let (_rig, fs) = Rig::new(1, 200 << 20);
        create_key(&fs, "main", 1);
        let top = directory(&fs, "top", "compress", "none");
        if is_encrypted {
            set(&fs, top, "encrypt", "yes");
        }
        let inode = large(&fs, top, 2);
        let last = FILE_BYTES_MAX - 100;
        fs.write(&caller(4), inode, last, &[7; 100], false).unwrap();
        set(&fs, top, "versions", "1");
        let size = SetAttributes { size: Some(FILE_BYTES_MAX - 50), ..SetAttributes::default() };
        let begun = Instant::now();
        fs.setattr(&caller(5), inode, &size).unwrap();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(1), "holes take no time, not {took:?}");
        let kept = version(&fs, top);
        assert_eq!(fs.getattr(&caller(9), kept).unwrap().size, FILE_BYTES_MAX);
        let mut bytes = vec![0; 200];
        assert_eq!(fs.read(&caller(9), kept, last - 100, &mut bytes).unwrap(), 200);
        assert!(bytes[..100].iter().all(|byte| *byte == 0) && bytes[100..].iter().all(|byte| *byte == 7));
        assert_eq!(fs.read(&caller(9), kept, PART as u64, &mut bytes).unwrap(), 200);
        assert_eq!(bytes, [2; 200]);
        assert_clean(&fs);
    }
}
