//! What is seldom used and must work all the same: very large directories, long names, far offsets, file handles.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::cold;
use crate::error::{At, BenchError};

/// The largest offset that ext4 can write a block at, so that the check runs there too.
const FAR: u64 = (16 << 40) - 8192;
const HANDLE_SIZE: usize = 128;

/// Gives how many seconds each step of the large directory took.
pub fn run(directory: &Path, entries: u64) -> Result<Value, BenchError> {
    let folder = directory.join("stere-limits");
    fs::create_dir(&folder).at("mkdir", &folder)?;
    let seconds = large_directory(&folder, entries)?;
    names(&folder)?;
    far_offset(&folder)?;
    handles(&folder)?;
    fs::remove_dir_all(&folder).at("remove", &folder)?;
    Ok(json!({ "entries": entries, "seconds": seconds }))
}

/// Every entry is listed exactly once: as it is, from any remembered position, while others come and go, and while what was
/// listed is removed.
fn large_directory(folder: &Path, entries: u64) -> Result<Value, BenchError> {
    let large = folder.join("large");
    fs::create_dir(&large).at("mkdir", &large)?;
    let mut seconds = serde_json::Map::new();
    let mut since = Instant::now();
    let mut lap = |step: &str| {
        seconds.insert(step.to_owned(), json!(since.elapsed().as_secs_f64()));
        since = Instant::now();
    };
    for number in 0..entries {
        let path = large.join(format!("entry-{number:07}"));
        File::create_new(&path).at("create", &path)?;
    }
    lap("create");
    let listed = list(&large, |_| Ok(()))?;
    expect_all(&large, &listed, entries, "listed")?;
    lap("list");
    positions(&large)?;
    lap("find positions again");
    let beside = list_beside_changes(&large)?;
    expect_all(&large, &beside, entries, "listed while others came and went")?;
    lap("list beside changes");
    let removed = list(&large, |name| {
        let path = large.join(std::ffi::OsStr::from_bytes(name));
        fs::remove_file(&path).at("unlink", &path)
    })?;
    expect_all(&large, &removed, entries, "listed while it was emptied")?;
    fs::remove_dir(&large).at("rmdir, all entries were removed,", &large)?;
    lap("list and remove");
    Ok(Value::Object(seconds))
}

/// The names that stay, listed while a few hundred others are made and removed all the time.
fn list_beside_changes(large: &Path) -> Result<Vec<Vec<u8>>, BenchError> {
    let mut count = 0u64;
    let mut listed = list(large, |_| {
        count += 1;
        if count % 50 == 0 {
            let path = large.join(format!("other-{count}"));
            File::create_new(&path).at("create", &path)?;
            if count > 10_000 {
                let old = large.join(format!("other-{}", count - 10_000));
                fs::remove_file(&old).at("unlink", &old)?;
            }
        }
        Ok(())
    })?;
    let others: Vec<Vec<u8>> =
        list(large, |_| Ok(()))?.into_iter().filter(|name| name.starts_with(b"other-")).collect();
    for name in others {
        let path = large.join(std::ffi::OsStr::from_bytes(&name));
        fs::remove_file(&path).at("unlink", &path)?;
    }
    listed.retain(|name| name.starts_with(b"entry-"));
    Ok(listed)
}

fn expect_all(path: &Path, names: &[Vec<u8>], entries: u64, how: &str) -> Result<(), BenchError> {
    let unlike: BTreeSet<&Vec<u8>> = names.iter().collect();
    if names.len() as u64 == entries && unlike.len() as u64 == entries {
        return Ok(());
    }
    let what = format!("{entries} entries, {how}: {} of which {} are unlike", names.len(), unlike.len());
    Err(BenchError::WrongData { path: path.to_owned(), what })
}

/// An open directory stream, closed when dropped.
struct Stream(*mut libc::DIR);

impl Stream {
    fn open(path: &Path) -> Result<Self, BenchError> {
        let name = CString::new(path.as_os_str().as_bytes()).expect("paths hold no NUL");
        // SAFETY: the string lives for the call.
        let stream = unsafe { libc::opendir(name.as_ptr()) };
        if stream.is_null() { Err(std::io::Error::last_os_error()).at("opendir", path) } else { Ok(Stream(stream)) }
    }

    /// The next name but `.` and `..`.
    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            // SAFETY: the stream is open; the entry is copied before the next call.
            let name = unsafe {
                let entry = libc::readdir(self.0);
                if entry.is_null() {
                    return None;
                }
                CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes().to_vec()
            };
            if name != b"." && name != b".." {
                return Some(name);
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open and not used again.
        unsafe { libc::closedir(self.0) };
    }
}

fn list(path: &Path, mut with_each: impl FnMut(&[u8]) -> Result<(), BenchError>) -> Result<Vec<Vec<u8>>, BenchError> {
    let mut stream = Stream::open(path)?;
    let mut names = Vec::new();
    while let Some(name) = stream.next() {
        with_each(&name)?;
        names.push(name);
    }
    Ok(names)
}

