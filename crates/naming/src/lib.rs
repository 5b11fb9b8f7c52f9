//! Directories, inodes, links, extended attributes: POSIX over the store.
//!
//! One [`FileSystem`] serves all front ends: FUSE, the simulator and the library. Every call names its [`Caller`], whose
//! clock it uses and who says whether it may wait for a device. With `Io::NON_BLOCKING` a call that would have to wait answers
//! [`Error::WouldBlock`] and is to be repeated with `Io::BLOCKING`. Permission to look and to change is checked by the
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
mod calls;
mod chain;
mod check;
mod classes;
mod cold;
mod content;
mod content_changes;
mod digest;
mod editor;
mod emptying;
mod encryption;
mod error;
mod extended;
mod features;
mod filesystem;
mod find;
mod fold;
mod inode;
mod keeping;
mod lost;
mod name_changes;
mod names;
mod namespace;
mod new_files;
mod pipeline;
mod places;
mod plugins;
mod policy;
mod policy_attributes;
mod quiet;
mod reach;
mod readdir;
mod recalls;
mod reconcile;
mod reconcile_queue;
mod remove;
mod rename;
mod residency;
mod retention;
mod room;
mod rules;
mod saying;
mod several_names;
mod stat;
mod tier;
mod units;
mod unkept;
mod usage;
mod versions;
mod volumes;
mod walk;
mod watch;
mod words;
mod xattr;

#[cfg(test)]
extern crate self as stere_naming;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;

use stere_file::{Context, Keys};
use stere_format::{FileKind, InodeValue};
use stere_store::Transaction;

pub use accounting::Quotas;
pub use attributes::{Attributes, SetAttributes, SetTime};
pub use backup::{BACKUPS_MAX, Backups};
pub use check::check;
pub use classes::{ClassInfo, PolicyClasses, read_classes};
pub use cold::Offload;
pub use content::{Handle, OpenFlags};
pub use digest::Digests;
pub use editor::PolicyEditor;
pub use encryption::{EncryptionKeys, KeyInfo, KeySeed, KeyUse, Stale};
pub use error::Error;
pub use filesystem::FileSystem;
pub use find::{Find, Found, Searches};
pub use fold::FoldOutcome;
pub use lost::{LostFile, lost_files};
pub use names::NAME_BYTES_MAX;
pub use plugins::{AsynchronousEvents, FollowChange, FollowInfo, FollowList, PluginHooks, PluginInfo, PluginRegistry};
pub use policy::LayoutRun;
pub use readdir::DirectoryEntry;
pub use recalls::Recalls;
pub use reconcile::{Blocked, ReconcileStatus, Reconciler};
pub use rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
pub use room::Eviction;
pub use rules::{Forecasts, KeepingCounts, PolicyRules, RuleChange, RulesForecast, RulesVersion};
pub use stere_crypt::{CryptError, KeyState, PassphraseCost, Secret, WrappingSeed};
pub use stere_file::accounts::{Account, Most};
pub use stere_file::{
    COLLAPSE_RANGE, DigestKind, FILE_BYTES_MAX, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, RECORD_BYTES, UNSHARE_RANGE,
    Whence, ZERO_RANGE,
};
pub use stere_format::BackupValue;
pub use stere_format::Timestamp;
pub use stere_format::{AccountValue, Holder, SoftLimits};
pub use stere_store::Io;
pub use tier::{TierMet, Tiers};
pub use units::Units;
pub use unkept::{Unkept, UnmetPolicies};
pub use usage::{Usage, UsageWalk};
pub use versions::Versions;
pub use volumes::{AccountInfo, AccountsState, Limits};
pub use watch::{AUDIT_MAX, Audit, Audited, PROVENANCE_MAX, Written};
pub use xattr::{SetMode, VALUE_BYTES_MAX};

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
    /// How the call may use devices and media.
    pub io: Io<'a>,
    /// The thread that calls, where the front end knows it; else 0.
    pub process: u32,
}

impl<'a> Caller<'a> {
    /// The same caller for a call that passes over offloaded metadata.
    #[must_use]
    pub fn skipping_offloaded(&self) -> Caller<'a> {
        Caller { io: self.io.skipping_offloaded(), ..*self }
    }

    fn context(&self) -> Context<'_> {
        Context { now: self.now, io: self.io }
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
