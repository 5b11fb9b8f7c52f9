//! Commands that come from a machine which mounts the pool through this one: which of them are not carried out, and why.
//!
//! What a command names by a path of its own machine (a disk, a key file of a server) would mean a file of this one. Read next:
//! `control_socket.rs`, `client_control.rs` (the other end).

use std::path::Path;

use stere_control::backup;
use stere_control::change::Change;
use stere_control::io;
use stere_control::message::Request;

#[cfg(test)]
mod tests;

/// Addresses that mean the same on all machines of a pool. Those with TLS name files of a machine.
const EVERYWHERE: [&str; 2] = ["nbd://", "stere://"];

/// Why a request from another machine is refused, if it is.
pub fn why_not_from_afar(request: &Request) -> Option<String> {
    let local = match request {
        Request::Take => return Some("a machine takes a pool for itself only".to_owned()),
        Request::Unmount { .. } => return Some("a mount is ended on its own machine".to_owned()),
        Request::Change { change, .. } => of_machine(change)?,
        Request::Backups { order: backup::Order::Add { path, .. } } => path,
        Request::Io { order: io::Order::Record { file, .. } } => file,
        _ => return None,
    };
    Some(format!(
        "{} would be a path of host {}, which owns the pool: give this command there; only nbd:// and stere:// mean the same on every machine",
        local.display(),
        stere_multihost::own_host()
    ))
}

/// What a change names that is of one machine only.
fn of_machine(change: &Change) -> Option<&Path> {
    let paths: Vec<&Path> = match change {
        Change::Add { devices, .. } => devices.iter().map(|device| device.path.as_path()).collect(),
        Change::Replace { new, .. } => vec![&new.path],
        Change::Online { path: Some(path), .. } => vec![path],
        _ => Vec::new(),
    };
    // A medium of another machine is reached through that.
    let is_named = |path: &Path| stere_machine::places::at_machine(&path.to_string_lossy()).is_some();
    paths.into_iter().find(|path| !is_everywhere(path) && !is_named(path))
}

/// Whether a place is the same for all machines. Files of one are named behind a comma (`ca=`, `credentials=`).
pub fn is_everywhere(path: &Path) -> bool {
    let text = path.to_string_lossy();
    EVERYWHERE.iter().any(|scheme| text.starts_with(scheme)) && !text.contains(",")
}
