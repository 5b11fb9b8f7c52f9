//! Frames: a head of eight bytes (length of the body, kind), and the body.
//!
//! Invariants: a body is no longer than its kind allows, which the head alone tells, so nobody makes room for more; a frame that is
//! decoded and encoded gives the same bytes. Read next: `greeting.rs` (the first frames of a connection).

use crate::WINDOW_BYTES;
use crate::greeting::{Challenge, Greeting, Hello, Refusal, Welcome};
use crate::reader::Reader;

#[cfg(test)]
mod tests;

pub const HEAD_BYTES: usize = 8;
/// A request of a kernel with its data: a write of 1 MiB, or names and values.
pub const MESSAGE_BYTES_MAX: usize = (1 << 20) + (128 << 10);
/// The shortest request of a kernel: its header.
pub const MESSAGE_BYTES_MIN: usize = 40;
/// The longest answer to one.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
pub const NAME_BYTES_MAX: usize = 1024;
/// A piece of a conversation of commands.
pub const PIECE_BYTES_MAX: usize = 64 << 10;
/// Numbers of errors are below this, as Linux has them.
pub const ERRNO_END: u16 = 512;

const REQUEST_HEAD_BYTES: usize = 24;
const REDO_HEAD_BYTES: usize = 32;
const REPLY_HEAD_BYTES: usize = 32;
const ENTRY_HEAD_BYTES: usize = 16;
const REPEATED: u8 = 1;
/// What is to be read may be told as a map.
const TAKES_MAP: u8 = 2;
const HAS_KEYS: u8 = 4;
/// Content is told as a map.
const MAP: u8 = 1;
/// What is told of names and attributes may be believed, or more of what is written gathered, until it is recalled.
const LEASED: u8 = 2;
/// What was done is not committed yet.
const UNCOMMITTED: u8 = 4;
const NANOSECONDS_END: u32 = 1_000_000_000;

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("there is no frame of kind {0}")]
    Kind(u8),
    #[error("a frame ends before all of it was said")]
    Short,
    #[error("a frame has bytes behind its end")]
    Behind,
    #[error("a frame of {0} bytes is longer than its kind allows")]
    TooLong(usize),
    #[error("reserved bytes are not zero")]
    Reserved,
    #[error("a greeting begins otherwise")]
    Magic,
    #[error("a value is none of those that are known")]
    Value,
}

/// What the kernel of a client is to forget, because somebody else changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Attributes, and content from `offset` for `length` bytes (0: to the end; a negative offset: attributes only). What this client has
    /// written there with a lower mark than `settled` is another's to keep now, or durable.
    Inode { node: u64, offset: i64, length: i64, settled: u64 },
    /// A name, or that there is none.
    Entry { parent: u64, name: Vec<u8> },
}

