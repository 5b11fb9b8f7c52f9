//! NBD as a server speaks it: what it says, and what it believes of what a client sends.
//!
//! Invariant: no length that a client says is believed before it is compared with a bound; names are told as they were sent, and judged by whoever
//! has the exports. Read next: `crates/node`, which serves.

use super::extension::{self, Provide};
use super::{
    FIXED_NEWSTYLE, Flags, GREETING, GREETING_BYTES, INFORMATION, NO_ZEROES, OPTION, OPTION_REPLY, REQUEST,
    REQUEST_BYTES, Reader, SIMPLE_BYTES, SIMPLE_REPLY, TEXT_BYTES_MAX, WireError, broken,
};

/// The longest data of an option: a name, and what is asked about it.
const OPTION_BYTES_MAX: usize = TEXT_BYTES_MAX + 256;
pub const OPTION_HEAD_BYTES: usize = 16;
/// Zeros that end an answer in the oldest way to ask for an export.
pub const PADDING_BYTES: usize = 124;

pub const UNSUPPORTED: u32 = super::REFUSED + 1;
pub const FORBIDDEN: u32 = super::REFUSED + 2;
pub const INVALID: u32 = super::REFUSED + 3;
pub const UNKNOWN: u32 = super::REFUSED + 6;
/// An answer that names an export.
pub const LISTED: u32 = 2;

/// What an export of ours can do: flush, forced access, trim, zeros, and one flush for all connections.
pub const FLAGS: Flags = Flags(1 | 4 | 8 | 32 | 64 | 256);

/// Flag of a command: what it writes is durable before the answer.
pub const FORCED_ACCESS: u16 = 1;
/// Flag of a command: zeros must take their room.
pub const NO_HOLE: u16 = 2;

pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&GREETING.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION.to_be_bytes());
    bytes[16..].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    bytes
}

/// Whether the client wants no padding.
pub fn decode_client_flags(bytes: [u8; 4]) -> Result<bool, WireError> {
    let flags = u32::from_be_bytes(bytes);
    let (newstyle, no_zeroes) = (u32::from(FIXED_NEWSTYLE), u32::from(NO_ZEROES));
    if flags & !(newstyle | no_zeroes) != 0 {
        return broken(format!("flags {flags:#x}, which were not offered"));
    }
    if flags & newstyle == 0 {
        return broken("a client that cannot negotiate");
    }
    Ok(flags & no_zeroes != 0)
}

/// The head of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHead {
    pub kind: u32,
    pub length: usize,
}

impl OptionHead {
    pub fn decode(bytes: &[u8; OPTION_HEAD_BYTES]) -> Result<OptionHead, WireError> {
        let mut reader = Reader(bytes);
        if reader.u64()? != OPTION {
            return broken("an option that begins otherwise");
        }
        let (kind, length) = (reader.u32()?, reader.u32()? as usize);
        if length > OPTION_BYTES_MAX {
            return broken(format!("an option of {length} bytes"));
        }
        Ok(OptionHead { kind, length })
    }
}

/// An option, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The oldest way to ask for an export.
    ExportName(String),
    Abort,
    List,
    Info(String),
    Go(String),
    Hello {
        version: u32,
    },
    Provide(Provide),
    /// One that is not known here.
    Other,
}

impl Asked {
    pub fn decode(kind: u32, data: &[u8]) -> Result<Asked, WireError> {
        Ok(match kind {
            1 => Asked::ExportName(text(data)?),
            2 => Asked::Abort,
            3 => {
                Reader(data).end()?;
                Asked::List
            }
            6 => Asked::Info(decode_wanted(data)?),
            7 => Asked::Go(decode_wanted(data)?),
            extension::HELLO => Asked::Hello { version: extension::decode_version(data)? },
            extension::PROVIDE => Asked::Provide(Provide::decode(data)?),
            _ => Asked::Other,
        })
    }
}

fn text(bytes: &[u8]) -> Result<String, WireError> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= TEXT_BYTES_MAX => Ok(text.to_owned()),
        _ => broken("the name of an export is no text, or longer than 4096 bytes"),
    }
}

