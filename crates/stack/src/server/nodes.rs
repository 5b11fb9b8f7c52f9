//! Nodes: entries of the source that the kernel knows, each by an `O_PATH` descriptor.
//!
//! Invariants: a file of the source is one node however many names it has; a node goes when the kernel has forgotten it as often as it
//! was told of it; a lookup that finds a node again counts before the answer goes out.

use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use fuse_wire::{Attributes, Entry, Timestamp};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::{TIME_TO_LIVE, errno};
use crate::error::Error;
use crate::stacked::{Found, Stacked, find};

pub(super) const ROOT: u64 = 1;

/// An entry of the source.
pub(super) struct Node {
    pub number: u64,
    pub entry: OwnedFd,
    pub content: Mutex<Content>,
}

/// What is known of a file's content.
#[derive(Default)]
pub(super) struct Content {
    /// Open, if it is stored in another form and somebody has it open.
    pub stacked: Option<Stacked>,
    pub opens: u32,
    /// Handles of it as it is; while there are any it keeps that form.
    pub plain_opens: u32,
    /// What `find` said of it when it looked like this.
    found: Option<(Looks, Found)>,
}

/// What changes whenever a file does.
type Looks = (i64, u64, i64, u64, i64);

struct Known {
    node: Arc<Node>,
    lookups: u64,
}

#[derive(Default)]
struct Tables {
    by_number: FxHashMap<u64, Known>,
    by_identity: FxHashMap<(u64, u64), u64>,
    last: u64,
}

/// All nodes.
pub(super) struct Nodes {
    tables: Mutex<Tables>,
    root: Arc<Node>,
}

impl Tables {
    fn assert_invariants(&self) {
        assert_eq!(self.by_number.len(), self.by_identity.len(), "each node is one file, and each file one node");
        assert!(self.by_number.contains_key(&ROOT), "the root is never forgotten");
    }
}

impl Node {
    /// A path to it that works whatever its names are.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.entry.as_raw_fd()))
    }

    pub fn stat(&self) -> Result<Stat, Error> {
        Ok(rustix::fs::statat(&self.entry, "", AtFlags::EMPTY_PATH)?)
    }

    /// Opens the file itself.
    pub fn open(&self, flags: OFlags) -> Result<File, Error> {
        let file: OwnedFd = rustix::fs::open(self.path(), flags | OFlags::CLOEXEC, Mode::empty())?;
        Ok(file.into())
    }

    /// How a regular file is stored.
    pub fn found(&self, content: &mut Content, stat: &Stat) -> Result<Found, Error> {
        let looks = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec, stat.st_size);
        if let Some((_, found)) = content.found.as_ref().filter(|(known, _)| *known == looks) {
            return Ok(found.clone());
        }
        let found = if stat.st_size < crate::layout::HEADER_BYTES as i64 {
            Found::Plain
        } else {
            match self.open(OFlags::RDONLY) {
                Ok(file) => find(&file)?,
                // Who may not read it sees it as it is.
                Err(error) if error.errno() == libc::EACCES => return Ok(Found::Plain),
                Err(error) => return Err(error),
            }
        };
        content.found = Some((looks, found.clone()));
        Ok(found)
    }

    /// What stat(2) is to show.
    pub fn attributes(&self) -> Result<Attributes, Error> {
        let stat = self.stat()?;
        let mut attributes = attributes(&stat);
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let mut content = self.content.lock();
            match &content.stacked {
                Some(stacked) => attributes.size = stacked.size(),
                None => {
                    if let Found::Stacked { size, .. } = self.found(&mut content, &stat)? {
                        attributes.size = size;
                    }
                }
            }
        }
        Ok(attributes)
    }
}

impl Nodes {
    pub fn new(root: OwnedFd) -> Result<Nodes, Error> {
        let stat = rustix::fs::statat(&root, "", AtFlags::EMPTY_PATH)?;
        let root = Arc::new(Node { number: ROOT, entry: root, content: Mutex::default() });
        let mut tables = Tables { last: ROOT, ..Tables::default() };
        tables.by_identity.insert((stat.st_dev, stat.st_ino), ROOT);
        tables.by_number.insert(ROOT, Known { node: root.clone(), lookups: 1 });
        Ok(Nodes { tables: Mutex::new(tables), root })
    }

    pub fn get(&self, number: u64) -> Result<Arc<Node>, Error> {
        if number == ROOT {
            return Ok(self.root.clone());
        }
        let tables = self.tables.lock();
        tables.by_number.get(&number).map(|known| known.node.clone()).ok_or_else(|| errno(libc::ESTALE))
    }

    /// The node of a name, counted as told.
    pub fn look_up(&self, directory: &Node, name: &OsStr) -> Result<Arc<Node>, Error> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry: OwnedFd = rustix::fs::openat(&directory.entry, name, flags, Mode::empty())?;
        let stat = rustix::fs::statat(&entry, "", AtFlags::EMPTY_PATH)?;
        let mut tables = self.tables.lock();
        let identity = (stat.st_dev, stat.st_ino);
        if let Some(number) = tables.by_identity.get(&identity).copied()
            && let Some(known) = tables.by_number.get_mut(&number)
        {
            known.lookups += 1;
            return Ok(known.node.clone());
        }
        tables.last += 1;
        let number = tables.last;
        let node = Arc::new(Node { number, entry, content: Mutex::default() });
        tables.by_identity.insert(identity, number);
        tables.by_number.insert(number, Known { node: node.clone(), lookups: 1 });
        tables.assert_invariants();
        Ok(node)
    }

    pub fn forget(&self, number: u64, lookups: u64) {
        let mut tables = self.tables.lock();
        let Some(known) = tables.by_number.get_mut(&number).filter(|_| number != ROOT) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 {
            tables.by_number.remove(&number);
            tables.by_identity.retain(|_, known| *known != number);
            tables.assert_invariants();
        }
    }
}

/// The answer to whoever asked for a name.
pub(super) fn entry(node: &Node) -> Result<Entry, Error> {
    let attributes = node.attributes()?;
    let (entry_ttl, attributes_ttl) = (TIME_TO_LIVE, TIME_TO_LIVE);
    Ok(Entry { node: node.number, generation: 0, entry_ttl, attributes_ttl, attributes })
}

fn attributes(stat: &Stat) -> Attributes {
    let time = |seconds: i64, nanoseconds: u64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Attributes {
        inode: stat.st_ino,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        mode: stat.st_mode,
        links: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        block_size: 0,
    }
}
