//! From the root down: every name, what it leads to, and its attributes.
//!
//! Invariants: the sink's current directory is always the one at the top of the stack; a directory is gone into once,
//! whatever names lead to it; what cannot be read is reported and passed over. Memory: one frame for each level, one bit for
//! each inode, the first path of each file with several names. Read next: `content.rs`, `lost.rs`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use stere_crypt::Place;
use stere_format::{DirentValue, FileKind, InodeValue, Key, XattrBucket, key};

use crate::content::{Hole, Places};
use crate::error::Error;
use crate::keys::{Keys, Trust};
use crate::report::{Damage, LostRange, Problem, Report, shown};
use crate::sink::{Attributes, Sink, SinkError, Told, Verdict};
use crate::unlock::{Opened, Unlocked};

/// The root directory.
const ROOT: u64 = 1;
/// So many other names are tried for one that is taken.
const OTHER_NAMES_MAX: u32 = 1000;
const NAME_BYTES_MAX: usize = 255;

/// A set of numbers most of which lie close together.
#[derive(Default)]
pub(crate) struct Numbers(HashMap<u64, [u64; 16]>);

impl Numbers {
    /// False when it was there already.
    pub fn insert(&mut self, number: u64) -> bool {
        let words = self.0.entry(number / 1024).or_default();
        let (word, bit) = ((number % 1024 / 64) as usize, 1 << (number % 64));
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }

    pub fn contains(&self, number: u64) -> bool {
        self.0.get(&(number / 1024)).is_some_and(|words| words[(number % 1024 / 64) as usize] >> (number % 64) & 1 == 1)
    }
}

/// What the keys of one inode say, extents apart.
pub(crate) struct Inode {
    pub value: Option<InodeValue>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub trust: Trust,
    /// What does not decode.
    pub is_bad: bool,
}

impl Inode {
    pub fn attributes(&self) -> Option<Attributes> {
        let value = self.value.as_ref()?;
        Some(Attributes {
            mode: value.mode,
            uid: value.uid,
            gid: value.gid,
            atime: value.atime,
            mtime: value.mtime,
            xattrs: self.xattrs.clone(),
        })
    }

    /// Takes one of the inode's keys; extents and names are not for here.
    pub fn take(&mut self, at: &Key, bytes: &[u8]) {
        match at.kind {
            key::kind::INODE => match InodeValue::decode(bytes) {
                Ok(value) => self.value = Some(value),
                Err(_) => self.is_bad = true,
            },
            key::kind::XATTR => match XattrBucket::decode(bytes) {
                Ok(bucket) => self.xattrs.extend(bucket.entries),
                Err(_) => self.is_bad = true,
            },
            _ => {}
        }
    }

    pub fn nothing() -> Inode {
        Inode { value: None, xattrs: Vec::new(), trust: Trust::Certain, is_bad: false }
    }
}

/// A directory that is being copied.
struct Frame {
    inode: u64,
    facts: Inode,
    entries: VecDeque<(DirentValue, Trust)>,
    next: Option<Key>,
    /// Length of the path of the directory above.
    path_length: usize,
    trust: Trust,
    undecoded: u64,
}

pub(crate) struct Walk<'a> {
    pub keys: Keys,
    pub sink: &'a mut dyn Sink,
    pub report: Report,
    /// Contents are not read.
    pub names_only: bool,
    pub unlocked: Unlocked,
    /// Path of the current directory.
    pub path: Vec<u8>,
    pub visited: Numbers,
    /// Blobs that an extent named.
    pub named: Numbers,
    /// Files whose list of extents is not all there.
    pub lost_extents: HashSet<u64>,
    /// What is still to be looked for.
    pub holes: Vec<Hole>,
    pub places: Places,
    /// Bytes on their way; kept for the next file.
    pub buffer: Vec<u8>,
    /// The blob decoded last, for which place, and its content.
    pub decoded: Option<(u64, Place, Arc<[u8]>)>,
    links: HashMap<u64, (Vec<u8>, u32)>,
    stack: Vec<Frame>,
}

