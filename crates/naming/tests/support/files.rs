//! Files of tests: made, set, read again whole and in parts, and a pool that must be clean.

use stere_naming::{FileSystem, Handle, OpenFlags, ROOT};

use super::caller;
use super::edits::{Random, set};

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
    let report = fs.store().check(true).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let findings = stere_naming::check(fs.store()).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}
