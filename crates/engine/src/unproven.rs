//! After a crash: what unproven groups of the journal named can be read, but perhaps not from every copy. It is made whole before
//! anybody is shown it.
//!
//! Invariants: first every row is made whole where it lies, from its verified parts, and that is flushed; only then is anything
//! written elsewhere. So a device that holds the one good copy of something is not written to before another has it too: a write
//! that goes astray there could hit just that. A copy that missed the row may hold another one in its place, of a future that an
//! earlier crash cut off: a row that does not tell of just what was committed is never made anybody's truth. What cannot be made
//! whole in its place (a device is away or no longer written to, or nothing tells of the row) is appended again. Read next:
//! `recover.rs`, `rows.rs`, `clean.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stere_format::{Address, ChunkPlace, RecordSubject, SummaryEntry, record_checksum};
use stere_log::{RowContents, Segment};

use crate::Owner;
use crate::error::Error;
use crate::make_room::Purpose;
use crate::recover::Recovery;
use stere_recall::BlobHandle;

/// A row that unproven groups tell of.
struct Row {
    segment: Arc<Segment>,
    /// What they named in it.
    blobs: Vec<BlobHandle>,
    /// What it tells itself, if anything does.
    contents: Option<RowContents>,
}

impl Row {
    /// Whether it is the row in which these blobs were written, with this content.
    fn tells_of_all(&self, contents: &RowContents) -> bool {
        assert!(!self.blobs.is_empty(), "a row is looked at for the blobs in it");
        self.blobs.iter().all(|blob| {
            let Address { offset, length, .. } = blob.value.address;
            let crc32c = record_checksum(&blob.value.checksums, length as usize);
            contents.entries.iter().any(|entry| {
                let is_of_it = matches!(entry.subject, RecordSubject::Blob { blob: id, .. } if id == blob.id);
                is_of_it && (entry.offset, entry.length, entry.crc32c) == (offset, length, crc32c)
            })
        })
    }
}

impl Recovery<'_> {
    /// Brings what these blobs name to all its copies, in its place or elsewhere.
    pub(crate) fn make_unproven_whole(&self, blobs: &[u64]) -> Result<(), Error> {
        let mut torn = self.torn(self.rows_of(blobs)?)?;
        let mut is_any_mended = false;
        for row in &torn {
            if let Some(contents) = row.contents.as_ref().filter(|contents| row.tells_of_all(contents)) {
                self.engine.rows().mend_row_in_place(&row.segment, contents)?;
                is_any_mended = true;
            }
        }
        if is_any_mended {
            self.engine.log.flush()?;
            torn = self.torn(torn)?;
        }
        let mut is_full = false;
        torn.iter().try_for_each(|row| self.rewrite_elsewhere(row, &mut is_full))
    }

    fn rows_of(&self, blobs: &[u64]) -> Result<Vec<Row>, Error> {
        let mut rows: BTreeMap<(u64, u32), Row> = BTreeMap::new();
        for blob in blobs {
            let handle = match self.engine.view(stere_log::Io::BLOCKING, |view| view.blob(*blob)) {
                Ok(handle) => handle,
                Err(Error::UnknownBlob { .. }) => continue,
                Err(error) => return Err(error),
            };
            // What volumes have was proven when it was copied out, and they are not known yet.
            if handle.segment.tertiary().there != 0 {
                continue;
            }
            let (segment, block) = (handle.segment.clone(), handle.value.address.row_block);
            let contents = || self.engine.log.read_row_contents(&segment, block).ok().flatten();
            let row = rows.entry((segment.id, block));
            row.or_insert_with(|| Row { contents: contents(), segment: segment.clone(), blobs: Vec::new() })
                .blobs
                .push(handle);
        }
        Ok(rows.into_values().collect())
    }

    /// Those of the rows that are not whole. With one copy a row is whole if it can be read, and its device keeps what it has.
    fn torn(&self, rows: Vec<Row>) -> Result<Vec<Row>, Error> {
        let mut torn = Vec::new();
        for row in rows {
            let is_whole = match &row.contents {
                Some(contents) => {
                    row.segment.scheme.parity == 0 || self.engine.rows().is_row_whole(&row.segment, contents)?
                }
                None => false,
            };
            let is_kept = |place: &ChunkPlace| !self.engine.log.stripe.slots.is_suspended(place.device);
            if !is_whole || !row.segment.chunks().iter().all(is_kept) {
                torn.push(row);
            }
        }
        Ok(torn)
    }

    /// Appends again what lies in a row that is not whole; `is_full` once no room can be made.
    fn rewrite_elsewhere(&self, row: &Row, is_full: &mut bool) -> Result<(), Error> {
        // Without what tells of its row nobody would find it there again, to clean the segment or to rescue it.
        let owners = row.contents.as_ref().map(owners_in);
        for blob in &row.blobs {
            let owner = owners.as_ref().and_then(|owners| owners.get(&blob.id)).copied();
            match self.rewrite_blob(blob, owner, is_full) {
                // With no room left the copies stay as they are; a scrub finds what lacks.
                Ok(()) | Err(Error::NoSpace) => {}
                // So does what lies on devices that are away, and what had one copy and is lost.
                Err(Error::Damaged { .. }) if row.segment.scheme.parity == 0 || !self.is_within_reach(&row.segment) => {
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn rewrite_blob(&self, blob: &BlobHandle, owner: Option<Owner>, is_full: &mut bool) -> Result<(), Error> {
        match self.engine.cleaning().relocate_blob(blob, owner) {
            // Looking for room takes long: not for each blob anew.
            Err(Error::NoSpace) if !*is_full => {
                // A full pool has room again once what the crash left half freed is given back.
                let placement = crate::Placement {
                    scheme: blob.segment.scheme,
                    class: blob.segment.class,
                    site: blob.segment.site,
                };
                let made =
                    self.engine.cleaning().make_room(&self.engine.stream_for(placement, 1, None), Purpose::Accepted);
                *is_full = matches!(made, Err(Error::NoSpace));
                made.and_then(|()| self.engine.cleaning().relocate_blob(blob, owner))
            }
            outcome => outcome,
        }
    }
}

/// Whose blobs lie in a row, by blob, as the row itself tells.
fn owners_in(contents: &RowContents) -> FxHashMap<u64, Owner> {
    let owner_of = |entry: &SummaryEntry| match entry.subject {
        RecordSubject::Blob { blob, inode, file_offset, .. } => Some((blob, Owner { inode, offset: file_offset })),
        _ => None,
    };
    contents.entries.iter().filter_map(owner_of).collect()
}
