//! The directory itself: its marker, its lock, what lies where; ending what an interrupted run had begun.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, Found, Machine};
use crate::error::{At, Error};
use crate::manifest::{self, Change, Entries, Kind};

/// Number of a destination, made once.
pub type Id = [u8; 16];

const MARKER: &str = "stere-backup";
const CURRENT: &str = "current";
const KEPT: &str = "kept";
const UNPLACED: &str = "unplaced";
const MANIFEST: &str = "manifest";
const CHANGES: &str = "manifest.changes";
/// Only who runs the daemon reads here: what is copied may be private.
const MODE: u32 = 0o700;

/// A directory of backups, opened and locked: nobody else writes it.
pub struct Destination {
    root: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    _lock: Box<dyn Any + Send>,
    pub(crate) entries: Entries,
    /// Steps after which it fails, for tests.
    pub(crate) steps_left: Cell<u64>,
}

/// A state that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The moment of the run that replaced it; none for what is there now.
    pub until: Option<String>,
    pub files: u64,
    pub bytes: u64,
}

fn marker(id: &Id, of: &str) -> String {
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("stere backup 1\nid {id}\nof {}\n", of.replace('\n', " "))
}

/// What a marker says, if it is one.
fn id_of(text: &str) -> Option<Id> {
    let mut lines = text.lines();
    if lines.next() != Some("stere backup 1") {
        return None;
    }
    let id = lines.next()?.strip_prefix("id ")?;
    let mut out = Id::default();
    if id.len() != 32 || !id.is_ascii() {
        return None;
    }
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&id[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(out)
}

/// Writes a file so that it is there as a whole or as it was.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let new = path.with_extension("new");
    let write = || {
        let file = disk.make(&new, true)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        disk.rename(&new, path)
    };
    write().at("write", path)?;
    let above = path.parent().unwrap_or(path);
    disk.sync_directory(above).at("make durable", above)
}

impl Destination {
    /// Makes an empty directory a destination; `of` tells people whose it is.
    pub fn create(root: &Path, id: &Id, of: &str) -> Result<(), Error> {
        Destination::create_on(&Machine, root, id, of)
    }

    /// The same, on some disk.
    pub fn create_on(disk: &dyn Disk, root: &Path, id: &Id, of: &str) -> Result<(), Error> {
        if disk.names(root).at("look into", root)?.iter().any(|(name, _)| name != "lost+found") {
            return Err(Error::NotEmpty(root.to_owned()));
        }
        disk.set_mode(root, MODE).at("keep others out of", root)?;
        for name in [CURRENT, KEPT, UNPLACED] {
            let path = root.join(name);
            disk.make_directory(&path, MODE).at("make", &path)?;
        }
        replace(disk, &root.join(MANIFEST), &manifest::encode(&Entries::new()))?;
        // Last: with it everything is there.
        replace(disk, &root.join(MARKER), marker(id, of).as_bytes())
    }

    /// The number of the destination that a directory is, if it is one and attached.
    pub fn id_at(root: &Path) -> Result<Id, Error> {
        Destination::id_on(&Machine, root)
    }

    fn id_on(disk: &dyn Disk, root: &Path) -> Result<Id, Error> {
        let text = disk.read(&root.join(MARKER)).map_err(|_| Error::Away(root.to_owned()))?;
        id_of(&String::from_utf8_lossy(&text)).ok_or_else(|| Error::Away(root.to_owned()))
    }

    /// Opens it, and ends what an interrupted run had begun. With `id` only if it is that one.
    pub fn open(root: &Path, id: Option<&Id>) -> Result<Destination, Error> {
        Destination::open_on(Arc::new(Machine), root, id)
    }

