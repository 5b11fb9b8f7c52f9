//! Operations on names, modes and attributes.

use std::rc::Rc;

use stere_naming::{Error, OpenFlags, SetAttributes, SetMode};

use crate::content::pattern;
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Kind, Model, Node, RenameManner};
use crate::operation::{ATTRIBUTES, POLICIES, Path, RULES, Target};
use crate::pool::{caller, superuser};
use crate::{checksums, encryption, execute, observe, plugins, policy_lists, quotas, retention, versions};

impl Model {
    pub(crate) fn changed_node(&self, inode: u64, change: impl FnOnce(&mut Node)) -> Model {
        let mut after = self.clone();
        if let Some(node) = after.nodes.get_mut(&inode) {
            change(node);
        }
        after
    }
}

pub(crate) fn made(history: &mut History, directory: u64, name: &[u8], inode: u64, node: Node) -> Result<(), Stop> {
    if history.model.nodes.contains_key(&inode) {
        return Err(Stop::Failure(format!("inode number {inode} was given out again while it is in use")));
    }
    history.model.make(directory, name, inode, Node { owner: history.machine.owner(), ..node });
    history.note_durable(inode);
    history.note_names();
    Ok(())
}

pub(crate) fn create(history: &mut History, path: Path, slot: u8) -> Result<(), Stop> {
    history.close(slot)?;
    // What that was the last of counts no more.
    quotas::watch_quotas(history)?;
    let Some((directory, name)) = execute::parent_of(history, path)? else { return Ok(()) };
    let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
    let real = history.mounted().files.create(&caller(&history.machine), directory, name, 0o666, flags);
    let right = history.model.may_make(directory, name).and(quotas::check_making(history, Some((directory, name)), 0));
    let Some((attributes, handle)) = history.expect("create", real, right)? else { return Ok(()) };
    let inode = attributes.inode;
    made(history, directory, name, inode, Node::new(Kind::File(Rc::default()), 0o644))?;
    history.model.open(inode);
    history.slots[usize::from(slot)] = Some(Slot { inode, handle });
    history.model.check_attributes(&attributes)
}

pub(crate) fn tmpfile(history: &mut History, directory: u8, slot: u8) -> Result<(), Stop> {
    history.close(slot)?;
    quotas::watch_quotas(history)?;
    let Some(directory) = execute::directory_inode(history, directory)? else { return Ok(()) };
    let flags = OpenFlags { write: true, truncate: false, exclusive: false, read: false };
    let real = history.mounted().files.tmpfile(&caller(&history.machine), directory, 0o600, flags);
    let Some((attributes, handle)) = history.expect("tmpfile", real, quotas::check_inode_room(history))? else {
        return Ok(());
    };
    let mut node = Node::new(Kind::File(Rc::default()), 0o600);
    (node.nlink, node.opens, node.nameless) = (0, 1, true);
    node.owner = history.machine.owner();
    history.model.nodes.insert(attributes.inode, node);
    history.note_durable(attributes.inode);
    history.slots[usize::from(slot)] = Some(Slot { inode: attributes.inode, handle });
    history.model.check_attributes(&attributes)
}

pub(crate) fn open(history: &mut History, path: Path, slot: u8, truncate: bool) -> Result<(), Stop> {
    history.close(slot)?;
    let Some(inode) = execute::inode_of(history, path)? else { return Ok(()) };
    if matches!(history.model.nodes[&inode].kind, Kind::Symlink(_) | Kind::Fifo) {
        return Ok(());
    }
    let flags = OpenFlags { write: true, truncate, exclusive: false, read: false };
    let real = history.mounted().files.open(&caller(&history.machine), inode, flags);
    if history.model.is_directory(inode) {
        history.expect("open of a directory for writing", real, Err(libc::EISDIR))?;
        return Ok(());
    }
    let mut after = (*history.model.content(inode)).clone();
    if truncate {
        after.truncate(0);
    }
    let after = history.model.check_changeable(inode).map(|()| after);
    if let Some(handle) = history.expect_content("open", inode, real, after)? {
        history.model.open(inode);
        history.slots[usize::from(slot)] = Some(Slot { inode, handle });
    }
    Ok(())
}

pub(crate) fn mkdir(history: &mut History, path: Path) -> Result<(), Stop> {
    let Some((directory, name)) = execute::parent_of(history, path)? else { return Ok(()) };
    let real = history.mounted().files.mkdir(&caller(&history.machine), directory, name, 0o777);
    let right = history.model.may_make(directory, name).and(quotas::check_making(history, Some((directory, name)), 0));
    let Some(attributes) = history.expect("mkdir", real, right)? else { return Ok(()) };
    made(history, directory, name, attributes.inode, Node::new(Kind::Directory(Default::default()), 0o755))
}

