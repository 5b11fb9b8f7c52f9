//! The same for C: `include/stere.h` tells what each call means.
//!
//! Invariants: no panic crosses to the caller (it becomes EIO); pointers of the caller are looked at only as long as a call lasts.
#![allow(clippy::missing_safety_doc, reason = "what callers owe stands in the header")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::direct::{Pool, PoolOptions};
use crate::error::Error;
use crate::file::{File, Options, Piece};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs a call; what goes wrong is remembered and becomes a negative errno.
fn answered(call: impl FnOnce() -> Result<i64, Error>) -> i64 {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let (errno, text) = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => (error.errno(), error.to_string()),
        Err(_) => (libc::EIO, "the library panicked; please report what it printed".to_owned()),
    };
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with(|message| message.replace(text));
    -i64::from(errno.abs())
}

fn answered_short(call: impl FnOnce() -> Result<(), Error>) -> c_int {
    c_int::try_from(answered(|| call().map(|()| 0))).unwrap_or(-libc::EIO)
}

fn options_of(flags: c_int, mode: libc::mode_t) -> Result<Options, Error> {
    if flags & !(libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC) != 0 {
        return Err(Error::Usage("only O_RDONLY, O_WRONLY, O_RDWR, O_CREAT and O_TRUNC are understood"));
    }
    let (read, write) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Error::Usage("say O_RDONLY, O_WRONLY or O_RDWR")),
    };
    let options = Options::new().read(read).write(write).mode(mode);
    Ok(options.create(flags & libc::O_CREAT != 0).truncate(flags & libc::O_TRUNC != 0))
}

/// The text as a path.
///
/// # Safety
/// The pointer is null or leads to a text that ends with a zero byte and lives as long as what is given.
unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, Error> {
    if text.is_null() {
        return Err(Error::Usage("a path is NULL"));
    }
    // SAFETY: as the caller promises.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes())))
}

/// # Safety
/// The pointer is null or comes from a call of the library and was not closed.
unsafe fn known<'a, T>(pointer: *mut T) -> Result<&'a T, Error> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or(Error::Usage("a file or pool is NULL"))
}

/// # Safety
/// The pointer is null or leads to room for a pointer.
unsafe fn give<T>(place: *mut *mut T, value: T) -> Result<(), Error> {
    if place.is_null() {
        return Err(Error::Usage("there is no place for the result: it is NULL"));
    }
    // SAFETY: as the caller promises.
    unsafe { place.write(Box::into_raw(Box::new(value))) };
    Ok(())
}

/// # Safety
/// `bytes` leads to as many bytes, or there are none.
unsafe fn room<'a>(bytes: *mut c_void, length: usize) -> Result<&'a mut [u8], Error> {
    match (length, bytes.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Error::Usage("the buffer is NULL")),
        (length, _) if isize::try_from(length).is_err() => Err(Error::Usage("the buffer is longer than memory")),
        // SAFETY: as the caller promises; no slice is longer than `isize::MAX`.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(bytes.cast(), length) }),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_open(
    text: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    place: *mut *mut File,
) -> c_int {
    // SAFETY: as the header asks of the caller; so in all of these.
    answered_short(|| unsafe { give(place, File::open(path(text)?, options_of(flags, mode)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_open_fd(descriptor: c_int, place: *mut *mut File) -> c_int {
    answered_short(|| {
        if descriptor < 0 {
            return Err(Error::Usage("the descriptor is negative"));
        }
        // SAFETY: the caller's descriptor, for as long as this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let own = descriptor.try_clone_to_owned().map_err(Error::system("use this descriptor"))?;
        // SAFETY: as the header asks.
        unsafe { give(place, File::from_file(own.into())?) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_pool_open(
    devices: *const *const c_char,
    count: usize,
    flags: c_int,
    place: *mut *mut Pool,
) -> c_int {
    answered_short(|| {
        if devices.is_null() || count == 0 {
            return Err(Error::Usage("name the pool's devices"));
        }
        // SAFETY: so many pointers to texts, as the header asks.
        let paths: Result<Vec<&Path>, Error> = (0..count).map(|index| unsafe { path(*devices.add(index)) }).collect();
        let read_only = !options_of(flags, 0)?.write;
        // SAFETY: as above.
        unsafe { give(place, Pool::open(&paths?, PoolOptions { read_only, ..PoolOptions::default() })?) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_pool_file(
    pool: *mut Pool,
    text: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    place: *mut *mut File,
) -> c_int {
    // SAFETY: as the header asks.
    answered_short(|| unsafe { give(place, known(pool)?.file(path(text)?, options_of(flags, mode)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_pool_close(pool: *mut Pool) -> c_int {
    answered_short(|| {
        // SAFETY: as the header asks.
        if unsafe { known(pool)? }.has_files() {
            return Err(Error::FilesOpen);
        }
        // SAFETY: it came from `give` and is given up by the caller.
        unsafe { Box::from_raw(pool) }.close()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_read_at(file: *mut File, bytes: *mut c_void, length: usize, offset: u64) -> isize {
    // SAFETY: as the header asks.
    answered(|| unsafe { Ok(known(file)?.read_at(room(bytes, length)?, offset)? as i64) }) as isize
}

/// As in the header.
#[repr(C)]
pub struct CPiece {
    offset: u64,
    bytes: *mut c_void,
    length: usize,
    result: usize,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_read_many(file: *mut File, pieces: *mut CPiece, count: usize) -> c_int {
    answered_short(|| {
        if pieces.is_null() && count > 0 {
            return Err(Error::Usage("the pieces are NULL"));
        }
        let mut asked = Vec::with_capacity(count);
        for index in 0..count {
            // SAFETY: so many pieces, whose buffers do not overlap, as the header asks.
            let bytes = unsafe { room((*pieces.add(index)).bytes, (*pieces.add(index)).length)? };
            // SAFETY: as above.
            asked.push(Piece { offset: unsafe { (*pieces.add(index)).offset }, bytes, read: 0 });
        }
        // SAFETY: as above.
        unsafe { known(file)? }.read_many(&mut asked)?;
        for (index, piece) in asked.iter().enumerate() {
            // SAFETY: as above.
            unsafe { (*pieces.add(index)).result = piece.read };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_write_at(file: *mut File, bytes: *const c_void, length: usize, offset: u64) -> isize {
    // SAFETY: as the header asks; the bytes are only read.
    answered(|| unsafe { Ok(known(file)?.write_at(room(bytes.cast_mut(), length)?, offset)? as i64) }) as isize
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_sync(file: *mut File) -> c_int {
    // SAFETY: as the header asks.
    answered_short(|| unsafe { known(file)? }.sync())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_size(file: *mut File) -> i64 {
    // SAFETY: as the header asks.
    answered(|| unsafe { known(file)? }.size().map(u64::cast_signed))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn stere_close(file: *mut File) -> c_int {
    answered_short(|| {
        // SAFETY: as the header asks.
        unsafe { known(file)? };
        // SAFETY: it came from `give` and is given up by the caller.
        unsafe { Box::from_raw(file) }.close()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn stere_message() -> *const c_char {
    MESSAGE.with(|message| message.borrow().as_ptr())
}
