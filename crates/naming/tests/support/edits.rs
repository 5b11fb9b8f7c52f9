//! Random changes of a few files, and the bytes that they should leave.

use stere_naming::{FileSystem, KEEP_SIZE, PUNCH_HOLE, SetAttributes, SetMode};

use super::caller;

const RECORD_BYTES: u64 = 128 << 10;

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    pub fn noise(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next(256) as u8).collect()
    }
}

pub fn set(fs: &FileSystem, inode: u64, key: &str, value: &str) {
    let name = format!("user.stere.{key}");
    fs.setxattr(&caller(3), inode, name.as_bytes(), value.as_bytes(), SetMode::Any, false).unwrap();
}

/// What the file system says, or how it refuses.
pub fn fact(fs: &FileSystem, inode: u64, key: &str) -> String {
    let value = fs.getxattr(&caller(9), inode, format!("user.stere.{key}").as_bytes());
    value.map_or_else(|error| format!("{error:?}"), |value| String::from_utf8(value).unwrap())
}

/// What is done to a file: written (0 to 4), cut or grown (5), a hole made in (6), copied to the next one (7).
pub struct Edit {
    pub kind: u64,
    pub offset: u64,
    pub length: u64,
}

/// Does it to the file and to what it should hold.
pub fn edit(
    fs: &FileSystem,
    files: &mut [(u64, Vec<u8>)],
    at: usize,
    Edit { kind, offset, length }: Edit,
    random: &mut Random,
    text: impl Fn(usize) -> Vec<u8>,
) {
    let (inode, bytes) = files[at].clone();
    match kind {
        0..5 => {
            let data = if random.next(4) == 0 { random.noise(length as usize) } else { text(length as usize) };
            // Whole records at their places go another way than pieces.
            let offset = if length == RECORD_BYTES { offset / length * length } else { offset };
            assert_eq!(fs.write(&caller(4), inode, offset, &data, false).unwrap(), data.len());
            let bytes = &mut files[at].1;
            bytes.resize(bytes.len().max(offset as usize + data.len()), 0);
            bytes[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
        }
        5 => {
            let size = Some(offset);
            fs.setattr(&caller(4), inode, &SetAttributes { size, ..SetAttributes::default() }).unwrap();
            files[at].1.resize(offset as usize, 0);
        }
        6 => {
            fs.fallocate(&caller(4), inode, offset, length, PUNCH_HOLE | KEEP_SIZE).unwrap();
            let end = bytes.len().min((offset + length) as usize);
            files[at].1.get_mut(offset as usize..end).into_iter().for_each(|range| range.fill(0));
        }
        7 => {
            let (to, offset) = ((at + 1) % 3, offset / 4096 * 4096);
            let copied = fs.copy_range(&caller(4), inode, offset, files[to].0, offset, length).unwrap() as usize;
            let (from, offset) = (files[at].1.clone(), offset as usize);
            let bytes = &mut files[to].1;
            if copied > 0 {
                bytes.resize(bytes.len().max(offset + copied), 0);
                bytes[offset..offset + copied].copy_from_slice(&from[offset..offset + copied]);
            }
        }
        _ => unreachable!("no such edit"),
    }
}
