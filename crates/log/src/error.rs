//! Errors of the log.

use stere_stripe::StripeError;
use thiserror::Error;

/// What can go wrong while appending or reading records.
#[derive(Debug, Error)]
pub enum LogError {
    /// The caller does not want to wait, and the devices are behind.
    #[error("too much is on its way to the devices; repeat the request on a thread that may wait")]
    WouldBlock,
    /// No segment could be begun.
    #[error("no segment is free")]
    NoSpace,
    /// A row could not be written to enough devices.
    #[error("data could not be written to enough devices ({cause}); check the devices, then mount the pool again")]
    RowLost { cause: String },
    /// A row header or summary does not decode.
    #[error("segment {segment} has a damaged row at block {row_block}: {detail}; run `stere check`")]
    BadRow { segment: u64, row_block: u32, detail: String },
    /// A record whose bytes match their checksums on no device.
    #[error(
        "record {tag} is damaged at {offset} for {length} bytes on every device that should hold it; restore it from a backup"
    )]
    Damaged { tag: u64, offset: u32, length: u32 },
    /// Only tertiary media have it.
    #[error("segment {segment} is released: only tertiary media have it; recall it")]
    Released { segment: u64 },
    /// From the layer below.
    #[error(transparent)]
    Stripe(StripeError),
}

impl From<StripeError> for LogError {
    fn from(error: StripeError) -> Self {
        match error {
            StripeError::NoSpace { .. } => LogError::NoSpace,
            error => LogError::Stripe(error),
        }
    }
}
