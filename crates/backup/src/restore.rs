//! Bringing files back: every copy is compared with the manifest while it is copied, and takes its name only when it is right.

use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::destination::{Destination, make_directories};
use crate::error::{At, Error};
use crate::manifest::Entry;
use crate::run::set_facts;

/// What came back.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Restored {
    pub files: u64,
    pub bytes: u64,
    /// What did not, and why.
    pub failed: Vec<(Vec<u8>, String)>,
}

fn is_below(path: &[u8], top: &[u8]) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl Destination {
    /// Copies a state, or what of it lies below `top` (a path, without slashes at its ends), to a directory. What is there already is
    /// left as it is unless it may be replaced.
    pub fn restore(&self, until: Option<&str>, top: &[u8], to: &Path, replaces: bool) -> Result<Restored, Error> {
        let (entries, mut restored) = (self.state(until)?, Restored::default());
        let later: Vec<String> = match until {
            Some(until) => self.runs()?.into_iter().filter(|run| run.as_str() >= until).collect(),
            None => Vec::new(),
        };
        for (path, entry) in entries.iter().filter(|(path, _)| is_below(path, top)) {
            match self.restore_one(path, entry, &later, to, replaces) {
                Ok(()) => {
                    restored.files += 1;
                    restored.bytes += entry.size;
                }
                Err(error) => restored.failed.push((path.clone(), error.to_string())),
            }
        }
        Ok(restored)
    }

    fn restore_one(
        &self,
        path: &[u8],
        entry: &Entry,
        later: &[String],
        to: &Path,
        replaces: bool,
    ) -> Result<(), Error> {
        let name = std::ffi::OsStr::from_bytes(path);
        let target = to.join(name);
        if !replaces && fs::symlink_metadata(&target).is_ok() {
            return Err(std::io::Error::from(std::io::ErrorKind::AlreadyExists)).at("restore", &target);
        }
        // Their modes are not known: as whoever restores makes them.
        make_directories(to, path, 0o777)?;
        // What a run replaced first is what lay there until then.
        let places = later.iter().map(|run| self.kept(run).join(name)).chain([self.current(path)]);
        let new = target.with_file_name(format!(".stere-restore-{}", std::process::id()));
        let mut outcome = Err(std::io::Error::from(std::io::ErrorKind::NotFound)).at("find a copy of", &target);
        for place in places.filter(|place| fs::symlink_metadata(place).is_ok()) {
            outcome = copy_right(&place, &new, entry);
            if outcome.is_ok() {
                set_facts(&new, &entry.facts)?;
                return fs::rename(&new, &target).at("restore", &target);
            }
            drop(fs::remove_file(&new));
        }
        outcome
    }
}

/// Copies what is what it should be.
fn copy_right(from: &PathBuf, to: &PathBuf, entry: &Entry) -> Result<(), Error> {
    let source = File::open(from).at("open", from)?;
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).at("make", to)?;
    let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; 1 << 20], 0);
    loop {
        let length = source.read_at(&mut buffer, at).at("read", from)?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
        target.write_all_at(&buffer[..length], at).at("write", to)?;
        at += length as u64;
    }
    if *hasher.finalize().as_bytes() != entry.hash || at != entry.size {
        let why = "its content is not what was written".to_owned();
        return Err(Error::Damaged(from.clone(), why));
    }
    target.sync_all().at("make durable", to)
}
