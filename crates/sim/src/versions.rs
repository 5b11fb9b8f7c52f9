//! Versions in histories: files and directories are told to keep what they held, and what is kept must be something they held.
//!
//! Names, contents and crashes are judged as in any other history: what is kept must not show in them. Until the first crash each
//! version is, byte for byte, what some file held between two operations; later it must only be readable.
//! Read next: `history.rs`, `docs/design/versions.md`.

use std::collections::BTreeSet;

use stere_naming::Error;

use crate::content::Content;
use crate::history::{Budget, History, Stop};
use crate::model::{Kind, ROOT};
use crate::observe;
use crate::pool::caller;

const ATTRIBUTE: &[u8] = b"user.stere.versions";
const WISHES: [&[u8]; 4] = [b"3", b"2,1h", b"no", b"1m"];
/// The directory that versions are found in.
const DIRECTORY: &[u8] = b".versions";

/// Contents that files held, as digests.
pub(crate) type Digests = BTreeSet<u64>;

impl History {
    /// A pool with versions keeps some of everything from its first operation on.
    pub(crate) fn begin_versions(&mut self) -> Result<(), Stop> {
        if !self.plan.pool.keeps_versions {
            return Ok(());
        }
        self.put_policy(ROOT, ATTRIBUTE, WISHES[1])?;
        self.sync_all()
    }

    /// In a history with versions, this file or directory is to keep some from now on, or none.
    pub(crate) fn wish_versions(&mut self, inode: u64, pick: usize) -> Result<(), Stop> {
        if !self.plan.pool.keeps_versions {
            return Ok(());
        }
        self.put_policy(inode, ATTRIBUTE, WISHES[pick % WISHES.len()])
    }

    /// Notes what a file holds.
    pub(crate) fn note_held(&mut self, content: &Content) {
        if self.plan.pool.keeps_versions {
            self.digests.insert(content.digest());
        }
    }

    /// Reads every version of every directory that has a name.
    pub(crate) fn verify_versions(&mut self) -> Result<(), Stop> {
        if !self.plan.pool.keeps_versions {
            return Ok(());
        }
        let directories = self.model.nodes.iter().filter(|(_, node)| matches!(node.kind, Kind::Directory(_)));
        let directories: Vec<u64> = directories.map(|(inode, _)| *inode).collect();
        for directory in directories {
            let found = self.mounted().files.lookup(&caller(&self.machine), directory, DIRECTORY);
            match found {
                Ok(versions) => self.verify_below(versions.inode)?,
                Err(Error::NotFound) => {}
                Err(error) => return Err(self.unexpected("lookup of versions", error.errno(), &error.to_string())),
            }
        }
        Ok(())
    }

    fn verify_below(&mut self, directory: u64) -> Result<(), Stop> {
        let names = observe::list(&self.mounted().files, &caller(&self.machine), directory);
        let names = names.map_err(|trouble| self.trouble(trouble))?;
        if names.is_empty() {
            return Err(Stop::Failure(format!("directory {directory} of versions holds none")));
        }
        for (name, inode) in names {
            let attributes = self.mounted().files.getattr(&caller(&self.machine), inode);
            let attributes = self.must("getattr of a version", attributes)?;
            match attributes.mode & libc::S_IFMT {
                libc::S_IFDIR => self.verify_below(inode)?,
                libc::S_IFREG => self.verify_version(inode, &name)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn verify_version(&mut self, inode: u64, name: &[u8]) -> Result<(), Stop> {
        let seen = self.read_file(inode);
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        self.summary.versions += 1;
        let is_exact = self.summary.crashes == 0 && self.plan.budget != Budget::Beyond;
        if is_exact && !self.digests.contains(&seen.digest()) {
            let name = String::from_utf8_lossy(name);
            return Err(Stop::Failure(format!("version {name} (inode {inode}) is nothing that a file held")));
        }
        Ok(())
    }
}
