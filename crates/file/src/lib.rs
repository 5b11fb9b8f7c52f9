//! File contents: offsets to blobs, gathering of small writes, holes, sharing.
//!
//! A regular file is a list of extents over immutable blobs. Writes gather in memory in records of 128 KiB; a record that
//! is full, or that has to be durable, becomes a blob (or a few) and its extents change in one transaction together with
//! the size, so that a crash shows no byte the file never held. Large aligned writes skip the gathering: their bytes go
//! from the caller's slice straight to the store.
//!
//! Locks: one per inode in memory (`table`), then those of the store. Whoever must not wait (`Io::NON_BLOCKING`) gets
//! `WouldBlock` and has changed nothing that a repetition would not do again.
//! Read next: `state` and `record` (what is in memory), `extents` (what is on media), `write`, `save`, `read`.

pub mod accounts;
mod allocate;
mod charge;
mod coders;
mod copy;
mod dedup;
mod digests;
mod edges;
mod encode;
mod encrypted;
mod error;
mod extents;
mod facts;
pub mod find_index;
mod first_handle;
mod following;
mod home;
mod kept;
mod keys;
pub mod metadata;
pub mod named_in;
mod orphan;
mod pending_charges;
mod plugins;
mod policy;
mod ranges;
mod read;
mod recalled;
mod reconcile;
mod record;
mod save;
mod seek;
mod set_aside;
mod size;
mod state;
mod table;
mod versions;
mod write;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use stere_crypt::Keyring;
use stere_device::BufferPool;
use stere_format::{DeviceEntry, DeviceState, FileKind, InodeValue, Scheme, Site, Timestamp};
use stere_policy::{Class, Effective, Resolver};
use stere_store::{Io, Placement, Store};

pub use allocate::{COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, UNSHARE_RANGE, ZERO_RANGE};
pub use coders::Coders;
pub use dedup::{Deduplicated, Twins};
pub use digests::DigestKind;
pub use error::Error;
pub use facts::{StoredExtent, StoredFact, stored_extents};
pub use first_handle::FirstHandle;
pub use following::Following;
pub use kept::Unchanged;
pub use keys::{Keys, inode, inode_if_any, put_inode};
pub use orphan::{Gone, OrphanKind};
pub use orphan::{Unlink, free_empty, list_nameless, unlist};
pub use plugins::{Plugins, own_stack, set_own_stack};
use policy::says;
pub use policy::{
    check_changeable, own_locks, own_policy, own_retain, rule_decision, set_own_locks, set_own_policy, set_own_retain,
    set_rule_decision,
};
pub use read::ReadOutcome;
pub use reconcile::{Reconciled, SharedWishes};
pub use record::RECORD_BYTES;
pub use seek::Whence;
pub use set_aside::counted as preallocated_bytes;
pub use size::AttributeChange;
pub use versions::{
    HAS_VERSIONS, OF_VERSIONS, own_versions, set_own_versions, set_version_order, stored_wish, version_order, wished,
};

use accounts::Accounts;
use digests::Digests;
use encode::{AskedEncoding, Decoded, Storing};
use find_index::FindIndex;
use set_aside::SetAside;
use state::{Content, State};
use table::Table;

/// Flag of inodes that have, or had, extended attributes; the naming layer sets it.
pub const HAS_ATTRIBUTES: u32 = 1;
/// The largest size of a file.
pub const FILE_BYTES_MAX: u64 = 16 << 40;

/// How file contents behave; nothing in here is on media.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory for bytes that were written and not yet handed to the store.
    pub dirty_bytes_max: u64,
    /// Policy of what says nothing else.
    pub default_class: Class,
    /// Age steps after which unsaved changes are handed to the store.
    pub dirty_steps_max: u64,
    /// Random, and new for every mount: nonces are made of it. Without it nothing can be encrypted.
    pub encryption_salt: Option<[u8; 16]>,
    /// What runs users' plugins. Without it files that have some cannot be read or written.
    pub plugin_loader: Option<Arc<dyn stere_plugin::Loader>>,
    /// Who compresses the records of one request at once.
    pub coders: Coders,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            dirty_bytes_max: 64 << 20,
            default_class: Class::Normal,
            dirty_steps_max: 5,
            encryption_salt: None,
            plugin_loader: None,
            coders: Coders::default(),
        }
    }
}

