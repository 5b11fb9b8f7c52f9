//! Reading what a map names: all of it in one call to the stripe, each block held against its checksum.
//!
//! Whole blocks of what is stored as it is go straight to their place. The rest is read as whole records, verified, decoded, and copied.
//! Invariant: `Ok` means that every byte of the range was verified, or is in a hole. Read next: the stripe's `read.rs`.

use std::ops::Range;
use std::sync::Arc;

use stere_crypt::{CryptError, Keyring, Place, open_record};
use stere_device::Buffer;
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobValue, ContentMap, MappedPiece, crc32c};
use stere_plugin::Stack;
use stere_stripe::{BadCause, ReadRequest};

use crate::Nodes;
use crate::error::DirectError;

const BLOCK: u32 = BLOCK_BYTES as u32;

/// How a read went that ended well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// A node gave other bytes than it should have.
    pub is_any_wrong: bool,
}

/// The bytes of a record that a piece is, where they can be read straight to their place.
fn straight(piece: &MappedPiece) -> Option<Range<u32>> {
    let (value, end) = (&piece.value, piece.offset + piece.length);
    let is_plain = value.encoding == BlobEncoding::PLAIN && !value.checksums.has_digest();
    let is_whole_blocks =
        piece.offset.is_multiple_of(BLOCK) && (end.is_multiple_of(BLOCK) || end == value.logical_bytes);
    let is_all_stored = value.address.length == value.logical_bytes;
    (is_plain && is_whole_blocks && is_all_stored).then_some(piece.offset..end)
}

/// What opens records of a range that are encrypted, or passed plugins.
pub struct Opening<'a> {
    pub keyring: &'a Keyring,
    /// Plugins by the number of their stack, as far as they can be run here.
    pub stacks: &'a dyn Fn(u16) -> Option<Arc<Stack>>,
    pub inode: u64,
    /// Where in the file the range begins.
    pub offset: u64,
}

impl Opening<'_> {
    fn open<'record>(&self, piece: &MappedPiece, record: &'record mut [u8]) -> Result<&'record [u8], CryptError> {
        let value = &piece.value;
        let key = self.keyring.open_key(value.key)?;
        let begins = self.offset.wrapping_add(u64::from(piece.at)).wrapping_sub(u64::from(piece.offset));
        let (logical_bytes, encoding) = (value.logical_bytes, value.encoding.0);
        open_record(&key, &Place { inode: self.inode, offset: begins, logical_bytes, encoding }, record)
    }
}

impl Nodes {
    /// Reads the range that a map tells of; `out` is as long as it. `opening` is for what is encrypted.
    ///
    /// # Errors
    /// Where something cannot be had: the owner may know more.
    pub fn read(&self, map: &ContentMap, opening: &Opening<'_>, out: &mut [u8]) -> Result<Found, DirectError> {
        assert_eq!(out.len(), map.length as usize, "the bytes fit exactly in their place");
        let ways: Vec<Option<Range<u32>>> = map.pieces.iter().map(straight).collect();
        let mut records: Vec<Option<Buffer>> =
            map.pieces.iter().zip(&ways).map(|(piece, way)| way.is_none().then(|| self.room(piece))).collect();
        let mut checks = Vec::with_capacity(map.pieces.len());
        for (piece, way) in map.pieces.iter().zip(&ways) {
            let first = way.as_ref().map_or(0, |range| (range.start / BLOCK) as usize);
            let checksums = piece.value.checksums.get(first..).ok_or(lacking(piece))?;
            checks.push(move |at: usize, bytes: &[u8]| checksums.get(at / BLOCK_BYTES) == Some(&crc32c(bytes)));
        }
        let mut requests = Vec::with_capacity(map.pieces.len());
        let (mut rest, mut at) = (&mut *out, 0);
        for (((piece, way), record), verify) in map.pieces.iter().zip(ways).zip(&mut records).zip(&checks) {
            let (hole, behind) = std::mem::take(&mut rest).split_at_mut((piece.at - at) as usize);
            hole.fill(0);
            let (into, behind) = behind.split_at_mut(piece.length as usize);
            (rest, at) = (behind, piece.at + piece.length);
            let (range, into) = match (way, record) {
                (Some(range), _) => (range, into),
                (None, Some(record)) => (0..piece.value.address.length, record.as_mut_slice()),
                (None, None) => return Err(lacking(piece)),
            };
            let (segment, address) = (&map.segments[usize::from(piece.segment)], piece.value.address);
            requests.push(ReadRequest { segment, address, range, out: into, granule_bytes: BLOCK_BYTES, verify });
        }
        rest.fill(0);
        let mut found = Found::default();
        for outcome in self.stripe.read_many(&mut requests) {
            let report = outcome?;
            found.is_any_wrong |= report.bad.iter().any(|bad| matches!(bad.cause, BadCause::Checksum));
        }
        drop(requests);
        for (piece, record) in map.pieces.iter().zip(&mut records) {
            let Some(record) = record else { continue };
            let place = piece.at as usize..(piece.at + piece.length) as usize;
            decode(piece, opening, record.as_mut_slice(), &mut out[place])?;
        }
        Ok(found)
    }