impl<'a> Walk<'a> {
    pub fn new(keys: Keys, unlocked: Unlocked, sink: &'a mut dyn Sink, report: Report, names_only: bool) -> Walk<'a> {
        Walk {
            keys,
            sink,
            report,
            names_only,
            unlocked,
            path: Vec::new(),
            visited: Numbers::default(),
            named: Numbers::default(),
            lost_extents: HashSet::new(),
            holes: Vec::new(),
            places: Places::default(),
            buffer: Vec::new(),
            decoded: None,
            links: HashMap::new(),
            stack: Vec::new(),
        }
    }

    /// Copies everything that the root leads to.
    pub fn root(&mut self) -> Result<(), Error> {
        self.visited.insert(ROOT);
        let facts = self.inode(ROOT);
        if facts.value.is_none() && self.keys.scan(Key::dirent(ROOT, 0), Key::dirent(ROOT, u64::MAX)).entries.is_empty()
        {
            self.damage(ROOT, "the root directory is lost".into(), Vec::new());
        }
        self.push(ROOT, facts, 0);
        self.descend()
    }

    /// Copies a directory that no name leads to into the current one.
    pub fn nameless_directory(&mut self, inode: u64) -> Result<(), Error> {
        assert!(self.stack.is_empty(), "only what this directory leads to is copied into it");
        let base = self.path.len();
        if self.enter(inode.to_string().as_bytes(), inode)? {
            self.descend()?;
        }
        self.path.truncate(base);
        Ok(())
    }

    /// Works until the stack is as empty as it was before the last `enter`.
    fn descend(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.stack.last_mut() {
            if let Some((entry, trust)) = frame.entries.pop_front() {
                self.entry(&entry, trust)?;
            } else if let Some(from) = frame.next.take() {
                self.list_from(from);
            } else {
                self.leave()?;
            }
        }
        Ok(())
    }

    fn push(&mut self, inode: u64, facts: Inode, path_length: usize) {
        let (entries, trust) = (VecDeque::new(), facts.trust);
        let next = Some(Key::dirent(inode, 0));
        self.stack.push(Frame { inode, facts, entries, next, path_length, trust, undecoded: 0 });
    }

    /// Reads the next names of the directory on top.
    fn list_from(&mut self, from: Key) {
        let Some(frame) = self.stack.last_mut() else { return };
        let batch = self.keys.scan(from, Key::dirent(frame.inode, u64::MAX));
        frame.next = batch.next;
        frame.trust = frame.trust.max(batch.trust.unwrap_or(Trust::Certain));
        let mut falsified = Vec::new();
        for (key, bytes, trust) in batch.entries {
            match DirentValue::decode(&bytes) {
                Ok(entry) if entry.key != 0 => {
                    let opened = self.unlocked.name(entry.key, frame.inode, &entry.name);
                    // Nobody can read such a name here; it is called as a mount without its key does.
                    let opaque = || stere_crypt::opaque_name(key.position);
                    let name = match opened {
                        Opened::Clear(name) => name,
                        Opened::Locked => opaque(),
                        Opened::False => {
                            falsified.push(opaque());
                            opaque()
                        }
                    };
                    frame.entries.push_back((DirentValue { key: 0, name, ..entry }, trust));
                }
                Ok(entry) => frame.entries.push_back((entry, trust)),
                Err(_) => frame.undecoded += 1,
            }
        }
        for name in falsified {
            self.problem(&name, "its name does not authenticate under its key");
        }
    }

    fn entry(&mut self, entry: &DirentValue, trust: Trust) -> Result<(), Error> {
        match entry.kind {
            FileKind::Directory => self.enter(&entry.name, entry.inode).map(drop),
            kind => self.leaf(&entry.name, entry.inode, kind, trust),
        }
    }

    /// Goes into a directory; false when it was copied already or cannot be made.
    fn enter(&mut self, name: &[u8], inode: u64) -> Result<bool, Error> {
        let path_length = self.path.len();
        if !self.visited.insert(inode) {
            self.problem(name, "a second name of a directory is left out");
            return Ok(false);
        }
        let Some(name) = self.named_as(name, |sink, name| sink.enter(name))? else { return Ok(false) };
        self.path.push(b'/');
        self.path.extend_from_slice(&name);
        let facts = self.inode(inode);
        self.push(inode, facts, path_length);
        Ok(true)
    }

    fn leave(&mut self) -> Result<(), Error> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let attributes = frame.facts.attributes();
        let is_bottom = self.path.is_empty();
        let outcome = self.sink.leave(attributes.as_ref());
        self.check(outcome)?;
        let mut verdict = self.verdict(frame.trust);
        if frame.trust == Trust::Lost || frame.undecoded > 0 {
            verdict = Verdict::Damaged;
            self.damage(frame.inode, "names in this directory are lost".into(), Vec::new());
        } else if frame.facts.value.is_none() || frame.facts.is_bad {
            verdict = Verdict::Damaged;
            self.damage(frame.inode, "attributes of this directory are lost".into(), Vec::new());
        }
        self.report.counts.directories += u64::from(!is_bottom);
        self.tell(frame.inode, FileKind::Directory, 0, verdict);
        let (above, length) = (frame.path_length, self.path.len());
        assert!(above < length || self.stack.is_empty(), "a path of {length} bytes lies below one of {above}");
        self.path.truncate(above);
        Ok(())
    }

