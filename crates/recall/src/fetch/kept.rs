//! Whole chunks that are in memory, and those on their way. No locks: `fetch.rs` has one around it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::in_flight::Fetch;

/// Whole chunks that were fetched lately are kept until they are staged, at most so many bytes of them.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 20;
/// What nobody asked for takes at most so much of that, and only where there is nothing else.
pub(super) const AHEAD_BYTES_MAX: usize = 32 << 20;

pub(super) struct Chunk {
    pub segment: u64,
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) is_ahead: bool,
}

#[derive(Default)]
pub(super) struct Kept {
    pub(super) chunks: VecDeque<Chunk>,
    pub(super) under_way: BTreeMap<u64, Arc<Fetch>>,
}

impl Kept {
    pub(super) fn chunk(&self, segment: u64) -> Option<Arc<Vec<u8>>> {
        self.chunks.iter().find(|chunk| chunk.segment == segment).map(|chunk| chunk.bytes.clone())
    }

    /// The same for somebody who asks.
    pub(super) fn chunk_asked_for(&mut self, segment: u64) -> Option<Arc<Vec<u8>>> {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.segment == segment)?;
        chunk.is_ahead = false;
        Some(chunk.bytes.clone())
    }

    pub(super) fn bytes(&self, is_ahead: bool) -> usize {
        self.chunks.iter().filter(|chunk| chunk.is_ahead == is_ahead).map(|chunk| chunk.bytes.len()).sum()
    }

    /// What nobody asked for makes room for nothing, and goes first.
    pub(super) fn keep(&mut self, chunk: Chunk) {
        assert!(self.chunk(chunk.segment).is_none(), "segment {} is kept already", chunk.segment);
        let mut over = (self.bytes(true) + self.bytes(false) + chunk.bytes.len()).saturating_sub(KEPT_BYTES_MAX);
        if chunk.is_ahead && (over > 0 || self.bytes(true) + chunk.bytes.len() > AHEAD_BYTES_MAX) {
            return;
        }
        while over > 0 && !self.chunks.is_empty() {
            let at = self.chunks.iter().position(|chunk| chunk.is_ahead).unwrap_or(0);
            over = over.saturating_sub(self.chunks.remove(at).map_or(0, |chunk| chunk.bytes.len()));
        }
        self.chunks.push_back(chunk);
        let bytes = self.bytes(true) + self.bytes(false);
        assert!(bytes <= KEPT_BYTES_MAX || self.chunks.len() == 1, "what is kept is bounded, but for a single chunk");
    }
}
