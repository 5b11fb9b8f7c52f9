//! Operations on names, modes and attributes.

use std::rc::Rc;

use stere_naming::{Error, OpenFlags, SetAttributes, SetMode};

use crate::content::pattern;
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Kind, Model, Node, RenameManner};
use crate::observe;
use crate::operation::{ATTRIBUTES, POLICIES, Path, RULES, Target};
use crate::pool::{caller, superuser};

impl History {
    pub(crate) fn made(&mut self, directory: u64, name: &[u8], inode: u64, node: Node) -> Result<(), Stop> {
        if self.model.nodes.contains_key(&inode) {
            return Err(Stop::Failure(format!("inode number {inode} was given out again while it is in use")));
        }
        self.model.make(directory, name, inode, Node { owner: self.machine.owner(), ..node });
        self.note_durable(inode);
        self.note_names();
        Ok(())
    }

    pub(super) fn create(&mut self, path: Path, slot: u8) -> Result<(), Stop> {
        self.close(slot)?;
        // What that was the last of counts no more.
        self.watch_quotas()?;
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let real = self.mounted().files.create(&caller(&self.machine), directory, name, 0o666, flags);
        let right = self.model.may_make(directory, name).and(self.check_making(Some((directory, name)), 0));
        let Some((attributes, handle)) = self.expect("create", real, right)? else { return Ok(()) };
        let inode = attributes.inode;
        self.made(directory, name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
        self.model.open(inode);
        self.slots[usize::from(slot)] = Some(Slot { inode, handle });
        self.check_attributes(&attributes)
    }

    pub(super) fn tmpfile(&mut self, directory: u8, slot: u8) -> Result<(), Stop> {
        self.close(slot)?;
        self.watch_quotas()?;
        let Some(directory) = self.directory(directory)? else { return Ok(()) };
        let flags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };
        let real = self.mounted().files.tmpfile(&caller(&self.machine), directory, 0o600, flags);
        let Some((attributes, handle)) = self.expect("tmpfile", real, self.check_inode_room())? else { return Ok(()) };
        let mut node = Node::new(Kind::File(Rc::default()), 0o600);
        (node.nlink, node.opens, node.nameless) = (0, 1, true);
        node.owner = self.machine.owner();
        self.model.nodes.insert(attributes.inode, node);
        self.note_durable(attributes.inode);
        self.slots[usize::from(slot)] = Some(Slot { inode: attributes.inode, handle });
        self.check_attributes(&attributes)
    }

    pub(super) fn open(&mut self, path: Path, slot: u8, truncate: bool) -> Result<(), Stop> {
        self.close(slot)?;
        let Some(inode) = self.inode_of(path)? else { return Ok(()) };
        if matches!(self.model.nodes[&inode].kind, Kind::Symlink(_) | Kind::Fifo) {
            return Ok(());
        }
        let flags = OpenFlags { write: true, truncate, exclusive: false, read: false };
        let real = self.mounted().files.open(&caller(&self.machine), inode, flags);
        if self.model.is_directory(inode) {
            self.expect("open of a directory for writing", real, Err(libc::EISDIR))?;
            return Ok(());
        }
        let mut after = (*self.content(inode)).clone();
        if truncate {
            after.truncate(0);
        }
        let after = self.model.check_changeable(inode).map(|()| after);
        if let Some(handle) = self.expect_content("open", inode, real, after)? {
            self.model.open(inode);
            self.slots[usize::from(slot)] = Some(Slot { inode, handle });
        }
        Ok(())
    }

