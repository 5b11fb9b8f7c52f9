//! The contents of the files of a pool: its parts put together, files opened and released, their attributes as users see them;
//! background work.
//!
//! Every part owns its state and names the parts below that it needs: `table` and `policies` at the bottom, then `orphans`,
//! `reservations` and `writeback`, then `writer`, and above it what changes files through them. None calls upwards.
//! Invariant: what is in memory of an inode is changed with its entry locked. Read next: `table.rs`, `state.rs`, `save.rs`.

use std::sync::Arc;

use stere_crypt::Keyring;
use stere_format::{FileKind, InodeValue};
use stere_policy::Resolver;
use stere_store::{Io, Store};

use crate::accounts::Accounts;
use crate::allocate::Allocator;
use crate::charging::Charging;
use crate::content_digests::DigestStore;
use crate::context::Context;
use crate::copy::Copier;
use crate::dedup::Deduplicator;
use crate::digests::Digests;
use crate::direct_writes::DirectWrites;
use crate::encode::Codec;
use crate::error::Error;
use crate::find_index::FindIndex;
use crate::following::Following;
use crate::grants::Grants;
use crate::index_building::SearchIndex;
use crate::keys;
use crate::options::Options;
use crate::orphan::Orphans;
use crate::orphans::OrphanKind;
use crate::plugins::Plugins;
use crate::policies::Policies;
use crate::read::Reader;
use crate::recalled::Recalled;
use crate::reconcile::Converter;
use crate::reservations::Reservations;
use crate::save::Writeback;
use crate::state::laid_over;
use crate::table::FileTable;
use crate::write::Writer;
use crate::written::Written;

/// The contents of all files of a pool.
pub struct Files {
    store: Arc<Store>,
    codec: Arc<Codec>,
    accounts: Arc<Accounts>,
    following: Arc<Following>,
    grants: Arc<Grants>,
    pub table: Arc<FileTable>,
    pub policies: Arc<Policies>,
    pub orphans: Arc<Orphans>,
    pub reservations: Arc<Reservations>,
    pub recalled: Arc<Recalled>,
    pub written: Arc<Written>,
    pub writeback: Arc<Writeback>,
    pub writer: Arc<Writer>,
    pub direct_writes: DirectWrites,
    pub reader: Reader,
    pub allocator: Allocator,
    pub copier: Copier,
    pub converter: Converter,
    pub deduplicator: Deduplicator,
    pub charging: Arc<Charging>,
    pub digests: DigestStore,
    pub search_index: SearchIndex,
}

/// What looks at every transaction before it takes effect.
struct Watchers {
    accounts: Arc<Accounts>,
    following: Arc<Following>,
    digests: Arc<Digests>,
    index: Arc<FindIndex>,
}

impl Watchers {
    fn load(store: &Store, plugins: &Arc<Plugins>, resolver: &Arc<Resolver>) -> Result<Watchers, Error> {
        let following = Arc::new(Following::load(store, plugins.clone(), resolver.clone())?);
        let (digests, index) = (Arc::new(Digests::load(store)?), Arc::new(FindIndex::load(store)?));
        let accounts = Accounts::load(store)?;
        let (counting, noting, telling) = (accounts.clone(), following.clone(), digests.clone());
        let indexing = index.clone();
        store.set_settler(Box::new(move |transaction| {
            indexing.settle(transaction)?;
            telling.settle(transaction)?;
            counting.settle(transaction)?;
            noting.settle(transaction)
        }));
        Ok(Watchers { accounts, following, digests, index })
    }
}

