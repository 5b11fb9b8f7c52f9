//! A mounted file system: its rooms put together, and what goes over all of them.
//!
//! Read next: `namespace`, `residency`, `features` (what it is made of), `pipeline` (what goes around each call), `calls/`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stere_features::accounting::Quotas;
use stere_features::asynchronous_events::AsynchronousEvents;
use stere_features::audit::Audit;
use stere_features::backups::Backups;
use stere_features::digests::Digests;
use stere_features::durability::Durability;
use stere_features::features::Features;
use stere_features::forecast::Forecasts;
use stere_features::membership::Membership;
use stere_features::policy_editor::PolicyEditor;
use stere_features::reconciler::Reconciler;
use stere_features::search::Searches;
use stere_features::unmet_policies::UnmetPolicies;
use stere_features::usage::UsageWalk;
use stere_features::versions::Versions;
use stere_format::{FileKind, FindIndexValue, InodeValue, Key, NamedInValue, Timestamp};
use stere_namespace::call::{Caller, FileSystemStatistics, Options, ROOT};
use stere_namespace::classes::PolicyClasses;
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::handles::Handle;
use stere_namespace::namespace::Namespace;
use stere_namespace::plugins::PluginRegistry;
use stere_namespace::recalls::Recalls;
use stere_namespace::rules::PolicyRules;
use stere_namespace::tiers::Tiers;
use stere_residency::eviction::Eviction;
use stere_residency::offload::Offload;
use stere_residency::residency::Residency;
use stere_residency::units::Units;
use stere_store::{Io, Store};

use crate::content_changes::ContentChanges;
use crate::emptying::Emptying;
use crate::listing::Listing;
use crate::name_changes::NameChanges;
use crate::pipeline::{Done, Kind, Op, Pipeline};

/// A mounted file system.
pub struct FileSystem {
    pub(crate) namespace: Namespace,
    pub(crate) residency: Residency,
    pub(crate) features: Features,
    pub(crate) pipeline: Pipeline,
    pub(crate) changes: NameChanges,
    pub(crate) contents: Arc<ContentChanges>,
    pub(crate) listing: Listing,
    pub(crate) emptying: Emptying,
    next_handle: AtomicU64,
    /// When changes are durable.
    pub durability: Arc<Durability>,
    /// Of which volumes and classes files are.
    pub membership: Membership,
}

impl FileSystem {
    /// Makes the root directory in an empty pool.
    pub fn format(store: &Store, now: Timestamp) -> Result<(), Error> {
        FileSystem::format_for(store, now, 0, 0)
    }

    /// As `format`, with a root directory that belongs to the one who makes the pool: a pool of an ordinary user would be
    /// of no use if only root could write to it.
    pub fn format_for(store: &Store, now: Timestamp, uid: u32, gid: u32) -> Result<(), Error> {
        store.update(Io::BLOCKING, |transaction| {
            if transaction.get(&Key::inode(ROOT))?.is_some() {
                return Err(Error::Exists);
            }
            // Numbers of new inodes start behind the root's.
            while transaction.allocate_inode() <= ROOT {}
            let value = InodeValue::new(FileKind::Directory.mode_bits() | 0o755, uid, gid, ROOT, now);
            stere_file::put_inode(transaction, ROOT, &InodeValue { nlink: 2, ..value });
            transaction.put(Key::classes_indexed(), &[1]);
            transaction.put(Key::places_indexed(), &[1]);
            transaction.put(Key::find_index(), &FindIndexValue::COMPLETE.encode());
            transaction.put(Key::named_in_known(), &NamedInValue::ALL.encode());
            Ok(())
        })
    }

    /// The file system in a pool that was formatted.
    pub fn new(store: Arc<Store>, options: Options) -> Result<FileSystem, Error> {
        let namespace = Namespace::open(store, options)?;
        let residency = Residency::load(&namespace)?;
        let features = Features::load(&namespace, &residency)?;
        let contents = Arc::new(ContentChanges::new(&namespace, &residency, &features));
        Ok(FileSystem {
            pipeline: Pipeline::new(&namespace, &residency, &features, contents.clone()),
            changes: NameChanges::new(&namespace, &residency, &features),
            contents,
            listing: Listing::new(&namespace, &features),
            emptying: Emptying::default(),
            next_handle: AtomicU64::new(1),
            durability: features.durability.clone(),
            membership: Membership { core: namespace.core.clone(), rules: namespace.rules.clone() },
            namespace,
            residency,
            features,
        })
    }

