//! Proving the name space: every name leads to an inode, every inode to its names, and all counts are exact.
//!
//! Reads only. What lies below (nodes, blobs, segments) is checked by the store. The keys of one inode lie next to each
//! other, so one pass in key order gathers what there is to know of each; what crosses inodes is compared afterwards.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stere_file::OF_VERSIONS;
use stere_file::accounts::{Account, Sums, accounting, add_inode};
use stere_file::find_index::IndexCheck;
use stere_file::metadata::attribute_bytes;
use stere_file::named_in::{NamedInCheck, named_in_known};
use stere_format::dirent::DirentView;
use stere_format::{
    AccountValue, AccountingValue, BLOCK_BYTES, ContentDigests, DirentBucket, ExtentFlags, ExtentValue, FileKind,
    Holder, InodeValue, JunctionValue, Key, XattrBucket, key,
};
use stere_namespace::call::ROOT;
use stere_namespace::error::Error;
use stere_namespace::junctions::IS_JUNCTION;
use stere_namespace::names::{NameHasher, weight};
use stere_store::{Finding, Io, Store};

use crate::volumes::compare_accounts;

/// What one inode says of itself.
struct Known {
    kind: FileKind,
    nlink: u32,
    size: u64,
    blocks_bytes: u64,
    parent: u64,
    next_sequence: u64,
    volume: u32,
    charged_bytes: u64,
}

/// What other keys say of an inode.
#[derive(Default)]
struct Said {
    /// Names of it, and the directory of the last.
    names: u32,
    directory: u64,
    /// Of a directory: directories in it, and the weight of all its names.
    directories: u32,
    weight: u64,
    /// Of a file: allocated bytes and the end of its last extent that holds data.
    allocated: u64,
    charged_bytes: u64,
    data_end: u64,
    extent_end: u64,
}

struct Checker {
    hasher: NameHasher,
    findings: Vec<Finding>,
    known: FxHashMap<u64, Known>,
    said: FxHashMap<u64, Said>,
    /// Sequences of the directory in hand, with the hash of their names: from buckets, crossed off by entries.
    hashed: FxHashMap<u64, u64>,
    hashed_of: u64,
    orphans: FxHashMap<u64, bool>,
    preallocated_bytes: u64,
    /// Of the indexes of who names which classes and places, and whether they are complete.
    members: FxHashSet<Key>,
    has_class_index: bool,
    has_place_index: bool,
    accounting: Option<AccountingValue>,
    /// What inodes come to, and what the accounts say.
    counted: Sums,
    /// The inode in hand, of which not all attributes were seen, and the bytes of those that were.
    counting: Option<(InodeValue, Option<u64>)>,
    accounts: BTreeMap<Account, AccountValue>,
    /// Whether directories were moved and not all below them counts where it lies.
    has_recounts: bool,
    /// Of the index of versions: place in the order and inode; crossed off by inodes.
    versions: FxHashSet<(u64, u64)>,
    /// The index that searches go by.
    index: IndexCheck,
    /// In which directories files with several names have them.
    named_in: NamedInCheck,
    /// Directories at which other pools are mounted; crossed off by inodes.
    junctions: FxHashSet<u64>,
}

