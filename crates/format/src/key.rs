//! Keys of the one ordered map that holds all metadata. Encoded big-endian, so that comparing bytes compares keys.

use std::fmt;

/// The trees within the map: the first byte of every key.
pub mod tree {
    /// Inodes, names, extended attributes, extents; object = inode number.
    pub const NAMES: u8 = 1;
    /// The blob map; object = blob id.
    pub const BLOBS: u8 = 2;
    /// The segment table; object = segment id.
    pub const SEGMENTS: u8 = 3;
    /// The pool's own lists.
    pub const SYSTEM: u8 = 4;
    /// What is found by something else than its number.
    pub const INDEXES: u8 = 5;
}

/// The kinds of entries within an object.
pub mod kind {
    /// In NAMES.
    pub const INODE: u8 = 1;
    /// In NAMES, position = hash of the attribute's name.
    pub const XATTR: u8 = 2;
    /// In NAMES, position = hash of the name.
    pub const DIRENT_HASH: u8 = 3;
    /// In NAMES, position = sequence, the readdir cookie in creation order.
    pub const DIRENT: u8 = 4;
    /// In NAMES, position = file offset where the extent's last block ends: the first key behind an offset is the extent
    /// that covers it, or the next one.
    pub const EXTENT: u8 = 5;
    /// In NAMES: digests of the content, while it is what they were made of.
    pub const CONTENT_DIGEST: u8 = 9;
    /// In NAMES, of what has several names and is no directory, position = a directory: so many of them lie there (u32, little-endian).
    pub const NAMED_IN: u8 = 10;
    /// In BLOBS.
    pub const BLOB: u8 = 1;
    /// In SEGMENTS.
    pub const SEGMENT: u8 = 1;
    /// In SYSTEM, object = inode without a name that is still open.
    pub const ORPHAN: u8 = 1;
    /// In SYSTEM, object 0: bytes that all preallocated extents cover together (u64, little-endian).
    pub const PREALLOCATED: u8 = 2;
    /// In SYSTEM, object 0: how far scrubbing is.
    pub const SCRUB: u8 = 3;
    /// In SYSTEM, object 0: on how many devices metadata shall lie, where somebody said so (one byte; 255: on all).
    pub const METADATA_COPIES: u8 = 4;
    /// In SYSTEM, object 0: how segments are chosen for cleaning, where somebody said so.
    pub const CLEANER: u8 = 53;
    /// In SYSTEM, object = number: the words of a place, which devices are known by.
    pub const PLACE: u8 = 5;
    /// In SYSTEM, object = inode below which files are to be stored as their policy says now (u64, little-endian: how often
    /// that was asked).
    pub const RECONCILE: u8 = 8;
    /// In SYSTEM, object = version: the pool's rules, the greatest version being those that hold.
    pub const RULES: u8 = 9;
    /// In SYSTEM, object = number: what rules changed.
    pub const RULE_LOG: u8 = 10;
    /// In SYSTEM, object = number: a key that content and names are encrypted with, wrapped.
    pub const ENCRYPTION_KEY: u8 = 11;
    /// In SYSTEM, object = number: a tertiary volume.
    pub const VOLUME: u8 = 16;
    /// In SYSTEM, object = inode whose owner said to which tertiary volumes files go; no value.
    pub const TIERED: u8 = 17;
    /// In SYSTEM, object 0: from which part of devices being full on archived files are released, and down to which.
    pub const TIER_MARKS: u8 = 18;
    /// In SYSTEM, object = inode: what is below it stays on devices (one byte: 1 it does, 2 it need not, whatever is said above).
    pub const PINNED: u8 = 19;
    /// In SYSTEM, object = segment: which were recalled after it; a hint.
    pub const SUCCESSORS: u8 = 40;
    /// In SYSTEM, object = directory: what is below it goes down and comes back as one (one byte, 1).
    pub const UNIT: u8 = 41;
    /// In SYSTEM, object = number: keys of names and inodes that were put away, and where they are.
    pub const FOLD: u8 = 48;
    /// In SYSTEM, object = directory: names below it that nobody used for so long are put away (u64, little-endian: seconds; 0: none are).
    pub const NAMES_AGE: u8 = 49;
    /// In SYSTEM, object = inode: content on media that nobody used for so long is given up on devices, of this or of what is below it
    /// (u64, little-endian: seconds; 0: it stays).
    pub const RELEASE_AGE: u8 = 51;
    /// In SYSTEM, object 0, position = blob: bytes of it that could be read from no copy.
    pub const DAMAGE: u8 = 60;
    /// In SYSTEM, object 0, position = session and slot: the newest request of a machine's session that was carried out in this slot.
    pub const REQUEST: u8 = 61;
    /// In SYSTEM, object = directory: its rules say what stays on devices, and in what company (one byte, 1).
    pub const RESIDENCY_RULES: u8 = 50;
    /// In INDEXES, object 0, position = directory: it has names below one that says so, and when it was used last.
    pub const NAMES_USE: u8 = 12;
    /// In SYSTEM, object 0: in which order archived segments are released, and how much may have come back.
    pub const TIER_POLICY: u8 = 22;
    /// In SYSTEM, object = number: what a tertiary volume costs.
    pub const VOLUME_PRICES: u8 = 23;
    /// In SYSTEM, object = code: a class that somebody defined or changed.
    pub const CLASS: u8 = 20;
    /// In SYSTEM, object = number: a destination of backups.
    pub const BACKUP: u8 = 21;
    /// In INDEXES, object 0: this pool has had the indexes of classes from its beginning on (one byte, 1).
    pub const CLASSES_INDEXED: u8 = 1;
    /// In INDEXES, object = code of a class, position = inode: a file or directory that has this class itself (one byte, 1).
    pub const CLASS_MEMBER: u8 = 2;
    /// In INDEXES, object = code of a class, position = inode: a directory whose rules name this class (one byte, 1).
    pub const CLASS_RULES: u8 = 3;
    /// In INDEXES, object 0: this pool has had the indexes of places from its beginning on (one byte, 1).
    pub const PLACES_INDEXED: u8 = 5;
    /// In INDEXES, object = number of a place, position = inode: a file or directory that names this place itself (one byte, 1).
    pub const PLACE_MEMBER: u8 = 6;
    /// In INDEXES, object = number of a place, position = inode: a directory whose rules name this place (one byte, 1).
    pub const PLACE_RULES: u8 = 7;
    /// In INDEXES, object = number of a tertiary volume, position = inode: a directory whose rules name this volume; position 0: the
    /// pool's rules do (one byte, 1).
    pub const MEDIA_RULES: u8 = 49;
    /// In INDEXES, object = code of when changes are durable, position = inode: it says so itself; object 256 + code: its rules do (one
    /// byte, 1).
    pub const SYNC: u8 = 52;
    /// In INDEXES, object 0, position = directory: its rules ask for what changes by itself, such as age (one byte, 1).
    pub const CHANGING_RULES: u8 = 51;
    /// In INDEXES, object 0, position = inode: a file or directory that asks for redundancy itself; object 1: a directory whose rules do
    /// (one byte, 1).
    pub const REDUNDANCY: u8 = 47;
    /// In INDEXES, object 0, position = inode: a file that is to be retained when it has been left alone for a while; position 0:
    /// something in this pool was to be retained (one byte, 1).
    pub const RETENTION: u8 = 4;
    /// In INDEXES, object = place in the order in which versions go, position = inode: a version of a file; object 0, position 0:
    /// versions were kept in this pool (one byte, 1).
    pub const VERSION: u8 = 8;
    /// In INDEXES, object 0, position = directory: there may be more versions in it than are to be kept (one byte, 1).
    pub const VERSIONS_MANY: u8 = 9;
    /// In INDEXES, object 0, position = inode: what was done to it, and is still to be told to its plugins.
    pub const FOLLOW: u8 = 10;
    /// In INDEXES, object 0: digests of contents were stored in this pool (one byte, 1).
    pub const CONTENT_DIGESTS: u8 = 40;
    /// In INDEXES, object = power of two, position = inode: its size is at least that, and below the next.
    pub const FIND_SIZE: u8 = 41;
    /// In INDEXES, object = hashes of name and value, position = inode: it has a user's attribute like that (u32, little-endian: how many).
    pub const FIND_ATTRIBUTE: u8 = 42;
    /// In INDEXES, object = code of a class, position = inode: its policy names the class.
    pub const FIND_CLASS: u8 = 43;
    /// In INDEXES, object 0: how far the index is that searches go by.
    pub const FIND_INDEX: u8 = 44;
    /// In INDEXES, object 0, position = inode: its policy names tertiary volumes.
    pub const FIND_TIERED: u8 = 45;
    /// In INDEXES, object 0: up to which name it is known in which directories files with several names have them.
    pub const NAMED_IN_KNOWN: u8 = 46;
    /// In INDEXES, object 0, position = number of a segment divided by 128: how segments were used.
    pub const HEAT: u8 = 11;
    /// In SYSTEM, object = number, position 0: a user's plugin; positions from 1 on: its module, in pieces.
    pub const PLUGIN: u8 = 24;
    /// In SYSTEM, object = number: a stack of plugins with their parameters.
    pub const PLUGIN_STACK: u8 = 25;
    /// In SYSTEM, object 0: that this pool keeps accounts, and how far they were counted.
    pub const ACCOUNTING: u8 = 32;
    /// In SYSTEM, object = directory: what is below it may still count in another volume than it (u64, little-endian: how often it
    /// was moved since that was last so).
    pub const RECOUNT: u8 = 33;
    /// In SYSTEM, object = directory: another pool is mounted there.
    pub const JUNCTION: u8 = 34;
    /// In INDEXES, object 0, position 0: somebody asked in this pool who writes files or what happens to them, and how far both lists
    /// are; positions from 1 on: a file was written.
    pub const PROVENANCE: u8 = 24;
    /// In INDEXES, object = inode, position = number of a record of it being written (one byte, 1).
    pub const PROVENANCE_OF: u8 = 25;
    /// In INDEXES, object = inode, position = number of a record of something being made from it (one byte, 1).
    pub const PROVENANCE_FROM: u8 = 26;
    /// In INDEXES, object 0, position = number: something happened to a file.
    pub const AUDIT: u8 = 27;
    /// In INDEXES, object = whose accounts (1 users, 2 groups, 3 volumes), position = number of the user, group or volume.
    pub const ACCOUNT: u8 = 16;
}

