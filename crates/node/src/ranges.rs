//! Ranges of an export that were told something: each is a file of its own, with what it was told as its attributes (`user.stere.KEY`).
//!
//! So the file system below, which may be a stere pool, stores it by its own rules, plugins, devices and redundancy. Invariants: a byte of an export
//! is in the range that has its place, or in the file of the export; what a range is told changes none of its bytes; no two ranges overlap; a
//! range that is there after a crash is whole. Source: ATTEST (2011), 6.1: attributes travel with the data and are set where it is stored.
//! Read next: `export.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustix::fs::{OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

use crate::error::NodeError;
use crate::fence::sync_folder_of;

/// Ranges of one export.
const RANGES_MAX: usize = 1 << 16;
/// Of them, how many are open.
const OPEN_MAX: usize = 256;
/// What is moved at once.
const PIECE_BYTES: usize = 1 << 20;
/// Attributes that settings become.
const PREFIX: &str = "user.stere.";
/// Settings that no range is given: files that must stay as they are cannot be written, and a user of the pool would fail its devices with that.
const NEVER: [&str; 1] = ["retain"];
/// A name while a file is made.
const MAKING: &str = "new";
const NAMES_BYTES_MAX: usize = 64 << 10;

/// Where the ranges of an export are.
pub fn folder_of(export: &Path) -> PathBuf {
    let mut name = export.as_os_str().to_owned();
    name.push(".ranges");
    PathBuf::from(name)
}

/// The files of an export's ranges.
pub struct Ranges {
    folder: PathBuf,
    /// Lengths by offset. Held for reading while bytes are used, and for writing while a range comes or goes.
    lengths: RwLock<BTreeMap<u64, u64>>,
    open: Mutex<BTreeMap<u64, Arc<File>>>,
    /// Written since they were flushed.
    unflushed: Mutex<BTreeSet<u64>>,
    /// Held by the flush that is under way: another one ends after it, whose ranges it finds no more.
    flushing: Mutex<()>,
    /// Ranges were made since the folder was flushed.
    is_grown: AtomicBool,
}

/// The ranges while none comes or goes.
pub struct Steady<'a> {
    ranges: &'a Ranges,
    lengths: RwLockReadGuard<'a, BTreeMap<u64, u64>>,
}

/// A piece of what was asked for: the range that has it, if one has; where it is in that file; and which bytes it is of those asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    pub range: Option<u64>,
    pub at: u64,
    pub bytes: Range<u64>,
}

impl Part {
    pub fn length(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// The same bytes, of memory.
    pub fn of_memory(&self) -> Range<usize> {
        self.bytes.start as usize..self.bytes.end as usize
    }
}

impl Ranges {
    /// Finds what is there.
    pub fn load(export: &Path) -> Result<Ranges, NodeError> {
        let folder = folder_of(export);
        let mut lengths = BTreeMap::new();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.map_err(NodeError::file("read", &folder))?),
        };
        for entry in entries.into_iter().flatten() {
            let entry = entry.map_err(NodeError::file("read", &folder))?;
            let name = entry.file_name();
            let offset = name.to_str().filter(|name| name.len() == 16);
            let Some(offset) = offset.and_then(|name| u64::from_str_radix(name, 16).ok()) else { continue };
            let length = entry.metadata().map_err(NodeError::file("look at", entry.path()))?.len();
            // One that was made and not flushed has nothing yet.
            if length > 0 {
                lengths.insert(offset, length);
            }
        }
        let (lengths, open, unflushed) = (RwLock::new(lengths), Mutex::default(), Mutex::default());
        Ok(Ranges { folder, lengths, open, unflushed, flushing: Mutex::default(), is_grown: AtomicBool::new(false) })
    }

    pub fn steady(&self) -> Steady<'_> {
        Steady { ranges: self, lengths: self.lengths.read() }
    }

    fn path(&self, offset: u64) -> PathBuf {
        self.folder.join(format!("{offset:016x}"))
    }

    fn file(&self, offset: u64) -> io::Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&offset) {
            return Ok(file.clone());
        }
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let file = Arc::new(OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path(offset))?);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(offset, file.clone());
        Ok(file)
    }

    /// Makes durable what was written to ranges.
    pub fn flush(&self) -> io::Result<()> {
        let _after_others = self.flushing.lock();
        let written = std::mem::take(&mut *self.unflushed.lock());
        written.into_iter().try_for_each(|offset| match self.file(offset) {
            // It went, with all that was in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            file => file?.sync_all(),
        })?;
        match self.is_grown.swap(false, Ordering::AcqRel) {
            true => File::open(&self.folder)?.sync_all().and_then(|()| sync_folder_of(&self.folder)),
            false => Ok(()),
        }
    }

    /// Tells a range something; `rest` is the file of the export, which has its bytes until then.
    pub fn tell(&self, rest: &File, offset: u64, length: u64, settings: &str) -> io::Result<()> {
        let mut lengths = self.lengths.write();
        match lengths.get(&offset) {
            Some(known) if *known == length => {}
            None if settings.is_empty() => return Ok(()),
            None if !overlaps(&lengths, offset, length) && lengths.len() < RANGES_MAX => {
                let told = self.make(rest, offset, length, settings)?;
                lengths.insert(offset, length);
                self.unflushed.lock().insert(offset);
                return told;
            }
            // Of a pool with chunks of another size.
            _ => return Err(Errno::INVAL.into()),
        }
        let told = set_attributes(&*self.file(offset)?, settings);
        self.unflushed.lock().insert(offset);
        told
    }

    /// Makes the file of a range, with what it was told before it has any bytes, and moves its bytes there. The inner outcome: whether all settings
    /// were taken.
    fn make(&self, rest: &File, offset: u64, length: u64, settings: &str) -> io::Result<io::Result<()>> {
        let made = self.make_file(rest, offset, length, settings);
        if made.is_err() {
            // What of it was written takes no room.
            drop(fs::remove_file(self.folder.join(MAKING)));
        }
        made
    }

    fn make_file(&self, rest: &File, offset: u64, length: u64, settings: &str) -> io::Result<io::Result<()>> {
        match fs::create_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // What was not flushed may go in a crash: so may a range, as long as it has nothing that was flushed in the export.
        self.is_grown.store(true, Ordering::Release);
        let making = self.folder.join(MAKING);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&making)?;
        let told = set_attributes(&file, settings);
        file.set_len(length)?;
        let has_moved = move_bytes(rest, offset, &file, length)?;
        if has_moved {
            file.sync_all()?;
        }
        let path = self.path(offset);
        fs::rename(&making, &path)?;
        if has_moved {
            sync_folder_of(&path)?;
            sync_folder_of(&self.folder)?;
            // Nobody reads them there any more.
            if let Err(error) = crate::export::punch(rest, offset, length) {
                tracing::debug!(offset, %error, "the bytes of a range stay in the export, too");
            }
        }
        Ok(told)
    }

    /// A new pool begins on the export.
    pub fn forget(&self) -> io::Result<()> {
        let mut lengths = self.lengths.write();
        self.open.lock().clear();
        self.unflushed.lock().clear();
        while let Some((offset, _)) = lengths.first_key_value() {
            let offset = *offset;
            fs::remove_file(self.path(offset))?;
            lengths.remove(&offset);
        }
        Ok(())
    }
}

