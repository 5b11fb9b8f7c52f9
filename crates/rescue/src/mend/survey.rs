//! One pass over all keys: what each inode says of itself, and what names, extents and blobs say of it.
//!
//! Reads only. In memory: one entry for each inode, each name and each blob.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use stere_file::metadata::attribute_bytes;
use stere_file::named_in::{named_in_count, named_in_known};
use stere_format::dirent::DirentView;
use stere_format::{
    BLOCK_BYTES, BlobFlags, BlobValue, BlockBitmap, ContentDigests, DirentBucket, ExtentFlags, ExtentValue, FileKind,
    InodeValue, Key, NamedInValue, XattrBucket, key,
};
use stere_store::{Error, Io, Store};

use super::Step;

/// What a name adds to its directory's size besides its bytes.
const ENTRY_BYTES: u64 = 24;

/// Everything that is known of one inode number.
#[derive(Default)]
pub(crate) struct Seen {
    pub value: Option<InodeValue>,
    pub has_xattrs: bool,
    /// What its attributes count.
    pub attribute_bytes: u64,
    /// Of a directory: its names.
    pub weight: u64,
    pub directories: u32,
    pub last_sequence: u64,
    pub entries: u64,
    /// Of a file: its extents.
    pub extents: u64,
    pub allocated: u64,
    /// What its extents count of stored bytes.
    pub charged_bytes: u64,
    pub data_end: u64,
    extent_end: u64,
}

impl Seen {
    pub fn kind(&self) -> Option<FileKind> {
        self.value.as_ref().and_then(InodeValue::kind)
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }
}

/// A name, without its text.
pub(crate) struct Name {
    pub directory: u64,
    pub sequence: u64,
    pub inode: u64,
    pub kind: FileKind,
}

/// What the blob map and the extents say of a blob.
pub(crate) struct Blob {
    pub references: u32,
    pub is_shared: bool,
    pub live: BlockBitmap,
    present: BlockBitmap,
    logical_bytes: u32,
    pub named_references: u32,
    pub named: BlockBitmap,
    /// Whether a block is named twice.
    pub is_named_twice: bool,
}

#[derive(Default)]
pub(crate) struct Survey {
    pub inodes: BTreeMap<u64, Seen>,
    pub names: Vec<Name>,
    pub blobs: BTreeMap<u64, Blob>,
    pub orphans: BTreeMap<u64, Vec<u8>>,
    /// Directories whose hashes do not fit their names.
    pub unhashed: BTreeSet<u64>,
    /// How many names of inodes are noted to lie in which directories; 0 for what does not decode.
    pub named_in: BTreeMap<(u64, u64), u32>,
    /// Whether all names are to be noted so.
    pub names_are_counted: bool,
    /// Whether nobody can tell how far that is.
    pub is_counting_bad: bool,
    pub preallocated_bytes: u64,
    pub preallocated_counted: u64,
    /// Keys to delete, with why, and whether something is lost with them.
    bad: Vec<(Key, bool, String)>,
    hashes: BTreeMap<u64, u64>,
    hashes_of: u64,
}

/// The hash of a name, as the pool hashes it.
pub(crate) fn hash_of(store: &Store, name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(&store.hash_key());
    hasher.write(name);
    hasher.finish() & (u64::MAX >> 1)
}