    /// The same, on some disk.
    pub fn open_on(disk: Arc<dyn Disk>, root: &Path, id: Option<&Id>) -> Result<Destination, Error> {
        let found = Destination::id_on(&*disk, root)?;
        if id.is_some_and(|id| *id != found) {
            return Err(Error::Foreign(root.to_owned()));
        }
        let lock = disk.lock(&root.join(MARKER)).at("open", root)?;
        let lock = lock.ok_or_else(|| Error::Busy(root.to_owned()))?;
        let mut destination = Destination {
            root: root.to_owned(),
            disk,
            _lock: lock,
            entries: Entries::new(),
            steps_left: Cell::new(u64::MAX),
        };
        destination.entries = destination.read_manifest(&destination.path(MANIFEST))?;
        destination.end_what_was_begun()?;
        Ok(destination)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn current(&self, path: &[u8]) -> PathBuf {
        // One that begins at the root of the machine would replace what it is joined to.
        assert!(!path.starts_with(b"/"), "a path in a destination begins with a name");
        self.path(CURRENT).join(std::ffi::OsStr::from_bytes(path))
    }

    pub(crate) fn kept(&self, run: &str) -> PathBuf {
        self.path(KEPT).join(run)
    }

    pub(crate) fn kept_manifest(&self, run: &str) -> PathBuf {
        self.path(KEPT).join(format!("{run}.manifest"))
    }

    pub(crate) fn unplaced(&self, number: u64) -> PathBuf {
        self.path(UNPLACED).join(number.to_string())
    }

    /// A place where a test may have it fail.
    pub(crate) fn step(&self) -> Result<(), Error> {
        let left = self.steps_left.get().checked_sub(1).ok_or(Error::Stopped)?;
        self.steps_left.set(left);
        Ok(())
    }

    pub(crate) fn sync_directory(&self, path: &Path) -> Result<(), Error> {
        self.disk.sync_directory(path).at("make durable", path)
    }

    /// Whether something is under this name, whatever it is.
    pub(crate) fn is_there(&self, path: &Path) -> bool {
        self.disk.found(path).is_some()
    }

    pub(crate) fn read_manifest(&self, path: &Path) -> Result<Entries, Error> {
        let bytes = self.disk.read(path).at("read", path)?;
        manifest::decode(&bytes).map_err(|why| Error::Damaged(path.to_owned(), why))
    }

    /// How many files lie there now.
    pub fn files(&self) -> usize {
        self.entries.len()
    }

    /// Runs whose earlier states are kept, oldest first.
    pub(crate) fn runs(&self) -> Result<Vec<String>, Error> {
        let path = self.path(KEPT);
        let names = self.disk.names(&path).at("look into", &path)?;
        let names = names.into_iter().filter_map(|(name, _)| name.into_string().ok());
        let mut runs: Vec<String> =
            names.filter_map(|name| name.strip_suffix(".manifest").map(str::to_owned)).collect();
        runs.sort();
        Ok(runs)
    }

    /// What can be restored, oldest first; the last is what is there now.
    pub fn states(&self) -> Result<Vec<State>, Error> {
        let state = |until, entries: &Entries| State {
            until,
            files: entries.values().filter(|entry| entry.kind() != Kind::Directory).count() as u64,
            bytes: entries.values().map(|entry| entry.size).sum(),
        };
        let mut states = Vec::new();
        for run in self.runs()? {
            let entries = self.read_manifest(&self.kept_manifest(&run))?;
            states.push(state(Some(run), &entries));
        }
        states.push(state(None, &self.entries));
        Ok(states)
    }

    /// Paths and sizes of the files and symbolic links of a state.
    pub fn list(&self, until: Option<&str>) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let entries = self.state(until)?.into_iter().filter(|(_, entry)| entry.kind() != Kind::Directory);
        Ok(entries.map(|(path, entry)| (path, entry.size)).collect())
    }

    /// What lay there until a run; without one what lies there now.
    pub(crate) fn state(&self, until: Option<&str>) -> Result<Entries, Error> {
        match until {
            None => Ok(self.entries.clone()),
            Some(run) if self.runs()?.iter().any(|known| known == run) => self.read_manifest(&self.kept_manifest(run)),
            Some(run) => Err(Error::NoState(run.to_owned())),
        }
    }

