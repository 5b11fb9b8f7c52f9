//! Carries one operation out on both sides and compares the answers.

use std::rc::Rc;

use stere_naming::{Error, OpenFlags, SetAttributes, SetMode, Whence};

use crate::content::{Content, pattern};
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Errno, Kind, Model, Node, ROOT, RenameManner};
use crate::observe;
use crate::operation::{ATTRIBUTES, DIRECTORIES, NAMES, Operation, POLICIES, Path, Target};
use crate::pool::caller;

const PUNCH_HOLE: u32 = 2;
const KEEP_SIZE: u32 = 1;
const FILL_PIECE: usize = 1 << 20;

impl History {
    pub(crate) fn execute(&mut self, operation: &Operation) -> Result<(), Stop> {
        match operation {
            Operation::Create { path, slot } => self.create(*path, *slot),
            Operation::Tmpfile { directory, slot } => self.tmpfile(*directory, *slot),
            Operation::Open { path, slot, truncate } => self.open(*path, *slot, *truncate),
            Operation::Close { slot } => self.close(*slot),
            Operation::Mkdir { path } => self.mkdir(*path),
            Operation::Symlink { path, length } => self.symlink(*path, *length),
            Operation::Fifo { path } => self.fifo(*path),
            Operation::Link { target, path } => self.link(*target, *path),
            Operation::Unlink { path } => self.remove(*path, false),
            Operation::Rmdir { path } => self.remove(*path, true),
            Operation::Rename { from, to, manner } => self.rename(*from, *to, *manner),
            Operation::Write { target, offset, length, seed } => {
                let data = pattern(*seed, *length as usize);
                self.with_file(*target, |history, inode| history.write(inode, *offset, &data))
            }
            Operation::Read { target, offset, length } => {
                self.with_file(*target, |history, inode| history.read(inode, *offset, *length))
            }
            Operation::Truncate { target, size } => {
                self.with_file(*target, |history, inode| history.truncate(inode, *size))
            }
            Operation::Allocate { target, offset, length, mode } => {
                self.with_file(*target, |history, inode| history.allocate(inode, *offset, *length, *mode))
            }
            Operation::Copy { from, from_offset, to, to_offset, length } => self.with_file(*from, |history, source| {
                history.with_file(*to, |history, target| {
                    history.copy((source, *from_offset), (target, *to_offset), *length)
                })
            }),
            Operation::Seek { target, offset } => {
                self.with_file(*target, |history, inode| history.seek(inode, *offset))
            }
            Operation::Fsync { target } => self.with_file(*target, History::fsync),
            _ => self.execute_other(operation),
        }
    }

    fn execute_other(&mut self, operation: &Operation) -> Result<(), Stop> {
        match operation {
            Operation::SetMode { path, mode } => self.set_mode(*path, *mode),
            Operation::SetAttribute { path, name, length, seed } => {
                self.set_attribute(*path, *name, &pattern(*seed, *length as usize))
            }
            Operation::RemoveAttribute { path, name } => self.remove_attribute(*path, *name),
            Operation::SetPolicy { path, policy } => self.set_policy(*path, *policy),
            Operation::FsyncDirectory { directory } => self.fsync_directory(*directory),
            Operation::SyncAll => {
                let synced = self.mounted().files.syncfs(&caller(&self.machine));
                self.must("syncfs", synced)?;
                self.note_all_durable();
                Ok(())
            }
            Operation::List { directory } => self.list(*directory),
            Operation::VerifyAll => self.verify_all(),
            Operation::Step { count, idle } => self.background(*count, *idle),
            Operation::Checkpoint => {
                let done = self.mounted().store.checkpoint();
                self.must("checkpoint", done.map_err(Error::from))?;
                self.note_commit();
                Ok(())
            }
            Operation::Check => self.check(),
            Operation::Fill { bytes } => self.fill(*bytes),
            Operation::Empty { every } => self.empty(*every),
            Operation::Remount => self.remount(),
            Operation::ArmCrash { events, manner } => {
                self.crash_manner = *manner;
                self.machine.power_off_after(u64::from(*events));
                Ok(())
            }
            Operation::Crash { manner, again } => {
                self.machine.power_off();
                self.recover(*manner, *again)
            }
            Operation::Faults { device, kind, per_million } => {
                let mut rates = crate::fault::FaultRates::none();
                rates.set(*kind, *per_million);
                self.machine.set_faults(usize::from(*device), rates);
                Ok(())
            }
            Operation::KeepImage { device } => {
                let index = usize::from(*device);
                let mut image = self.machine.images().swap_remove(index);
                image.crash(&crate::medium::Survival::Everything, &mut self.random);
                self.kept_image = Some((index, image));
                Ok(())
            }
            other => unreachable!("{other:?} is carried out by `execute`"),
        }
    }