impl Survey {
    pub fn new(store: &Store) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        store
            .for_each_key(Key::blob(0), Key::new(key::tree::BLOBS + 1, 0, 0, 0), |at, bytes| survey.blob(at, bytes))?;
        let (from, to) = (Key::new(key::tree::NAMES, 0, 0, 0), Key::new(key::tree::NAMES + 1, 0, 0, 0));
        store.for_each_key(from, to, |at, bytes| survey.key(store, at, bytes))?;
        survey.finish_hashes();
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        store.for_each_key(from, to, |at, bytes| {
            if at.kind == key::kind::ORPHAN {
                survey.orphans.insert(at.object, bytes.to_vec());
            }
        })?;
        (survey.names_are_counted, survey.is_counting_bad) = match store.view(Io::BLOCKING, |view| named_in_known(view))
        {
            Ok(known) => (known == Some(NamedInValue::ALL), false),
            Err(Error::BadValue { .. }) => (true, true),
            Err(error) => return Err(error),
        };
        let counted = store.view(Io::BLOCKING, |view| view.get(&Key::preallocated()))?;
        survey.preallocated_counted = counted.map_or(0, |value| (*value).try_into().map_or(0, u64::from_le_bytes));
        Ok(survey)
    }

    /// What must go because nobody can make sense of it.
    pub fn unreadable(&self) -> Step {
        let mut step = Step::default();
        for (at, data_lost, text) in &self.bad {
            step.delete(*at);
            step.say(at.object, *data_lost, text.clone());
        }
        step
    }

    fn blob(&mut self, at: &Key, bytes: &[u8]) {
        match BlobValue::decode(bytes) {
            Ok(value) => {
                let blob = Blob {
                    references: value.references,
                    is_shared: value.flags.contains(BlobFlags::SHARED),
                    live: value.live,
                    present: value.present,
                    logical_bytes: value.logical_bytes,
                    named_references: 0,
                    named: BlockBitmap::EMPTY,
                    is_named_twice: false,
                };
                self.blobs.insert(at.object, blob);
            }
            // Who named it is told when the extents are looked at.
            Err(error) => self.bad.push((*at, false, format!("the entry of blob {} is removed: {error}", at.object))),
        }
    }

    fn key(&mut self, store: &Store, at: &Key, bytes: &[u8]) {
        if at.object != self.hashes_of {
            self.finish_hashes();
            self.hashes_of = at.object;
        }
        let inode = at.object;
        match at.kind {
            key::kind::INODE => match InodeValue::decode(bytes) {
                Ok(value) => self.inodes.entry(inode).or_default().value = Some(value),
                Err(error) => self.bad.push((*at, true, format!("its attributes are lost: {error}"))),
            },
            key::kind::XATTR => match XattrBucket::for_each(bytes, |_, _| {}) {
                Ok(()) => {
                    let seen = self.inodes.entry(inode).or_default();
                    seen.has_xattrs = true;
                    seen.attribute_bytes = seen.attribute_bytes.saturating_add(attribute_bytes(bytes));
                }
                Err(error) => self.bad.push((*at, true, format!("extended attributes are lost: {error}"))),
            },
            key::kind::DIRENT_HASH => match DirentBucket::decode(bytes) {
                Ok(bucket) => bucket.sequences.iter().for_each(|sequence| {
                    self.hashes.insert(*sequence, at.position);
                }),
                Err(_) => {
                    self.unhashed.insert(inode);
                }
            },
            key::kind::DIRENT => self.name(store, at, bytes),
            key::kind::EXTENT => self.extent(at, bytes),
            key::kind::CONTENT_DIGEST => self.digest(at, bytes),
            key::kind::NAMED_IN => {
                self.named_in.insert((inode, at.position), named_in_count(bytes).unwrap_or(0));
            }
            _ => {}
        }
    }

    fn name(&mut self, store: &Store, at: &Key, bytes: &[u8]) {
        let entry = match DirentView::decode(bytes) {
            Ok(entry) => entry,
            Err(error) => {
                self.hashes.remove(&at.position);
                self.unhashed.insert(at.object);
                return self.bad.push((*at, true, format!("a name in this directory is lost: {error}")));
            }
        };
        if self.hashes.remove(&at.position) != Some(hash_of(store, entry.name)) {
            self.unhashed.insert(at.object);
        }
        let directory = self.inodes.entry(at.object).or_default();
        directory.weight += entry.name.len() as u64 + ENTRY_BYTES;
        directory.directories += u32::from(entry.kind == FileKind::Directory);
        directory.last_sequence = directory.last_sequence.max(at.position);
        directory.entries += 1;
        let (inode, kind) = (entry.inode, entry.kind);
        self.names.push(Name { directory: at.object, sequence: at.position, inode, kind });
    }

    fn extent(&mut self, at: &Key, bytes: &[u8]) {
        let extent = match ExtentValue::decode(bytes) {
            Ok(extent) => extent,
            Err(error) => {
                let text = format!("contents before byte {} are lost: {error}", at.position);
                return self.bad.push((*at, true, text));
            }
        };
        let block = BLOCK_BYTES as u64;
        let allocated = u64::from(extent.length).next_multiple_of(block);
        let seen = self.inodes.entry(at.object).or_default();
        let start = at.position.checked_sub(allocated);
        let Some(start) = start.filter(|start| start % block == 0 && *start >= seen.extent_end) else {
            return self.bad.push((
                *at,
                true,
                format!("contents before byte {} lay over others and are lost", at.position),
            ));
        };
        if extent.flags == ExtentFlags::Plain {
            let blocks = extent.blob_offset / BLOCK_BYTES as u32
                ..(extent.blob_offset + extent.length).div_ceil(BLOCK_BYTES as u32);
            let blob = self.blobs.get_mut(&extent.blob).filter(|blob| {
                extent.blob_offset + extent.length <= blob.logical_bytes
                    && blocks.clone().all(|block| blob.present.contains(block))
            });
            let Some(blob) = blob else {
                let text =
                    format!("{} bytes from byte {start} on are lost: they were in blob {}", extent.length, extent.blob);
                return self.bad.push((*at, true, text));
            };
            blob.named_references += 1;
            blob.is_named_twice |= blocks.clone().any(|block| blob.named.contains(block));
            blob.named.insert(blocks);
            seen.data_end = start + u64::from(extent.length);
        } else {
            self.preallocated_bytes += allocated;
        }
        seen.extent_end = at.position;
        assert!(seen.data_end <= seen.extent_end, "content ends at {} and its extents before", seen.data_end);
        seen.extents += 1;
        seen.allocated += allocated;
        seen.charged_bytes += extent.charged_bytes();
    }

    /// The last of an inode's keys: a digest of what is not all there any more goes.
    fn digest(&mut self, at: &Key, bytes: &[u8]) {
        let is_damaged = self
            .bad
            .iter()
            .rev()
            .take_while(|(bad, ..)| bad.object == at.object)
            .any(|(bad, ..)| matches!(bad.kind, key::kind::EXTENT | key::kind::INODE));
        let is_file = self.inodes.get(&at.object).is_some_and(|seen| seen.kind() == Some(FileKind::File));
        if is_damaged || !is_file || ContentDigests::decode(bytes).is_err() {
            self.bad.push((*at, false, "the digest of its content is removed".into()));
        }
    }

    /// Notes where a hash is left that no name of the directory has used.
    fn finish_hashes(&mut self) {
        if !std::mem::take(&mut self.hashes).is_empty() {
            self.unhashed.insert(self.hashes_of);
        }
    }
}
