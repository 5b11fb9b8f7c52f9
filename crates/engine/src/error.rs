//! What can go wrong in the engine and what is built on it, in words for the user; errno is chosen only at the FUSE boundary.

use stere_journal::JournalError;
use stere_log::LogError;
use stere_recall::{ReadError, Refusal};
use thiserror::Error;

/// Errors of the engine. `WouldBlock` and `NodeNotInMemory` are control flow: callers repeat the request where it may wait.
#[derive(Debug, Error)]
pub enum Error {
    /// The request needs a device or a busy lock, and the caller asked not to wait.
    #[error("the request has to wait for a device; repeat it on a thread that may wait")]
    WouldBlock,
    /// A tree node is not in memory: the enclosing view or update fetches it and runs the closure again.
    #[error("a tree node is not in memory")]
    NodeNotInMemory,
    /// No room for new data.
    #[error("no space left in the pool: delete or move files, or add a device with `stere device add`")]
    NoSpace,
    /// The layer above takes no more of this for somebody.
    #[error("the quota of {holder} is used up: delete or move files, or raise it with `stere quota set`")]
    OverLimit { holder: String },
    /// Content that cannot be read correctly from any device.
    #[error(
        "blob {blob} is damaged at offset {offset} for {length} bytes and no good copy is left; restore the file from a backup, then run `stere check`"
    )]
    Damaged { blob: u64, offset: u32, length: u32 },
    /// The blob map has no such blob.
    #[error("blob {blob} does not exist although a file names it; unmount and run `stere check`")]
    UnknownBlob { blob: u64 },
    /// A metadata node cannot be read from any copy.
    #[error("a metadata node is damaged on every copy ({detail}); unmount and run `stere check`")]
    DamagedNode { detail: String },
    /// A value in the tree does not decode.
    #[error("metadata of {what} is not valid ({detail}); unmount and run `stere check`")]
    BadValue { what: &'static str, detail: String },
    /// Writing failed in a way that would break durability; the pool only reads until it is mounted again.
    #[error(
        "the pool stopped writing after an error ({cause}); what was synced before is safe: check the devices, then mount it again"
    )]
    ReadOnly { cause: String },
    /// Somebody changes what was opened for reading.
    #[error("the pool is mounted for reading only; to change something, unmount it and mount it without `ro`")]
    OnlyRead,
    /// The journal is damaged in the middle on every copy.
    #[error(
        "the journal is damaged at record {sequence} on every device that holds it, although later records were durable; nothing was changed: attach missing devices, or see `stere check`"
    )]
    JournalDamaged { sequence: u64 },
    /// One update is larger than a journal record may be.
    #[error(
        "one update of {bytes} bytes is larger than the journal takes ({max}); this is a bug in stere, please report it"
    )]
    UpdateTooLarge { bytes: usize, max: usize },
    /// No such device in the table.
    #[error("the pool knows no device number {}; `stere device list` tells which there are", *index + 1)]
    UnknownDevice { index: stere_format::DeviceIndex },
    /// Data that lies nowhere else.
    #[error(
        "without device number {} {live_bytes} bytes in {segments} segments could not be read; bring other devices back, let the pool repair itself, or evacuate the device first", *index + 1
    )]
    WouldLose { index: stere_format::DeviceIndex, segments: u64, live_bytes: u64 },
    /// A device that is to be removed still holds chunks.
    #[error("device number {} still holds {chunks} chunks; evacuate it first", *index + 1)]
    NotEmpty { index: stere_format::DeviceIndex, chunks: u64 },
    /// On media only, and not to be had now.
    #[error("{why}")]
    Elsewhere { why: String, refusal: Refusal },
    /// Chunks that shall move or be filled, and that their devices do not give, nor others in their place.
    #[error("segment {segment}: what lies on a failing device cannot be read from any other, so it stays there")]
    Unreadable { segment: u64, chunks: u32 },
    /// The shared log gave the pool to another owner, or is not what it was.
    #[error(transparent)]
    SharedLog(JournalError),
    /// From the layer below.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Anything else, said in words.
    #[error("{0}")]
    Pool(String),
}

impl Error {
    /// Whether another owner has the pool.
    pub fn is_replaced(&self) -> bool {
        matches!(self, Error::SharedLog(JournalError::Replaced))
    }
}

impl From<stere_tree::TreeError> for Error {
    fn from(error: stere_tree::TreeError) -> Self {
        Error::DamagedNode { detail: error.to_string() }
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::WouldBlock => Error::WouldBlock,
            ReadError::Damaged { blob, offset, length } => Error::Damaged { blob, offset, length },
            ReadError::Elsewhere { why, refusal } => Error::Elsewhere { why, refusal },
            ReadError::Log(error) => Error::Log(error),
        }
    }
}

impl From<JournalError> for Error {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::NoMirror => Error::Pool(error.to_string()),
            JournalError::UpdateTooLarge { bytes, max } => Error::UpdateTooLarge { bytes, max },
            JournalError::Damaged { sequence } => Error::JournalDamaged { sequence },
            JournalError::Replaced | JournalError::LogDamaged { .. } | JournalError::LogAway { .. } => {
                Error::SharedLog(error)
            }
            JournalError::BadRecord { detail } => Error::BadValue { what: "the journal", detail },
        }
    }
}

impl Clone for Error {
    fn clone(&self) -> Self {
        match self {
            Error::WouldBlock => Error::WouldBlock,
            Error::NodeNotInMemory => Error::NodeNotInMemory,
            Error::NoSpace => Error::NoSpace,
            Error::OverLimit { holder } => Error::OverLimit { holder: holder.clone() },
            Error::Damaged { blob, offset, length } => Error::Damaged { blob: *blob, offset: *offset, length: *length },
            Error::UnknownBlob { blob } => Error::UnknownBlob { blob: *blob },
            Error::DamagedNode { detail } => Error::DamagedNode { detail: detail.clone() },
            Error::BadValue { what, detail } => Error::BadValue { what, detail: detail.clone() },
            Error::ReadOnly { cause } => Error::ReadOnly { cause: cause.clone() },
            Error::OnlyRead => Error::OnlyRead,
            Error::JournalDamaged { sequence } => Error::JournalDamaged { sequence: *sequence },
            Error::UpdateTooLarge { bytes, max } => Error::UpdateTooLarge { bytes: *bytes, max: *max },
            Error::UnknownDevice { index } => Error::UnknownDevice { index: *index },
            Error::WouldLose { index, segments, live_bytes } => {
                Error::WouldLose { index: *index, segments: *segments, live_bytes: *live_bytes }
            }
            Error::NotEmpty { index, chunks } => Error::NotEmpty { index: *index, chunks: *chunks },
            Error::Elsewhere { why, refusal } => Error::Elsewhere { why: why.clone(), refusal: *refusal },
            Error::Unreadable { segment, chunks } => Error::Unreadable { segment: *segment, chunks: *chunks },
            Error::SharedLog(error) => Error::SharedLog(error.clone()),
            Error::Log(error) => Error::Pool(error.to_string()),
            Error::Pool(text) => Error::Pool(text.clone()),
        }
    }
}