    /// Copies anything but a directory to a name in the current directory.
    pub fn leaf(&mut self, name: &[u8], inode: u64, kind: FileKind, trust: Trust) -> Result<(), Error> {
        if let Some((existing, left)) = self.links.get_mut(&inode) {
            let existing = existing.clone();
            assert!(*left > 0, "inode {inode} is kept for names, and none is left");
            *left -= 1;
            if *left == 0 {
                self.links.remove(&inode);
            }
            let linked = self.named_as(name, |sink, name| sink.link(&existing, name))?;
            self.report.counts.hard_links += u64::from(linked.is_some());
            return Ok(());
        }
        self.visited.insert(inode);
        let path_length = self.path.len();
        let mut facts = Inode::nothing();
        facts.trust = trust;
        let batch = self.keys.scan(Key::inode(inode), end_of(inode));
        let mut extents: Vec<(Key, Arc<[u8]>)> = Vec::new();
        for (at, bytes, trust) in batch.entries {
            if at.kind == key::kind::EXTENT {
                extents.push((at, bytes));
            } else {
                facts.trust = facts.trust.max(trust);
                facts.take(&at, &bytes);
            }
        }
        facts.trust = facts.trust.max(batch.trust.unwrap_or(Trust::Certain));
        let kind = facts.value.as_ref().and_then(InodeValue::kind).unwrap_or(kind);
        let made = match (kind, facts.attributes()) {
            (FileKind::File, _) => {
                let made = self.named_as(name, |sink, name| sink.create(name))?;
                self.extend_path(made.as_deref());
                if made.is_some() {
                    self.file(inode, &facts, extents, batch.next)?;
                }
                made
            }
            (FileKind::Directory, _) => {
                self.problem(name, "its name says that it is a file, and it is a directory");
                None
            }
            (_, None) => {
                self.extend_path(Some(name));
                self.damage(inode, "all that is known is its name".into(), Vec::new());
                None
            }
            (_, Some(attributes)) => self.node(name, inode, kind, &facts, &attributes)?,
        };
        let names = facts.value.as_ref().map_or(u32::MAX, |value| value.nlink);
        if made.is_some() && names > 1 {
            self.links.insert(inode, (self.path.clone(), names - 1));
        }
        self.path.truncate(path_length);
        Ok(())
    }

    /// A symbolic link or a special file.
    fn node(
        &mut self,
        name: &[u8],
        inode: u64,
        kind: FileKind,
        facts: &Inode,
        attributes: &Attributes,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(value) = &facts.value else { return Ok(None) };
        let is_link = kind == FileKind::Symlink;
        let target = match self.unlocked.target(inode, value) {
            Opened::Clear(target) => target,
            closed if is_link => {
                self.extend_path(Some(name));
                let what = match closed {
                    Opened::Locked => "its target is encrypted; give the passphrase or key file",
                    _ => "its target does not authenticate under its key",
                };
                self.damage(inode, what.into(), Vec::new());
                return Ok(None);
            }
            _ => Vec::new(),
        };
        let made = self.named_as(name, |sink, name| match is_link {
            true => sink.symlink(name, &target, attributes),
            false => sink.special(name, value.rdev, attributes),
        })?;
        self.extend_path(made.as_deref());
        if made.is_some() {
            *(if is_link { &mut self.report.counts.symlinks } else { &mut self.report.counts.specials }) += 1;
            let verdict = if facts.is_bad { Verdict::Damaged } else { self.verdict(facts.trust) };
            if facts.is_bad {
                self.damage(inode, "attributes are lost".into(), Vec::new());
            }
            self.tell(inode, kind, value.size, verdict);
        }
        Ok(made)
    }

