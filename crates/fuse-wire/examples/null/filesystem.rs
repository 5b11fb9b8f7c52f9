//! The null file system itself; the integration tests use it too.
//!
//! Nodes live in 64 shards by number; a directory has a lock of its own. Invariant: a node is dropped when it has
//! no name and the kernel holds no reference to it, so `nodes_alive` tells whether every FORGET arrived.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fuse_wire::abi::{ROOT_ID, fopen};
use fuse_wire::{
    AttributeChanges, Attributes, DirectoryEntry, Entry, Filesystem, Forgets, Operation, Request, Statfs, TimeChange,
    Timestamp,
};
use parking_lot::{Mutex, RwLock};

const TTL: Duration = Duration::from_secs(3600);
const SHARDS: u64 = 64;
/// Offsets of `.` and `..`; children have theirs above.
const FIRST_CHILD_OFFSET: u64 = 3;

type Result<T> = std::result::Result<T, i32>;

struct Node {
    number: u64,
    /// References the kernel holds.
    lookups: AtomicU64,
    born: Timestamp,
    state: Mutex<State>,
}

struct State {
    attributes: Attributes,
    parent: u64,
    children: Children,
    data: Vec<u8>,
}

/// A directory's names, by name and by reading offset.
#[derive(Default)]
struct Children {
    by_name: HashMap<Vec<u8>, u64>,
    by_offset: BTreeMap<u64, (Vec<u8>, u64, u32)>,
    offsets_given: u64,
}

impl Children {
    fn insert(&mut self, name: &[u8], node: u64, mode: u32) {
        self.offsets_given += 1;
        let offset = FIRST_CHILD_OFFSET + self.offsets_given;
        self.by_name.insert(name.to_vec(), offset);
        self.by_offset.insert(offset, (name.to_vec(), node, mode));
    }

    fn get(&self, name: &[u8]) -> Option<(u64, u32)> {
        let (_, node, mode) = self.by_offset.get(self.by_name.get(name)?)?;
        Some((*node, *mode))
    }

    fn remove(&mut self, name: &[u8]) -> Option<(u64, u32)> {
        let (_, node, mode) = self.by_offset.remove(&self.by_name.remove(name)?)?;
        Some((node, mode))
    }
}

/// A file system in memory, without data unless asked to keep it.
pub struct NullFilesystem {
    shards: Vec<RwLock<HashMap<u64, Arc<Node>>>>,
    next: AtomicU64,
    renaming: Mutex<()>,
    keep_data: bool,
    offers_all: bool,
}

/// Who makes a node, and how.
struct Making<'a> {
    parent: u64,
    name: &'a [u8],
    mode: u32,
    rdev: u32,
    uid: u32,
    gid: u32,
}

