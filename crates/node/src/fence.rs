//! Which owner an export belongs to: the newest epoch that was written for, in a small file beside it (`docs/format/node-fence.md`).
//!
//! Two slots are written in turn, in place, so that a crash leaves one of them, and a file system that is full takes it all the same.
//! Invariants: what `store` has acknowledged is found again; a file without a whole slot is an error, and never no fence.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stere_format::crc32c;

use crate::error::NodeError;

const MAGIC: [u8; 8] = *b"STEREFNC";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 4096;
const RECORD_BYTES: usize = 36;
const CHECKED_BYTES: usize = 32;

/// What one slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    sequence: u64,
    epoch: u64,
}

impl Record {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        let checksum = crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, &'static str> {
        let (checked, checksum) = bytes.split_at(CHECKED_BYTES);
        if checksum != crc32c(checked).to_le_bytes() {
            return Err("its checksums are wrong");
        }
        if checked[..8] != MAGIC {
            return Err("it is another file");
        }
        if checked[8..12] != VERSION.to_le_bytes() || checked[12..16] != [0; 4] {
            return Err("it is of a newer version");
        }
        let number = |at: usize| checked[at..at + 8].try_into().map(u64::from_le_bytes);
        match (number(16), number(24)) {
            (Ok(sequence), Ok(epoch)) => Ok(Record { sequence, epoch }),
            _ => Err("it is cut"),
        }
    }
}

/// The newest of the slots.
fn newest(bytes: &[u8]) -> Result<Record, &'static str> {
    let slots = bytes.chunks(SLOT_BYTES).take(2).map(|slot| match slot.first_chunk() {
        Some(record) => Record::decode(record),
        None => Err("it is cut"),
    });
    let slots: Vec<_> = slots.collect();
    let whole = slots.iter().flatten().max_by_key(|record| record.sequence);
    match (whole, slots.first()) {
        (Some(record), _) => Ok(*record),
        (None, Some(Err(why))) => Err(why),
        (None, _) => Err("it is empty"),
    }
}

/// Any bytes as the file of a fence, for fuzzing: what is read is one of the slots.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(record) = newest(bytes) {
        let is_slot = |at: usize| bytes.get(at..at + RECORD_BYTES) == Some(&record.encode()[..]);
        assert!(is_slot(0) || is_slot(SLOT_BYTES), "a record is one of the slots");
    }
}

/// The fence of one export.
#[derive(Debug)]
pub struct Fence {
    path: PathBuf,
    /// None before there was an owner who said his epoch.
    file: Option<File>,
    record: Record,
}

impl Fence {
    /// Reads it; one that is not there lets everybody write.
    pub fn load(path: PathBuf) -> Result<Fence, NodeError> {
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Fence { path, file: None, record: Record { sequence: 0, epoch: 0 } });
            }
            opened => opened.map_err(NodeError::file("open", &path))?,
        };
        let bytes = fs::read(&path).map_err(NodeError::file("read", &path))?;
        match newest(&bytes) {
            Ok(record) => Ok(Fence { path, file: Some(file), record }),
            Err(why) => Err(NodeError::Fence { path, why }),
        }
    }

    /// Of the newest owner that wrote; 0 where nobody has said his.
    pub fn epoch(&self) -> u64 {
        self.record.epoch
    }

    /// From now on this is the owner, also after a crash. After an error the one before is.
    pub fn store(&mut self, epoch: u64) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => make(&self.path)?,
        };
        let record = Record { sequence: self.record.sequence + 1, epoch };
        let at = record.sequence % 2 * SLOT_BYTES as u64;
        let written = file.write_all_at(&record.encode(), at).and_then(|()| file.sync_data());
        self.file = Some(file);
        written?;
        assert!(record.sequence > self.record.sequence, "a fence goes on");
        self.record = record;
        Ok(())
    }

    /// Takes away what an export of this name had before.
    pub fn remove(path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A file with both slots, whole or not there.
fn make(path: &Path) -> io::Result<File> {
    let new = path.with_file_name(".new");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&new)?;
    let mut bytes = vec![0; 2 * SLOT_BYTES];
    let record = Record { sequence: 0, epoch: 0 }.encode();
    [0, SLOT_BYTES].into_iter().for_each(|at| bytes[at..at + RECORD_BYTES].copy_from_slice(&record));
    file.write_all_at(&bytes, 0)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder_of(path)?;
    Ok(file)
}

/// Makes a name durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests;
