//! Directories, inodes, links, extended attributes: POSIX over the store.
//!
//! One [`FileSystem`] serves all front ends: FUSE, the simulator and the library. Every call names its [`Caller`], whose
//! clock it uses and who says whether it may wait for a device. With `Wait::Never` a call that would have to wait answers
//! [`Error::WouldBlock`] and is to be repeated with `Wait::Allowed`. Permission to look and to change is checked by the
//! front end (the kernel); what follows from a change (set-id bits, ACL and mode, link counts, times) is done here.
//!
//! Invariants: every call is one transaction, or several of which each leaves a file system that some sequence of calls
//! could have left; no lock is held while a callback runs.
//! Read next: `names` (directories on media), `create`, `remove`, `rename`, `attributes`; contents are in stere-file.

mod accounting;
mod acl;
mod atime;
mod attributes;
mod backup;
mod chain;
mod check;
mod classes;
mod cold;
mod content;
mod create;
mod digest;
mod encryption;
mod error;
mod find;
mod fold;
mod keeping;
mod lost;
mod names;
mod new_files;
mod places;
mod plugins;
mod policy;
mod quiet;
mod reach;
mod readdir;
mod recalls;
mod reconcile;
mod remove;
mod rename;
mod retention;
mod room;
mod rules;
mod saying;
mod several_names;
mod tier;
mod units;
mod unkept;
mod usage;
mod versions;
mod volumes;
mod walk;
mod watch;
mod xattr;

#[cfg(test)]
extern crate self as stere_naming;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use stere_file::{Context, Files, Keys};
use stere_format::{FileKind, FindIndexValue, InodeValue, Key, NamedInValue};
use stere_store::{Store, Transaction};

pub use attributes::{Attributes, SetAttributes, SetTime};
pub use backup::BACKUPS_MAX;
pub use check::check;
pub use classes::{ClassInfo, read_classes};
pub use content::{Handle, OpenFlags};
pub use encryption::{KeyInfo, KeySeed, KeyUse, Stale};
pub use error::Error;
pub use find::{Find, Found};
pub use fold::FoldOutcome;
pub use lost::{LostFile, lost_files};
pub use names::NAME_BYTES_MAX;
pub use plugins::{FollowChange, FollowInfo, FollowList, PluginHooks, PluginInfo};
pub use policy::LayoutRun;
pub use readdir::DirectoryEntry;
pub use reconcile::{Blocked, ReconcileStatus};
pub use rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
pub use rules::{KeepingCounts, RuleChange, RulesForecast, RulesVersion};
pub use stere_crypt::{CryptError, KeyState, PassphraseCost, Secret, WrappingSeed};
pub use stere_file::accounts::{Account, Most};
pub use stere_file::{
    COLLAPSE_RANGE, DigestKind, FILE_BYTES_MAX, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, RECORD_BYTES, UNSHARE_RANGE,
    Whence, ZERO_RANGE,
};
pub use stere_format::BackupValue;
pub use stere_format::Timestamp;
pub use stere_format::{AccountValue, Holder, SoftLimits};
pub use stere_store::Wait;
pub use tier::TierMet;
pub use unkept::Unkept;
pub use usage::{Usage, UsageWalk};
pub use volumes::{AccountInfo, AccountsState, Limits};
pub use watch::{AUDIT_MAX, Audited, PROVENANCE_MAX, Written};
pub use xattr::{SetMode, VALUE_BYTES_MAX};

use accounting::Accounting;
use atime::LazyTimes;
use cold::Cold;
use encryption::Seen;
use names::Names;
use reconcile::Reconciler;
use retention::Retentions;
use room::Room;
use rules::Rules;
use versions::Versions;
use watch::Watch;

/// The root directory.
pub const ROOT: u64 = 1;
/// Most hard links a file can have.
pub const LINKS_MAX: u32 = 65_000;

/// Who calls, when, and whether the call may wait.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups; may be empty when the front end does not know them.
    pub groups: &'a [u32],
    /// Bits not to set in the mode of what is made.
    pub umask: u32,
    /// The front end's clock.
    pub now: Timestamp,
    /// Whether the call may wait for a device.
    pub wait: Wait,
    /// The thread that calls, where the front end knows it; else 0.
    pub process: u32,
}

impl Caller<'_> {
    fn context(&self) -> Context {
        Context { now: self.now, wait: self.wait }
    }
}

