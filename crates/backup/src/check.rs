//! Proving a backup: every copy is read and compared with what the manifest says, earlier states too.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::destination::{Destination, hash_of, hash_of_link};
use crate::disk::{Disk, Found};
use crate::error::{At, Error};
use crate::manifest::{Change, Entries, Kind};

/// What a check found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Findings {
    pub files: u64,
    pub bytes: u64,
    /// What is not as it was written, with what is wrong: paths from the destination.
    pub bad: Vec<(Vec<u8>, String)>,
    /// What nobody knows of; it is left alone.
    pub unknown: Vec<Vec<u8>>,
}

impl Destination {
    /// Reads everything. What is bad among the latest copies is copied again by the next run.
    pub fn check(&mut self, stop: &dyn Fn() -> bool) -> Result<Findings, Error> {
        let mut findings = Findings::default();
        let current = self.entries.clone();
        let top = self.current(b"");
        let mut rotten = Vec::new();
        for (path, entry) in current.iter().filter(|(_, entry)| entry.kind() != Kind::Directory) {
            if let Some(why) = self.why_bad(&self.current(path), entry, &mut findings, stop)? {
                findings.bad.push(([b"current/", &path[..]].concat(), why));
                rotten.push(Change::Rotten(path.clone()));
            }
        }
        walk(&*self.disk, &top, b"", &mut |path| {
            if current.get(path).is_none_or(|entry| entry.kind() == Kind::Directory) {
                findings.unknown.push([b"current/", path].concat());
            }
            Ok(())
        })?;
        for run in self.runs()? {
            let manifest = self.kept_manifest(&run);
            match self.read_manifest(&manifest) {
                Ok(entries) => self.check_kept(&run, &entries, &mut findings, stop)?,
                Err(error) => {
                    findings.bad.push((format!("kept/{run}.manifest").into_bytes(), error.to_string()));
                }
            }
        }
        if !rotten.is_empty() {
            self.note(&rotten, Some(("check", false)))?;
            for change in &rotten {
                self.make("check", false, change)?;
            }
            self.save()?;
        }
        Ok(findings)
    }

    fn check_kept(
        &self,
        run: &str,
        entries: &Entries,
        findings: &mut Findings,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let top = self.kept(run);
        if !self.is_there(&top) {
            return Ok(());
        }
        let mut paths = Vec::new();
        walk(&*self.disk, &top, b"", &mut |path| {
            paths.push(path.to_vec());
            Ok(())
        })?;
        for path in paths {
            let shown = [format!("kept/{run}/").as_bytes(), &path].concat();
            match entries.get(&path) {
                None => findings.unknown.push(shown),
                Some(entry) => {
                    let place = top.join(std::ffi::OsStr::from_bytes(&path));
                    if let Some(why) = self.why_bad(&place, entry, findings, stop)? {
                        findings.bad.push((shown, why));
                    }
                }
            }
        }
        Ok(())
    }

    fn why_bad(
        &self,
        place: &Path,
        entry: &crate::Entry,
        findings: &mut Findings,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<String>, Error> {
        findings.files += 1;
        let is_link = entry.kind() == Kind::Link;
        match self.disk.found(place) {
            None => return Ok(Some("it is missing".into())),
            Some(found) if is_link && found != Found::Link => {
                return Ok(Some("it is not a symbolic link any more".into()));
            }
            Some(found) if !is_link && found != Found::File => return Ok(Some("it is not a file any more".into())),
            Some(_) => {}
        }
        let disk = &*self.disk;
        let found = if is_link { hash_of_link(disk, place) } else { hash_of(disk, place, stop) };
        match found {
            Ok((hash, size)) => {
                findings.bytes += size;
                let is_right = hash == entry.hash && size == entry.size;
                Ok((!is_right).then(|| "its content is not what was written".into()))
            }
            Err(Error::Stopped) => Err(Error::Stopped),
            Err(error) => Ok(Some(error.to_string())),
        }
    }
}

/// All files below a directory, by their paths from there.
fn walk(
    disk: &dyn Disk,
    top: &Path,
    below: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let directory = top.join(std::ffi::OsStr::from_bytes(below));
    for (name, is_directory) in disk.names(&directory).at("look into", &directory)? {
        let slash: &[u8] = if below.is_empty() { b"" } else { b"/" };
        let path = [below, slash, name.as_bytes()].concat();
        match is_directory {
            true => walk(disk, top, &path, visit)?,
            false => visit(&path)?,
        }
    }
    Ok(())
}
