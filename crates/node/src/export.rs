//! The directory of a node, and its exports: regular files with plain names. Beside them, in `.stere-node`, are the lock and the fences.
//!
//! Invariants: no name leads out of the directory; a change of an export and the look at its fence are one step, so that nothing of an older
//! owner is carried out once a newer one was acknowledged; a flush that failed is never followed by one that succeeds.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use stere_nbd::wire::extension::is_name;
use stere_nbd::wire::server::error_number;

use crate::error::NodeError;
use crate::fence::{Fence, sync_folder_of};
use crate::ranges::{Part, Ranges};

const OWN_FOLDER: &str = ".stere-node";
const EXPORTS_MAX: usize = 1024;
const SIZE_BYTES_MAX: u64 = 1 << 62;
const SIZE_UNIT: u64 = 4096;
/// Zeros that are written at once.
const ZEROS_BYTES: u64 = 1 << 20;
const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// A directory that this process serves.
pub struct Directory {
    path: PathBuf,
    exports: Mutex<BTreeMap<String, Arc<Export>>>,
    _lock: File,
}

impl Directory {
    /// Takes the directory for this process.
    pub fn open(path: &Path) -> Result<Directory, NodeError> {
        if !path.is_dir() {
            return Err(NodeError::NotADirectory { path: path.to_owned() });
        }
        let own = path.join(OWN_FOLDER);
        let fences = own.join("fences");
        fs::create_dir_all(&fences).map_err(NodeError::file("make", &fences))?;
        let lock_path = own.join("lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.map_err(NodeError::file("make", &lock_path))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(NodeError::InUse { path: path.to_owned() }),
            Err(error) => return Err(NodeError::file("lock", &lock_path)(error.into())),
        }
        [&own, &fences]
            .into_iter()
            .try_for_each(|folder| sync_folder_of(folder))
            .map_err(NodeError::file("sync", path))?;
        Ok(Directory { path: path.to_owned(), exports: Mutex::default(), _lock: lock })
    }

