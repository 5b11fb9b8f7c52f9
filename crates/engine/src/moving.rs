//! Moving: a blob is appended to another stream, then its one entry in the blob map changes, if nobody changed it meanwhile. This
//! is the one relocation there is; cleaning, rerouting, rebuilding, archiving and repacking all do it.
//!
//! Invariant: both copies are whole until the entry has changed, so a crash in between loses nothing. Read next: `clean.rs`,
//! `relocate.rs`.

use std::sync::Arc;

use stere_faults::{Bug, is_planted};
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobValue, Checksums, RecordSubject, SegmentKind, Site, SummaryEntry};
use stere_log::{Io, LogError, Segment, StreamKey};
use stere_recall::BlobHandle;

use crate::content::Placement;
use crate::engine::Engine;
use crate::error::Error;
use crate::space::raw;

/// Appends blobs elsewhere and enters where they are.
#[derive(Clone, Copy)]
pub struct Moving<'a> {
    engine: &'a Engine,
}

impl Engine {
    pub fn moving(&self) -> Moving<'_> {
        Moving { engine: self }
    }
}

impl Moving<'_> {
    /// Reads the blob, and appends it without the blocks nobody needs to another stream.
    pub fn append_copy(
        &self,
        handle: &BlobHandle,
        inode: u64,
        file_offset: u64,
        key: &StreamKey,
    ) -> Result<(BlobValue, Arc<Segment>), Error> {
        let stored = self.engine.volumes.read_record_blocks(&self.engine.log, handle)?;
        self.append_live(handle, &stored, inode, file_offset, key)
    }

    /// The same with what is stored of it, read before.
    pub(crate) fn append_live(
        &self,
        handle: &BlobHandle,
        stored: &[u8],
        inode: u64,
        file_offset: u64,
        key: &StreamKey,
    ) -> Result<(BlobValue, Arc<Segment>), Error> {
        let old = &*handle.value;
        assert_eq!(stored.len(), old.address.length as usize, "a blob moves with all that is stored of it");
        let mut value = old.clone();
        if old.encoding == BlobEncoding::PLAIN && old.live != old.present {
            let mut kept = Vec::with_capacity(stored.len());
            for block in old.live.iter() {
                let start = old.stored_offset_of_block(block).expect("a live block is stored") as usize;
                kept.extend_from_slice(&stored[start..stored.len().min(start + BLOCK_BYTES)]);
            }
            value.present = old.live;
            value.checksums = Checksums::of(old.checksums.kind(), &kept);
            return self.append_stored(handle.id, value, &kept, inode, file_offset, key);
        }
        self.append_stored(handle.id, value, stored, inode, file_offset, key)
    }

    /// Appends what is to be stored of a blob from now on; its new entry is still to be entered.
    pub(crate) fn append_stored(
        &self,
        blob: u64,
        mut value: BlobValue,
        data: &[u8],
        inode: u64,
        file_offset: u64,
        key: &StreamKey,
    ) -> Result<(BlobValue, Arc<Segment>), Error> {
        assert_eq!(key.kind, SegmentKind::Data, "content goes to segments of data");
        assert_eq!(value.checksums.len(), data.len().div_ceil(BLOCK_BYTES), "each stored block has its checksum");
        let is_plain = value.encoding == BlobEncoding::PLAIN;
        let is_of_present = value.plain_bytes_of(&value.present) as usize == data.len();
        assert!(!is_plain || is_of_present, "of plain blob {blob} the present blocks are stored");
        let crc32c = stere_format::record_checksum(&value.checksums, data.len());
        let (logical_bytes, encoding, present) = (value.logical_bytes, value.encoding, value.present);
        let subject = RecordSubject::Blob { blob, inode, file_offset, logical_bytes, encoding, present };
        self.engine.space.note_moved(raw(key.scheme, i64::try_from(data.len()).unwrap_or(i64::MAX)));
        let append = |key: &StreamKey| {
            self.engine.log.append(key, data.len(), Io::BLOCKING, |target| {
                target.copy_from_slice(data);
                SummaryEntry { offset: 0, length: 0, crc32c, subject, hint: Vec::new() }
            })
        };
        let mut appended = append(key);
        if matches!(appended, Err(LogError::NoSpace)) {
            // Full must never mean stuck: room comes before isolation.
            if let Some(other) = self.engine.places().other_home(key, data.len()) {
                appended = append(&other);
            }
        }
        let appended = appended.map_err(|error| match error {
            LogError::NoSpace => Error::NoSpace,
            error => error.into(),
        })?;
        assert_eq!(appended.address.length as usize, data.len(), "a record is as long as what is stored in it");
        value.address = appended.address;
        Ok((value, appended.segment))
    }

    /// Enters where blobs are now, but for those that were changed meanwhile; how many it entered. It is never refused: moving makes
    /// room in the end.
    pub fn enter_moved(&self, moved: &[(BlobHandle, BlobValue, Arc<Segment>)]) -> Result<usize, Error> {
        self.engine.update_unrefused(Io::BLOCKING, false, |transaction| {
            let mut entered = 0;
            for (handle, value, to) in moved {
                entered += usize::from(transaction.move_blob(handle, value, to)?);
            }
            Ok::<_, Error>(entered)
        })
    }

    /// Those blobs of a row's entries that still lie there, with inode and offset in the file.
    pub fn live_blobs(
        &self,
        segment: &Segment,
        row_block: u32,
        entries: &[SummaryEntry],
    ) -> Result<Vec<(BlobHandle, u64, u64)>, Error> {
        self.engine.view(Io::BLOCKING, |view| {
            let mut live: Vec<(BlobHandle, u64, u64)> = Vec::new();
            for entry in entries {
                let RecordSubject::Blob { blob, inode, file_offset, .. } = entry.subject else { continue };
                let handle = match view.blob(blob) {
                    Ok(handle) => handle,
                    Err(Error::UnknownBlob { .. }) => continue,
                    Err(error) => return Err(error),
                };
                let address = &handle.value.address;
                if (address.segment, address.row_block, address.offset) == (segment.id, row_block, entry.offset) {
                    live.push((handle, inode, file_offset));
                }
            }
            Ok::<_, Error>(live)
        })
    }

    /// Where what survived cleaning goes: unreplicated data stays on its device.
    pub fn cold_stream(&self, segment: &Segment) -> StreamKey {
        let site = if is_planted(Bug::CleanedElsewhere) { Site::ANYWHERE } else { segment.site };
        let placement = Placement { scheme: segment.scheme, class: segment.class, site };
        let key = self.engine.stream_for(placement, 1, segment.home());
        StreamKey { tertiary: self.engine.volumes.with_heirs(segment.tertiary().wanted), ..key }
    }
}
