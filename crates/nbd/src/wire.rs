//! NBD as bytes, without I/O: what a client sends, and what it believes of what a server answers. `server.rs` is the other side, and
//! `extension.rs` what stere nodes and their clients have besides.
//!
//! All numbers are big-endian, as the protocol has them. Invariants: no length that a server says is believed before it is compared with a
//! bound; what does not fit is an error, never a panic. Read next: `session.rs`, which speaks it.
//!
//! Source: doc/proto.md of the NBD project, sections "Newstyle negotiation", "Transmission" and "Structured reply magics".

pub mod extension;
pub mod server;

/// How many bytes one request may move, where the server says nothing else (proto.md, "Block size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// The longest text that is read of a server.
pub const TEXT_BYTES_MAX: usize = 4096;

const GREETING: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const STRUCTURED_REPLY: u32 = 0x668e_33ef;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the server does not speak NBD ({0}); look at the port")]
    NotNbd(&'static str),
    #[error("the other side breaks the protocol: {0}")]
    Broken(String),
}

fn broken<T>(why: impl Into<String>) -> Result<T, WireError> {
    Err(WireError::Broken(why.into()))
}

/// Bytes that are taken from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => broken(format!("{} bytes where {count} were to come", self.0.len())),
        }
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], WireError> {
        let bytes = self.take(COUNT)?;
        bytes.try_into().or_else(|_| broken("a field is cut"))
    }

    /// There is nothing more.
    fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { broken(format!("{} bytes more than there should be", self.0.len())) }
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Bytes that a server greets with.
pub const GREETING_BYTES: usize = 18;

/// What a client answers a greeting with.
pub fn answer_greeting(greeting: &[u8; GREETING_BYTES]) -> Result<[u8; 4], WireError> {
    let mut reader = Reader(greeting);
    if reader.u64()? != GREETING {
        return Err(WireError::NotNbd("it greets otherwise"));
    }
    if reader.u64()? != OPTION {
        return Err(WireError::NotNbd("it speaks the old handshake only, which nothing has needed since 2011"));
    }
    let flags = reader.u16()?;
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(WireError::NotNbd("it cannot negotiate"));
    }
    Ok(u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes())
}

/// What a client asks for before it reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionKind {
    Abort = 2,
    StartTls = 5,
    Go = 7,
    StructuredReply = 8,
    /// Of stere's own: see `extension.rs`.
    Hello = extension::HELLO,
    Provide = extension::PROVIDE,
}

pub fn option(kind: OptionKind, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("options are short");
    [&OPTION.to_be_bytes()[..], &(kind as u32).to_be_bytes(), &length.to_be_bytes(), data].concat()
}

/// What asks for an export, and for the sizes of its blocks.
pub fn go(export: &str) -> Vec<u8> {
    const BLOCK_SIZE: u16 = 3;
    let length = u32::try_from(export.len()).expect("an export's name is short");
    let wanted = [&1u16.to_be_bytes()[..], &BLOCK_SIZE.to_be_bytes()].concat();
    option(OptionKind::Go, &[&length.to_be_bytes()[..], export.as_bytes(), &wanted].concat())
}

/// The head of an answer to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReply {
    pub kind: u32,
    pub length: usize,
}

pub const OPTION_REPLY_BYTES: usize = 20;
pub const ACKNOWLEDGED: u32 = 1;
pub const INFORMATION: u32 = 3;
const REFUSED: u32 = 1 << 31;
pub const TLS_REQUIRED: u32 = REFUSED + 5;

impl OptionReply {
    pub fn decode(bytes: &[u8; OPTION_REPLY_BYTES], asked: OptionKind) -> Result<OptionReply, WireError> {
        let mut reader = Reader(bytes);
        if reader.u64()? != OPTION_REPLY {
            return broken("an answer that begins otherwise");
        }
        let option = reader.u32()?;
        if option != asked as u32 {
            return broken(format!("an answer to option {option}, which was not asked"));
        }
        let (kind, length) = (reader.u32()?, reader.u32()? as usize);
        if length > TEXT_BYTES_MAX {
            return broken(format!("an answer of {length} bytes"));
        }
        Ok(OptionReply { kind, length })
    }