/// A key; its order is (tree, object, kind, position).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub tree: u8,
    pub object: u64,
    pub kind: u8,
    pub position: u64,
}

impl Key {
    pub const SIZE: usize = 18;
    pub const MIN: Self = Self::new(0, 0, 0, 0);
    pub const MAX: Self = Self::new(u8::MAX, u64::MAX, u8::MAX, u64::MAX);

    pub const fn new(tree: u8, object: u64, kind: u8, position: u64) -> Self {
        Self { tree, object, kind, position }
    }

    pub const fn inode(inode: u64) -> Self {
        Self::new(tree::NAMES, inode, kind::INODE, 0)
    }

    pub const fn xattr(inode: u64, name_hash: u64) -> Self {
        Self::new(tree::NAMES, inode, kind::XATTR, name_hash)
    }

    pub const fn dirent_hash(directory: u64, name_hash: u64) -> Self {
        Self::new(tree::NAMES, directory, kind::DIRENT_HASH, name_hash)
    }

    pub const fn dirent(directory: u64, sequence: u64) -> Self {
        Self::new(tree::NAMES, directory, kind::DIRENT, sequence)
    }

    pub const fn extent(inode: u64, file_offset_block_end: u64) -> Self {
        Self::new(tree::NAMES, inode, kind::EXTENT, file_offset_block_end)
    }

