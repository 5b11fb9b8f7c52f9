//! The calls of POSIX over the store, each of which goes through one pipeline.
//!
//! One [`FileSystem`] serves all front ends: FUSE, the simulator and the library. Every call names its [`Caller`] with its clock and
//! its [`Io`], which says how it may use devices and media. A non-blocking call that would have to wait answers
//! [`Error::WouldBlock`] and is to be repeated with `Io::BLOCKING`. Permission to look and to change is checked by the
//! front end (the kernel); what follows from a change (set-id bits, ACL and mode, link counts, times) is done here.
//!
//! Invariants: every call is one transaction, or several of which each leaves a file system that some sequence of calls
//! could have left; no lock is held while a callback runs.
//! Read next: `pipeline`, `calls`, `name_changes`; names on media are in stere-namespace, contents in stere-file, features in
//! stere-features and stere-residency.

mod calls;
mod content_changes;
mod emptying;
mod filesystem;
mod listing;
mod name_changes;
mod pipeline;
mod remove;
mod rename;

pub use calls::{FarWrites, move_name, remove_name};
pub use filesystem::{FileSystem, has_keys, junctions_of, leave_inodes_out};
pub use listing::DirectoryEntry;
pub use rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
pub use stere_crypt::{CryptError, KeyState, PassphraseCost, Secret, WrappingSeed};
pub use stere_features::accounting::Quotas;
pub use stere_features::asynchronous_events::{AsynchronousEvents, FollowChange, FollowInfo, FollowList};
pub use stere_features::audit::{AUDIT_MAX, Audit, Audited, PROVENANCE_MAX, Written};
pub use stere_features::backups::{BACKUPS_MAX, Backups};
pub use stere_features::check::check;
pub use stere_features::digests::Digests;
pub use stere_features::forecast::{Forecasts, ResidencyCounts, RuleChange, RulesForecast};
pub use stere_features::membership::{Membership, StoredAs, Whose};
pub use stere_features::policy_editor::PolicyEditor;
pub use stere_features::reconciler::{Blocked, ReconcileStatus, Reconciler};
pub use stere_features::search::{Find, Found, Searches};
pub use stere_features::unmet_policies::{Unkept, UnmetPolicies};
pub use stere_features::usage::{Usage, UsageWalk};
pub use stere_features::versions::Versions;
pub use stere_features::volumes::{AccountInfo, AccountsState, Limits};
pub use stere_file::accounts::{Account, Most};
pub use stere_file::requests;
pub use stere_file::{
    COLLAPSE_RANGE, DigestKind, FILE_BYTES_MAX, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, RECORD_BYTES, UNSHARE_RANGE,
    Whence, ZERO_RANGE,
};
pub use stere_format::{AccountValue, BackupValue, Holder, SoftLimits, Timestamp, WriteOffer};
pub use stere_namespace::attributes::{Attributes, SetAttributes, SetTime};
pub use stere_namespace::call::{AccessTimes, Caller, FileSystemStatistics, LINKS_MAX, Options, ROOT, RequestId};
pub use stere_namespace::classes::{ClassInfo, PolicyClasses, read_classes};
pub use stere_namespace::encryption::{EncryptionKeys, KeyInfo, KeySeed, KeyUse, Stale};
pub use stere_namespace::error::Error;
pub use stere_namespace::handles::{Handle, OpenFlags};
pub use stere_namespace::junctions::{Junction, Junctions};
pub use stere_namespace::lost::{LostFile, lost_files};
pub use stere_namespace::names::NAME_BYTES_MAX;
pub use stere_namespace::plugins::{PluginHooks, PluginInfo, PluginRegistry};
pub use stere_namespace::recalls::Recalls;
pub use stere_namespace::rules::{PolicyRules, RulesVersion};
pub use stere_namespace::tiers::{LayoutRun, TierMet, Tiers};
pub use stere_namespace::xattr::{SetMode, VALUE_BYTES_MAX};
pub use stere_policy::Sync;
pub use stere_residency::eviction::Eviction;
pub use stere_residency::offload::Offload;
pub use stere_residency::offload_ranges::OffloadOutcome;
pub use stere_residency::units::Units;
pub use stere_store::Io;
