//! Files of tests, and their ACLs: made, set, changed at random, read again whole and in parts, and a pool that must be clean.

use std::ops::ControlFlow;

use stere_format::{BlobValue, Key, key};
use stere_naming::{FileSystem, Handle, Io, OpenFlags, ROOT};

use super::edits::{Edit, Random, edit, fact, set};
use super::{Rig, caller, reconcile};

/// So much is written at a time.
const PIECE_BYTES: usize = 300_000;

pub fn mkdir(fs: &FileSystem, parent: u64, name: &str) -> u64 {
    fs.mkdir(&caller(2), parent, name.as_bytes(), 0o755).unwrap().inode
}

/// A directory at the top with one setting.
pub fn directory(fs: &FileSystem, name: &str, key: &str, value: &str) -> u64 {
    let inode = mkdir(fs, ROOT, name);
    set(fs, inode, key, value);
    inode
}

pub fn create(fs: &FileSystem, directory: u64, name: &str) -> (u64, Handle) {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (attributes, handle) = fs.create(&caller(2), directory, name.as_bytes(), 0o644, flags).unwrap();
    (attributes.inode, handle)
}

pub fn make(fs: &FileSystem, directory: u64, name: &str, bytes: &[u8]) -> u64 {
    let (inode, handle) = create(fs, directory, name);
    for (at, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        let written = fs.write(&caller(2), inode, (at * PIECE_BYTES) as u64, piece, false).unwrap();
        assert_eq!(written, piece.len());
    }
    fs.release(&caller(2), inode, handle).unwrap();
    inode
}

/// Reads it whole, then in steps that no record is made of, forwards and backwards.
pub fn check(fs: &FileSystem, inode: u64, bytes: &[u8]) {
    let mut out = vec![0; bytes.len() + 1];
    let length = fs.read(&caller(5), inode, 0, &mut out).unwrap();
    assert_eq!(length, bytes.len());
    assert!(out[..length] == *bytes, "inode {inode} has other content");
    let mut random = Random(bytes.len() as u64);
    for _ in 0..20.min(bytes.len()) {
        let at = random.next(bytes.len() as u64) as usize;
        let length = (random.next(9000) as usize + 1).min(bytes.len() - at);
        assert_eq!(fs.read(&caller(5), inode, at as u64, &mut out[..length]).unwrap(), length);
        assert!(out[..length] == bytes[at..at + length], "inode {inode} at {at}");
    }
}

pub fn assert_clean(fs: &FileSystem) {
    let report = fs.store().checker.check(true).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let findings = stere_naming::check(fs.store()).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

/// Bytes of all blobs that are stored.
pub fn stored_bytes(fs: &FileSystem) -> u64 {
    fs.syncfs(&caller(4)).unwrap();
    let counted = fs.store().view(Io::BLOCKING, |view| {
        let mut bytes = 0;
        let (from, to) = (Key::new(key::tree::BLOBS, 0, 0, 0), Key::new(key::tree::BLOBS + 1, 0, 0, 0));
        view.scan(from, to, |_, value| {
            bytes += u64::from(BlobValue::decode(value).unwrap().address.length);
            ControlFlow::Continue(())
        })?;
        Ok::<_, stere_store::Error>(bytes)
    });
    counted.unwrap()
}

/// Random writes, cuts, holes and copies of three files, with what is asked for changing in between, syncs and crashes.
pub struct Walk {
    pub steps: usize,
    /// Offsets are below this.
    pub reach_bytes: u64,
    pub text: fn(usize, usize) -> Vec<u8>,
    /// A key and its value, set on a file or on the directory.
    pub asks: fn(&mut Random) -> (&'static str, &'static str),
}

impl Walk {
    /// Walks in a directory, then holds the files against the bytes they should have, before and after all is brought in line.
    pub fn run(&self, rig: &Rig, mut fs: FileSystem, top: u64, random: &mut Random) -> FileSystem {
        let mut files: Vec<(u64, Vec<u8>)> =
            (0..3).map(|at| (make(&fs, top, &format!("f{at}"), b""), Vec::new())).collect();
        for step in 0..self.steps {
            let at = random.next(3) as usize;
            let inode = files[at].0;
            let offset = random.next(self.reach_bytes);
            let length = [1 + random.next(200), 4096, 1 + random.next(60_000), 128 << 10][random.next(4) as usize];
            match random.next(10) {
                kind @ 0..8 => {
                    let text = |length| (self.text)(step, length);
                    edit(&fs, &mut files, at, Edit { kind, offset, length }, random, text);
                }
                8 => {
                    let (key, value) = (self.asks)(random);
                    set(&fs, if random.next(2) == 0 { top } else { inode }, key, value);
                    for _ in 0..random.next(4) {
                        fs.reconciler().reconcile_step(&caller(7), 1 + random.next(400_000)).unwrap();
                    }
                }
                _ => {
                    fs.syncfs(&caller(4)).unwrap();
                    if random.next(2) == 0 {
                        while fs.store().step(true).unwrap() {}
                        fs = rig.reopen(fs, random.next(2) == 0);
                    }
                }
            }
        }
        files.iter().for_each(|(inode, bytes)| check(&fs, *inode, bytes));
        fs.syncfs(&caller(4)).unwrap();
        assert_clean(&fs);
        reconcile(&fs);
        for (inode, bytes) in &files {
            check(&fs, *inode, bytes);
            assert_eq!(fact(&fs, *inode, "state"), "compliant");
        }
        let fs = rig.reopen(fs, true);
        assert_clean(&fs);
        fs
    }
}

/// An ACL as the kernel hands it over: version 2, then tag, permissions and id of each entry.
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}