    pub const fn content_digest(inode: u64) -> Self {
        Self::new(tree::NAMES, inode, kind::CONTENT_DIGEST, 0)
    }

    pub const fn content_digests() -> Self {
        Self::new(tree::INDEXES, 0, kind::CONTENT_DIGESTS, 0)
    }

    pub const fn named_in(inode: u64, directory: u64) -> Self {
        Self::new(tree::NAMES, inode, kind::NAMED_IN, directory)
    }

    pub const fn named_in_known() -> Self {
        Self::new(tree::INDEXES, 0, kind::NAMED_IN_KNOWN, 0)
    }

    pub const fn find_index() -> Self {
        Self::new(tree::INDEXES, 0, kind::FIND_INDEX, 0)
    }

    pub const fn find_size(power: u8, inode: u64) -> Self {
        Self::new(tree::INDEXES, power as u64, kind::FIND_SIZE, inode)
    }

    /// The hashes are CRC32C.
    pub const fn find_attribute(name_hash: u32, value_hash: u32, inode: u64) -> Self {
        let object = (1 << 63) | ((name_hash as u64 & 0x7fff_ffff) << 32) | value_hash as u64;
        Self::new(tree::INDEXES, object, kind::FIND_ATTRIBUTE, inode)
    }

    pub const fn find_class(code: u8, inode: u64) -> Self {
        Self::new(tree::INDEXES, code as u64, kind::FIND_CLASS, inode)
    }

