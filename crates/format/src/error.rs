//! The one error of this crate: why bytes read from media were not believed. Every message says what was found and
//! what the reader of the message can do.

/// Why a structure could not be decoded (or, for the last variants, could not be laid out).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{structure} is cut short: needs {need} bytes, has {have}; read another copy of it")]
    Truncated { structure: &'static str, need: usize, have: usize },
    #[error("{structure} has {extra} bytes more than it should; read another copy of it")]
    TrailingBytes { structure: &'static str, extra: usize },
    #[error("{structure} does not start with its magic number; this place holds something else or was never written")]
    BadMagic { structure: &'static str },
    #[error("{structure} has format version {found}, this program knows up to {supported}; use a newer stere")]
    UnsupportedVersion { structure: &'static str, found: u16, supported: u16 },
    #[error("{structure} has checksum {computed:#010x}, expected {stored:#010x}; read another copy of it")]
    Checksum { structure: &'static str, stored: u32, computed: u32 },
    #[error("{structure} has an impossible {field} ({value}); read another copy of it or run `stere check`")]
    OutOfRange { structure: &'static str, field: &'static str, value: u64 },
    #[error("{structure} has a {field} that is not UTF-8; read another copy of it or run `stere check`")]
    NotText { structure: &'static str, field: &'static str },
    #[error(
        "{structure} has a {field} that stere never writes, which is not used; it was changed by something else: read another copy of it or run `stere check`"
    )]
    NotPlain { structure: &'static str, field: &'static str },
    #[error("{structure} belongs to pool {found}, not to {expected}; check which devices were given")]
    ForeignPool { structure: &'static str, expected: crate::PoolId, found: crate::PoolId },
    #[error("{structure} needs {need} bytes but has room for {room}; use fewer metadata copies or larger chunks")]
    DoesNotFit { structure: &'static str, need: usize, room: usize },
    #[error("a device of {size_bytes} bytes is too small; it needs at least {size_bytes_min}")]
    DeviceTooSmall { size_bytes: u64, size_bytes_min: u64 },
    #[error("a chunk size of {chunk_bytes} bytes is not possible; choose a power of two from 1 MiB to 16 MiB")]
    ChunkSize { chunk_bytes: u32 },
}
