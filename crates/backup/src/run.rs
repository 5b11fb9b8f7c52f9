//! A run: files are told one by one, what changed is copied, what is not told any more is taken away.
//!
//! Order: `meet` all files first, `keep_at_hand` the copies of those that were renamed, then `take_away` what was not met, then `stage` and `accept` what has to be copied, then `finish`.
//! A run that ends earlier leaves a whole backup behind; what it copied is not copied again.

use std::path::Path;

use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};

use crate::destination::Destination;
use crate::disk::Disk;
use crate::error::{At, Error};
use crate::manifest::{Change, Entry, ExtendedAttributes, Facts, Kind};

/// Copies that take their places together.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 64 << 20;
const BUFFER_BYTES: usize = 1 << 20;
/// What is compared with zeros, so that holes stay holes.
const HOLE_BYTES: usize = 64 << 10;

/// A run under way.
pub struct Run {
    pub(crate) destination: Destination,
    name: String,
    keep: usize,
    /// Whether anything was noted yet.
    is_begun: bool,
    /// Whether what lay there before is noted as an earlier state.
    is_state_kept: bool,
    met: FxHashMap<Vec<u8>, Kind>,
    next_number: u64,
    batch: Vec<Change>,
    batch_bytes: u64,
    pub files: u64,
    pub bytes: u64,
    pub taken: u64,
    /// Files that were there under another name.
    pub renamed: u64,
    /// Copies at hand for paths that have none: what has the same inode is to be taken away.
    at_hand: FxHashMap<Vec<u8>, Staged>,
    /// What cannot be there under its name; the caller takes it.
    pub failed: Vec<(Vec<u8>, Error)>,
}

/// A copy that has no place yet.
#[derive(Debug)]
pub struct Staged {
    number: u64,
    hash: [u8; 32],
    size: u64,
    /// It is one that was there under another name.
    is_linked: bool,
}

/// A file that was met under a name that has no copy.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'a> {
    pub path: &'a [u8],
    pub inode: u64,
    pub size: u64,
}

impl Run {
    /// Begins a run that is called so, by the moment; of what it replaces so many earlier states are kept.
    pub fn begin(destination: Destination, moment: &str, keep: usize) -> Result<Run, Error> {
        let known = destination.runs()?;
        let names = std::iter::once(moment.to_owned()).chain((2..).map(|number| format!("{moment}-{number}")));
        // Names sort as the runs came, also when the clock was set back.
        let after = |name: &String| known.last().is_none_or(|last| name > last);
        let name = names.take(known.len() + 2).find(after);
        let name = name.unwrap_or_else(|| format!("{}+", known.last().map_or("", String::as_str)));
        Ok(Run {
            destination,
            name,
            keep,
            is_begun: false,
            is_state_kept: false,
            met: FxHashMap::default(),
            next_number: 1,
            batch: Vec::new(),
            batch_bytes: 0,
            files: 0,
            bytes: 0,
            taken: 0,
            renamed: 0,
            at_hand: FxHashMap::default(),
            failed: Vec::new(),
        })
    }

    /// A file is to be there. Tells whether it has to be looked at, because it changed or is new.
    pub fn meet(&mut self, path: &[u8], facts: &Facts) -> bool {
        assert!(!self.is_begun, "all files are met before the first change is made");
        self.met.insert(path.to_vec(), facts.kind());
        let known = self.destination.entries.get(path);
        let is_believed = is_planted(Bug::MetBelieved);
        known.is_none_or(|entry| !is_believed && (entry.facts != *facts || facts.stamp == Default::default()))
    }

