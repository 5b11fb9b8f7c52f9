//! The key of this machine: made when it is first needed, and kept in a file of the state folder that only its user may read.
//!
//! Invariants: the file is whole or is not there; a machine that has a key keeps it. Read next: `admission.rs`, the crate `machine-tls`.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use stere_format::MachineKeyFile;
use stere_machine_tls::{KeyError, MachineKey};

use crate::error::{At, Error, Result, refused};
use crate::random;
use crate::registry::Registry;

#[cfg(test)]
mod tests;

const KEY_FILE: &str = "machine-key";
/// Nobody else may read it.
const OTHERS: u32 = 0o077;

fn unusable(error: KeyError) -> Error {
    Error::Refused(error.to_string())
}

/// The key of this machine.
pub fn own(registry: &Registry) -> Result<MachineKey> {
    let path = registry.state().join(KEY_FILE);
    match read(&path)? {
        Some(key) => Ok(key),
        None => make(registry.state(), &path),
    }
}

fn read(path: &Path) -> Result<Option<MachineKey>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        bytes => bytes.at("read", path)?,
    };
    if fs::metadata(path).at("look at", path)?.mode() & OTHERS != 0 {
        return refused(format!(
            "{0} holds this machine's private key, and others may read it: `chmod 600 {0}`, or remove it if somebody \
             did, for a new one",
            path.display()
        ));
    }
    match MachineKeyFile::decode(&bytes) {
        Ok(file) => MachineKey::of(file.private_key).map(Some).map_err(unusable),
        Err(error) => refused(format!(
            "{0} does not hold this machine's key as it was written ({error}): put it back from a copy, or remove it; \
             then this machine gets a new one, which pools that ask have to admit",
            path.display()
        )),
    }
}

/// Makes one, unless another process is faster: then that one counts.
fn make(state: &Path, path: &Path) -> Result<MachineKey> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(state).at("create this directory", state)?;
    let key = MachineKey::new().map_err(unusable)?;
    let draft: u64 = u64::from_le_bytes(random::random());
    let new = state.join(format!("{KEY_FILE}.{draft:016x}"));
    let bytes = MachineKeyFile { private_key: *key.private() }.encode();
    assert!(bytes.len() == MachineKeyFile::SIZE, "the file of a key has one size");
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
    // A link is made only where nothing is: nobody's key is replaced.
    let linked = written.and_then(|()| fs::hard_link(&new, path));
    drop(fs::remove_file(&new));
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        linked => linked.at("write", path)?,
    }
    fs::File::open(state).and_then(|folder| folder.sync_all()).at("sync", state)?;
    match read(path)? {
        Some(kept) => Ok(kept),
        None => refused(format!("{} was written and is gone; who removes files of stere there?", path.display())),
    }
}
