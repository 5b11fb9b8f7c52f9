//! The directories of versions: `.versions` below a directory, in it one for each name, in those the versions by moment.
//!
//! The moment is that until which the file held it. A directory that is removed leaves its own `.versions` under its name in that
//! of the directory above, by the moment too. Names are encrypted as those of the directory that they belong to, but for
//! `.versions` itself.

use std::ops::ControlFlow;

use stere_file::{HAS_VERSIONS, Keys, OF_VERSIONS, inode_if_any, set_version_order};
use stere_format::dirent::DirentView;
use stere_format::{FileKind, InodePolicy, InodeValue, Key, Timestamp};
use stere_namespace::call::{Caller, ROOT};
use stere_namespace::error::Error;
use stere_namespace::inode::VERSION_DIRECTORY_NAMES;
use stere_namespace::names::{Found, damaged, is_empty};
use stere_namespace::{acl, classes, tiers, xattr};
use stere_policy::{Versions as Wanted, show_moment};
use stere_store::Transaction;

use super::OfOne;
use crate::versions::Versions;

/// Moments that are tried for one that is free.
const MOMENTS_MAX: u32 = 4096;
/// Places in the order from where on versions have a moment at which they go, and from where on they have none.
pub const ORDER_BY_MOMENT: u64 = Key::VERSION_ORDER_FIRST;
const ORDER_OF_REST: u64 = 1 << 48;

/// The place in the order of a version that was made at a moment, seconds since 1970, and is kept so long.
pub fn order(made: i64, seconds: Option<u64>) -> u64 {
    let made = u64::try_from(made).unwrap_or(0);
    let place = match seconds {
        Some(seconds) => (ORDER_BY_MOMENT + made).saturating_add(seconds).min(ORDER_OF_REST - 1),
        None => ORDER_OF_REST + made,
    };
    assert!(place >= ORDER_BY_MOMENT, "a version has no place before all moments, at {place}");
    assert_eq!(seconds.is_some(), place < ORDER_OF_REST, "what has a moment at which it goes goes before the rest");
    place
}

/// A moment as a name: sorted like the moments, and without what shells and others take for something else.
pub fn moment_name(at: Timestamp) -> String {
    format!("{}.{:09}", show_moment(at.seconds).replace(' ', "_").replace(':', "-"), at.nanoseconds)
}

/// The next moment that can be told apart.
fn next_moment(at: Timestamp) -> Timestamp {
    assert!(at.nanoseconds < 1_000_000_000, "a moment has {} nanoseconds", at.nanoseconds);
    match at.nanoseconds {
        999_999_999 => Timestamp { seconds: at.seconds + 1, nanoseconds: 0 },
        nanoseconds => Timestamp { nanoseconds: nanoseconds + 1, ..at },
    }
}

