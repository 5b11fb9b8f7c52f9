//! What components above the engine ask of it: its layers below, facts about its state, and changes of the segment table.
//!
//! Facts and changes decide nothing; that is the business of the component that asks. The engine's own step in the background
//! stands here too: what of its work is due first. Invariants: a change of the segment table
//! holds the lock of the state from its first look at a segment to its last entry, so no commit sees half of it; what is
//! released leaves a slot that stays taken until no checkpoint names it and nobody reads there. Read next: `engine.rs`,
//! `commit.rs`.

use std::sync::Arc;

use parking_lot::{MutexGuard, RwLockWriteGuard};
use stere_format::{CheckpointPart, DeviceIndex, Key, SegmentChunks};
use stere_log::{Io, Log, Segment};
use stere_recall::Volumes;
use stere_stripe::DeviceStatistics;

use crate::batch::put_segment;
use crate::checkpointer::Checkpointer;
use crate::engine::{Engine, HealthLimits};
use crate::error::Error;
use crate::mirrors::lacks_mirrors;
use crate::rebuild::Mender;
use crate::{Inner, LeftSlot};

/// While it lives no checkpoint is made, so the segments of the last one are all there.
pub struct CheckpointHeld<'a>(MutexGuard<'a, Checkpointer>);

impl CheckpointHeld<'_> {
    /// The record of the last checkpoint of this mount; empty before the first one.
    pub fn record(&self) -> &[u8] {
        &self.0.record
    }
}

/// While it lives no chunk moves to another device.
pub struct ChunksHeld<'a> {
    _mender: MutexGuard<'a, Mender>,
}

/// A change of the segment table that is under way; durable with the next commit after it took effect.
pub struct SegmentChange<'a> {
    engine: &'a Engine,
    inner: RwLockWriteGuard<'a, Inner>,
}

impl SegmentChange<'_> {
    /// The number of the change of the store that took effect last.
    pub fn last_change(&self) -> u64 {
        self.inner.change
    }

    /// Whether the table still has this segment.
    pub fn has(&self, segment: &Arc<Segment>) -> bool {
        self.engine.log.segments.get(segment.id).is_some_and(|known| Arc::ptr_eq(&known, segment))
    }

    /// Enters a segment as it is now.
    pub fn enter(&mut self, segment: &Segment) {
        put_segment(&mut self.inner, segment);
    }

    /// Gives up the chunks of a segment that media have. The caller lets nobody move chunks meanwhile.
    pub fn enter_released(&mut self, segment: &Arc<Segment>) {
        assert!(self.engine.mender.is_locked(), "nobody moves chunks that are given up");
        assert!(!segment.is_released(), "what is given up is on devices");
        assert_ne!(segment.tertiary().there, 0, "what is given up is on a medium");
        let (places, readers) = segment.release();
        assert_eq!(places.len(), segment.scheme.width(), "what is given up had a place for each chunk");
        self.engine.space.add_live(segment.scheme, -i64::try_from(segment.live_bytes()).unwrap_or(0));
        let needed = self.inner.active_generation;
        let mut readers = Some(readers);
        for place in places {
            let readers = readers.take().unwrap_or_else(|| segment.former_places());
            self.inner.left.push(LeftSlot { needed, place, readers });
        }
        self.enter(segment);
    }

    /// A released segment has chunks on devices again, which are written and flushed.
    pub fn enter_restored(&mut self, segment: &Arc<Segment>, place: SegmentChunks) {
        assert!(segment.is_released(), "only what was given up comes back");
        assert_eq!(place.chunks.len(), segment.scheme.width(), "what comes back has a place for each chunk");
        segment.restore(place);
        assert!(!segment.is_released(), "what came back is read from devices again");
        self.engine.damage.forget_on_volumes(segment.id);
        // In one step with its new place: after a crash between the two, what volumes had wrong would be held against devices.
        for blob in self.engine.damage.forgotten() {
            self.inner.record(Key::damage(blob), None);
        }
        self.engine.space.add_live(segment.scheme, i64::try_from(segment.live_bytes()).unwrap_or(0));
        self.enter(segment);
    }

    /// The next commit takes it.
    pub fn take_effect(mut self) {
        self.inner.change += 1;
    }
}

impl Engine {
    /// The log that all content and all nodes lie in.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The media of the pool, as reads go through them.
    pub fn volumes(&self) -> &Arc<Volumes> {
        &self.volumes
    }

    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    pub fn health_limits(&self) -> HealthLimits {
        self.options.health
    }

    /// Begins to change the segment table.
    pub fn change_segments(&self) -> SegmentChange<'_> {
        SegmentChange { engine: self, inner: self.inner.write() }
    }

    /// Whether a segment was emptied and its slots are still needed.
    pub fn is_freed(&self, segment: u64) -> bool {
        self.inner.read().freed.iter().any(|freed| freed.segment.id == segment)
    }

    /// Whether anything changed since the last checkpoint.
    pub fn is_changed(&self) -> bool {
        self.inner.read().active.bytes() > 0
    }

    /// How many updates there were in this mount: the same number twice means that nothing changed between the two.
    pub fn change_count(&self) -> u64 {
        self.inner.read().change
    }

    /// Where the last checkpoint lies.
    pub fn checkpoint_parts(&self) -> Vec<CheckpointPart> {
        self.superblocks.lock().first().map(|first| first.checkpoint.clone()).unwrap_or_default()
    }

    /// Lets no checkpoint begin.
    pub fn hold_checkpoints(&self) -> CheckpointHeld<'_> {
        CheckpointHeld(self.checkpointer.lock())
    }

    /// Waits for chunks that are on their way to other devices, enters them, and lets none follow.
    pub fn hold_chunks(&self) -> Result<ChunksHeld<'_>, Error> {
        Ok(ChunksHeld { _mender: self.chunk_writer().settled_mender()? })
    }

    /// Checkpoints, commits and cleans when it is time for it; returns whether there is more to do. `idle` allows cleaning that
    /// nobody waits for.
    pub fn write_in_background(&self, idle: bool) -> Result<bool, Error> {
        let (overlay_bytes, pending_bytes) = {
            let inner = self.inner.read();
            (inner.active.bytes(), inner.active.pending_bytes())
        };
        let journal = {
            let journal = self.journal.lock();
            (journal.used_bytes() as usize + pending_bytes, journal.region_bytes as usize)
        };
        if overlay_bytes > self.space().overlay_bytes_max() / 2 || journal.0 > journal.1 / 2 || lacks_mirrors(self) {
            self.checkpoint()?;
            return Ok(true);
        }
        if pending_bytes > journal.1 / 8 {
            self.commit(Io::BLOCKING)?;
            return Ok(true);
        }
        if idle {
            self.prove_at_rest()?;
        }
        self.cleaning().clean_in_background(idle)
    }

    /// Makes everything durable and leaves the pool so that the next mount has nothing to replay.
    pub fn end_writing(&self) -> Result<(), Error> {
        if self.check_writable().is_err() {
            return Ok(());
        }
        // What was rebuilt so far counts.
        if let Err(error) = self.chunk_writer().settled_mender().map(drop) {
            tracing::warn!(%error, "what was being mended is given up");
        }
        if let Err(error) = self.damage().save_damage() {
            tracing::warn!(%error, "what is known to be damaged could not be kept");
        }
        self.checkpoints().close()
    }

    /// What was asked of each device that is there, and what went wrong.
    pub fn device_statistics(&self) -> Vec<(DeviceIndex, DeviceStatistics)> {
        self.log.stripe.devices.all().iter().map(|device| (device.index(), device.statistics())).collect()
    }
}
