//! Between a file's bytes and what is stored of them: records are encoded when they are appended, decoded when they are read.
//!
//! A blob is one record, so a read decodes only those that it touches. The last few that were decoded for a part of them are
//! kept, for those who read on from there. A blob's content never changes, so its number is enough to know it by.
//! Files that ask for no encoding, and blobs that have none, pass through here with one look at a byte.
//! Read next: the plugin crate.

use std::sync::Arc;

use parking_lot::Mutex;
use stere_format::{BLOCK_BYTES, BlobEncoding, BlobFlags, BlobValue, DeviceIndex};
use stere_plugin::Encoded;
use stere_policy::Compression;
use stere_store::{BlobHandle, Content, NewBlob, Owner, Piece, Placement, Recoded, Wait};

use crate::Files;
use crate::error::Error;

/// How new data of a file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Storing {
    pub placement: Placement,
    pub compression: Compression,
}

impl Storing {
    /// Whether handing data over takes long enough for others not to wait for it.
    pub fn is_slow(&self) -> bool {
        self.compression.algorithm().is_some()
    }
}

/// Decoded records that are kept: enough for a few readers that read in small steps.
const KEPT_RECORDS: usize = 16;

/// The records that were decoded last, the newest first.
#[derive(Default)]
pub(crate) struct Decoded(Mutex<Vec<(u64, Arc<[u8]>)>>);

impl Decoded {
    fn get(&self, blob: u64) -> Option<Arc<[u8]>> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|(known, _)| *known == blob)?;
        kept[..=at].rotate_right(1);
        Some(kept[0].1.clone())
    }

    fn keep(&self, blob: u64, content: Arc<[u8]>) {
        let mut kept = self.0.lock();
        if kept.iter().all(|(known, _)| *known != blob) {
            kept.truncate(KEPT_RECORDS - 1);
            kept.insert(0, (blob, content));
        }
    }
}

fn undecodable(blob: &BlobHandle, why: &stere_plugin::PluginError) -> Error {
    tracing::error!(blob = blob.id, %why, "content cannot be decoded");
    Error::Undecodable { blob: blob.id, why: why.to_string() }
}

impl Files {
    /// Appends one record of a file, encoded as its policy says.
    pub(crate) fn append(
        &self,
        wait: Wait,
        storing: &Storing,
        home: Option<DeviceIndex>,
        owner: Owner,
        data: &[u8],
    ) -> Result<NewBlob, Error> {
        let plain = Content::plain(data);
        let append =
            |content: &Content<'_>| self.store.append_blob_at_home(wait, storing.placement, home, owner, content);
        if storing.compression.algorithm().is_none() {
            return Ok(append(&plain)?);
        }
        let new = match stere_plugin::encode(storing.compression, data) {
            Encoded::Plain { gave_up } => append(&Content { flags: gave_up, ..plain })?,
            Encoded::Stored { encoding, bytes } => append(&Content { stored: &bytes, encoding, ..plain })?,
        };
        Ok(new)
    }

    /// Reads pieces of blobs, whatever their encoding; bytes of `out` between pieces stay as they are.
    pub(crate) fn read_pieces(&self, wait: Wait, pieces: &[Piece], out: &mut [u8]) -> Result<(), Error> {
        let is_plain = |piece: &Piece| piece.blob.value.encoding == BlobEncoding::PLAIN;
        if pieces.iter().all(is_plain) {
            return Ok(self.store.read_blobs(wait, pieces, out)?);
        }
        let (plain, encoded): (Vec<Piece>, Vec<Piece>) = pieces.iter().cloned().partition(is_plain);
        if !plain.is_empty() {
            self.store.read_blobs(wait, &plain, out)?;
        }
        let mut unread = Vec::with_capacity(encoded.len());
        for piece in encoded {
            match self.decoded.get(piece.blob.id) {
                Some(content) => copy_piece(&piece, &content, out)?,
                None => unread.push(piece),
            }
        }
        self.read_encoded(wait, &unread, out)
    }

