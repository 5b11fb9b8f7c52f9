//! Changing keys: a transaction gathers changes and takes effect as a whole, or not at all.
//!
//! Invariants: the closure that fills a transaction may run several times, so nothing outside the transaction changes in it;
//! live bytes of segments change together with the blob map. Blob rules: every extent holds one reference; `SHARED` is
//! sticky; blocks of unshared blobs die one by one. Read next: `access.rs`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobFlags, BlobValue, Key, key, sector_aligned};
use stere_log::Segment;

use crate::content::NewBlob;
use crate::error::Error;
use crate::view::View;
use stere_recall::BlobHandle;
use stere_tree::Value;

/// Live bytes a blob keeps in its segment. What is encoded is one piece: all of it is kept until its last block is dead.
pub fn blob_usage_bytes(value: &BlobValue) -> u64 {
    let stored = u64::from(sector_aligned(value.address.length));
    if value.encoding != BlobEncoding::PLAIN || value.live == value.present {
        stored
    } else {
        stored.min(u64::from(value.live_blocks()) * BLOCK_BYTES as u64)
    }
}

/// Marks the blocks dead that lie wholly within this byte range of the blob.
fn kill(value: &mut BlobValue, range: Range<u32>) {
    let block = BLOCK_BYTES as u32;
    let first = range.start.div_ceil(block);
    // The last block is short: reaching the end of the content covers it.
    let last = if range.end >= value.logical_bytes { value.blocks() } else { range.end / block };
    let last = if is_planted(Bug::TrimOneTooMany) { value.blocks().min(last + 1) } else { last };
    if first < last {
        value.kill(first..last);
    }
}

/// Most calls change a directory and what is in it.
const INODES_REMEMBERED: usize = 2;

pub(crate) type Writes = BTreeMap<Key, Option<Arc<[u8]>>>;
/// A key's value before the transaction.
type Before = (Key, Option<Value>);
pub(crate) type Usage = Vec<(Arc<Segment>, i64)>;

/// Changes that take effect together.
pub struct Transaction<'a> {
    pub(crate) view: View<'a>,
    /// Inodes as they were before; those who look at a transaction last ask for them again.
    inodes_before: RefCell<[Option<Before>; INODES_REMEMBERED]>,
    pub(crate) writes: Writes,
    pub(crate) usage: Usage,
    pub(crate) next_inode: u64,
    /// Inodes from here on are made by this transaction.
    first_new_inode: u64,
    /// Whether it enters data, whose room was reserved.
    pub(crate) enters_data: bool,
    /// Whether what it adds was accepted before.
    is_charge_pending: bool,
    /// Whether it takes away only, so that nothing refuses it.
    pub(crate) only_frees: bool,
    /// Whether every file holds afterwards what it held before.
    keeps_content: bool,
    /// Whether something is given up that others still have, so that nothing of it dies.
    pub(crate) leaves_shared: bool,
    /// Segments of which a file comes to share something.
    pub(crate) newly_shared: Vec<Arc<Segment>>,
    /// Whether it only says where content is from now on.
    pub(crate) is_move: bool,
    /// What follows when it takes effect, under the lock that it takes effect under.
    pub(crate) on_effect: Vec<Box<dyn FnOnce()>>,
}

