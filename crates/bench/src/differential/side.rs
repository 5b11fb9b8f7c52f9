//! One of the two directories: a root, a few open descriptors, and how an operation is carried out there.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::attributes;
use super::observe::{Attributes, Time, attributes_of, join, list};
use super::operation::{FallocateMode, Name, NodeKind, Operation, RenameMode, SLOTS};
use super::system::{self, Call, c_path, check};
use crate::error::{At, BenchError};

/// What an operation gave, in a form that prints and compares.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Number(Call<i64>),
    Bytes(Call<Bytes>),
    Entries(Call<Vec<(Name, u32)>>),
    Status(Call<Attributes>),
    Times(Call<(Time, Time)>),
    /// Holes may be reported coarser or finer; it is checked that what is skipped reads as zeros.
    Seek {
        beyond_end: bool,
        fault: Option<String>,
    },
    NoDescriptor,
}

impl Outcome {
    /// The errno with which the operation was refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Outcome::Number(result) => result.as_ref().err().copied(),
            Outcome::Bytes(result) => result.as_ref().err().copied(),
            Outcome::Entries(result) => result.as_ref().err().copied(),
            Outcome::Status(result) => result.as_ref().err().copied(),
            Outcome::Times(result) => result.as_ref().err().copied(),
            Outcome::Seek { .. } | Outcome::NoDescriptor => None,
        }
    }
}

/// Bytes that print short.
#[derive(PartialEq, Eq)]
pub struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hash = self.0.iter().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        write!(out, "{} bytes {:02x?}.. hash {hash:016x}", self.0.len(), &self.0[..self.0.len().min(16)])
    }
}

pub struct Side {
    root: PathBuf,
    slots: Vec<Option<OwnedFd>>,
}

