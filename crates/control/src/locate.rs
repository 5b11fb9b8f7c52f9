//! Which mounted pool a path is on.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::connection::{self, Connection};
use crate::message::About;
use stere_machine::devices::absolute;
use stere_machine::error::{At, Result, refused};
use stere_machine::registry::Registry;

/// The innermost of these mounts that holds the path.
pub fn mount_of<'a>(daemons: &'a [About], path: &Path) -> Result<&'a About> {
    let full = std::fs::canonicalize(absolute(path)).at("find", path)?;
    let mounted = daemons.iter().filter(|about| full.starts_with(&about.mountpoint));
    match mounted.max_by_key(|about| about.mountpoint.as_os_str().len()) {
        Some(about) => Ok(about),
        None => refused(format!(
            "{} is not on a stere mount that is known here; `stere pool list` shows them",
            path.display()
        )),
    }
}

/// Who serves the path, and the number it has there.
pub fn connect(registry: &Registry, path: &Path) -> Result<(About, Connection, u64)> {
    let daemons = connection::daemons(registry);
    let about = mount_of(&daemons, path)?.clone();
    let inode = std::fs::symlink_metadata(path).at("look at", path)?.ino();
    let connection = open(registry, &about)?;
    Ok((about, connection, inode))
}

/// A conversation with a daemon that was found.
pub fn open(registry: &Registry, about: &About) -> Result<Connection> {
    let silent = || refused(format!("the daemon of the pool '{}' does not answer; see its log", about.pool));
    Connection::open(registry, &about.pool).map_or_else(silent, Ok)
}
