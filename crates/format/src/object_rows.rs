//! The rows in the object of a segment: behind the chunk header one follows the other, each with all of its bytes in order. Page:
//! docs/format/volume.md.
//!
//! Invariant: what is given lies in the object, and begins where its header says; of the last row a part may lack. Whether it is right
//! is for others to say.

use crate::row::RowHeader;
use crate::{BLOCK_BYTES, ChunkHeader};

/// The rows of an object, as far as one begins where the one before has ended.
#[derive(Clone, Debug)]
pub struct ObjectRows<'a> {
    content: &'a [u8],
    /// Bytes of the object for each block of the chunks.
    bytes_a_block: usize,
    row_block: u32,
}

impl<'a> ObjectRows<'a> {
    /// Of what lies behind the chunk header.
    pub fn new(data_chunks: u8, content: &'a [u8]) -> ObjectRows<'a> {
        assert!(data_chunks > 0, "a segment has a data chunk");
        ObjectRows { content, bytes_a_block: usize::from(data_chunks) * BLOCK_BYTES, row_block: 1 }
    }

    /// Of a whole object: its header tells how many data chunks there are. None where it is no header.
    pub fn of_object(object: &'a [u8]) -> Option<ObjectRows<'a>> {
        let (header, content) = object.split_at_checked(ChunkHeader::SIZE)?;
        Some(ObjectRows::new(ChunkHeader::decode(header).ok()?.place.scheme.data, content))
    }

    fn start(&self) -> usize {
        (self.row_block as usize - 1) * self.bytes_a_block
    }

    /// Whether nothing is left, rather than that no row begins here.
    pub fn is_at_end(&self) -> bool {
        self.start() >= self.content.len()
    }

    /// Looks for a row one block farther on.
    pub fn pass_block(&mut self) {
        self.row_block = self.row_block.saturating_add(1);
    }

    /// Whether the object has all of a row.
    pub fn is_whole(&self, header: &RowHeader, row: &[u8]) -> bool {
        row.len() == header.row_height as usize * self.bytes_a_block
    }
}

impl<'a> Iterator for ObjectRows<'a> {
    /// The header, and what is there of the row, header included.
    type Item = (RowHeader, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.content.get(self.start()..)?;
        let header = RowHeader::decode(rest.get(..RowHeader::SIZE)?).ok()?;
        if header.row_block != self.row_block {
            return None;
        }
        assert!(header.row_height > 0, "a row that was decoded has a height");
        let length = header.row_height as usize * self.bytes_a_block;
        self.row_block += header.row_height;
        Some((header, &rest[..length.min(rest.len())]))
    }
}

#[cfg(test)]
mod tests;