impl Side {
    /// Makes a fresh folder in the directory; everything happens in it.
    pub fn new(directory: &Path) -> Result<Self, BenchError> {
        system::become_user(0);
        let root = directory.join("stere-differential");
        if root.exists() {
            fs::remove_dir_all(&root).at("remove", &root)?;
        }
        fs::create_dir(&root).at("mkdir", &root)?;
        set_umask(0o022);
        check(chmod(&root, 0o777)).map_err(std::io::Error::from_raw_os_error).at("chmod", &root)?;
        Ok(Side { root, slots: (0..SLOTS).map(|_| None).collect() })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn remove(self) -> Result<(), BenchError> {
        system::become_user(0);
        drop(self.slots);
        fs::remove_dir_all(&self.root).at("remove", &self.root)
    }

    /// Whether parts of files can be taken out and put in; tried on a file that is removed again.
    pub fn can_shift_ranges(&self) -> Result<bool, BenchError> {
        let path = self.root.join("probe");
        fs::write(&path, [1; 3 * 4096]).at("write", &path)?;
        let file = fs::File::options().write(true).open(&path).at("open", &path)?;
        // SAFETY: plain system call on an open descriptor.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096) };
        let errno = check(i64::from(result)).err();
        fs::remove_file(&path).at("unlink", &path)?;
        Ok(errno != Some(libc::EOPNOTSUPP))
    }

    /// A difference that no operation made, to prove that differences are found.
    pub fn plant_difference(&self) -> Result<(), BenchError> {
        system::become_user(0);
        let path = self.root.join("a-file-on-this-side-only");
        fs::write(&path, "planted").at("write", &path)
    }

    pub fn apply(&mut self, operation: &Operation) -> Outcome {
        use Operation::*;
        match operation {
            Open { .. } | OpenTemporary { .. } | LinkSlot { .. } | Close { .. } => self.apply_to_slots(operation),
            Write { slot, .. } | Read { slot, .. } | TruncateSlot { slot, .. } | Fallocate { slot, .. } => {
                self.with_slot(*slot, |_, fd| apply_to_data(operation, fd))
            }
            Seek { slot, offset } => self.with_slot(*slot, |_, fd| seek(fd, *offset)),
            CopyRange { from, to, from_offset, to_offset, length } => self.with_slot(*from, |side, source| {
                side.with_slot(*to, |_, target| {
                    Outcome::Number(system::copy_range(source, *from_offset, target, *to_offset, *length as usize))
                })
            }),
            Sync { slot, .. } | Lock { slot, .. } | StatSlot { slot } => {
                self.with_slot(*slot, |_, fd| apply_to_descriptor(operation, fd))
            }
            Become { user } => {
                system::become_user(*user);
                Outcome::Number(Ok(0))
            }
            Umask { mask } => {
                set_umask(*mask);
                Outcome::Number(Ok(0))
            }
            Chmod { .. } | Chown { .. } | SetTimes { .. } | Access { .. } => self.apply_to_inode(operation),
            SetAttribute { .. } | GetAttribute { .. } | RemoveAttribute { .. } | SetAcl { .. } => {
                self.apply_to_attributes(operation)
            }
            _ => self.apply_to_names(operation),
        }
    }

    fn with_slot(&self, slot: u64, work: impl FnOnce(&Self, &OwnedFd) -> Outcome) -> Outcome {
        match &self.slots[slot as usize] {
            Some(fd) => work(self, fd),
            None => Outcome::NoDescriptor,
        }
    }

    fn path(&self, name: &Name) -> PathBuf {
        join(&self.root, name)
    }

    fn apply_to_slots(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Open { slot, name, create, exclusive, truncate, append, mode } => {
                let flag = |wanted: &bool, flag: i32| if *wanted { flag } else { 0 };
                let flags =
                    libc::O_RDWR | libc::O_NONBLOCK | flag(create, libc::O_CREAT) | flag(append, libc::O_APPEND);
                let flags = flags | flag(exclusive, libc::O_EXCL) | flag(truncate, libc::O_TRUNC);
                self.put(*slot, system::open(&self.path(name), flags, *mode))
            }
            Operation::OpenTemporary { slot, name, mode } => {
                self.put(*slot, system::open(&self.path(name), libc::O_TMPFILE | libc::O_RDWR, *mode))
            }
            Operation::LinkSlot { slot, name } => self.with_slot(*slot, |side, fd| {
                let source = c_path(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())));
                let target = c_path(&side.path(name));
                let (here, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
                // SAFETY: both strings live for the call.
                let result = unsafe { libc::linkat(here, source.as_ptr(), here, target.as_ptr(), flags) };
                Outcome::Number(check(i64::from(result)))
            }),
            Operation::Close { slot } => {
                self.slots[*slot as usize] = None;
                Outcome::Number(Ok(0))
            }
            other => unreachable!("{other:?} does not open or close"),
        }
    }

    /// Only regular files stay in a slot: what opens devices and pipes is not the file system's business.
    fn put(&mut self, slot: u64, opened: Call<OwnedFd>) -> Outcome {
        let fd = match opened {
            Ok(fd) => fd,
            Err(errno) => return Outcome::Number(Err(errno)),
        };
        let status = system::status_of(&fd);
        let is_regular = status.is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG);
        self.slots[slot as usize] = is_regular.then_some(fd);
        Outcome::Number(Ok(i64::from(is_regular)))
    }

    fn apply_to_names(&self, operation: &Operation) -> Outcome {
        let at = |name: &Name| c_path(&self.path(name));
        // SAFETY, for all calls below: every string lives for its call.
        let result = match operation {
            Operation::Mkdir { name, mode } => unsafe { libc::mkdir(at(name).as_ptr(), *mode) },
            Operation::Unlink { name } => unsafe { libc::unlink(at(name).as_ptr()) },
            Operation::Rmdir { name } => unsafe { libc::rmdir(at(name).as_ptr()) },
            Operation::Rename { from, to, mode } => {
                let flags = match mode {
                    RenameMode::Replace => 0,
                    RenameMode::NoReplace => libc::RENAME_NOREPLACE,
                    RenameMode::Exchange => libc::RENAME_EXCHANGE,
                };
                return Outcome::Number(system::rename(&self.path(from), &self.path(to), flags));
            }
            Operation::Link { from, to } => unsafe { libc::link(at(from).as_ptr(), at(to).as_ptr()) },
            Operation::Symlink { target, name } => {
                let target = c_path(Path::new(std::ffi::OsStr::from_bytes(&target.0)));
                unsafe { libc::symlink(target.as_ptr(), at(name).as_ptr()) }
            }
            Operation::Node { name, kind, mode } => {
                let (kind, device) = match kind {
                    NodeKind::Fifo => (libc::S_IFIFO, 0),
                    NodeKind::Socket => (libc::S_IFSOCK, 0),
                    NodeKind::Character => (libc::S_IFCHR, libc::makedev(240, 77)),
                    NodeKind::Regular => (libc::S_IFREG, 0),
                };
                unsafe { libc::mknod(at(name).as_ptr(), kind | mode, device) }
            }
            Operation::Truncate { name, size } => unsafe { libc::truncate(at(name).as_ptr(), *size as i64) },
            Operation::List { name } => return Outcome::Entries(list(&self.path(name))),
            Operation::ReadLink { name } => return Outcome::Bytes(read_link(&self.path(name))),
            other => unreachable!("{other:?} is not about names"),
        };
        Outcome::Number(check(i64::from(result)))
    }

    fn apply_to_inode(&self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Chmod { name, mode } => Outcome::Number(check(chmod(&self.path(name), *mode))),
            Operation::Chown { name, user, group, follow } => {
                let (path, flags) = (c_path(&self.path(name)), no_follow(*follow));
                // SAFETY: the string lives for the call.
                let result = unsafe { libc::fchownat(libc::AT_FDCWD, path.as_ptr(), *user, *group, flags) };
                Outcome::Number(check(i64::from(result)))
            }
            Operation::SetTimes { name, access, modification, follow } => {
                Outcome::Times(set_times(&self.path(name), *access, *modification, *follow))
            }
            Operation::Access { name, mode } => {
                let path = c_path(&self.path(name));
                // SAFETY: the string lives for the call.
                let result = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), *mode, 0) };
                Outcome::Number(check(i64::from(result)))
            }
            other => unreachable!("{other:?} is not about an inode"),
        }
    }

    fn apply_to_attributes(&self, operation: &Operation) -> Outcome {
        match operation {
            Operation::SetAttribute { name, attribute, length, create, replace } => {
                let value: Vec<u8> = (0..*length).map(|index| (index * 7 + length) as u8).collect();
                let flags =
                    if *create { libc::XATTR_CREATE } else { 0 } | if *replace { libc::XATTR_REPLACE } else { 0 };
                Outcome::Number(attributes::set(&self.path(name), attribute, &value, flags))
            }
            Operation::GetAttribute { name, attribute } => {
                Outcome::Bytes(attributes::get(&self.path(name), attribute).map(Bytes))
            }
            Operation::RemoveAttribute { name, attribute } => {
                Outcome::Number(attributes::remove(&self.path(name), attribute))
            }
            Operation::SetAcl { name, default, permissions } => {
                let value = attributes::acl(*permissions);
                Outcome::Number(attributes::set(&self.path(name), attributes::acl_name(*default), &value, 0))
            }
            other => unreachable!("{other:?} is not about extended attributes"),
        }
    }
}

