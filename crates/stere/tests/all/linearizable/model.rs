//! What a directory of a few names and a few locks answers if calls come one after the other: the specification that histories are held
//! against (P-274).
//!
//! Strictly, every answer is that of the state at one moment within the call. Three answers are of several moments, because the kernel puts
//! them together before a file system is asked; `is_lenient` allows these three and no other:
//! - A rename whose two names lead to the same file does nothing. The names are looked up one after the other, and another machine may
//!   rename between: then both lookups find the same file, though it never had both names.
//! - A kernel counts the names of a file down when it removes one, from those that it had heard of. At zero it refuses to link to the file
//!   (ENOENT), also where another machine has made one more since.
//! - A name of a directory is believed for a second (`docs/design/machines.md`), so `stat` and `mkdir` may answer from what was there.
//!
//! Read next: `history.rs`.

use std::collections::BTreeMap;

use stateright::semantics::SequentialSpec;

pub const FILES: usize = 3;
pub const FOLDERS: usize = 2;
pub const ANCHORS: usize = 2;
pub const LOCKS: usize = 4;

/// A call on names or locks; numbers name files, directories, anchors (files that stay, and are linked to), locks and their holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// With O_EXCL.
    Create(usize),
    Unlink(usize),
    Rename(usize, usize),
    Link {
        anchor: usize,
        file: usize,
    },
    /// What a name leads to. How many links that has the kernel asks for later, as on any file system.
    Stat(usize),
    /// The same with its links, when nobody changes anything.
    Links(usize),
    MakeFolder(usize),
    RemoveFolder(usize),
    RenameFolder(usize, usize),
    StatFolder(usize),
    /// Whether its name is listed, which no kernel remembers.
    ListFolder(usize),
    /// Without waiting.
    Lock {
        lock: usize,
        holder: usize,
        is_shared: bool,
    },
    Unlock {
        lock: usize,
        holder: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ret {
    Done,
    /// A new file.
    Created(u64),
    Found(u64),
    Links {
        inode: u64,
        links: u64,
    },
    /// With this errno.
    Refused(i32),
}

/// Directories have numbers of our own, because mkdir(2) tells no inode number.
type Folder = usize;

#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub anchors: [u64; ANCHORS],
    files: [Option<u64>; FILES],
    folders: [Option<Folder>; FOLDERS],
    folders_made: usize,
    /// Who holds each lock, and whether for sharing.
    holders: [BTreeMap<usize, bool>; LOCKS],
    /// What had the name since this was cleared, and has it no more.
    earlier_files: [Vec<u64>; FILES],
    pub earlier_folders: [Vec<Folder>; FOLDERS],
    pub is_lenient: bool,
}

/// Gives a name another file or directory, and remembers which it had.
fn set<T: Copy>(place: &mut Option<T>, earlier: &mut Vec<T>, new: Option<T>) {
    earlier.extend(std::mem::replace(place, new));
}

impl Tree {
    pub fn new(anchors: [u64; ANCHORS]) -> Tree {
        Tree { anchors, ..Tree::default() }
    }

    /// A lookup that began before now has ended.
    pub fn forget_earlier(&mut self) {
        self.earlier_files = Default::default();
        self.earlier_folders = Default::default();
    }

    fn links(&self, inode: u64) -> u64 {
        let names = self.files.iter().flatten().chain(&self.anchors);
        names.filter(|other| **other == inode).count() as u64
    }

    fn rename(&mut self, from: usize, to: usize, ret: Ret) -> bool {
        let is_moved_before =
            self.is_lenient && self.files[to].is_some_and(|there| self.earlier_files[from].contains(&there));
        match (self.files[from], ret) {
            (Some(inode), Ret::Done) if self.files[to] == Some(inode) => true,
            (Some(inode), Ret::Done) => {
                set(&mut self.files[from], &mut self.earlier_files[from], None);
                set(&mut self.files[to], &mut self.earlier_files[to], Some(inode));
                true
            }
            (None, Ret::Refused(libc::ENOENT)) => true,
            (None, Ret::Done) => is_moved_before,
            _ => false,
        }
    }

    fn rename_folder(&mut self, from: usize, to: usize, ret: Ret) -> bool {
        let is_moved_before =
            self.is_lenient && self.folders[to].is_some_and(|there| self.earlier_folders[from].contains(&there));
        match (self.folders[from], ret) {
            (Some(_), Ret::Done) if from == to => true,
            (Some(folder), Ret::Done) => {
                set(&mut self.folders[from], &mut self.earlier_folders[from], None);
                set(&mut self.folders[to], &mut self.earlier_folders[to], Some(folder));
                true
            }
            (None, Ret::Refused(libc::ENOENT)) => true,
            (None, Ret::Done) => is_moved_before,
            _ => false,
        }
    }