    /// Compares an answer with the model's. `None`: both refuse, or the pool is full.
    fn expect<T>(&mut self, what: &str, real: Result<T, Error>, model: Result<(), Errno>) -> Result<Option<T>, Stop> {
        match (real, model) {
            (Ok(value), Ok(())) => Ok(Some(value)),
            (Ok(_), Err(errno)) => Err(Stop::Failure(format!("{what}: done, where errno {errno} is right"))),
            (Err(error), Err(errno)) if error.errno() == errno => Ok(None),
            (Err(Error::NoSpace), Ok(())) if self.plan.may_fill => {
                self.summary.no_space += 1;
                Ok(None)
            }
            (Err(error), model) => {
                let text = format!("{error}; right is {model:?}");
                Err(self.unexpected(what, error.errno(), &text))
            }
        }
    }

    /// For calls that have no reason to fail.
    fn must<T>(&mut self, what: &str, real: Result<T, Error>) -> Result<T, Stop> {
        // An answer after the power went off reaches nobody.
        if self.machine.is_off() {
            return Err(Stop::Power);
        }
        real.map_err(|error| self.unexpected(what, error.errno(), &error.to_string()))
    }

    /// As `expect`, for changes of names: one that was under way when the power went may be found done.
    fn expect_names<T>(
        &mut self,
        what: &str,
        real: Result<T, Error>,
        after: Result<Model, Errno>,
    ) -> Result<Option<T>, Stop> {
        let expected = after.as_ref().map(|_| ()).map_err(|errno| *errno);
        match self.expect(what, real, expected) {
            Ok(Some(value)) => {
                self.model = after.expect("both sides did it");
                self.note_names();
                Ok(Some(value))
            }
            Err(stop @ (Stop::Power | Stop::Refused)) => {
                self.states.extend(after.ok().map(|after| after.without_handles()));
                Err(stop)
            }
            outcome => outcome,
        }
    }

    /// As `expect`, for changes of one file's content.
    fn expect_content<T>(
        &mut self,
        what: &str,
        inode: u64,
        real: Result<T, Error>,
        after: Result<Content, Errno>,
    ) -> Result<Option<T>, Stop> {
        let expected = after.as_ref().map(|_| ()).map_err(|errno| *errno);
        let no_space = matches!(real, Err(Error::NoSpace));
        let outcome = self.expect(what, real, expected);
        let Ok(after) = after else { return outcome };
        match &outcome {
            Ok(Some(_)) => self.put_content(inode, after),
            Ok(None) if no_space => self.reconcile(inode, after)?,
            Err(Stop::Power | Stop::Refused) => self.note_content(inode, Rc::new(after)),
            _ => {}
        }
        outcome
    }

    fn put_content(&mut self, inode: u64, content: Content) {
        let content = self.model.change(inode, |old| *old = content);
        self.note_content(inode, content);
    }

    /// A call that found no space may have done a part: what is there must be old or new, and is the truth from now on.
    fn reconcile(&mut self, inode: u64, attempted: Content) -> Result<(), Stop> {
        let old = self.content(inode);
        let attempted = Rc::new(attempted);
        let seen = observe::read_file(&self.mounted().files, &caller(&self.machine), inode);
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        seen.may_remain_of(&[old, attempted]).map_err(|text| Stop::Failure(format!("half done, no space: {text}")))?;
        self.put_content(inode, seen);
        Ok(())
    }

    fn content(&self, inode: u64) -> Rc<Content> {
        self.model.nodes.get(&inode).and_then(|node| node.content()).cloned().expect("the target is a file")
    }

    fn lookup(&mut self, directory: u64, name: &[u8]) -> Result<Option<u64>, Stop> {
        let real = self.mounted().files.lookup(&caller(&self.machine), directory, name);
        let model = self.model.lookup(directory, name);
        let found = self.expect("lookup", real, model.map(|_| ()))?;
        match (found, model) {
            (Some(found), Ok(inode)) if found.inode != inode => {
                Err(Stop::Failure(format!("lookup: inode {} instead of {inode}", found.inode)))
            }
            (Some(found), Ok(inode)) => self.check_attributes(&found).map(|()| Some(inode)),
            _ => Ok(None),
        }
    }

