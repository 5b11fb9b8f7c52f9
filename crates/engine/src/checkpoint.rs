//! Checkpoints: the frozen overlay is merged into the tree, a checkpoint record is written, then the superblocks name it.
//!
//! Order, which is what makes a crash at any point harmless: nodes, checkpoint record, flush, superblocks, flush, and only then
//! are slots that the old checkpoint needed given back and the journal behind the new one is free. The merge holds no lock:
//! the frozen overlay and the old tree never change. Read next: `condemn.rs`, `freed.rs`, `superblock.rs`, `recover.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::MutexGuard;
use rustc_hash::FxHashSet;
use stere_faults::{Bug, is_planted};
use stere_format::{
    CheckpointPart, CheckpointRecord, Key, Node, NodeReference, PoolTotals, RecordSubject, SegmentChunks, SegmentKind,
    SummaryEntry, Superblock, sector_aligned,
};
use stere_log::{Appended, Io, StreamKey};
use stere_tree::{NodeIo, Tree};

use crate::batch::{Batches, Frozen};
use crate::checkpointer::Checkpointer;
use crate::condemn::choose_condemned;
use crate::error::Error;
use crate::freed::release_freed;
use crate::mirrors::{note_answering, wanted_journal};
use crate::shared::SharedLog;
use crate::stranded::Rerouting;
use crate::superblock::store_superblocks;
use crate::{FreedSegment, engine::Engine};
use stere_journal::Journal;

/// After so many checkpoints the open segment of a device that gets no unreplicated data is sealed.
const IDLE_CHECKPOINTS_MAX: u32 = 64;

/// How often a checkpoint record is written at most, each time without the device that failed.
const RECORD_ROUNDS_MAX: u32 = 4;

struct MergeIo<'a> {
    store: &'a Engine,
    stream: StreamKey,
    condemned: FxHashSet<u64>,
}

impl NodeIo for MergeIo<'_> {
    type Error = Error;

    fn read(&mut self, reference: &NodeReference) -> Result<Arc<Node>, Error> {
        self.store.node(reference)
    }

    fn append(&mut self, level: u8, first_key: &Key, bytes: Vec<u8>) -> Result<NodeReference, Error> {
        let first_key = *first_key;
        let crc32c = stere_format::crc32c(&bytes);
        let subject = RecordSubject::Node { level, first_key };
        let appended = self.store.checkpoints().append(&self.stream, &bytes, crc32c, subject)?;
        assert_eq!(appended.address.length as usize, bytes.len(), "a node is a record of its own");
        self.store.checkpoints().meta_usage(&appended.address, 1)?;
        let reference = NodeReference { address: appended.address, crc32c, level };
        let node = Node::parse(Arc::from(bytes)).map_err(|error| Error::DamagedNode { detail: error.to_string() })?;
        self.store.cache.insert(&reference, Arc::new(node));
        Ok(reference)
    }

    fn is_condemned(&self, segment: u64) -> bool {
        self.condemned.contains(&segment)
    }
}

/// Checkpoints in which devices fail, before the pool is left as it is.
const CLOSING_ROUNDS_MAX: u32 = 4;

/// Writes checkpoints, and the superblocks that name them.
#[derive(Clone, Copy)]
pub struct Checkpoints<'a> {
    pub(crate) engine: &'a Engine,
}

impl Engine {
    pub(crate) fn checkpoints(&self) -> Checkpoints<'_> {
        Checkpoints::of(self)
    }
}

