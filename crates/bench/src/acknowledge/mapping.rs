//! Writing through a shared mapping, made durable by msync.
//!
//! When the file system dies under the mapping the process gets SIGBUS and ends: for a writer that is to be killed along
//! with its file system that is as good an end as an error.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `offset` must be a multiple of the page size, and the range must lie within the file.
pub fn write_and_sync(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of a file that is open for reading and writing; checked before use.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), data.len(), protection, libc::MAP_SHARED, file.as_raw_fd(), offset as i64)
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is valid for the length of the data, and not used after munmap.
    unsafe {
        std::ptr::copy_nonoverlapping(data.as_ptr(), address.cast(), data.len());
        let result = libc::msync(address, data.len(), libc::MS_SYNC);
        let error = io::Error::last_os_error();
        libc::munmap(address, data.len());
        if result == 0 { Ok(()) } else { Err(error) }
    }
}
