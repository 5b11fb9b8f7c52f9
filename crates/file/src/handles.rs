//! Files in memory: opened, released, saved, and their attributes as users see them; background work.
//!
//! Invariant: what is in memory of an inode is changed with its entry locked. Read next: `table.rs`, `state.rs`, `save.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use stere_crypt::Keyring;
use stere_device::BufferPool;
use stere_format::{FileKind, InodeValue};
use stere_policy::Resolver;
use stere_store::{Io, Store};

use crate::accounts::Accounts;
use crate::digests::Digests;
use crate::encoding::{Decoded, STORED_BYTES_KEPT};
use crate::error::Error;
use crate::find_index::FindIndex;
use crate::following::Following;
use crate::orphans::OrphanKind;
use crate::plugins::Plugins;
use crate::recalled::Recalled;
use crate::state::{Content, State, laid_over};
use crate::table::Table;
use crate::written::Written;
use crate::{Context, Files, Options, keys};

impl Files {
    /// Contents over `store`. Reads the list of orphans, and frees none of them yet (see `step`).
    pub fn new(store: Arc<Store>, options: Options) -> Result<Files, Error> {
        let orphans = crate::orphans::load(&store)?;
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
            stored: BufferPool::new(STORED_BYTES_KEPT),
            keyring: Arc::new(Keyring::new(options.encryption_salt)),
            plugins,
            accounts,
            following,
            digests,
            find_index,
            recalled: Recalled::default(),
            written: Written::default(),
            store,
            options,
        };
        files.hold_set_aside(Io::BLOCKING)?;
        Ok(files)
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

    /// Whether a file is open, or not all of it is saved.
    pub fn is_in_memory(&self, inode: u64) -> bool {
        self.table.contains(inode)
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
    pub(crate) fn save_old(&self, context: &Context<'_>, age: u64) -> Result<(), Error> {
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

    pub(crate) fn load<'state>(
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
}