    /// Memory for the whole record of a piece.
    fn room(&self, piece: &MappedPiece) -> Buffer {
        self.stripe.buffers().take(piece.value.address.length as usize)
    }
}

fn lacking(piece: &MappedPiece) -> DirectError {
    DirectError::Lacking { segment: piece.value.address.segment }
}

/// A piece of what is stored in a record, each block of which was verified.
fn decode(piece: &MappedPiece, opening: &Opening<'_>, record: &mut [u8], out: &mut [u8]) -> Result<(), DirectError> {
    let (value, segment) = (&piece.value, piece.value.address.segment);
    if !value.checksums.is_digest_of(record) {
        return Err(DirectError::Digest { segment });
    }
    let part = piece.offset as usize..(piece.offset + piece.length) as usize;
    if value.encoding == BlobEncoding::PLAIN {
        return lay_out(piece, record, out);
    }
    let mut content = vec![0; value.logical_bytes as usize];
    let undecodable = |why: String| DirectError::Undecodable { segment, why };
    if !value.encoding.is_known() {
        return Err(undecodable("its encoding is not known here".into()));
    }
    let opened = match value.encoding.is_encrypted() {
        true => opening.open(piece, record).map_err(|error| undecodable(error.to_string()))?,
        false => record,
    };
    let decoded = match value.encoding.is_plugged() {
        false => stere_plugin::decode(value.encoding.compression(), opened, &mut content),
        true => {
            let stack = (opening.stacks)(value.stack).ok_or_else(|| undecodable("its plugins are not here".into()))?;
            stere_plugin::decode_plugged(&stack, value.encoding, opened, &mut content)
        }
    };
    decoded.map_err(|error| undecodable(error.to_string()))?;
    out.copy_from_slice(&content[part]);
    Ok(())
}

/// Of a plain record the stored blocks that a piece has.
fn lay_out(piece: &MappedPiece, record: &[u8], out: &mut [u8]) -> Result<(), DirectError> {
    let value: &BlobValue = &piece.value;
    let mut at = piece.offset;
    let mut rest = out;
    while !rest.is_empty() {
        let (block, within) = (at / BLOCK, at % BLOCK);
        let length = rest.len().min((BLOCK - within) as usize);
        let stored = value.stored_offset_of_block(block).ok_or(lacking(piece))? + within;
        let bytes = record.get(stored as usize..stored as usize + length).ok_or(lacking(piece))?;
        let (into, behind) = rest.split_at_mut(length);
        into.copy_from_slice(bytes);
        (rest, at) = (behind, at + length as u32);
    }
    Ok(())
}
