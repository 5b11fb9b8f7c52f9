//! `.find` at the top of a mount: a directory named after a search has links to what the one who looks could find himself.
//!
//! Nothing of it is in the pool. The kernel is told to remember nothing, and each user (with his groups) gets nodes of his own for the same
//! search, so that what one is shown never reaches another. A search is made when such a directory is opened, or when a name in it is asked for and
//! nobody has looked lately; its result is kept for a while, for those names. Node ids are beyond those of inodes, and no id of a
//! link is used twice. Invariants: directories, results and searches under way are bounded, for all and for each user, so that who asks for
//! too much is refused (EAGAIN) and nobody else; searches run in a lane of their own, and end when nobody waits for them.
//! Read next: `front.rs`, which sends requests here, `crates/features/src/search.rs`.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse_wire::abi::opcode;
use fuse_wire::{Attributes, DirectoryEntry, Entry, Operation, Request};
use parking_lot::Mutex;
use stere_naming::{Caller, FileSystem, Io, ROOT};

use crate::clock::now;
use crate::waiter::Waiter;

/// What the directory is called.
pub(crate) const NAME: &[u8] = b".find";
/// Node ids from here on are none of inodes; this one is `.find` itself.
pub(crate) const FIRST_NODE: u64 = 1 << 62;

/// Links of one search, and bytes of their names and targets; what is beyond is told by one more link.
const LINKS_MAX: usize = 10_000;
const LINK_BYTES_MAX: usize = 1 << 20;
/// Searches that have a node; the oldest that nobody has open goes.
const DIRECTORIES_MAX: usize = 128;
/// Results that are kept for names to be asked for.
const KEPT_MAX: usize = 32;
/// For so long, unless a directory with it is open.
const KEPT_FOR: Duration = Duration::from_secs(20);
/// Directories that are open, by all and by one user.
const OPEN_MAX: usize = 32;
const OPEN_OF_ONE_MAX: usize = 8;
/// Searches under way or waiting, of all and of one user.
const UNDER_WAY_MAX: usize = 12;
const UNDER_WAY_OF_ONE_MAX: usize = 4;
const NAME_BYTES_MAX: usize = 255;
const TARGET_BYTES_MAX: usize = 4095;
/// A link that says that there is more.
const MORE: &[u8] = b".and-more";
const MORE_TARGET: &[u8] = b"there is more: see stere find";
/// From `.find/SEARCH/` to the top.
const UP: &[u8] = b"../../";