impl Steady<'_> {
    /// The pieces that a request is of, in their order.
    pub fn parts(&self, offset: u64, length: u64) -> Vec<Part> {
        let (mut parts, mut at, end) = (Vec::new(), offset, offset + length);
        while at < end {
            let within = self.lengths.range(..=at).next_back().filter(|(start, length)| at - **start < **length);
            let (range, start, until) = match within {
                Some((start, length)) => (Some(*start), *start, start + length),
                None => (None, 0, self.lengths.range(at..).next().map_or(end, |(start, _)| *start)),
            };
            let until = until.min(end);
            assert!(until > at, "each piece has bytes");
            parts.push(Part { range, at: at - start, bytes: at - offset..until - offset });
            at = until;
        }
        assert!(parts.iter().map(Part::length).sum::<u64>() == length, "all of it has a place");
        parts
    }

    /// Does something to each piece with its file.
    pub fn with_parts(
        &self,
        rest: &File,
        offset: u64,
        length: u64,
        mut act: impl FnMut(&File, &Part) -> io::Result<()>,
    ) -> io::Result<()> {
        for part in self.parts(offset, length) {
            match part.range {
                Some(range) => act(&*self.ranges.file(range)?, &part)?,
                None => act(rest, &part)?,
            }
        }
        Ok(())
    }

    /// What is written to a range is for the next flush, too.
    pub fn note_written(&self, part: &Part) {
        self.ranges.unflushed.lock().extend(part.range);
    }
}

fn overlaps(lengths: &BTreeMap<u64, u64>, offset: u64, length: u64) -> bool {
    let Some(end) = offset.checked_add(length) else { return true };
    lengths.range(..end).next_back().is_some_and(|(start, length)| start + length > offset)
}

/// Moves bytes, and no holes. Tells whether there were any.
fn move_bytes(from: &File, offset: u64, to: &File, length: u64) -> io::Result<bool> {
    let (mut at, end, mut piece, mut has_moved) = (offset, offset + length, Vec::new(), false);
    while at < end {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(has_moved),
            // Who knows no holes has bytes everywhere.
            Err(Errno::INVAL) => at,
            found => found?,
        };
        if at >= end {
            return Ok(has_moved);
        }
        let step = (end - at).min(PIECE_BYTES as u64) as usize;
        piece.resize(step, 0);
        from.read_exact_at(&mut piece, at)?;
        to.write_all_at(&piece, at - offset)?;
        (at, has_moved) = (at + step as u64, true);
    }
    Ok(has_moved)
}

/// Gives a file these settings and no others. Those that the file system does not take are named in the log; the rest is set all the same.
fn set_attributes(file: &File, settings: &str) -> io::Result<()> {
    let wanted: BTreeMap<&str, &str> = settings.split(',').filter_map(|setting| setting.split_once('=')).collect();
    let mut failed = None;
    for key in attributes_of(file)?.iter().filter(|key| !wanted.contains_key(key.as_str())) {
        if let Err(error) = rustix::fs::fremovexattr(file, format!("{PREFIX}{key}")) {
            tracing::warn!(key, %error, "a range keeps a setting that it is not told any more");
            failed = Some(error);
        }
    }
    for (key, value) in wanted {
        if NEVER.contains(&key) {
            tracing::warn!(key, value, "a setting is not taken: what a node keeps must be written again");
            failed = Some(Errno::INVAL);
            continue;
        }
        if let Err(error) = rustix::fs::fsetxattr(file, format!("{PREFIX}{key}"), value.as_bytes(), XattrFlags::empty())
        {
            tracing::warn!(key, value, %error, "the file system of this node does not take a setting");
            failed = Some(error);
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn attributes_of(file: &File) -> io::Result<Vec<String>> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let length = match rustix::fs::flistxattr(file, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    let names = names[..length].split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    Ok(names.filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
