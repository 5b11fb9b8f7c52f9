//! Mounting and unmounting: mount(2) as root, fusermount3 for others.
//!
//! A `fuseblk` mount sits on a block device and in exchange gets what a plain `fuse` mount never does: SYNCFS on
//! sync(2), and a DESTROY that umount(2) waits for. Any device does; `loop_device.rs` makes a tiny one.
//! Read next: `fusermount.rs`, `umount_command.rs`, `mount_namespace.rs`, `loop_device.rs`, `named_source.rs`.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fusermount;
use crate::loop_device::LoopDevice;
use crate::mount_namespace;
use crate::named_source;
use crate::umount_command;

#[cfg(test)]
mod tests;

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What /proc/mounts and df(1) show as the source. (With a `/` in it, a `fuseblk` mount shows its loop device.)
    pub source: String,
    /// Shown behind the type: `fuse.SUBTYPE`.
    pub subtype: String,
    /// Others than the mounting user may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by mode, owner and ACL.
    pub default_permissions: bool,
    pub read_only: bool,
    pub no_suid: bool,
    pub no_dev: bool,
    pub no_exec: bool,
    pub no_atime: bool,
    /// Mount as `fuseblk` where we are root, in the machine's first mount namespace, and a loop device can be had;
    /// plain `fuse` otherwise.
    pub block_device: BlockDevice,
    /// Read-ahead to set in sysfs after mounting (only root may); `None` leaves the kernel's 128 KiB.
    pub read_ahead_bytes: Option<u32>,
}

/// Whether the mount is to be `fuseblk`, so that sync(2) reaches the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockDevice {
    #[default]
    No,
    /// Where it can be had; else a plain mount, and `Negotiated::syncfs` says so.
    Preferred,
    /// Or the mount fails.
    Required,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "fuse-wire".to_owned(),
            subtype: "fuse-wire".to_owned(),
            allow_other: false,
            default_permissions: true,
            read_only: false,
            no_suid: true,
            no_dev: true,
            no_exec: false,
            no_atime: false,
            block_device: BlockDevice::No,
            read_ahead_bytes: Some(1 << 20),
        }
    }
}

/// How hard to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refused while files are open.
    Normal,
    /// Out of the name space now, gone when the last file is closed.
    Lazy,
    /// Breaks the connection: whoever uses the mount gets errors.
    Force,
}

/// Unmounts a session; clone it freely and keep it in signal handlers' threads.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mountpoint: PathBuf,
    /// Numbers of mount and file system, type and source, by which it is found where a directory above it was renamed. A bind mount of it
    /// is another one, and numbers are used again.
    identity: Option<String>,
    by: By,
}

/// Who unmounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The thread that asks: nothing waits for an answer of ours.
    Ourselves,
    /// umount(8), because the kernel lets the one who unmounts a `fuseblk` wait for our answer to DESTROY and nothing wakes him. If he were a
    /// thread of ours and we were killed meanwhile, we would wait for ourselves, and sync(2) of the whole machine for us.
    Umount,
    Fusermount,
}

impl Unmounter {
    /// Unmounts. Never call it from a request handler: the kernel may wait for that handler's answers.
    ///
    /// # Errors
    /// [`Error::UnmountBusy`] while files are open, [`Error::Unmount`] for the rest. That nothing is mounted
    /// any more is no error.
    pub fn unmount(&self, how: Unmount) -> Result<(), Error> {
        let path = self.place_now();
        let result = match (self.by, how) {
            (By::Fusermount, _) => fusermount::unmount(&path, how != Unmount::Normal),
            // The connection is broken first, so nobody waits for an answer.
            (By::Umount, Unmount::Normal | Unmount::Lazy) => match umount_command::unmount(&path, how == Unmount::Lazy)
            {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tracing::warn!(
                        "there is no umount(8) to ask: a kill before the end of unmounting would hang sync(2)"
                    );
                    unmount_directly(&path, how)
                }
                result => result,
            },
            (By::Umount, Unmount::Force) | (By::Ourselves, _) => unmount_directly(&path, how),
        };
        match result {
            Ok(()) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINVAL) => Ok(()),
                Some(libc::EBUSY) => Err(Error::UnmountBusy { path }),
                _ => Err(Error::Unmount { path, source: error }),
            },
        }
    }

    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    fn of(mountpoint: PathBuf, by: By) -> Self {
        assert!(mountpoint.is_absolute(), "mounts are listed by whole paths, not {}", mountpoint.display());
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let identity = newest_at(&mounts, mountpoint.as_os_str().as_bytes()).map(|mount| mount.identity);
        Self { mountpoint, identity, by }
    }

    /// Where it is mounted, also when a directory above it was renamed.
    #[must_use]
    pub fn place_now(&self) -> PathBuf {
        let moved = || {
            let (mounts, identity) = (std::fs::read("/proc/self/mountinfo").ok()?, self.identity.as_ref()?);
            find_place(&mounts, self.mountpoint.as_os_str().as_bytes(), identity)
        };
        moved().map_or_else(|| self.mountpoint.clone(), |path| PathBuf::from(std::ffi::OsString::from_vec(path)))
    }
}