/// Who looks.
#[derive(Clone, PartialEq, Eq)]
struct Asker {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

struct Link {
    name: Vec<u8>,
    target: Vec<u8>,
}

/// What a search found.
#[derive(Default)]
pub(crate) struct Links {
    links: Vec<Link>,
    by_name: HashMap<Vec<u8>, usize>,
    bytes: usize,
}

/// A result and where it is known.
struct Found {
    /// The node of its first link.
    first_node: u64,
    links: Links,
    made: Instant,
}

struct Directory {
    asker: Asker,
    search: Vec<u8>,
    /// References that the kernel has.
    lookups: u64,
    open: usize,
    found: Option<Arc<Found>>,
}

#[derive(Default)]
struct State {
    /// By node.
    directories: BTreeMap<u64, Directory>,
    /// By the node of its first link; also of results that are open only.
    results: BTreeMap<u64, std::sync::Weak<Found>>,
    /// By handle: the directory and what is listed in it.
    open: HashMap<u64, (u64, Arc<Found>)>,
    under_way: Vec<u32>,
    last_node: u64,
    last_handle: u64,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Searches {
    state: Mutex<State>,
}

impl Links {
    /// Adds a link to a path below the top; breaks when there is no room for more.
    fn add(&mut self, path: &[u8]) -> ControlFlow<()> {
        if path.is_empty() || UP.len() + path.len() > TARGET_BYTES_MAX {
            return ControlFlow::Continue(());
        }
        if self.links.len() >= LINKS_MAX || self.bytes >= LINK_BYTES_MAX {
            self.push(MORE.to_vec(), MORE_TARGET.to_vec());
            return ControlFlow::Break(());
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        self.push(self.unique(name), [UP, path].concat());
        ControlFlow::Continue(())
    }

    fn push(&mut self, name: Vec<u8>, target: Vec<u8>) {
        self.bytes += name.len() + target.len();
        self.by_name.insert(name.clone(), self.links.len());
        self.links.push(Link { name, target });
        let (links, names) = (self.links.len(), self.by_name.len());
        assert_eq!(links, names, "each name leads to one link");
        assert!(links <= LINKS_MAX + 1, "{links} links of one search");
    }

    /// A name that is not there yet: this one, or with a number behind it.
    fn unique(&self, name: &[u8]) -> Vec<u8> {
        let is_free = |name: &[u8]| name != MORE && !self.by_name.contains_key(name);
        if is_free(name) {
            return name.to_vec();
        }
        let with = |number: usize| {
            let end = format!("~{number}").into_bytes();
            [&name[..name.len().min(NAME_BYTES_MAX - end.len())], &end].concat()
        };
        // Where many are called alike, their number is a good place to begin.
        let (mut number, mut step) = (2, 1);
        while step <= LINKS_MAX && !is_free(&with(number + step)) {
            (number, step) = (number + step, step * 2);
        }
        // Not all numbers are taken: there are fewer links.
        while !is_free(&with(number)) {
            number += 1;
        }
        with(number)
    }
}

impl State {
    /// The directory of a search for who asks, made if it is not there.
    fn directory(&mut self, asker: &Asker, search: &[u8]) -> u64 {
        let is_it = |directory: &Directory| directory.asker == *asker && directory.search == search;
        if let Some((node, directory)) = self.directories.iter_mut().find(|(_, directory)| is_it(directory)) {
            directory.lookups += 1;
            return *node;
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            let oldest = self.directories.iter().find(|(_, directory)| directory.open == 0).map(|(node, _)| *node);
            oldest.and_then(|node| self.directories.remove(&node));
        }
        let node = self.new_nodes(1);
        let (asker, search) = (asker.clone(), search.to_vec());
        self.directories.insert(node, Directory { asker, search, lookups: 1, open: 0, found: None });
        node
    }

    fn new_nodes(&mut self, count: u64) -> u64 {
        let first = FIRST_NODE + self.last_node + 1;
        self.last_node += count;
        first
    }

    fn open_of(&self, uid: u32) -> usize {
        let is_his = |node: &u64| self.directories.get(node).is_some_and(|directory| directory.asker.uid == uid);
        self.open.values().filter(|(node, _)| is_his(node)).count()
    }

    /// What was found lately, or is still listed by somebody.
    fn known(&self, node: u64) -> Option<Arc<Found>> {
        let found = self.directories.get(&node)?.found.as_ref()?;
        (found.made.elapsed() < KEPT_FOR || Arc::strong_count(found) > 1).then(|| Arc::clone(found))
    }

    /// Keeps what was found for a directory, in the place of what was found before.
    fn keep(&mut self, node: u64, links: Links) -> Option<Arc<Found>> {
        let first_node = self.new_nodes(links.links.len() as u64);
        let found = Arc::new(Found { first_node, links, made: Instant::now() });
        self.directories.get_mut(&node)?.found = Some(Arc::clone(&found));
        self.results.retain(|_, result| result.strong_count() > 0);
        self.results.insert(first_node, Arc::downgrade(&found));
        let kept = self.directories.values_mut().filter(|directory| directory.found.is_some());
        let mut kept: Vec<&mut Directory> = kept.collect();
        assert!(kept.len() <= KEPT_MAX + 1, "{} results are kept", kept.len());
        if kept.len() > KEPT_MAX {
            kept.sort_by_key(|directory| directory.found.as_ref().map(|found| found.made));
            kept[0].found = None;
        }
        Some(found)
    }