    fn extend_path(&mut self, name: Option<&[u8]>) {
        if let Some(name) = name {
            self.path.push(b'/');
            self.path.extend_from_slice(name);
        }
    }

    /// Attributes of an inode, without names and extents.
    pub fn inode(&mut self, inode: u64) -> Inode {
        let mut facts = Inode::nothing();
        let mut next = Some(Key::inode(inode));
        while let Some(from) = next {
            let batch = self.keys.scan(from, Key::dirent_hash(inode, 0));
            facts.trust = facts.trust.max(batch.trust.unwrap_or(Trust::Certain));
            batch.entries.iter().for_each(|(at, bytes, _)| facts.take(at, bytes));
            next = batch.next;
        }
        facts
    }

    /// Makes something under this name or, where it is taken or impossible, another one; none when it cannot be made.
    pub fn named_as(
        &mut self,
        name: &[u8],
        mut make: impl FnMut(&mut dyn Sink, &[u8]) -> Result<(), SinkError>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let is_possible = !matches!(name, b"." | b".." | b"");
        for number in u32::from(!is_possible)..OTHER_NAMES_MAX {
            let tried = if number == 0 { name.to_vec() } else { other_name(name, number) };
            match make(&mut *self.sink, &tried) {
                Ok(()) => {
                    if number > 0 {
                        self.problem(name, &format!("it is called {} here", String::from_utf8_lossy(&tried)));
                    }
                    return Ok(Some(tried));
                }
                Err(SinkError::Exists) => {}
                Err(error) => {
                    let path_length = self.path.len();
                    self.extend_path(Some(name));
                    let outcome = self.check(Err(error));
                    self.path.truncate(path_length);
                    return outcome.map(|()| None);
                }
            }
        }
        self.problem(name, "its name and all others that were tried are taken");
        Ok(None)
    }

    /// Notes what could not be restored; ends where nothing more can be written.
    pub fn check(&mut self, outcome: Result<(), SinkError>) -> Result<(), Error> {
        let what = match outcome {
            Ok(()) => return Ok(()),
            Err(SinkError::Stop(detail)) => return Err(Error::Target { detail }),
            Err(SinkError::Failed(what)) => what,
            Err(SinkError::Exists) => "its name is taken".into(),
        };
        self.report.problems.push(Problem { path: shown(&self.path), what });
        Ok(())
    }

    fn problem(&mut self, name: &[u8], what: &str) {
        let path = [&self.path, &b"/"[..], name].concat();
        self.report.problems.push(Problem { path: shown(&path), what: what.into() });
    }

    /// Notes damage of what the path leads to.
    pub fn damage(&mut self, inode: u64, what: String, ranges: Vec<LostRange>) {
        self.report.damage.push(Damage { path: shown(&self.path), inode, what, ranges });
    }

    /// What can be said of something whose keys are trusted so far.
    pub fn verdict(&self, trust: Trust) -> Verdict {
        match trust {
            Trust::Certain if self.report.state.is_newest => Verdict::Whole,
            Trust::Certain | Trust::Older => Verdict::Older,
            Trust::Lost => Verdict::Damaged,
        }
    }

    /// Counts what the path leads to and passes it on.
    pub fn tell(&mut self, inode: u64, kind: FileKind, size: u64, verdict: Verdict) {
        let path = self.path.clone();
        self.tell_of(&path, inode, kind, size, verdict);
    }

    pub fn tell_of(&mut self, path: &[u8], inode: u64, kind: FileKind, size: u64, verdict: Verdict) {
        self.report.count(verdict);
        // In an uncertain state all would be listed.
        if verdict == Verdict::Older && self.report.state.is_newest {
            self.report.older.push(shown(path));
        }
        self.sink.told(&Told { path, inode, kind, size, verdict });
    }
}

/// Behind all keys of an inode.
pub(crate) fn end_of(inode: u64) -> Key {
    Key::new(key::tree::NAMES, inode, u8::MAX, u64::MAX)
}

/// Another name, no longer than names may be.
fn other_name(name: &[u8], number: u32) -> Vec<u8> {
    let end = format!(".~{number}~");
    let kept = name.len().min(NAME_BYTES_MAX - end.len());
    [&name[..kept], end.as_bytes()].concat()
}