/// When reading changes the time of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// When it is older than the last change, or a day old.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// How the file system behaves; nothing in here is on media.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Times of access.
    pub access_times: AccessTimes,
    /// File contents.
    pub files: stere_file::Options,
    /// Who is meant by names of users and groups in rules.
    pub people: Option<Arc<dyn stere_policy::People>>,
    /// Who calls, for files of which that is noted.
    pub processes: Option<Arc<dyn stere_policy::Processes>>,
    /// Memory for rules of directories; 0 is 32 MiB.
    pub rules_bytes_max: usize,
    /// Programs whose reads of what is on tertiary volumes only are refused, by their names.
    pub refused_programs: Vec<String>,
}

/// Totals for `statfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemStatistics {
    /// Unit of the counts below.
    pub block_bytes: u32,
    /// Blocks that content of the default class can have in all.
    pub blocks: u64,
    /// Blocks free.
    pub blocks_free: u64,
    /// Inodes that can exist.
    pub files: u64,
    /// Inodes that can still be made.
    pub files_free: u64,
    /// Longest name.
    pub name_bytes_max: u32,
}

/// A mounted file system.
pub struct FileSystem {
    store: Arc<Store>,
    files: Files,
    names: Names,
    /// What of encrypted things the kernel may have in memory.
    seen: Seen,
    lazy_times: LazyTimes,
    next_handle: AtomicU64,
    reconciler: Reconciler,
    rules: Rules,
    retentions: Retentions,
    room: Room,
    coming: units::Coming,
    quiet: quiet::Quiet,
    cold: Cold,
    kept: keeping::Kept,
    saying: saying::Saying,
    accounting: Accounting,
    versions: Versions,
    watch: Watch,
    following: parking_lot::Mutex<plugins::Pass>,
    /// Whether it is known where the names of all files with several lie.
    names_are_counted: std::sync::atomic::AtomicBool,
    options: Options,
}

impl FileSystem {
    /// Makes the root directory in an empty pool.
    pub fn format(store: &Store, now: Timestamp) -> Result<(), Error> {
        FileSystem::format_for(store, now, 0, 0)
    }

