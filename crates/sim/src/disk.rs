//! A simulated disk for backups: names and files in memory, of which a power cut keeps what was durable and some of the rest.
//!
//! Names change in an order, and a cut leaves those of some moment since they were durable last; of a file that was not made durable it
//! leaves what was, or a beginning of what is. It can be cut off at any request that changes something, be full, be away (another
//! directory is in its place then, and whoever writes there is noted), and rot. Read next: `backups.rs`.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use stere_backup::{Disk, DiskFile, Entry, Found};

use crate::random::Random;

/// What is under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Named {
    File(u64),
    Directory,
    Link(Vec<u8>),
}

type Names = BTreeMap<PathBuf, Named>;

#[derive(Debug, Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    /// Names since they were durable last, the present ones last.
    names: Vec<Names>,
    contents: BTreeMap<u64, Content>,
    next_number: u64,
    /// Requests that change something until it is cut off.
    left: Option<u64>,
    is_off: bool,
    is_full: bool,
    is_away: bool,
    /// What somebody did to what is in its place.
    written_elsewhere: u64,
}

/// The disk. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl State {
    fn now(&self) -> &Names {
        self.names.last().expect("there are names from the beginning on")
    }

    fn look(&self, path: &Path) -> io::Result<&Named> {
        let is_root = path.parent().is_none_or(|above| above == Path::new("/"));
        match () {
            () if self.is_off => Err(error(libc::EIO)),
            () if self.is_away && !is_root => Err(error(libc::ENOENT)),
            () => self.now().get(path).ok_or_else(|| error(libc::ENOENT)),
        }
    }

    /// Something is about to be changed.
    fn request(&mut self) -> io::Result<()> {
        if self.is_away {
            self.written_elsewhere += 1;
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            self.is_off |= *left == 0;
        }
        if self.is_off { Err(error(libc::EIO)) } else { Ok(()) }
    }

    fn check_room(&self) -> io::Result<()> {
        if self.is_full { Err(error(libc::ENOSPC)) } else { Ok(()) }
    }

    fn change(&mut self, change: impl FnOnce(&mut Names) -> io::Result<()>) -> io::Result<()> {
        self.request()?;
        let mut names = self.now().clone();
        change(&mut names)?;
        self.names.push(names);
        Ok(())
    }

    fn number(&self, path: &Path) -> io::Result<u64> {
        match self.look(path)? {
            Named::File(number) => Ok(*number),
            Named::Directory => Err(error(libc::EISDIR)),
            Named::Link(_) => Err(error(libc::ELOOP)),
        }
    }
}

fn check_above(names: &Names, path: &Path) -> io::Result<()> {
    match path.parent().and_then(|above| names.get(above)) {
        Some(Named::Directory) => Ok(()),
        Some(_) => Err(error(libc::ENOTDIR)),
        None => Err(error(libc::ENOENT)),
    }
}

fn is_below(path: &Path, above: &Path) -> bool {
    path != above && path.starts_with(above)
}

impl SimDisk {
    /// A disk with these empty directories at its top.
    pub fn with(directories: &[&Path]) -> SimDisk {
        let names = directories.iter().map(|path| (path.to_path_buf(), Named::Directory)).collect();
        SimDisk { state: Arc::new(Mutex::new(State { names: vec![names], ..State::default() })) }
    }

    pub fn cut_after(&self, requests: u64) {
        self.state.lock().left = Some(requests);
    }

    pub fn set_full(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
    }