/// Checks all names, inodes, attributes and extents' places.
pub fn check(store: &Store) -> Result<Vec<Finding>, Error> {
    let mut checker = Checker {
        hasher: NameHasher::new(&store.hash_key()),
        findings: Vec::new(),
        known: FxHashMap::default(),
        said: FxHashMap::default(),
        hashed: FxHashMap::default(),
        hashed_of: 0,
        orphans: FxHashMap::default(),
        preallocated_bytes: 0,
        has_class_index: false,
        has_place_index: false,
        members: FxHashSet::default(),
        accounting: None,
        counted: Sums::new(),
        counting: None,
        accounts: BTreeMap::new(),
        has_recounts: false,
        versions: FxHashSet::default(),
        index: IndexCheck::new(store)?,
        named_in: NamedInCheck::default(),
        junctions: FxHashSet::default(),
    };
    match store.view(Io::BLOCKING, |view| named_in_known(view)) {
        Ok(known) => checker.named_in = NamedInCheck::new(known),
        Err(error @ stere_store::Error::BadValue { .. }) => {
            checker.findings.push(Finding { data_lost: false, inode: None, text: error.to_string() });
        }
        Err(error) => return Err(error.into()),
    }
    checker.read_accounts(store)?;
    store.for_each_key(Key::classes_indexed(), Key::new(key::tree::INDEXES + 1, 0, 0, 0), |key, _| match key.kind {
        key::kind::VERSION if key.position != 0 => {
            checker.versions.insert((key.object, key.position));
        }
        key::kind::CLASSES_INDEXED => checker.has_class_index = true,
        key::kind::PLACES_INDEXED => checker.has_place_index = true,
        key::kind::CLASS_MEMBER | key::kind::PLACE_MEMBER | key::kind::SYNC => drop(checker.members.insert(*key)),
        _ => {}
    })?;
    store.for_each_key(Key::orphan(0), Key::orphan(u64::MAX), |key, bytes| {
        if key.kind == key::kind::ORPHAN {
            checker.orphans.insert(key.object, bytes == [2]);
        }
    })?;
    checker.read_junctions(store)?;
    let from = Key::new(key::tree::NAMES, 0, 0, 0);
    let to = Key::new(key::tree::NAMES + 1, 0, 0, 0);
    match store.for_each_key(from, to, |key, bytes| checker.visit_key(key, bytes)) {
        Err(stere_store::Error::Elsewhere { why, .. }) => {
            let text =
                format!("names that were offloaded cannot be read, so names are not compared with each other: {why}");
            return Ok(vec![Finding { data_lost: false, inode: None, text }]);
        }
        visited => visited?,
    }
    checker.count_inode();
    checker.finish_directory();
    assert!(checker.counting.is_none() && checker.hashed.is_empty(), "nothing is in hand when all keys were seen");
    checker.compare();
    checker.check_named_in();
    checker.check_reachable();
    checker.check_accounts();
    checker.check_index();
    let counted = store.view(Io::BLOCKING, stere_file::preallocated_bytes)?;
    if counted != checker.preallocated_bytes {
        let text = format!("{} bytes are set aside, and {counted} are counted", checker.preallocated_bytes);
        checker.findings.push(Finding { data_lost: false, inode: None, text });
    }
    Ok(checker.findings)
}

impl Checker {
    fn read_accounts(&mut self, store: &Store) -> Result<(), Error> {
        self.accounting = store.view(Io::BLOCKING, |view| accounting(view))?;
        let (from, to) = (Key::new(key::tree::INDEXES, 0, 0, 0), Key::new(key::tree::INDEXES + 1, 0, 0, 0));
        store.for_each_key(from, to, |key, bytes| {
            let account = Holder::from_code(key.object).zip(u32::try_from(key.position).ok());
            let Some((holder, number)) = account.filter(|_| key.kind == key::kind::ACCOUNT) else { return };
            let account = Account { holder, number };
            match AccountValue::decode(bytes) {
                Ok(value) => drop(self.accounts.insert(account, value)),
                Err(error) => {
                    let text = format!("the account of {account} does not decode: {error}");
                    self.findings.push(Finding { data_lost: false, inode: None, text });
                }
            }
        })?;
        store.for_each_key(Key::recount(0), Key::recount(u64::MAX), |key, _| {
            self.has_recounts |= key.kind == key::kind::RECOUNT;
        })?;
        Ok(())
    }

    fn read_junctions(&mut self, store: &Store) -> Result<(), Error> {
        store.for_each_key(Key::junction(0), Key::junction(u64::MAX), |key, bytes| {
            if key.kind != key::kind::JUNCTION {
                return;
            }
            self.junctions.insert(key.object);
            if let Err(error) = JunctionValue::decode(bytes) {
                self.add(true, key.object, format!("the junction at inode {} does not decode: {error}", key.object));
            }
        })?;
        Ok(())
    }

    /// An inode is a junction exactly where the pool says which other pool is mounted there. (Of those that are gone, the key goes later.)
    fn visit_junction(&mut self, inode: u64, value: &InodeValue) {
        if self.junctions.remove(&inode) != (value.flags & IS_JUNCTION != 0) {
            self.add(
                false,
                inode,
                format!("inode {inode} is marked as a junction and leads to no pool, or the reverse"),
            );
        }
    }

