//! File contents: offsets to blobs, gathering of small writes, holes, sharing.
//!
//! A regular file is a list of extents over immutable blobs. Writes gather in memory in records of 128 KiB; a record that
//! is full, or that has to be durable, becomes a blob (or a few) and its extents change in one transaction together with
//! the size, so that a crash shows no byte the file never held. Large aligned writes skip the gathering: their bytes go
//! from the caller's slice straight to the store.
//!
//! Locks: one per inode in memory (`table`), then those of the store. Non-blocking calls return `WouldBlock` and are idempotent.
//! Read next: `files` (the parts, and how they lie above each other), `state` and `record` (what is in memory), `extents` (what
//! is on media), `write`, `save`, `read`.

pub mod accounts;
mod allocate;
mod block;
mod charge;
mod charging;
mod content_digests;
mod context;
mod copy;
mod dedup;
mod digests;
mod direct_writes;
mod edges;
mod encode;
mod encoding;
mod encrypted;
mod error;
mod extents;
mod facts;
mod files;
pub mod find_index;
mod first_handle;
mod following;
mod grants;
mod index_building;
mod kept;
mod keys;
mod mapped;
pub mod metadata;
pub mod named_in;
mod on_media;
mod options;
mod orphan;
mod orphans;
mod pending_charges;
mod pieces;
mod plugins;
mod policies;
mod policy;
mod ranges;
mod read;
mod recalled;
mod reconcile;
mod record;
pub mod requests;
mod reservations;
mod save;
mod sealing;
mod seek;
mod set_aside;
mod size;
mod slots;
mod state;
mod stored_facts;
mod stored_grants;
mod storing;
mod table;
mod versions;
mod write;
mod written;

pub use allocate::Allocator;
pub use allocate::{COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, UNSHARE_RANGE, ZERO_RANGE};
pub use charging::Charging;
pub use content_digests::DigestStore;
pub use context::Context;
pub use copy::Copier;
pub use dedup::Deduplicator;
pub use dedup::{Deduplicated, Twins};
pub use digests::DigestKind;
pub use direct_writes::DirectWrites;
pub use error::Error;
pub use facts::{StoredExtent, stored_extents};
pub use files::Files;
pub use first_handle::FirstHandle;
pub use following::Following;
pub use index_building::SearchIndex;
pub use kept::Unchanged;
pub use keys::{Keys, inode, inode_if_any, put_inode};
pub use metadata::HAS_ATTRIBUTES;
pub use options::{FILE_BYTES_MAX, Options};
pub use orphan::Orphans;
pub use orphan::{Unlink, free_empty, list_nameless, unlist};
pub use orphans::{Gone, OrphanKind};
pub use plugins::{Plugins, own_stack, set_own_stack};
pub use policies::Policies;
pub use policy::{
    check_changeable, own_locks, own_policy, own_retain, rule_decision, set_own_locks, set_own_policy, set_own_retain,
    set_rule_decision,
};
pub use read::ReadOutcome;
pub use read::Reader;
pub use recalled::Recalled;
pub use reconcile::Converter;
pub use reconcile::{Reconciled, SharedWishes};
pub use record::RECORD_BYTES;
pub use reservations::Reservations;
pub use save::Writeback;
pub use seek::Whence;
pub use set_aside::counted as preallocated_bytes;
pub use size::AttributeChange;
pub use stere_plugin::Coders;
pub use stored_facts::StoredFact;
pub use table::FileTable;
pub use versions::{
    HAS_VERSIONS, OF_VERSIONS, own_versions, set_own_versions, set_version_order, stored_wish, version_order, wished,
};
pub use write::Writer;
pub use written::Written;
