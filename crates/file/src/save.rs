//! Handing dirty records to the store: blobs first, then one transaction with their extents, the size and the times.
//!
//! Invariants: a record leaves memory only after its transaction took effect; the size on media grows only to where all
//! data below is on media too; a failure leaves everything in memory, to be tried again.

use std::sync::Arc;

use stere_format::{FileKind, Timestamp};
use stere_store::{Io, Owner, Store};

use crate::block::BLOCK;
use crate::context::Context;
use crate::encode::{Appended, Codec};
use crate::encoding::Storing;
use crate::error::Error;
use crate::extents::{self, Allocation};
use crate::following::Following;
use crate::grants::Grants;
use crate::keys;
use crate::orphan::Orphans;
use crate::orphans::OrphanKind;
use crate::policies::Policies;
use crate::record::RECORD_BYTES;
use crate::state::{Content, State};
use crate::table::FileTable;
use crate::written::Written;

/// Records that go in one transaction.
const RECORDS_PER_STEP: usize = 128;

/// Records whose encoded bytes are in memory at a time.
const RECORDS_AT_ONCE: usize = 16;

/// What a transaction enters besides extents.
struct Entering {
    size: u64,
    modified: Option<Timestamp>,
    changed: Option<Timestamp>,
}

/// Hands what is dirty in memory to the store.
pub struct Writeback {
    pub(crate) store: Arc<Store>,
    pub(crate) table: Arc<FileTable>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) following: Arc<Following>,
    pub(crate) written: Arc<Written>,
    /// Memory for bytes that were written and not yet handed to the store.
    pub(crate) dirty_bytes_max: u64,
    /// Age steps after which unsaved changes are handed to the store.
    pub(crate) dirty_steps_max: u64,
}

impl Writeback {
    /// Saves all of a file's unsaved changes.
    pub(crate) fn save_all(&self, context: &Context<'_>, inode: u64, content: &mut Content) -> Result<(), Error> {
        while content.records.len() > RECORDS_PER_STEP {
            let batch: Vec<u64> = content.records.keys().copied().take(RECORDS_PER_STEP).collect();
            self.save_batch(context, inode, content, &batch)?;
        }
        let batch: Vec<u64> = content.records.keys().copied().collect();
        self.save_batch(context, inode, content, &batch)?;
        assert!(!content.is_dirty(), "nothing of inode {inode} is left to save");
        Ok(())
    }

    /// Saves records together. Where there is no room for all of them beside what they replace, one after the other,
    /// each making room for the next.
    fn save_batch(&self, context: &Context<'_>, inode: u64, content: &mut Content, batch: &[u64]) -> Result<(), Error> {
        match self.save_records(context, inode, content, batch) {
            Err(Error::Store(stere_store::Error::NoSpace)) if batch.len() > 1 => {
                batch.iter().try_for_each(|record| self.save_records(context, inode, content, &[*record]))
            }
            outcome => outcome,
        }
    }

    /// Saves one record, and before it those that must not be missing when the size on media grows over it.
    pub(crate) fn save_record(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        record: u64,
    ) -> Result<(), Error> {
        let mut batch = Vec::new();
        if Content::record_start(record + 1) > content.stored_size {
            batch = growing(content, record);
        }
        batch.push(record);
        self.save_records(context, inode, content, &batch)
    }

    fn save_records(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        batch: &[u64],
    ) -> Result<(), Error> {
        for record in batch {
            self.fill_partial_blocks(context, inode, content, *record)?;
        }
        let mut appended = Vec::with_capacity(batch.len());
        if !batch.is_empty() {
            let storing = self.policies.storing(context.io, inode)?;
            let mut home = self.policies.home(context.io, inode, content.home, storing.placement)?;
            for several in batch.chunks(RECORDS_AT_ONCE) {
                let pieces = pieces_of(&storing, content, several);
                let passed = self.codec.pass_many(&storing, pieces.iter().map(|(_, data)| *data).collect());
                for ((start, _), passed) in pieces.iter().zip(passed) {
                    let owner = Owner { inode, offset: *start };
                    let blob = self.codec.append_passed(context.io, &storing, home, owner, passed?)?;
                    home = blob.home();
                    appended.push(Appended { start: *start, blob });
                }
            }
        }
        content.home = appended.last().map_or(content.home, |last| last.blob.home());
        self.enter(context, inode, content, &appended, batch)
    }

    /// Enters appended blobs into the file; the records in `replaced` leave memory.
    pub(crate) fn enter(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        appended: &[Appended],
        replaced: &[u64],
    ) -> Result<(), Error> {
        self.enter_as(context, inode, content, appended, replaced, false)
    }

