//! Requests and answers of a session: of fixed length, little-endian, without data. Data lies in memory that both have.
//!
//! Invariants: what `decode` gives can be used without a further check of sums (`offset + length` and `place + length` do not
//! overflow, `length` is bounded); what it was given and what it gives back encoded is the same.

#[cfg(test)]
mod tests;

/// This version of what is said; another one is refused.
pub const VERSION: u32 = 1;
/// Bytes of content in one request at most.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Bytes of memory that a session can have.
pub const MEMORY_BYTES_MAX: u64 = 16 << 20;
/// The text of an error takes so many bytes from its request's place on, at most, and no more than there are.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Requests of a session that may be under way; who sends more is sent away.
pub const IN_FLIGHT_MAX: usize = 64;

pub const REQUEST_BYTES: usize = 32;
pub const REPLY_BYTES: usize = 24;
const ALONE: u32 = 1;
const _: () = assert!(REQUEST_BYTES == 4 + 4 + 8 + 8 + 4 + 4);
const _: () = assert!(REPLY_BYTES == 4 + 4 + 8 + 4 + 4);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From the file to the memory.
    Read,
    /// From the memory to the file.
    Write,
    /// Makes the file durable.
    Sync,
    /// How long the file is.
    Size,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub kind: Kind,
    /// Told again in the answer.
    pub tag: u32,
    /// In the file.
    pub offset: u64,
    /// In the memory. The text of an error goes there too, whatever the length.
    pub place: u64,
    pub length: u32,
    /// The client has no other request under way: so nobody need listen for the next one meanwhile. A hint; if it is wrong, the
    /// client's other requests wait.
    pub is_alone: bool,
}

/// One answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    pub tag: u32,
    /// 0: done.
    pub errno: u32,
    /// Bytes read or written, or the size.
    pub value: u64,
    /// Of an error, how many bytes of text lie at the request's place.
    pub text_bytes: u32,
}

/// Why bytes are no request or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("there is no request of kind {0}")]
    Kind(u32),
    #[error("reserved bytes are not zero")]
    Reserved,
    #[error("a request has at most {REQUEST_BYTES_MAX} bytes, not {0}")]
    TooLong(u32),
    #[error("a range ends behind the largest offset")]
    Range,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Request {
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let kind: u32 = match self.kind {
            Kind::Read => 1,
            Kind::Write => 2,
            Kind::Sync => 3,
            Kind::Size => 4,
        };
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.tag.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.place.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_le_bytes());
        bytes[28..32].copy_from_slice(&(u32::from(self.is_alone) * ALONE).to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Request, FrameError> {
        let kind = match u32_at(bytes, 0) {
            1 => Kind::Read,
            2 => Kind::Write,
            3 => Kind::Sync,
            4 => Kind::Size,
            other => return Err(FrameError::Kind(other)),
        };
        let (tag, offset, place, length) = (u32_at(bytes, 4), u64_at(bytes, 8), u64_at(bytes, 16), u32_at(bytes, 24));
        let flags = u32_at(bytes, 28);
        if flags & !ALONE != 0 {
            return Err(FrameError::Reserved);
        }
        let is_alone = flags & ALONE != 0;
        if length > REQUEST_BYTES_MAX {
            return Err(FrameError::TooLong(length));
        }
        let fits = |start: u64| start.checked_add(u64::from(length)).is_some_and(|end| i64::try_from(end).is_ok());
        if !fits(offset) || !fits(place) {
            return Err(FrameError::Range);
        }
        Ok(Request { kind, tag, offset, place, length, is_alone })
    }

    /// Whether all that it names lies in a memory of so many bytes.
    pub fn is_within(&self, memory_bytes: u64) -> bool {
        self.place.checked_add(u64::from(self.length)).is_some_and(|end| end <= memory_bytes)
    }
}

impl Reply {
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[0..4].copy_from_slice(&self.tag.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.errno.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.text_bytes.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; REPLY_BYTES]) -> Result<Reply, FrameError> {
        if u32_at(bytes, 20) != 0 {
            return Err(FrameError::Reserved);
        }
        let (tag, errno, value, text_bytes) = (u32_at(bytes, 0), u32_at(bytes, 4), u64_at(bytes, 8), u32_at(bytes, 16));
        Ok(Reply { tag, errno, value, text_bytes })
    }
}