impl NullFilesystem {
    /// With `offers_all` the kernel is not told that birth times and extended attributes are never there. So it keeps asking,
    /// as it asks a file system that has them.
    pub fn new(keep_data: bool, offers_all: bool) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| RwLock::new(HashMap::new())).collect();
        let next = AtomicU64::new(ROOT_ID + 1);
        let this = Self { shards, next, renaming: Mutex::new(()), keep_data, offers_all };
        let root = this.new_node(ROOT_ID, ROOT_ID, libc::S_IFDIR | 0o777, 0, (0, 0));
        root.lookups.store(1, Ordering::Relaxed);
        Arc::new(this)
    }

    /// How many nodes there are, the root among them.
    #[allow(dead_code)]
    pub fn nodes_alive(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Node>>> {
        &self.shards[usize::try_from(number % SHARDS).unwrap_or(0)]
    }

    fn node(&self, number: u64) -> Result<Arc<Node>> {
        self.shard(number).read().get(&number).cloned().ok_or(libc::ESTALE)
    }

    fn new_node(&self, number: u64, parent: u64, mode: u32, rdev: u32, owner: (u32, u32)) -> Arc<Node> {
        let now = Timestamp::from(SystemTime::now());
        let directory = mode & libc::S_IFMT == libc::S_IFDIR;
        let attributes = Attributes {
            inode: number,
            mode,
            rdev,
            links: if directory { 2 } else { 1 },
            uid: owner.0,
            gid: owner.1,
            atime: now,
            mtime: now,
            ctime: now,
            block_size: 4096,
            ..Attributes::default()
        };
        let state = State { attributes, parent, children: Children::default(), data: Vec::new() };
        let node = Arc::new(Node { number, lookups: AtomicU64::new(0), born: now, state: Mutex::new(state) });
        self.shard(number).write().insert(number, Arc::clone(&node));
        node
    }

    /// An entry for the kernel, which gains a reference.
    fn entry(node: &Node) -> Entry {
        node.lookups.fetch_add(1, Ordering::Relaxed);
        Entry {
            node: node.number,
            generation: 0,
            entry_ttl: TTL,
            attributes_ttl: TTL,
            attributes: node.state.lock().attributes,
        }
    }

    fn forget(&self, number: u64, lookups: u64) {
        if let Ok(node) = self.node(number) {
            node.lookups.fetch_sub(lookups, Ordering::Relaxed);
            self.drop_if_unused(&node);
        }
    }

    fn forget_all(&self, forgets: &Forgets<'_>) {
        forgets.iter().for_each(|(node, lookups)| self.forget(node, lookups));
    }

    fn drop_if_unused(&self, node: &Node) {
        let mut shard = self.shard(node.number).write();
        if node.lookups.load(Ordering::Relaxed) == 0 && node.state.lock().attributes.links == 0 {
            shard.remove(&node.number);
        }
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry> {
        let parent = self.node(parent)?;
        let number = match name {
            b"." => parent.number,
            b".." => parent.state.lock().parent,
            _ => match parent.state.lock().children.get(name) {
                Some((number, _)) => number,
                None => return Ok(Entry::negative(TTL)),
            },
        };
        Ok(Self::entry(&*self.node(number)?))
    }

    fn make(&self, making: &Making<'_>) -> Result<Entry> {
        let parent = self.node(making.parent)?;
        let mut state = parent.state.lock();
        if state.attributes.links == 0 {
            return Err(libc::ENOENT);
        }
        if state.children.get(making.name).is_some() {
            return Err(libc::EEXIST);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let owner = (making.uid, making.gid);
        let node = self.new_node(number, parent.number, making.mode, making.rdev, owner);
        state.children.insert(making.name, number, making.mode);
        touch(&mut state);
        if making.mode & libc::S_IFMT == libc::S_IFDIR {
            state.attributes.links += 1;
        }
        drop(state);
        Ok(Self::entry(&node))
    }

    fn remove(&self, parent: u64, name: &[u8], directory: bool) -> Result<()> {
        let parent = self.node(parent)?;
        let mut state = parent.state.lock();
        let (number, _) = state.children.get(name).ok_or(libc::ENOENT)?;
        let node = self.node(number)?;
        let mut child = node.state.lock();
        if directory && !child.children.by_name.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        child.attributes.links = if directory { 0 } else { child.attributes.links - 1 };
        drop(child);
        state.children.remove(name);
        touch(&mut state);
        if directory {
            state.attributes.links -= 1;
        }
        drop(state);
        self.drop_if_unused(&node);
        Ok(())
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Result<()> {
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(libc::EINVAL);
        }
        let _one_at_a_time = self.renaming.lock();
        let (from_parent, to_parent) = (self.node(from.0)?, self.node(to.0)?);
        let target = to_parent.state.lock().children.get(to.1);
        if let Some((_, mode)) = target {
            if flags & libc::RENAME_NOREPLACE != 0 {
                return Err(libc::EEXIST);
            }
            self.remove(to.0, to.1, mode & libc::S_IFMT == libc::S_IFDIR)?;
        }
        let mut state = from_parent.state.lock();
        let (number, mode) = state.children.remove(from.1).ok_or(libc::ENOENT)?;
        touch(&mut state);
        drop(state);
        let mut state = to_parent.state.lock();
        state.children.insert(to.1, number, mode);
        touch(&mut state);
        drop(state);
        if mode & libc::S_IFMT == libc::S_IFDIR && from.0 != to.0 {
            from_parent.state.lock().attributes.links -= 1;
            to_parent.state.lock().attributes.links += 1;
            self.node(number)?.state.lock().parent = to.0;
        }
        Ok(())
    }

    fn set_attributes(&self, number: u64, changes: &AttributeChanges) -> Result<Attributes> {
        let node = self.node(number)?;
        let mut state = node.state.lock();
        let now = Timestamp::from(SystemTime::now());
        let time = |change: Option<TimeChange>, old| match change {
            None => old,
            Some(TimeChange::Now) => now,
            Some(TimeChange::At(time)) => time,
        };
        if let Some(size) = changes.size {
            self.resize(&mut state, size);
            state.attributes.mtime = now;
        }
        let attributes = &mut state.attributes;
        attributes.mode =
            changes.mode.map_or(attributes.mode, |mode| attributes.mode & libc::S_IFMT | mode & !libc::S_IFMT);
        attributes.uid = changes.uid.unwrap_or(attributes.uid);
        attributes.gid = changes.gid.unwrap_or(attributes.gid);
        attributes.atime = time(changes.atime, attributes.atime);
        attributes.mtime = time(changes.mtime, attributes.mtime);
        attributes.ctime = now;
        Ok(*attributes)
    }

    fn resize(&self, state: &mut State, size: u64) {
        state.attributes.size = size;
        state.attributes.blocks = size.div_ceil(512);
        if self.keep_data {
            state.data.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
        }
    }

    fn write(&self, number: u64, offset: u64, data: &[u8]) -> Result<u32> {
        let node = self.node(number)?;
        let mut state = node.state.lock();
        let end = offset.checked_add(data.len() as u64).ok_or(libc::EFBIG)?;
        if end > state.attributes.size {
            self.resize(&mut state, end);
        }
        state.attributes.mtime = Timestamp::from(SystemTime::now());
        if self.keep_data {
            let start = usize::try_from(offset).map_err(|_| libc::EFBIG)?;
            state.data[start..start + data.len()].copy_from_slice(data);
        }
        u32::try_from(data.len()).map_err(|_| libc::EINVAL)
    }

    fn read(&self, number: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let node = self.node(number)?;
        let state = node.state.lock();
        let left = state.attributes.size.saturating_sub(offset);
        let len = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if self.keep_data {
            let start = usize::try_from(offset).map_err(|_| libc::EINVAL)?;
            buffer[..len].copy_from_slice(state.data.get(start..start + len).unwrap_or_default());
        } else {
            buffer[..len].fill(0);
        }
        Ok(len)
    }

    fn read_directory(
        &self,
        request: &mut Request,
        number: u64,
        offset: u64,
        size: usize,
        plus: bool,
    ) -> Result<usize> {
        let node = self.node(number)?;
        let state = node.state.lock();
        let mut writer = request.directory(size);
        let dots = [(1, ".", number), (2, "..", state.parent)];
        for (next_offset, name, inode) in dots.into_iter().filter(|(at, _, _)| *at > offset) {
            let entry = DirectoryEntry { inode, next_offset, mode: libc::S_IFDIR, name: name.as_bytes() };
            let fits = if plus { writer.add_plus(&entry, &Entry::default()) } else { writer.add(&entry) };
            if !fits {
                return Ok(writer.used_bytes());
            }
        }
        for (at, (name, inode, mode)) in state.children.by_offset.range(offset + 1..) {
            let entry = DirectoryEntry { inode: *inode, next_offset: *at, mode: *mode, name };
            let fits = if plus {
                let child = self.node(*inode)?;
                let found = Self::entry(&child);
                let fits = writer.add_plus(&entry, &found);
                if !fits {
                    child.lookups.fetch_sub(1, Ordering::Relaxed);
                }
                fits
            } else {
                writer.add(&entry)
            };
            if !fits {
                break;
            }
        }
        Ok(writer.used_bytes())
    }

    fn statfs() -> Statfs {
        let (blocks, files) = (1 << 30, 1 << 30);
        Statfs {
            blocks,
            blocks_free: blocks,
            blocks_available: blocks,
            files,
            files_free: files,
            block_size: 4096,
            name_length_max: 255,
            fragment_size: 4096,
        }
    }
}

fn touch(state: &mut State) {
    let now = Timestamp::from(SystemTime::now());
    (state.attributes.mtime, state.attributes.ctime) = (now, now);
}

fn reply<T>(request: Request, result: Result<T>, answer: impl FnOnce(Request, T)) {
    match result {
        Ok(value) => answer(request, value),
        Err(errno) => request.reply_error(errno),
    }
}

impl Filesystem for NullFilesystem {
    fn handle(&self, request: Request) {
        let (uid, gid) = (request.context().uid, request.context().gid);
        let entry = |request: Request, entry: Entry| request.reply_entry(&entry);
        match request.operation() {
            Operation::Lookup { parent, name } => {
                let found = self.lookup(parent, name);
                reply(request, found, entry);
            }
            Operation::Forget { node, lookups } => self.forget(node, lookups),
            Operation::BatchForget { forgets } => self.forget_all(&forgets),
            Operation::Getattr { node, .. } => {
                let attributes = self.node(node).map(|node| node.state.lock().attributes);
                reply(request, attributes, |request, got| request.reply_attributes(&got, TTL));
            }
            Operation::Statx { node, .. } if self.offers_all => {
                let got = self.node(node).map(|node| (node.state.lock().attributes, node.born));
                reply(request, got, |request, (got, born)| request.reply_statx(&got, Some(born), TTL));
            }
            Operation::Setattr { node, changes } => {
                let attributes = self.set_attributes(node, &changes);
                reply(request, attributes, |request, got| request.reply_attributes(&got, TTL));
            }
            Operation::Mknod { parent, name, mode, umask, rdev } => {
                let made = self.make(&Making { parent, name, mode: mode & !umask, rdev, uid, gid });
                reply(request, made, entry);
            }
            Operation::Mkdir { parent, name, mode, umask } => {
                let mode = libc::S_IFDIR | mode & !umask;
                let made = self.make(&Making { parent, name, mode, rdev: 0, uid, gid });
                reply(request, made, entry);
            }
            Operation::Create { parent, name, mode, umask, .. } => {
                let mode = libc::S_IFREG | mode & !umask & 0o7777;
                let made = self.make(&Making { parent, name, mode, rdev: 0, uid, gid });
                reply(request, made, |request, made| request.reply_create(&made, 0, fopen::KEEP_CACHE));
            }
            Operation::Unlink { parent, name } => {
                let removed = self.remove(parent, name, false);
                reply(request, removed, |request, ()| request.reply_ok());
            }
            Operation::Rmdir { parent, name } => {
                let removed = self.remove(parent, name, true);
                reply(request, removed, |request, ()| request.reply_ok());
            }
            Operation::Rename { parent, name, new_parent, new_name, flags } => {
                let renamed = self.rename((parent, name), (new_parent, new_name), flags);
                reply(request, renamed, |request, ()| request.reply_ok());
            }
            _ => self.handle_data(request),
        }
    }
}

impl NullFilesystem {
    /// Open files, data and what is left.
    fn handle_data(&self, mut request: Request) {
        match request.operation() {
            Operation::Open { node, flags, .. } => {
                if flags & libc::O_TRUNC.cast_unsigned() != 0 {
                    let changes = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
                    let truncated = self.set_attributes(node, &changes);
                    return reply(request, truncated, |request, _| request.reply_open(0, fopen::KEEP_CACHE));
                }
                request.reply_open(0, fopen::KEEP_CACHE);
            }
            Operation::Opendir { .. } => request.reply_open(0, 0),
            Operation::Read { node, offset, size, .. } => {
                let read = self.read(node, offset, &mut request.data_buffer()[..size]);
                reply(request, read, Request::reply_data);
            }
            Operation::Write(write) => {
                let written = self.write(write.node, write.offset, write.data);
                reply(request, written, Request::reply_written);
            }
            Operation::Readdir { node, offset, size, .. } => {
                let read = self.read_directory(&mut request, node, offset, size, false);
                reply(request, read, Request::reply_data);
            }
            Operation::Readdirplus { node, offset, size, .. } => {
                let read = self.read_directory(&mut request, node, offset, size, true);
                reply(request, read, Request::reply_data);
            }
            Operation::Statfs { .. } => request.reply_statfs(&Self::statfs()),
            Operation::Release { .. }
            | Operation::Releasedir { .. }
            | Operation::Flush { .. }
            | Operation::Fsync { .. }
            | Operation::Fsyncdir { .. }
            | Operation::Syncfs { .. }
            | Operation::Destroy => request.reply_ok(),
            Operation::Getxattr { .. } if self.offers_all => request.reply_error(libc::ENODATA),
            Operation::Malformed { .. } => request.reply_error(libc::EIO),
            _ => request.reply_error(libc::ENOSYS),
        }
    }
}
