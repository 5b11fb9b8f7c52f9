//! Mounts that may be dead, and taking them away, without asking the file system itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::mount::UnmountFlags;

use crate::error::{At, Error, Result, refused};

pub use stere_client_wire::mounts::{Mount, find};

/// The path without symbolic links, even if what is mounted there is dead and cannot be looked at.
pub fn canonical(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (std::fs::canonicalize(path), std::fs::canonicalize(parent), path.file_name()) {
        (Ok(path), _, _) => path,
        (Err(_), Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Whether the process behind a mount has died: every look at it fails.
pub fn is_dead(mountpoint: &Path) -> bool {
    let failed = std::fs::metadata(mountpoint).err().and_then(|error| error.raw_os_error());
    // The second while the kernel is still cleaning up behind the process.
    matches!(failed, Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Unmounts without the daemon's help: it is dead or not ours to talk to.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
            Err(rustix::io::Errno::BUSY) => refused(format!(
                "{0} is in use: close its files (`fuser -vm {0}` names the users), or unmount with --lazy",
                mountpoint.display()
            )),
            other => other.at("unmount", mountpoint),
        };
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(mountpoint).stdin(Stdio::null());
    let output = command.output().map_err(Error::System)?;
    match output.status.success() {
        true => Ok(()),
        false => refused(format!(
            "{} could not be unmounted: {}; close its files, or unmount with --lazy",
            mountpoint.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}
