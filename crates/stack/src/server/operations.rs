//! What each request does to the source.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use fuse_wire::{AttributeChanges, Context, DirectoryEntry, Entry, Operation, Request, Statfs, TimeChange, Timestamp};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, Uid};

use super::content::{Handle, Listed};
use super::following::QUEUE_ATTRIBUTE;
use super::nodes::{self, Node, entry};
use super::permissions::{attribute, mode_of_new};
use super::{Server, TIME_TO_LIVE, errno, is_own, name_of};
use crate::error::Error;
use crate::way::Way;

/// A value, or a list of names, is not longer.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// What is answered.
pub(super) enum Answer {
    Done,
    Entry(Entry),
    Attributes(fuse_wire::Attributes),
    Open(u64),
    Created(Entry, u64),
    /// So many bytes of the request's buffer.
    Data(usize),
    Bytes(Vec<u8>),
    XattrSize(u32),
    Written(u32),
    Statfs(Statfs),
    Offset(u64),
}

impl Answer {
    pub fn send(self, request: Request) {
        match self {
            Answer::Done => request.reply_ok(),
            Answer::Entry(entry) => request.reply_entry(&entry),
            Answer::Attributes(attributes) => request.reply_attributes(&attributes, TIME_TO_LIVE),
            Answer::Open(handle) => request.reply_open(handle, 0),
            Answer::Created(entry, handle) => request.reply_create(&entry, handle, 0),
            Answer::Data(bytes) => request.reply_data(bytes),
            Answer::Bytes(bytes) => request.reply_bytes(&bytes),
            Answer::XattrSize(bytes) => request.reply_xattr_size(bytes),
            Answer::Written(bytes) => request.reply_written(bytes),
            Answer::Statfs(statfs) => request.reply_statfs(&statfs),
            Answer::Offset(offset) => request.reply_lseek(offset),
        }
    }
}

type Outcome = Result<Answer, Error>;

impl Server {
    /// Does what a request asks for.
    pub(super) fn perform(&self, request: &mut Request) -> Outcome {
        let following = self.before(&request.operation())?;
        let outcome = self.perform_noted(request);
        self.after(following, &outcome);
        outcome
    }

    fn perform_noted(&self, request: &mut Request) -> Outcome {
        match request.operation() {
            Operation::Read { handle, offset, size, .. } => {
                let buffer = request.data_buffer();
                let size = size.min(buffer.len());
                return Ok(Answer::Data(self.read(handle, offset, &mut buffer[..size])?));
            }
            Operation::Readdir { handle, offset, size, .. } => {
                return self.read_directory(request, handle, offset, size);
            }
            _ => {}
        }
        let maker = request.context();
        match request.operation() {
            Operation::Lookup { parent, name } => self.look_up(parent, name_of(name).map_err(|_| errno(libc::ENOENT))?),
            Operation::Getattr { node, .. } => Ok(Answer::Attributes(self.nodes.get(node)?.attributes()?)),
            Operation::Setattr { node, changes } => self.set_attributes(node, &changes),
            Operation::Open { node, flags, .. } => self.open(maker, node, flags),
            Operation::Create { parent, name, mode, umask, flags, .. } => {
                self.create(maker, (parent, name), (mode, umask), flags)
            }
            Operation::Write(write) => {
                let is_append = write.flags & libc::O_APPEND as u32 != 0;
                self.write(write.handle, write.offset, write.data, is_append)?;
                Ok(Answer::Written(write.data.len() as u32))
            }
            Operation::Flush { handle, .. } => self.save(handle, false).map(|()| Answer::Done),
            Operation::Fsync { handle, .. } | Operation::Fsyncdir { handle, .. } => {
                self.save(handle, true).map(|()| Answer::Done)
            }
            Operation::Release { handle, .. } | Operation::Releasedir { handle, .. } => {
                self.before_closing(handle);
                self.close(handle).map(|()| Answer::Done)
            }
            Operation::Opendir { node, .. } => {
                let node = self.nodes.get(node)?;
                // Who may not read it is told so now.
                drop(node.open(OFlags::RDONLY | OFlags::DIRECTORY)?);
                Ok(Answer::Open(self.new_handle(Handle::Directory { node, entries: Mutex::new(None) })))
            }
            Operation::Fallocate { handle, offset, length, mode, .. } => self.allocate(handle, offset, length, mode),
            Operation::Lseek { handle, offset, whence, .. } => self.seek(handle, offset, whence),
            other => self.change_names(maker, &other).unwrap_or_else(|| self.change_other(&other)),
        }
    }