    /// Why an option was refused, if it was. `text` is what came with it.
    pub fn refusal(&self, text: &[u8]) -> Option<String> {
        let reason = match self.kind.checked_sub(REFUSED)? {
            1 => "it does not know the option",
            2 => "it does not allow it",
            3 => "it calls the option invalid",
            4 => "it was built without it",
            5 => "it wants TLS first",
            6 => "it has no such export",
            7 => "it is shutting down",
            8 => "it wants blocks of its own size",
            9 => "it calls the option too large",
            _ => "it gives a reason that is not known here",
        };
        let said = String::from_utf8_lossy(text);
        let said: String = said.chars().filter(|one| !one.is_control()).take(200).collect();
        Some(if said.is_empty() { reason.to_owned() } else { format!("{reason} ({said})") })
    }
}

/// What a server tells of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Information {
    Export {
        size_bytes: u64,
        flags: Flags,
    },
    BlockSize {
        minimum: u32,
        preferred: u32,
        maximum: u32,
    },
    /// Something that was not asked for.
    Other,
}

impl Information {
    pub fn decode(bytes: &[u8]) -> Result<Information, WireError> {
        let mut reader = Reader(bytes);
        match reader.u16()? {
            0 => Ok(Information::Export { size_bytes: reader.u64()?, flags: Flags(reader.u16()?) }),
            3 => {
                let (minimum, preferred, maximum) = (reader.u32()?, reader.u32()?, reader.u32()?);
                let is_right = minimum.is_power_of_two() && preferred.is_power_of_two();
                if !is_right || maximum < minimum {
                    return broken(format!("blocks of {minimum}, {preferred} and {maximum} bytes"));
                }
                Ok(Information::BlockSize { minimum, preferred, maximum })
            }
            _ => Ok(Information::Other),
        }
    }
}

/// What an export can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    pub fn is_read_only(self) -> bool {
        self.0 & 2 != 0
    }

    pub fn has_flush(self) -> bool {
        self.0 & 4 != 0
    }

    pub fn is_rotational(self) -> bool {
        self.0 & 16 != 0
    }

    pub fn has_trim(self) -> bool {
        self.0 & 32 != 0
    }

    /// A flush on one connection covers what was written on all.
    pub fn has_several_connections(self) -> bool {
        self.0 & 256 != 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    /// Of stere's own: see `extension.rs`.
    Fence = extension::FENCE,
    /// The same.
    Tell = extension::TELL,
}

pub const REQUEST_BYTES: usize = 28;

