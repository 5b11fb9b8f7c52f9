//! System calls as functions of paths and descriptors; an error is the bare errno, because errnos are what is compared.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub type Errno = i32;
pub type Call<T> = Result<T, Errno>;

pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("generated names hold no NUL")
}

pub fn check(result: i64) -> Call<i64> {
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

pub fn open(path: &Path, flags: i32, mode: u32) -> Call<OwnedFd> {
    let path = c_path(path);
    // SAFETY: the string lives for the call; the descriptor that comes back is ours alone.
    unsafe { check(i64::from(libc::open(path.as_ptr(), flags, mode))).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
}

pub fn status(path: &Path) -> Call<libc::stat> {
    let path = c_path(path);
    // SAFETY: stat is plain data, and lstat fills it before it is read.
    unsafe {
        let mut status = std::mem::zeroed();
        check(i64::from(libc::lstat(path.as_ptr(), &mut status))).map(|_| status)
    }
}

pub fn status_of(fd: &OwnedFd) -> Call<libc::stat> {
    // SAFETY: stat is plain data, and fstat fills it before it is read.
    unsafe {
        let mut status = std::mem::zeroed();
        check(i64::from(libc::fstat(fd.as_raw_fd(), &mut status))).map(|_| status)
    }
}

pub fn write_at(fd: &OwnedFd, data: &[u8], offset: u64) -> Call<i64> {
    // SAFETY: the buffer is valid for its length.
    unsafe { check(libc::pwrite(fd.as_raw_fd(), data.as_ptr().cast(), data.len(), offset as i64) as i64) }
}

pub fn read_at(fd: &OwnedFd, length: usize, offset: u64) -> Call<Vec<u8>> {
    let mut data = vec![0; length];
    let mut done = 0;
    while done < length {
        let rest = &mut data[done..];
        // SAFETY: the buffer is valid for its length.
        let result =
            unsafe { libc::pread(fd.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), (offset + done as u64) as i64) };
        match check(result as i64)? {
            0 => break,
            count => done += count as usize,
        }
    }
    data.truncate(done);
    Ok(data)
}

pub fn seek(fd: &OwnedFd, offset: u64, whence: i32) -> Call<u64> {
    // SAFETY: plain system call on an open descriptor.
    unsafe { check(libc::lseek(fd.as_raw_fd(), offset as i64, whence)).map(|position| position as u64) }
}

pub fn rename(from: &Path, to: &Path, flags: u32) -> Call<i64> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: both strings live for the call.
    unsafe {
        check(libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags))
    }
}

pub fn copy_range(from: &OwnedFd, from_offset: u64, to: &OwnedFd, to_offset: u64, length: usize) -> Call<i64> {
    let (mut source, mut target) = (from_offset as i64, to_offset as i64);
    // SAFETY: both offsets live for the call.
    let result =
        unsafe { libc::copy_file_range(from.as_raw_fd(), &mut source, to.as_raw_fd(), &mut target, length, 0) };
    check(result as i64)
}

pub fn lock(fd: &OwnedFd, exclusive: bool, start: u64, length: u64) -> Call<i64> {
    // SAFETY: flock is plain data, and lives for the call.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = if exclusive { libc::F_WRLCK as i16 } else { libc::F_RDLCK as i16 };
        lock.l_whence = libc::SEEK_SET as i16;
        (lock.l_start, lock.l_len) = (start as i64, length as i64);
        check(i64::from(libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &lock)))
    }
}

/// The thread acts as this user on file systems from now on (Linux keeps this per thread).
pub fn become_user(user: u32) {
    // SAFETY: both calls only change this thread's identity; as root they succeed in this order.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, user);
        libc::syscall(libc::SYS_setfsuid, user);
    }
}