    /// Accounts are what the inodes come to, and inodes count where they lie.
    fn check_accounts(&mut self) {
        let mut texts = Vec::new();
        compare_accounts(std::mem::take(&mut self.counted), &self.accounts, |text| texts.push(text));
        let volume_at = |number: u32, inode: u64| {
            let place = self.accounts.get(&Account { holder: Holder::Volume, number }).and_then(|value| value.place);
            place.filter(|place| !place.is_deleted && place.directory == inode)
        };
        let nothing = Said::default();
        for (inode, known) in self.known.iter().filter(|(_, known)| known.nlink > 0 && !self.has_recounts) {
            let Some(parent) = self.known.get(&known.parent).filter(|_| known.parent != *inode) else { continue };
            let said = self.said.get(inode).unwrap_or(&nothing);
            let lies_there = said.names == 1 && said.directory == known.parent;
            // A volume itself counts in the one that it is said to lie in.
            let counts_in = volume_at(known.volume, *inode).map_or(known.volume, |place| place.parent);
            if lies_there && counts_in != parent.volume {
                texts.push(format!("inode {inode} counts in volume {counts_in} and lies in volume {}", parent.volume));
            }
        }
        texts.sort();
        self.findings.extend(texts.into_iter().map(|text| Finding { data_lost: false, inode: None, text }));
    }

    /// Each entry is of what it says, and none is missing.
    fn check_index(&mut self) {
        for (inode, text) in std::mem::take(&mut self.index).finish() {
            self.findings.push(Finding { data_lost: false, inode: Some(inode), text });
        }
    }

    fn add(&mut self, data_lost: bool, inode: u64, text: String) {
        self.findings.push(Finding { data_lost, inode: Some(inode), text });
    }

    fn visit_key(&mut self, key: &Key, bytes: &[u8]) {
        assert!(key.object >= self.hashed_of, "keys of an inode are visited together, not {key} now");
        if key.object != self.hashed_of {
            self.count_inode();
            self.finish_directory();
            self.hashed_of = key.object;
        }
        self.index.visit(key, bytes);
        match key.kind {
            key::kind::INODE => self.visit_inode(key.object, bytes),
            key::kind::XATTR => {
                if let Some((_, Some(attributes))) = &mut self.counting {
                    *attributes = attributes.saturating_add(attribute_bytes(bytes));
                }
                if let Err(error) = XattrBucket::decode(bytes) {
                    self.add(true, key.object, format!("attributes of inode {} do not decode: {error}", key.object));
                }
            }
            key::kind::DIRENT_HASH => self.visit_bucket(key, bytes),
            key::kind::DIRENT => self.visit_name(key, bytes),
            key::kind::EXTENT => self.visit_extent(key, bytes),
            key::kind::CONTENT_DIGEST => self.visit_digest(key.object, bytes),
            key::kind::NAMED_IN => self.named_in.visit(key, bytes),
            other => self.add(false, key.object, format!("inode {} has a key of unknown kind {other}", key.object)),
        }
    }

    fn visit_inode(&mut self, inode: u64, bytes: &[u8]) {
        let value = match InodeValue::decode(bytes) {
            Ok(value) => value,
            Err(error) => return self.add(true, inode, format!("inode {inode} does not decode: {error}")),
        };
        let Some(kind) = value.kind() else {
            return self.add(true, inode, format!("inode {inode} has no type"));
        };
        for entry in stere_namespace::classes::Named::of(&value).entries(inode) {
            let (is_indexed, what) = match entry.kind {
                key::kind::CLASS_MEMBER => (self.has_class_index, "class"),
                // Pools from before lack those.
                key::kind::REDUNDANCY => continue,
                key::kind::SYNC => (true, "time when changes are durable"),
                _ => (self.has_place_index, "place"),
            };
            if is_indexed && !self.members.contains(&entry) {
                let number = entry.object;
                self.add(false, inode, format!("inode {inode} is of {what} {number} and not in that {what}'s index"));
            }
        }
        self.visit_version(inode, &value);
        self.visit_junction(inode, &value);
        let known = Known {
            kind,
            nlink: value.nlink,
            size: value.size,
            blocks_bytes: value.blocks_bytes,
            parent: value.parent,
            next_sequence: value.next_dirent_sequence,
            volume: value.volume,
            charged_bytes: value.charged_bytes,
        };
        if let Some(accounting) = self.accounting.filter(|accounting| inode < accounting.counted) {
            self.counting = Some((value, (inode < accounting.metadata).then_some(0)));
        }
        self.known.insert(inode, known);
    }

    /// All attributes of the inode in hand were seen.
    fn count_inode(&mut self) {
        if let Some((value, attributes)) = self.counting.take() {
            add_inode(&mut self.counted, &value, attributes);
        }
    }