/// The head of a request; `cookie` comes back with its answer.
pub fn request(command: Command, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[6..8].copy_from_slice(&(command as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The head of an answer. A simple one is `SIMPLE_BYTES` long, and a structured one four more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Simple { error: u32, cookie: u64 },
    Structured { is_last: bool, kind: ChunkKind, cookie: u64, length: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    Nothing,
    Data,
    Hole,
    Error { has_offset: bool },
}

pub const SIMPLE_BYTES: usize = 16;
pub const STRUCTURED_BYTES: usize = 20;
/// What stands before the bytes of a chunk of data.
pub const DATA_HEAD_BYTES: usize = 8;
pub const HOLE_BYTES: usize = 12;

impl Reply {
    /// Whether the four bytes that an answer begins with tell of a structured one.
    pub fn is_structured(start: [u8; 4]) -> Result<bool, WireError> {
        match u32::from_be_bytes(start) {
            SIMPLE_REPLY => Ok(false),
            STRUCTURED_REPLY => Ok(true),
            other => broken(format!("an answer that begins with {other:#x}")),
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Reply, WireError> {
        let mut reader = Reader(bytes);
        if !Reply::is_structured(reader.array()?)? {
            return Ok(Reply::Simple { error: reader.u32()?, cookie: reader.u64()? });
        }
        let (flags, kind, cookie, length) = (reader.u16()?, reader.u16()?, reader.u64()?, reader.u32()?);
        let is_last = flags & 1 != 0;
        let (kind, is_right) = match kind {
            0 => (ChunkKind::Nothing, is_last && length == 0),
            1 => (ChunkKind::Data, length as usize > DATA_HEAD_BYTES),
            2 => (ChunkKind::Hole, length as usize == HOLE_BYTES),
            0x8001 => (ChunkKind::Error { has_offset: false }, (6..=6 + TEXT_BYTES_MAX).contains(&(length as usize))),
            0x8002 => (ChunkKind::Error { has_offset: true }, (14..=14 + TEXT_BYTES_MAX).contains(&(length as usize))),
            other => return broken(format!("a chunk of kind {other}, which nobody asked for")),
        };
        if !is_right {
            return broken(format!("a chunk {kind:?} of {length} bytes"));
        }
        Ok(Reply::Structured { is_last, kind, cookie, length })
    }
}

/// Where the bytes of a chunk belong, from the beginning of what was asked for.
pub fn decode_place(
    head: &[u8; DATA_HEAD_BYTES],
    asked_at: u64,
    asked: usize,
    length: usize,
) -> Result<usize, WireError> {
    let offset = u64::from_be_bytes(*head);
    match offset.checked_sub(asked_at).and_then(|at| usize::try_from(at).ok()) {
        Some(at) if at.checked_add(length).is_some_and(|end| end <= asked) => Ok(at),
        _ => broken(format!("{length} bytes at {offset}, where {asked} at {asked_at} were asked for")),
    }
}

/// Where a hole begins, and its length; as `decode_place`.
pub fn decode_hole(bytes: &[u8; HOLE_BYTES], asked_at: u64, asked: usize) -> Result<(usize, usize), WireError> {
    let mut reader = Reader(bytes);
    let head = reader.array()?;
    let length = reader.u32()? as usize;
    if length == 0 {
        return broken("a hole of no bytes");
    }
    Ok((decode_place(&head, asked_at, asked, length)?, length))
}

/// The error number of a chunk that tells of one.
pub fn decode_error(bytes: &[u8]) -> Result<u32, WireError> {
    let mut reader = Reader(bytes);
    let error = reader.u32()?;
    let text = usize::from(reader.u16()?);
    reader.take(text)?;
    if error == 0 {
        return broken("an error that is none");
    }
    Ok(error)
}

/// As the operating system numbers it: the protocol has its own few.
pub fn os_error(error: u32) -> i32 {
    // From proto.md, "Error values"; these have the numbers of Linux.
    const KNOWN: [u32; 9] = [1, 5, 12, 22, 28, 75, 95, 108, 30];
    if KNOWN.contains(&error) { error as i32 } else { 5 }
}

/// Any bytes to every decoder, for fuzzing.
pub fn fuzz(bytes: &[u8]) {
    if let Some(greeting) = bytes.first_chunk() {
        let _answer = answer_greeting(greeting);
    }
    if let Some(head) = bytes.first_chunk()
        && let Ok(reply) = OptionReply::decode(head, OptionKind::Go)
    {
        let _why = reply.refusal(&bytes[OPTION_REPLY_BYTES..]);
    }
    let _information = Information::decode(bytes);
    let _reply = Reply::decode(bytes);
    let _error = decode_error(bytes);
    server::fuzz(bytes);
    extension::fuzz(bytes);
    if let Some(hole) = bytes.first_chunk()
        && let Ok((at, length)) = decode_hole(hole, 4096, 8192)
    {
        assert!(at + length <= 8192, "a hole is within what was asked for");
    }
}

#[cfg(test)]
mod tests;