    /// The result that a link's node belongs to, and which link it is.
    fn link(&self, node: u64) -> Option<(Arc<Found>, usize)> {
        let (first, result) = self.results.range(..=node).next_back()?;
        let (found, at) = (result.upgrade()?, usize::try_from(node - first).ok()?);
        (at < found.links.links.len()).then_some((found, at))
    }
}

fn attributes(node: u64, mode: u32, asker: Option<&Asker>, size: u64) -> Attributes {
    let (uid, gid) = asker.map_or((0, 0), |asker| (asker.uid, asker.gid));
    Attributes { inode: node, mode, links: 1, uid, gid, size, block_size: 4096, ..Attributes::default() }
}

fn entry(attributes: Attributes) -> Entry {
    // Nothing is to be remembered: who asks next may be another one.
    Entry { node: attributes.inode, generation: 1, attributes, ..Entry::default() }
}

fn link_entry(found: &Found, at: usize) -> Entry {
    let size = found.links.links[at].target.len() as u64;
    entry(attributes(found.first_node + at as u64, libc::S_IFLNK | 0o777, None, size))
}

/// Who made a request. What groups the process has beside its own is asked of /proc, and believed only if it is that user's.
fn asker_of(request: &Request) -> Asker {
    let context = request.context();
    if context.uid == 0 {
        // Root sees all, whatever his groups.
        return Asker { uid: 0, gid: 0, groups: Vec::new() };
    }
    let status = match context.pid {
        0 => None,
        thread => std::fs::read_to_string(format!("/proc/{thread}/status")).ok(),
    };
    let groups = status.and_then(|status| groups_of(&status, context.uid)).unwrap_or_default();
    Asker { uid: context.uid, gid: context.gid, groups }
}

/// The supplementary groups that /proc tells of a thread which acts for this user on files.
fn groups_of(status: &str, uid: u32) -> Option<Vec<u32>> {
    let numbers = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    // Real, effective, saved, and the one for files.
    (numbers("Uid:")?.get(3) == Some(&uid)).then(|| numbers("Groups:"))?
}

/// What becomes of a request.
pub(crate) enum Next {
    Answered,
    /// A search has to be made for it: in its lane, with [`Searches::search`].
    Search(Request),
}

impl Searches {
    /// Whether a request is about something of this.
    pub fn concerns(request: &Request) -> bool {
        request.node() >= FIRST_NODE
            || matches!(request.operation(), Operation::Lookup { parent: ROOT, name } if name == NAME)
    }

    /// The kernel forgot a node.
    pub fn forget(&self, node: u64, lookups: u64) {
        let mut state = self.state.lock();
        if let Some(directory) = state.directories.get_mut(&node) {
            directory.lookups = directory.lookups.saturating_sub(lookups);
            if directory.lookups == 0 && directory.open == 0 {
                state.directories.remove(&node);
            }
        }
    }

    /// Answers what can be answered at once.
    pub fn answer(&self, filesystem: &FileSystem, mut request: Request) -> Next {
        let node = request.node();
        match request.operation() {
            Operation::Lookup { parent: ROOT, .. } => {
                request.reply_entry(&entry(attributes(FIRST_NODE, libc::S_IFDIR | 0o555, None, 0)));
            }
            Operation::Lookup { parent: FIRST_NODE, name } => {
                let outcome = self.find_directory(filesystem, &request, name);
                reply(request, outcome);
            }
            Operation::Lookup { parent, name } => {
                let known = self.state.lock().known(parent);
                let is_own = self.check_asker(parent, &request);
                let name = name.to_vec();
                return match (is_own, known) {
                    (Err(errno), _) => fail(request, errno),
                    (Ok(()), None) => Next::Search(request),
                    (Ok(()), Some(found)) => {
                        reply_link(request, &found, &name);
                        Next::Answered
                    }
                };
            }
            Operation::Opendir { node: FIRST_NODE, .. } => request.reply_open(0, 0),
            Operation::Opendir { node, .. } => {
                return match self.check_asker(node, &request) {
                    Ok(()) => Next::Search(request),
                    Err(errno) => fail(request, errno),
                };
            }
            Operation::Readdir { handle, offset, size, .. } => self.list(request, (node, handle), offset, size, false),
            Operation::Readdirplus { handle, offset, size, .. } => {
                self.list(request, (node, handle), offset, size, true);
            }
            Operation::Releasedir { handle, .. } => {
                self.close(node, handle);
                request.reply_ok();
            }
            Operation::Fsyncdir { .. } => request.reply_ok(),
            Operation::Getattr { .. } | Operation::Statx { .. } => match self.attributes(node) {
                Some(known) if request.opcode() == opcode::STATX => request.reply_statx(&known, None, Duration::ZERO),
                Some(known) => request.reply_attributes(&known, Duration::ZERO),
                None => request.reply_error(libc::ESTALE),
            },
            Operation::Readlink { .. } => {
                let link = self.state.lock().link(node);
                match link {
                    Some((found, at)) => request.reply_bytes(&found.links.links[at].target),
                    None => request.reply_error(libc::ESTALE),
                }
            }
            Operation::Listxattr { size: 0, .. } => request.reply_xattr_size(0),
            Operation::Listxattr { .. } => {
                let _nothing = request.data_buffer();
                request.reply_data(0);
            }
            Operation::Getxattr { .. } => request.reply_error(libc::ENODATA),
            _ => request.reply_error(libc::EROFS),
        }
        Next::Answered
    }