    /// Names of the exports, sorted.
    pub fn names(&self) -> Result<Vec<String>, NodeError> {
        let entries = fs::read_dir(&self.path).map_err(NodeError::file("read", &self.path))?;
        let files = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let names = files.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_name(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// An export that is there.
    pub fn export(&self, name: &str) -> Result<Arc<Export>, NodeError> {
        self.find(&mut self.exports.lock(), name)
    }

    fn find(&self, exports: &mut BTreeMap<String, Arc<Export>>, name: &str) -> Result<Arc<Export>, NodeError> {
        if !is_name(name) {
            return Err(NodeError::Name { name: name.chars().take(40).collect() });
        }
        if let Some(export) = exports.get(name) {
            return Ok(export.clone());
        }
        let export = Arc::new(Export::open(self.path.join(name), name, Fence::load(self.fence_path(name))?)?);
        exports.insert(name.to_owned(), export.clone());
        Ok(export)
    }

    /// The same; makes one of this size that is not there.
    pub fn provide(&self, name: &str, size_bytes: u64) -> Result<Arc<Export>, NodeError> {
        let mut exports = self.exports.lock();
        match self.find(&mut exports, name) {
            Err(NodeError::NoExport { .. }) if size_bytes > 0 => {}
            found => return found,
        }
        if size_bytes > SIZE_BYTES_MAX || !size_bytes.is_multiple_of(SIZE_UNIT) {
            return Err(NodeError::Size { size_bytes });
        }
        if self.names()?.len() >= EXPORTS_MAX {
            return Err(NodeError::TooMany { max: EXPORTS_MAX });
        }
        let (path, fence) = (self.path.join(name), self.fence_path(name));
        Fence::remove(&fence).map_err(NodeError::file("remove", &fence))?;
        make(&path, size_bytes).map_err(NodeError::file("make", &path))?;
        tracing::info!(name, size_bytes, "an export is made");
        self.find(&mut exports, name)
    }

    fn fence_path(&self, name: &str) -> PathBuf {
        assert!(is_name(name), "a name was looked at before it leads to a file");
        self.path.join(OWN_FOLDER).join("fences").join(name)
    }

    /// Makes everything durable that was written.
    pub fn flush(&self) -> Result<(), NodeError> {
        let exports: Vec<Arc<Export>> = self.exports.lock().values().cloned().collect();
        exports.iter().try_for_each(|export| {
            let flushed = export.file.sync_data().and_then(|()| export.ranges.flush());
            flushed.map_err(NodeError::file("flush", self.path.join(&export.name)))
        })
    }
}

/// A sparse file, whole or not there.
fn make(path: &Path, size_bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let made = file.set_len(size_bytes).and_then(|()| file.sync_all()).and_then(|()| sync_folder_of(path));
    if made.is_err() {
        drop(fs::remove_file(path));
    }
    made
}

/// For which owner a connection writes.
#[derive(Debug, Default, Clone, Copy)]
pub struct Standing {
    epoch: Option<u64>,
    /// Why what it said last was not taken.
    refused: Option<u32>,
}

/// One file that is served.
pub struct Export {
    pub name: String,
    /// All bytes but those of ranges.
    file: File,
    ranges: Ranges,
    pub size_bytes: u64,
    /// Held for reading while something is changed, and for writing while the owner is.
    fence: RwLock<Fence>,
    is_flush_failed: AtomicBool,
    is_refusal_told: AtomicBool,
}

impl Export {
    fn open(path: PathBuf, name: &str, fence: Fence) -> Result<Export, NodeError> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(NodeError::NoExport { name: name.to_owned() });
            }
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(NodeError::NotAFile { name: name.to_owned() });
            }
            opened => opened.map_err(NodeError::file("open", &path))?,
        };
        let facts = file.metadata().map_err(NodeError::file("look at", &path))?;
        if !facts.is_file() {
            return Err(NodeError::NotAFile { name: name.to_owned() });
        }
        Ok(Export {
            name: name.to_owned(),
            file,
            ranges: Ranges::load(&path)?,
            size_bytes: facts.len(),
            fence: RwLock::new(fence),
            is_flush_failed: AtomicBool::new(false),
            is_refusal_told: AtomicBool::new(false),
        })
    }

    pub fn epoch(&self) -> u64 {
        self.fence.read().epoch()
    }

    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), u32> {
        assert!(offset + into.len() as u64 <= self.size_bytes, "a read is within its export");
        let steady = self.ranges.steady();
        let read = steady.with_parts(&self.file, offset, into.len() as u64, |file, part| {
            file.read_exact_at(&mut into[part.of_memory()], part.at)
        });
        read.map_err(|error| error_number(&error))
    }

    /// Changes something, if the connection may.
    fn change(&self, standing: &Standing, work: impl FnOnce() -> io::Result<()>) -> Result<(), u32> {
        let fence = self.fence.read();
        self.check(&fence, standing)?;
        work().map_err(|error| {
            tracing::warn!(name = self.name, %error, "an export could not be written");
            error_number(&error)
        })
    }

    fn check(&self, fence: &Fence, standing: &Standing) -> Result<(), u32> {
        let is_owner = fence.epoch() == 0 || standing.epoch == Some(fence.epoch());
        match standing.refused {
            None if is_owner => Ok(()),
            Some(error) if error != EPERM => Err(error),
            _ => {
                if !self.is_refusal_told.swap(true, Ordering::AcqRel) {
                    let (name, epoch) = (&self.name, fence.epoch());
                    tracing::warn!(name, epoch, "an older owner is refused");
                }
                Err(EPERM)
            }
        }
    }

    pub fn write(&self, standing: &Standing, offset: u64, bytes: &[u8]) -> Result<(), u32> {
        assert!(offset + bytes.len() as u64 <= self.size_bytes, "a write is within its export");
        self.change_bytes(standing, offset, bytes.len() as u64, |file, part| {
            file.write_all_at(&bytes[part.of_memory()], part.at)
        })
    }

    /// Changes bytes, each in its file.
    fn change_bytes(
        &self,
        standing: &Standing,
        offset: u64,
        length: u64,
        mut work: impl FnMut(&File, &Part) -> io::Result<()>,
    ) -> Result<(), u32> {
        self.change(standing, || {
            let steady = self.ranges.steady();
            steady.with_parts(&self.file, offset, length, |file, part| {
                let done = work(file, part);
                // After it: a flush that comes before covers nothing that was acknowledged.
                steady.note_written(part);
                done
            })
        })
    }

    fn punch_range(&self, standing: &Standing, offset: u64, length: u64) -> Result<(), u32> {
        self.change_bytes(standing, offset, length, |file, part| punch(file, part.at, part.length()))
    }

    /// Tells a range of the export what is wanted of it.
    pub fn tell(&self, standing: &Standing, offset: u64, length: u64, settings: &str) -> Result<(), u32> {
        let is_within = offset.checked_add(length).is_some_and(|end| end <= self.size_bytes);
        if !is_within || !offset.is_multiple_of(SIZE_UNIT) || !length.is_multiple_of(SIZE_UNIT) {
            return Err(EINVAL);
        }
        self.change(standing, || self.ranges.tell(&self.file, offset, length, settings))
    }

    /// Advice: a file system that cannot do it keeps what was there.
    pub fn trim(&self, standing: &Standing, offset: u64, length: u64) -> Result<(), u32> {
        self.change_bytes(standing, offset, length, |file, part| match punch(file, part.at, part.length()) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
            outcome => outcome,
        })
    }

    /// Zeros, as a hole where that is allowed and possible.
    pub fn zero(&self, standing: &Standing, offset: u64, length: u64, may_be_hole: bool) -> Result<(), u32> {
        if may_be_hole && self.punch_range(standing, offset, length).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; ZEROS_BYTES.min(length) as usize];
        let mut at = 0;
        while at < length {
            let step = ZEROS_BYTES.min(length - at);
            self.write(standing, offset + at, &zeros[..step as usize])?;
            at += step;
        }
        assert_eq!(at, length, "all of it is written");
        Ok(())
    }

    /// Makes what was written durable. Once it fails it fails until the node is started again: what was dropped cannot be known.
    pub fn flush(&self, standing: &Standing) -> Result<(), u32> {
        self.check(&self.fence.read(), standing)?;
        if self.is_flush_failed.load(Ordering::Acquire) {
            return Err(EIO);
        }
        self.file.sync_data().and_then(|()| self.ranges.flush()).map_err(|error| {
            tracing::error!(name = self.name, %error, "an export could not be flushed; start the node again to use it");
            self.is_flush_failed.store(true, Ordering::Release);
            error_number(&error)
        })
    }

    /// A connection says for which owner it writes. The newest one stays; 0 ends all of that, where it comes from the owner.
    pub fn fence(&self, standing: &mut Standing, epoch: u64) -> Result<(), u32> {
        let mut fence = self.fence.write();
        let kept = fence.epoch();
        let outcome = match epoch {
            0 => self.check(&fence, standing),
            _ if epoch < kept => Err(EPERM),
            _ => Ok(()),
        };
        let outcome = outcome.and_then(|()| match epoch {
            _ if epoch == kept => Ok(()),
            // A new pool begins, whose chunks may be of another size.
            0 => self.ranges.forget().and_then(|()| fence.store(epoch)).map_err(|error| error_number(&error)),
            _ => fence.store(epoch).map_err(|error| error_number(&error)),
        });
        assert!(outcome.is_ok() || fence.epoch() == kept, "what was refused changes nothing");
        *standing = match outcome {
            Ok(()) => Standing { epoch: (epoch != 0).then_some(epoch), refused: None },
            Err(error) => Standing { epoch: None, refused: Some(error) },
        };
        if outcome.is_ok() && epoch != kept {
            tracing::info!(name = self.name, epoch, before = kept, "an export has a new owner");
            self.is_refusal_told.store(false, Ordering::Release);
        }
        assert!(outcome.is_err() || fence.epoch() == epoch, "the owner that was acknowledged is kept");
        outcome
    }
}

/// Gives a range back to the file system; it reads as zeros.
pub fn punch(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, offset, length).map_err(io::Error::from)
}

#[cfg(test)]
mod tests;