impl<'a> Checkpoints<'a> {
    pub(crate) fn of(engine: &'a Engine) -> Checkpoints<'a> {
        Checkpoints { engine }
    }
}

impl Checkpoints<'_> {
    pub(crate) fn checkpoint_holding(
        &self,
        state: &mut Checkpointer,
        journal: &mut MutexGuard<'_, Journal>,
        clean: bool,
    ) -> Result<(), Error> {
        Rerouting::of(self.engine).settle_rows().map_err(|error| self.engine.fail(error))?;
        let frozen = self.engine.freeze_unjournaled(journal);
        let outcome = self.engine.log.wait_for_rows().map_err(Error::from);
        let superblock = outcome
            .and_then(|()| self.merge_and_store(state, &frozen, clean))
            .map_err(|error| self.engine.fail(error))?;
        journal.start_at(&frozen.journal_start, superblock.generation);
        assert_eq!(journal.used_bytes(), 0, "an empty journal only is given other mirrors");
        assert!(journal.durable_change <= frozen.change, "a checkpoint holds all that was durable before");
        journal.mirrors.clone_from(&frozen.mirrors);
        note_answering(self.engine, journal);
        journal.region_bytes = frozen.region_bytes;
        journal.durable_sequence = journal.sequence - 1;
        journal.durable_change = frozen.change;
        Ok(())
    }

    pub(crate) fn merge_and_store(
        &self,
        state: &mut Checkpointer,
        frozen: &Frozen,
        clean: bool,
    ) -> Result<Superblock, Error> {
        let tree = {
            let inner = self.engine.inner.read();
            assert!(inner.frozen.is_some(), "a checkpoint merges what was frozen for it");
            assert_eq!(inner.generation, state.generation, "the tree is the one of the last checkpoint");
            inner.tree
        };
        let stream = self.engine.places().meta_stream();
        let touches = std::mem::take(&mut state.touches);
        let condemned = std::mem::take(&mut state.condemned);
        let mut io = MergeIo { store: self.engine, stream, condemned };
        let outcome = stere_tree::merge(tree.root, frozen.overlay.iter(), &touches, &mut io)?;
        for node in &outcome.obsolete {
            self.meta_usage(&node.address, -1)?;
        }
        let old_parts = std::mem::take(&mut state.parts);
        for part in &old_parts {
            self.meta_usage(&part.address, -1)?;
        }
        let generation = state.generation + 1;
        let (parts, record) = self.write_record_until_it_holds(&stream, generation, outcome.root, frozen)?;
        let superblock = self.write_superblocks(generation, &parts, frozen, clean)?;
        (state.parts, state.record) = (parts, record);
        state.generation = generation;
        self.publish(generation, Tree::new(outcome.root), &superblock);
        self.engine.log.seal_idle_homes(IDLE_CHECKPOINTS_MAX);
        Ok(superblock)
    }

    /// Writes the checkpoint record, and again where devices failed meanwhile so that its segment table told more than is there.
    fn write_record_until_it_holds(
        &self,
        stream: &StreamKey,
        generation: u64,
        root: Option<NodeReference>,
        frozen: &Frozen,
    ) -> Result<(Vec<CheckpointPart>, Vec<u8>), Error> {
        let mut round = 0;
        loop {
            self.engine.log.close_rows(SegmentKind::Meta);
            self.engine.log.wait_for_rows()?;
            let before = self.missing_in_metadata();
            let (mut parts, record) = self.write_checkpoint_record(stream, generation, root, frozen)?;
            self.engine.log.close_rows(SegmentKind::Meta);
            self.engine.log.wait_for_rows()?;
            if !is_planted(Bug::CheckpointWithoutFlush) {
                self.engine.log.flush()?;
            }
            for part in &mut parts {
                if let Some(segment) = self.engine.log.segments.get(part.address.segment) {
                    part.place = SegmentChunks::clone(&segment.placed());
                }
            }
            let after = self.missing_in_metadata();
            round += 1;
            if round == RECORD_ROUNDS_MAX || before.iter().all(|(id, missing)| after.get(id) == Some(missing)) {
                return Ok((parts, record));
            }
            for part in &parts {
                self.meta_usage(&part.address, -1)?;
            }
        }
    }