    /// The directory of a search, which must be one.
    fn find_directory(&self, filesystem: &FileSystem, request: &Request, name: &[u8]) -> Result<Entry, i32> {
        // Programs look for names of their own everywhere, and mean no search: `name=.profile` is one.
        if name.first() == Some(&b'.') {
            return Err(libc::ENOENT);
        }
        let text = std::str::from_utf8(name).map_err(|_| libc::EINVAL)?;
        filesystem.search().parse_search(text).map_err(|_| libc::EINVAL)?;
        let asker = asker_of(request);
        let node = self.state.lock().directory(&asker, name);
        Ok(entry(attributes(node, libc::S_IFDIR | 0o500, Some(&asker), 0)))
    }

    /// What is in a directory is for the one that it was made for.
    fn check_asker(&self, node: u64, request: &Request) -> Result<(), i32> {
        let owner = self.state.lock().directories.get(&node).map(|directory| directory.asker.clone());
        match owner {
            None => Err(libc::ESTALE),
            Some(owner) if owner == asker_of(request) => Ok(()),
            Some(_) => Err(libc::EACCES),
        }
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        if node == FIRST_NODE {
            return Some(attributes(node, libc::S_IFDIR | 0o555, None, 0));
        }
        let state = self.state.lock();
        if let Some(directory) = state.directories.get(&node) {
            return Some(attributes(node, libc::S_IFDIR | 0o500, Some(&directory.asker), 0));
        }
        let (found, at) = state.link(node)?;
        Some(link_entry(&found, at).attributes)
    }

    /// Names behind the cookie `offset`.
    fn list(&self, mut request: Request, (node, handle): (u64, u64), offset: u64, size: usize, plus: bool) {
        let found = self.state.lock().open.get(&handle).map(|(_, found)| Arc::clone(found));
        let dots = [(node, libc::S_IFDIR, &b"."[..]), (node, libc::S_IFDIR, &b".."[..])];
        let links = found.iter().flat_map(|found| {
            let named = found.links.links.iter().enumerate();
            named.map(|(at, link)| (found.first_node + at as u64, libc::S_IFLNK, link.name.as_slice()))
        });
        let mut writer = request.directory(size);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (inode, mode, name)) in dots.into_iter().chain(links).enumerate().skip(from) {
            let shown = DirectoryEntry { inode, next_offset: at as u64 + 1, mode, name };
            // The name alone: each is asked for by who wants to know more.
            let added = if plus { writer.add_plus(&shown, &Entry::default()) } else { writer.add(&shown) };
            if !added {
                break;
            }
        }
        let used_bytes = writer.used_bytes();
        request.reply_data(used_bytes);
    }

    fn close(&self, node: u64, handle: u64) {
        let mut state = self.state.lock();
        if state.open.remove(&handle).is_none() {
            return;
        }
        if let Some(directory) = state.directories.get_mut(&node) {
            directory.open = directory.open.saturating_sub(1);
            if directory.open == 0 && directory.lookups == 0 {
                state.directories.remove(&node);
            }
        }
    }

