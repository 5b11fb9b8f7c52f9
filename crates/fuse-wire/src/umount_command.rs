//! Unmounting by a process of its own, umount(8): whoever unmounts a `fuseblk` waits in the kernel for the answer to DESTROY.
//!
//! A process that is not ours ends when we are killed: our end closes /dev/fuse, and that wakes it. Read next: `mount.rs`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

#[cfg(test)]
mod tests;

const PROGRAM: &str = "umount";

/// Unmounts; the errors are those of umount2(2) as far as umount(8) tells them apart, and `NotFound` where there is no umount(8).
pub(crate) fn unmount(mountpoint: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(PROGRAM);
    // No helper of a type's is to be called: it could be ours, and ask us.
    command.arg("-i");
    if lazy {
        command.arg("-l");
    }
    command.arg(mountpoint).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() { Ok(()) } else { Err(to_error(&output.stderr)) }
}

/// umount(8) has one exit code for everything; its words tell the causes apart (those of util-linux and of busybox).
fn to_error(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    let number = if text.contains("busy") {
        libc::EBUSY
    } else if text.contains("not mounted") || text.contains("Invalid argument") || text.contains("no mount point") {
        libc::EINVAL
    } else {
        return io::Error::other(format!("umount: {text}"));
    };
    io::Error::from_raw_os_error(number)
}