    /// Of the keys of an inode this is the last, so what it belongs to is known.
    fn visit_digest(&mut self, inode: u64, bytes: &[u8]) {
        if let Err(error) = ContentDigests::decode(bytes) {
            return self.add(false, inode, format!("the digest of inode {inode} does not decode: {error}"));
        }
        if self.known.get(&inode).is_none_or(|known| known.kind != FileKind::File) {
            self.add(false, inode, format!("inode {inode} has a digest of content and is no file"));
        }
    }

    /// A version with a name has its place in the order in which they go.
    fn visit_version(&mut self, inode: u64, value: &InodeValue) {
        let is_one = value.flags & OF_VERSIONS != 0 && value.kind() == Some(FileKind::File) && value.nlink > 0;
        let place = stere_file::version_order(value);
        let is_found = place.is_some_and(|place| self.versions.remove(&(place, inode)));
        if is_one && !is_found {
            self.add(false, inode, format!("version {inode} is not in the index of versions"));
        }
    }

    fn visit_bucket(&mut self, key: &Key, bytes: &[u8]) {
        match DirentBucket::decode(bytes) {
            Ok(bucket) => {
                for sequence in &bucket.sequences {
                    self.hashed.insert(*sequence, key.position);
                }
            }
            Err(error) => {
                self.add(true, key.object, format!("a bucket of directory {} does not decode: {error}", key.object));
            }
        }
    }

    fn visit_name(&mut self, key: &Key, bytes: &[u8]) {
        let directory = key.object;
        let entry = match DirentView::decode(bytes) {
            Ok(entry) => entry,
            Err(error) => {
                return self.add(true, directory, format!("a name of directory {directory} does not decode: {error}"));
            }
        };
        let sequence = key.position;
        let shown = match entry.key {
            0 => String::from_utf8_lossy(entry.name).into_owned(),
            _ => String::from_utf8_lossy(&stere_crypt::opaque_name(sequence)).into_owned(),
        };
        if self.hashed.remove(&sequence) != Some(self.hasher.hash(entry.name)) {
            self.add(true, directory, format!("'{shown}' in directory {directory} cannot be found by its hash"));
        }
        if self.known.get(&directory).is_some_and(|known| sequence >= known.next_sequence) {
            self.add(false, directory, format!("'{shown}' in directory {directory} has a sequence not handed out yet"));
        }
        let weight = weight(entry.name);
        let said = self.said.entry(directory).or_default();
        said.weight += weight;
        said.directories += u32::from(entry.kind == FileKind::Directory);
        let named = self.said.entry(entry.inode).or_default();
        self.named_in.name(directory, entry.inode, (named.names > 0).then_some(named.directory));
        named.names += 1;
        named.directory = directory;
    }

    fn visit_extent(&mut self, key: &Key, bytes: &[u8]) {
        let inode = key.object;
        let extent = match ExtentValue::decode(bytes) {
            Ok(extent) => extent,
            // The store's check tells it.
            Err(_) => return,
        };
        let block = BLOCK_BYTES as u64;
        let allocated = u64::from(extent.length).next_multiple_of(block);
        let start = key.position.checked_sub(allocated);
        let said = self.said.entry(inode).or_default();
        let overlaps = start.is_none_or(|start| start < said.extent_end);
        said.extent_end = key.position;
        said.allocated += allocated;
        said.charged_bytes += extent.charged_bytes();
        if extent.flags == ExtentFlags::Plain {
            said.data_end = start.unwrap_or(0) + u64::from(extent.length);
        } else {
            self.preallocated_bytes += allocated;
        }
        if overlaps || start.is_some_and(|start| start % block != 0) {
            self.add(true, inode, format!("an extent of inode {inode} that ends at {} is misplaced", key.position));
        }
    }

    /// All entries of a directory have been seen: what is left in its buckets names nothing.
    fn finish_directory(&mut self) {
        let left = std::mem::take(&mut self.hashed);
        if !left.is_empty() {
            let directory = self.hashed_of;
            self.add(true, directory, format!("directory {directory} has {} hashes without a name", left.len()));
        }
    }