    pub fn set_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
    }

    /// How often somebody changed what was in its place.
    pub fn written_elsewhere(&self) -> u64 {
        self.state.lock().written_elsewhere
    }

    /// It is there again: with what a power cut leaves, if there was one.
    pub fn power_on(&self, random: &mut Random) {
        let state = &mut *self.state.lock();
        (state.left, state.is_full, state.is_away) = (None, false, false);
        if !std::mem::take(&mut state.is_off) {
            return;
        }
        let kept = random.below(state.names.len() as u64) as usize;
        state.names = vec![state.names.swap_remove(kept)];
        for content in state.contents.values_mut().filter(|content| content.now != content.durable) {
            let kept = random.below(content.now.len() as u64 + 1) as usize;
            match random.below(3) {
                0 => content.now = content.durable.clone(),
                1 => content.now.truncate(kept),
                _ => {}
            }
            content.durable = content.now.clone();
        }
    }

    /// A bit of a file below a directory flips; gives its names, that one first.
    pub fn rot(&self, below: &Path, random: &mut Random) -> Vec<PathBuf> {
        let state = &mut *self.state.lock();
        let files = state.now().iter().filter_map(|(path, named)| match named {
            Named::File(number) if is_below(path, below) => Some((path.clone(), *number)),
            _ => None,
        });
        let mut files: Vec<_> = files.collect();
        files.retain(|(_, number)| state.contents.get(number).is_some_and(|content| !content.now.is_empty()));
        if files.is_empty() {
            return Vec::new();
        }
        let (path, number) = files.swap_remove(random.below(files.len() as u64) as usize);
        if let Some(content) = state.contents.get_mut(&number) {
            let at = random.below(content.now.len() as u64) as usize;
            content.now[at] ^= 1 << random.below(8);
            content.durable = content.now.clone();
        }
        let others = state.now().iter().filter(|(other, named)| **other != path && **named == Named::File(number));
        let others: Vec<PathBuf> = others.map(|(other, _)| other.clone()).collect();
        std::iter::once(path).chain(others).collect()
    }

    /// What is in a file, or where a link leads.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        match state.now().get(path)? {
            Named::File(number) => Some(state.contents.get(number)?.now.clone()),
            Named::Link(target) => Some(target.clone()),
            Named::Directory => None,
        }
    }

    /// Somebody takes away all that is below a directory.
    pub fn clear(&self, directory: &Path) {
        let state = &mut *self.state.lock();
        let mut names = state.now().clone();
        names.retain(|path, _| !is_below(path, directory));
        state.names = vec![names];
    }

    /// All files and links below a directory.
    pub fn paths(&self, below: &Path) -> Vec<PathBuf> {
        let state = self.state.lock();
        let files = state.now().iter().filter(|(path, named)| is_below(path, below) && **named != Named::Directory);
        files.map(|(path, _)| path.clone()).collect()
    }
}

/// One that is open.
struct Opened {
    disk: SimDisk,
    number: u64,
}

impl DiskFile for Opened {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state.lock();
        if state.is_off {
            return Err(error(libc::EIO));
        }
        let content = state.contents.get(&self.number).ok_or_else(|| error(libc::EIO))?;
        let rest = content.now.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        state.request()?;
        state.check_room()?;
        let content = state.contents.get_mut(&self.number).ok_or_else(|| error(libc::EIO))?;
        let end = offset as usize + bytes.len();
        content.now.resize(content.now.len().max(end), 0);
        content.now[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        state.request()?;
        let content = state.contents.get_mut(&self.number).ok_or_else(|| error(libc::EIO))?;
        content.now.resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let state = &mut *self.disk.state.lock();
        state.request()?;
        let content = state.contents.get_mut(&self.number).ok_or_else(|| error(libc::EIO))?;
        content.durable = content.now.clone();
        Ok(())
    }
}

impl Disk for SimDisk {
    fn found(&self, path: &Path) -> Option<Found> {
        Some(match self.state.lock().look(path).ok()? {
            Named::File(_) => Found::File,
            Named::Directory => Found::Directory,
            Named::Link(_) => Found::Link,
        })
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<(OsString, bool)>> {
        let state = self.state.lock();
        if *state.look(directory)? != Named::Directory {
            return Err(error(libc::ENOTDIR));
        }
        let in_it = state.now().iter().filter(|(path, _)| !state.is_away && path.parent() == Some(directory));
        let named = |(path, named): (&PathBuf, &Named)| {
            (path.file_name().unwrap_or_default().to_owned(), *named == Named::Directory)
        };
        Ok(in_it.map(named).collect())
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let number = self.state.lock().number(path)?;
        Ok(Box::new(Opened { disk: self.clone(), number }))
    }

    fn make(&self, path: &Path, replaces: bool) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        if let Ok(number) = state.number(path) {
            if !replaces {
                return Err(error(libc::EEXIST));
            }
            state.request()?;
            if let Some(content) = state.contents.get_mut(&number) {
                content.now.clear();
            }
            return Ok(Box::new(Opened { disk: self.clone(), number }));
        }
        state.check_room()?;
        state.next_number += 1;
        let number = state.next_number;
        state.change(|names| {
            check_above(names, path)?;
            names.insert(path.to_owned(), Named::File(number));
            Ok(())
        })?;
        state.contents.insert(number, Content::default());
        Ok(Box::new(Opened { disk: self.clone(), number }))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let known = self.state.lock().number(path);
        let file: Box<dyn DiskFile> = match known {
            Ok(number) => Box::new(Opened { disk: self.clone(), number }),
            Err(_) => self.make(path, false)?,
        };
        let end = self.content(path).map_or(0, |content| content.len() as u64);
        file.write_at(end, bytes)?;
        file.sync()
    }