    /// The store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.namespace.core.store
    }

    /// Finding files by what is known of them.
    pub fn search(&self) -> &Arc<Searches> {
        &self.features.search
    }

    /// Volumes, limits and accounts.
    pub fn quotas(&self) -> &Arc<Quotas> {
        &self.features.quotas
    }

    /// Keys of the pool.
    pub fn encryption(&self) -> &Arc<EncryptionKeys> {
        &self.namespace.encryption
    }

    /// Plugins of the pool.
    pub fn plugins(&self) -> &Arc<PluginRegistry> {
        &self.namespace.registry
    }

    /// What plugins are still to be told.
    pub fn asynchronous_events(&self) -> &Arc<AsynchronousEvents> {
        &self.features.asynchronous_events
    }

    /// Changing classes and rules.
    pub fn policy(&self) -> &Arc<PolicyEditor> {
        &self.features.editor
    }

    /// Classes of the pool.
    pub fn classes(&self) -> &Arc<PolicyClasses> {
        &self.namespace.classes
    }

    /// Rules of the pool.
    pub fn rules(&self) -> &Arc<PolicyRules> {
        &self.namespace.rules
    }

    /// What rules would change.
    pub fn forecasts(&self) -> &Arc<Forecasts> {
        &self.features.forecasts
    }

    /// Policies that the devices cannot keep.
    pub fn unmet_policies(&self) -> &Arc<UnmetPolicies> {
        &self.features.unmet
    }

    /// Bringing what is stored in line with policy.
    pub fn reconciler(&self) -> &Arc<Reconciler> {
        &self.features.reconciler
    }

    /// Where files lie on tertiary media.
    pub fn tiers(&self) -> &Arc<Tiers> {
        &self.namespace.tiers
    }

    /// Directories whose subtrees belong together.
    pub fn units(&self) -> &Arc<Units> {
        &self.residency.units
    }

    /// Room on devices, and what is pinned there.
    pub fn eviction(&self) -> &Arc<Eviction> {
        &self.residency.eviction
    }

    /// Metadata on media.
    pub fn offload(&self) -> &Arc<Offload> {
        &self.residency.offload
    }

    /// Who may have content fetched from media.
    pub fn recalls(&self) -> &Arc<Recalls> {
        &self.namespace.recalls
    }

    /// Versions of files.
    pub fn versions(&self) -> &Arc<Versions> {
        &self.features.versions
    }

    /// Who wrote files, and what was done to them.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.features.audit
    }

    /// Destinations of backups.
    pub fn backups(&self) -> &Arc<Backups> {
        &self.features.backups
    }

    /// Digests of contents.
    pub fn digests(&self) -> &Arc<Digests> {
        &self.features.digests
    }

    /// Begins to add up what an inode, and if it is a directory everything below it, takes.
    pub fn usage(&self, caller: &Caller<'_>, inode: u64) -> Result<UsageWalk<'_>, Error> {
        UsageWalk::new(&self.namespace.core, caller, inode)
    }

    /// The path of an inode from the root of the pool; the root where it has no name.
    pub fn path_of(&self, io: Io<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        self.namespace.core.path_of(io, inode)
    }

    /// The directory an inode has (or had last) a name in; the root's is the root.
    pub fn parent(&self, caller: &Caller<'_>, inode: u64) -> Result<u64, Error> {
        self.namespace.core.parent(caller, inode)
    }

    /// Totals of the pool, for content of its default class.
    pub fn statfs(&self) -> FileSystemStatistics {
        self.namespace.core.statfs()
    }

    pub(crate) fn new_handle(&self) -> Handle {
        Handle(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes everything done before durable.
    pub fn syncfs(&self, caller: &Caller<'_>) -> Result<(), Error> {
        let saved = self.namespace.core.files.writeback.save_everything(&caller.context());
        if saved.as_ref().is_err_and(stere_file::Error::would_block) {
            return Ok(saved?);
        }
        self.namespace.access_times.save_lazy_times(caller.io)?;
        self.features.audit.save_records(caller.io)?;
        self.namespace.core.store.commit(caller.io)?;
        Ok(saved?)
    }

    /// A command that changes what the pool keeps, as `change`, which may run several times: archived files give it room (P-110).
    pub fn command<T>(&self, caller: &Caller<'_>, change: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let op = Op::new(caller, ROOT, Kind::Command);
        self.pipeline.run(&op, change, |_| Done::default())
    }

    /// Background work of the layers above the store: old changes are handed to the store, orphans freed piece by piece.
    /// At most `budget` pieces. Tells whether there is more to do.
    pub fn step(&self, caller: &Caller<'_>, budget: usize) -> Result<bool, Error> {
        self.namespace.core.files.following().note_time(caller.now.seconds);
        self.namespace.access_times.save_many_lazy_times(caller.io)?;
        self.namespace.rules.review_now_and_then(caller)?;
        let reviewed = self.namespace.rules.review_changed(caller);
        self.features.audit.deduplicate_now_and_then(caller)?;
        self.features.audit.save_records(caller.io)?;
        let begun = self.features.retention.begin_retentions(caller);
        let accounted = self.step_accounting(caller);
        let expired = self.features.versions.expire_versions(caller, budget);
        let indexed = match self.namespace.core.files.search_index.build_some(caller.io) {
            // Searches do without an index until there is room for it.
            Err(stere_store::Error::NoSpace) => Ok(false),
            other => other,
        };
        let counted = match self.features.multiple_names.count_names(caller) {
            Err(Error::NoSpace) => Ok(false),
            other => other,
        };
        // Whatever became of that, what is old is saved.
        let offloaded = match self.residency.offload.offload_cold(caller, budget) {
            Err(Error::NoSpace) => Ok(false),
            other => other,
        };
        let has_more = self.namespace.core.files.step(&caller.context(), budget)?;
        Ok(begun? | offloaded? | accounted? | expired? | indexed? | counted? | reviewed? | has_more)
    }

    /// Makes everything durable before the store is closed. The store is not closed here.
    pub fn close(&self, caller: &Caller<'_>) -> Result<(), Error> {
        self.namespace.core.files.orphans.forget_all(&caller.context());
        self.residency.offload.save_uses(caller)?;
        self.syncfs(caller)
    }

    /// Says that a kernel is in front, which knows inodes by what it was told and opens them whatever became of their names
    /// meanwhile. From now on an inode without a name is kept until `forget`; `close` frees what is left.
    pub fn hold_removed(&self) {
        self.namespace.core.files.orphans.hold_removed();
    }

    /// Other machines' kernels may have open what has no name any more, from an owner of the pool before this one: it is kept until
    /// `forget`, which has to be called for each inode that this gives.
    pub fn hold_found(&self) -> Vec<u64> {
        self.namespace.core.files.orphans.hold_found()
    }

    /// The kernel forgot an inode: if it has no name and nobody has it open, it is freed now.
    pub fn forget(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.namespace.encryption.unsee(inode);
        self.features.versions.forget_versions(inode);
        Ok(self.namespace.core.files.orphans.forget(&caller.context(), inode)?)
    }
}

/// Whether the pool has keys, so that names and content in it may be encrypted.
pub fn has_keys(files: &FileSystem) -> bool {
    files.namespace.core.files.keyring().has_keys()
}

/// Numbers of inodes that an owner before may have given and not committed; more than all machines keep at a time.
const LEFT_OUT: u64 = 1 << 18;

/// Leaves out numbers that an owner before this one may have given.
pub fn leave_inodes_out(files: &FileSystem) -> Result<(), Error> {
    files.store().update(Io::BLOCKING, |transaction| {
        for _ in 0..LEFT_OUT {
            transaction.allocate_inode();
        }
        Ok::<_, Error>(())
    })
}

/// Other pools that are mounted in this one.
pub fn junctions_of(files: &FileSystem) -> &stere_namespace::junctions::Junctions {
    &files.namespace.junctions
}