/// Who asks, and when.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The caller's clock.
    pub now: Timestamp,
    /// How the call may use devices and media.
    pub io: Io<'a>,
}

/// The contents of all files of a pool.
pub struct Files {
    store: Arc<Store>,
    resolver: Arc<Resolver>,
    table: Table,
    options: Options,
    dirty_bytes: AtomicU64,
    /// Counts calls of `step`, as a measure of age.
    age: AtomicU64,
    orphans: Mutex<BTreeMap<u64, orphan::Orphan>>,
    orphan_count: AtomicUsize,
    freeing: Mutex<()>,
    /// Removed inodes are kept until the kernel forgets them.
    holds_removed: AtomicBool,
    set_aside: Mutex<SetAside>,
    decoded: Decoded,
    /// What was read of encoded blobs, until it is decoded.
    stored: BufferPool,
    keyring: Arc<Keyring>,
    plugins: Arc<Plugins>,
    accounts: Arc<Accounts>,
    following: Arc<Following>,
    digests: Arc<Digests>,
    find_index: Arc<FindIndex>,
    recalled: recalled::Recalled,
    written: written::Written,
}

impl Files {
    /// Contents over `store`. Reads the list of orphans, and frees none of them yet (see `step`).
    pub fn new(store: Arc<Store>, options: Options) -> Result<Files, Error> {
        let orphans = orphan::load(&store)?;
        let resolver = Arc::new(Resolver::new(options.default_class));
        let plugins = Arc::new(Plugins::new(options.plugin_loader.clone()));
        let accounts = Accounts::load(&store)?;
        let following = Arc::new(Following::load(&store, plugins.clone(), resolver.clone())?);
        let digests = Arc::new(Digests::load(&store)?);
        let find_index = Arc::new(FindIndex::load(&store)?);
        let (counting, noting, telling) = (accounts.clone(), following.clone(), digests.clone());
        let indexing = find_index.clone();
        store.set_settler(Box::new(move |transaction| {
            indexing.settle(transaction)?;
            telling.settle(transaction)?;
            counting.settle(transaction)?;
            noting.settle(transaction)
        }));
        let files = Files {
            resolver,
            table: Table::new(),
            dirty_bytes: AtomicU64::new(0),
            age: AtomicU64::new(0),
            orphan_count: AtomicUsize::new(orphans.len()),
            orphans: Mutex::new(orphans),
            freeing: Mutex::default(),
            holds_removed: AtomicBool::new(false),
            set_aside: Mutex::default(),
            decoded: Decoded::default(),
            stored: BufferPool::new(encode::STORED_BYTES_KEPT),
            keyring: Arc::new(Keyring::new(options.encryption_salt)),
            plugins,
            accounts,
            following,
            digests,
            find_index,
            recalled: recalled::Recalled::default(),
            written: written::Written::default(),
            store,
            options,
        };
        files.hold_set_aside(Io::BLOCKING)?;
        Ok(files)
    }

    /// The store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The pool's keys. Who reads what the pool says of them puts it there.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    /// What users, groups and volumes take.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What waits for plugins.
    pub fn following(&self) -> &Following {
        &self.following
    }

    /// The policies' resolver; whoever changes a policy or moves a directory invalidates it.
    pub fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Notes one more open handle of an inode that exists.
    pub fn open(&self, context: &Context<'_>, inode: u64) -> Result<InodeValue, Error> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        let value = self.store.view(context.io, |view| keys::inode(view, inode))?;
        state.opens += 1;
        Ok(value)
    }

