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
mod block;
mod charge;
mod coders;
mod content_digests;
mod copy;
mod dedup;
mod digests;
mod edges;
mod encode;
mod encoding;
mod encrypted;
mod error;
mod extents;
mod facts;
pub mod find_index;
mod first_handle;
mod following;
mod grants;
mod handles;
mod holding;
mod home;
mod index_building;
mod kept;
mod keys;
pub mod metadata;
mod metadata_counting;
pub mod named_in;
mod orphan;
mod orphans;
mod pending_charges;
mod plugins;
mod policy;
mod ranges;
mod read;
mod recall;
mod recalled;
mod reconcile;
mod record;
mod save;
mod sealing;
mod seek;
mod set_aside;
mod size;
mod state;
mod stored_facts;
mod stored_grants;
mod storing;
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
use stere_format::{DeviceEntry, DeviceState, InodeValue, Scheme, Site, Timestamp};
use stere_policy::{Class, Effective, Resolver};
use stere_store::{Io, Placement, Store};

pub use allocate::{COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, UNSHARE_RANGE, ZERO_RANGE};
pub use coders::Coders;
pub use dedup::{Deduplicated, Twins};
pub use digests::DigestKind;
pub use error::Error;
pub use facts::{StoredExtent, stored_extents};
pub use first_handle::FirstHandle;
pub use following::Following;
pub use kept::Unchanged;
pub use keys::{Keys, inode, inode_if_any, put_inode};
pub use metadata::HAS_ATTRIBUTES;
pub use orphan::{Unlink, free_empty, list_nameless, unlist};
pub use orphans::{Gone, OrphanKind};
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
pub use stored_facts::StoredFact;
pub use versions::{
    HAS_VERSIONS, OF_VERSIONS, own_versions, set_own_versions, set_version_order, stored_wish, version_order, wished,
};

use accounts::Accounts;
use digests::Digests;
use encoding::Decoded;
use find_index::FindIndex;
use set_aside::SetAside;
use state::Content;
use table::Table;

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
    orphans: Mutex<BTreeMap<u64, orphans::Orphan>>,
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

    /// The pool's plugins. Who reads what the pool says of them puts it there.
    pub fn plugins(&self) -> &Arc<Plugins> {
        &self.plugins
    }

    /// The policies' resolver; whoever changes a policy or moves a directory invalidates it.
    pub fn resolver(&self) -> &Resolver {
        &self.resolver
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
        self.store.places().fit_for(self.placement_of(effective))
    }

    /// Where a policy wants data.
    pub fn site_of(&self, effective: &Effective) -> Site {
        self.placement_of(effective).site
    }

    /// Devices that can take data of a policy.
    pub fn devices_for(&self, effective: &Effective) -> usize {
        match effective.wish.only {
            0 => self.device_count(),
            only => self.store.places().devices_of_place(only).max(1),
        }
    }

    /// Devices that can take data; hot spares take none.
    pub fn device_count(&self) -> usize {
        let is_spare = |entry: &DeviceEntry| DeviceState::from_code(entry.state) == Some(DeviceState::Spare);
        self.store.device_entries().iter().filter(|entry| !is_spare(entry)).count().max(1)
    }

    /// Memory held by bytes that are not yet handed to the store.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Acquire)
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