    fn make_directory(&self, path: &Path, _mode: u32) -> io::Result<()> {
        self.state.lock().change(|names| {
            check_above(names, path)?;
            if names.contains_key(path) {
                return Err(error(libc::EEXIST));
            }
            names.insert(path.to_owned(), Named::Directory);
            Ok(())
        })
    }

    fn make_link(&self, target: &[u8], path: &Path) -> io::Result<()> {
        self.state.lock().change(|names| {
            check_above(names, path)?;
            if names.contains_key(path) {
                return Err(error(libc::EEXIST));
            }
            names.insert(path.to_owned(), Named::Link(target.to_vec()));
            Ok(())
        })
    }

    fn link_target(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.state.lock().look(path)? {
            Named::Link(target) => Ok(target.clone()),
            _ => Err(error(libc::EINVAL)),
        }
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let number = state.number(from)?;
        state.change(|names| {
            check_above(names, to)?;
            if names.contains_key(to) {
                return Err(error(libc::EEXIST));
            }
            names.insert(to.to_owned(), Named::File(number));
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.lock().change(|names| {
            check_above(names, to)?;
            match (names.get(from), names.get(to)) {
                (None, _) => return Err(error(libc::ENOENT)),
                (Some(Named::Directory), _) => return Err(error(libc::EINVAL)),
                (_, Some(Named::Directory)) => return Err(error(libc::EISDIR)),
                // Two names of one file: nothing is done.
                (Some(one), Some(other)) if one == other && matches!(one, Named::File(_)) => return Ok(()),
                _ => {}
            }
            if let Some(named) = names.remove(from) {
                names.insert(to.to_owned(), named);
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state.lock().change(|names| match names.get(path) {
            None => Err(error(libc::ENOENT)),
            Some(Named::Directory) => Err(error(libc::EISDIR)),
            Some(_) => {
                names.remove(path);
                Ok(())
            }
        })
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.state.lock().change(|names| match names.get(path) {
            None => Err(error(libc::ENOENT)),
            Some(Named::Directory) if names.keys().any(|one| is_below(one, path)) => Err(error(libc::ENOTEMPTY)),
            Some(Named::Directory) => {
                names.remove(path);
                Ok(())
            }
            Some(_) => Err(error(libc::ENOTDIR)),
        })
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        let below: Vec<PathBuf> = self.state.lock().now().keys().filter(|one| one.starts_with(path)).cloned().collect();
        // One after the other, the deepest first: a cut may come in between.
        for one in below.into_iter().rev() {
            self.state.lock().change(|names| {
                names.remove(&one);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.look(path)?;
        state.request()?;
        let now = state.now().clone();
        state.names = vec![now];
        Ok(())
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.sync_directory(path)?;
        for content in self.state.lock().contents.values_mut() {
            content.durable = content.now.clone();
        }
        Ok(())
    }

    fn set_facts(&self, _path: &Path, _entry: &Entry) -> Vec<String> {
        Vec::new()
    }

    fn set_mode(&self, _path: &Path, _mode: u32) -> io::Result<()> {
        self.state.lock().request()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send>>> {
        self.state.lock().look(path)?;
        Ok(Some(Box::new(())))
    }
}