    /// Appends a record of metadata, when the room that there is may be written to.
    fn append(&self, stream: &StreamKey, bytes: &[u8], crc32c: u32, subject: RecordSubject) -> Result<Appended, Error> {
        SharedLog::of(self.engine).with_held_room(|| {
            let appended = self.engine.log.append(stream, bytes.len(), Io::BLOCKING, |target| {
                target.copy_from_slice(bytes);
                SummaryEntry { offset: 0, length: 0, crc32c, subject, hint: Vec::new() }
            });
            Ok(appended?)
        })
    }

    fn missing_in_metadata(&self) -> BTreeMap<u64, u32> {
        let meta = self.engine.log.segments.all().into_iter().filter(|segment| segment.kind == SegmentKind::Meta);
        meta.map(|segment| (segment.id, segment.missing())).collect()
    }

    fn meta_usage(&self, address: &stere_format::Address, sign: i64) -> Result<(), Error> {
        let segment = self.engine.log.segments.get(address.segment).ok_or_else(|| Error::BadValue {
            what: "the metadata segment table",
            detail: format!("segment {} is missing", address.segment),
        })?;
        let delta = sign * i64::from(sector_aligned(address.length));
        segment.add_live_bytes(delta);
        self.engine.space.add_live(segment.scheme, delta);
        Ok(())
    }

    fn write_checkpoint_record(
        &self,
        stream: &StreamKey,
        generation: u64,
        root: Option<NodeReference>,
        frozen: &Frozen,
    ) -> Result<(Vec<CheckpointPart>, Vec<u8>), Error> {
        // Nodes must be closed off first, so that the table tells of rows that are written.
        self.engine.log.close_rows(SegmentKind::Meta);
        let meta_segments = self
            .engine
            .log
            .segments
            .all()
            .into_iter()
            .filter(|segment| segment.kind == SegmentKind::Meta && segment.live_bytes() > 0)
            .map(|segment| (segment.id, segment.to_value()))
            .collect();
        let record = CheckpointRecord {
            pool: self.engine.log.pool_id(),
            generation,
            root,
            counters: frozen.counters,
            journal_start: frozen.journal_start,
            hash_key: self.engine.options.hash_key,
            totals: PoolTotals::default(),
            devices: self.engine.devices.lock().clone(),
            meta_segments,
        };
        let encoded = record.encode().map_err(|error| Error::Pool(error.to_string()))?;
        let chunks: Vec<&[u8]> = CheckpointRecord::parts(&encoded).collect();
        let count = u32::try_from(chunks.len()).expect("at most 64 parts");
        let mut parts = Vec::with_capacity(chunks.len());
        for (index, bytes) in (0u32..).zip(chunks) {
            let crc32c = stere_format::crc32c(bytes);
            let subject = RecordSubject::Checkpoint { generation, part: index, parts: count };
            let appended = self.append(stream, bytes, crc32c, subject)?;
            self.meta_usage(&appended.address, 1)?;
            let crc32c = CheckpointRecord::part_checksum(bytes);
            parts.push(CheckpointPart {
                address: appended.address,
                crc32c,
                place: SegmentChunks::clone(&appended.segment.placed()),
            });
        }
        let written: usize = parts.iter().map(|part| part.address.length as usize).sum();
        assert_eq!(written, encoded.len(), "the parts of the checkpoint record are all of it");
        Ok((parts, encoded))
    }

    /// Writes the superblock of every device that is there, then flushes.
    pub(crate) fn write_superblocks(
        &self,
        generation: u64,
        parts: &[CheckpointPart],
        frozen: &Frozen,
        clean: bool,
    ) -> Result<Superblock, Error> {
        assert!(!parts.is_empty(), "superblocks name a checkpoint record");
        let mut superblocks = self.engine.superblocks.lock();
        for superblock in superblocks.iter_mut() {
            let before = superblock.generation;
            assert!(before < generation, "generation {generation} follows {before}");
            superblock.generation = generation;
            superblock.checkpoint = parts.to_vec();
            superblock.journal_start = frozen.journal_start;
            superblock.clean = clean;
            superblock.journal_bytes = frozen.region_bytes;
            superblock.journal_devices = frozen.mirrors.iter().map(|mirror| mirror.device).collect();
            // Epochs before the journal's start stay: by them a device that was away is known to be of this history.
        }
        store_superblocks(self.engine, &superblocks)?;
        Ok(superblocks[0].clone())
    }

