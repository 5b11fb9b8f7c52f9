//! Records are aligned, whole, and stop where the buffer does.

use super::*;
use crate::abi::structs::{Direntplus, split};

fn entry(name: &[u8]) -> DirectoryEntry<'_> {
    DirectoryEntry { inode: 7, next_offset: 9, mode: libc::S_IFREG | 0o644, name }
}

#[test]
fn records_are_padded_to_eight_bytes() {
    let mut buffer = [0xaa_u8; 128];
    let mut writer = DirectoryWriter::new(&mut buffer);
    assert!(writer.add(&entry(b"abc")));
    assert_eq!(writer.used_bytes(), 32);
    assert!(writer.add(&entry(b"12345678")));
    assert_eq!(writer.used_bytes(), 64);
    let (first, rest) = split::<Dirent>(&buffer).unwrap();
    assert_eq!((first.ino, first.off, first.namelen, first.kind), (7, 9, 3, u32::from(libc::DT_REG)));
    assert_eq!(&rest[..8], b"abc\0\0\0\0\0");
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let mut buffer = [0xaa_u8; 40];
    let mut writer = DirectoryWriter::new(&mut buffer);
    assert!(writer.add(&entry(b"abc")));
    assert!(!writer.add(&entry(b"d")));
    assert_eq!(writer.used_bytes(), 32);
    assert_eq!(&buffer[32..], &[0xaa; 8]);
}

#[test]
fn plus_records_carry_the_entry() {
    let mut buffer = [0_u8; 160];
    let found = Entry { node: 7, generation: 3, ..Entry::default() };
    let mut writer = DirectoryWriter::new(&mut buffer);
    assert!(writer.add_plus(&entry(b"abc"), &found));
    assert_eq!(writer.used_bytes(), 160);
    let (record, name) = split::<Direntplus>(&buffer).unwrap();
    assert_eq!((record.entry_out.nodeid, record.entry_out.generation, record.dirent.ino), (7, 3, 7));
    assert_eq!(&name[..3], b"abc");
    assert!(!DirectoryWriter::new(&mut buffer[..159]).add_plus(&entry(b"abc"), &found));
}
