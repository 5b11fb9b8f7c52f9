//! Names: making, linking, removing, renaming.

use std::collections::BTreeMap;

use crate::{
    Caller, Content, Inode, Kind, LINKS_MAX, Model, ROOT, Result, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_ISGID, errno,
};

/// Flag of `rename`: fail when the new name exists.
pub const NOREPLACE: u32 = 1;
/// Flag of `rename`: swap the two.
pub const EXCHANGE: u32 = 2;

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > 255 {
        return Err(errno::ENAMETOOLONG);
    }
    if name.is_empty() {
        return Err(errno::ENOENT);
    }
    Ok(())
}

impl Model {
    fn names(&self, directory: u64) -> Result<&Vec<(Vec<u8>, u64)>> {
        match self.inodes.get(&directory).map(|inode| &inode.kind) {
            Some(Kind::Directory(names)) => Ok(names),
            Some(_) => Err(errno::ENOTDIR),
            None => Err(errno::ENOENT),
        }
    }

    fn names_mut(&mut self, directory: u64) -> Result<&mut Vec<(Vec<u8>, u64)>> {
        match self.inodes.get_mut(&directory).map(|inode| &mut inode.kind) {
            Some(Kind::Directory(names)) => Ok(names),
            Some(_) => Err(errno::ENOTDIR),
            None => Err(errno::ENOENT),
        }
    }

    fn living(&self, directory: u64) -> Result<()> {
        self.names(directory)?;
        if self.inode(directory)?.nlink == 0 { Err(errno::ENOENT) } else { Ok(()) }
    }

    fn is_directory(&self, inode: u64) -> bool {
        matches!(self.inodes.get(&inode).map(|inode| &inode.kind), Some(Kind::Directory(_)))
    }

    fn touch(&mut self, caller: &Caller, directory: u64) -> Result<()> {
        let directory = self.inode_mut(directory)?;
        (directory.mtime, directory.ctime) = (caller.now, caller.now);
        Ok(())
    }

    /// Finds a name.
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Result<u64> {
        check_name(name)?;
        let names = self.names(directory)?;
        names.iter().find(|(other, _)| other == name).map(|(_, inode)| *inode).ok_or(errno::ENOENT)
    }

    /// Names of a directory and what they name, in the order of their making.
    pub fn list(&self, directory: u64) -> Result<Vec<(Vec<u8>, u64)>> {
        self.names(directory).cloned()
    }

    fn new_inode(&mut self, caller: &Caller, parent: u64, kind: Kind, mode: u32) -> Result<u64> {
        let directory = self.inode(parent)?;
        let mut mode = mode & !(caller.umask & 0o777);
        if matches!(kind, Kind::Symlink(_)) {
            mode = S_IFLNK | 0o777;
        }
        let mut gid = caller.gid;
        if directory.mode & S_ISGID != 0 {
            gid = directory.gid;
            if matches!(kind, Kind::Directory(_)) {
                mode |= S_ISGID;
            }
        }
        let nlink = if matches!(kind, Kind::Directory(_)) { 2 } else { 1 };
        let number = self.next;
        self.next += 1;
        let inode = Inode {
            kind,
            mode,
            uid: caller.uid,
            gid,
            nlink,
            rdev: 0,
            mtime: caller.now,
            ctime: caller.now,
            parent,
            never_named: false,
            opens: 0,
            xattrs: BTreeMap::new(),
        };
        self.inodes.insert(number, inode);
        Ok(number)
    }

    fn make(&mut self, caller: &Caller, parent: u64, name: &[u8], kind: Kind, mode: u32) -> Result<u64> {
        self.within_limits(|model| model.make_anyhow(caller, parent, name, kind, mode))
    }

    fn make_anyhow(&mut self, caller: &Caller, parent: u64, name: &[u8], kind: Kind, mode: u32) -> Result<u64> {
        check_name(name)?;
        if matches!(name, b"." | b"..") {
            return Err(errno::EEXIST);
        }
        self.living(parent)?;
        if self.lookup(parent, name).is_ok() {
            return Err(errno::EEXIST);
        }
        let is_directory = matches!(kind, Kind::Directory(_));
        let inode = self.new_inode(caller, parent, kind, mode)?;
        self.names_mut(parent)?.push((name.to_vec(), inode));
        if is_directory {
            self.inode_mut(parent)?.nlink += 1;
        }
        self.touch(caller, parent)?;
        Ok(inode)
    }