    /// Makes the new tree the one that is read, and gives back what only the old one needed.
    fn publish(&self, generation: u64, tree: Tree, superblock: &Superblock) {
        assert_eq!(superblock.generation, generation, "superblocks name the checkpoint that is published");
        let mut inner = self.engine.inner.write();
        assert!(inner.frozen.is_some(), "the new tree takes the place of what was frozen");
        inner.tree = tree;
        inner.frozen = None;
        inner.generation = generation;
        inner.assert_invariants();
        for segment in self.engine.log.segments.all() {
            if segment.kind == SegmentKind::Meta && segment.is_sealed() && segment.live_bytes() == 0 {
                self.engine.log.segments.remove(segment.id);
                let batch = inner.batch;
                inner.freed.push(FreedSegment { needed: generation, batch, segment });
            }
        }
        release_freed(self.engine, &mut inner);
        self.engine.space().reserve_for_checkpoint(inner.active.bytes());
    }

    /// A checkpoint beside running work: only the freezing takes the store's lock.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.checkpoint_if(|| true)
    }

    /// A checkpoint, unless the one that this call had to wait for made it needless.
    pub(crate) fn checkpoint_if(&self, is_needed: impl FnOnce() -> bool) -> Result<(), Error> {
        let mut state = self.engine.checkpointer.lock();
        // With the lock held: the checkpoint before may have failed half-way, which leaves its overlay frozen.
        self.engine.check_writable()?;
        if !is_needed() {
            return Ok(());
        }
        choose_condemned(self.engine, &mut state)?;
        let frozen = {
            let mut journal = self.engine.journal.lock();
            self.engine.check_writable()?;
            // A new mirror holds the journal from this checkpoint on, whole: nothing is written to it meanwhile.
            let wanted = wanted_journal(self.engine, &journal.mirrors, journal.region_bytes);
            let is_right = wanted == (journal.mirrors.clone(), journal.region_bytes);
            let frozen = if is_right { self.engine.commit_and_freeze(&mut journal)? } else { None };
            match frozen {
                Some(frozen) => frozen,
                None => return self.checkpoint_holding(&mut state, &mut journal, false),
            }
        };
        let superblock = self.merge_and_store(&mut state, &frozen, false).map_err(|error| self.engine.fail(error))?;
        let mut journal = self.engine.journal.lock();
        journal.start_at(&frozen.journal_start, superblock.generation);
        Ok(())
    }

    /// A checkpoint that needs no room in the journal: commits wait until it is durable.
    pub(crate) fn checkpoint_whole(&self) -> Result<(), Error> {
        let mut state = self.engine.checkpointer.lock();
        let mut journal = self.engine.journal.lock();
        self.engine.check_writable()?;
        if journal.has_room(Batches::of(self.engine).pending_bytes()) {
            return Ok(());
        }
        self.checkpoint_holding(&mut state, &mut journal, false)
    }

    /// Makes everything durable and leaves the pool so that the next mount has nothing to replay.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut state = self.engine.checkpointer.lock();
        let mut journal = self.engine.journal.lock();
        if self.engine.check_writable().is_err() {
            return Ok(());
        }
        // What cannot be written is known before the segment table is written for the last time.
        self.checkpoint_holding(&mut state, &mut journal, true)?;
        for _ in 0..CLOSING_ROUNDS_MAX {
            if !self.engine.log.rows.has_failures() {
                break;
            }
            self.checkpoint_holding(&mut state, &mut journal, true)?;
        }
        Ok(())
    }
}
