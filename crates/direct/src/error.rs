//! Why bytes could not be had where a map said. Read next: `read.rs`.

use stere_stripe::StripeError;

#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// Each block has its CRC, and all together are not what the digest says.
    #[error("a record of segment {segment} has not its digest")]
    Digest { segment: u64 },
    #[error("a record of segment {segment} cannot be decoded: {why}")]
    Undecodable { segment: u64, why: String },
    /// A part of a blob is named that is not stored.
    #[error("a map names a part of a record of segment {segment} that is not there")]
    Lacking { segment: u64 },
}