fn unmount_directly(path: &Path, how: Unmount) -> io::Result<()> {
    let flags = libc::UMOUNT_NOFOLLOW
        | match how {
            Unmount::Normal => 0,
            Unmount::Lazy => libc::MNT_DETACH,
            Unmount::Force => libc::MNT_FORCE | libc::MNT_DETACH,
        };
    let path = c_string(path.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path and flags.
    match unsafe { libc::umount2(path.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A mount that was made.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub file: File,
    pub unmounter: Unmounter,
    pub fuseblk: bool,
}

/// Mounts on `mountpoint`. Nothing is served yet: INIT waits on the file.
pub(crate) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<Mounted, Error> {
    let mountpoint = check_mountpoint(mountpoint)?;
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        if options.block_device == BlockDevice::Required {
            let source = io::Error::from_raw_os_error(libc::EPERM);
            return Err(Error::NotPermitted { path: mountpoint, source });
        }
        let file = fusermount::mount(&mountpoint, options)?;
        return Ok(Mounted { file, unmounter: Unmounter::of(mountpoint, By::Fusermount), fuseblk: false });
    }
    let file = open_device()?;
    let unmounter = |by| Unmounter::of(mountpoint.clone(), by);
    if options.block_device != BlockDevice::No {
        match mount_fuseblk_if_safe(&file, &mountpoint, options) {
            Ok(()) => {
                return Ok(Mounted { file, unmounter: unmounter(By::Umount), fuseblk: true });
            }
            Err(error) if options.block_device == BlockDevice::Required => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "mounting without a block device: sync(2) will not arrive")
            }
        }
    }
    mount_directly(&file, &mountpoint, options, "fuse", &options.source)?;
    Ok(Mounted { file, unmounter: unmounter(By::Ourselves), fuseblk: false })
}

fn check_mountpoint(mountpoint: &Path) -> Result<PathBuf, Error> {
    let failed = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOTCONN) => Error::MountPointDead(mountpoint.to_owned()),
        _ => Error::MountPoint { path: mountpoint.to_owned(), source },
    };
    let path = std::fs::canonicalize(mountpoint).map_err(failed)?;
    let metadata = std::fs::metadata(&path).map_err(failed)?;
    if metadata.is_dir() { Ok(path) } else { Err(Error::MountPointNotDirectory(path)) }
}

fn open_device() -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Error::NoDevice,
        Some(libc::EACCES | libc::EPERM) => Error::DevicePermission(error),
        _ => Error::Device(error),
    })
}

fn mount_fuseblk_if_safe(file: &File, mountpoint: &Path, options: &MountOptions) -> Result<(), Error> {
    if !mount_namespace::outlives_us() {
        return Err(Error::NamespaceMayEnd);
    }
    mount_fuseblk(file, mountpoint, options)
}

/// The mount takes its own hold of the loop device; ours ends here, and the device frees itself at unmount.
fn mount_fuseblk(file: &File, mountpoint: &Path, options: &MountOptions) -> Result<(), Error> {
    let device = LoopDevice::create(&format!("{}:{}", options.subtype, options.source)).map_err(Error::LoopDevice)?;
    let mount = |source: &str| mount_directly(file, mountpoint, options, "fuseblk", source);
    named_source::with_name(&options.source, device.path(), mount).unwrap_or_else(|_| mount(device.path()))
}