fn apply_to_data(operation: &Operation, fd: &OwnedFd) -> Outcome {
    match operation {
        Operation::Write { offset, length, fill, .. } => {
            let data: Vec<u8> = (0..*length).map(|index| fill.wrapping_add((index / 7) as u8) | 1).collect();
            Outcome::Number(system::write_at(fd, &data, *offset))
        }
        Operation::Read { offset, length, .. } => {
            Outcome::Bytes(system::read_at(fd, *length as usize, *offset).map(Bytes))
        }
        Operation::TruncateSlot { size, .. } => {
            // SAFETY: plain system call on an open descriptor.
            Outcome::Number(check(i64::from(unsafe { libc::ftruncate(fd.as_raw_fd(), *size as i64) })))
        }
        Operation::Fallocate { mode, offset, length, .. } => {
            let flags = match mode {
                FallocateMode::Allocate => 0,
                FallocateMode::KeepSize => libc::FALLOC_FL_KEEP_SIZE,
                FallocateMode::PunchHole => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                FallocateMode::ZeroRange => libc::FALLOC_FL_ZERO_RANGE,
                FallocateMode::ZeroRangeKeepSize => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
                FallocateMode::CollapseRange => libc::FALLOC_FL_COLLAPSE_RANGE,
                FallocateMode::InsertRange => libc::FALLOC_FL_INSERT_RANGE,
            };
            // SAFETY: plain system call on an open descriptor.
            let result = unsafe { libc::fallocate(fd.as_raw_fd(), flags, *offset as i64, *length as i64) };
            Outcome::Number(check(i64::from(result)))
        }
        other => unreachable!("{other:?} is not about data"),
    }
}

