//! Bringing files back: every copy is compared with the manifest while it is copied, and takes its name only when it is right.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::destination::{Destination, hash_of_link, make_directories};
use crate::disk::{Disk, Found};
use crate::error::{At, Error};
use crate::manifest::{Entry, Kind};

/// Attributes that give rights, which are restored only if they are asked for: whoever had the destination could have set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preserved {
    /// Owners and groups, and access control lists.
    pub owners: bool,
    /// Set-id bits, and attributes that are no user's.
    pub setid: bool,
}

impl Preserved {
    pub const ALL: Preserved = Preserved { owners: true, setid: true };
    /// For chown(2): as it is.
    const UNCHANGED: u32 = u32::MAX;

    /// What of it may be restored; the rest is noted.
    fn of(self, entry: &Entry, left_out: &mut LeftOut) -> Entry {
        if !self.owners {
            left_out.owners.insert((entry.facts.uid, entry.facts.gid));
        }
        let is_right = |name: &[u8]| !name.starts_with(b"user.") && !name.starts_with(b"system.");
        let has_rights = entry.facts.mode & 0o6000 != 0 || entry.attributes.iter().any(|(name, _)| is_right(name));
        left_out.with_rights += u64::from(!self.setid && has_rights);
        let has_list = entry.attributes.iter().any(|(name, _)| name.starts_with(b"system."));
        left_out.with_lists += u64::from(!self.owners && has_list);
        let mut kept = entry.clone();
        if !self.owners {
            (kept.facts.uid, kept.facts.gid) = (Self::UNCHANGED, Self::UNCHANGED);
        }
        if !self.setid {
            kept.facts.mode &= !0o6000;
        }
        kept.attributes.retain(|(name, _)| match name {
            name if name.starts_with(b"user.") => true,
            name if name.starts_with(b"system.") => self.owners,
            _ => self.setid,
        });
        assert_eq!(kept.kind(), entry.kind(), "what is left out changes no kind");
        kept
    }
}

/// What was not restored because nobody asked for it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Users and groups whose files these were.
    pub owners: BTreeSet<(u32, u32)>,
    /// Files and directories with access control lists.
    pub with_lists: u64,
    /// Files and directories with set-id bits, capabilities or other attributes that are no user's.
    pub with_rights: u64,
}

/// What came back.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Restored {
    pub files: u64,
    pub bytes: u64,
    /// What did not, and why.
    pub failed: Vec<(Vec<u8>, String)>,
    /// What came back without its owner, mode, an attribute or its time, and why.
    pub unset: Vec<(Vec<u8>, String)>,
    pub left_out: LeftOut,
}

