//! After a crash: what unproven groups of the journal named can be read, but perhaps not from every copy. It is made whole before
//! anybody is shown it.
//!
//! Invariants: first every row is made whole where it lies, from its verified parts, and that is flushed; only then is anything
//! written elsewhere. So a device that holds the one good copy of something is not written to before another has it too: a write
//! that goes astray there could hit just that. A copy that missed the row may hold another one in its place, of a future that an
//! earlier crash cut off: a row that does not tell of just what was committed is never made anybody's truth. What cannot be made whole in its place (a device is away or no longer written
//! to, or nothing tells of the row) is appended again. Read next: `recover.rs`, `scrub/row.rs`, `clean.rs`.

use std::collections::BTreeMap;

use stere_format::{Address, RecordSubject, record_checksum};
use stere_log::RowContents;

use crate::Store;
use crate::clean::RowOwners;
use crate::error::Error;
use crate::view::BlobHandle;

/// A row by its segment and first block.
type RowPlace = (u64, u32);

/// Whether a row is the one in which these blobs were written, with this content.
fn tells_of_all(contents: &RowContents, handles: &[BlobHandle]) -> bool {
    handles.iter().all(|handle| {
        let Address { offset, length, .. } = handle.value.address;
        let crc32c = record_checksum(&handle.value.checksums, length as usize);
        contents.entries.iter().any(|entry| {
            let is_of_it = matches!(entry.subject, RecordSubject::Blob { blob, .. } if blob == handle.id);
            is_of_it && (entry.offset, entry.length, entry.crc32c) == (offset, length, crc32c)
        })
    })
}

impl Store {
    /// Brings what these blobs name to all its copies, in its place or elsewhere.
    pub(crate) fn make_unproven_whole(&self, blobs: &[u64]) -> Result<(), Error> {
        let mut rows: BTreeMap<RowPlace, Vec<BlobHandle>> = BTreeMap::new();
        for blob in blobs {
            let handle = match self.view(crate::Wait::Allowed, |view| view.blob(*blob)) {
                Ok(handle) => handle,
                Err(Error::UnknownBlob { .. }) => continue,
                Err(error) => return Err(error),
            };
            // What volumes have was proven when it was copied out, and they are not known yet.
            if handle.segment.tertiary().there == 0 {
                rows.entry((handle.value.address.segment, handle.value.address.row_block)).or_default().push(handle);
            }
        }
        self.mend_in_place(&rows)?;
        for (row, handles) in &rows {
            self.rewrite_elsewhere(*row, handles)?;
        }
        Ok(())
    }

    fn mend_in_place(&self, rows: &BTreeMap<RowPlace, Vec<BlobHandle>>) -> Result<(), Error> {
        let mut is_any_mended = false;
        for ((_, row_block), handles) in rows {
            let segment = &handles[0].segment;
            if segment.scheme.parity == 0 {
                continue;
            }
            let Ok(Some(contents)) = self.log.read_row_contents(segment, *row_block) else { continue };
            if tells_of_all(&contents, handles) && !self.is_row_whole(segment, &contents)? {
                self.mend_row_in_place(segment, &contents)?;
                is_any_mended = true;
            }
        }
        if is_any_mended {
            self.log.flush()?;
        }
        Ok(())
    }

    /// Appends again what lies in a row that is not whole.
    fn rewrite_elsewhere(&self, (_, row_block): RowPlace, handles: &[BlobHandle]) -> Result<(), Error> {
        let segment = &handles[0].segment;
        let contents = self.log.read_row_contents(segment, row_block).ok().flatten();
        if let Some(contents) = &contents
            && (segment.scheme.parity == 0 || self.is_row_whole(segment, contents)?)
        {
            return Ok(());
        }
        // Without what tells of its row nobody would find it there again, to clean the segment or to rescue it.
        let owners = self.owners_in_row(segment, row_block);
        for handle in handles {
            match self.rewrite_blob(handle, owners.as_ref()) {
                // With no room left the copies stay as they are; a scrub finds what lacks.
                Ok(()) | Err(Error::NoSpace) => {}
                // So does what lies on devices that are away, and what had one copy and is lost.
                Err(Error::Damaged { .. }) if segment.scheme.parity == 0 || !self.is_within_reach(segment) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn rewrite_blob(&self, handle: &BlobHandle, owners: Option<&RowOwners>) -> Result<(), Error> {
        let owner = owners.and_then(|owners| owners.get(&handle.id)).copied();
        match self.relocate_blob(handle, owner) {
            Err(Error::NoSpace) => {
                // A full pool has room again once what the crash left half freed is given back.
                let placement = crate::Placement { scheme: handle.segment.scheme, class: handle.segment.class };
                self.make_room(&self.stream_key(placement, 1, None))?;
                self.relocate_blob(handle, owner)
            }
            outcome => outcome,
        }
    }
}