pub(crate) fn symlink(history: &mut History, path: Path, length: u16) -> Result<(), Stop> {
    let Some((directory, name)) = execute::parent_of(history, path)? else { return Ok(()) };
    let target = pattern(u64::from(length), usize::from(length));
    let real = history.mounted().files.symlink(&caller(&history.machine), directory, name, &target);
    let right = history.model.may_make(directory, name);
    let right = right.and(quotas::check_making(history, Some((directory, name)), u64::from(length)));
    let Some(attributes) = history.expect("symlink", real, right)? else { return Ok(()) };
    made(history, directory, name, attributes.inode, Node::new(Kind::Symlink(target), 0o777))
}

pub(crate) fn fifo(history: &mut History, path: Path) -> Result<(), Stop> {
    let Some((directory, name)) = execute::parent_of(history, path)? else { return Ok(()) };
    let real = history.mounted().files.mknod(&caller(&history.machine), directory, name, libc::S_IFIFO | 0o644, 0);
    let right = history.model.may_make(directory, name).and(quotas::check_making(history, Some((directory, name)), 0));
    let Some(attributes) = history.expect("mknod", real, right)? else { return Ok(()) };
    made(history, directory, name, attributes.inode, Node::new(Kind::Fifo, 0o644))
}

pub(crate) fn link(history: &mut History, target: Target, path: Path) -> Result<(), Stop> {
    let inode = match target {
        Target::Slot(slot) => history.slots[usize::from(slot)].as_ref().map(|slot| slot.inode),
        Target::Path(path) => execute::inode_of(history, path)?,
    };
    let (Some(inode), Some((directory, name))) = (inode, execute::parent_of(history, path)?) else { return Ok(()) };
    // Where something counts that has several names depends on which was given last; what was locked for a name that goes stays with the
    // file (`crates/naming/tests/all/several_names.rs` has the model of that).
    if history.plan.has_accounts() || history.plan.has_lists() {
        return Ok(());
    }
    let real = history.mounted().files.link(&caller(&history.machine), inode, directory, name);
    let mut after = history.model.clone();
    let after = after.link(inode, directory, name).map(|()| after);
    match history.expect_names("link", real, after)? {
        Some(attributes) => history.model.check_attributes(&attributes),
        None => Ok(()),
    }
}

pub(crate) fn remove(history: &mut History, path: Path, as_directory: bool) -> Result<(), Stop> {
    let Some((directory, name)) = execute::parent_of(history, path)? else { return Ok(()) };
    remove_name(history, directory, name, as_directory)
}

pub(crate) fn remove_name(history: &mut History, directory: u64, name: &[u8], as_directory: bool) -> Result<(), Stop> {
    let user = caller(&history.machine);
    let real = match as_directory {
        true => history.mounted().files.rmdir(&user, directory, name),
        false => history.mounted().files.unlink(&user, directory, name),
    };
    let mut after = history.model.clone();
    let after = after.remove(directory, name, as_directory).map(|()| after);
    if matches!(real, Err(Error::NoSpace)) {
        return Err(Stop::Failure("removing a name needs no space, but found none".into()));
    }
    history.expect_names("remove", real, after)?;
    Ok(())
}

pub(crate) fn rename(history: &mut History, from: Path, to: Path, manner: RenameManner) -> Result<(), Stop> {
    let (Some(from), Some(to)) = (execute::parent_of(history, from)?, execute::parent_of(history, to)?) else {
        return Ok(());
    };
    let flags = match manner {
        RenameManner::Replace => 0,
        RenameManner::NoReplace => stere_naming::RENAME_NOREPLACE,
        RenameManner::Exchange => stere_naming::RENAME_EXCHANGE,
    };
    let real = history.mounted().files.rename(&caller(&history.machine), from.0, from.1, to.0, to.1, flags);
    let mut after = history.model.clone();
    let after = after.rename(from, to, manner).map(|()| after);
    history.expect_names("rename", real, after)?;
    Ok(())
}

pub(crate) fn list(history: &mut History, directory: u8) -> Result<(), Stop> {
    let Some(inode) = execute::directory_inode(history, directory)? else { return Ok(()) };
    let seen = observe::list(&history.mounted().files, &caller(&history.machine), inode);
    let seen = seen.map_err(|trouble| history.trouble(trouble))?;
    match &history.model.nodes[&inode].kind {
        Kind::Directory(names) if *names == seen => Ok(()),
        _ => Err(Stop::Failure(format!("readdir of {}: other names", history.model.path_of(inode)))),
    }
}

/// The inode, if it is a file or a directory.
pub(crate) fn plain_inode(history: &mut History, path: Path) -> Result<Option<u64>, Stop> {
    let inode = execute::inode_of(history, path)?;
    let model = &history.model;
    Ok(inode.filter(|inode| matches!(model.nodes[inode].kind, Kind::File(_) | Kind::Directory(_))))
}

pub(crate) fn set_mode(history: &mut History, path: Path, mode: u32) -> Result<(), Stop> {
    let Some(inode) = plain_inode(history, path)? else { return Ok(()) };
    let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    let real = history.mounted().files.setattr(&caller(&history.machine), inode, &set);
    let after = history.model.changed_node(inode, |node| node.mode = mode);
    history.expect_names("chmod", real, history.model.check_changeable(inode).map(|()| after))?;
    Ok(())
}