impl Files {
    /// Contents over `store`. Reads the list of orphans, and frees none of them yet (see `step`).
    pub fn new(store: Arc<Store>, options: Options) -> Result<Files, Error> {
        let Options { default_class, dirty_bytes_max, dirty_steps_max, encryption_salt, plugin_loader, coders } =
            options;
        let resolver = Arc::new(Resolver::new(default_class));
        let plugins = Arc::new(Plugins::new(plugin_loader));
        let keyring = Arc::new(Keyring::new(encryption_salt));
        let Watchers { accounts, following, digests, index } = Watchers::load(&store, &plugins, &resolver)?;
        let codec = Arc::new(Codec::new(store.clone(), keyring.clone(), plugins.clone(), coders));
        let policies = Arc::new(Policies { store: store.clone(), resolver, keyring, plugins, default_class });
        let grants = Arc::new(Grants { store: store.clone(), accounts: accounts.clone() });
        let charging = Arc::new(Charging { store: store.clone(), accounts: accounts.clone() });
        let table = Arc::new(FileTable::new());
        let orphans = Arc::new(Orphans::load(store.clone(), table.clone(), grants.clone())?);
        let reservations = Arc::new(Reservations::load(store.clone(), policies.clone(), orphans.clone())?);
        let (written, recalled) = (Arc::new(Written::new(store.clone())), Arc::new(Recalled::default()));
        let writeback = Arc::new(Writeback {
            store: store.clone(),
            table: table.clone(),
            policies: policies.clone(),
            codec: codec.clone(),
            grants: grants.clone(),
            orphans: orphans.clone(),
            following: following.clone(),
            written: written.clone(),
            dirty_bytes_max,
            dirty_steps_max,
        });
        let writer = Arc::new(Writer {
            store: store.clone(),
            table: table.clone(),
            policies: policies.clone(),
            codec: codec.clone(),
            grants: grants.clone(),
            reservations: reservations.clone(),
            writeback: writeback.clone(),
        });
        Ok(Files {
            reader: Reader {
                store: store.clone(),
                table: table.clone(),
                codec: codec.clone(),
                recalled: recalled.clone(),
            },
            direct_writes: DirectWrites::new(&writer),
            allocator: Allocator::new(&writer),
            copier: Copier::new(&writer),
            converter: Converter::new(&writeback, charging.clone()),
            deduplicator: Deduplicator { store: store.clone(), table: table.clone(), orphans: orphans.clone() },
            digests: DigestStore::new(&writeback, digests),
            search_index: SearchIndex { store: store.clone(), index },
            store,
            codec,
            accounts,
            following,
            grants,
            table,
            policies,
            orphans,
            reservations,
            recalled,
            written,
            writeback,
            writer,
            charging,
        })
    }

    /// The store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The pool's keys. Who reads what the pool says of them puts it there.
    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.policies.keyring
    }

    /// What users, groups and volumes take.
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What waits for plugins.
    pub fn following(&self) -> &Following {
        &self.following
    }

    /// The pool's plugins. Who reads what the pool says of them puts it there.
    pub fn plugins(&self) -> &Arc<Plugins> {
        &self.policies.plugins
    }

    /// The policies' resolver; whoever changes a policy or moves a directory invalidates it.
    pub fn resolver(&self) -> &Resolver {
        &self.policies.resolver
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
        let removed = self.orphans.kind_of(inode) == Some(OrphanKind::Removed);
        let mut outcome = Ok(());
        if state.opens == 1 && !removed {
            outcome = match &mut state.content {
                Some(content) if content.is_dirty() => self.writeback.save_all(context, inode, content),
                _ => Ok(()),
            };
            if outcome.as_ref().is_err_and(Error::would_block) {
                return outcome;
            }
        }
        state.opens -= 1;
        if state.opens == 0 {
            state.is_kept = false;
            if self.orphans.is_removed_for_good(inode) {
                self.orphans.free_now(context, inode, &mut state);
            } else if !state.is_dirty() {
                state.content = None;
            }
        }
        outcome
    }

    /// The inode as users see it: what is on media under what is in memory. `None` when there is no such inode.
    pub fn attributes(&self, io: Io<'_>, inode: u64) -> Result<Option<InodeValue>, Error> {
        let mut value = self.own_attributes(io, inode)?;
        value.iter_mut().for_each(|value| self.direct_writes.lay_over(inode, value));
        Ok(value)
    }

    /// The same without what others write past this machine.
    fn own_attributes(&self, io: Io<'_>, inode: u64) -> Result<Option<InodeValue>, Error> {
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
        let is_file = value.kind() == Some(FileKind::File);
        let in_memory = is_file && (self.table.contains(inode) || self.direct_writes.touch(inode));
        let removals_now = self.table.removals();
        assert!(removals <= removals_now, "removals are counted upwards, from {removals} to {removals_now}");
        if in_memory || removals_now != removals { self.attributes(io, inode) } else { Ok(Some(value)) }
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
        if self.grants.is_promised(inode)
            && let Some(content) = &mut state.content
        {
            // Who owns the file from now on owns what it has, too.
            self.writeback.save_all(context, inode, content)?;
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

    /// Background work: saves what has been in memory for long and frees orphans, a piece of each. Tells whether there
    /// is more to do.
    pub fn step(&self, context: &Context<'_>, budget: usize) -> Result<bool, Error> {
        let age = self.table.next_age();
        let saved = self.writeback.save_old(context, age);
        // A file that cannot be saved must not keep the room of removed ones from coming back.
        let more = self.orphans.free_some(context, budget);
        self.direct_writes.forget_late();
        self.reservations.hold_set_aside(context.io)?;
        saved.and(more)
    }

    /// Wipes a key from memory of which the keyring began to lock, when everything that was accepted under it is encrypted and
    /// handed to the store.
    pub fn finish_lock(&self, context: &Context<'_>, number: u16) -> Result<(), Error> {
        self.writeback.save_everything(context)?;
        self.policies.keyring.finish_lock(number);
        self.codec.forget_encrypted();
        Ok(())
    }
}