    /// Notes changes before they are made.
    pub(crate) fn note(&self, changes: &[Change], head: Option<(&str, bool)>) -> Result<(), Error> {
        self.step()?;
        let path = self.path(CHANGES);
        let begun = head.map(|(run, keeps)| manifest::changes_head(run, keeps)).unwrap_or_default();
        let bytes = [begun, manifest::encode_changes(changes)].concat();
        self.disk.append(&path, &bytes).at("write", &path)?;
        self.sync_directory(&self.root)
    }

    /// Ends what the last run had told it would do, and takes it into the manifest.
    fn end_what_was_begun(&mut self) -> Result<(), Error> {
        let path = self.path(CHANGES);
        match self.disk.read(&path) {
            Ok(bytes) => {
                if let Some((run, keeps, changes)) = manifest::decode_changes(&bytes) {
                    let placed: BTreeSet<&[u8]> = changes.iter().filter_map(|change| self.in_place(change)).collect();
                    for change in &changes {
                        // What came into its place is not taken away for it.
                        let is_replaced = matches!(change, Change::Taken(path) if placed.contains(&path[..]));
                        if !is_replaced {
                            self.try_to_make(&run, keeps, change)?;
                        }
                    }
                }
                self.save()?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).at("read", &path),
        }
        let unplaced = self.path(UNPLACED);
        for (name, _) in self.disk.names(&unplaced).at("look into", &unplaced)? {
            let path = unplaced.join(name);
            self.disk.remove(&path).at("remove", &path)?;
        }
        Ok(())
    }

    /// The path of a copy that has its place already.
    fn in_place<'a>(&self, change: &'a Change) -> Option<&'a [u8]> {
        match change {
            Change::Placed(number, path, _) if !self.is_there(&self.unplaced(*number)) => Some(path),
            _ => None,
        }
    }

    /// Makes a change that was noted; tells what is against it where that is about this path alone.
    pub(crate) fn try_to_make(&mut self, run: &str, keeps: bool, change: &Change) -> Result<Option<Error>, Error> {
        match self.make(run, keeps, change) {
            Ok(()) => Ok(None),
            Err(error) if !error.is_of_destination() => {
                // What lay there may be gone.
                self.mark_rotten(change.path());
                Ok(Some(error))
            }
            Err(error) => Err(error),
        }
    }

    fn mark_rotten(&mut self, path: &[u8]) {
        if let Some(entry) = self.entries.get_mut(path) {
            // Nothing has this hash, so the next run copies it again.
            (entry.hash, entry.facts.stamp) = ([0; 32], Default::default());
        }
    }

    /// Makes a change that was noted; or makes it again, where nobody knows whether it was made.
    pub(crate) fn make(&mut self, run: &str, keeps: bool, change: &Change) -> Result<(), Error> {
        self.step()?;
        match change {
            Change::Placed(number, path, entry) => {
                let (from, to) = (self.unplaced(*number), self.current(path));
                if self.is_there(&from) {
                    self.make_directories(&self.path(CURRENT), path)?;
                    self.set_aside(run, keeps, path)?;
                    self.step()?;
                    self.disk.rename(&from, &to).at("put in place", &to)?;
                }
                self.entries.insert(path.clone(), entry.clone());
            }
            Change::Noted(path, entry) => drop(self.entries.insert(path.clone(), entry.clone())),
            Change::Taken(path) => {
                // A directory in its place is one that came later in the same run.
                if self.disk.found(&self.current(path)) != Some(Found::Directory) {
                    self.set_aside(run, keeps, path)?;
                }
                self.remove_empty_above(path);
                self.entries.remove(path);
            }
            Change::Rotten(path) => self.mark_rotten(path),
        }
        Ok(())
    }

    fn make_directories(&self, top: &Path, path: &[u8]) -> Result<(), Error> {
        make_directories(&*self.disk, top, path, MODE)
    }

    /// What is in place goes to what is kept of a run, or goes.
    fn set_aside(&self, run: &str, keeps: bool, path: &[u8]) -> Result<(), Error> {
        let from = self.current(path);
        match self.disk.found(&from) {
            Some(Found::Directory) => return Err(std::io::Error::from_raw_os_error(21)).at("replace", &from),
            Some(_) => {}
            None => return Ok(()),
        }
        let is_good = self.entries.get(path).is_some_and(|entry| entry.hash != [0; 32]);
        let to = self.kept(run).join(std::ffi::OsStr::from_bytes(path));
        if !keeps || !is_good || self.is_there(&to) {
            return self.disk.remove(&from).at("remove", &from);
        }
        let top = self.kept(run);
        if !self.is_there(&top) {
            self.disk.make_directory(&top, MODE).at("make", &top)?;
        }
        self.make_directories(&top, path)?;
        self.step()?;
        self.disk.rename(&from, &to).at("keep", &to)
    }

    fn remove_empty_above(&self, path: &[u8]) {
        let mut end = path.len();
        while let Some(slash) = path[..end].iter().rposition(|byte| *byte == b'/') {
            if self.disk.remove_directory(&self.current(&path[..slash])).is_err() {
                break;
            }
            end = slash;
        }
    }

    /// Writes the manifest anew and forgets the changes, which are all made.
    pub(crate) fn save(&self) -> Result<(), Error> {
        self.step()?;
        // Every rename is durable before nobody knows any more that it was to be made.
        self.disk.sync_all(&self.root).at("make durable", &self.root)?;
        replace(&*self.disk, &self.path(MANIFEST), &manifest::encode(&self.entries))?;
        self.step()?;
        match self.disk.remove(&self.path(CHANGES)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).at("remove", &self.path(CHANGES)),
            _ => self.sync_directory(&self.root),
        }
    }

    /// What will be replaced from now on is what this says.
    pub(crate) fn keep_manifest(&self, run: &str) -> Result<(), Error> {
        replace(&*self.disk, &self.kept_manifest(run), &manifest::encode(&self.entries))
    }

    /// Only so many earlier states stay.
    pub(crate) fn drop_old(&self, keep: usize) -> Result<(), Error> {
        let runs = self.runs()?;
        let (old, stay) = runs.split_at(runs.len().saturating_sub(keep));
        for run in old {
            let manifest = self.kept_manifest(run);
            self.disk.remove(&manifest).at("remove", &manifest)?;
        }
        // Directories last: without its manifest one is no state any more, and goes with the next run if this one is interrupted.
        let top = self.path(KEPT);
        for (name, is_directory) in self.disk.names(&top).at("look into", &top)? {
            if is_directory && !stay.iter().any(|run| name == run.as_str()) {
                let path = top.join(name);
                self.disk.remove_all(&path).at("remove", &path)?;
            }
        }
        Ok(())
    }
}

