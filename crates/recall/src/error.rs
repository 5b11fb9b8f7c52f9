//! Why a read ends without its bytes, as the engine tells its callers in its own words (`From<ReadError>` there).
//!
//! Invariant: `Damaged` is said only when every place that may have the bytes was asked; where one could not be, the read
//! is refused. Read next: `recall.rs`.

use stere_log::LogError;

/// Why bytes were not fetched, to be told apart by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No volume that has them can be reached.
    Away,
    /// They may be had, but not while the caller waits.
    Later,
    /// Recalls are refused.
    Denied,
}

/// Why bytes of a segment could not be had from media.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecallError {
    /// Every volume that can be reached lacks them or has wrong ones.
    #[error("{0}")]
    Damaged(String),
    /// They may be right, but cannot be had now.
    #[error("{1}")]
    Refused(Refusal, String),
}

/// Why content of a blob could not be read from anywhere.
#[derive(Debug)]
pub enum ReadError {
    /// The caller may not wait for a device.
    WouldBlock,
    /// No device and no medium gives it.
    Damaged {
        blob: u64,
        offset: u32,
        length: u32,
    },
    /// It is on media only, and not to be had now.
    Elsewhere {
        why: String,
        refusal: Refusal,
    },
    Log(LogError),
}
