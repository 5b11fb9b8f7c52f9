//! A tiny loop device over anonymous memory, for `fuseblk` mounts to sit on.
//!
//! Nothing is ever read from or written to it. Invariant: it frees itself (autoclear) when its last user, our
//! descriptor or the mount, is gone, even after `kill -9`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::mount::c_string;

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const BACKING_BYTES: libc::off_t = 64 * 1024;
/// memfd_create(2) takes no more.
const BACKING_NAME_BYTES_MAX: usize = 249;
/// Another process may take the free device between the two calls.
const ATTEMPTS_MAX: usize = 16;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// An open loop device.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: String,
    _file: File,
}

impl LoopDevice {
    /// Makes one; `name` is what losetup(8) shows as its file (behind `/memfd:`).
    pub fn create(name: &str) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        let backing = backing_memory(name)?;
        let config = configuration(&backing, name);
        for _ in 0..ATTEMPTS_MAX {
            // SAFETY: takes no argument, gives a number or an error.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = format!("/dev/loop{number}");
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            // SAFETY: the configuration has the kernel's layout and lives through the call.
            if unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) } == 0 {
                return Ok(Self { path, _file: file });
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    pub fn path(&self) -> &str {
        &self.path
    }
}

fn backing_memory(name: &str) -> io::Result<File> {
    let name = c_string(&name.as_bytes()[..name.len().min(BACKING_NAME_BYTES_MAX)])?;
    // SAFETY: a NUL-terminated name and flags; the result is checked before it is owned.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(BACKING_BYTES.cast_unsigned())?;
    Ok(file)
}

fn configuration(backing: &File, name: &str) -> LoopConfig {
    let mut info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_AUTOCLEAR,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let name = &name.as_bytes()[..name.len().min(info.file_name.len() - 1)];
    info.file_name[..name.len()].copy_from_slice(name);
    let fd = u32::try_from(backing.as_raw_fd()).unwrap_or(u32::MAX);
    LoopConfig { fd, block_size: 0, info, reserved: [0; 8] }
}