    fn read_encoded(&self, wait: Wait, pieces: &[Piece], out: &mut [u8]) -> Result<(), Error> {
        let mut stored: Vec<Vec<u8>> =
            pieces.iter().map(|piece| vec![0; piece.blob.value.address.length as usize]).collect();
        let wanted = pieces.iter().zip(&mut stored).map(|(piece, stored)| (&piece.blob, &mut stored[..])).collect();
        self.store.read_stored(wait, wanted)?;
        for (piece, stored) in pieces.iter().zip(&stored) {
            let value = &piece.blob.value;
            if piece.offset == 0 && piece.length == value.logical_bytes {
                let into = &mut out[piece.at..piece.at + piece.length as usize];
                decode(&piece.blob, stored, into)?;
                continue;
            }
            let mut content = vec![0; value.logical_bytes as usize];
            decode(&piece.blob, stored, &mut content)?;
            let content: Arc<[u8]> = content.into();
            copy_piece(piece, &content, out)?;
            self.decoded.keep(piece.blob.id, content);
        }
        Ok(())
    }

    /// A blob's content as the policy wants it stored.
    pub(crate) fn recode(&self, wait: Wait, blob: &BlobHandle, wanted: Compression) -> Result<Recoded, Error> {
        let value = &*blob.value;
        let mut content = vec![0; value.logical_bytes as usize];
        self.read_pieces(wait, &live_pieces(blob), &mut content)?;
        let flags = value.flags.without(stere_plugin::GAVE_UP);
        Ok(match stere_plugin::encode(wanted, &content) {
            Encoded::Stored { encoding, bytes } => Recoded { encoding, flags, stored: bytes },
            Encoded::Plain { gave_up } => {
                let stored = live_bytes(value, content);
                Recoded { encoding: BlobEncoding::PLAIN, flags: flags.with(gave_up), stored }
            }
        })
    }
}

fn decode(blob: &BlobHandle, stored: &[u8], out: &mut [u8]) -> Result<(), Error> {
    stere_plugin::decode(blob.value.encoding, stored, out).map_err(|why| undecodable(blob, &why))
}

fn copy_piece(piece: &Piece, content: &[u8], out: &mut [u8]) -> Result<(), Error> {
    let from = piece.offset as usize..(piece.offset + piece.length) as usize;
    let bytes = content.get(from).ok_or_else(|| {
        let detail = format!("it reaches beyond blob {}", piece.blob.id);
        stere_store::Error::BadValue { what: "an extent", detail }
    })?;
    out[piece.at..piece.at + bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// A blob's live blocks, as pieces at their places in the content.
fn live_pieces(blob: &BlobHandle) -> Vec<Piece> {
    let value = &blob.value;
    let block_bytes = BLOCK_BYTES as u32;
    let piece = |block: u32| {
        let (offset, length) = (block * block_bytes, value.block_bytes(block));
        Piece { blob: blob.clone(), offset, length, at: offset as usize }
    };
    if value.encoding != BlobEncoding::PLAIN || value.live_blocks() == value.blocks() {
        return vec![Piece { blob: blob.clone(), offset: 0, length: value.logical_bytes, at: 0 }];
    }
    value.live.iter().map(piece).collect()
}

/// The bytes of the live blocks, one behind the other.
fn live_bytes(value: &BlobValue, content: Vec<u8>) -> Vec<u8> {
    if value.live_blocks() == value.blocks() {
        return content;
    }
    let blocks = content.chunks(BLOCK_BYTES).zip(0..);
    blocks.filter(|(_, block)| value.is_live(*block)).flat_map(|(bytes, _)| bytes.iter().copied()).collect()
}

/// Whether a blob was looked at by the plugin that a policy asks for.
pub(crate) fn is_as_asked(blob: &BlobHandle, wanted: Compression) -> bool {
    let (encoding, flags): (BlobEncoding, BlobFlags) = (blob.value.encoding, blob.value.flags);
    stere_plugin::is_as_asked(wanted, encoding, flags)
}