    pub(super) fn mkdir(&mut self, path: Path) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let real = self.mounted().files.mkdir(&caller(&self.machine), directory, name, 0o777);
        let right = self.model.may_make(directory, name).and(self.check_making(Some((directory, name)), 0));
        let Some(attributes) = self.expect("mkdir", real, right)? else { return Ok(()) };
        self.made(directory, name, attributes.inode, Node::new(Kind::Directory(Default::default()), 0o755))
    }

    pub(super) fn symlink(&mut self, path: Path, length: u16) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let target = pattern(u64::from(length), usize::from(length));
        let real = self.mounted().files.symlink(&caller(&self.machine), directory, name, &target);
        let right = self.model.may_make(directory, name);
        let right = right.and(self.check_making(Some((directory, name)), u64::from(length)));
        let Some(attributes) = self.expect("symlink", real, right)? else { return Ok(()) };
        self.made(directory, name, attributes.inode, Node::new(Kind::Symlink(target), 0o777))
    }

    pub(super) fn fifo(&mut self, path: Path) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        let real = self.mounted().files.mknod(&caller(&self.machine), directory, name, libc::S_IFIFO | 0o644, 0);
        let right = self.model.may_make(directory, name).and(self.check_making(Some((directory, name)), 0));
        let Some(attributes) = self.expect("mknod", real, right)? else { return Ok(()) };
        self.made(directory, name, attributes.inode, Node::new(Kind::Fifo, 0o644))
    }

    pub(super) fn link(&mut self, target: Target, path: Path) -> Result<(), Stop> {
        let inode = match target {
            Target::Slot(slot) => self.slots[usize::from(slot)].as_ref().map(|slot| slot.inode),
            Target::Path(path) => self.inode_of(path)?,
        };
        let (Some(inode), Some((directory, name))) = (inode, self.parent_of(path)?) else { return Ok(()) };
        // Where something counts that has several names depends on which was given last; what was locked for a name that goes stays with the
        // file (`crates/naming/tests/all/several_names.rs` has the model of that).
        if self.has_accounts() || self.has_lists() {
            return Ok(());
        }
        let real = self.mounted().files.link(&caller(&self.machine), inode, directory, name);
        let mut after = self.model.clone();
        let after = after.link(inode, directory, name).map(|()| after);
        match self.expect_names("link", real, after)? {
            Some(attributes) => self.check_attributes(&attributes),
            None => Ok(()),
        }
    }

    pub(super) fn remove(&mut self, path: Path, as_directory: bool) -> Result<(), Stop> {
        let Some((directory, name)) = self.parent_of(path)? else { return Ok(()) };
        self.remove_name(directory, name, as_directory)
    }

    pub(crate) fn remove_name(&mut self, directory: u64, name: &[u8], as_directory: bool) -> Result<(), Stop> {
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

    pub(super) fn rename(&mut self, from: Path, to: Path, manner: RenameManner) -> Result<(), Stop> {
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

    pub(super) fn list(&mut self, directory: u8) -> Result<(), Stop> {
        let Some(inode) = self.directory(directory)? else { return Ok(()) };
        let seen = observe::list(&self.mounted().files, &caller(&self.machine), inode);
        let seen = seen.map_err(|trouble| self.trouble(trouble))?;
        match &self.model.nodes[&inode].kind {
            Kind::Directory(names) if *names == seen => Ok(()),
            _ => Err(Stop::Failure(format!("readdir of {}: other names", self.model.path_of(inode)))),
        }
    }

    /// The inode, if it is a file or a directory.
    pub(crate) fn plain_inode(&mut self, path: Path) -> Result<Option<u64>, Stop> {
        let inode = self.inode_of(path)?;
        let model = &self.model;
        Ok(inode.filter(|inode| matches!(model.nodes[inode].kind, Kind::File(_) | Kind::Directory(_))))
    }

    pub(crate) fn changed_node(&self, inode: u64, change: impl FnOnce(&mut Node)) -> Model {
        let mut after = self.model.clone();
        if let Some(node) = after.nodes.get_mut(&inode) {
            change(node);
        }
        after
    }

    pub(super) fn set_mode(&mut self, path: Path, mode: u32) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let real = self.mounted().files.setattr(&caller(&self.machine), inode, &set);
        let after = self.changed_node(inode, |node| node.mode = mode);
        self.expect_names("chmod", real, self.model.check_changeable(inode).map(|()| after))?;
        Ok(())
    }

    pub(super) fn set_attribute(&mut self, path: Path, name: u8, value: &[u8]) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let name = ATTRIBUTES[usize::from(name)];
        let user = caller(&self.machine);
        let real = self.mounted().files.setxattr(&user, inode, name, value, SetMode::Any, false);
        let after = self.changed_node(inode, |node| drop(node.attributes.insert(name.to_vec(), value.to_vec())));
        self.expect_names("setxattr", real, self.model.check_changeable(inode).map(|()| after))?;
        Ok(())
    }

    pub(super) fn remove_attribute(&mut self, path: Path, name: u8) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let name = ATTRIBUTES[usize::from(name)];
        let real = self.mounted().files.removexattr(&caller(&self.machine), inode, name);
        let is_there = self.model.nodes[&inode].attributes.contains_key(name);
        let after = self.changed_node(inode, |node| drop(node.attributes.remove(name)));
        let right = self.model.check_changeable(inode).and(if is_there { Ok(after) } else { Err(libc::ENODATA) });
        self.expect_names("removexattr", real, right)?;
        Ok(())
    }

    /// What combination of policies is possible is tested elsewhere; here their effect on placement is what matters.
    pub(super) fn set_policy(&mut self, path: Path, policy: u8) -> Result<(), Stop> {
        let Some(inode) = self.plain_inode(path)? else { return Ok(()) };
        let (name, value) = POLICIES[usize::from(policy)];
        if self.plan.budget == Budget::Tolerated && matches!(value, b"1" | b"scratch") {
            return Ok(());
        }
        if name == b"user.stere.rules" && !self.model.is_directory(inode) {
            return Ok(());
        }
        self.put_policy(inode, name, value)?;
        self.wish_versions(inode, usize::from(policy) + usize::from(path.name))?;
        self.wish_checksum(inode, usize::from(policy) + usize::from(path.name))?;
        self.wish_plugins(inode, usize::from(policy) + usize::from(path.name))?;
        self.wish_encryption(inode, usize::from(policy) + usize::from(path.name))
    }

    /// Sets a policy, and takes over into the model what else of policies changed with it.
    pub(crate) fn put_policy(&mut self, inode: u64, name: &[u8], value: &[u8]) -> Result<(), Stop> {
        // Others than the owner are refused, and owners are of no matter here.
        let user = superuser(&self.machine);
        let real = self.mounted().files.setxattr(&user, inode, name, value, SetMode::Any, false);
        match real {
            Ok(()) => {}
            Err(Error::Policy(_)) => return Ok(()),
            Err(error) if self.is_of_retention(inode, &error) => return Ok(()),
            Err(Error::NotPermitted(_)) if self.is_of_locks(inode, name, value) => return Ok(()),
            Err(Error::NoSpace) if self.plan.may_fill => return Ok(()),
            // Rules are an attribute that counts.
            Err(Error::OverQuota(_)) if self.has_quotas() => return Ok(()),
            Err(error) => return Err(self.unexpected("setxattr of a policy", error.errno(), &error.to_string())),
        }
        let listed = self.mounted().files.listxattr(&user, inode);
        let listed = self.must("listxattr", listed)?;
        let mut attributes = self.model.nodes[&inode].attributes.clone();
        attributes.retain(|name, _| !name.starts_with(b"user.stere."));
        let is_policy = |name: &Vec<u8>| name.starts_with(b"user.stere.") && name != crate::encryption::ATTRIBUTE;
        let mut read = std::collections::BTreeMap::new();
        for name in listed.into_iter().filter(is_policy) {
            let value = self.mounted().files.getxattr(&user, inode, &name);
            let value = self.must("getxattr", value)?;
            read.insert(name, value);
        }
        // What is sent to a volume that is being retired goes to its heir.
        let may_be_other = name == crate::tertiary::TIER
            && self.mounted().store.tier.media.volumes().iter().any(|entry| entry.succession.heir().is_some());
        let is_there = read.get(name).is_some_and(|read| may_be_other || read == value);
        attributes.extend(read.into_iter().map(|(name, value)| {
            let value = observe::lasting(&name, value);
            (name, value)
        }));
        if !is_there {
            return Err(Stop::Failure("a policy that was set is not there".into()));
        }
        self.model = self.changed_node(inode, |node| node.attributes = attributes);
        self.note_names();
        Ok(())
    }

    /// What rules decide is no attribute of a file: only where its content lies may change.
    pub(super) fn load_rules(&mut self, number: u8) -> Result<(), Stop> {
        let loaded = self.mounted().files.policy().load_rules(&caller(&self.machine), RULES[usize::from(number)]);
        match loaded {
            Err(Error::NoSpace) if self.plan.may_fill => Ok(()),
            loaded => self.must("loading rules", loaded.map(drop)),
        }
    }
}
