//! The reference: what a POSIX file system is after each operation, in the plainest data structures.
//!
//! Inodes carry the numbers that the real file system gave them, so that both sides talk about the same thing. Errors are
//! Linux numbers. Of times only that is modelled until which a file is retained. Cloning is cheap (contents are shared), because the oracle keeps a copy for every
//! operation that a crash could still undo. Read next: `content.rs`.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::content::Content;

/// The root's inode number.
pub const ROOT: u64 = 1;

/// A Linux error number.
pub type Errno = i32;

/// What an inode is.
#[derive(Debug, Clone)]
pub enum Kind {
    File(Rc<Content>),
    Directory(BTreeMap<Vec<u8>, u64>),
    Symlink(Vec<u8>),
    Fifo,
}

impl Kind {
    /// The type bits of the mode.
    pub fn type_bits(&self) -> u32 {
        match self {
            Kind::File(_) => libc::S_IFREG,
            Kind::Directory(_) => libc::S_IFDIR,
            Kind::Symlink(_) => libc::S_IFLNK,
            Kind::Fifo => libc::S_IFIFO,
        }
    }
}

/// An inode.
#[derive(Debug, Clone)]
pub struct Node {
    pub kind: Kind,
    /// Permissions only.
    pub mode: u32,
    pub nlink: u32,
    /// User and group.
    pub owner: (u32, u32),
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Open handles.
    pub opens: u32,
    /// Where a directory lies.
    pub parent: u64,
    /// Made without a name: may get one.
    pub nameless: bool,
}

impl Node {
    /// A new inode with one name.
    pub fn new(kind: Kind, mode: u32) -> Node {
        let nlink = if matches!(kind, Kind::Directory(_)) { 2 } else { 1 };
        Node { kind, mode, nlink, owner: (0, 0), attributes: BTreeMap::new(), opens: 0, parent: ROOT, nameless: false }
    }

    /// Bytes of names in a directory or of a target, and of attributes, as quotas count them. What is said of policy lies in the inode, but
    /// for rules.
    pub fn metadata_bytes(&self) -> (u64, u64) {
        let names = match &self.kind {
            Kind::Directory(names) => names.keys().map(|name| 24 + name.len()).sum(),
            Kind::Symlink(target) => target.len(),
            Kind::File(_) | Kind::Fifo => 0,
        };
        let of_inode = |name: &[u8]| {
            (name.starts_with(b"user.stere.") || name.starts_with(b"trusted.stere.")) && name != b"user.stere.rules"
        };
        let attributes = self.attributes.iter().filter(|(name, _)| !of_inode(name));
        (names as u64, attributes.map(|(name, value)| 24 + name.len() + value.len()).sum::<usize>() as u64)
    }

    /// The content of a regular file.
    pub fn content(&self) -> Option<&Rc<Content>> {
        match &self.kind {
            Kind::File(content) => Some(content),
            _ => None,
        }
    }
}

/// A file system.
#[derive(Debug, Clone)]
pub struct Model {
    pub nodes: BTreeMap<u64, Node>,
    /// The time, in seconds since 1970, as far as calls are concerned.
    pub now_seconds: i64,
}

impl Default for Model {
    fn default() -> Model {
        let mut root = Node::new(Kind::Directory(BTreeMap::new()), 0o755);
        root.parent = ROOT;
        Model { nodes: BTreeMap::from([(ROOT, root)]), now_seconds: 0 }
    }
}

/// How a rename behaves when the new name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameManner {
    Replace,
    NoReplace,
    Exchange,
}

impl Model {
    fn node(&self, inode: u64) -> &Node {
        self.nodes.get(&inode).expect("the model names only inodes it has")
    }

    fn node_mut(&mut self, inode: u64) -> &mut Node {
        self.nodes.get_mut(&inode).expect("the model names only inodes it has")
    }

    pub(crate) fn names(&self, directory: u64) -> Result<&BTreeMap<Vec<u8>, u64>, Errno> {
        match &self.nodes.get(&directory).ok_or(libc::ENOENT)?.kind {
            Kind::Directory(names) => Ok(names),
            _ => Err(libc::ENOTDIR),
        }
    }

    fn names_mut(&mut self, directory: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        match &mut self.node_mut(directory).kind {
            Kind::Directory(names) => names,
            _ => panic!("the model checked that it is a directory"),
        }
    }

    pub fn is_directory(&self, inode: u64) -> bool {
        matches!(self.node(inode).kind, Kind::Directory(_))
    }

    /// The inode behind a name.
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Result<u64, Errno> {
        let names = self.names(directory)?;
        if name.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        names.get(name).copied().ok_or(libc::ENOENT)
    }

