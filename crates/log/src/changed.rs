//! Segments whose entry in the segment table is to be written anew.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::segment::Segment;

/// Segments that changed since somebody took them; each is in the list once.
#[derive(Default)]
pub struct ChangedSegments {
    list: Mutex<Vec<Arc<Segment>>>,
}

impl ChangedSegments {
    /// Marks a segment whose live bytes changed, or anything else of its entry.
    pub fn note(&self, segment: &Arc<Segment>) {
        if segment.mark_dirty() {
            self.list.lock().push(segment.clone());
        }
    }

    /// Segments whose table entry changed since the last call.
    pub fn take(&self) -> Vec<Arc<Segment>> {
        let dirty = std::mem::take(&mut *self.list.lock());
        for segment in &dirty {
            segment.clear_dirty();
        }
        dirty
    }

    /// The list itself, which does not change while this is held.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Arc<Segment>>> {
        self.list.lock()
    }
}
