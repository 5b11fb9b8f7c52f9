//! Reading blobs: pieces of many blobs in one call, verified block by block, adjacent ones in one device read.
//!
//! Invariants: no byte is handed out whose block did not match the checksum in the blob map; blocks the blob map calls dead
//! are never asked for. Read next: `view.rs` for how a reader gets its handles.

use std::sync::Arc;

use stere_format::{BLOCK_BYTES, BlobEncoding, Node, NodeReference};
use stere_log::{Io, LogError, Part, Segment};
use stere_tree::NodeCache;

use crate::engine::Engine;
use crate::error::Error;
use crate::harm::note_harm;
use crate::view::Miss;
use stere_recall::{BlobHandle, ReadError};

/// A piece of a blob that is wanted at a place of the output.
#[derive(Clone, Debug)]
pub struct Piece {
    pub blob: BlobHandle,
    /// Bytes into the blob.
    pub offset: u32,
    pub length: u32,
    /// Where the piece goes in the output; pieces are sorted by it and do not overlap.
    pub at: usize,
}

/// What was missed: a node with its segment, so that it stays in place, or keys that were put away.
pub(crate) enum Missed {
    Node { reference: NodeReference, segment: Option<Arc<Segment>> },
    Fold(u64),
}

/// A call that missed so often may need more nodes at once than the cache holds.
const MISSES_MAX: u32 = 192;

/// The nodes that one call needs: once the cache seems too small for them, they are kept for as long as the call takes,
/// so that it comes to an end.
#[derive(Default)]
pub(crate) struct NeededNodes {
    misses: u32,
    kept: Option<NodeCache>,
}

impl NeededNodes {
    pub fn cache<'a>(&'a self, shared: &'a NodeCache) -> &'a NodeCache {
        self.kept.as_ref().unwrap_or(shared)
    }

    fn missed(&mut self) {
        self.misses = self.misses.saturating_add(1);
        if self.misses >= MISSES_MAX && self.kept.is_none() {
            self.kept = Some(NodeCache::new(usize::MAX));
        }
    }
}

fn placed_in(blob: &BlobHandle) -> u64 {
    blob.value.address.segment
}

