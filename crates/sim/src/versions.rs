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
use crate::pool::caller;
use crate::{execute::names, observe};

const ATTRIBUTE: &[u8] = b"user.stere.versions";
const WISHES: [&[u8]; 4] = [b"3", b"2,1h", b"no", b"1m"];
/// The directory that versions are found in.
const DIRECTORY: &[u8] = b".versions";

/// Contents that files held, as digests.
pub(crate) type Digests = BTreeSet<u64>;

/// A pool with versions keeps some of everything from its first operation on.
pub(crate) fn begin_versions(history: &mut History) -> Result<(), Stop> {
    if !history.plan.pool.keeps_versions {
        return Ok(());
    }
    names::put_policy(history, ROOT, ATTRIBUTE, WISHES[1])?;
    history.sync_all()
}

/// In a history with versions, this file or directory is to keep some from now on, or none.
pub(crate) fn wish_versions(history: &mut History, inode: u64, pick: usize) -> Result<(), Stop> {
    if !history.plan.pool.keeps_versions {
        return Ok(());
    }
    names::put_policy(history, inode, ATTRIBUTE, WISHES[pick % WISHES.len()])
}

/// Notes what a file holds.
pub(crate) fn note_held(history: &mut History, content: &Content) {
    if history.plan.pool.keeps_versions {
        history.digests.insert(content.digest());
    }
}

/// Reads every version of every directory that has a name.
pub(crate) fn verify_versions(history: &mut History) -> Result<(), Stop> {
    if !history.plan.pool.keeps_versions {
        return Ok(());
    }
    let directories = history.model.nodes.iter().filter(|(_, node)| matches!(node.kind, Kind::Directory(_)));
    let directories: Vec<u64> = directories.map(|(inode, _)| *inode).collect();
    for directory in directories {
        let found = history.mounted().files.lookup(&caller(&history.machine), directory, DIRECTORY);
        match found {
            Ok(versions) => verify_below(history, versions.inode)?,
            Err(Error::NotFound) => {}
            Err(error) => return Err(history.unexpected("lookup of versions", error.errno(), &error.to_string())),
        }
    }
    Ok(())
}

fn verify_below(history: &mut History, directory: u64) -> Result<(), Stop> {
    let names = observe::list(&history.mounted().files, &caller(&history.machine), directory);
    let names = names.map_err(|trouble| history.trouble(trouble))?;
    if names.is_empty() {
        return Err(Stop::Failure(format!("directory {directory} of versions holds none")));
    }
    for (name, inode) in names {
        let attributes = history.mounted().files.getattr(&caller(&history.machine), inode);
        let attributes = history.must("getattr of a version", attributes)?;
        match attributes.mode & libc::S_IFMT {
            libc::S_IFDIR => verify_below(history, inode)?,
            libc::S_IFREG => verify_version(history, inode, &name)?,
            _ => {}
        }
    }
    Ok(())
}

fn verify_version(history: &mut History, inode: u64, name: &[u8]) -> Result<(), Stop> {
    let seen = history.read_file(inode);
    let seen = seen.map_err(|trouble| history.trouble(trouble))?;
    history.summary.versions += 1;
    let is_exact = history.summary.crashes == 0 && history.plan.budget != Budget::Beyond;
    if is_exact && !history.digests.contains(&seen.digest()) {
        let name = String::from_utf8_lossy(name);
        return Err(Stop::Failure(format!("version {name} (inode {inode}) is nothing that a file held")));
    }
    Ok(())
}