pub(crate) fn set_attribute(history: &mut History, path: Path, name: u8, value: &[u8]) -> Result<(), Stop> {
    let Some(inode) = plain_inode(history, path)? else { return Ok(()) };
    let name = ATTRIBUTES[usize::from(name)];
    let user = caller(&history.machine);
    let real = history.mounted().files.setxattr(&user, inode, name, value, SetMode::Any, false);
    let after = history.model.changed_node(inode, |node| drop(node.attributes.insert(name.to_vec(), value.to_vec())));
    history.expect_names("setxattr", real, history.model.check_changeable(inode).map(|()| after))?;
    Ok(())
}

pub(crate) fn remove_attribute(history: &mut History, path: Path, name: u8) -> Result<(), Stop> {
    let Some(inode) = plain_inode(history, path)? else { return Ok(()) };
    let name = ATTRIBUTES[usize::from(name)];
    let real = history.mounted().files.removexattr(&caller(&history.machine), inode, name);
    let is_there = history.model.nodes[&inode].attributes.contains_key(name);
    let after = history.model.changed_node(inode, |node| drop(node.attributes.remove(name)));
    let right = history.model.check_changeable(inode).and(if is_there { Ok(after) } else { Err(libc::ENODATA) });
    history.expect_names("removexattr", real, right)?;
    Ok(())
}

/// What combination of policies is possible is tested elsewhere; here their effect on placement is what matters.
pub(crate) fn set_policy(history: &mut History, path: Path, policy: u8) -> Result<(), Stop> {
    let Some(inode) = plain_inode(history, path)? else { return Ok(()) };
    let (name, value) = POLICIES[usize::from(policy)];
    if history.plan.budget == Budget::Tolerated && matches!(value, b"1" | b"scratch") {
        return Ok(());
    }
    if name == b"user.stere.rules" && !history.model.is_directory(inode) {
        return Ok(());
    }
    put_policy(history, inode, name, value)?;
    versions::wish_versions(history, inode, usize::from(policy) + usize::from(path.name))?;
    checksums::wish_checksum(history, inode, usize::from(policy) + usize::from(path.name))?;
    plugins::wish_plugins(history, inode, usize::from(policy) + usize::from(path.name))?;
    encryption::wish_encryption(history, inode, usize::from(policy) + usize::from(path.name))
}

/// Sets a policy, and takes over into the model what else of policies changed with it.
pub(crate) fn put_policy(history: &mut History, inode: u64, name: &[u8], value: &[u8]) -> Result<(), Stop> {
    // Others than the owner are refused, and owners are of no matter here.
    let user = superuser(&history.machine);
    let real = history.mounted().files.setxattr(&user, inode, name, value, SetMode::Any, false);
    match real {
        Ok(()) => {}
        Err(Error::Policy(_)) => return Ok(()),
        Err(error) if retention::is_of_retention(&history.model, inode, &error) => return Ok(()),
        Err(Error::NotPermitted(_)) if policy_lists::is_of_locks(history, inode, name, value) => return Ok(()),
        Err(Error::NoSpace) if history.plan.may_fill => return Ok(()),
        // Rules are an attribute that counts.
        Err(Error::OverQuota(_)) if history.quotas.are_on() => return Ok(()),
        Err(error) => return Err(history.unexpected("setxattr of a policy", error.errno(), &error.to_string())),
    }
    let listed = history.mounted().files.listxattr(&user, inode);
    let listed = history.must("listxattr", listed)?;
    let mut attributes = history.model.nodes[&inode].attributes.clone();
    attributes.retain(|name, _| !name.starts_with(b"user.stere."));
    let is_policy = |name: &Vec<u8>| name.starts_with(b"user.stere.") && name != crate::encryption::ATTRIBUTE;
    let mut read = std::collections::BTreeMap::new();
    for name in listed.into_iter().filter(is_policy) {
        let value = history.mounted().files.getxattr(&user, inode, &name);
        let value = history.must("getxattr", value)?;
        read.insert(name, value);
    }
    // What is sent to a volume that is being retired goes to its heir.
    let may_be_other = name == crate::tertiary::TIER
        && history.mounted().store.tier.media.volumes().iter().any(|entry| entry.succession.heir().is_some());
    let is_there = read.get(name).is_some_and(|read| may_be_other || read == value);
    attributes.extend(read.into_iter().map(|(name, value)| {
        let value = observe::lasting(&name, value);
        (name, value)
    }));
    if !is_there {
        return Err(Stop::Failure("a policy that was set is not there".into()));
    }
    history.model = history.model.changed_node(inode, |node| node.attributes = attributes);
    history.note_names();
    Ok(())
}

/// What rules decide is no attribute of a file: only where its content lies may change.
pub(crate) fn load_rules(history: &mut History, number: u8) -> Result<(), Stop> {
    let loaded = history.command(|files, caller| files.policy().load_rules(caller, RULES[usize::from(number)]));
    match loaded {
        Err(Error::NoSpace) if history.plan.may_fill => Ok(()),
        loaded => history.must("loading rules", loaded.map(drop)),
    }
}