    /// The same; `is_same`: the file holds afterwards what it held before, stored in another way.
    pub(crate) fn enter_as(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        appended: &[Appended],
        replaced: &[u64],
        is_same: bool,
    ) -> Result<(), Error> {
        let follows = |pair: &[Appended]| pair[0].end() <= pair[1].start;
        assert!(appended.windows(2).all(follows), "blobs are entered in the order of the file");
        let all = content.records.keys().all(|record| replaced.contains(record));
        let reached = appended.last().map_or(0, Appended::end);
        let size = if all { content.size } else { content.stored_size.max(reached.min(content.size)) };
        assert!(size >= content.stored_size, "saving cuts nothing off: {size} of {}", content.stored_size);
        let entering = Entering { size, modified: content.modified, changed: content.changed };
        let (extents_end, file_size) = (content.extents_end, content.size);
        let saved: &Content = content;
        self.store.update(context.io, |transaction| {
            saved.note_appends(transaction);
            if is_same {
                transaction.set_content_kept();
            }
            let mut value = keys::inode(transaction, inode)?;
            let mut allocation = Allocation::default();
            for new in appended {
                assert!(new.start % BLOCK == 0, "blobs begin at whole blocks of the file");
                let end = new.end().next_multiple_of(BLOCK);
                let (freed, _) = extents::clear(transaction, inode, new.start..end, usize::MAX - 1)?;
                assert!(
                    new.start < extents_end || freed == Allocation::default(),
                    "no extent of inode {inode} ends behind {extents_end}, as far as is known"
                );
                allocation.add(freed);
                transaction.insert_blob(&new.blob);
                allocation.add(extents::put_plain(transaction, inode, new.start, new.blob.id, 0, new.blob.length()));
            }
            value.blocks_bytes = allocation.apply(value.blocks_bytes);
            value.size = entering.size;
            if !appended.is_empty() && !is_same && entering.modified.is_none_or(|modified| modified == value.mtime) {
                // Somebody set the time back since it was written, so that nothing else shows it.
                self.following.note_content(transaction, inode, &value)?;
            }
            value.mtime = entering.modified.unwrap_or(value.mtime);
            value.ctime = entering.changed.map_or(value.ctime, |changed| changed.max(value.ctime));
            keys::put_inode(transaction, inode, &value);
            self.grants.pay(transaction, inode, file_size, size);
            Ok::<_, Error>(())
        })?;
        if !appended.is_empty() {
            self.written.note(inode);
        }
        let before = content.memory_bytes();
        for record in replaced {
            content.records.remove(record);
        }
        self.table.note_memory(before, content.memory_bytes());
        content.stored_size = size;
        content.extents_end = content.extents_end.max(reached.next_multiple_of(BLOCK));
        (content.modified, content.changed) = (None, None);
        content.appends_are_noted();
        content.assert_invariants();
        Ok(())
    }

    /// Reads what the store has in blocks that are dirty in part, so that whole blocks can be written.
    pub(crate) fn fill_partial_blocks(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        index: u64,
    ) -> Result<(), Error> {
        let end = end_in_record(content, index);
        let extents_end = content.extents_end;
        let start = Content::record_start(index);
        let Some(record) = content.records.get_mut(&index) else { return Ok(()) };
        let before = record.memory_bytes();
        let gaps: Vec<_> = record.runs(end).iter().flat_map(|run| record.dirty().gaps(run.clone())).collect();
        let outcome = gaps.into_iter().try_for_each(|gap| {
            let offset = start + u64::from(gap.start);
            record.fill(gap, |out| {
                if offset >= extents_end {
                    out.fill(0);
                    return Ok(());
                }
                self.codec.read_stored(context.io, inode, offset, out)
            })
        });
        let after = record.memory_bytes();
        self.table.note_memory(before, after);
        outcome
    }

    /// Reads the rest of all blocks that are dirty in part: after this, what they lie in may be released. What cannot be read stays
    /// as it is, and whoever saves it is told.
    pub fn complete_dirty_blocks(&self, context: &Context<'_>) -> Result<(), Error> {
        assert!(context.io.may_block(), "this waits for files");
        for inode in self.table.inodes() {
            let Some(held) = self.table.find(inode) else { continue };
            let mut state = held.write(context.io)?;
            let Some(content) = state.content.as_mut().filter(|content| content.is_dirty()) else { continue };
            let records: Vec<u64> = content.records.keys().copied().collect();
            for record in records {
                if let Err(error) = self.fill_partial_blocks(context, inode, content, record) {
                    tracing::debug!(inode, %error, "a block that is dirty in part cannot be completed");
                }
            }
        }
        Ok(())
    }

    /// Saves everything of one file; the caller commits.
    pub fn save(&self, context: &Context<'_>, inode: u64) -> Result<(), Error> {
        let Some(held) = self.table.find(inode) else { return Ok(()) };
        let mut state = held.write(context.io)?;
        if state.opens == 0 && self.orphans.is_removed_for_good(inode) {
            return Ok(());
        }
        match &mut state.content {
            Some(content) if content.is_dirty() => self.save_all(context, inode, content),
            _ => Ok(()),
        }
    }

