//! What is done to the content of files before it is stored, and undone when it is read: the stack of built-in plugins.
//!
//! A record (a piece of a file, at most 1 MiB) is encoded on its own, so that it can be read, moved and lost on its own.
//! What was done is told by the blob's [`BlobEncoding`], and by nothing else: what a file's policy says later changes nothing
//! about what is stored already. Pure: no I/O, no clock, no randomness; the same bytes give the same bytes.
//!
//! Invariants: what [`encode`] gives, [`decode`] gives back, byte for byte; stored bytes are hostile, `decode` refuses them or
//! answers exactly as many bytes as were asked for, and never panics. A file without plugins pays nothing: it never comes here.
//!
//! What users bring themselves is in `user` (what a plugin is) and `stack` (several of them, verified).
//!
//! Read next: `record` (all of it for one record), `compress`, `coders` (several records at once).

mod coders;
mod compress;
mod error;
mod idle;
mod record;
mod stack;
mod user;

use stere_format::{BlobEncoding, BlobFlags};
use stere_policy::{Algorithm, Compression};

pub use coders::Coders;
pub use error::PluginError;
pub use record::{Passed, decode_plugged, encode_record};
pub use stack::{Judged, Member, PLUGINS_MAX, Stack, StackFailure, encoded_bytes_max};
pub use user::{Event, EventKind, Events, Loader, PluginFailure, Reading, UserPlugin, Verdict};

/// What came of encoding a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoded {
    /// These bytes are stored in its place.
    Stored {
        /// What was done.
        encoding: BlobEncoding,
        /// What is stored.
        bytes: Vec<u8>,
    },
    /// It is stored as it is.
    Plain {
        /// What was tried in vain; noted with the blob, so that it is not tried again.
        gave_up: BlobFlags,
    },
}

/// Encodes a record as a policy asks for.
pub fn encode(compression: Compression, content: &[u8]) -> Encoded {
    match compress::compress(compression, content) {
        Some((encoding, bytes)) => Encoded::Stored { encoding, bytes },
        None => Encoded::Plain { gave_up: given_up(compression) },
    }
}

/// Undoes an encoding; encryption is undone by others before. `out` is as long as the content was.
pub fn decode(encoding: BlobEncoding, stored: &[u8], out: &mut [u8]) -> Result<(), PluginError> {
    match encoding {
        BlobEncoding::PLAIN if stored.len() == out.len() => {
            out.copy_from_slice(stored);
            Ok(())
        }
        BlobEncoding::PLAIN => Err(PluginError::Length { got: stored.len(), expected: out.len() }),
        BlobEncoding::LZ4 => compress::decompress_lz4(stored, out),
        BlobEncoding::ZSTD => compress::decompress_zstd(stored, out),
        BlobEncoding(code) => Err(PluginError::UnknownEncoding { code }),
    }
}

/// Whether a blob is stored as a policy asks for: by its algorithm, or plain because that saved too little. The level counts
/// for what is written from now on only.
pub fn is_as_asked(compression: Compression, encoding: BlobEncoding, flags: BlobFlags) -> bool {
    let encoding = if encoding.is_known() { encoding.compression() } else { encoding };
    match compression.algorithm() {
        None => encoding == BlobEncoding::PLAIN,
        Some(algorithm) if encoding == BlobEncoding::PLAIN => flags.contains(gave_up(algorithm)),
        Some(Algorithm::Lz4) => encoding == BlobEncoding::LZ4,
        Some(Algorithm::Zstd) => encoding == BlobEncoding::ZSTD,
    }
}

/// Both flags: what a new encoding makes void.
pub const GAVE_UP: BlobFlags = BlobFlags::GAVE_UP_LZ4.with(BlobFlags::GAVE_UP_ZSTD);

fn given_up(compression: Compression) -> BlobFlags {
    compression.algorithm().map_or(BlobFlags::NONE, gave_up)
}

fn gave_up(algorithm: Algorithm) -> BlobFlags {
    match algorithm {
        Algorithm::Lz4 => BlobFlags::GAVE_UP_LZ4,
        Algorithm::Zstd => BlobFlags::GAVE_UP_ZSTD,
    }
}

#[cfg(test)]
mod tests;