fn is_below(path: &[u8], top: &[u8]) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl Destination {
    /// Copies a state, or what of it lies below `top` (a path, without slashes at its ends), to a directory. What is there already is
    /// left as it is unless it may be replaced.
    pub fn restore(
        &self,
        until: Option<&str>,
        top: &[u8],
        to: &Path,
        replaces: bool,
        preserved: Preserved,
    ) -> Result<Restored, Error> {
        let (entries, mut restored) = (self.state(until)?, Restored::default());
        let later: Vec<String> = match until {
            Some(until) => self.runs()?.into_iter().filter(|run| run.as_str() >= until).collect(),
            None => Vec::new(),
        };
        let chosen = || entries.iter().filter(|(path, _)| is_below(path, top));
        let (directories, files): (Vec<_>, Vec<_>) = chosen().partition(|(_, entry)| entry.kind() == Kind::Directory);
        let mut made = Vec::new();
        for (path, entry) in directories {
            match make_directory(&*self.disk, to, path) {
                Ok(is_new) if is_new || replaces => made.push((path, entry)),
                Ok(_) => {}
                Err(error) => restored.failed.push((path.clone(), error.to_string())),
            }
        }
        for (path, entry) in files {
            let facts = preserved.of(entry, &mut restored.left_out);
            match self.restore_one(path, (entry, &facts), &later, to, replaces) {
                Ok(unset) => {
                    restored.files += 1;
                    restored.bytes += entry.size;
                    restored.unset.extend(unset.into_iter().map(|what| (path.clone(), what)));
                }
                Err(error) => restored.failed.push((path.clone(), error.to_string())),
            }
        }
        // Last, and from the deepest up: what is put into a directory changes its time, and it may not be written to any more.
        for (path, entry) in made.into_iter().rev() {
            if path.is_empty() {
                // Where it is copied to is somebody else's, and stays as it is.
                continue;
            }
            let facts = preserved.of(entry, &mut restored.left_out);
            let unset = self.disk.set_facts(&to.join(std::ffi::OsStr::from_bytes(path)), &facts);
            restored.unset.extend(unset.into_iter().map(|what| (path.clone(), what)));
        }
        Ok(restored)
    }

    fn restore_one(
        &self,
        path: &[u8],
        (entry, facts): (&Entry, &Entry),
        later: &[String],
        to: &Path,
        replaces: bool,
    ) -> Result<Vec<String>, Error> {
        let name = std::ffi::OsStr::from_bytes(path);
        let target = to.join(name);
        if !replaces && self.is_there(&target) {
            return Err(std::io::Error::from(std::io::ErrorKind::AlreadyExists)).at("restore", &target);
        }
        // Those that the manifest does not know are as whoever restores makes them.
        make_directories(&*self.disk, to, path, 0o777)?;
        // What a run replaced first is what lay there until then.
        let places = later.iter().map(|run| self.kept(run).join(name)).chain([self.current(path)]);
        let new = target.with_file_name(format!(".stere-restore-{}", std::process::id()));
        let mut outcome = Err(std::io::Error::from(std::io::ErrorKind::NotFound)).at("find a copy of", &target);
        for place in places.filter(|place| self.is_there(place)) {
            outcome = copy_right(&*self.disk, &place, &new, entry).map(|()| Vec::new());
            if outcome.is_ok() {
                let unset = self.disk.set_facts(&new, facts);
                return self.disk.rename(&new, &target).at("restore", &target).map(|()| unset);
            }
            drop(self.disk.remove(&new));
        }
        outcome
    }
}

/// Makes a directory, never through a symbolic link; tells whether it is new.
fn make_directory(disk: &dyn Disk, to: &Path, path: &[u8]) -> Result<bool, Error> {
    let target = to.join(std::ffi::OsStr::from_bytes(path));
    let is_new = disk.found(&target).is_none();
    make_directories(disk, to, &[path, b"/."].concat(), 0o777)?;
    Ok(is_new)
}

/// Copies what is what it should be.
fn copy_right(disk: &dyn Disk, from: &Path, to: &Path, entry: &Entry) -> Result<(), Error> {
    assert!(entry.kind() != Kind::Directory, "directories are made, not copied");
    let why = || "its content is not what was written".to_owned();
    if entry.kind() == Kind::Link {
        if hash_of_link(disk, from)? != (entry.hash, entry.size) {
            return Err(Error::Damaged(from.to_owned(), why()));
        }
        let target = disk.link_target(from).at("read", from)?;
        return disk.make_link(&target, to).at("make", to);
    }
    if disk.found(from) != Some(Found::File) {
        return Err(Error::Damaged(from.to_owned(), why()));
    }
    let source = disk.open(from).at("open", from)?;
    let target = disk.make(to, false).at("make", to)?;
    let (mut hasher, mut buffer, mut at) = (blake3::Hasher::new(), vec![0; 1 << 20], 0);
    loop {
        let length = source.read_at(at, &mut buffer).at("read", from)?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
        target.write_at(at, &buffer[..length]).at("write", to)?;
        at += length as u64;
    }
    if *hasher.finalize().as_bytes() != entry.hash || at != entry.size {
        return Err(Error::Damaged(from.to_owned(), why()));
    }
    target.sync().at("make durable", to)
}