    /// Saves everything of all files; the caller commits. The first error is told after all files have been tried.
    pub fn save_everything(&self, context: &Context<'_>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for inode in self.table.inodes() {
            let saved = self.save(context, inode);
            if saved.as_ref().is_err_and(Error::would_block) {
                return saved;
            }
            outcome = outcome.and(saved);
        }
        outcome
    }

    /// Saves what has been in memory for long; the first error is told after all have been tried.
    pub(crate) fn save_old(&self, context: &Context<'_>, age: u64) -> Result<(), Error> {
        let mut outcome = Ok(());
        for inode in self.table.inodes() {
            let Some(held) = self.table.find(inode) else { continue };
            let Ok(mut state) = held.write(Io::NON_BLOCKING) else { continue };
            if state.opens == 0 && self.orphans.is_removed_for_good(inode) {
                continue;
            }
            let Some(content) = &mut state.content else { continue };
            if content.is_dirty() && content.dirty_since + self.dirty_steps_max <= age {
                outcome = outcome.and(self.save_all(context, inode, content));
            }
        }
        outcome
    }

    pub(crate) fn load<'state>(
        &self,
        context: &Context<'_>,
        inode: u64,
        state: &'state mut State,
    ) -> Result<&'state mut Content, Error> {
        if self.orphans.kind_of(inode) == Some(OrphanKind::Truncating) {
            self.orphans.finish_truncation(context, inode)?;
        }
        if state.content.is_none() {
            let content = self.store.view(context.io, |view| {
                let value = keys::inode(view, inode)?;
                match value.kind() {
                    Some(FileKind::File) => Content::load(view, inode, &value),
                    Some(FileKind::Directory) => Err(Error::IsDirectory(inode)),
                    _ => Err(Error::NotAFile(inode)),
                }
            })?;
            state.content = Some(content);
        }
        Ok(state.content.as_mut().expect("loaded just now"))
    }

    /// Keeps the memory for dirty bytes within its limit: saves this file, then others.
    pub(crate) fn relieve(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        coming: u64,
    ) -> Result<(), Error> {
        let limit = self.dirty_bytes_max;
        if self.table.dirty_bytes() + coming <= limit {
            return Ok(());
        }
        self.relieve_to(context, inode, content, limit.saturating_sub(coming))
    }

    /// Saves this file, then others, until so many dirty bytes are left.
    pub(crate) fn relieve_to(
        &self,
        context: &Context<'_>,
        inode: u64,
        content: &mut Content,
        limit: u64,
    ) -> Result<(), Error> {
        if content.is_dirty() {
            self.save_all(context, inode, content)?;
        }
        if self.table.dirty_bytes() <= limit {
            return Ok(());
        }
        if !context.io.may_block() {
            return Err(Error::Store(stere_store::Error::WouldBlock));
        }
        for other in self.table.inodes() {
            if other == inode || self.table.dirty_bytes() <= limit {
                continue;
            }
            let Some(held) = self.table.find(other) else { continue };
            // Never wait for another inode's lock while holding one: whoever has it may be doing the same.
            let Ok(mut state) = held.write(Io::NON_BLOCKING) else { continue };
            if let Some(content) = state.content.as_mut().filter(|content| content.is_dirty()) {
                match self.save_all(context, other, content) {
                    // That is its own trouble, told to those who close it.
                    Err(Error::Plugin(_)) => {}
                    Err(Error::Store(stere_store::Error::Damaged { .. } | stere_store::Error::Elsewhere { .. })) => {}
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }
}

/// What is dirty of records, as it becomes blobs, each with where it begins in the file.
fn pieces_of<'content>(storing: &Storing, content: &'content Content, records: &[u64]) -> Vec<(u64, &'content [u8])> {
    let mut pieces = Vec::with_capacity(records.len());
    for index in records {
        let (record, start) = (&content.records[index], Content::record_start(*index));
        for run in record.runs(end_in_record(content, *index)).iter() {
            pieces.extend(storing.cut(start + u64::from(run.start), record.slice(run)));
        }
    }
    pieces
}

/// Where the file ends within a record.
fn end_in_record(content: &Content, record: u64) -> u32 {
    content.size.saturating_sub(Content::record_start(record)).min(RECORD_BYTES) as u32
}

/// Dirty records before `record` that reach over the size on media.
pub(crate) fn growing(content: &Content, record: u64) -> Vec<u64> {
    let before = content.records.range(..record).map(|(index, _)| *index);
    before.filter(|index| Content::record_start(index + 1) > content.stored_size).collect()
}
