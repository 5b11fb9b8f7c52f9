//! On-media structures of stere, byte by byte: encoding and range-checked decoding, no I/O.
//!
//! Everything is little-endian except keys, which are big-endian so that byte order is key order. Media are hostile
//! input: every decoder checks length, magic, version, checksum and the range of every field before it answers, and
//! returns a [`DecodeError`] instead of panicking. Encoders only write what the decoders accept.
//!
//! The byte tables are in `docs/format/`. Start with [`address`] and [`key`], then [`segment`], [`row`] and [`journal`]
//! for what lies on devices, [`node`] and the value modules for what lies in the tree, [`superblock`] and
//! [`checkpoint`] for how it is all found again.

mod backup;
mod bitmap;
mod wire;

pub mod account;
pub mod address;
pub mod blob;
pub mod cartridge;
mod catalogue;
pub mod checkpoint;
pub mod checksum;
pub mod chunk;
mod class;
mod cleaner;
mod content_digest;
mod content_map;
pub mod damage;
pub mod device_state;
mod digest;
pub mod dirent;
pub mod encryption_key;
pub mod error;
pub mod extent;
mod find_index;
pub mod fold;
mod following;
pub mod fuzz;
pub mod heartbeat;
pub mod identity;
pub mod inode;
pub mod io_trace;
pub mod journal;
mod junction;
pub mod key;
pub mod layout;
pub mod log_entry;
pub mod machine_entry;
pub mod machine_key;
mod named_in;
pub mod node;
mod object_rows;
pub mod owner_beat;
pub mod plugin;
pub mod request;
pub mod row;
mod row_grant;
pub mod rules;
pub mod scheme;
pub mod scrub;
pub mod segment;
mod site;
pub mod successors;
pub mod superblock;
mod tier;
pub mod volume;
pub mod watch;
pub mod xattr;

pub use account::{AccountValue, AccountingValue, ChargedTo, Holder, SoftLimits, VolumePlace};
pub use address::{Address, NodeReference};
pub use backup::BackupValue;
pub use bitmap::BlockBitmap;
pub use blob::{BlobEncoding, BlobFlags, BlobValue};
pub use cartridge::{CartridgeBlock, CartridgeEntry, CartridgeIndex, CartridgeKind};
pub use catalogue::{catalogue_lines, seal_catalogue_line};
pub use checkpoint::{CheckpointRecord, DeviceEntry, PoolTotals};
pub use checksum::{block_checksums, crc32c, record_checksum};
pub use chunk::ChunkHeader;
pub use class::{ClassMedia, ClassResidency, ClassValue};
pub use cleaner::{CleanerChoice, CleanerPolicy};
pub use content_digest::ContentDigests;
pub use content_map::{ContentMap, MAPPED_BYTES_MAX, MappedPiece};
pub use damage::DamageValue;
pub use device_state::DeviceState;
pub use digest::{ChecksumKind, Checksums};
pub use dirent::{DirentBucket, DirentValue, FileKind};
pub use encryption_key::{EncryptionKey, WrappedKey, Wrapping};
pub use error::DecodeError;
pub use extent::{ExtentFlags, ExtentValue};
pub use find_index::FindIndexValue;
pub use fold::{Bundle, FoldValue, KeyRange, NamesUse};
pub use following::FollowValue;
pub use heartbeat::Heartbeat;
pub use identity::{DeviceId, DeviceIndex, PoolId};
pub use inode::{
    ChecksumPolicy, InodePolicy, InodeValue, LockedPolicy, PlacesPolicy, RecordPolicy, RetainPolicy, RuledMore,
    RuledPolicy, SwitchesPolicy, SyncPolicy, Timestamp, VersionsPolicy,
};
pub use io_trace::{IoTraceBlock, IoTraceBlockHeader, IoTraceHeader, IoTraceName, IoTraceNamed, IoTraceRecord};
pub use journal::{Counters, JournalChanges, JournalHeader, JournalPosition, append_change};
pub use junction::JunctionValue;
pub use key::Key;
pub use layout::DeviceLayout;
pub use log_entry::{HeldSlots, LogEntry, LogRecord, SlotExtent, extents_of};
pub use machine_entry::{Admission, MachineEntry, MachineState, PoolAdmission};
pub use machine_key::MachineKeyFile;
pub use named_in::NamedInValue;
pub use node::{NODE_BYTES_TARGET, Node, NodeBuilder};
pub use object_rows::ObjectRows;
pub use owner_beat::OwnerBeat;
pub use plugin::{PluginRecord, PluginStack, StackMember};
pub use request::RequestValue;
pub use row::{RecordSubject, RowHeader, Summary, SummaryEntry};
pub use row_grant::{OFFERED_BYTES_MAX, OfferAnswer, RowGrant, WriteOffer};
pub use rules::{RuleLogValue, RulesValue};
pub use scheme::Scheme;
pub use scrub::{ScrubCursor, ScrubPart};
pub use segment::{ChunkPlace, ChunkPlaces, SegmentChunks, SegmentKind, SegmentState, SegmentValue, Tertiary};
pub use site::{DEVICE_CLASS_WORDS, PLACE_ANYWHERE, PLACE_NUMBER_MIN, PlaceValue, Site};
pub use successors::Successors;
pub use superblock::{CheckpointPart, Epoch, Superblock, is_pool_name};
pub use tier::{HeatPage, ReleaseOrder, SegmentHeat, TierPolicy, VolumePrices};
pub use volume::{
    Succession, TERTIARY_MAX, TierMarks, VolumeEntry, VolumeId, VolumeLabel, catalogue_name, data_chunks_of_object,
    metadata_name, metadata_of_object, object_bytes, object_name, range_in_object, segment_of_object, state_name,
    state_of_object,
};
pub use watch::{AuditEvent, AuditValue, InputName, ProvenanceValue, WatchedProcess, WatchedValue};
pub use xattr::XattrBucket;