    fn check_attributes(&self, seen: &stere_naming::Attributes) -> Result<(), Stop> {
        let Some(node) = self.model.nodes.get(&seen.inode) else { return Ok(()) };
        let size = node.content().map_or(seen.size, |content| content.size());
        let expected = (node.kind.type_bits() | node.mode, node.nlink, size);
        let found = (seen.mode, seen.nlink, seen.size);
        if expected == found {
            return Ok(());
        }
        Err(Stop::Failure(format!("inode {}: mode, links, size are {found:?} instead of {expected:?}", seen.inode)))
    }

    /// The directory with this number, if it is there.
    fn directory(&mut self, index: u8) -> Result<Option<u64>, Stop> {
        let mut at = ROOT;
        for name in DIRECTORIES[usize::from(index)] {
            match self.lookup(at, name)? {
                Some(inode) if self.model.is_directory(inode) => at = inode,
                _ => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    fn parent_of(&mut self, path: Path) -> Result<Option<(u64, &'static [u8])>, Stop> {
        let directory = self.directory(path.directory)?;
        Ok(directory.map(|directory| (directory, NAMES[usize::from(path.name)])))
    }

    fn inode_of(&mut self, path: Path) -> Result<Option<u64>, Stop> {
        match self.parent_of(path)? {
            Some((directory, name)) => self.lookup(directory, name),
            None => Ok(None),
        }
    }

    /// Works on a file through a handle that is open, or one that is opened for it. What is not a file is left alone.
    fn with_file(
        &mut self,
        target: Target,
        work: impl FnOnce(&mut History, u64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let inode = match target {
            Target::Slot(slot) => self.slot_inode(slot)?,
            Target::Path(path) => self.inode_of(path)?,
        };
        let Some(inode) = inode else { return Ok(()) };
        if self.model.nodes.get(&inode).and_then(|node| node.content()).is_none() {
            return Ok(());
        }
        if matches!(target, Target::Slot(_)) {
            return work(self, inode);
        }
        let flags = OpenFlags { write: true, truncate: false, exclusive: false };
        let opened = self.mounted().files.open(&caller(&self.machine), inode, flags);
        let handle = self.must("open", opened)?;
        self.model.open(inode);
        work(self, inode)?;
        self.release(Slot { inode, handle })
    }

    /// The inode behind a handle. A crash closes all handles; one that is wanted again is opened on some file that is there.
    fn slot_inode(&mut self, slot: u8) -> Result<Option<u64>, Stop> {
        let index = usize::from(slot);
        if self.slots[index].is_none() {
            let named = |(inode, node): (&u64, &Node)| (node.content().is_some() && node.nlink > 0).then_some(*inode);
            let inodes: Vec<u64> = self.model.nodes.iter().filter_map(named).take(64).collect();
            if inodes.is_empty() {
                self.create(Path { directory: 0, name: slot }, slot)?;
            } else {
                let inode = inodes[index * 7 % inodes.len()];
                let flags = OpenFlags { write: true, truncate: false, exclusive: false };
                let opened = self.mounted().files.open(&caller(&self.machine), inode, flags);
                let handle = self.must("open", opened)?;
                self.model.open(inode);
                self.slots[index] = Some(Slot { inode, handle });
            }
        }
        Ok(self.slots[index].as_ref().map(|slot| slot.inode))
    }

    fn release(&mut self, slot: Slot) -> Result<(), Stop> {
        let released = self.mounted().files.release(&caller(&self.machine), slot.inode, slot.handle);
        self.model.close(slot.inode);
        self.must("release", released)
    }

    pub(crate) fn close(&mut self, slot: u8) -> Result<(), Stop> {
        match self.slots[usize::from(slot)].take() {
            Some(slot) => self.release(slot),
            None => Ok(()),
        }
    }

    fn made(&mut self, directory: u64, name: &[u8], inode: u64, node: Node) -> Result<(), Stop> {
        if self.model.nodes.contains_key(&inode) {
            return Err(Stop::Failure(format!("inode number {inode} was given out again while it is in use")));
        }
        self.model.make(directory, name, inode, node);
        self.note_durable(inode);
        self.note_names();
        Ok(())
    }

    fn create(&mut self, path: Path, slot: u8) -> Result<(), Stop> {
        self.close(slot)?;
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let flags = OpenFlags { write: true, truncate: false, exclusive: true };
        let real = self.mounted().files.create(&caller(&self.machine), directory, name, 0o666, flags);
        let right = self.model.may_make(directory, name);
        let Some((attributes, handle)) = self.expect("create", real, right)? else { return Ok(()) };
        let inode = attributes.inode;
        self.made(directory, name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
        self.model.open(inode);
        self.slots[usize::from(slot)] = Some(Slot { inode, handle });
        self.check_attributes(&attributes)
    }

    fn tmpfile(&mut self, directory: u8, slot: u8) -> Result<(), Stop> {
        self.close(slot)?;
        let Some(directory) = self.directory(directory)? else { return Ok(()) };
        let flags = OpenFlags { write: true, truncate: false, exclusive: false };
        let real = self.mounted().files.tmpfile(&caller(&self.machine), directory, 0o600, flags);
        let Some((attributes, handle)) = self.expect("tmpfile", real, Ok(()))? else { return Ok(()) };
        let mut node = Node::new(Kind::File(Rc::default()), 0o600);
        (node.nlink, node.opens, node.nameless) = (0, 1, true);
        self.model.nodes.insert(attributes.inode, node);
        self.note_durable(attributes.inode);
        self.slots[usize::from(slot)] = Some(Slot { inode: attributes.inode, handle });
        self.check_attributes(&attributes)
    }

    fn open(&mut self, path: Path, slot: u8, truncate: bool) -> Result<(), Stop> {
        self.close(slot)?;
        let Some(inode) = self.inode_of(path)? else { return Ok(()) };
        if matches!(self.model.nodes[&inode].kind, Kind::Symlink(_) | Kind::Fifo) {
            return Ok(());
        }
        let flags = OpenFlags { write: true, truncate, exclusive: false };
        let real = self.mounted().files.open(&caller(&self.machine), inode, flags);
        if self.model.is_directory(inode) {
            self.expect("open of a directory for writing", real, Err(libc::EISDIR))?;
            return Ok(());
        }
        let mut after = (*self.content(inode)).clone();
        if truncate {
            after.truncate(0);
        }
        if let Some(handle) = self.expect_content("open", inode, real, Ok(after))? {
            self.model.open(inode);
            self.slots[usize::from(slot)] = Some(Slot { inode, handle });
        }
        Ok(())
    }

    fn mkdir(&mut self, path: Path) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let real = self.mounted().files.mkdir(&caller(&self.machine), directory, name, 0o777);
        let right = self.model.may_make(directory, name);
        let Some(attributes) = self.expect("mkdir", real, right)? else { return Ok(()) };
        self.made(directory, name, attributes.inode, Node::new(Kind::Directory(Default::default()), 0o755))
    }

    fn symlink(&mut self, path: Path, length: u16) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let target = pattern(u64::from(length), usize::from(length));
        let real = self.mounted().files.symlink(&caller(&self.machine), directory, name, &target);
        let right = self.model.may_make(directory, name);
        let Some(attributes) = self.expect("symlink", real, right)? else { return Ok(()) };
        self.made(directory, name, attributes.inode, Node::new(Kind::Symlink(target), 0o777))
    }

    fn fifo(&mut self, path: Path) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let real = self.mounted().files.mknod(&caller(&self.machine), directory, name, libc::S_IFIFO | 0o644, 0);
        let right = self.model.may_make(directory, name);
        let Some(attributes) = self.expect("mknod", real, right)? else { return Ok(()) };
        self.made(directory, name, attributes.inode, Node::new(Kind::Fifo, 0o644))
    }

    fn link(&mut self, target: Target, path: Path) -> Result<(), Stop> {
        let inode = match target {
            Target::Slot(slot) => self.slots[usize::from(slot)].as_ref().map(|slot| slot.inode),
            Target::Path(path) => self.inode_of(path)?,
        };
        let (Some(inode), Some((directory, name))) = (inode, self.parent_of(path)?) else { return Ok(()) };
        let real = self.mounted().files.link(&caller(&self.machine), inode, directory, name);
        let mut after = self.model.clone();
        let after = after.link(inode, directory, name).map(|()| after);
        match self.expect_names("link", real, after)? {
            Some(attributes) => self.check_attributes(&attributes),
            None => Ok(()),
        }
    }

    fn remove(&mut self, path: Path, as_directory: bool) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        self.remove_name(directory, name, as_directory)
    }

    fn remove_name(&mut self, directory: u64, name: &[u8], as_directory: bool) -> Result<(), Stop> {
        let user = caller(&self.machine);
        let real = match as_directory {
            true => self.mounted().files.rmdir(&user, directory, name),
            false => self.mounted().files.unlink(&user, directory, name),
        };
        let mut after = self.model.clone();
        let after = after.remove(directory, name, as_directory).map(|()| after);
        if matches!(real, Err(Error::NoSpace)) {
            return Err(Stop::Failure("removing a name needs no space, but found none".into()));
        }
        self.expect_names("remove", real, after)?;
        Ok(())
    }

    fn rename(&mut self, from: Path, to: Path, manner: RenameManner) -> Result<(), Stop> {
        let (Some(from), Some(to)) = (self.parent_of(from)?, self.parent_of(to)?) else { return Ok(()) };
        let flags = match manner {
            RenameManner::Replace => 0,
            RenameManner::NoReplace => stere_naming::RENAME_NOREPLACE,
            RenameManner::Exchange => stere_naming::RENAME_EXCHANGE,
        };
        let real = self.mounted().files.rename(&caller(&self.machine), from.0, from.1, to.0, to.1, flags);
        let mut after = self.model.clone();
        let after = after.rename(from, to, manner).map(|()| after);
        self.expect_names("rename", real, after)?;
        Ok(())
    }

    fn write(&mut self, inode: u64, offset: u64, data: &[u8]) -> Result<(), Stop> {
        let mut after = (*self.content(inode)).clone();
        let real = self.mounted().files.write(&caller(&self.machine), inode, offset, data, false);
        let accepted = match &real {
            Ok(length) if *length < data.len() && self.plan.may_fill => *length,
            Ok(length) if *length != data.len() => {
                return Err(Stop::Failure(format!("write: {length} of {} bytes written", data.len())));
            }
            _ => data.len(),
        };
        after.write(offset, &data[..accepted]);
        self.expect_content("write", inode, real, Ok(after))?;
        Ok(())
    }

    fn read(&mut self, inode: u64, offset: u64, length: u32) -> Result<(), Stop> {
        let mut buffer = vec![0xee; length as usize];
        let real = self.mounted().files.read(&caller(&self.machine), inode, offset, &mut buffer);
        let length_read = self.must("read", real)?;
        let right = self.content(inode).read(offset, u64::from(length));
        if buffer[..length_read] == right[..] {
            return Ok(());
        }
        let at = right.iter().zip(&buffer).position(|(right, real)| right != real);
        Err(Stop::Failure(format!("read: {length_read} bytes instead of {}, first difference at {at:?}", right.len())))
    }

    fn truncate(&mut self, inode: u64, size: u64) -> Result<(), Stop> {
        let mut after = (*self.content(inode)).clone();
        let shrinks = size <= after.size();
        after.truncate(size);
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let real = self.mounted().files.setattr(&caller(&self.machine), inode, &set);
        if shrinks && matches!(real, Err(Error::NoSpace)) {
            return Err(Stop::Failure("truncate needs no space, but found none".into()));
        }
        match self.expect_content("truncate", inode, real, Ok(after))? {
            Some(attributes) => self.check_attributes(&attributes),
            None => Ok(()),
        }
    }

    fn allocate(&mut self, inode: u64, offset: u64, length: u64, mode: u32) -> Result<(), Stop> {
        let after = allocated(&self.content(inode), offset, length, mode);
        let real = self.mounted().files.fallocate(&caller(&self.machine), inode, offset, length, mode);
        self.expect_content("fallocate", inode, real, after)?;
        Ok(())
    }

    fn copy(&mut self, from: (u64, u64), to: (u64, u64), length: u64) -> Result<(), Stop> {
        let source = self.content(from.0);
        let copied = source.read(from.1, length);
        let count = copied.len() as u64;
        let overlaps = from.0 == to.0 && from.1 < to.1 + count && to.1 < from.1 + count;
        let real = self.mounted().files.copy_range(&caller(&self.machine), from.0, from.1, to.0, to.1, length);
        let mut after = (*self.content(to.0)).clone();
        let done = match &real {
            Ok(done) if *done < count && self.plan.may_fill => *done,
            Ok(done) if *done != count && !(overlaps && count > 0) => {
                return Err(Stop::Failure(format!("copy: {done} of {count} bytes copied")));
            }
            _ => count,
        };
        after.write(to.1, &copied[..done as usize]);
        let after = if overlaps && count > 0 { Err(libc::EINVAL) } else { Ok(after) };
        self.expect_content("copy", to.0, real, after)?;
        Ok(())
    }

    fn seek(&mut self, inode: u64, offset: u64) -> Result<(), Stop> {
        let content = self.content(inode);
        let real = self.mounted().files.seek(&caller(&self.machine), inode, offset, Whence::Data);
        let data = match real {
            Ok(at) => Some(at),
            Err(Error::NoSuchOffset) => None,
            Err(error) => return Err(self.unexpected("seek", error.errno(), &error.to_string())),
        };
        if offset >= content.size() && data.is_some() {
            return Err(Stop::Failure(format!("seek: data at {data:?} behind the end")));
        }
        // What is zero may count as data or as a hole; what is not zero is data.
        let right = content.next_nonzero(offset);
        if right.is_some_and(|right| data.is_none_or(|data| data > right)) {
            return Err(Stop::Failure(format!("seek from {offset}: data at {data:?}, but byte {right:?} is data")));
        }
        Ok(())
    }

    fn fsync(&mut self, inode: u64) -> Result<(), Stop> {
        let real = self.mounted().files.fsync(&caller(&self.machine), inode, false);
        self.must("fsync", real)?;
        self.note_durable(inode);
        self.note_commit();
        Ok(())
    }

    fn fsync_directory(&mut self, directory: u8) -> Result<(), Stop> {
        let Some(inode) = self.directory(directory)? else { return Ok(()) };
        let real = self.mounted().files.fsyncdir(&caller(&self.machine), inode);
        self.must("fsyncdir", real)?;
        self.note_commit();
        Ok(())
    }

    /// The inode, if it is a file or a directory.
    fn plain_inode(&mut self, path: Path) -> Result<Option<u64>, Stop> {
        let inode = self.inode_of(path)?;
        let model = &self.model;
        Ok(inode.filter(|inode| matches!(model.nodes[inode].kind, Kind::File(_) | Kind::Directory(_))))
    }

    fn changed_node(&self, inode: u64, change: impl FnOnce(&mut Node)) -> Model {
        let mut after = self.model.clone();
        if let Some(node) = after.nodes.get_mut(&inode) {
            change(node);
        }
        after
    }

    fn set_mode(&mut self, path: Path, mode: u32) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let real = self.mounted().files.setattr(&caller(&self.machine), inode, &set);
        let after = self.changed_node(inode, |node| node.mode = mode);
        self.expect_names("chmod", real, Ok(after))?;
        Ok(())
    }