    fn make_folder(&mut self, name: usize, ret: Ret) -> bool {
        match (self.folders[name], ret) {
            (None, Ret::Done) => {
                self.folders_made += 1;
                self.folders[name] = Some(self.folders_made);
                true
            }
            (Some(_), Ret::Refused(libc::EEXIST)) => true,
            (None, Ret::Refused(libc::EEXIST)) => self.is_lenient && !self.earlier_folders[name].is_empty(),
            _ => false,
        }
    }

    fn stat_folder(&mut self, name: usize, ret: Ret) -> bool {
        match (self.folders[name], ret) {
            (Some(_), Ret::Done) | (None, Ret::Refused(libc::ENOENT)) => true,
            (None, Ret::Done) => self.is_lenient && !self.earlier_folders[name].is_empty(),
            _ => false,
        }
    }

    fn lock(&mut self, lock: usize, holder: usize, is_shared: bool, ret: Ret) -> bool {
        let is_free = self.holders[lock].values().all(|other| is_shared && *other);
        match ret {
            Ret::Done if is_free => self.holders[lock].insert(holder, is_shared).is_none(),
            Ret::Refused(libc::EAGAIN) => !is_free,
            _ => false,
        }
    }

    /// Whether this answer is right now; if so, the call has taken effect.
    pub fn step(&mut self, op: Op, ret: Ret) -> bool {
        match op {
            Op::Create(name) => match (self.files[name], ret) {
                (None, Ret::Created(inode)) => {
                    self.files[name] = Some(inode);
                    self.links(inode) == 1
                }
                (Some(_), Ret::Refused(libc::EEXIST)) => true,
                _ => false,
            },
            Op::Unlink(name) => match (self.files[name], ret) {
                (Some(_), Ret::Done) => {
                    set(&mut self.files[name], &mut self.earlier_files[name], None);
                    true
                }
                (None, Ret::Refused(libc::ENOENT)) => true,
                _ => false,
            },
            Op::Rename(from, to) => self.rename(from, to, ret),
            Op::Link { anchor, file } => match (self.files[file], ret) {
                (None, Ret::Done) => {
                    self.files[file] = Some(self.anchors[anchor]);
                    true
                }
                (Some(_), Ret::Refused(libc::EEXIST)) => true,
                // The kernel counts down the names that it knew of, and does not link to a file without any.
                (_, Ret::Refused(libc::ENOENT)) => self.is_lenient,
                _ => false,
            },
            Op::Stat(name) => match self.files[name] {
                Some(inode) => ret == Ret::Found(inode),
                None => ret == Ret::Refused(libc::ENOENT),
            },
            Op::Links(name) => match self.files[name] {
                Some(inode) => ret == Ret::Links { inode, links: self.links(inode) },
                None => ret == Ret::Refused(libc::ENOENT),
            },
            Op::MakeFolder(name) => self.make_folder(name, ret),
            Op::RemoveFolder(name) => match (self.folders[name], ret) {
                (Some(_), Ret::Done) => {
                    set(&mut self.folders[name], &mut self.earlier_folders[name], None);
                    true
                }
                (None, Ret::Refused(libc::ENOENT)) => true,
                _ => false,
            },
            Op::RenameFolder(from, to) => self.rename_folder(from, to, ret),
            Op::StatFolder(name) => self.stat_folder(name, ret),
            Op::ListFolder(name) => match self.folders[name] {
                Some(_) => ret == Ret::Done,
                None => ret == Ret::Refused(libc::ENOENT),
            },
            Op::Lock { lock, holder, is_shared } => self.lock(lock, holder, is_shared, ret),
            Op::Unlock { lock, holder } => ret == Ret::Done && self.holders[lock].remove(&holder).is_some(),
        }
    }
}

impl SequentialSpec for Tree {
    type Op = Op;
    type Ret = Ret;

    /// Only asked for calls that have not returned.
    fn invoke(&mut self, op: &Op) -> Ret {
        unreachable!("{op:?} has returned")
    }

    fn is_valid_step(&mut self, op: &Op, ret: &Ret) -> bool {
        self.step(*op, *ret)
    }
}