/// Version of the format this crate writes; an unknown major version is refused, an unknown minor one is read-only.
pub const FORMAT_MAJOR: u16 = 1;
pub const FORMAT_MINOR: u16 = 0;

/// Alignment of records within a row.
pub const SECTOR_BYTES: usize = 512;
/// Unit of row height, of checksums and of file blocks.
pub const BLOCK_BYTES: usize = 4096;
pub const CHUNK_BYTES_MIN: u32 = 1 << 20;
pub const CHUNK_BYTES_MAX: u32 = 16 << 20;
/// Largest record; [`record_bytes_max`] tells the limit for smaller chunks.
pub const RECORD_BYTES_MAX: u32 = 1 << 20;
/// Largest logical content of one blob, so that its block bitmaps have at most 256 bits.
pub const BLOB_LOGICAL_BYTES_MAX: u32 = 1 << 20;
/// Data of a row is dealt over its data chunks in pieces of this size.
pub const STRIPE_UNIT_BYTES: usize = 32 << 10;
/// Logical bytes of a row when it is flushed because it is full.
pub const ROW_BYTES_TARGET: u32 = 1 << 20;
/// Largest value of a key; a tree node holding only this value still fits in a record for every chunk size.
pub const VALUE_BYTES_MAX: usize = 256 << 10;
/// Largest k+m of a scheme.
pub const WIDTH_MAX: usize = 32;
pub const DEVICES_MAX: usize = 65535;
/// Most blocks in a chunk; bounds every row position and height.
pub const CHUNK_BLOCKS_MAX: u32 = CHUNK_BYTES_MAX / BLOCK_BYTES as u32;

/// Largest record in a pool of this chunk size.
pub const fn record_bytes_max(chunk_bytes: u32) -> u32 {
    if chunk_bytes / 2 < RECORD_BYTES_MAX { chunk_bytes / 2 } else { RECORD_BYTES_MAX }
}

/// Room a record of this stored length takes in a row.
pub const fn sector_aligned(bytes: u32) -> u32 {
    bytes.next_multiple_of(SECTOR_BYTES as u32)
}

const _: () = assert!(VALUE_BYTES_MAX as u32 + 4096 <= record_bytes_max(CHUNK_BYTES_MIN));
const _: () = assert!(CHUNK_BLOCKS_MAX == 4096);
