//! Appending blobs: user bytes are copied once, into the open row, and checksummed on the way.
//!
//! What was accepted has its room: where none is found, it is made. Read next: `content.rs`, `transaction.rs`, `durable.rs`.

use std::sync::atomic::Ordering;

use stere_format::{
    BLOCK_BYTES, Checksums, DeviceIndex, RecordSubject, SegmentKind, SummaryEntry, crc32c, record_checksum,
};
use stere_log::{Io, LogError, StreamKey};

use crate::content::{Content, NewBlob, Owner, Placement};
use crate::engine::Engine;
use crate::error::Error;
use crate::make_room::Purpose;

/// Copies block by block and returns the CRC32C of each.
fn copy_and_checksum(from: &[u8], to: &mut [u8], checksums: &mut Checksums) {
    assert_eq!(from.len(), to.len(), "a record has the length of its content");
    for (source, target) in from.chunks(BLOCK_BYTES).zip(to.chunks_mut(BLOCK_BYTES)) {
        target.copy_from_slice(source);
        checksums.push(crc32c(target));
    }
}

impl Engine {
    /// Appends `data` as a blob. It is readable at once and durable after the next commit that follows the update which
    /// enters it into the blob map.
    pub fn append_blob(&self, io: Io<'_>, placement: Placement, owner: Owner, data: &[u8]) -> Result<NewBlob, Error> {
        self.append_blob_at_home(io, placement, None, owner, &Content::plain(data))
    }

    /// The same for a file that lies whole on one device if it is unreplicated. Where `home` has no room, or is not there, another
    /// device takes the blob: see `NewBlob::home`.
    pub fn append_blob_at_home(
        &self,
        io: Io<'_>,
        placement: Placement,
        home: Option<DeviceIndex>,
        owner: Owner,
        content: &Content<'_>,
    ) -> Result<NewBlob, Error> {
        self.check_writable()?;
        self.bound_unproven(io)?;
        let key = self.stream_for(placement, 0, home);
        let id = self.next_blob.fetch_add(1, Ordering::AcqRel);
        self.append_making_room(io, key, id, owner, content)
    }

    /// What was accepted has its room, if need be in the segments that the cleaner moves data to: room comes before temperature.
    fn last_stream(&self, key: &StreamKey, length: usize) -> Option<StreamKey> {
        let last = StreamKey { temperature: 1, ..*key };
        let is_other = last != *key;
        (is_other && self.log.can_take_accepted(&last, length)).then_some(last)
    }

    pub(crate) fn append_making_room(
        &self,
        io: Io<'_>,
        mut key: StreamKey,
        id: u64,
        owner: Owner,
        content: &Content<'_>,
    ) -> Result<NewBlob, Error> {
        assert_eq!(key.kind, SegmentKind::Data, "content goes to segments of data");
        let Content { stored: data, logical_bytes, encoding, .. } = *content;
        // A digest takes longer than the CRCs, so it is made before the stream is locked, not while the bytes are copied.
        let digest = Checksums::without_blocks(content.checksum, data);
        loop {
            let mut checksums = digest.to_push(data.len());
            let appended = self.log.append(&key, data.len(), io, |target| {
                copy_and_checksum(data, target, &mut checksums);
                let crc32c = record_checksum(&checksums, data.len());
                let whole = RecordSubject::plain_blob(id, owner.inode, owner.offset, logical_bytes);
                let subject = whole.in_encoding(encoding);
                SummaryEntry { offset: 0, length: 0, crc32c, subject, hint: Vec::new() }
            });
            match appended {
                Ok(appended) => {
                    self.cleaning_tally.note_written(data.len());
                    let value = content.value(appended.address, checksums);
                    return Ok(NewBlob { id, value, segment: appended.segment });
                }
                Err(LogError::NoSpace) if self.log.stripe.slots.open_devices().is_empty() => {
                    let cause = "no device takes writes any more; check the devices, then mount the pool again";
                    return Err(self.fail(Error::Pool(cause.into())));
                }
                Err(LogError::NoSpace) => {
                    // Room comes before isolation: the rest of the file goes to a device that has some.
                    if let Some(other) = self.places().other_home(&key, data.len()) {
                        key = other;
                        continue;
                    }
                    if !io.may_block() {
                        return Err(Error::WouldBlock);
                    }
                    match self.cleaning().make_room(&StreamKey { home: None, ..key }, Purpose::Accepted) {
                        Err(Error::NoSpace) => key = self.last_stream(&key, data.len()).ok_or(Error::NoSpace)?,
                        made => made?,
                    }
                }
                Err(LogError::WouldBlock) => return Err(Error::WouldBlock),
                Err(error) => return Err(self.fail(error.into())),
            }
        }
    }
}