    /// What was just made, given to whoever made it.
    fn made(&self, maker: Context, parent: u64, name: &[u8]) -> Outcome {
        let above = self.nodes.get(parent)?;
        self.give(maker, &above, OsStr::from_bytes(name))?;
        self.look_up(parent, OsStr::from_bytes(name))
    }

    fn give(&self, maker: Context, above: &Node, name: &OsStr) -> Result<(), Error> {
        if !self.is_root || maker.uid == 0 {
            return Ok(());
        }
        // A directory with set-group-id gives its group itself.
        let is_shared = above.stat()?.st_mode & libc::S_ISGID != 0;
        let gid = (!is_shared).then(|| Gid::from_raw(maker.gid));
        Ok(rustix::fs::chownat(&above.entry, name, Some(Uid::from_raw(maker.uid)), gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn look_up(&self, parent: u64, name: &OsStr) -> Outcome {
        let above = self.nodes.get(parent)?;
        let node = self.nodes.look_up(&above, name)?;
        self.told(&node).map(Answer::Entry)
    }

    /// The answer about a node that was counted; taken back where there is none.
    fn told(&self, node: &Arc<Node>) -> Result<Entry, Error> {
        entry(node).inspect_err(|_| self.nodes.forget(node.number, 1))
    }

    /// Names: making, removing, renaming.
    fn change_names(&self, maker: Context, operation: &Operation<'_>) -> Option<Outcome> {
        let directory = |number: u64| self.nodes.get(number);
        Some(match *operation {
            Operation::Mkdir { parent, name, mode, umask } => directory(parent).and_then(|above| {
                rustix::fs::mkdirat(&above.entry, name_of(name)?, mode_of_new(&above, mode, umask))?;
                self.made(maker, parent, name)
            }),
            Operation::Symlink { parent, name, target } => directory(parent).and_then(|above| {
                rustix::fs::symlinkat(OsStr::from_bytes(target), &above.entry, name_of(name)?)?;
                self.made(maker, parent, name)
            }),
            Operation::Mknod { parent, name, mode, umask, rdev } => directory(parent).and_then(|above| {
                let kind = rustix::fs::FileType::from_raw_mode(mode);
                let mode = mode_of_new(&above, mode, umask);
                rustix::fs::mknodat(&above.entry, name_of(name)?, kind, mode, u64::from(rdev))?;
                self.made(maker, parent, name)
            }),
            Operation::Link { node, new_parent, new_name } => directory(new_parent).and_then(|above| {
                let node = directory(node)?;
                rustix::fs::linkat(
                    rustix::fs::CWD,
                    node.path(),
                    &above.entry,
                    name_of(new_name)?,
                    AtFlags::SYMLINK_FOLLOW,
                )?;
                self.look_up(new_parent, OsStr::from_bytes(new_name))
            }),
            Operation::Unlink { parent, name } => directory(parent).and_then(|above| {
                rustix::fs::unlinkat(&above.entry, name_of(name)?, AtFlags::empty())?;
                Ok(Answer::Done)
            }),
            Operation::Rmdir { parent, name } => directory(parent).and_then(|above| {
                rustix::fs::unlinkat(&above.entry, name_of(name)?, AtFlags::REMOVEDIR)?;
                Ok(Answer::Done)
            }),
            Operation::Rename { parent, name, new_parent, new_name, flags } => directory(parent).and_then(|above| {
                let target = directory(new_parent)?;
                let flags = RenameFlags::from_bits_retain(flags);
                rustix::fs::renameat_with(&above.entry, name_of(name)?, &target.entry, name_of(new_name)?, flags)?;
                Ok(Answer::Done)
            }),
            _ => return None,
        })
    }

    fn change_other(&self, operation: &Operation<'_>) -> Outcome {
        match *operation {
            Operation::Readlink { node } => {
                let target = rustix::fs::readlinkat(&self.nodes.get(node)?.entry, "", Vec::new())?;
                Ok(Answer::Bytes(target.into_bytes()))
            }
            Operation::Statfs { node } => {
                let found = rustix::fs::statvfs(self.nodes.get(node)?.path())?;
                Ok(Answer::Statfs(Statfs {
                    blocks: found.f_blocks,
                    blocks_free: found.f_bfree,
                    blocks_available: found.f_bavail,
                    files: found.f_files,
                    files_free: found.f_ffree,
                    block_size: found.f_bsize as u32,
                    name_length_max: found.f_namemax as u32,
                    fragment_size: found.f_frsize as u32,
                }))
            }
            Operation::Setxattr { node: nodes::ROOT, name: QUEUE_ATTRIBUTE, value, .. } => self.change_queue(value),
            Operation::Getxattr { node: nodes::ROOT, name: QUEUE_ATTRIBUTE, size } => {
                let said = self.queue_said()?;
                match size {
                    0 => Ok(Answer::XattrSize(said.len() as u32)),
                    _ if said.len() > size => Err(errno(libc::ERANGE)),
                    _ => Ok(Answer::Bytes(said)),
                }
            }
            Operation::Setxattr { node, name, value, flags, acl_kill_sgid } => {
                self.set_attribute(&*self.nodes.get(node)?, (name, value), flags, acl_kill_sgid)
            }
            Operation::Removexattr { node, name } => {
                rustix::fs::removexattr(self.nodes.get(node)?.path(), OsStr::from_bytes(name))?;
                Ok(Answer::Done)
            }
            Operation::Getxattr { node, name, size } => attribute(&*self.nodes.get(node)?, name, size),
            Operation::Listxattr { node, size } => {
                let path = self.nodes.get(node)?.path();
                answer_list(size, |value| rustix::fs::listxattr(&path, value))
            }
            Operation::Destroy => Ok(Answer::Done),
            _ => Err(errno(libc::ENOSYS)),
        }
    }

    fn way_of(&self, parent: u64, name: &[u8]) -> Result<Way, Error> {
        Ok(self.rules.way_of(name, &self.path_from_source(parent, name)?))
    }

    /// By its last name, which the kernel tells of opened files only indirectly.
    fn way_of_node(&self, node: &Node) -> Result<Way, Error> {
        let path = std::fs::read_link(node.path())?.into_os_string().into_vec();
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let below = path.strip_prefix(&self.source[..]).unwrap_or_default();
        Ok(self.rules.way_of(name, below.strip_prefix(b"/").unwrap_or(below)))
    }

    fn open(&self, caller: Context, number: u64, flags: u32) -> Outcome {
        let node = self.nodes.get(number)?;
        self.before_emptying(caller, &node, flags)?;
        let is_reading = flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32;
        let way = if is_reading { None } else { Some(self.way_of_node(&node)?) };
        Ok(Answer::Open(self.open_file(&node, flags, way)?))
    }

    fn create(&self, maker: Context, (parent, name): (u64, &[u8]), (mode, umask): (u32, u32), flags: u32) -> Outcome {
        let above = self.nodes.get(parent)?;
        let way = self.way_of(parent, name)?;
        // Made for whoever asked, and opened at once: what is made may be read-only.
        let new = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&above.entry, name_of(name)?, new, mode_of_new(&above, mode, umask));
        let made: Option<OwnedFd> = match made {
            Err(rustix::io::Errno::EXIST) if flags & libc::O_EXCL as u32 == 0 => None,
            made => Some(made?),
        };
        let is_made = made.is_some();
        if is_made {
            self.give(maker, &above, OsStr::from_bytes(name))?;
        }
        let node = self.nodes.look_up(&above, OsStr::from_bytes(name))?;
        let before = if is_made { Ok(()) } else { self.before_emptying(maker, &node, flags) };
        let opened = before.and_then(|()| self.open_made(&node, made, flags, way));
        let handle = opened.inspect_err(|_| self.nodes.forget(node.number, 1))?;
        match self.told(&node) {
            Ok(entry) => Ok(Answer::Created(entry, handle)),
            Err(error) => {
                drop(self.close(handle));
                Err(error)
            }
        }
    }

    fn open_made(&self, node: &Arc<Node>, made: Option<OwnedFd>, flags: u32, way: Way) -> Result<u64, Error> {
        let adopted = made.map(|file| self.adopt(node, File::from(file), &way)).transpose()?.flatten();
        match adopted {
            Some(handle) => Ok(handle),
            // Somebody else made it meanwhile.
            None => self.open_file(node, flags, Some(way)),
        }
    }

    fn set_attributes(&self, number: u64, changes: &AttributeChanges) -> Outcome {
        let node = self.nodes.get(number)?;
        let path = node.path();
        if let Some(mode) = changes.mode {
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode))?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            rustix::fs::chownat(&node.entry, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = changes.size {
            let plain = changes.handle.and_then(|handle| self.handle_of(handle).ok());
            match plain.as_deref() {
                Some(Handle::Plain { file, .. }) => file.set_len(size)?,
                _ => self.set_size(&node, size)?,
            }
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let time = |change: Option<TimeChange>| match change {
                None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
                Some(TimeChange::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
                Some(TimeChange::At(Timestamp { seconds, nanoseconds })) => {
                    Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() }
                }
            };
            // What is saved later would change the time again.
            if let Some(stacked) = node.content.lock().stacked.as_mut().filter(|stacked| stacked.is_dirty()) {
                stacked.save(false)?;
            }
            let times = Timestamps { last_access: time(changes.atime), last_modification: time(changes.mtime) };
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty())?;
        }
        Ok(Answer::Attributes(node.attributes()?))
    }

    fn allocate(&self, handle: u64, offset: u64, length: u64, mode: u32) -> Outcome {
        match &*self.handle_of(handle)? {
            Handle::Plain { file, .. } => {
                rustix::fs::fallocate(file, rustix::fs::FallocateFlags::from_bits_retain(mode), offset, length)?;
                Ok(Answer::Done)
            }
            _ => Err(errno(libc::EOPNOTSUPP)),
        }
    }

    fn seek(&self, handle: u64, offset: u64, whence: u32) -> Outcome {
        match &*self.handle_of(handle)? {
            Handle::Plain { file, .. } if whence == libc::SEEK_DATA as u32 => {
                Ok(Answer::Offset(rustix::fs::seek(file, SeekFrom::Data(offset))?))
            }
            Handle::Plain { file, .. } if whence == libc::SEEK_HOLE as u32 => {
                Ok(Answer::Offset(rustix::fs::seek(file, SeekFrom::Hole(offset))?))
            }
            Handle::Stacked { node, .. } => {
                // All of it counts as data, and behind its end is a hole.
                let size = node.attributes()?.size;
                match offset < size {
                    true if whence == libc::SEEK_DATA as u32 => Ok(Answer::Offset(offset)),
                    true => Ok(Answer::Offset(size)),
                    false => Err(errno(libc::ENXIO)),
                }
            }
            _ => Err(errno(libc::EINVAL)),
        }
    }

    fn read_directory(&self, request: &mut Request, handle: u64, offset: u64, size: usize) -> Outcome {
        let handle = self.handle_of(handle)?;
        let Handle::Directory { node, entries } = &*handle else { return Err(errno(libc::ENOTDIR)) };
        let mut entries = entries.lock();
        if offset == 0 || entries.is_none() {
            *entries = Some(list(node)?);
        }
        let listed = entries.as_deref().unwrap_or_default();
        let mut writer = request.directory(size);
        for (at, one) in listed.iter().enumerate().skip(offset as usize) {
            let entry =
                DirectoryEntry { inode: one.inode, next_offset: at as u64 + 1, mode: one.mode, name: &one.name };
            if !writer.add(&entry) {
                break;
            }
        }
        Ok(Answer::Data(writer.used_bytes()))
    }
}

/// The entries of a directory, without what the source keeps for itself.
fn list(node: &Node) -> Result<Vec<Listed>, Error> {
    let directory = node.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut listed = Vec::new();
    for entry in rustix::fs::Dir::new(OwnedFd::from(directory))? {
        let entry = entry?;
        let name = entry.file_name().to_bytes().to_vec();
        if !is_own(&name) {
            listed.push(Listed { inode: entry.ino(), mode: entry.file_type().as_raw_mode(), name });
        }
    }
    Ok(listed)
}

/// Attributes with an unknown length: the length alone is told where that is asked for.
pub(super) fn answer_list(size: usize, read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Outcome {
    if size == 0 {
        // With room for all that Linux allows: the library gives 0 for no room.
        return Ok(Answer::XattrSize(read(&mut vec![0; XATTR_BYTES_MAX])? as u32));
    }
    let mut value = vec![0; size];
    let length = read(&mut value)?;
    value.truncate(length);
    Ok(Answer::Bytes(value))
}