    pub const fn find_tiered(inode: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::FIND_TIERED, inode)
    }

    pub const fn blob(blob: u64) -> Self {
        Self::new(tree::BLOBS, blob, kind::BLOB, 0)
    }

    pub const fn segment(segment: u64) -> Self {
        Self::new(tree::SEGMENTS, segment, kind::SEGMENT, 0)
    }

    pub const fn preallocated() -> Self {
        Self::new(tree::SYSTEM, 0, kind::PREALLOCATED, 0)
    }

    pub const fn cleaner() -> Self {
        Self::new(tree::SYSTEM, 0, kind::CLEANER, 0)
    }

    pub const fn metadata_copies() -> Self {
        Self::new(tree::SYSTEM, 0, kind::METADATA_COPIES, 0)
    }

    pub const fn place(number: u8) -> Self {
        Self::new(tree::SYSTEM, number as u64, kind::PLACE, 0)
    }

    pub const fn scrub() -> Self {
        Self::new(tree::SYSTEM, 0, kind::SCRUB, 0)
    }

    pub const fn damage(blob: u64) -> Self {
        Self::new(tree::SYSTEM, 0, kind::DAMAGE, blob)
    }

    /// Of a session the first six bytes count; its value has all of them.
    pub const fn request(session: &[u8; 16], slot: u16) -> Self {
        let [a, b, c, d, e, f, ..] = *session;
        let [high, low] = slot.to_be_bytes();
        Self::new(tree::SYSTEM, 0, kind::REQUEST, u64::from_be_bytes([a, b, c, d, e, f, high, low]))
    }

    /// Where the notes of one session begin, and the first key behind them.
    pub const fn requests_of(session: &[u8; 16]) -> (Self, Self) {
        let last = Self::request(session, u16::MAX);
        let end = match last.position.checked_add(1) {
            Some(position) => Self { position, ..last },
            None => Self::REQUESTS.1,
        };
        (Self::request(session, 0), end)
    }

    /// The slot of a session's note.
    pub const fn slot_of_request(self) -> u16 {
        assert!(self.kind == kind::REQUEST, "only requests lie in slots");
        (self.position & u16::MAX as u64) as u16
    }

    /// The first key of any session, and the first behind all of them.
    pub const REQUESTS: (Self, Self) =
        (Self::new(tree::SYSTEM, 0, kind::REQUEST, 0), Self::new(tree::SYSTEM, 0, kind::REQUEST + 1, 0));

    pub const fn reconcile(inode: u64) -> Self {
        Self::new(tree::SYSTEM, inode, kind::RECONCILE, 0)
    }

    pub const fn rules(version: u64) -> Self {
        Self::new(tree::SYSTEM, version, kind::RULES, 0)
    }

    pub const fn rule_log(number: u64) -> Self {
        Self::new(tree::SYSTEM, number, kind::RULE_LOG, 0)
    }

    pub const fn volume(number: u8) -> Self {
        Self::new(tree::SYSTEM, number as u64, kind::VOLUME, 0)
    }

    pub const fn tier_marks() -> Self {
        Self::new(tree::SYSTEM, 0, kind::TIER_MARKS, 0)
    }

    pub const fn tier_policy() -> Self {
        Self::new(tree::SYSTEM, 0, kind::TIER_POLICY, 0)
    }

    pub const fn volume_prices(number: u8) -> Self {
        Self::new(tree::SYSTEM, number as u64, kind::VOLUME_PRICES, 0)
    }

    pub const fn heat(page: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::HEAT, page)
    }

    pub const fn pinned(inode: u64) -> Self {
        Self::new(tree::SYSTEM, inode, kind::PINNED, 0)
    }

    pub const fn successors(segment: u64) -> Self {
        Self::new(tree::SYSTEM, segment, kind::SUCCESSORS, 0)
    }

    pub const fn unit(inode: u64) -> Self {
        Self::new(tree::SYSTEM, inode, kind::UNIT, 0)
    }

    pub const fn fold(number: u64) -> Self {
        Self::new(tree::SYSTEM, number, kind::FOLD, 0)
    }

    pub const fn names_age(directory: u64) -> Self {
        Self::new(tree::SYSTEM, directory, kind::NAMES_AGE, 0)
    }

    pub const fn release_age(inode: u64) -> Self {
        Self::new(tree::SYSTEM, inode, kind::RELEASE_AGE, 0)
    }

    pub const fn residency_rules(directory: u64) -> Self {
        Self::new(tree::SYSTEM, directory, kind::RESIDENCY_RULES, 0)
    }

    pub const fn names_use(directory: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::NAMES_USE, directory)
    }

    pub const fn junction(directory: u64) -> Self {
        Self::new(tree::SYSTEM, directory, kind::JUNCTION, 0)
    }

    pub const fn tiered(inode: u64) -> Self {
        Self::new(tree::SYSTEM, inode, kind::TIERED, 0)
    }

    pub const fn encryption_key(number: u16) -> Self {
        Self::new(tree::SYSTEM, number as u64, kind::ENCRYPTION_KEY, 0)
    }

    pub const fn class(code: u8) -> Self {
        Self::new(tree::SYSTEM, code as u64, kind::CLASS, 0)
    }

    pub const fn backup(number: u64) -> Self {
        Self::new(tree::SYSTEM, number, kind::BACKUP, 0)
    }

    pub const fn classes_indexed() -> Self {
        Self::new(tree::INDEXES, 0, kind::CLASSES_INDEXED, 0)
    }

    pub const fn class_member(code: u8, inode: u64) -> Self {
        Self::new(tree::INDEXES, code as u64, kind::CLASS_MEMBER, inode)
    }

    pub const fn class_rules(code: u8, inode: u64) -> Self {
        Self::new(tree::INDEXES, code as u64, kind::CLASS_RULES, inode)
    }

    pub const fn places_indexed() -> Self {
        Self::new(tree::INDEXES, 0, kind::PLACES_INDEXED, 0)
    }

    pub const fn redundancy_member(inode: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::REDUNDANCY, inode)
    }

    pub const fn redundancy_rules(directory: u64) -> Self {
        Self::new(tree::INDEXES, 1, kind::REDUNDANCY, directory)
    }

    pub const fn place_member(number: u8, inode: u64) -> Self {
        Self::new(tree::INDEXES, number as u64, kind::PLACE_MEMBER, inode)
    }

    pub const fn place_rules(number: u8, inode: u64) -> Self {
        Self::new(tree::INDEXES, number as u64, kind::PLACE_RULES, inode)
    }

    pub const fn sync_member(code: u8, inode: u64) -> Self {
        Self::new(tree::INDEXES, code as u64, kind::SYNC, inode)
    }

    pub const fn sync_rules(code: u8, directory: u64) -> Self {
        Self::new(tree::INDEXES, 256 + code as u64, kind::SYNC, directory)
    }

    pub const fn changing_rules(directory: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::CHANGING_RULES, directory)
    }

    pub const fn media_rules(number: u8, directory: u64) -> Self {
        Self::new(tree::INDEXES, number as u64, kind::MEDIA_RULES, directory)
    }

    pub const fn retention(inode: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::RETENTION, inode)
    }

    /// The first order of a version; the smaller ones are no versions'.
    pub const VERSION_ORDER_FIRST: u64 = 1 << 32;

    pub const fn version(order: u64, inode: u64) -> Self {
        Self::new(tree::INDEXES, order, kind::VERSION, inode)
    }

    pub const fn versions_many(directory: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::VERSIONS_MANY, directory)
    }

    pub const fn follow(inode: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::FOLLOW, inode)
    }

    pub const fn plugin(number: u16, piece: u64) -> Self {
        Self::new(tree::SYSTEM, number as u64, kind::PLUGIN, piece)
    }

    pub const fn plugin_stack(number: u16) -> Self {
        Self::new(tree::SYSTEM, number as u64, kind::PLUGIN_STACK, 0)
    }

    pub const fn accounting() -> Self {
        Self::new(tree::SYSTEM, 0, kind::ACCOUNTING, 0)
    }

    pub const fn recount(directory: u64) -> Self {
        Self::new(tree::SYSTEM, directory, kind::RECOUNT, 0)
    }

    pub const fn account(holder: crate::Holder, number: u32) -> Self {
        Self::new(tree::INDEXES, holder as u64, kind::ACCOUNT, number as u64)
    }

    pub const fn watched() -> Self {
        Self::new(tree::INDEXES, 0, kind::PROVENANCE, 0)
    }

    pub const fn provenance(number: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::PROVENANCE, number)
    }

    pub const fn provenance_of(inode: u64, number: u64) -> Self {
        Self::new(tree::INDEXES, inode, kind::PROVENANCE_OF, number)
    }

    pub const fn provenance_from(inode: u64, number: u64) -> Self {
        Self::new(tree::INDEXES, inode, kind::PROVENANCE_FROM, number)
    }

    pub const fn audit(number: u64) -> Self {
        Self::new(tree::INDEXES, 0, kind::AUDIT, number)
    }

    pub const fn orphan(inode: u64) -> Self {
        Self::new(tree::SYSTEM, inode, kind::ORPHAN, 0)
    }

    /// The least key greater than this one; none after [`Key::MAX`].
    pub fn successor(self) -> Option<Self> {
        let mut bytes = self.encode();
        for byte in bytes.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                return Some(Self::decode(&bytes));
            }
        }
        None
    }

    #[inline]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = self.tree;
        bytes[1..9].copy_from_slice(&self.object.to_be_bytes());
        bytes[9] = self.kind;
        bytes[10..18].copy_from_slice(&self.position.to_be_bytes());
        bytes
    }

    pub fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode());
    }

    /// Every 18 bytes are a key; whoever looks for kinds it does not know ignores the others.
    #[inline]
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let [tree, o0, o1, o2, o3, o4, o5, o6, o7, kind, p0, p1, p2, p3, p4, p5, p6, p7] = *bytes;
        Self {
            tree,
            object: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            kind,
            position: u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}/{}", self.tree, self.object, self.kind, self.position)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests;
