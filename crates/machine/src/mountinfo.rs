//! Mounts that may be dead, and taking them away. The file system itself is asked for a bounded time only.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

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

/// How long a mount is asked whether its process lives; one that says nothing for so long is not dead.
const ASKED_MAX: Duration = Duration::from_secs(2);

/// Whether the process behind a mount has died.
pub fn is_dead(mountpoint: &Path) -> bool {
    // The second while the kernel is still cleaning up behind the process.
    let is_of_dead = |error: i32| matches!(error, libc::ENOTCONN | libc::ECONNABORTED);
    match std::fs::metadata(mountpoint) {
        Err(error) => error.raw_os_error().is_some_and(is_of_dead),
        // The kernel may remember that from when the process lived; how full it is, is asked each time.
        Ok(_) if find(&canonical(mountpoint)).is_some_and(|mount| mount.is_stere()) => {
            error_of_statfs(mountpoint).is_some_and(is_of_dead)
        }
        Ok(_) => false,
    }
}

/// Asked on a thread of its own, which its asker leaves behind: a process that was stopped answers nothing.
fn error_of_statfs(mountpoint: &Path) -> Option<i32> {
    let (answer, answered) = mpsc::channel();
    let path = mountpoint.to_owned();
    let asks = move || {
        // Nobody may listen any more.
        let _heard = answer.send(rustix::fs::statfs(&path).err().map(rustix::io::Errno::raw_os_error));
    };
    std::thread::Builder::new().name("stere-ask".into()).spawn(asks).ok()?;
    answered.recv_timeout(ASKED_MAX).ok().flatten()
}

/// Takes away the mount of a process that has died, if there is one.
pub fn take_away_dead(path: &Path) -> Result<()> {
    if is_dead(path) {
        let path = canonical(path);
        if find(&path).is_some_and(|mount| mount.is_stere()) {
            tracing::info!(path = %path.display(), "taking away the mount of a process that has died");
            unmount(&path, true)?;
        }
    }
    Ok(())
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