/// One frame. "To the owner" or "to the client" says who may send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// To the owner: the first one.
    Greeting(Greeting),
    /// To the client.
    Challenge(Challenge),
    /// To the owner.
    Hello(Hello),
    /// To the client.
    Welcome(Welcome),
    /// To the client, instead of a Challenge or a Welcome, or later when it has to go.
    Refused(Refusal),
    /// To the owner: a request of the client's kernel.
    Request {
        /// Rises with each request of a session; 0 for what wants no answer.
        number: u64,
        /// The client has the answers of all requests with lower numbers.
        acknowledged: u64,
        /// It may have been performed by an owner before this one.
        is_repeated: bool,
        /// Of a read: instead of the bytes, where they lie will do.
        takes_map: bool,
        /// And a map of encrypted content, too: the client has keys.
        has_keys: bool,
        /// As /dev/fuse has it, header first.
        message: &'a [u8],
    },
    /// To the client.
    Reply {
        number: u64,
        /// 0: done.
        errno: u16,
        /// What was done is durable once the owner says that this mark is.
        mark: u64,
        /// Where a write went.
        place: u64,
        /// The bytes are a map of what was to be read (`stere_format::ContentMap`).
        is_map: bool,
        /// Names and attributes in it are leased: they may be believed until a notice says that they change. Of a write: the client may
        /// gather writes to this file until `RecallWrites`.
        is_leased: bool,
        /// What was done is lost with the owner until it says that this mark is committed: the client keeps the request until then.
        is_uncommitted: bool,
        /// What lies behind the header of an answer to the kernel.
        bytes: &'a [u8],
    },
    /// To the client.
    Notify(Notice),
    /// To the client: all that was answered with this mark or a lower one is durable.
    Definite { mark: u64 },
    /// To an owner that has not resumed the session: the client's kernel has so many references to an inode.
    Hold { node: u64, count: u64 },
    /// To an owner that has not resumed the session: all that belongs to it has been told.
    Settled,
    /// Either.
    Ping,
    /// Either.
    Pong,
    /// To the owner: the session is over. Either, where commands are carried: nothing more of the conversation follows.
    Bye,
    /// Either, where commands are carried: a piece of the conversation.
    Piece { bytes: &'a [u8] },
    /// Either, where commands are carried: so many bytes of pieces have been passed on, so that as many more may be sent.
    Taken { bytes: u32 },
    /// To the client: it is to say when it has heard all that was told before.
    Confirm { number: u64 },
    /// To the owner: all before Confirm with this number was heard.
    Confirmed { number: u64 },
    /// To an owner that has not resumed the session: a request that an owner before it has answered and may not have committed.
    Redo {
        number: u64,
        /// What it has made then; 0: nothing.
        inode: u64,
        /// When it was done.
        seconds: i64,
        nanoseconds: u32,
        /// As in `Request`.
        message: &'a [u8],
    },
    /// To the client: what was answered with this mark or a lower one is committed. Content that was written need not be durable.
    Committed { mark: u64 },
    /// To the client: it is to send what it has gathered of a file, and to gather no more.
    RecallWrites { node: u64, number: u64 },
    /// To the owner: RecallWrites with this number was done.
    WritesReturned { node: u64, number: u64 },
}

/// The head of a frame, from which it is known how many bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    kind: u8,
    pub body_bytes: usize,
}

/// Kinds with the bounds of their bodies.
fn bounds(kind: u8) -> Option<(usize, usize)> {
    Some(match kind {
        1 => (48, 48),
        2 => (48, 48),
        3 => (104, 104),
        4 => (40, 40),
        5 => (2, 2),
        6 => (REQUEST_HEAD_BYTES + MESSAGE_BYTES_MIN, REQUEST_HEAD_BYTES + MESSAGE_BYTES_MAX),
        7 => (REPLY_HEAD_BYTES, REPLY_HEAD_BYTES + ANSWER_BYTES_MAX),
        8 => (32, 32),
        9 => (ENTRY_HEAD_BYTES + 1, ENTRY_HEAD_BYTES + NAME_BYTES_MAX),
        10 => (8, 8),
        11 | 22 | 23 => (16, 16),
        12..=15 => (0, 0),
        16 => (1, PIECE_BYTES_MAX),
        17 => (4, 4),
        18 | 19 | 21 => (8, 8),
        20 => (REDO_HEAD_BYTES + MESSAGE_BYTES_MIN, REDO_HEAD_BYTES + MESSAGE_BYTES_MAX),
        _ => return None,
    })
}

impl Head {
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, FrameError> {
        let mut reader = Reader(bytes);
        let (length, kind) = (reader.u32()? as usize, reader.array::<1>()?[0]);
        reader.reserved::<3>()?;
        let (min, max) = bounds(kind).ok_or(FrameError::Kind(kind))?;
        match length {
            length if length < min => Err(FrameError::Short),
            length if length > max => Err(FrameError::TooLong(length)),
            body_bytes => Ok(Head { kind, body_bytes }),
        }
    }

    /// Whether this may be sent before both sides have proven themselves.
    #[must_use]
    pub fn is_of_greeting(&self) -> bool {
        self.kind <= 5
    }
}

impl<'a> Frame<'a> {
    fn kind(&self) -> u8 {
        match self {
            Frame::Greeting(_) => 1,
            Frame::Challenge(_) => 2,
            Frame::Hello(_) => 3,
            Frame::Welcome(_) => 4,
            Frame::Refused(_) => 5,
            Frame::Request { .. } => 6,
            Frame::Reply { .. } => 7,
            Frame::Notify(Notice::Inode { .. }) => 8,
            Frame::Notify(Notice::Entry { .. }) => 9,
            Frame::Definite { .. } => 10,
            Frame::Hold { .. } => 11,
            Frame::Settled => 12,
            Frame::Ping => 13,
            Frame::Pong => 14,
            Frame::Bye => 15,
            Frame::Piece { .. } => 16,
            Frame::Taken { .. } => 17,
            Frame::Confirm { .. } => 18,
            Frame::Confirmed { .. } => 19,
            Frame::Redo { .. } => 20,
            Frame::Committed { .. } => 21,
            Frame::RecallWrites { .. } => 22,
            Frame::WritesReturned { .. } => 23,
        }
    }

