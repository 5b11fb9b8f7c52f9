//! Taking up the log where the journal and the checkpoint left it.
//!
//! Invariants: a segment is appended to again only from its recorded end, which covers every row that a surviving journal
//! record names. Read next: `segment.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::segment::Segment;
use crate::stream::Stream;
use crate::{Log, LogError};

impl Log {
    /// Puts a recovered segment into the table.
    pub fn adopt(&self, segment: Arc<Segment>) {
        // The counter that was recorded may be older than the segment: a checkpoint's own segments begin after its freeze.
        self.counters.raise(segment.id + 1, 0);
        self.room.note_kind(&segment.stream_key());
        self.segments.insert(segment);
    }

    /// Lets streams go on in the segments that were open and in which they may, the fullest of a stream winning; the rest are sealed.
    pub fn reopen(&self, may_go_on: &dyn Fn(&Segment) -> bool) -> Result<(), LogError> {
        for segment in self.segments.everywhere() {
            if segment.is_sealed() {
                // One that was emptied and not yet given back: the next commit does it.
                if segment.live_bytes() == 0 {
                    self.changed.note(&segment);
                }
                continue;
            }
            let key = segment.stream_key();
            let usable = segment.missing() == 0
                && may_go_on(&segment)
                && segment.chunks().iter().all(|place| self.stripe.devices.get(place.device).is_some());
            let stream = self.stream(&key);
            let mut guard: parking_lot::MutexGuard<'_, Stream> = stream.lock();
            if usable && guard.segment.is_none() {
                guard.segment = Some(segment);
            } else {
                segment.seal();
                self.changed.note(&segment);
            }
        }
        Ok(())
    }

    /// Ends the open segments that `is_over` says, with what is in their rows; their streams go on in new ones. Whether there
    /// were any.
    pub fn end_segments(&self, is_over: &dyn Fn(&Segment) -> bool) -> bool {
        let mut has_ended = false;
        let mut streams: Vec<_> = self.streams.read().iter().map(|(key, stream)| (*key, stream.clone())).collect();
        streams.sort_unstable_by_key(|(key, _)| {
            (key.kind, key.class, key.scheme, key.temperature, key.home, key.tertiary, key.site, key.of_others)
        });
        for (_, stream) in streams {
            let mut guard = stream.lock();
            let Some(segment) = guard.segment.clone().filter(|segment| is_over(segment)) else { continue };
            if guard.row.as_ref().is_some_and(|row| !row.is_empty()) {
                self.close_row(&mut guard);
            }
            self.drop_empty_row(&mut guard);
            guard.segment = None;
            segment.seal();
            self.changed.note(&segment);
            has_ended = true;
        }
        has_ended
    }

    /// Segments whose rows or headers are still in memory: not all of their bytes are on devices.
    pub fn segments_in_memory(&self) -> BTreeSet<u64> {
        let mut ids = self.rows.segments();
        ids.extend(self.headers_flying.lock().iter().map(|(segment, _)| segment.id));
        ids
    }

    /// Stops appending to a segment, so that the cleaner may empty it.
    pub fn retire(&self, segment: &Arc<Segment>) {
        let key = segment.stream_key();
        let stream = self.stream(&key);
        let mut guard = stream.lock();
        if guard.segment.as_ref().is_some_and(|open| open.id == segment.id) && guard.row.is_none() {
            guard.segment = None;
            segment.seal();
            self.changed.note(segment);
        }
    }
}
