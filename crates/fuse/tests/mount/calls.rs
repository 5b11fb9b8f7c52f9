//! System calls that std does not have.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path")
}

pub fn done(result: impl Into<i64>) -> io::Result<i64> {
    let result = result.into();
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The errno a call ended with.
pub fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().and_then(|error| error.raw_os_error()).expect("the call fails with an errno")
}

pub fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<i64> {
    let (from, to) = (text(from), text(to));
    // SAFETY: NUL-terminated paths.
    done(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })
}

pub fn mknod(path: &Path, mode: u32, device: u64) -> io::Result<i64> {
    let path = text(path);
    // SAFETY: a NUL-terminated path.
    done(unsafe { libc::mknod(path.as_ptr(), mode, device) })
}

pub fn open(path: &Path, flags: i32, mode: u32) -> io::Result<File> {
    let path = text(path);
    // SAFETY: a NUL-terminated path; the descriptor is new and ours.
    let fd = done(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) })?;
    // SAFETY: see above.
    Ok(unsafe { File::from_raw_fd(i32::try_from(fd).expect("a descriptor")) })
}

pub fn link_open_file(file: &File, to: &Path) -> io::Result<i64> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no NUL");
    let to = text(to);
    let flags = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: NUL-terminated paths.
    done(unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })
}

pub fn fallocate(file: &File, mode: i32, offset: i64, length: i64) -> io::Result<i64> {
    // SAFETY: a live descriptor.
    done(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) })
}

pub fn seek(file: &File, offset: i64, whence: i32) -> io::Result<i64> {
    // SAFETY: a live descriptor.
    done(unsafe { libc::lseek(file.as_raw_fd(), offset, whence) })
}

pub fn set_attribute(path: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<i64> {
    let (path, name) = (text(path), CString::new(name).expect("no NUL"));
    // SAFETY: NUL-terminated strings and a live slice.
    done(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) })
}

pub fn attribute(path: &Path, name: &str, room: usize) -> io::Result<Vec<u8>> {
    let (path, name) = (text(path), CString::new(name).expect("no NUL"));
    let mut value = vec![0; room];
    // SAFETY: NUL-terminated strings and a live buffer of that length.
    let length =
        done(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), room) } as i64)?;
    if room > 0 {
        value.truncate(usize::try_from(length).expect("not negative"));
    } else {
        value.resize(usize::try_from(length).expect("not negative"), 0);
    }
    Ok(value)
}

pub fn attributes(path: &Path) -> io::Result<Vec<String>> {
    let path = text(path);
    let mut list = vec![0_u8; 65_536];
    // SAFETY: a NUL-terminated path and a live buffer of that length.
    let length = done(unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) } as i64)?;
    let list = &list[..usize::try_from(length).expect("not negative")];
    Ok(list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into())
        .collect())
}

pub fn remove_attribute(path: &Path, name: &str) -> io::Result<i64> {
    let (path, name) = (text(path), CString::new(name).expect("no NUL"));
    // SAFETY: NUL-terminated strings.
    done(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })
}

/// Copies within the kernel until all is copied.
pub fn copy_range(from: &File, from_offset: i64, to: &File, to_offset: i64, length: usize) -> io::Result<usize> {
    let (mut from_offset, mut to_offset, mut left) = (from_offset, to_offset, length);
    while left > 0 {
        let (from_at, to_at) = (&raw mut from_offset, &raw mut to_offset);
        // SAFETY: live descriptors and offsets.
        let copied =
            done(unsafe { libc::copy_file_range(from.as_raw_fd(), from_at, to.as_raw_fd(), to_at, left, 0) } as i64)?;
        if copied == 0 {
            break;
        }
        left -= usize::try_from(copied).expect("not negative");
    }
    Ok(length - left)
}

/// A file's name that outlives its path and its mount.
#[repr(C)]
pub struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES],
}

const HANDLE_BYTES: usize = 128;

pub fn handle_of(path: &Path) -> Handle {
    let path = text(path);
    let room = u32::try_from(HANDLE_BYTES).expect("a small number");
    let (mut handle, mut mount) = (Handle { bytes: room, kind: 0, data: [0; HANDLE_BYTES] }, 0);
    let pointer: *mut libc::file_handle = (&raw mut handle).cast();
    // SAFETY: a NUL-terminated path and a live handle that says how much room it has.
    done(unsafe { libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), pointer, &raw mut mount, 0) })
        .expect("a handle");
    handle
}

/// `mount` is any open file of the handle's mount.
pub fn open_handle(mount: &File, handle: &Handle, flags: i32) -> io::Result<File> {
    let pointer: *const libc::file_handle = (&raw const *handle).cast();
    // SAFETY: a live descriptor, and a handle that the kernel filled and does not change.
    let fd = done(unsafe { libc::open_by_handle_at(mount.as_raw_fd(), pointer.cast_mut(), flags | libc::O_CLOEXEC) })?;
    // SAFETY: a new descriptor that is ours.
    Ok(unsafe { File::from_raw_fd(i32::try_from(fd).expect("descriptors are small")) })
}

/// `FICLONE`: makes a file share all of another's content.
pub fn clone_file(from: &File, to: &File) -> io::Result<i64> {
    // SAFETY: live descriptors.
    done(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE as _, from.as_raw_fd()) })
}

/// Runs something on a thread that acts for another user.
pub fn as_user<T: Send>(uid: u32, gid: u32, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the raw calls change this thread alone, which ends with the scope.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
            }
            run()
        });
        thread.join().expect("the other user's thread does not panic")
    })
}

/// Runs something in a process of its own. Mappings need that: a fault that waits for the file system holds locks of its
/// process's memory, and the file system is served by this process.
pub fn in_child(run: impl FnOnce()) {
    // SAFETY: the child runs the closure and leaves without cleaning up what belongs to its parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: our child, and a live variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed, see above");
}

/// Makes the kernel drop cached names and inodes.
pub fn drop_caches() {
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("root may drop caches");
}

/// A shared mapping of a file.
pub struct Mapping {
    address: *mut u8,
    length: usize,
}

impl Mapping {
    pub fn new(file: &File, length: usize) -> Mapping {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a live descriptor.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
        assert_ne!(address, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Mapping { address: address.cast(), length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped, that long, and borrowed like the mapping.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.length) }
    }

    pub fn sync(&self) {
        // SAFETY: a live mapping.
        assert_eq!(unsafe { libc::msync(self.address.cast(), self.length, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}

/// Memory that starts on a page, for O_DIRECT.
pub fn aligned(bytes: &[u8]) -> (Vec<u8>, std::ops::Range<usize>) {
    let mut buffer = vec![0; bytes.len() + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    buffer[start..start + bytes.len()].copy_from_slice(bytes);
    (buffer, start..start + bytes.len())
}
