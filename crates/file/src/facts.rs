//! Where a file's data lies, from the blob map and the segments: facts, not settings.

use stere_format::{DeviceIndex, Scheme};

use crate::error::Error;
use crate::extents::{BLOCK, END};
use crate::keys::extents_touching;
use crate::{Context, Files};

/// Bytes of a file that lie alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFact {
    /// Scheme of the segment.
    pub scheme: Scheme,
    /// Devices of the segment.
    pub devices: Vec<DeviceIndex>,
    /// Allocated bytes of the file in it.
    pub bytes: u64,
}

/// Extents looked at in one view.
const EXTENTS_PER_VIEW: usize = 1024;

impl Files {
    /// Where the data of a file lies that has been handed to the store, one fact per segment.
    pub fn stored_facts(&self, context: &Context, inode: u64) -> Result<Vec<StoredFact>, Error> {
        let mut by_segment: std::collections::BTreeMap<u64, StoredFact> = std::collections::BTreeMap::new();
        let mut from = 0;
        loop {
            let (pieces, next) = self.store.view(context.wait, |view| {
                let extents = extents_touching(view, inode, from, END, EXTENTS_PER_VIEW)?;
                let mut pieces = Vec::with_capacity(extents.len());
                for extent in extents.iter().filter(|extent| !extent.is_preallocated()) {
                    let segment = view.blob(extent.value.blob)?.value.address.segment;
                    pieces.push((segment, u64::from(extent.value.length).next_multiple_of(BLOCK)));
                }
                let next = (extents.len() == EXTENTS_PER_VIEW).then(|| extents.last().map(crate::keys::Extent::end));
                Ok::<_, Error>((pieces, next.flatten()))
            })?;
            for (number, bytes) in pieces {
                if let Some(fact) = by_segment.get_mut(&number) {
                    fact.bytes += bytes;
                } else if let Some(segment) = self.store.segments().get(number) {
                    let devices = segment.chunks().iter().map(|chunk| chunk.device).collect();
                    by_segment.insert(number, StoredFact { scheme: segment.scheme, devices, bytes });
                }
            }
            match next {
                Some(end) => from = end,
                None => return Ok(by_segment.into_values().collect()),
            }
        }
    }
}