    /// Lets a search in, or not: there are so many at a time, and so many of one user. Who is let in says when it `has_ended`.
    pub fn may_begin(&self, request: &Request) -> bool {
        let uid = request.context().uid;
        let mut state = self.state.lock();
        let of_one = state.under_way.iter().filter(|other| **other == uid).count();
        if of_one >= UNDER_WAY_OF_ONE_MAX || state.under_way.len() >= UNDER_WAY_MAX {
            return false;
        }
        state.under_way.push(uid);
        true
    }

    /// A search that was let in has ended.
    pub fn has_ended(&self, uid: u32) {
        let mut state = self.state.lock();
        let at = state.under_way.iter().position(|other| *other == uid);
        assert!(at.is_some(), "a search of user {uid} ends that was not let in");
        if let Some(at) = at {
            state.under_way.swap_remove(at);
        }
    }

    /// Makes the search that a request needs, and answers it.
    pub fn search(&self, filesystem: &FileSystem, request: Request) {
        let (is_open, node, name) = match request.operation() {
            Operation::Opendir { node, .. } => (true, node, Vec::new()),
            Operation::Lookup { parent, name } => (false, parent, name.to_vec()),
            _ => return request.reply_error(libc::EIO),
        };
        if !is_open && let Some(found) = self.state.lock().known(node) {
            // Somebody asked for another name of it just before.
            return reply_link(request, &found, &name);
        }
        let waiter = Waiter::of(&request);
        let outcome = self.find(filesystem, node, &|| waiter.is_gone());
        let found = match outcome {
            Ok(links) => self.state.lock().keep(node, links).ok_or(libc::ESTALE),
            Err(errno) => Err(errno),
        };
        match found {
            Err(errno) => request.reply_error(errno),
            Ok(found) if !is_open => reply_link(request, &found, &name),
            Ok(found) => match self.open(node, found) {
                Some(handle) => request.reply_open(handle, 0),
                None => request.reply_error(libc::EAGAIN),
            },
        }
    }

    fn open(&self, node: u64, found: Arc<Found>) -> Option<u64> {
        let mut state = self.state.lock();
        let uid = state.directories.get(&node)?.asker.uid;
        if state.open.len() >= OPEN_MAX || state.open_of(uid) >= OPEN_OF_ONE_MAX {
            return None;
        }
        state.directories.get_mut(&node)?.open += 1;
        state.last_handle += 1;
        let handle = state.last_handle;
        state.open.insert(handle, (node, found));
        Some(handle)
    }

    /// Searches as the one that the directory was made for.
    fn find(&self, filesystem: &FileSystem, node: u64, is_gone: &dyn Fn() -> bool) -> Result<Links, i32> {
        let known = self.state.lock().directories.get(&node).map(|known| (known.asker.clone(), known.search.clone()));
        let (asker, search) = known.ok_or(libc::ESTALE)?;
        let text = std::str::from_utf8(&search).map_err(|_| libc::EINVAL)?;
        let search = filesystem.search().parse_search(text).map_err(|_| libc::EINVAL)?;
        let Asker { uid, gid, groups } = &asker;
        let caller =
            Caller { uid: *uid, gid: *gid, groups, umask: 0, now: now(), io: Io::BLOCKING, process: 0, request: None };
        let errno = |error: stere_naming::Error| error.errno();
        let mut find = filesystem.search().find(&caller, ROOT, b"", search).map_err(errno)?;
        let mut links = Links::default();
        while let Some(found) = find.step(&caller).map_err(errno)? {
            if is_gone() {
                return Err(libc::EINTR);
            }
            if found.iter().any(|one| links.add(&one.path).is_break()) {
                break;
            }
        }
        Ok(links)
    }
}

fn reply(request: Request, outcome: Result<Entry, i32>) {
    match outcome {
        Ok(entry) => request.reply_entry(&entry),
        Err(errno) => request.reply_error(errno),
    }
}

fn fail(request: Request, errno: i32) -> Next {
    request.reply_error(errno);
    Next::Answered
}

fn reply_link(request: Request, found: &Found, name: &[u8]) {
    match found.links.by_name.get(name) {
        Some(at) => request.reply_entry(&link_entry(found, *at)),
        None => request.reply_error(libc::ENOENT),
    }
}

#[cfg(test)]
mod tests;
