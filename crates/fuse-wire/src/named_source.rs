//! A friendly name in place of `/dev/loop0` in /proc/mounts and df(1).
//!
//! The kernel shows the source of a mount as it was spelled, and looks the block device up only once. So the
//! device is mounted through a symbolic link with the wanted name, given as a relative path from a directory that
//! only one thread is in; link and directory are gone before anybody sees them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::mount::c_string;

/// Runs `work` with a source that is spelled `name` and leads to `device`. An error says that no such name can be
/// had, and that `work` did not run.
pub(crate) fn with_name<T: Send>(name: &str, device: &str, work: impl FnOnce(&str) -> T + Send) -> io::Result<T> {
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let directory = TemporaryDirectory::new()?;
    std::os::unix::fs::symlink(device, directory.path.join(name))?;
    std::thread::scope(|scope| {
        // A thread of its own, for it stops sharing its working directory with the rest of the process.
        let thread = scope.spawn(|| {
            enter_alone(&directory)?;
            Ok(work(name))
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the mounting thread panicked")))
    })
}

fn enter_alone(directory: &TemporaryDirectory) -> io::Result<()> {
    let path = c_string(directory.path.as_os_str().as_bytes())?;
    // SAFETY: plain system calls on this thread and a NUL-terminated path.
    let result = unsafe {
        match libc::unshare(libc::CLONE_FS) {
            0 => libc::chdir(path.as_ptr()),
            failed => failed,
        }
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    fn new() -> io::Result<Self> {
        let template = std::env::temp_dir().join("fuse-wire-XXXXXX");
        let mut bytes = c_string(template.as_os_str().as_bytes())?.into_bytes_with_nul();
        // SAFETY: a NUL-terminated template that mkdtemp writes the name into.
        let made = unsafe { libc::mkdtemp(bytes.as_mut_ptr().cast()) };
        if made.is_null() {
            return Err(io::Error::last_os_error());
        }
        bytes.pop();
        Ok(Self { path: PathBuf::from(OsStr::from_bytes(&bytes)) })
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "a temporary directory is left");
        }
    }
}
