//! What is in memory of one inode: how often it is open, and of a regular file what was written and not yet saved.
//!
//! Invariants: no dirty byte lies at or behind `size`; `stored_size` is the size on media, never more than what the data
//! on media allows (a crash shows no byte the file never held); no extent ends behind `extents_end`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stere_faults::{Bug, is_planted};
use stere_format::{DeviceIndex, InodeValue, Timestamp};
use stere_store::{Transaction, View};

use crate::error::Error;
use crate::keys::visit_extents;
use crate::record::{RECORD_BYTES, Record};
use crate::requests::{self, RequestId};

/// State of one inode in memory.
#[derive(Default)]
pub(crate) struct State {
    /// Handles open.
    pub opens: u32,
    /// What it held when it was opened was kept, or need not be.
    pub is_kept: bool,
    /// Loaded on the first change of content.
    pub content: Option<Content>,
}

/// What is in memory of a regular file's content.
pub(crate) struct Content {
    pub size: u64,
    pub stored_size: u64,
    pub extents_end: u64,
    pub modified: Option<Timestamp>,
    pub changed: Option<Timestamp>,
    pub records: BTreeMap<u64, Record>,
    /// The age step in which the oldest unsaved change was made.
    pub dirty_since: u64,
    /// Of an unreplicated file: the device it lies on, once that is known.
    pub home: Option<DeviceIndex>,
    /// Appends of other machines that are not saved yet, and where they went: one for each slot of a session.
    appends: Vec<(RequestId, u64)>,
}

impl State {
    /// Whether nothing is lost when the entry goes.
    pub fn is_idle(&self) -> bool {
        self.opens == 0 && !self.is_dirty()
    }

    pub fn is_dirty(&self) -> bool {
        self.content.as_ref().is_some_and(Content::is_dirty)
    }
}

impl Content {
    pub fn is_dirty(&self) -> bool {
        !self.records.is_empty() || self.modified.is_some() || self.changed.is_some() || self.size != self.stored_size
    }

    /// Where `record` starts in the file.
    pub fn record_start(record: u64) -> u64 {
        record * RECORD_BYTES
    }

    /// Memory held by dirty records.
    pub fn memory_bytes(&self) -> u64 {
        self.records.values().map(Record::memory_bytes).sum()
    }

    /// Bytes that will be allocated when dirty data behind the stored end is saved.
    pub fn unsaved_growth_bytes(&self) -> u64 {
        let block = stere_format::BLOCK_BYTES as u64;
        let first = self.stored_size / RECORD_BYTES;
        let records = self.records.range(first..);
        records
            .filter(|(index, _)| **index * RECORD_BYTES >= self.stored_size)
            .fold(0, |sum, (_, record)| sum + u64::from(record.dirty().blocks(block as u32)) * block)
    }

    /// Notes a write at `now`.
    pub fn touch(&mut self, now: Timestamp) {
        self.modified = Some(now);
        self.changed = Some(now);
    }

    /// Begins an append of another machine: it is noted by whatever saves a part of it.
    pub fn begin_append(&mut self, request: &RequestId, place: u64) {
        assert_eq!(place, self.size, "an append goes to the end");
        self.appends.retain(|(other, _)| (other.session, other.slot) != (request.session, request.slot));
        self.appends.push((*request, place));
    }

    /// Nothing of it was taken.
    pub fn forget_append(&mut self, request: &RequestId) {
        self.appends.retain(|(other, _)| other != request);
    }

    /// Notes the appends with what saves them.
    pub fn note_appends(&self, transaction: &mut Transaction<'_>) {
        self.appends.iter().for_each(|(request, place)| requests::note(transaction, Some(request), *place));
    }

    /// What is saved has noted them.
    pub fn appends_are_noted(&mut self) {
        self.appends.clear();
    }

    /// Forgets what was not saved behind `size`, and makes it the end. Gives the memory that became free.
    pub fn cut(&mut self, size: u64) -> u64 {
        assert!(size <= self.size, "a file of {} bytes is not cut at {size}", self.size);
        let before = self.memory_bytes();
        let boundary = size / RECORD_BYTES;
        self.records.split_off(&(boundary + 1));
        let mut empty = false;
        if let Some(record) = self.records.get_mut(&boundary) {
            let keep = (size % RECORD_BYTES) as u32;
            record.truncate(if is_planted(Bug::CutKeepsTail) { keep.next_multiple_of(4096) } else { keep });
            empty = record.dirty().is_empty();
        }
        if empty {
            self.records.remove(&boundary);
        }
        self.size = size;
        let after = self.memory_bytes();
        assert!(after <= before, "what is cut off a file takes no memory");
        before - after
    }

    /// What holds at the end of every change, whether it succeeded or not.
    pub fn assert_invariants(&self) {
        let Content { size, stored_size, .. } = *self;
        assert!(stored_size <= size, "media have {stored_size} bytes of a file of {size}");
        let Some((index, last)) = self.records.last_key_value() else { return };
        let dirty_end = last.dirty().end().map(|end| Content::record_start(*index) + u64::from(end));
        assert!(dirty_end.is_some(), "a record that is not dirty leaves memory");
        assert!(dirty_end <= Some(size), "bytes are dirty up to {dirty_end:?} of a file of {size}");
    }
}

impl Content {
    /// Of a file that was just made.
    pub fn new_file() -> Content {
        Content {
            size: 0,
            stored_size: 0,
            extents_end: 0,
            modified: None,
            changed: None,
            records: BTreeMap::new(),
            dirty_since: 0,
            home: None,
            appends: Vec::new(),
        }
    }

    /// Of a file on media.
    pub fn load(view: &View<'_>, inode: u64, value: &InodeValue) -> Result<Content, Error> {
        let mut extents_end = value.size;
        visit_extents(view, inode, value.size, &mut |extent| {
            extents_end = extents_end.max(extent.end());
            ControlFlow::Continue(())
        })?;
        Ok(Content { size: value.size, stored_size: value.size, extents_end, ..Content::new_file() })
    }
}

/// The inode with what is in memory of it laid over.
pub(crate) fn laid_over(value: InodeValue, state: &State) -> InodeValue {
    match &state.content {
        Some(content) => laid_over_content(value, content),
        None => value,
    }
}

pub(crate) fn laid_over_content(mut value: InodeValue, content: &Content) -> InodeValue {
    value.size = content.size;
    value.blocks_bytes += content.unsaved_growth_bytes();
    value.mtime = content.modified.unwrap_or(value.mtime);
    value.ctime = content.changed.map_or(value.ctime, |changed| changed.max(value.ctime));
    value
}