    /// Everything was met: of newcomers whose inode has a copy under a name that is gone, that copy is kept at hand. Whether it is
    /// right only its content tells. A file system without hard links has none at hand.
    pub fn keep_at_hand<'a>(&mut self, newcomers: impl Iterator<Item = Newcomer<'a>>) -> Result<(), Error> {
        assert!(
            !self.is_begun && self.at_hand.is_empty(),
            "copies are kept at hand once, and before any is taken away"
        );
        let gone = self.destination.entries.iter().filter(|(path, entry)| {
            !self.met.contains_key(*path) && entry.kind() == Kind::File && entry.facts.stamp.inode != 0
        });
        let gone: FxHashMap<u64, (&Vec<u8>, &Entry)> =
            gone.map(|(path, entry)| (entry.facts.stamp.inode, (path, entry))).collect();
        for Newcomer { path, inode, size } in newcomers {
            let Some((old, entry)) = gone.get(&inode).filter(|(_, entry)| entry.size == size) else { continue };
            self.destination.step()?;
            let number = self.next_number;
            self.next_number += 1;
            let (from, to) = (self.destination.current(old), self.destination.unplaced(number));
            if self.destination.disk.hard_link(&from, &to).is_ok() {
                let staged = Staged { number, hash: entry.hash, size, is_linked: true };
                self.at_hand.insert(path.to_vec(), staged);
            }
        }
        Ok(())
    }

    /// The copy at hand for a path, if there is one and it is right: `read` gives the content that it must have, as for `stage`.
    pub fn stage_at_hand<E: From<Error>>(
        &mut self,
        path: &[u8],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<Option<Staged>, E> {
        let Some(staged) = self.at_hand.remove(path) else { return Ok(None) };
        let is_right = read_through(&mut read, |_, _| Ok(()))? == (staged.hash, staged.size);
        if !is_right {
            self.discard(&staged);
        }
        Ok(is_right.then_some(staged))
    }

    /// Everything was met: what was not, or is of another kind now, is taken away.
    pub fn take_away(&mut self) -> Result<(), Error> {
        assert!(!self.is_begun, "what is gone is taken away before anything else is changed");
        let gone = self.destination.entries.iter().filter(|(path, entry)| self.met.get(*path) != Some(&entry.kind()));
        let gone: Vec<Change> = gone.map(|(path, _)| Change::Taken(path.clone())).collect();
        for changes in gone.chunks(BATCH_FILES) {
            self.apply(changes)?;
            self.taken += changes.len() as u64;
        }
        Ok(())
    }

    /// Notes changes, and makes them.
    fn apply(&mut self, changes: &[Change]) -> Result<(), Error> {
        assert!((1..=BATCH_FILES).contains(&changes.len()), "{} changes are made together", changes.len());
        let keeps = self.keep > 0;
        let head = (!self.is_begun).then_some((self.name.as_str(), keeps));
        let replaces = changes.iter().any(|change| !matches!(change, Change::Noted(..)));
        if replaces && keeps && !self.is_state_kept && self.destination.files() > 0 {
            self.destination.keep_manifest(&self.name)?;
            self.is_state_kept = true;
        }
        let is_told_late = is_planted(Bug::PlacedUntold);
        if !is_told_late {
            self.destination.note(changes, head)?;
        }
        self.is_begun = true;
        for change in changes {
            if let Some(error) = self.destination.try_to_make(&self.name, keeps, change)? {
                self.failed.push((change.path().to_vec(), error));
            }
        }
        if is_told_late { self.destination.note(changes, head) } else { Ok(()) }
    }

    /// Copies a content to where it waits. `read` fills a buffer from an offset on, 0 bytes at the end; what fails there is told on.
    pub fn stage<E: From<Error>>(
        &mut self,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<Staged, E> {
        self.destination.step()?;
        let number = self.next_number;
        self.next_number += 1;
        let path = self.destination.unplaced(number);
        let outcome = copy(&*self.destination.disk, &path, &mut read);
        if outcome.is_err() {
            drop(self.destination.disk.remove(&path));
        }
        let (hash, size) = outcome?;
        Ok(Staged { number, hash, size, is_linked: false })
    }

    /// Makes a symbolic link where it waits.
    pub fn stage_link(&mut self, target: &[u8]) -> Result<Staged, Error> {
        self.destination.step()?;
        let number = self.next_number;
        self.next_number += 1;
        let path = self.destination.unplaced(number);
        self.destination.disk.make_link(target, &path).at("make", &path)?;
        Ok(Staged { number, hash: *blake3::hash(target).as_bytes(), size: target.len() as u64, is_linked: false })
    }

    /// A directory has nothing to copy: what is known of it goes to the manifest.
    pub fn accept_directory(
        &mut self,
        path: &[u8],
        facts: &Facts,
        attributes: ExtendedAttributes,
    ) -> Result<(), Error> {
        assert_eq!(facts.kind(), Kind::Directory, "what is no directory has a content to copy");
        let entry = Entry { hash: *blake3::hash(b"").as_bytes(), size: 0, facts: *facts, attributes };
        self.batch.push(Change::Noted(path.to_vec(), entry));
        self.place_if_many()
    }

    /// A copy is as the file was at one moment: it may take its place.
    pub fn accept(
        &mut self,
        path: &[u8],
        facts: &Facts,
        attributes: ExtendedAttributes,
        staged: Staged,
    ) -> Result<(), Error> {
        let Staged { number, hash, size, is_linked } = staged;
        assert!((1..self.next_number).contains(&number), "copy {number} is not one of this run");
        assert!(facts.kind() != Kind::Directory, "a directory has no copy that takes its place");
        let entry = Entry { hash, size, facts: *facts, attributes };
        let from = self.destination.unplaced(number);
        let known = self.destination.entries.get(path);
        let is_same =
            known.is_some_and(|known| known.hash == hash && known.size == size && known.kind() == facts.kind());
        let target = if is_same { self.destination.current(path) } else { from.clone() };
        let disk = self.destination.disk.clone();
        let _what_it_cannot_have_is_in_the_manifest = disk.set_facts(&target, &entry);
        if is_same {
            disk.remove(&from).at("remove", &from)?;
            self.batch.push(Change::Noted(path.to_vec(), entry));
        } else {
            // A symbolic link is durable with the directory that it is in.
            if facts.kind() == Kind::File {
                let file = disk.open(&from).at("open", &from)?;
                file.sync().at("make durable", &from)?;
            }
            self.batch.push(Change::Placed(number, path.to_vec(), entry));
            if is_linked {
                self.renamed += 1;
            } else {
                self.batch_bytes += size;
                self.files += 1;
                self.bytes += size;
            }
        }
        self.place_if_many()
    }

    fn place_if_many(&mut self) -> Result<(), Error> {
        match self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES {
            true => self.place(),
            false => Ok(()),
        }
    }

    /// A copy is not good: the file was changed meanwhile.
    pub fn discard(&self, staged: &Staged) {
        assert!((1..self.next_number).contains(&staged.number), "copy {} is not one of this run", staged.number);
        drop(self.destination.disk.remove(&self.destination.unplaced(staged.number)));
    }

    /// Copies that wait take their places.
    pub fn place(&mut self) -> Result<(), Error> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if batch.is_empty() {
            return Ok(());
        }
        let unplaced = self.destination.unplaced(0);
        self.destination.sync_directory(unplaced.parent().unwrap_or(&unplaced))?;
        self.apply(&batch)
    }

    /// Ends the run, when everything has its place: what it did is the manifest.
    pub fn finish(self) -> Result<Destination, Error> {
        assert!(self.batch.is_empty(), "copies that wait take their places first");
        if self.is_begun {
            self.destination.save()?;
        }
        self.destination.drop_old(self.keep)?;
        Ok(self.destination)
    }
}

fn copy<E: From<Error>>(
    disk: &dyn Disk,
    path: &Path,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
) -> Result<([u8; 32], u64), E> {
    let file = disk.make(path, false).at("make", path)?;
    let (hash, size) = read_through(read, |at, piece| {
        for (number, piece) in piece.chunks(HOLE_BYTES).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                file.write_at(at + (number * HOLE_BYTES) as u64, piece).at("write", path)?;
            }
        }
        Ok(())
    })?;
    file.set_length(size).at("write", path)?;
    Ok((hash, size))
}

/// Reads a content to its end, and tells its BLAKE3 and its size; `take` gets each piece and where it is.
fn read_through<E>(
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<([u8; 32], u64), E> {
    let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; BUFFER_BYTES], 0);
    loop {
        let length = read(at, &mut buffer)?;
        assert!(length <= BUFFER_BYTES, "{length} bytes were read where {BUFFER_BYTES} were asked for");
        if length == 0 {
            return Ok((*hasher.finalize().as_bytes(), at));
        }
        hasher.update(&buffer[..length]);
        take(at, &buffer[..length])?;
        at += length as u64;
    }
}
