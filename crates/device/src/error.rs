//! Everything that can go wrong on a device. Clonable, because one failed write may concern several waiters.

use std::sync::Arc;

/// What was being done when a device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Open,
    Create,
    Read,
    Write,
    Flush,
    Discard,
    Probe,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Operation::Open => "open",
            Operation::Create => "create",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::Probe => "probe",
        })
    }
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "{device}: {operation} at byte {offset} failed: {source}; check the cable and the drive's own health report"
    )]
    Io { device: String, operation: Operation, offset: u64, source: Arc<std::io::Error> },

    #[error(
        "{device}: {operation} of {length} bytes at byte {offset} lies outside its {size_bytes} bytes; the pool needs the device at its full size"
    )]
    OutOfRange { device: String, operation: Operation, offset: u64, length: u64, size_bytes: u64 },

    #[error(
        "{device}: {operation} of {length} bytes at byte {offset} is not aligned to {block_bytes} bytes; this is a bug of the caller, please report it"
    )]
    Unaligned { device: String, operation: Operation, offset: u64, length: u64, block_bytes: u32 },

    #[error("{device} is in use by another process or mounted; stop that use first (`stere umount`, `fuser {device}`)")]
    Busy { device: String },

    #[error(
        "{device} takes no more writes since a flush failed ({reason}); replace it, or reopen it after its cause is mended"
    )]
    FlushFailed { device: String, reason: String },

    #[error("{device} is not there (offline); bring it back or let the pool repair without it")]
    Absent { device: String },

    #[error(
        "{device} does not answer; writing goes on without it, and it is caught up when it answers again: look at its cable, its power, or the machine it is on"
    )]
    Silent { device: String },

    #[error(
        "{device} cannot be reached ({why}); see that its machine and its server run and that the network leads there"
    )]
    Unreachable { device: String, why: String },

    #[error("{device} cannot be used: {why}")]
    Unusable { device: String, why: String },

    #[error("{device} is neither a regular file nor a block device; name a file, a disk or a partition")]
    UnsuitableKind { device: String },

    #[error("{device} was opened to be read only; open it for writing first")]
    ReadOnly { device: String },

    #[error("{device} takes many times longer than usual; the bytes were wanted from elsewhere")]
    TooSlow { device: String },

    #[error("the pool is another machine's now, so nothing is written to its devices from here: {why}")]
    Lost { why: String },

    #[error(
        "{device}: the node takes writes only from a newer owner, so another machine has the pool; unmount it here, and use it there"
    )]
    Fenced { device: String },

    #[error("a queued write was dropped before it was carried out; treat it as not written")]
    Abandoned,
}

impl DeviceError {
    pub(crate) fn io(device: &str, operation: Operation, offset: u64, source: impl Into<std::io::Error>) -> Self {
        DeviceError::Io { device: device.to_owned(), operation, offset, source: Arc::new(source.into()) }
    }

    /// Whether the device is away, silent, or another machine's: that says nothing of its health.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            DeviceError::Absent { .. }
                | DeviceError::Silent { .. }
                | DeviceError::Lost { .. }
                | DeviceError::Fenced { .. }
        )
    }

    /// The operating system's error number where there is one.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            DeviceError::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
