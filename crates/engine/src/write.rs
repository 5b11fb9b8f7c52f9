//! Appending blobs: user bytes are copied once, into the open row, and checksummed on the way.
//!
//! Invariants: a `NewBlob` pins its segment, so that nothing is freed between appending and entering it into the blob map.
//! Read next: `transaction.rs`, then `commit.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stere_format::{
    BLOCK_BYTES, BlobEncoding, BlobFlags, BlobValue, ChecksumKind, Checksums, DeviceIndex, RecordSubject, Scheme,
    SegmentKind, Site, SummaryEntry, crc32c, record_checksum,
};
use stere_log::{Io, LogError, Segment, StreamKey};

use crate::engine::Engine;
use crate::error::Error;
use crate::make_room::Purpose;

/// Data written without a commit; recovery verifies at most about this much.
const UNPROVEN_BYTES_MAX: u64 = 128 << 20;

/// Where new data goes: the scheme, class and devices its policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    pub scheme: Scheme,
    pub class: u8,
    /// On which devices.
    pub site: Site,
}

impl Placement {
    /// How files of this placement wait on devices for being copied out: as many losses survived, by copies.
    pub fn staging(self) -> Placement {
        let scheme = Scheme { data: 1, parity: self.scheme.parity };
        Placement { scheme, ..self }
    }
}

/// Whose data it is; a hint for rescue, written next to the data.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pub inode: u64,
    pub offset: u64,
}

/// A record as it is to be stored. What an encoding means is not the store's business: it keeps the bytes, and moves them.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pub stored: &'a [u8],
    /// Bytes of content that the stored bytes stand for.
    pub logical_bytes: u32,
    pub encoding: BlobEncoding,
    /// Number of the key it is encrypted with; 0 if it is not.
    pub key: u16,
    /// Number of the stack of users' plugins that had it first; 0 if none had.
    pub stack: u16,
    /// What is noted about it.
    pub flags: BlobFlags,
    /// What is kept to know it by.
    pub checksum: ChecksumKind,
}

impl<'a> Content<'a> {
    /// Bytes that are stored as they are.
    pub fn plain(data: &'a [u8]) -> Self {
        let logical_bytes = u32::try_from(data.len()).expect("a blob is far below 4 GiB");
        let (encoding, flags, checksum) = (BlobEncoding::PLAIN, BlobFlags::NONE, ChecksumKind::Crc32c);
        Content { stored: data, logical_bytes, encoding, key: 0, stack: 0, flags, checksum }
    }

    fn value(&self, address: stere_format::Address, checksums: Checksums) -> BlobValue {
        let value = match self.encoding {
            BlobEncoding::PLAIN => BlobValue::plain(address, checksums),
            encoding => BlobValue::encoded(address, checksums, encoding, self.logical_bytes),
        };
        BlobValue { flags: self.flags, key: self.key, stack: self.stack, ..value }
    }
}

/// A blob that was appended but that no extent names yet.
#[derive(Debug)]
pub struct NewBlob {
    pub id: u64,
    pub value: BlobValue,
    pub(crate) segment: Arc<Segment>,
}

impl NewBlob {
    /// Bytes of content.
    pub fn length(&self) -> u32 {
        self.value.logical_bytes
    }

    /// The one device that has it, if it is unreplicated.
    pub fn home(&self) -> Option<DeviceIndex> {
        self.segment.home()
    }
}

/// Copies block by block and returns the CRC32C of each.
fn copy_and_checksum(from: &[u8], to: &mut [u8], checksums: &mut Checksums) {
    assert_eq!(from.len(), to.len(), "a record has the length of its content");
    for (source, target) in from.chunks(BLOCK_BYTES).zip(to.chunks_mut(BLOCK_BYTES)) {
        target.copy_from_slice(source);
        checksums.push(crc32c(target));
    }
}

impl Engine {
    /// The largest blob this pool takes, in bytes.
    pub fn blob_bytes_max(&self) -> usize {
        self.log.record_bytes_max() / 2
    }

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

    /// Commits now and then under a stream of writes, so that recovery never has much data to verify.
    pub(crate) fn bound_unproven(&self, io: Io<'_>) -> Result<(), Error> {
        if !self.log.wants_commit(UNPROVEN_BYTES_MAX) {
            return Ok(());
        }
        if !io.may_block() {
            return Err(Error::WouldBlock);
        }
        self.commit(Io::BLOCKING)
    }

    /// The stream that takes data of this placement, given the devices there are; of unreplicated data that of its home.
    pub(crate) fn stream_for(&self, placement: Placement, temperature: u8, home: Option<DeviceIndex>) -> StreamKey {
        let (scheme, site, stripe) = (self.places().fit_for(placement), placement.site, &self.log.stripe);
        let may_take = |home: &DeviceIndex| stripe.is_open(*home) && stripe.allows(site, *home);
        let home = match scheme.width() {
            1 => home.filter(may_take).or_else(|| stripe.choose_home(site)),
            _ => None,
        };
        StreamKey { scheme, class: placement.class, kind: SegmentKind::Data, temperature, home, tertiary: 0, site }
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
                    let value = content.value(appended.address, checksums);
                    return Ok(NewBlob { id, value, segment: appended.segment });
                }
                Err(LogError::NoSpace) if self.log.stripe.open_devices().is_empty() => {
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