/// Looks at a transaction before it takes effect, and may add to it or refuse it. May run several times, as the transaction.
pub type Settler = Box<dyn Fn(&mut Transaction<'_>) -> Result<(), Error> + Send + Sync>;

impl<'a> Transaction<'a> {
    pub(crate) fn new(view: View<'a>, next_inode: u64) -> Self {
        Transaction {
            view,
            inodes_before: RefCell::default(),
            writes: BTreeMap::new(),
            usage: Vec::new(),
            next_inode,
            first_new_inode: next_inode,
            enters_data: false,
            is_charge_pending: false,
            only_frees: false,
            keeps_content: false,
            leaves_shared: false,
            newly_shared: Vec::new(),
            is_move: false,
            on_effect: Vec::new(),
        }
    }

    /// What holds of a transaction that is about to take effect.
    pub(crate) fn assert_invariants(&self) {
        assert!(self.next_inode >= self.first_new_inode, "a transaction gives no inode number back");
        assert!(self.usage.is_empty() || !self.writes.is_empty(), "live bytes change together with the blob map");
        assert!(!self.is_move || self.enters_data, "a move makes room in the end and is never refused");
    }

    /// Says that what this transaction adds was accepted before, so that no limit refuses it now.
    pub fn set_charge_pending(&mut self) {
        self.is_charge_pending = true;
    }

    /// Says that the room of what it changes was promised, its metadata included: it is not refused for want of room.
    pub fn set_promised(&mut self) {
        self.enters_data = true;
    }

    /// Says that this transaction takes content away and adds none, so that a full pool does not refuse it: what is left of an encoded
    /// blob takes as much room as before, and a few bytes more to say which of its blocks are dead.
    pub fn set_freeing(&mut self) {
        self.only_frees = true;
    }

    /// Says that every file holds afterwards what it held before, wherever that lies then.
    pub fn set_content_kept(&mut self) {
        self.keeps_content = true;
    }

    /// Whether every file holds afterwards what it held before.
    pub fn keeps_content(&self) -> bool {
        self.keeps_content
    }

    /// Whether what it adds was accepted before.
    pub fn is_charge_pending(&self) -> bool {
        self.is_charge_pending
    }

    /// Runs something when, and at the very moment at which, this takes effect. It must be quick and ask the store nothing.
    pub fn on_effect(&mut self, work: impl FnOnce() + 'static) {
        self.on_effect.push(Box::new(work));
    }

    /// Shows the keys of one kind that this transaction puts or deletes so far, with their values before and after.
    pub fn changed(
        &self,
        tree: u8,
        kind: u8,
        mut visit: impl FnMut(&Key, Option<&[u8]>, Option<&[u8]>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let written = self.writes.range(Key::new(tree, 0, 0, 0)..Key::new(tree + 1, 0, 0, 0));
        for (key, after) in written.filter(|(key, _)| key.kind == kind) {
            // What is only made now was nothing before, which need not be looked up.
            let is_new = tree == key::tree::NAMES && key.object >= self.first_new_inode;
            let before = if is_new { None } else { self.before(key)? };
            visit(key, before.as_deref(), after.as_deref())?;
        }
        Ok(())
    }

    /// The keys of one tree that this transaction puts or deletes so far, in order.
    pub fn written(&self, tree: u8) -> impl Iterator<Item = &Key> {
        self.writes.range(Key::new(tree, 0, 0, 0)..Key::new(tree + 1, 0, 0, 0)).map(|(key, _)| key)
    }

    /// By how many bytes the changes make the metadata larger, and the data in raw bytes; negative where they free more.
    pub(crate) fn growth(&self) -> Result<(i64, i64), Error> {
        let size = |value: Option<usize>| value.map_or(0, |length| signed((length + Key::SIZE) as u64));
        let mut metadata = 0;
        for (key, value) in &self.writes {
            let old = self.view.get(key)?.map(|old| old.len());
            metadata += size(value.as_ref().map(|new| new.len())) - size(old);
        }
        let data = self.usage.iter().map(|(segment, delta)| crate::space::raw(segment.scheme, *delta)).sum();
        Ok((metadata, data))
    }

    /// The value of a key, this transaction's own changes included.
    pub fn get(&self, key: &Key) -> Result<Option<Value>, Error> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone().map(Value::owned)),
            None => self.before(key),
        }
    }

    /// The value of a key before this transaction. What is there changes only under the lock that this holds.
    fn before(&self, key: &Key) -> Result<Option<Value>, Error> {
        if key.kind != key::kind::INODE {
            return self.view.get(key);
        }
        let mut inodes = self.inodes_before.borrow_mut();
        if let Some((_, value)) = inodes.iter().flatten().find(|(remembered, _)| remembered == key) {
            return Ok(value.clone());
        }
        let value = self.view.get(key)?;
        if let Some(free) = inodes.iter_mut().find(|inode| inode.is_none()) {
            *free = Some((*key, value.clone()));
        }
        Ok(value)
    }

    /// As `View::scan`, this transaction's own changes included.
    pub fn scan(&self, from: Key, to: Key, mut visit: impl FnMut(&Key, &[u8]) -> ControlFlow<()>) -> Result<(), Error> {
        if from >= to {
            return Ok(());
        }
        let own: Vec<_> = self.writes.range(from..to).map(|(key, value)| (*key, value.clone())).collect();
        self.view.scan_with(&own, from, to, &mut visit)
    }

    pub fn put(&mut self, key: Key, value: &[u8]) {
        self.writes.insert(key, Some(Arc::from(value)));
    }

    pub fn delete(&mut self, key: Key) {
        self.writes.insert(key, None);
    }

    /// A new inode number, never used before in this pool.
    pub fn allocate_inode(&mut self) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        inode
    }

    /// The blob's entry, this transaction's own changes included.
    pub fn blob(&self, id: u64) -> Result<BlobHandle, Error> {
        let value = self.get(&Key::blob(id))?.ok_or(Error::UnknownBlob { blob: id })?;
        self.view.handle(id, &value)
    }

    /// Enters an appended blob into the blob map, with one reference.
    pub fn insert_blob(&mut self, new: &NewBlob) {
        assert_eq!(new.value.references, 1, "a new blob belongs to one extent");
        assert_eq!(new.value.address.segment, new.segment.id, "a new blob holds the segment that it lies in");
        self.enters_data = true;
        self.usage.push((new.segment.clone(), signed(blob_usage_bytes(&new.value))));
        self.put_blob(new.id, &new.value);
    }

    fn put_blob(&mut self, id: u64, value: &BlobValue) {
        let mut bytes = Vec::with_capacity(64);
        value.encode_to(&mut bytes);
        self.writes.insert(Key::blob(id), Some(Arc::from(bytes)));
    }

    /// One more extent names the blob; `shared` when it belongs to another file or another place of it (reflink).
    pub fn reference_blob(&mut self, id: u64, shared: bool) -> Result<(), Error> {
        let (mut value, segment) = self.owned_blob(id)?;
        value.references = value.references.checked_add(1).ok_or(Error::NoSpace)?;
        if shared {
            self.newly_shared.push(segment);
            value.flags = BlobFlags(value.flags.0 | BlobFlags::SHARED.0);
        }
        self.put_blob(id, &value);
        Ok(())
    }

    /// An extent that covered `range` of the blob goes away.
    pub fn release_blob(&mut self, id: u64, range: Range<u32>) -> Result<(), Error> {
        let (mut value, segment) = self.owned_blob(id)?;
        let before = blob_usage_bytes(&value);
        assert!(value.references > 0, "a blob in the map has references");
        value.references -= 1;
        if value.references == 0 {
            self.usage.push((segment, -signed(before)));
            self.writes.insert(Key::blob(id), None);
            return Ok(());
        }
        match value.flags.contains(BlobFlags::SHARED) {
            true => self.leaves_shared = true,
            false => kill(&mut value, range),
        }
        let after = blob_usage_bytes(&value);
        assert!(after <= before, "a blob that lost an extent grew from {before} to {after} bytes");
        self.usage.push((segment, signed(after) - signed(before)));
        self.put_blob(id, &value);
        Ok(())
    }

    /// An extent no longer covers `range` of the blob but goes on with the rest.
    pub fn trim_blob(&mut self, id: u64, range: Range<u32>) -> Result<(), Error> {
        let (mut value, segment) = self.owned_blob(id)?;
        if value.flags.contains(BlobFlags::SHARED) {
            return Ok(());
        }
        let before = blob_usage_bytes(&value);
        kill(&mut value, range);
        let after = blob_usage_bytes(&value);
        assert!(after <= before, "a blob that was trimmed grew from {before} to {after} bytes");
        self.usage.push((segment, signed(after) - signed(before)));
        self.put_blob(id, &value);
        Ok(())
    }

    /// Puts a moved blob in the place of the old one, if nobody changed its entry meanwhile.
    pub(crate) fn move_blob(&mut self, old: &BlobHandle, new: &BlobValue, to: &Arc<Segment>) -> Result<bool, Error> {
        assert_eq!(new.address.segment, to.id, "a moved blob holds the segment that it lies in");
        assert_eq!(new.logical_bytes, old.value.logical_bytes, "a blob keeps its length where it moves");
        assert_eq!(new.live, old.value.live, "a blob keeps its live blocks where it moves");
        // Moving makes room in the end, whatever it takes now.
        self.enters_data = true;
        self.is_move = true;
        let Some(current) = self.get(&Key::blob(old.id))? else { return Ok(false) };
        let current = self.view.handle(old.id, &current)?;
        if current.value != old.value {
            return Ok(false);
        }
        assert_eq!(new.references, current.value.references, "a blob keeps its references where it moves");
        self.usage.push((current.segment.clone(), -signed(blob_usage_bytes(&current.value))));
        self.usage.push((to.clone(), signed(blob_usage_bytes(new))));
        // What is moved is as warm as it was.
        to.heat.inherit(current.segment.heat.get().used_seconds);
        self.put_blob(old.id, new);
        Ok(true)
    }

    fn owned_blob(&self, id: u64) -> Result<(BlobValue, Arc<Segment>), Error> {
        let BlobHandle { value, segment, .. } = self.blob(id)?;
        Ok((Arc::unwrap_or_clone(value), segment))
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("a blob is far below 2^63 bytes")
}