impl Engine {
    /// Reads the pieces into `out`; bytes of `out` between pieces stay as they are.
    pub fn read_blobs(&self, io: Io<'_>, pieces: &[Piece], out: &mut [u8]) -> Result<(), Error> {
        let mut parts = Vec::with_capacity(pieces.len());
        let mut rest = out;
        let mut consumed = 0;
        for piece in pieces {
            assert!(piece.at >= consumed, "pieces are sorted and do not overlap");
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(piece.at - consumed);
            let (into, tail) = tail.split_at_mut(piece.length as usize);
            rest = tail;
            consumed = piece.at + piece.length as usize;
            self.parts_of(piece, into, &mut parts)?;
        }
        match self.volumes.read_parts(&self.log, io, &mut parts) {
            Ok(()) => {
                let released = pieces.iter().filter(|piece| piece.blob.is_released());
                released.for_each(|piece| {
                    self.damage.note_read(piece.blob.id, &(piece.offset..piece.offset + piece.length));
                });
                Ok(())
            }
            Err(ReadError::Damaged { blob, offset, length }) => {
                if let Some(piece) = pieces.iter().find(|piece| piece.blob.id == blob) {
                    self.note_failed_read(&piece.blob);
                }
                Err(Error::Damaged { blob, offset, length })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Content could not be read: known from now on, unless too many of its devices are away. (Where a volume is away, reading does not fail so.)
    fn note_failed_read(&self, blob: &BlobHandle) {
        let placed = blob.segment.placed();
        if blob.is_released() || self.readable_chunks(&placed, &[]) >= usize::from(placed.scheme.data) {
            note_harm(self, blob.id, placed_in(blob), 0..blob.value.logical_bytes, true);
        }
    }

    /// Reads what is stored of whole blobs, in whatever encoding, each into an output as long as its stored bytes.
    pub fn read_stored(&self, io: Io<'_>, blobs: Vec<(&BlobHandle, &mut [u8])>) -> Result<(), Error> {
        let mut parts = Vec::with_capacity(blobs.len());
        let mut lengths = Vec::with_capacity(blobs.len());
        for (BlobHandle { id, value, segment }, into) in blobs {
            assert_eq!(into.len(), value.address.length as usize, "a blob is read whole");
            lengths.push((*id, value.logical_bytes));
            parts.push(Part {
                tag: *id,
                segment,
                address: value.address,
                offset: 0,
                checksums: &value.checksums,
                into,
            });
        }
        match self.volumes.read_parts(&self.log, io, &mut parts) {
            Ok(()) => {
                for (id, length) in &lengths {
                    self.damage.note_read(*id, &(0..*length));
                }
                Ok(())
            }
            // One piece: where some of it cannot be read, none of the content can.
            Err(ReadError::Damaged { blob, .. }) => {
                let length = lengths.iter().find(|(id, _)| *id == blob).map_or(0, |(_, length)| *length);
                Err(Error::Damaged { blob, offset: 0, length })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Cuts a piece into runs of blocks that are stored one behind the other.
    fn parts_of<'a>(&self, piece: &'a Piece, into: &'a mut [u8], parts: &mut Vec<Part<'a>>) -> Result<(), Error> {
        let value = &*piece.blob.value;
        assert!(value.encoding == BlobEncoding::PLAIN, "who asks for pieces has sorted out what is encoded");
        let end = piece.offset + piece.length;
        if end > value.logical_bytes {
            return Err(Error::BadValue {
                what: "an extent",
                detail: format!("it reaches beyond blob {}", piece.blob.id),
            });
        }
        let block_bytes = BLOCK_BYTES as u32;
        let mut at = piece.offset;
        let mut rest = into;
        while at < end {
            let block = at / block_bytes;
            let Some(index) = value.stored_index_of_block(block) else {
                let detail = format!("block {block} of blob {} is named but no longer stored", piece.blob.id);
                return Err(Error::BadValue { what: "an extent", detail });
            };
            // Blocks that follow in the blob and in the record are one run.
            let mut blocks = 1;
            while (block + blocks) * block_bytes < end
                && value.stored_index_of_block(block + blocks) == Some(index + blocks)
            {
                blocks += 1;
            }
            let run_end = end.min((block + blocks) * block_bytes);
            let (into, tail) = std::mem::take(&mut rest).split_at_mut((run_end - at) as usize);
            rest = tail;
            parts.push(Part {
                tag: piece.blob.id,
                segment: &piece.blob.segment,
                address: value.address,
                offset: index * block_bytes + at % block_bytes,
                checksums: &value.checksums,
                into,
            });
            at = run_end;
        }
        assert!(rest.is_empty(), "a piece leaves {} bytes of the output as they were", rest.len());
        Ok(())
    }

    /// A node of the tree, from memory or from the log.
    pub fn node(&self, reference: &NodeReference) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.cache.get(reference) {
            return Ok(node);
        }
        let segment = self.log.segments.get(reference.address.segment).ok_or_else(|| Error::DamagedNode {
            detail: format!("segment {} does not exist", reference.address.segment),
        })?;
        self.fetch_node(Io::BLOCKING, reference, &segment)
    }

    fn fetch_node(&self, io: Io<'_>, reference: &NodeReference, segment: &Arc<Segment>) -> Result<Arc<Node>, Error> {
        let damaged = |error: String| {
            let placed = segment.placed();
            // With too many devices away nothing is known of it.
            if self.readable_chunks(&placed, &[]) >= usize::from(placed.scheme.data) {
                self.damage.note_metadata(segment.id);
            }
            Error::DamagedNode { detail: error }
        };
        let is_right = |bytes: &[u8]| stere_format::crc32c(bytes) == reference.crc32c;
        let bytes = match self.log.read_record(segment, &reference.address, &is_right) {
            Err(LogError::Released { .. }) => self
                .volumes
                .recall_record(&self.log.segments, io, segment, &reference.address, &is_right)
                .map_err(|error| damaged(error.to_string()))?,
            outcome => outcome.map_err(|error| damaged(error.to_string()))?,
        };
        let node = Node::read(reference, Arc::from(bytes)).map_err(|error| damaged(error.to_string()))?;
        let node = Arc::new(node);
        self.cache.insert(reference, node.clone());
        Ok(node)
    }

    /// Under the store's lock: what is needed to fetch later what was missed.
    pub(crate) fn pin(&self, miss: &Miss) -> Missed {
        match miss {
            Miss::Node(reference) => {
                Missed::Node { reference: *reference, segment: self.log.segments.get(reference.address.segment) }
            }
            Miss::Fold(number) => Missed::Fold(*number),
        }
    }

    pub(crate) fn fetch_missed(&self, io: Io<'_>, missed: Missed, needed: &mut NeededNodes) -> Result<(), Error> {
        if !io.may_block() {
            return Err(Error::WouldBlock);
        }
        let (reference, segment) = match missed {
            Missed::Node { reference, segment } => (reference, segment),
            Missed::Fold(number) => return self.reload(io, number),
        };
        needed.missed();
        let cached = needed.kept.as_ref().and_then(|_| self.cache.get(&reference));
        let node = match cached {
            Some(node) => node,
            None => {
                let segment = segment.ok_or_else(|| Error::DamagedNode {
                    detail: format!("segment {} does not exist", reference.address.segment),
                })?;
                self.fetch_node(io, &reference, &segment)?
            }
        };
        if let Some(kept) = &needed.kept {
            kept.insert(&reference, node);
        }
        Ok(())
    }
}
