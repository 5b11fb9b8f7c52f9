//! Which records of a row are live, and what their parents say of them.

use stere_format::{
    Address, BlobValue, Key, NodeReference, RecordSubject, SummaryEntry, record_checksum, sector_aligned,
};
use stere_log::RowContents;

use crate::error::Error;
use crate::transaction::blob_usage_bytes;
use crate::view::View;

/// What is known of a record.
#[derive(Clone, Debug)]
pub enum Standing {
    /// Nobody needs it; its row tells its checksum.
    Dead,
    Blob(std::sync::Arc<BlobValue>),
    /// A node, of this checksum.
    Node(u32),
    /// A part of the checkpoint record, of this checksum, which is the superblock's: a part ends with its own, so that the row's, which is
    /// of all bytes, is the same for all of them.
    Part(u32),
}

impl Standing {
    /// What it counts for in its segment.
    pub fn usage_bytes(&self, entry: &SummaryEntry) -> u64 {
        match self {
            Standing::Dead => 0,
            Standing::Blob(value) => blob_usage_bytes(value),
            Standing::Node(_) | Standing::Part(_) => u64::from(sector_aligned(entry.length)),
        }
    }
}

/// Where a row's record lies.
pub(crate) fn address_of(contents: &RowContents, entry: &SummaryEntry) -> Address {
    let (segment, row_block) = (contents.header.segment, contents.header.row_block);
    Address { segment, row_block, offset: entry.offset, length: entry.length }
}

pub fn standing(
    view: &View<'_>,
    contents: &RowContents,
    entry: &SummaryEntry,
    part_at: &dyn Fn(&Address) -> Option<u32>,
) -> Result<Standing, Error> {
    let address = address_of(contents, entry);
    match entry.subject {
        RecordSubject::Blob { blob, .. } => match view.blob(blob) {
            // A row of a future that a crash cut off may tell of a blob of this number in this place: it had another content.
            Ok(handle) if handle.value.address == address && is_content_of(entry, &handle.value) => {
                Ok(Standing::Blob(handle.value))
            }
            Ok(_) | Err(Error::UnknownBlob { .. }) => Ok(Standing::Dead),
            Err(error) => Err(error),
        },
        RecordSubject::Node { level, first_key } => Ok(match live_node(view, level, &first_key)? {
            Some(reference) if reference.address == address => Standing::Node(reference.crc32c),
            _ => Standing::Dead,
        }),
        RecordSubject::Checkpoint { .. } => Ok(part_at(&address).map_or(Standing::Dead, Standing::Part)),
    }
}

/// Whether a row's entry tells of just this content.
fn is_content_of(entry: &SummaryEntry, value: &BlobValue) -> bool {
    record_checksum(&value.checksums, entry.length as usize) == entry.crc32c
}

/// The node of this level that begins with this key, if the tree has one.
fn live_node(view: &View<'_>, level: u8, first_key: &Key) -> Result<Option<NodeReference>, Error> {
    let Some(mut reference) = view.inner.tree.root else { return Ok(None) };
    while reference.level > level {
        let Some(node) = view.cache.get(&reference) else { return Err(view.miss(reference)) };
        let index = match node.search(first_key) {
            Ok(index) => index,
            Err(0) => return Ok(None),
            Err(index) => index - 1,
        };
        reference = node.child(index);
    }
    Ok((reference.level == level).then_some(reference))
}