    /// As `format`, with a root directory that belongs to the one who makes the pool: a pool of an ordinary user would be
    /// of no use if only root could write to it.
    pub fn format_for(store: &Store, now: Timestamp, uid: u32, gid: u32) -> Result<(), Error> {
        store.update(Wait::Allowed, |transaction| {
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
        let files = Files::new(store.clone(), options.files.clone())?;
        let names = Names::new(&store.hash_key(), files.keyring().clone());
        encryption::load(&store, files.keyring())?;
        plugins::load(&store, files.plugins())?;
        let root = store.view(Wait::Allowed, |view| stere_file::inode_if_any(view, ROOT))?;
        if root.is_none_or(|root| root.kind() != Some(FileKind::Directory)) {
            return Err(Error::Damaged("the pool has no root directory; run `stere check`".into()));
        }
        let lazy_times = LazyTimes::new();
        let next_handle = AtomicU64::new(1);
        let reconciler = Reconciler::default();
        files.resolver().set_classes(read_classes(&store, Wait::Allowed)?);
        let weight_max = if options.rules_bytes_max == 0 { 32 << 20 } else { options.rules_bytes_max };
        let (people, plugins) = (options.people.clone(), files.plugins().clone());
        let rules = Rules::load(&store, &files.resolver().classes(), people, plugins, weight_max)?;
        let (seen, retentions) = (Seen::default(), Retentions::load(&store)?);
        let accounting = Accounting::default();
        let versions = Versions::load(&store)?;
        let watch = Watch::load(&store)?;
        let cold = Cold::load(&store)?;
        let filesystem = FileSystem {
            store,
            files,
            names,
            seen,
            lazy_times,
            next_handle,
            reconciler,
            rules,
            retentions,
            room: Room::default(),
            coming: units::Coming::default(),
            quiet: quiet::Quiet::default(),
            cold,
            kept: keeping::Kept::default(),
            saying: saying::Saying::default(),
            accounting,
            versions,
            watch,
            following: parking_lot::Mutex::default(),
            names_are_counted: std::sync::atomic::AtomicBool::new(false),
            options,
        };
        if filesystem.ruled(Wait::Allowed)?.names {
            filesystem.begin_to_put_away();
        }
        Ok(filesystem)
    }

    /// The store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Makes everything done before durable.
    pub fn syncfs(&self, caller: &Caller<'_>) -> Result<(), Error> {
        let saved = self.files.save_everything(&caller.context());
        if saved.as_ref().is_err_and(stere_file::Error::would_block) {
            return Ok(saved?);
        }
        self.save_lazy_times(caller.wait)?;
        self.save_watched(caller.wait)?;
        self.store.commit(caller.wait)?;
        Ok(saved?)
    }

    /// Background work of the layers above the store: old changes are handed to the store, orphans freed piece by piece.
    /// At most `budget` pieces. Tells whether there is more to do.
    pub fn step(&self, caller: &Caller<'_>, budget: usize) -> Result<bool, Error> {
        self.files.following().note_time(caller.now.seconds);
        self.save_many_lazy_times(caller.wait)?;
        self.review_now_and_then(caller)?;
        let reviewed = self.review_changed(caller);
        self.deduplicate_now_and_then(caller)?;
        self.save_watched(caller.wait)?;
        let begun = self.begin_retentions(caller);
        let accounted = self.step_accounting(caller);
        let expired = self.expire_versions(caller, budget);
        let indexed = match self.files.index_some(caller.wait) {
            // Searches do without an index until there is room for it.
            Err(stere_store::Error::NoSpace) => Ok(false),
            other => other,
        };
        let counted = match self.count_names(caller) {
            Err(Error::NoSpace) => Ok(false),
            other => other,
        };
        // Whatever became of that, what is old is saved.
        let put_away = match self.put_away_cold(caller, budget) {
            Err(Error::NoSpace) => Ok(false),
            other => other,
        };
        let has_more = self.files.step(&caller.context(), budget)?;
        Ok(begun? | put_away? | accounted? | expired? | indexed? | counted? | reviewed? | has_more)
    }

    /// Makes everything durable before the store is closed. The store is not closed here.
    pub fn close(&self, caller: &Caller<'_>) -> Result<(), Error> {
        self.files.forget_all(&caller.context());
        self.save_uses(caller)?;
        self.syncfs(caller)
    }

    /// Totals of the pool, for content of its default class.
    pub fn statfs(&self) -> FileSystemStatistics {
        let resolver = self.files.resolver();
        let wish = resolver.classes().wish(resolver.default_class());
        let (data, parity) = wish.scheme(self.files.device_count());
        let class = resolver.default_class().code();
        let statistics = self.store.statistics_of(stere_format::Scheme { data, parity }, class);
        let block_bytes = stere_format::BLOCK_BYTES as u32;
        let blocks = statistics.total_bytes / u64::from(block_bytes);
        let blocks_free = (statistics.free_bytes / u64::from(block_bytes)).min(blocks);
        FileSystemStatistics {
            block_bytes,
            blocks,
            blocks_free,
            files: statistics.next_inode.saturating_add(blocks_free),
            files_free: blocks_free,
            name_bytes_max: NAME_BYTES_MAX as u32,
        }
    }

    /// Says that a kernel is in front, which knows inodes by what it was told and opens them whatever became of their names
    /// meanwhile. From now on an inode without a name is kept until `forget`; `close` frees what is left.
    pub fn hold_removed(&self) {
        self.files.hold_removed();
    }

    /// The kernel forgot an inode: if it has no name and nobody has it open, it is freed now.
    pub fn forget(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.unsee(inode);
        self.forget_versions(inode);
        Ok(self.files.forget(&caller.context(), inode)?)
    }

    /// The directory an inode has (or had last) a name in; the root's is the root.
    pub fn parent(&self, caller: &Caller<'_>, inode: u64) -> Result<u64, Error> {
        let value = self.store.view(caller.wait, |view| stere_file::inode_if_any(view, inode))?;
        Ok(value.ok_or(Error::Stale)?.parent)
    }
}

/// The inode, which must exist and be a directory.
fn directory(keys: &impl Keys, inode: u64) -> Result<InodeValue, Error> {
    let value = stere_file::inode_if_any(keys, inode)?.ok_or(Error::NotFound)?;
    match value.kind() {
        Some(FileKind::Directory) => Ok(value),
        _ => Err(Error::NotADirectory),
    }
}

/// The directory, which must not have been removed: names can be made in it.
fn living_directory(keys: &impl Keys, inode: u64) -> Result<InodeValue, Error> {
    let value = directory(keys, inode)?;
    versions::check_not_of_versions(&value)?;
    if value.nlink == 0 { Err(Error::NotFound) } else { Ok(value) }
}

/// Puts a directory whose names changed now.
fn put_changed_directory(transaction: &mut Transaction<'_>, inode: u64, value: &mut InodeValue, now: Timestamp) {
    (value.mtime, value.ctime) = (now, now);
    stere_file::put_inode(transaction, inode, value);
}