/// `telldir` positions lead back to the same next entry, in a stream opened later too.
fn positions(path: &Path) -> Result<(), BenchError> {
    let mut first = Stream::open(path)?;
    let mut remembered = Vec::new();
    let mut count = 0u64;
    loop {
        // SAFETY: the stream is open.
        let position = unsafe { libc::telldir(first.0) };
        let Some(name) = first.next() else { break };
        if count % 997 == 5 {
            remembered.push((position, name));
        }
        count += 1;
    }
    let mut second = Stream::open(path)?;
    for (position, name) in remembered.iter().rev() {
        // SAFETY: the stream is open, the position came from the same directory.
        unsafe { libc::seekdir(second.0, *position) };
        let found = second.next();
        if found.as_ref() != Some(name) {
            let what = format!("position {position} leads to {found:?}, not {:?}", String::from_utf8_lossy(name));
            return Err(BenchError::WrongData { path: path.to_owned(), what });
        }
    }
    Ok(())
}

/// 255 bytes, all bytes but `/` and NUL.
fn names(folder: &Path) -> Result<(), BenchError> {
    let every_byte: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    for name in [every_byte.as_slice(), &[0xff; 255], b"...", b" ", "\u{1f9ca}".as_bytes()] {
        let path = folder.join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, name).at("write", &path)?;
        let listed = list(folder, |_| Ok(()))?.iter().any(|listed| listed == name);
        let held = fs::read(&path).at("read", &path)? == name;
        if !listed || !held {
            let what = format!("listed: {listed}, content held: {held}");
            return Err(BenchError::WrongData { path, what });
        }
    }
    Ok(())
}

fn far_offset(folder: &Path) -> Result<(), BenchError> {
    let path = folder.join("far");
    let file = File::options().read(true).write(true).create_new(true).open(&path).at("create", &path)?;
    file.write_all_at(b"far away", FAR).at("write at 16 TiB", &path)?;
    file.sync_all().at("fsync", &path)?;
    let mut data = [1; 16];
    file.read_exact_at(&mut data, FAR - 8).at("read at 16 TiB", &path)?;
    let length = file.metadata().at("stat", &path)?.len();
    if &data != b"\0\0\0\0\0\0\0\0far away" || length != FAR + 8 {
        return Err(BenchError::WrongData { path, what: format!("{data:?}, {length} bytes long") });
    }
    file.set_len(10).at("truncate", &path)?;
    file.set_len(4096).at("extend", &path)?;
    let mut data = [1; 4096];
    file.read_exact_at(&mut data, 0).at("read", &path)?;
    let is_zero = data.iter().all(|byte| *byte == 0);
    if is_zero { Ok(()) } else { Err(BenchError::WrongData { path, what: "not zero after truncation".to_owned() }) }
}

#[repr(C)]
struct Handle {
    size: u32,
    kind: i32,
    bytes: [u8; HANDLE_SIZE],
}

/// As NFS does it: a handle opens its file after the kernel has forgotten it, and is stale when the file is gone.
fn handles(folder: &Path) -> Result<(), BenchError> {
    let path = folder.join("by-handle");
    fs::write(&path, "found by its handle").at("write", &path)?;
    let handle = handle_of(&path)?;
    let root = File::open(folder).at("open", folder)?;
    cold::forget_names()?;
    let found = open_handle(&root, &handle).and_then(std::io::read_to_string).at("open by handle", &path)?;
    if found != "found by its handle" {
        return Err(BenchError::WrongData { path, what: format!("by its handle it reads {found:?}") });
    }
    fs::remove_file(&path).at("unlink", &path)?;
    fs::write(&path, "another file").at("write", &path)?;
    cold::forget_names()?;
    match open_handle(&root, &handle) {
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => Ok(()),
        other => Err(BenchError::WrongData {
            path,
            what: format!("the handle of a removed file gives {other:?}, not ESTALE"),
        }),
    }
}

fn handle_of(path: &Path) -> Result<Handle, BenchError> {
    let name = CString::new(path.as_os_str().as_bytes()).expect("paths hold no NUL");
    let mut handle = Handle { size: HANDLE_SIZE as u32, kind: 0, bytes: [0; HANDLE_SIZE] };
    let mut mount = 0;
    // SAFETY: string, handle and number live for the call; the handle's size says how much room it has.
    let result = unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, name.as_ptr(), &mut handle, &mut mount, 0)
    };
    let outcome = if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    outcome.at("name_to_handle_at", path)?;
    Ok(handle)
}

fn open_handle(root: &File, handle: &Handle) -> std::io::Result<File> {
    // SAFETY: the handle lives for the call; the descriptor that comes back is ours alone.
    let result = unsafe { libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), handle, libc::O_RDONLY) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(unsafe { File::from_raw_fd(result as i32) }) }
}