    fn set_attribute(&mut self, path: Path, name: u8, value: &[u8]) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let name = ATTRIBUTES[usize::from(name)];
        let user = caller(&self.machine);
        let real = self.mounted().files.setxattr(&user, inode, name, value, SetMode::Any, false);
        let after = self.changed_node(inode, |node| drop(node.attributes.insert(name.to_vec(), value.to_vec())));
        self.expect_names("setxattr", real, Ok(after))?;
        Ok(())
    }

    fn remove_attribute(&mut self, path: Path, name: u8) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let name = ATTRIBUTES[usize::from(name)];
        let real = self.mounted().files.removexattr(&caller(&self.machine), inode, name);
        let is_there = self.model.nodes[&inode].attributes.contains_key(name);
        let after = self.changed_node(inode, |node| drop(node.attributes.remove(name)));
        self.expect_names("removexattr", real, if is_there { Ok(after) } else { Err(libc::ENODATA) })?;
        Ok(())
    }

    /// What combination of policies is possible is tested elsewhere; here their effect on placement is what matters.
    fn set_policy(&mut self, path: Path, policy: u8) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let (name, value) = POLICIES[usize::from(policy)];
        if self.plan.budget == Budget::Tolerated && matches!(value, b"1" | b"scratch") {
            return Ok(());
        }
        let user = caller(&self.machine);
        let real = self.mounted().files.setxattr(&user, inode, name, value, SetMode::Any, false);
        match real {
            Ok(()) => {}
            Err(Error::Policy(_)) => return Ok(()),
            Err(Error::NoSpace) if self.plan.may_fill => return Ok(()),
            Err(error) => return Err(self.unexpected("setxattr of a policy", error.errno(), &error.to_string())),
        }
        let listed = self.mounted().files.listxattr(&user, inode);
        let listed = self.must("listxattr", listed)?;
        let mut attributes = self.model.nodes[&inode].attributes.clone();
        attributes.retain(|name, _| !name.starts_with(b"user.stere."));
        for name in listed.into_iter().filter(|name| name.starts_with(b"user.stere.")) {
            let value = self.mounted().files.getxattr(&user, inode, &name);
            attributes.insert(name, self.must("getxattr", value)?);
        }
        if attributes.get(name).map(Vec::as_slice) != Some(value) {
            return Err(Stop::Failure("a policy that was set is not there".into()));
        }
        self.model = self.changed_node(inode, |node| node.attributes = attributes);
        self.note_names();
        Ok(())
    }

    fn list(&mut self, directory: u8) -> Result<(), Stop> {
        let Some(inode) = self.directory(directory)? else { return Ok(()) };
        let seen = observe::list(&self.mounted().files, &caller(&self.machine), inode);
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        match &self.model.nodes[&inode].kind {
            Kind::Directory(names) if *names == seen => Ok(()),
            _ => Err(Stop::Failure(format!("readdir of {}: other names", self.model.path_of(inode)))),
        }
    }

    fn background(&mut self, count: u8, idle: bool) -> Result<(), Stop> {
        for _ in 0..count {
            let above = self.mounted().files.step(&caller(&self.machine), 4);
            let above = self.must("step of the files", above)?;
            let below = self.mounted().store.step(idle);
            let below = self.must("step of the store", below.map_err(Error::from))?;
            if !above && !below {
                break;
            }
        }
        Ok(())
    }

    fn fill(&mut self, bytes: u32) -> Result<(), Stop> {
        if !self.plan.may_fill {
            return Ok(());
        }
        for _ in 0..200 {
            let name = format!("fill{}", self.fill_count).into_bytes();
            self.fill_count += 1;
            let flags = OpenFlags { write: true, truncate: false, exclusive: true };
            let real = self.mounted().files.create(&caller(&self.machine), ROOT, &name, 0o666, flags);
            let Some((attributes, handle)) = self.expect("create", real, Ok(()))? else { return Ok(()) };
            let inode = attributes.inode;
            self.made(ROOT, &name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
            self.model.open(inode);
            let before = self.summary.no_space;
            let mut at = 0;
            while at < u64::from(bytes) && self.summary.no_space == before {
                let data = pattern(inode ^ at, FILL_PIECE.min((u64::from(bytes) - at) as usize));
                self.write(inode, at, &data)?;
                let size = self.content(inode).size();
                if size < at + data.len() as u64 {
                    self.summary.no_space += 1;
                }
                at += data.len() as u64;
            }
            self.release(Slot { inode, handle })?;
            if self.summary.no_space > before {
                return Ok(());
            }
        }
        Ok(())
    }

    fn empty(&mut self, every: u8) -> Result<(), Stop> {
        let Kind::Directory(names) = &self.model.nodes[&ROOT].kind else { return Ok(()) };
        let fills: Vec<Vec<u8>> = names.keys().filter(|name| name.starts_with(b"fill")).cloned().collect();
        for name in fills.iter().step_by(usize::from(every).max(1)) {
            self.remove_name(ROOT, name, false)?;
        }
        Ok(())
    }
}

/// What fallocate makes of a content.
fn allocated(content: &Content, offset: u64, length: u64, mode: u32) -> Result<Content, Errno> {
    let mut after = content.clone();
    let (end, size) = (offset + length, content.size());
    let aligned = offset % 4096 == 0 && length % 4096 == 0;
    match mode & !KEEP_SIZE {
        _ if length == 0 => return Err(libc::EINVAL),
        0 | 0x40 => {}
        PUNCH_HOLE | 0x10 => after.zero(offset, end.min(size).max(offset)),
        8 if !aligned || end >= size => return Err(libc::EINVAL),
        8 => after.collapse(offset, length),
        0x20 if !aligned || offset >= size => return Err(libc::EINVAL),
        0x20 => after.insert(offset, length),
        _ => return Err(libc::EOPNOTSUPP),
    }
    if mode & KEEP_SIZE == 0 && matches!(mode, 0 | 0x10 | 0x40) {
        after.grow(end);
    }
    Ok(after)
}