    /// Head and body behind what `out` holds. What is longer than the limits is the sender's mistake, and the other side refuses it.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encode_body(out);
        let length = u32::try_from(out.len() - start - HEAD_BYTES).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        out[start + 4] = self.kind();
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.encode_to(&mut out);
        out
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        let mut number = |value: u64| out.extend_from_slice(&value.to_le_bytes());
        match self {
            Frame::Greeting(greeting) => greeting.encode_to(out),
            Frame::Challenge(challenge) => challenge.encode_to(out),
            Frame::Hello(hello) => hello.encode_to(out),
            Frame::Welcome(welcome) => welcome.encode_to(out),
            Frame::Refused(refusal) => out.extend_from_slice(&refusal.code().to_le_bytes()),
            Frame::Request { number: own, acknowledged, is_repeated, takes_map, has_keys, message } => {
                number(*own);
                number(*acknowledged);
                let flags = (u8::from(*is_repeated) * REPEATED) | (u8::from(*takes_map) * TAKES_MAP);
                let flags = flags | (u8::from(*has_keys) * HAS_KEYS);
                out.extend_from_slice(&[flags, 0, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(message);
            }
            Frame::Reply { number: own, errno, mark, place, is_map, is_leased, is_uncommitted, bytes } => {
                number(*own);
                number(*mark);
                number(*place);
                out.extend_from_slice(&errno.to_le_bytes());
                let flags = (u8::from(*is_map) * MAP) | (u8::from(*is_leased) * LEASED);
                let flags = flags | (u8::from(*is_uncommitted) * UNCOMMITTED);
                out.extend_from_slice(&[flags, 0, 0, 0, 0, 0]);
                out.extend_from_slice(bytes);
            }
            Frame::Notify(Notice::Inode { node, offset, length, settled }) => {
                let words = [*node, offset.cast_unsigned(), length.cast_unsigned(), *settled];
                words.into_iter().for_each(number);
            }
            Frame::Notify(Notice::Entry { parent, name }) => {
                number(*parent);
                number(0);
                out.extend_from_slice(name);
            }
            Frame::Redo { number: own, inode, seconds, nanoseconds, message } => {
                [*own, *inode, seconds.cast_unsigned(), u64::from(*nanoseconds)].into_iter().for_each(number);
                out.extend_from_slice(message);
            }
            Frame::Definite { mark } | Frame::Committed { mark } => number(*mark),
            Frame::Confirm { number: own } | Frame::Confirmed { number: own } => number(*own),
            Frame::Hold { node, count } => [*node, *count].into_iter().for_each(number),
            Frame::RecallWrites { node, number: own } | Frame::WritesReturned { node, number: own } => {
                [*node, *own].into_iter().for_each(number);
            }
            Frame::Piece { bytes } => out.extend_from_slice(bytes),
            Frame::Taken { bytes } => out.extend_from_slice(&bytes.to_le_bytes()),
            Frame::Settled | Frame::Ping | Frame::Pong | Frame::Bye => {}
        }
    }

    /// The frame of this head and body.
    pub fn decode(head: Head, body: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        if body.len() != head.body_bytes {
            return Err(FrameError::Short);
        }
        let mut reader = Reader(body);
        let frame = match head.kind {
            1 => return Greeting::decode(reader).map(Frame::Greeting),
            2 => return Challenge::decode(reader).map(Frame::Challenge),
            3 => return Hello::decode(reader).map(Frame::Hello),
            4 => return Welcome::decode(reader).map(Frame::Welcome),
            5 => Frame::Refused(Refusal::of_code(reader.u16()?)?),
            6 => Self::decode_request(&mut reader)?,
            7 => Self::decode_reply(&mut reader)?,
            8 => {
                let (node, offset, length) = (reader.u64()?, reader.u64()?.cast_signed(), reader.u64()?.cast_signed());
                let settled = reader.u64()?;
                if length < 0 {
                    return Err(FrameError::Value);
                }
                Frame::Notify(Notice::Inode { node, offset, length, settled })
            }
            9 => {
                let parent = reader.u64()?;
                reader.reserved::<8>()?;
                let name = reader.rest(NAME_BYTES_MAX)?;
                if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                    return Err(FrameError::Value);
                }
                Frame::Notify(Notice::Entry { parent, name: name.to_vec() })
            }
            10 => Frame::Definite { mark: reader.u64()? },
            11 => Frame::Hold { node: reader.u64()?, count: reader.u64()? },
            12 => Frame::Settled,
            13 => Frame::Ping,
            14 => Frame::Pong,
            15 => Frame::Bye,
            16 => Frame::Piece { bytes: reader.rest(PIECE_BYTES_MAX)? },
            17 => Frame::Taken { bytes: Self::decode_taken(&mut reader)? },
            18 => Frame::Confirm { number: reader.u64()? },
            19 => Frame::Confirmed { number: reader.u64()? },
            20 => Self::decode_redo(&mut reader)?,
            21 => Frame::Committed { mark: reader.u64()? },
            22 => Frame::RecallWrites { node: reader.u64()?, number: reader.u64()? },
            23 => Frame::WritesReturned { node: reader.u64()?, number: reader.u64()? },
            kind => return Err(FrameError::Kind(kind)),
        };
        reader.end()?;
        Ok(frame)
    }

