//! What can be wrong with a stored record. Bad media is an error, never a panic.

use crate::stack::StackFailure;

/// Why a record cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// A newer stere, or another one, wrote it.
    #[error(
        "the record is stored in encoding {code:#04x}, which this version does not know; use the stere that wrote it"
    )]
    UnknownEncoding {
        /// The code in the blob map.
        code: u8,
    },
    /// The bytes are not what the encoding makes, though their checksums are right.
    #[error("the record is no valid {what} ({detail}); restore the file from another copy")]
    Malformed {
        /// The encoding.
        what: &'static str,
        /// What the decoder says.
        detail: String,
    },
    /// It decodes to something longer or shorter than the blob map says.
    #[error("the record holds {got} bytes where the blob map says {expected}; run `stere check`")]
    Length {
        /// Bytes there are.
        got: usize,
        /// Bytes there should be.
        expected: usize,
    },
    /// Users' plugins had it, and cannot undo what they did.
    #[error(transparent)]
    Stack(StackFailure),
}