/// Directories down to a path. One that is something else is not followed.
pub(crate) fn make_directories(disk: &dyn Disk, top: &Path, path: &[u8], mode: u32) -> Result<(), Error> {
    let mut at = top.to_owned();
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    for name in &names[..names.len() - 1] {
        at.push(std::ffi::OsStr::from_bytes(name));
        match disk.found(&at) {
            Some(Found::Directory) => {}
            Some(_) => return Err(std::io::Error::from_raw_os_error(20)).at("go into", &at),
            None => disk.make_directory(&at, mode).at("make", &at)?,
        }
    }
    Ok(())
}

/// The hash and size of a symbolic link's target.
pub(crate) fn hash_of_link(disk: &dyn Disk, path: &Path) -> Result<([u8; 32], u64), Error> {
    let target = disk.link_target(path).at("read", path)?;
    Ok((*blake3::hash(&target).as_bytes(), target.len() as u64))
}

/// The hash and size of a file's content.
pub(crate) fn hash_of(disk: &dyn Disk, path: &Path, stop: &dyn Fn() -> bool) -> Result<([u8; 32], u64), Error> {
    let file = disk.open(path).at("open", path)?;
    let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; 1 << 20], 0);
    loop {
        if stop() {
            return Err(Error::Stopped);
        }
        let length = file.read_at(at, &mut buffer).at("read", path)?;
        if length == 0 {
            return Ok((*hasher.finalize().as_bytes(), at));
        }
        hasher.update(&buffer[..length]);
        at += length as u64;
    }
}
