//! A record on its way to media and back: users' plugins first, then compression. Encryption is done by others, after it.
//!
//! The same for the owner of a pool and for machines that write and read past it, so what one of them encodes the other decodes.
//! Invariants: what passed plugins begins with the length that it had before it was compressed, and its encoding says so; whatever decodes
//! gives exactly as many bytes as were asked for. Read next: `stack.rs`, `compress.rs`, `docs/design/plugins.md`.

use std::borrow::Cow;

use stere_format::{BlobEncoding, BlobFlags};
use stere_policy::Compression;

use crate::error::PluginError;
use crate::stack::{Stack, StackFailure, encoded_bytes_max};
use crate::{Encoded, decode, encode};

/// A record as plugins and compression leave it.
#[derive(Debug)]
pub struct Passed<'data> {
    pub bytes: Cow<'data, [u8]>,
    pub encoding: BlobEncoding,
    /// What was tried in vain.
    pub gave_up: BlobFlags,
}

/// What a stack, if there is one, and compression make of a record.
pub fn encode_record<'data>(
    stack: Option<&Stack>,
    compression: Compression,
    content: &'data [u8],
) -> Result<Passed<'data>, StackFailure> {
    let before = match stack {
        Some(stack) => Cow::Owned(stack.encode(content)?),
        None => Cow::Borrowed(content),
    };
    let length = before.len();
    let (encoding, gave_up) = (BlobEncoding::PLAIN, BlobFlags::NONE);
    let passed = match compression.algorithm().map(|_| encode(compression, &before)) {
        None => Passed { bytes: before, encoding, gave_up },
        Some(Encoded::Plain { gave_up }) => Passed { bytes: before, encoding, gave_up },
        Some(Encoded::Stored { encoding, bytes }) => Passed { bytes: Cow::Owned(bytes), encoding, gave_up },
    };
    assert!(!passed.encoding.is_plugged(), "compression is no plugin");
    if stack.is_none() {
        return Ok(passed);
    }
    let bytes = Cow::Owned(prefixed(length, &passed.bytes));
    Ok(Passed { bytes, encoding: passed.encoding.plugged(), ..passed })
}

/// What plugins made of a record, with how long that is before it.
fn prefixed(length: usize, stored: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).expect("a record is far below 4 GiB");
    [&length.to_le_bytes()[..], stored].concat()
}

/// Undoes what a stack made of a record, and the compression after it. `encoding` is that of the blob.
pub fn decode_plugged(stack: &Stack, encoding: BlobEncoding, stored: &[u8], out: &mut [u8]) -> Result<(), PluginError> {
    assert!(encoding.is_known() && encoding.is_plugged(), "it passed plugins");
    let malformed = |detail: &str| PluginError::Malformed { what: "record of a plugin", detail: detail.to_owned() };
    let (length, stored) = stored.split_first_chunk().ok_or_else(|| malformed("it is cut"))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > encoded_bytes_max(out.len()) {
        return Err(malformed("it says that plugins made more of it than they may"));
    }
    let mut passed = vec![0; length];
    decode(encoding.compression(), stored, &mut passed)?;
    stack.decode(&passed, out).map_err(PluginError::Stack)
}