/// The export that is asked for. All is told of it, whatever the client wants to know.
fn decode_wanted(data: &[u8]) -> Result<String, WireError> {
    let mut reader = Reader(data);
    let length = reader.u32()? as usize;
    let name = text(reader.take(length)?)?;
    let count = usize::from(reader.u16()?);
    reader.take(count * 2)?;
    reader.end()?;
    Ok(name)
}

/// An answer to an option.
pub fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    assert!(data.len() <= TEXT_BYTES_MAX, "an answer of {} bytes is too long", data.len());
    let length = data.len() as u32;
    let head = [&OPTION_REPLY.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes(), &length.to_be_bytes()];
    [&head.concat()[..], data].concat()
}

/// What is told of an export: its size, and the sizes of requests.
pub fn option_facts(option: u32, size_bytes: u64, payload_bytes_max: u32) -> Vec<u8> {
    let export = [&0u16.to_be_bytes()[..], &size_bytes.to_be_bytes(), &FLAGS.0.to_be_bytes()].concat();
    let blocks = [1, 4096, payload_bytes_max].map(u32::to_be_bytes).concat();
    let blocks = [&3u16.to_be_bytes()[..], &blocks].concat();
    [option_reply(option, INFORMATION, &export), option_reply(option, INFORMATION, &blocks)].concat()
}

/// The answer to the oldest way to ask.
pub fn export_name_reply(size_bytes: u64, leaves_out_padding: bool) -> Vec<u8> {
    let padding = if leaves_out_padding { 0 } else { PADDING_BYTES };
    [&size_bytes.to_be_bytes()[..], &FLAGS.0.to_be_bytes(), &vec![0; padding]].concat()
}

/// What may be asked of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    Fence,
    Tell,
    /// One that is not known here; it has no payload.
    Other(u16),
}

/// The head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub order: Order,
    pub flags: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

impl Request {
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Request, WireError> {
        let mut reader = Reader(bytes);
        if reader.u32()? != REQUEST {
            return broken("a request that begins otherwise");
        }
        let flags = reader.u16()?;
        let order = match reader.u16()? {
            0 => Order::Read,
            1 => Order::Write,
            2 => Order::Disconnect,
            3 => Order::Flush,
            4 => Order::Trim,
            6 => Order::WriteZeroes,
            extension::FENCE => Order::Fence,
            extension::TELL => Order::Tell,
            other => Order::Other(other),
        };
        let (cookie, offset, length) = (reader.u64()?, reader.u64()?, reader.u32()?);
        Ok(Request { order, flags, cookie, offset, length })
    }

    /// Whether all of it lies in an export of this size.
    pub fn is_within(&self, size_bytes: u64) -> bool {
        self.offset.checked_add(self.length.into()).is_some_and(|end| end <= size_bytes)
    }
}

/// The head of an answer; a read's bytes come behind it.
pub fn simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_BYTES] {
    let mut bytes = [0; SIMPLE_BYTES];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// As the protocol numbers it (proto.md, "Error values"): what it has no number for is EIO.
pub fn error_number(error: &std::io::Error) -> u32 {
    const EDQUOT: i32 = 122;
    const EFBIG: i32 = 27;
    match error.raw_os_error() {
        Some(EDQUOT | EFBIG) => 28,
        // The one that says that a newer owner writes.
        Some(1) => 5,
        Some(number) => super::os_error(number.unsigned_abs()) as u32,
        None => 5,
    }
}

/// Any bytes to every decoder, for fuzzing.
pub fn fuzz(bytes: &[u8]) {
    if let Some(flags) = bytes.first_chunk() {
        let _flags = decode_client_flags(*flags);
    }
    if let Some(head) = bytes.first_chunk()
        && let Ok(head) = OptionHead::decode(head)
    {
        assert!(head.length <= OPTION_BYTES_MAX, "an option is bounded");
        let _asked = Asked::decode(head.kind, &bytes[OPTION_HEAD_BYTES..]);
    }
    if let Some(head) = bytes.first_chunk()
        && let Ok(request) = Request::decode(head)
    {
        assert!(!request.is_within(1 << 20) || request.offset <= 1 << 20, "a request is within its export");
    }
}

#[cfg(test)]
mod tests;