    fn compare(&mut self) {
        let mut texts: Vec<(bool, u64, String)> = Vec::new();
        for inode in self.said.keys() {
            if !self.known.contains_key(inode) {
                texts.push((true, *inode, format!("inode {inode} is named or has content but does not exist")));
            }
        }
        let nothing = Said::default();
        for (inode, known) in &self.known {
            let said = self.said.get(inode).unwrap_or(&nothing);
            let mut tell = |data_lost: bool, text: String| texts.push((data_lost, *inode, text));
            let listed = self.orphans.get(inode).copied();
            if known.nlink == 0 && listed != Some(false) {
                tell(false, format!("inode {inode} has no name and is not in the list of orphans"));
            }
            if known.kind == FileKind::Directory {
                check_directory(*inode, known, said, &mut tell);
            } else if known.nlink != said.names {
                tell(false, format!("inode {inode} counts {} names and has {}", known.nlink, said.names));
            }
            if known.kind != FileKind::Directory && known.blocks_bytes != said.allocated {
                tell(false, format!("inode {inode} counts {} bytes and has {}", known.blocks_bytes, said.allocated));
            }
            if known.charged_bytes != said.charged_bytes {
                let (counts, has) = (known.charged_bytes, said.charged_bytes);
                tell(false, format!("inode {inode} counts {counts} stored bytes and its extents {has}"));
            }
            if known.kind == FileKind::File && said.data_end > known.size && listed != Some(true) {
                tell(false, format!("inode {inode} has {} bytes and data up to {}", known.size, said.data_end));
            }
        }
        for (_, inode) in &self.versions {
            texts.push((false, *inode, format!("the index of versions has inode {inode}, which is none")));
        }
        for inode in self.orphans.keys().filter(|inode| !self.known.contains_key(inode)) {
            texts.push((false, *inode, format!("the list of orphans has inode {inode}, which does not exist")));
        }
        texts.sort();
        for (data_lost, inode, text) in texts {
            self.add(data_lost, inode, text);
        }
    }

    /// What has several names is noted in each directory that one lies in, and what is no directory lies in its `parent`.
    fn check_named_in(&mut self) {
        let named_in = std::mem::take(&mut self.named_in);
        let has_several = |inode: u64| {
            self.known.get(&inode).is_some_and(|known| known.nlink > 1 && known.kind != FileKind::Directory)
        };
        for wrong in named_in.finish(has_several) {
            let (noted, right) = (wrong.noted, wrong.right);
            let text = format!("inode {} is noted to have names in {noted:?} and has them in {right:?}", wrong.inode);
            self.add(false, wrong.inode, text);
        }
        let mut texts = Vec::new();
        for (inode, known) in self.known.iter().filter(|_| named_in.is_complete()) {
            let Some(said) = self.said.get(inode).filter(|said| said.names > 0) else { continue };
            let lies_there = named_in
                .named(*inode)
                .map_or(said.directory == known.parent, |directories| directories.contains_key(&known.parent));
            if known.kind != FileKind::Directory && !lies_there {
                texts.push((*inode, format!("inode {inode} says it lies in {} and has no name there", known.parent)));
            }
        }
        texts.sort();
        texts.into_iter().for_each(|(inode, text)| self.add(false, inode, text));
    }

    /// Every directory leads to the root over its parents.
    fn check_reachable(&mut self) {
        let mut reached = FxHashSet::from_iter([ROOT]);
        let mut lost = Vec::new();
        if self.known.get(&ROOT).is_none_or(|root| root.kind != FileKind::Directory) {
            lost.push((ROOT, "there is no root directory".to_owned()));
        }
        for (inode, _) in self.known.iter().filter(|(_, known)| known.kind == FileKind::Directory && known.nlink > 0) {
            let mut path = Vec::new();
            let mut at = *inode;
            while !reached.contains(&at) {
                if path.contains(&at) || !self.known.contains_key(&at) {
                    lost.push((*inode, format!("directory {inode} does not lead to the root")));
                    break;
                }
                path.push(at);
                at = self.known.get(&at).map_or(ROOT, |known| known.parent);
            }
            reached.extend(path);
        }
        for (inode, text) in lost {
            self.add(true, inode, text);
        }
    }
}

fn check_directory(inode: u64, known: &Known, said: &Said, tell: &mut impl FnMut(bool, String)) {
    let named = u32::from(inode != ROOT && known.nlink > 0);
    if said.names != named {
        tell(true, format!("directory {inode} has {} names", said.names));
    }
    if known.nlink > 0 && known.nlink != 2 + said.directories {
        tell(false, format!("directory {inode} counts {} links and has {} directories", known.nlink, said.directories));
    }
    if known.size != said.weight {
        tell(false, format!("directory {inode} counts {} bytes of names and has {}", known.size, said.weight));
    }
    if named == 1 && said.directory != known.parent {
        tell(true, format!("directory {inode} says it lies in {} and lies in {}", known.parent, said.directory));
    }
}