    fn check_free(&self, directory: u64, name: &[u8]) -> Result<(), Errno> {
        match self.lookup(directory, name) {
            Ok(_) => Err(libc::EEXIST),
            Err(libc::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a new inode can be made under this name; what `make` would answer.
    pub fn may_make(&self, directory: u64, name: &[u8]) -> Result<(), Errno> {
        self.check_free(directory, name)
    }

    /// Enters a new inode, to which the real file system gave this number.
    pub fn make(&mut self, directory: u64, name: &[u8], inode: u64, mut node: Node) {
        if matches!(node.kind, Kind::Directory(_)) {
            self.node_mut(directory).nlink += 1;
        }
        node.parent = directory;
        self.names_mut(directory).insert(name.to_vec(), inode);
        self.nodes.insert(inode, node);
    }

    /// Gives an inode one more name.
    pub fn link(&mut self, inode: u64, directory: u64, name: &[u8]) -> Result<(), Errno> {
        self.names(directory)?;
        if name.len() > 255 {
            return Err(libc::ENAMETOOLONG);
        }
        if self.is_directory(inode) {
            return Err(libc::EPERM);
        }
        self.check_free(directory, name)?;
        self.check_changeable(inode)?;
        let node = self.node_mut(inode);
        if node.nlink == 0 && !node.nameless {
            return Err(libc::ENOENT);
        }
        node.nlink += 1;
        node.nameless = false;
        self.names_mut(directory).insert(name.to_vec(), inode);
        Ok(())
    }

    fn drop_name(&mut self, inode: u64) {
        let node = self.node_mut(inode);
        node.nlink = if matches!(node.kind, Kind::Directory(_)) { 0 } else { node.nlink - 1 };
        if node.nlink == 0 && node.opens == 0 {
            self.nodes.remove(&inode);
        }
    }

    /// Removes a name of anything but a directory, or of an empty directory.
    pub fn remove(&mut self, directory: u64, name: &[u8], as_directory: bool) -> Result<(), Errno> {
        let inode = self.lookup(directory, name)?;
        match (as_directory, &self.node(inode).kind) {
            (true, Kind::Directory(names)) if !names.is_empty() => return Err(libc::ENOTEMPTY),
            (true, Kind::Directory(_)) => self.node_mut(directory).nlink -= 1,
            (true, _) => return Err(libc::ENOTDIR),
            (false, Kind::Directory(_)) => return Err(libc::EISDIR),
            (false, _) => {}
        }
        self.check_changeable(inode)?;
        self.names_mut(directory).remove(name);
        self.drop_name(inode);
        Ok(())
    }

    fn is_below(&self, mut directory: u64, above: u64) -> bool {
        loop {
            if directory == above {
                return true;
            }
            if directory == ROOT {
                return false;
            }
            directory = self.node(directory).parent;
        }
    }

    /// Renames.
    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), manner: RenameManner) -> Result<(), Errno> {
        let source = self.lookup(from.0, from.1)?;
        let target = match self.lookup(to.0, to.1) {
            Ok(target) => Some(target),
            Err(libc::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        match (manner, target) {
            (RenameManner::NoReplace, Some(_)) => return Err(libc::EEXIST),
            (RenameManner::Exchange, None) => return Err(libc::ENOENT),
            (_, Some(target)) if target == source => return Ok(()),
            _ => {}
        }
        self.check_changeable(source)?;
        target.map_or(Ok(()), |target| self.check_changeable(target))?;
        let source_is_directory = self.is_directory(source);
        if source_is_directory && self.is_below(to.0, source) {
            return Err(libc::EINVAL);
        }
        if let (RenameManner::Exchange, Some(target)) = (manner, target) {
            return self.exchange(from, to, source, target);
        }
        if let Some(target) = target {
            match (source_is_directory, &self.node(target).kind) {
                (true, Kind::Directory(names)) if !names.is_empty() => return Err(libc::ENOTEMPTY),
                (true, Kind::Directory(_)) => {}
                (true, _) => return Err(libc::ENOTDIR),
                (false, Kind::Directory(_)) => return Err(libc::EISDIR),
                (false, _) => {}
            }
            if source_is_directory {
                self.node_mut(to.0).nlink -= 1;
            }
            self.drop_name(target);
        }
        self.names_mut(from.0).remove(from.1);
        self.names_mut(to.0).insert(to.1.to_vec(), source);
        self.moved(source, from.0, to.0);
        Ok(())
    }

    fn exchange(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), source: u64, target: u64) -> Result<(), Errno> {
        if self.is_directory(target) && self.is_below(from.0, target) {
            return Err(libc::EINVAL);
        }
        self.names_mut(from.0).insert(from.1.to_vec(), target);
        self.names_mut(to.0).insert(to.1.to_vec(), source);
        self.moved(source, from.0, to.0);
        self.moved(target, to.0, from.0);
        Ok(())
    }

    fn moved(&mut self, inode: u64, from: u64, to: u64) {
        self.node_mut(inode).parent = to;
        if self.is_directory(inode) && from != to {
            self.node_mut(from).nlink -= 1;
            self.node_mut(to).nlink += 1;
        }
    }

    /// A handle is open.
    pub fn open(&mut self, inode: u64) {
        self.node_mut(inode).opens += 1;
    }

    /// A handle is closed.
    pub fn close(&mut self, inode: u64) {
        let node = self.node_mut(inode);
        node.opens -= 1;
        if node.opens == 0 && node.nlink == 0 {
            self.nodes.remove(&inode);
        }
    }

    /// Changes a file's content; gives the new one.
    pub fn change(&mut self, inode: u64, change: impl FnOnce(&mut Content)) -> Rc<Content> {
        match &mut self.node_mut(inode).kind {
            Kind::File(content) => {
                change(Rc::make_mut(content));
                content.clone()
            }
            _ => panic!("the model checked that it is a file"),
        }
    }

    /// What is left when nobody has anything open: inodes without names are gone.
    pub fn without_handles(&self) -> Model {
        let mut model = self.clone();
        model.nodes.retain(|_, node| node.nlink > 0);
        model.nodes.values_mut().for_each(|node| node.opens = 0);
        model
    }

    /// A path of an inode, for messages.
    pub fn path_of(&self, inode: u64) -> String {
        if inode == ROOT {
            return "/".into();
        }
        for (directory, node) in &self.nodes {
            let Kind::Directory(names) = &node.kind else { continue };
            if let Some((name, _)) = names.iter().find(|(_, number)| **number == inode) {
                let above = self.path_of(*directory);
                let name: String = String::from_utf8_lossy(name).chars().take(20).collect();
                return format!("{}/{name}", above.trim_end_matches('/'));
            }
        }
        format!("inode {inode}")
    }

    /// The first difference in names and attributes; file contents are not looked at.
    pub fn difference(&self, other: &Model) -> Option<String> {
        for (inode, node) in &self.nodes {
            let path = self.path_of(*inode);
            let Some(theirs) = other.nodes.get(inode) else {
                return Some(format!("{path} (inode {inode}) is missing"));
            };
            if let Some(difference) = node.difference(theirs) {
                return Some(format!("{path}: {difference}"));
            }
        }
        let extra = other.nodes.keys().find(|inode| !self.nodes.contains_key(inode))?;
        Some(format!("{} (inode {extra}) should not be there", other.path_of(*extra)))
    }
}

impl Node {
    fn difference(&self, other: &Node) -> Option<String> {
        if self.kind.type_bits() != other.kind.type_bits() {
            return Some(format!("its type is {:o} instead of {:o}", other.kind.type_bits(), self.kind.type_bits()));
        }
        if self.mode != other.mode {
            return Some(format!("its mode is {:o} instead of {:o}", other.mode, self.mode));
        }
        if self.owner != other.owner {
            return Some(format!("its owner is {:?} instead of {:?}", other.owner, self.owner));
        }
        if self.nlink != other.nlink {
            return Some(format!("it has {} links instead of {}", other.nlink, self.nlink));
        }
        if self.attributes != other.attributes {
            let show = |node: &Node| -> Vec<String> {
                let one =
                    |(name, value): (&Vec<u8>, &Vec<u8>)| format!("{}[{}]", String::from_utf8_lossy(name), value.len());
                node.attributes.iter().map(one).collect()
            };
            return Some(format!("its attributes are {:?} instead of {:?}", show(other), show(self)));
        }
        match (&self.kind, &other.kind) {
            (Kind::Directory(mine), Kind::Directory(theirs)) if mine != theirs => {
                let show = |names: &BTreeMap<Vec<u8>, u64>| -> Vec<String> {
                    let one = |(name, inode): (&Vec<u8>, &u64)| {
                        let name: String = String::from_utf8_lossy(name).chars().take(20).collect();
                        format!("{name}={inode}")
                    };
                    names.iter().map(one).collect()
                };
                Some(format!("it lists {:?} instead of {:?}", show(theirs), show(mine)))
            }
            (Kind::Symlink(mine), Kind::Symlink(theirs)) if mine != theirs => Some("its target is another".into()),
            _ => None,
        }
    }
}
