//! A mount that was asked for: words and options understood, the mount point looked at.

use std::path::{Path, PathBuf};

use crate::options::Options;
use stere_machine::devices::{Target, absolute};
use stere_machine::error::{Error, Result, refused};
use stere_machine::mountinfo;
use stere_machine::registry::Registry;

/// A mount that was asked for, understood, with nothing relative in it.
pub struct MountRequest {
    pub target: Target,
    pub mountpoint: PathBuf,
    /// As given, for the process in the background.
    pub option_texts: Vec<String>,
    pub options: Options,
}

impl MountRequest {
    /// `words` are POOL or DEVICE... and then the mount point.
    pub fn parse(registry: &Registry, words: &[String], option_texts: &[String]) -> Result<MountRequest> {
        let [words @ .., mountpoint] = words else {
            return Err(Error::Usage("name a pool (or its devices) and a mount point".into()));
        };
        if words.is_empty() {
            return Err(Error::Usage(format!(
                "'{mountpoint}' alone is not enough: name a pool (or its devices) and a mount point"
            )));
        }
        let options = Options::parse(option_texts)?;
        let target = match Target::parse(registry, words)? {
            Target::Devices(paths) => Target::Devices(paths.iter().map(|path| absolute(path)).collect()),
            remembered => remembered,
        };
        let asked = Path::new(mountpoint);
        let mountpoint = check_mountpoint(asked)?;
        if options.exact && mountpoint != asked {
            return refused(format!("there is a symbolic link on the way to {}", asked.display()));
        }
        Ok(MountRequest { target, mountpoint, option_texts: option_texts.to_vec(), options })
    }
}

/// The mount point without symbolic links. What a killed daemon left there is taken away.
fn check_mountpoint(path: &Path) -> Result<PathBuf> {
    mountinfo::take_away_dead(path)?;
    let path = match std::fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) => {
            return refused(format!(
                "the mount point {} cannot be used: {error}; create the directory or name another one",
                path.display()
            ));
        }
    };
    if !path.is_dir() {
        return refused(format!("the mount point {} is not a directory; name a directory", path.display()));
    }
    if mountinfo::find(&path).is_some_and(|mount| mount.is_stere()) {
        return refused(format!(
            "{} is in use: a stere pool is mounted there already; unmount it with `stere umount {0}`, or name another directory",
            path.display()
        ));
    }
    Ok(path)
}