    fn decode_taken(reader: &mut Reader<'a>) -> Result<u32, FrameError> {
        let bytes = reader.u32()?;
        if (1..=WINDOW_BYTES).contains(&bytes) { Ok(bytes) } else { Err(FrameError::Value) }
    }

    fn decode_request(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameError> {
        let (number, acknowledged) = (reader.u64()?, reader.u64()?);
        let [flags] = reader.array::<1>()?;
        if flags & !(REPEATED | TAKES_MAP | HAS_KEYS) != 0 {
            return Err(FrameError::Reserved);
        }
        reader.reserved::<7>()?;
        let [is_repeated, takes_map, has_keys] = [REPEATED, TAKES_MAP, HAS_KEYS].map(|flag| flags & flag != 0);
        let message = reader.rest(MESSAGE_BYTES_MAX)?;
        Ok(Frame::Request { number, acknowledged, is_repeated, takes_map, has_keys, message })
    }

    fn decode_reply(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameError> {
        let (number, mark, place, errno) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u16()?);
        let [flags] = reader.array::<1>()?;
        reader.reserved::<5>()?;
        if flags & !(MAP | LEASED | UNCOMMITTED) != 0 {
            return Err(FrameError::Reserved);
        }
        let (is_map, is_leased, is_uncommitted) = (flags & MAP != 0, flags & LEASED != 0, flags & UNCOMMITTED != 0);
        let bytes = reader.rest(ANSWER_BYTES_MAX)?;
        let is_more_than_an_error = flags != 0 || !bytes.is_empty();
        if errno >= ERRNO_END || (errno != 0 && is_more_than_an_error) || (is_map && (is_leased || is_uncommitted)) {
            return Err(FrameError::Value);
        }
        Ok(Frame::Reply { number, errno, mark, place, is_map, is_leased, is_uncommitted, bytes })
    }

    fn decode_redo(reader: &mut Reader<'a>) -> Result<Frame<'a>, FrameError> {
        let (number, inode, seconds) = (reader.u64()?, reader.u64()?, reader.u64()?.cast_signed());
        let nanoseconds = reader.u32()?;
        reader.reserved::<4>()?;
        if nanoseconds >= NANOSECONDS_END {
            return Err(FrameError::Value);
        }
        Ok(Frame::Redo { number, inode, seconds, nanoseconds, message: reader.rest(MESSAGE_BYTES_MAX)? })
    }
}

/// For fuzzing: whatever the bytes are, what is decoded is within the limits and encodes to the same bytes.
pub fn fuzz(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return };
    let Ok(known) = Head::decode(head) else { return };
    let Some(body) = rest.get(..known.body_bytes) else { return };
    if let Ok(frame) = Frame::decode(known, body) {
        assert_eq!(frame.encode(), bytes[..HEAD_BYTES + known.body_bytes], "a frame has one encoding");
    }
}