fn mount_directly(
    file: &File,
    mountpoint: &Path,
    options: &MountOptions,
    kind: &str,
    source: &str,
) -> Result<(), Error> {
    let data = mount_data(file.as_raw_fd(), kind == "fuseblk", options);
    let kind = if options.subtype.is_empty() { kind.to_owned() } else { format!("{kind}.{}", options.subtype) };
    let mut flags = 0;
    for (set, flag) in [
        (options.read_only, libc::MS_RDONLY),
        (options.no_suid, libc::MS_NOSUID),
        (options.no_dev, libc::MS_NODEV),
        (options.no_exec, libc::MS_NOEXEC),
        (options.no_atime, libc::MS_NOATIME),
    ] {
        if set {
            flags |= flag;
        }
    }
    let refused = |error: io::Error| mount_error(error, mountpoint, &data);
    let c_source = c_string(source.as_bytes()).map_err(refused)?;
    let c_target = c_string(mountpoint.as_os_str().as_bytes()).map_err(refused)?;
    let c_kind = c_string(kind.as_bytes()).map_err(refused)?;
    let c_data = c_string(data.as_bytes()).map_err(refused)?;
    // SAFETY: four NUL-terminated strings that live through the call.
    let result =
        unsafe { libc::mount(c_source.as_ptr(), c_target.as_ptr(), c_kind.as_ptr(), flags, c_data.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(refused(io::Error::last_os_error())) }
}

fn mount_data(fd: i32, fuseblk: bool, options: &MountOptions) -> String {
    let mut data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if fuseblk {
        // The default is 512, which makes the kernel track dirty data in needlessly small pieces.
        data.push_str(",blksize=4096");
    }
    data
}

fn mount_error(source: io::Error, mountpoint: &Path, options: &str) -> Error {
    let path = mountpoint.to_owned();
    match source.raw_os_error() {
        Some(libc::EBUSY) => Error::Busy(path),
        Some(libc::EPERM | libc::EACCES) => Error::NotPermitted { path, source },
        Some(libc::ENODEV) => Error::NoDevice,
        _ => Error::Mount { path, options: options.to_owned(), source },
    }
}

pub(crate) fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// `MAJOR:MINOR` of the newest mount on `mountpoint`, without asking the file system.
pub(crate) fn device_number(mountpoint: &Path) -> Option<String> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    find_device_number(&mounts, mountpoint.as_os_str().as_bytes())
}

fn find_device_number(mountinfo: &[u8], mountpoint: &[u8]) -> Option<String> {
    newest_at(mountinfo, mountpoint).map(|mount| mount.number)
}

/// A line of mountinfo.
struct Line {
    number: String,
    target: Vec<u8>,
    /// Numbers of mount and file system, type and source.
    identity: String,
}

fn lines(mountinfo: &[u8]) -> impl Iterator<Item = Line> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let end = fields.iter().position(|field| *field == b"-")?;
        let text = |at: usize| fields.get(at).map(|field| String::from_utf8_lossy(field).into_owned());
        let (id, number, kind, source) = (text(0)?, text(2)?, text(end + 1)?, text(end + 2)?);
        let target = unescape(fields.get(4)?);
        Some(Line { identity: format!("{id} {number} {kind} {source}"), number, target })
    })
}

fn newest_at(mountinfo: &[u8], mountpoint: &[u8]) -> Option<Line> {
    lines(mountinfo).filter(|line| line.target == mountpoint).fold(None, |_, newer| Some(newer))
}

/// Where a file system is mounted: where it was, or else where it is now.
fn find_place(mountinfo: &[u8], mountpoint: &[u8], identity: &str) -> Option<Vec<u8>> {
    let mut places = lines(mountinfo).filter(|line| line.identity == identity).map(|line| line.target);
    let first = places.next()?;
    let stays = first == mountpoint || places.any(|place| place == mountpoint);
    Some(if stays { mountpoint.to_owned() } else { first })
}

/// Undoes the octal escapes (`\040` is a space) of mountinfo.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let value = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        plain.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    plain
}

/// Sets the read-ahead of a mount. Best effort: only root may, and sysfs may be missing.
pub(crate) fn set_read_ahead(mountpoint: &Path, fuseblk: bool, bytes: u32) {
    let Some(number) = device_number(mountpoint) else {
        return;
    };
    let suffix = if fuseblk { "-fuseblk" } else { "" };
    let path = format!("/sys/class/bdi/{number}{suffix}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, (bytes / 1024).to_string()) {
        tracing::debug!(path, %error, "the read-ahead stays as it is");
    }
}
