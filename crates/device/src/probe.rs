//! What is on a device before a pool is made on it: empty, somebody's file system, partitions, an archive, or unknown bytes.
//!
//! Read-only and without locks. stere's own superblocks are not known here (the format crate knows them): ask it first,
//! because to this module they are just `Content::Unknown`. Also the guess whether a device spins.
//!
//! Invariant: `Content::Empty` is said only if every sampled place reads as zeros; when in doubt there is something.

mod signatures;

use crate::Device;
use crate::error::{DeviceError, Operation};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// What was found on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// All sampled places read as zeros.
    Empty,
    /// Something known, named for people ("ext4 file system").
    Known { name: String },
    /// Bytes that are not zero and that no signature explains.
    Unknown { offset: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub size_bytes: u64,
    pub is_block_device: bool,
    pub class: ClassGuess,
    pub content: Content,
}

impl Finding {
    pub fn is_empty(&self) -> bool {
        self.content == Content::Empty
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.content {
            Content::Empty => formatter.write_str("nothing"),
            Content::Known { name } => formatter.write_str(name),
            Content::Unknown { offset } => write!(formatter, "unknown data (at byte {offset})"),
        }
    }
}

/// What kind of medium the kernel says a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassGuess {
    Ssd,
    Hdd,
    Unknown,
}

/// The sampled parts of a device, by absolute offset.
struct Samples<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    tail_offset: u64,
    size_bytes: u64,
}

impl Samples<'_> {
    /// The bytes at an offset, if they were sampled.
    fn at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let within = |bytes: &'_ [u8], base: u64| -> Option<std::ops::Range<usize>> {
            let start = usize::try_from(offset.checked_sub(base)?).ok()?;
            let end = start.checked_add(length)?;
            (end <= bytes.len()).then_some(start..end)
        };
        match within(self.head, 0) {
            Some(range) => Some(&self.head[range]),
            None => within(self.tail, self.tail_offset).map(|range| &self.tail[range]),
        }
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.at(offset, magic.len()) == Some(magic)
    }
}

/// Looks at a device that is open, of which the kernel knows nothing.
pub fn probe_open(device: &dyn Device, class: ClassGuess) -> Result<Finding, DeviceError> {
    let size_bytes = device.size_bytes();
    let content = look(size_bytes, |offset, end| {
        let mut bytes = vec![0; (end - offset) as usize];
        device.read(offset, &mut bytes)?;
        Ok(bytes)
    })?;
    Ok(Finding { size_bytes, is_block_device: false, class, content })
}

/// Looks at a regular file or block device. Works while others use it; changes nothing.
pub fn probe(path: &Path) -> Result<Finding, DeviceError> {
    let device = path.display().to_string();
    let failed = |offset: u64| {
        let device = device.clone();
        move |source: std::io::Error| DeviceError::io(&device, Operation::Probe, offset, source)
    };
    let metadata = std::fs::metadata(path).map_err(failed(0))?;
    let is_block_device = metadata.file_type().is_block_device();
    if !is_block_device && !metadata.file_type().is_file() {
        return Err(DeviceError::UnsuitableKind { device });
    }
    let mut file = File::open(path).map_err(failed(0))?;
    let size_bytes = file.seek(SeekFrom::End(0)).map_err(failed(0))?;
    let read = |offset: u64, end: u64| -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; (end - offset) as usize];
        file.read_exact_at(&mut bytes, offset).map_err(failed(offset))?;
        Ok(bytes)
    };
    let content = look(size_bytes, read)?;
    Ok(Finding { size_bytes, is_block_device, class: guess_class(path), content })
}

/// What is there, by what `read` gives of ranges.
fn look(size_bytes: u64, read: impl Fn(u64, u64) -> Result<Vec<u8>, DeviceError>) -> Result<Content, DeviceError> {
    let head = read(0, size_bytes.min(MIB))?;
    let tail_offset = size_bytes.saturating_sub(MIB).max(head.len() as u64);
    let tail = read(tail_offset, size_bytes)?;
    let samples = Samples { head: &head, tail: &tail, tail_offset, size_bytes };
    let mut content = match signatures::recognise(&samples) {
        Some(name) => Content::Known { name },
        None => first_byte_set(&head, 0)
            .or_else(|| first_byte_set(&tail, tail_offset))
            .map_or(Content::Empty, |offset| Content::Unknown { offset }),
    };
    if content == Content::Empty {
        // A few places between, where mirrors of superblocks and the bodies of archives lie.
        for offset in [4 * MIB, 64 * MIB, size_bytes / 4, size_bytes / 2, size_bytes / 4 * 3] {
            let offset = offset / 4096 * 4096;
            if offset >= tail_offset {
                continue;
            }
            let sample = read(offset, (offset + 64 * 1024).min(size_bytes))?;
            if let Some(offset) = first_byte_set(&sample, offset) {
                content = Content::Unknown { offset };
                break;
            }
        }
    }
    Ok(content)
}

fn first_byte_set(bytes: &[u8], base: u64) -> Option<u64> {
    bytes.iter().position(|&byte| byte != 0).map(|at| base + at as u64)
}

/// Asks the kernel whether the disk behind a path spins: the block device itself, or the one a regular file lies on.
pub fn guess_class(path: &Path) -> ClassGuess {
    let Ok(metadata) = std::fs::metadata(path) else {
        return ClassGuess::Unknown;
    };
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    let base = format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number));
    // A partition has no queue of its own; its disk is the folder above.
    for queue in ["queue/rotational", "../queue/rotational"] {
        match std::fs::read_to_string(Path::new(&base).join(queue)).as_deref().map(str::trim) {
            Ok("0") => return ClassGuess::Ssd,
            Ok("1") => return ClassGuess::Hdd,
            _ => {}
        }
    }
    ClassGuess::Unknown
}

#[cfg(test)]
mod tests;
