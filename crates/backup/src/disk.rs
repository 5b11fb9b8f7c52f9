//! The edge of the world: what a destination asks of the file system that it lies on, and the one of this machine.
//!
//! The simulator has another, which fails, is cut off and rots. Whoever opens a file or a name gets what is there and never follows a
//! symbolic link in the last place. Read next: `destination`.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::manifest::{Entry, ExtendedAttributes, Kind};

/// What is under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    File,
    Directory,
    Link,
    Other,
}

/// A file that is open.
pub trait DiskFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn set_length(&self, bytes: u64) -> io::Result<()>;
    /// Content and size are durable when it returns.
    fn sync(&self) -> io::Result<()>;
}

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync {
    /// What is under a name, without following it; nothing where that cannot be told.
    fn found(&self, path: &Path) -> Option<Found>;
    /// Names in a directory, and whether they are directories.
    fn names(&self, directory: &Path) -> io::Result<Vec<(OsString, bool)>>;
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Makes a file that nobody else reads; `replaces`: one that is there is emptied instead.
    fn make(&self, path: &Path, replaces: bool) -> io::Result<Box<dyn DiskFile>>;
    /// Adds to a file, which is made if it is not there, and makes that durable.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    fn make_directory(&self, path: &Path, mode: u32) -> io::Result<()>;
    fn make_link(&self, target: &[u8], path: &Path) -> io::Result<()>;
    fn link_target(&self, path: &Path) -> io::Result<Vec<u8>>;
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory that is empty.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all that is in it.
    fn remove_all(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory are durable when it returns.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Everything is, on the file system that this is on.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
    /// Owner, mode, attributes and times, as far as the file system can have them; names what it could not.
    fn set_facts(&self, path: &Path, entry: &Entry) -> Vec<String>;
    /// From now on only its owner gets at a directory.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()>;
    /// Keeps others from opening what this is the marker of, as long as it is held; nothing if somebody else does.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send>>>;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let (file, mut out, mut buffer) = (self.open(path)?, Vec::new(), vec![0; 64 << 10]);
        loop {
            let length = file.read_at(out.len() as u64, &mut buffer)?;
            if length == 0 {
                return Ok(out);
            }
            out.extend_from_slice(&buffer[..length]);
        }
    }
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl DiskFile for File {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, out, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        File::sync_all(self)
    }
}

impl Disk for Machine {
    fn found(&self, path: &Path) -> Option<Found> {
        let found = fs::symlink_metadata(path).ok()?;
        Some(match () {
            () if found.is_dir() => Found::Directory,
            () if found.is_symlink() => Found::Link,
            () if found.is_file() => Found::File,
            () => Found::Other,
        })
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let named = |entry: fs::DirEntry| Ok((entry.file_name(), entry.file_type()?.is_dir()));
        fs::read_dir(directory)?.map(|entry| entry.and_then(named)).collect()
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn make(&self, path: &Path, replaces: bool) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        if replaces {
            options.create(true).truncate(true)
        } else {
            options.create_new(true)
        };
        Ok(Box::new(options.open(path)?))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn make_directory(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::DirBuilder::new().mode(mode).create(path)
    }

    fn make_link(&self, target: &[u8], path: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), path)
    }

    fn link_target(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(fs::read_link(path)?.as_os_str().as_bytes().to_vec())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn set_facts(&self, path: &Path, entry: &Entry) -> Vec<String> {
        set_facts(path, entry)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send>>> {
        let file = File::open(path)?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(locked.is_ok().then(|| Box::new(file) as Box<dyn Any + Send>))
    }
}

/// Owner, mode, attributes and times, as far as the file system can have them; names what it could not. All of it is in the manifest.
fn set_facts(path: &Path, entry: &Entry) -> Vec<String> {
    let (facts, mut unset) = (&entry.facts, Vec::new());
    let mut note = |what: &str, outcome: std::io::Result<()>| {
        unset.extend(outcome.err().map(|error| format!("its {what} cannot be set: {error}")));
    };
    let owner = format!("owner ({}:{})", facts.uid, facts.gid);
    note(&owner, std::os::unix::fs::lchown(path, Some(facts.uid), Some(facts.gid)));
    // A symbolic link has no mode, and what it leads to is not meant.
    if facts.kind() != Kind::Link {
        note("mode", fs::set_permissions(path, fs::Permissions::from_mode(facts.mode & 0o7777)));
    }
    for (name, outcome) in set_attributes(path, &entry.attributes) {
        note(&format!("attribute {}", String::from_utf8_lossy(name)), outcome);
    }
    let (seconds, nanoseconds) = facts.modified;
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    let set = rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    note("time", set.map_err(std::io::Error::from));
    unset
}

/// Brings the extended attributes to these: what was there and is not any more goes. Tells what came of each.
fn set_attributes<'a>(path: &Path, attributes: &'a ExtendedAttributes) -> Vec<(&'a [u8], std::io::Result<()>)> {
    use rustix::fs::{XattrFlags, llistxattr, lremovexattr, lsetxattr};
    let mut names = vec![0u8; 64 << 10];
    let length = llistxattr(path, &mut names[..]).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // What the system keeps of its own, as labels, is not ours.
        let is_ours =
            name.starts_with(b"user.") || name.starts_with(b"trusted.") || name.starts_with(b"system.posix_acl");
        if is_ours && !attributes.iter().any(|(known, _)| known == name) {
            let _where_it_can = lremovexattr(path, name);
        }
    }
    let set = |value: &'a (Vec<u8>, Vec<u8>)| {
        let (name, value) = value;
        (&name[..], lsetxattr(path, &name[..], value, XattrFlags::empty()).map_err(std::io::Error::from))
    };
    attributes.iter().map(set).collect()
}