    /// Lets one handle go. The last one saves what was written; an inode without a name is freed.
    pub fn release(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        if state.opens == 0 {
            return Err(Error::Invalid("the inode is not open; release a handle once"));
        }
        let removed = self.orphan_kind(inode) == Some(OrphanKind::Removed);
        let mut outcome = Ok(());
        if state.opens == 1 && !removed {
            outcome = match &mut state.content {
                Some(content) if content.is_dirty() => self.save_all(context, inode, content),
                _ => Ok(()),
            };
            if outcome.as_ref().is_err_and(Error::would_block) {
                return outcome;
            }
        }
        state.opens -= 1;
        if state.opens == 0 {
            state.is_kept = false;
            if self.is_removed_for_good(inode) {
                self.free_orphan_now(context, inode, &mut state);
            } else if !state.is_dirty() {
                state.content = None;
            }
        }
        outcome
    }

    /// Saves everything of one file; the caller commits.
    pub fn save(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        let Some(held) = self.table.find(inode) else { return Ok(()) };
        let mut state = held.write(context.io)?;
        if state.opens == 0 && self.is_removed_for_good(inode) {
            return Ok(());
        }
        match &mut state.content {
            Some(content) if content.is_dirty() => self.save_all(context, inode, content),
            _ => Ok(()),
        }
    }

