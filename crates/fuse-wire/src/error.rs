//! What can go wrong when a session is set up or ended. Every message says what to do about it.
//!
//! Errors of single requests are errno numbers, given to `Request::reply_error`; they never come here.

use std::io;
use std::path::PathBuf;

/// Why a file system could not be mounted, served or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "there is no /dev/fuse: load the kernel module with `modprobe fuse`, or in a container pass the device through (`--device /dev/fuse`)"
    )]
    NoDevice,
    #[error("/dev/fuse may not be opened ({0}): run as root, or give this user read and write permission to /dev/fuse")]
    DevicePermission(io::Error),
    #[error("/dev/fuse cannot be opened: {0}; check that the kernel has FUSE (`grep fuse /proc/filesystems`)")]
    Device(io::Error),
    #[error("the mount point {path} cannot be used: {source}; create the directory or name another one")]
    MountPoint { path: PathBuf, source: io::Error },
    #[error("the mount point {0} is not a directory: name a directory")]
    MountPointNotDirectory(PathBuf),
    #[error("a dead FUSE mount is left on {0}: run `umount {0}` (or `fusermount3 -u {0}`) and mount again")]
    MountPointDead(PathBuf),
    #[error("the mount point or block device for {0} is busy: unmount what is there, or name another directory")]
    Busy(PathBuf),
    #[error(
        "mounting on {path} was refused ({source}): run as root, or install fuse3 so that fusermount3 can mount for ordinary users"
    )]
    NotPermitted { path: PathBuf, source: io::Error },
    #[error("mount(2) on {path} failed: {source}; options given: {options}")]
    Mount { path: PathBuf, options: String, source: io::Error },
    #[error(
        "no loop device could be made for a fuseblk mount: {0}; check /dev/loop-control, or mount without `block_device` (sync(2) then does not reach the file system)"
    )]
    LoopDevice(io::Error),
    #[error(
        "this mount namespace can end together with this process, and a killed fuseblk server would then hang sync(2) of the whole machine: mount in the machine's first mount namespace, or without `block_device` (sync(2) then does not reach the file system)"
    )]
    NamespaceMayEnd,
    #[error("fusermount3 cannot be run: {0}; install the package fuse3, or run as root")]
    FusermountMissing(io::Error),
    #[error(
        "fusermount3 refused: {0}; check that users may open /dev/fuse (mode 0666), and for allow_other that /etc/fuse.conf holds the line user_allow_other"
    )]
    Fusermount(String),
    #[error(
        "the kernel speaks FUSE protocol {major}.{minor}, and 7.31 (Linux 5.4) is the oldest this program can serve: use a newer kernel"
    )]
    ProtocolVersion { major: u32, minor: u32 },
    #[error("the kernel's INIT request cannot be read: {0}; please report this as a bug")]
    Handshake(String),
    #[error(
        "FUSE over io_uring was required but is not available: {0}; as root run `echo Y > /sys/module/fuse/parameters/enable_uring` (Linux 6.14 and newer), or choose the /dev/fuse transport"
    )]
    IoUringUnavailable(String),
    #[error("the option {option} has the value {value}, which is not allowed: {why}")]
    Option { option: &'static str, value: String, why: &'static str },
    #[error("a thread could not be started: {0}; check the limits on processes and memory")]
    Thread(io::Error),
    #[error("memory for request buffers could not be had: {0}; lower the queue depth or max_write")]
    Memory(io::Error),
    #[error(
        "{path} is in use and cannot be unmounted: close its files (`fuser -vm {path}` names the users), or unmount lazily"
    )]
    UnmountBusy { path: PathBuf },
    #[error("unmounting {path} failed: {source}; as root, try `umount {path}`")]
    Unmount { path: PathBuf, source: io::Error },
    #[error(
        "a request handler panicked, so the file system was taken down rather than served in an unknown state: please report the panic message above"
    )]
    HandlerPanicked,
    #[error("the connection was aborted through /sys/fs/fuse/connections: mount again if that was not meant")]
    Aborted,
    #[error("the connection to the kernel broke: {0}; unmount and mount again")]
    Connection(io::Error),
}