impl Versions {
    /// Whether a directory has no names but that of its versions.
    pub fn is_empty_of_names(&self, keys: &impl Keys, directory: u64) -> Result<bool, Error> {
        let value = stere_namespace::inode::directory(keys, directory)?;
        let Some(version_directory) = self.core.version_directory(keys, directory, &value)? else {
            return is_empty(keys, directory);
        };
        let mut is_alone = true;
        keys.visit(Key::dirent(directory, 0), Key::dirent(directory, u64::MAX), &mut |key, _| {
            is_alone = key.position == version_directory.sequence;
            if is_alone { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(is_alone)
    }

    /// The same directory, made if there is none; none where both names are taken.
    fn version_directory_for(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        at: u64,
    ) -> Result<Option<u64>, Error> {
        let mut above = stere_namespace::inode::directory(transaction, at)?;
        if let Some(found) = self.core.version_directory(transaction, at, &above)? {
            return Ok(Some(found.inode));
        }
        let mut free = None;
        for name in VERSION_DIRECTORY_NAMES {
            if free.is_none() && self.core.names.find(transaction, at, name)?.is_none() {
                free = Some(name);
            }
        }
        let Some(name) = free else { return Ok(None) };
        above.flags |= HAS_VERSIONS;
        let made = self.make_directory(transaction, caller, (at, &mut above), name, false)?;
        Ok(Some(made))
    }

    /// A directory of versions. Whoever may look into the directory above may look into it.
    fn make_directory(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        (above, above_value): (u64, &mut InodeValue),
        name: &[u8],
        is_sealed: bool,
    ) -> Result<u64, Error> {
        let key = if is_sealed { self.encryption.name_key(transaction, above, above_value)? } else { None };
        let made = transaction.allocate_inode();
        let mode = FileKind::Directory.mode_bits() | above_value.mode & 0o555;
        let mut value = InodeValue::new(mode, above_value.uid, above_value.gid, above, caller.now);
        (value.nlink, value.flags, value.rdev) = (2, OF_VERSIONS, hint(above_value));
        value.volume = above_value.volume;
        // Versions count as files do, and are never what a quota refuses.
        transaction.set_charge_pending();
        if let Some(access) = acl::stored_access(transaction, above, above_value)? {
            xattr::put(transaction, made, acl::ACCESS, &access)?;
            value.flags |= above_value.flags & acl::HAS_ACCESS | xattr::HAS_ATTRIBUTES;
        }
        self.core.names.insert(transaction, above, above_value, name, key.as_deref(), made, FileKind::Directory)?;
        above_value.nlink = above_value.nlink.checked_add(1).ok_or(Error::TooManyLinks)?;
        stere_file::put_inode(transaction, above, above_value);
        stere_file::put_inode(transaction, made, &value);
        Ok(made)
    }

    /// The directory for the versions of a name.
    fn drawer_for(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        (directory, name): (u64, &[u8]),
    ) -> Result<Option<u64>, Error> {
        let Some(version_directory) = self.version_directory_for(transaction, caller, directory)? else {
            return Ok(None);
        };
        let mut value = stere_namespace::inode::directory(transaction, version_directory)?;
        match self.core.names.find(transaction, version_directory, name)? {
            Some(found) => Ok(Some(found.inode)),
            None => self.make_directory(transaction, caller, (version_directory, &mut value), name, true).map(Some),
        }
    }

    /// Enters an inode under the caller's moment, or the first behind it that is free.
    fn enter_moment(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        drawer: u64,
        (inode, value): (u64, &mut InodeValue),
        kind: FileKind,
    ) -> Result<(), Error> {
        let mut above = stere_namespace::inode::directory(transaction, drawer)?;
        let mut at = caller.now;
        let mut name = moment_name(at);
        for _ in 0..MOMENTS_MAX {
            if self.core.names.find(transaction, drawer, name.as_bytes())?.is_none() {
                break;
            }
            at = next_moment(at);
            name = moment_name(at);
        }
        assert!(at >= caller.now, "a version is as old as its change, or a moment younger");
        let key = self.encryption.name_key(transaction, drawer, &above)?;
        (value.parent, value.rdev) = (drawer, hint(&above));
        self.core.names.insert(transaction, drawer, &mut above, name.as_bytes(), key.as_deref(), inode, kind)?;
        if kind == FileKind::Directory {
            above.nlink = above.nlink.checked_add(1).ok_or(Error::TooManyLinks)?;
        }
        stere_file::put_inode(transaction, drawer, &above);
        transaction.set_charge_pending();
        self.quotas.count_where_it_lies(transaction, inode, value)?;
        stere_file::put_inode(transaction, inode, value);
        Ok(())
    }

    /// Files an inode as a version of a name. `own` is what the file says of versions itself. False where there is no place for it.
    pub(super) fn shelve(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        place: (u64, &[u8]),
        inode: u64,
        value: &mut InodeValue,
        own: OfOne,
    ) -> Result<bool, Error> {
        let Some(drawer) = self.drawer_for(transaction, caller, place)? else { return Ok(false) };
        let mut above = stere_namespace::inode::directory(transaction, drawer)?;
        if OfOne::noted(&above) != own {
            own.note(&mut above);
            stere_file::put_inode(transaction, drawer, &above);
        }
        let wanted = self.keeps(transaction, above.parent, drawer, &above)?;
        let (count, seconds) = match wanted {
            Some(Wanted::Kept { count, seconds }) => (count, seconds),
            _ => (None, None),
        };
        let place = order(caller.now.seconds, seconds);
        (value.nlink, value.ctime) = (1, caller.now);
        value.flags |= OF_VERSIONS;
        set_version_order(value, place);
        assert!(place >= ORDER_BY_MOMENT && value.nlink == 1, "a version has one name and its place in the order");
        self.enter_moment(transaction, caller, drawer, (inode, value), FileKind::File)?;
        transaction.put(Key::version(place, inode), &[1]);
        if count.is_some() {
            transaction.put(Key::versions_many(drawer), &[1]);
        }
        Ok(true)
    }

    /// A directory with no names but that of its versions is to be removed: they move to those of the directory above. Tells whether
    /// there were any. What is set on the directory itself goes with them.
    pub fn shelve_directory(
        &self,
        transaction: &mut Transaction<'_>,
        caller: &Caller<'_>,
        place: (u64, &[u8]),
        inode: u64,
    ) -> Result<bool, Error> {
        let mut value = stere_namespace::inode::directory(transaction, inode)?;
        let Some(version_directory) = self.core.version_directory(transaction, inode, &value)? else {
            return Ok(false);
        };
        let Some(drawer) = self.drawer_for(transaction, caller, place)? else { return Err(Error::NotEmpty) };
        self.core.names.remove(transaction, inode, &mut value, &version_directory)?;
        value.nlink = value.nlink.saturating_sub(1);
        value.flags &= !HAS_VERSIONS;
        stere_file::put_inode(transaction, inode, &value);
        let mut moved = stere_namespace::inode::directory(transaction, version_directory.inode)?;
        let before = classes::Named::of(&moved);
        assert_ne!(moved.flags & OF_VERSIONS, 0, "what is filed with versions belongs to them");
        let own = moved.policy.and_then(|policy| policy.versions);
        moved.policy =
            value.policy.map(|policy| InodePolicy { retain: None, versions: policy.versions.or(own), ..policy });
        moved.policy = moved.policy.filter(|policy| *policy != InodePolicy::default());
        classes::index_member(transaction, version_directory.inode, before, classes::Named::of(&moved));
        tiers::note_tiered(
            transaction,
            version_directory.inode,
            [stere_file::own_policy(&moved), stere_file::own_locks(&moved)],
        )?;
        moved.ctime = caller.now;
        self.enter_moment(transaction, caller, drawer, (version_directory.inode, &mut moved), FileKind::Directory)?;
        Ok(true)
    }

    /// Takes directories of versions away that nothing is in any more, from this one upward.
    pub fn prune(&self, transaction: &mut Transaction<'_>, from: u64) -> Result<(), Error> {
        let mut at = from;
        while at != ROOT {
            let Some(value) = inode_if_any(transaction, at)? else { return Ok(()) };
            if value.flags & OF_VERSIONS == 0 || !is_empty(transaction, at)? {
                return Ok(());
            }
            let parent = value.parent;
            let mut above = stere_namespace::inode::directory(transaction, parent)?;
            let found = entry_of(transaction, at, &value)?;
            self.core.names.remove(transaction, parent, &mut above, &found)?;
            above.nlink = above.nlink.saturating_sub(1);
            if above.flags & OF_VERSIONS == 0 {
                above.flags &= !HAS_VERSIONS;
            }
            stere_file::put_inode(transaction, parent, &above);
            classes::index_member(transaction, at, classes::Named::of(&value), classes::Named::default());
            transaction.delete(Key::versions_many(at));
            stere_file::free_empty(transaction, at, value)?;
            at = parent;
        }
        Ok(())
    }

    /// A walk over what a change of policy concerns met a file: what it or its rules say now holds for its versions too.
    pub fn pass_versions_on(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        if !self.is_used() {
            return Ok(());
        }
        match self.core.store.view(caller.io, |view| inode_if_any(view, inode))? {
            Some(value) if value.nlink > 0 => self.pass_on(caller, inode, &value),
            _ => Ok(()),
        }
    }

    /// What a file says of versions itself holds for those of its name from now on.
    pub fn pass_on(&self, caller: &Caller<'_>, inode: u64, value: &InodeValue) -> Result<(), Error> {
        let Some((directory, name)) = self.place_of(caller.io, inode, value)? else { return Ok(()) };
        self.core.store.update(caller.io, |transaction| {
            let above = stere_namespace::inode::directory(transaction, directory)?;
            let Some(version_directory) = self.core.version_directory(transaction, directory, &above)? else {
                return Ok(());
            };
            let Some(drawer) = self.core.names.find(transaction, version_directory.inode, &name)? else {
                return Ok(());
            };
            let Some(now) = inode_if_any(transaction, inode)? else { return Ok(()) };
            let mut value = stere_namespace::inode::directory(transaction, drawer.inode)?;
            let own = self.kept_of_own(transaction, inode, &now)?;
            if OfOne::noted(&value) == own {
                return Ok(());
            }
            own.note(&mut value);
            stere_file::put_inode(transaction, drawer.inode, &value);
            self.core.reconcile.note(transaction, drawer.inode)
        })
    }

    /// An inode with a mode, an owner or a group that changed: whoever may look into a directory may look into its versions.
    pub fn follow_access(
        &self,
        transaction: &mut Transaction<'_>,
        inode: u64,
        value: &InodeValue,
    ) -> Result<(), Error> {
        if value.flags & HAS_VERSIONS == 0 || value.kind() != Some(FileKind::Directory) {
            return Ok(());
        }
        let Some(version_directory) = self.core.version_directory(transaction, inode, value)? else { return Ok(()) };
        let mut below = stere_namespace::inode::directory(transaction, version_directory.inode)?;
        (below.uid, below.gid) = (value.uid, value.gid);
        below.mode = below.mode & !0o7777 | value.mode & 0o555;
        stere_file::put_inode(transaction, version_directory.inode, &below);
        Ok(())
    }
}

/// Where an inode's name will be that is inserted next: a hint, which is looked at before it is believed.
fn hint(above: &InodeValue) -> u32 {
    above.next_dirent_sequence.max(InodeValue::DIRENT_SEQUENCE_FIRST) as u32
}

/// The name of what belongs to versions, in the directory above it.
pub fn entry_of(keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Found, Error> {
    let found = |key: &Key, bytes: &[u8]| match DirentView::decode(bytes) {
        Ok(entry) if entry.inode == inode => {
            Ok(Some(Found { sequence: key.position, inode, kind: entry.kind, key: entry.key }))
        }
        Ok(_) => Ok(None),
        Err(error) => Err(damaged(value.parent, &error)),
    };
    let key = Key::dirent(value.parent, u64::from(value.rdev));
    if let Some(bytes) = keys.value(&key)?
        && let Some(hit) = found(&key, &bytes)?
    {
        return Ok(hit);
    }
    let mut outcome = Ok(None);
    keys.visit(Key::dirent(value.parent, 0), Key::dirent(value.parent, u64::MAX), &mut |key, bytes| {
        outcome = found(key, bytes);
        if matches!(outcome, Ok(None)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?.ok_or_else(|| Error::Damaged(format!("inode {inode} has no name; unmount and run `stere check`")))
}