    /// Saves everything of all files; the caller commits. The first error is told after all files have been tried.
    pub fn save_everything(&self, context: &Context<'_>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for inode in self.table.inodes() {
            let saved = self.save(context, inode);
            if saved.as_ref().is_err_and(Error::would_block) {
                return saved;
            }
            outcome = outcome.and(saved);
        }
        outcome
    }

    /// The inode as users see it: what is on media under what is in memory. `None` when there is no such inode.
    pub fn attributes(&self, io: Io<'_>, inode: u64) -> Result<Option<InodeValue>, Error> {
        let read = || self.store.view(io, |view| keys::inode_if_any(view, inode));
        let Some(held) = self.table.find(inode) else { return read() };
        let state = held.read(io)?;
        let value = read()?;
        Ok(value.map(|value| laid_over(value, &state)))
    }

    /// As `attributes` for an inode the caller's own look-up found; `removals` is the table's count from before it.
    pub fn refresh(
        &self,
        io: Io<'_>,
        inode: u64,
        value: InodeValue,
        removals: u64,
    ) -> Result<Option<InodeValue>, Error> {
        let in_memory = value.kind() == Some(FileKind::File) && self.table.contains(inode);
        if in_memory || self.table.removals() != removals { self.attributes(io, inode) } else { Ok(Some(value)) }
    }

    /// How many inodes have left memory so far; see `refresh`.
    pub fn removals(&self) -> u64 {
        self.table.removals()
    }

    /// Changes an inode's attributes in a transaction, with what is in memory of it locked. `change` gets the inode as users
    /// see it; times it sets replace those in memory.
    pub fn change_attributes(
        &self,
        context: &Context<'_>,
        inode: u64,
        change: &dyn Fn(&mut stere_store::Transaction<'_>, &mut InodeValue) -> Result<(), Error>,
    ) -> Result<InodeValue, Error> {
        let held = self.table.hold(inode);
        let mut state = held.write(context.io)?;
        if self.is_promised(inode)
            && let Some(content) = &mut state.content
        {
            // Who owns the file from now on owns what it has, too.
            self.save_all(context, inode, content)?;
        }
        let seen = self.store.update(context.io, |transaction| {
            let stored = keys::inode(transaction, inode)?;
            let (stored_size, stored_blocks) = (stored.size, stored.blocks_bytes);
            let mut value = laid_over(stored, &state);
            let (seen_size, seen_blocks) = (value.size, value.blocks_bytes);
            change(transaction, &mut value)?;
            // The size on media changes only together with the data.
            (value.size, value.blocks_bytes) = (stored_size, stored_blocks);
            keys::put_inode(transaction, inode, &value);
            (value.size, value.blocks_bytes) = (seen_size, seen_blocks);
            Ok::<_, Error>(value)
        })?;
        if let Some(content) = &mut state.content {
            (content.modified, content.changed) = (None, None);
        }
        Ok(seen)
    }

    /// Runs `change` with what is in memory of the inode locked.
    pub fn locked<T>(&self, context: &Context<'_>, inode: u64, change: impl FnOnce() -> T) -> Result<T, Error> {
        let held = self.table.hold(inode);
        let _state = held.write(context.io)?;
        Ok(change())
    }

    /// The policy that holds for an inode.
    pub fn effective(&self, keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<Effective, Error> {
        policy::effective(&self.resolver, keys, inode, value)
    }

    /// The policy of what is made in a directory, before any rules; from memory, once it was asked for.
    pub fn effective_below(&self, keys: &impl Keys, directory: u64) -> Result<Effective, Error> {
        self.resolver.directory(directory, &mut |number| {
            Ok::<_, Error>(keys::inode_if_any(keys, number)?.map(|value| says(&value)))
        })
    }

    /// How new data of a file is stored.
    fn storing(&self, io: Io<'_>, inode: u64) -> Result<Storing, Error> {
        let effective = self.store.view(io, |view| {
            let value = keys::inode(view, inode)?;
            self.effective(view, inode, &value)
        })?;
        self.storing_of(&effective)
    }

    /// The same for data that somebody writes now: not if the file is retained.
    fn storing_change(&self, context: &Context<'_>, inode: u64) -> Result<Storing, Error> {
        let effective = self.store.view(context.io, |view| {
            let value = keys::inode(view, inode)?;
            check_changeable(&value, context.now)?;
            self.effective(view, inode, &value)
        })?;
        self.storing_of(&effective)
    }

    /// Refuses to change a file that is retained; asked with the file locked, so that this holds until it is changed.
    fn check_not_retained(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        self.store.view(context.io, |view| check_changeable(&keys::inode(view, inode)?, context.now))
    }

    /// Whether a file is open, or not all of it is saved.
    pub fn is_in_memory(&self, inode: u64) -> bool {
        self.table.contains(inode)
    }

    /// What a policy asks for.
    fn storing_of(&self, effective: &Effective) -> Result<Storing, Error> {
        let (placement, compression) = (self.placement_of(effective), effective.wish.compression);
        let stack = match self.plugins.codecs(effective.plugins) {
            0 => None,
            number => Some((number, self.plugins.stack(number).map_err(Error::Plugin)?)),
        };
        let sealing = self.sealing(effective.wish.encryption)?;
        let record_bytes = effective.wish.record.bytes().min(RECORD_BYTES).min(self.store.blob_bytes_max() as u64);
        let checksum = encode::kind_of(effective.wish.checksum);
        Ok(Storing { placement, compression, sealing, stack, record_bytes, checksum })
    }

    /// The encoding that a policy asks for, whether or not its key can be used now.
    fn asked(&self, effective: &Effective) -> AskedEncoding {
        let key = self.keyring.meant(effective.wish.encryption).ok().flatten().unwrap_or(0);
        let (compression, checksum) = (effective.wish.compression, encode::kind_of(effective.wish.checksum));
        AskedEncoding { compression, key, stack: self.plugins.codecs(effective.plugins), checksum }
    }

    /// Where a policy wants data; the store fits it to the devices there are.
    fn placement_of(&self, effective: &Effective) -> Placement {
        let wish = &effective.wish;
        let devices = match wish.scheme.depends_on_devices() {
            true => self.devices_for(effective),
            false => stere_format::WIDTH_MAX,
        };
        let site = Site { on: wish.on, only: wish.only };
        let (data, parity) = wish.scheme.scheme(devices);
        Placement { scheme: Scheme { data, parity }, class: wish.class.code(), site }
    }

    /// The scheme that new data of a policy gets with the devices there are.
    pub fn scheme_now(&self, effective: &Effective) -> Scheme {
        self.store.fit_for(self.placement_of(effective))
    }

    /// Where a policy wants data.
    pub fn site_of(&self, effective: &Effective) -> Site {
        self.placement_of(effective).site
    }

    /// Devices that can take data of a policy.
    pub fn devices_for(&self, effective: &Effective) -> usize {
        match effective.wish.only {
            0 => self.device_count(),
            only => self.store.devices_of_place(only).max(1),
        }
    }

    /// Devices that can take data; hot spares take none.
    pub fn device_count(&self) -> usize {
        let is_spare = |entry: &DeviceEntry| DeviceState::from_code(entry.state) == Some(DeviceState::Spare);
        self.store.device_entries().iter().filter(|entry| !is_spare(entry)).count().max(1)
    }

    /// Background work: saves what has been in memory for long and frees orphans, a piece of each. Tells whether there
    /// is more to do.
    pub fn step(&self, context: &Context<'_>, budget: usize) -> Result<bool, Error> {
        let age = self.age.fetch_add(1, Ordering::AcqRel) + 1;
        let saved = self.save_old(context, age);
        // A file that cannot be saved must not keep the room of removed ones from coming back.
        let more = self.free_some_orphans(context, budget);
        self.hold_set_aside(context.io)?;
        saved.and(more)
    }

    /// Saves what has been in memory for long; the first error is told after all have been tried.
    fn save_old(&self, context: &Context<'_>, age: u64) -> Result<(), Error> {
        let mut outcome = Ok(());
        for inode in self.table.inodes() {
            let Some(held) = self.table.find(inode) else { continue };
            let Ok(mut state) = held.write(Io::NON_BLOCKING) else { continue };
            if state.opens == 0 && self.is_removed_for_good(inode) {
                continue;
            }
            let Some(content) = &mut state.content else { continue };
            if content.is_dirty() && content.dirty_since + self.options.dirty_steps_max <= age {
                outcome = outcome.and(self.save_all(context, inode, content));
            }
        }
        outcome
    }

    /// Memory held by bytes that are not yet handed to the store.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Acquire)
    }

    fn load<'state>(
        &self,
        context: &Context<'_>,
        inode: u64,
        state: &'state mut State,
    ) -> Result<&'state mut Content, Error> {
        if self.orphan_kind(inode) == Some(OrphanKind::Truncating) {
            self.finish_truncation(context, inode)?;
        }
        if state.content.is_none() {
            let content = self.store.view(context.io, |view| {
                let value = keys::inode(view, inode)?;
                match value.kind() {
                    Some(FileKind::File) => Content::load(view, inode, &value),
                    Some(FileKind::Directory) => Err(Error::IsDirectory(inode)),
                    _ => Err(Error::NotAFile(inode)),
                }
            })?;
            state.content = Some(content);
        }
        Ok(state.content.as_mut().expect("loaded just now"))
    }

    fn note_memory(&self, before: u64, after: u64) {
        if after >= before {
            self.dirty_bytes.fetch_add(after - before, Ordering::AcqRel);
        } else {
            let was = self.dirty_bytes.fetch_sub(before - after, Ordering::AcqRel);
            assert!(was >= before - after, "no more memory becomes free than was counted");
        }
    }

    fn note_dirty(&self, content: &mut Content) {
        if !content.is_dirty() {
            content.dirty_since = self.age.load(Ordering::Acquire);
        }
    }
}

/// The inode with what is in memory of it laid over.
fn laid_over(value: InodeValue, state: &State) -> InodeValue {
    match &state.content {
        Some(content) => laid_over_content(value, content),
        None => value,
    }
}

fn laid_over_content(mut value: InodeValue, content: &Content) -> InodeValue {
    value.size = content.size;
    value.blocks_bytes += content.unsaved_growth_bytes();
    value.mtime = content.modified.unwrap_or(value.mtime);
    value.ctime = content.changed.map_or(value.ctime, |changed| changed.max(value.ctime));
    value
}
