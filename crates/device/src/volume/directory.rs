//! A directory as a volume: a removable disk, a share of another machine, a folder that something else synchronises.
//!
//! An object is a file. It is written under another name, flushed, and renamed, so that it is whole or not there. The directory
//! itself is never made here: where a medium is not mounted, there is no directory, and nothing is written beside it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{LOOK_BYTES, MediumWait, PIECE_BYTES, Take, Volume, VolumeError};
use crate::Cancellation;

/// What is not whole yet ends like this.
const PARTIAL: &str = ".partial";

/// Files of one directory.
#[derive(Debug)]
pub struct DirectoryVolume {
    root: PathBuf,
    /// Tells apart what is written at the same time.
    turn: AtomicU64,
}

impl DirectoryVolume {
    pub fn new(root: &Path) -> DirectoryVolume {
        DirectoryVolume { root: root.to_owned(), turn: AtomicU64::new(0) }
    }

    fn away(&self, why: &dyn std::fmt::Display) -> VolumeError {
        VolumeError::Away { volume: self.describe(), why: why.to_string() }
    }

    fn path(&self, object: &str) -> PathBuf {
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        assert!(object.split('/').all(is_plain), "an object's name leads nowhere else: {object}");
        self.root.join(object)
    }

    fn failed(&self, error: &std::io::Error) -> VolumeError {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => VolumeError::Full { volume: self.describe() },
            _ => self.away(error),
        }
    }

    /// A missing file means a missing object only where the directory is there.
    fn missing(&self, object: &str) -> VolumeError {
        match fs::metadata(&self.root) {
            Ok(metadata) if metadata.is_dir() => {
                VolumeError::NoObject { volume: self.describe(), object: object.to_owned() }
            }
            Ok(_) => self.away(&"it is no directory"),
            Err(error) => self.away(&error),
        }
    }

    fn open(&self, object: &str) -> Result<File, VolumeError> {
        File::open(self.path(object)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.missing(object),
            _ => self.failed(&error),
        })
    }

    fn read_part(&self, file: &File, object: &str, offset: u64, into: &mut [u8]) -> Result<(), VolumeError> {
        file.read_exact_at(into, offset).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => VolumeError::Short {
                volume: self.describe(),
                object: object.to_owned(),
                length: file.metadata().map_or(0, |metadata| metadata.len()),
                needed: offset + into.len() as u64,
            },
            _ => self.failed(&error),
        })
    }

    fn write(&self, path: &Path, partial: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let mut file = File::create(partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(partial, path)?;
        // The name too.
        let above = path.parent().unwrap_or(&self.root);
        File::open(above)?.sync_all()
    }

    /// Makes the directory of an object, below the root, which must be there.
    fn prepare(&self, path: &Path) -> std::io::Result<()> {
        if !fs::metadata(&self.root)?.is_dir() {
            return Err(std::io::Error::from(ErrorKind::NotADirectory));
        }
        let Some(above) = path.parent().filter(|above| *above != self.root) else { return Ok(()) };
        match fs::create_dir(above) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Err(_) => Ok(()),
            Ok(()) => File::open(&self.root)?.sync_all(),
        }
    }

    fn list_directory(&self, directory: &Path, before: &str) -> std::io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let metadata = entry.metadata()?;
            if metadata.is_dir() && before.is_empty() {
                found.extend(self.list_directory(&entry.path(), &format!("{name}/"))?);
            } else if metadata.is_file() && !name.ends_with(PARTIAL) {
                found.push((format!("{before}{name}"), metadata.len()));
            }
        }
        Ok(found)
    }
}

impl Volume for DirectoryVolume {
    fn put(&self, object: &str, bytes: &[u8]) -> Result<(), VolumeError> {
        assert!(!object.ends_with(PARTIAL), "{object} would never be listed");
        let path = self.path(object);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("object");
        let partial = path.with_file_name(format!("{name}.{turn}{PARTIAL}"));
        let written = self.prepare(&path).and_then(|()| self.write(&path, &partial, bytes));
        written.map_err(|error| {
            drop(fs::remove_file(&partial));
            self.failed(&error)
        })
    }

    fn get(&self, object: &str, offset: u64, into: &mut [u8], _: &MediumWait) -> Result<(), VolumeError> {
        self.read_part(&self.open(object)?, object, offset, into)
    }

    fn stream(&self, object: &str, length: usize, take: &Take, cancellation: &Cancellation) -> Result<(), VolumeError> {
        let file = self.open(object)?;
        let mut piece = vec![0; PIECE_BYTES.min(length)];
        for start in (0..length).step_by(PIECE_BYTES) {
            if start % LOOK_BYTES == 0 && start > 0 && cancellation.is_cancelled() {
                return Err(VolumeError::GivenUp { volume: self.describe() });
            }
            let piece = &mut piece[..PIECE_BYTES.min(length - start)];
            self.read_part(&file, object, start as u64, piece)?;
            take(piece);
        }
        Ok(())
    }

    fn length(&self, object: &str) -> Result<Option<u64>, VolumeError> {
        match self.open(object).and_then(|file| file.metadata().map_err(|error| self.failed(&error))) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(VolumeError::NoObject { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn delete(&self, object: &str) -> Result<(), VolumeError> {
        match fs::remove_file(self.path(object)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => match self.missing(object) {
                VolumeError::NoObject { .. } => Ok(()),
                error => Err(error),
            },
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, VolumeError> {
        let mut found = self.list_directory(&self.root, "").map_err(|error| self.away(&error))?;
        found.retain(|(name, _)| name.starts_with(prefix));
        found.sort_unstable();
        Ok(found)
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.root).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn may_be_exchanged(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("dir:{}", self.root.display())
    }
}