fn apply_to_descriptor(operation: &Operation, fd: &OwnedFd) -> Outcome {
    match operation {
        // SAFETY: plain system call on an open descriptor.
        Operation::Sync { data_only: true, .. } => {
            Outcome::Number(check(i64::from(unsafe { libc::fdatasync(fd.as_raw_fd()) })))
        }
        // SAFETY: plain system call on an open descriptor.
        Operation::Sync { .. } => Outcome::Number(check(i64::from(unsafe { libc::fsync(fd.as_raw_fd()) }))),
        Operation::Lock { exclusive, start, length, .. } => {
            Outcome::Number(system::lock(fd, *exclusive, *start, *length))
        }
        Operation::StatSlot { .. } => Outcome::Status(system::status_of(fd).map(|status| attributes_of(&status))),
        other => unreachable!("{other:?} is not about a descriptor"),
    }
}

/// SEEK_DATA and SEEK_HOLE: what they skip must be zeros, and both must know the end of the file.
fn seek(fd: &OwnedFd, offset: u64) -> Outcome {
    const CHECKED_MAX: u64 = 1 << 20;
    let size = system::status_of(fd).map(|status| status.st_size as u64).unwrap_or(0);
    let (data, hole) = (system::seek(fd, offset, libc::SEEK_DATA), system::seek(fd, offset, libc::SEEK_HOLE));
    let beyond_end = offset >= size;
    let skipped_to = match data {
        Ok(start) if start < offset || start >= size => {
            return seek_fault(beyond_end, format!("data at {start}"));
        }
        Ok(start) => start,
        Err(libc::ENXIO) => size,
        Err(errno) => return seek_fault(beyond_end, format!("SEEK_DATA fails with {errno}")),
    };
    if beyond_end != (hole == Err(libc::ENXIO)) {
        return seek_fault(beyond_end, format!("SEEK_HOLE gives {hole:?} at {offset} of {size}"));
    }
    if let Ok(start) = hole
        && (start < offset || start > size)
    {
        return seek_fault(beyond_end, format!("hole at {start} from {offset} of {size}"));
    }
    let length = skipped_to.saturating_sub(offset).min(CHECKED_MAX) as usize;
    match system::read_at(fd, length, offset) {
        Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => Outcome::Seek { beyond_end, fault: None },
        other => seek_fault(beyond_end, format!("SEEK_DATA skipped bytes that are not zero: {:?}", other.map(Bytes))),
    }
}

fn seek_fault(beyond_end: bool, fault: String) -> Outcome {
    Outcome::Seek { beyond_end, fault: Some(fault) }
}

fn chmod(path: &Path, mode: u32) -> i64 {
    let path = c_path(path);
    // SAFETY: the string lives for the call.
    i64::from(unsafe { libc::chmod(path.as_ptr(), mode) })
}

/// Sets both times and returns them as they then are, because a later read may change the access time.
fn set_times(
    path: &Path,
    access: Option<(i64, i64)>,
    modification: Option<(i64, i64)>,
    follow: bool,
) -> Call<(Time, Time)> {
    let value = |time: Option<(i64, i64)>| match time {
        None => libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
        Some((seconds, nanoseconds)) => libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    };
    let times = [value(access), value(modification)];
    let c_path = c_path(path);
    // SAFETY: string and array live for the call.
    check(i64::from(unsafe { libc::utimensat(libc::AT_FDCWD, c_path.as_ptr(), times.as_ptr(), no_follow(follow)) }))?;
    let status = system::status(path)?;
    if follow && status.st_mode & libc::S_IFMT == libc::S_IFLNK {
        return Ok((Time::Natural, Time::Natural));
    }
    Ok((Time::new(status.st_atime, status.st_atime_nsec), Time::new(status.st_mtime, status.st_mtime_nsec)))
}

fn read_link(path: &Path) -> Call<Bytes> {
    let target = fs::read_link(path).map_err(|error| error.raw_os_error().unwrap_or(0))?;
    Ok(Bytes(target.as_os_str().as_bytes().to_vec()))
}

fn no_follow(follow: bool) -> i32 {
    if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }
}

fn set_umask(mask: u32) {
    // SAFETY: umask only changes the mask of this process.
    unsafe { libc::umask(mask) };
}