    /// Makes a regular file, closed.
    pub fn create(&mut self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Result<u64> {
        self.make(caller, parent, name, Kind::File(Content::default()), S_IFREG | (mode & 0o7777))
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, caller: &Caller, parent: u64, name: &[u8], mode: u32) -> Result<u64> {
        self.make(caller, parent, name, Kind::Directory(Vec::new()), S_IFDIR | (mode & 0o7777))
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, caller: &Caller, parent: u64, name: &[u8], target: &[u8]) -> Result<u64> {
        self.make(caller, parent, name, Kind::Symlink(target.to_vec()), S_IFLNK | 0o777)
    }

    /// Makes a special file; `mode` has its type.
    pub fn mknod(&mut self, caller: &Caller, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Result<u64> {
        let inode = self.make(caller, parent, name, Kind::Special, mode & (S_IFMT | 0o7777))?;
        self.inode_mut(inode)?.rdev = rdev;
        Ok(inode)
    }

    /// Makes a file without a name, open once.
    pub fn tmpfile(&mut self, caller: &Caller, parent: u64, mode: u32) -> Result<u64> {
        self.living(parent)?;
        let (kind, mode) = (Kind::File(Content::default()), S_IFREG | (mode & 0o7777));
        let inode = self.within_limits(|model| model.new_inode(caller, parent, kind, mode))?;
        let made = self.inode_mut(inode)?;
        (made.nlink, made.never_named, made.opens) = (0, true, 1);
        Ok(inode)
    }

    /// Gives an inode one more name.
    pub fn link(&mut self, caller: &Caller, inode: u64, parent: u64, name: &[u8]) -> Result<()> {
        self.within_limits(|model| model.link_anyhow(caller, inode, parent, name))
    }

    fn link_anyhow(&mut self, caller: &Caller, inode: u64, parent: u64, name: &[u8]) -> Result<()> {
        check_name(name)?;
        if matches!(name, b"." | b"..") {
            return Err(errno::EEXIST);
        }
        self.living(parent)?;
        let found = self.inodes.get(&inode).ok_or(errno::ENOENT)?;
        if self.is_directory(inode) {
            return Err(errno::EPERM);
        }
        if self.lookup(parent, name).is_ok() {
            return Err(errno::EEXIST);
        }
        if found.nlink == 0 && !found.never_named {
            return Err(errno::ENOENT);
        }
        if found.nlink >= LINKS_MAX {
            return Err(errno::EMLINK);
        }
        let found = self.inode_mut(inode)?;
        found.nlink += 1;
        found.never_named = false;
        found.ctime = caller.now;
        self.names_mut(parent)?.push((name.to_vec(), inode));
        self.touch(caller, parent)
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&mut self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        let inode = self.lookup(parent, name)?;
        if self.is_directory(inode) {
            return Err(errno::EISDIR);
        }
        self.names_mut(parent)?.retain(|(other, _)| other != name);
        self.touch(caller, parent)?;
        self.drop_link(caller, inode)
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        let inode = self.lookup(parent, name)?;
        if !self.is_directory(inode) {
            return Err(errno::ENOTDIR);
        }
        if !self.names(inode)?.is_empty() {
            return Err(errno::ENOTEMPTY);
        }
        self.names_mut(parent)?.retain(|(other, _)| other != name);
        self.inode_mut(parent)?.nlink -= 1;
        self.touch(caller, parent)?;
        self.drop_link(caller, inode)
    }

    fn drop_link(&mut self, caller: &Caller, inode: u64) -> Result<()> {
        let is_directory = self.is_directory(inode);
        let found = self.inode_mut(inode)?;
        found.nlink = if is_directory { 0 } else { found.nlink - 1 };
        found.ctime = caller.now;
        self.free_if_unused(inode);
        Ok(())
    }

    /// Whether `inode` is `directory` or above it.
    fn is_above(&self, inode: u64, directory: u64) -> bool {
        let mut at = directory;
        while at != ROOT {
            if at == inode {
                return true;
            }
            at = self.inodes.get(&at).map_or(ROOT, |found| found.parent);
        }
        inode == ROOT
    }

    /// Renames.
    pub fn rename(
        &mut self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        self.within_limits(|model| model.rename_anyhow(caller, (parent, name), (new_parent, new_name), flags))
    }

    fn rename_anyhow(
        &mut self,
        caller: &Caller,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
    ) -> Result<()> {
        if flags > EXCHANGE {
            return Err(errno::EINVAL);
        }
        check_name(name)?;
        check_name(new_name)?;
        let source = self.lookup(parent, name)?;
        self.living(new_parent)?;
        let target = self.lookup(new_parent, new_name).ok();
        match (flags, target) {
            (NOREPLACE, Some(_)) => return Err(errno::EEXIST),
            (EXCHANGE, None) => return Err(errno::ENOENT),
            (_, Some(target)) if target == source => return Ok(()),
            _ => {}
        }
        if self.is_directory(source) && self.is_above(source, new_parent) {
            return Err(errno::EINVAL);
        }
        if flags == EXCHANGE {
            let target = target.expect("checked above");
            if self.is_directory(target) && self.is_above(target, parent) {
                return Err(errno::EINVAL);
            }
            self.set_name(parent, name, target)?;
            self.set_name(new_parent, new_name, source)?;
            self.rehome(caller, target, new_parent, parent)?;
        } else {
            if let Some(target) = target {
                self.check_replace(source, target)?;
                if self.is_directory(target) {
                    self.inode_mut(new_parent)?.nlink -= 1;
                }
                self.set_name(new_parent, new_name, source)?;
                self.drop_link(caller, target)?;
            } else {
                self.names_mut(new_parent)?.push((new_name.to_vec(), source));
            }
            // The old name is another entry than the new one, even in the same directory.
            self.names_mut(parent)?.retain(|(other, _)| other != name);
        }
        self.rehome(caller, source, parent, new_parent)?;
        self.touch(caller, parent)?;
        self.touch(caller, new_parent)
    }

    fn check_replace(&self, source: u64, target: u64) -> Result<()> {
        match (self.is_directory(source), self.is_directory(target)) {
            (true, false) => Err(errno::ENOTDIR),
            (false, true) => Err(errno::EISDIR),
            (true, true) if !self.names(target)?.is_empty() => Err(errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn set_name(&mut self, directory: u64, name: &[u8], inode: u64) -> Result<()> {
        for entry in self.names_mut(directory)?.iter_mut().filter(|(other, _)| other == name) {
            entry.1 = inode;
        }
        Ok(())
    }

    /// Notes that an inode's name went from one directory to another.
    fn rehome(&mut self, caller: &Caller, inode: u64, from: u64, to: u64) -> Result<()> {
        if self.is_directory(inode) {
            self.inode_mut(from)?.nlink -= 1;
            self.inode_mut(to)?.nlink += 1;
        }
        let found = self.inode_mut(inode)?;
        found.parent = to;
        found.ctime = caller.now;
        Ok(())
    }
}
