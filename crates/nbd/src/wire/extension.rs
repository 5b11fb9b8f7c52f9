//! What stere nodes and their clients have besides NBD: who is there, exports that are made, owners that are refused, and what ranges are told.
//!
//! `docs/format/node-extension.md` describes it. Numbers are big-endian, as all of NBD. Invariant: a client sends none of this before the server
//! has answered `HELLO`.

use super::{Reader, WireError, broken};

/// The version of the extension.
pub const VERSION: u32 = 2;
/// The option that asks whether the server is a stere node.
pub const HELLO: u32 = 0x7374_0001;
/// The option that asks for an export's facts, and makes the export where it is not there.
pub const PROVIDE: u32 = 0x7374_0002;
/// The command that says for which owner the connection writes: its epoch stands where others have an offset.
pub const FENCE: u16 = 0x7374;
/// The command that tells what the node shall do with a range; a [`Told`] is its payload, whose length stands where others have theirs.
pub const TELL: u16 = 0x7375;
/// The longest payload of it.
pub const TOLD_BYTES_MAX: usize = 1024;
/// The longest name of an export.
pub const NAME_BYTES_MAX: usize = 255;

/// Whether a node has such names: plain characters, and none that means something to a file system.
pub fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && name.bytes().all(is_plain)
}

pub fn encode_version() -> [u8; 4] {
    VERSION.to_be_bytes()
}

/// The other side's version.
pub fn decode_version(bytes: &[u8]) -> Result<u32, WireError> {
    let mut reader = Reader(bytes);
    let version = reader.u32()?;
    reader.end()?;
    if version == 0 { broken("a version of the extension that is none") } else { Ok(version) }
}

/// An export that is asked for; it is made with this size where it is not there, unless that is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provide {
    pub name: String,
    pub size_bytes: u64,
}

impl Provide {
    pub fn encode(&self) -> Vec<u8> {
        [&self.size_bytes.to_be_bytes()[..], self.name.as_bytes()].concat()
    }

    pub fn decode(bytes: &[u8]) -> Result<Provide, WireError> {
        let mut reader = Reader(bytes);
        let size_bytes = reader.u64()?;
        match std::str::from_utf8(reader.0) {
            Ok(name) if name.len() <= super::TEXT_BYTES_MAX => Ok(Provide { name: name.to_owned(), size_bytes }),
            _ => broken("the name of an export is no text, or longer than 4096 bytes"),
        }
    }
}

/// What a range of an export is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub length: u64,
    /// `KEY=VALUE`, with commas between them; empty for nothing.
    pub settings: String,
}

impl Told {
    pub fn encode(&self) -> Vec<u8> {
        let bytes = [&self.length.to_be_bytes()[..], self.settings.as_bytes()].concat();
        assert!(bytes.len() <= TOLD_BYTES_MAX, "settings are few and short");
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Told, WireError> {
        if bytes.len() > TOLD_BYTES_MAX {
            return broken("a range is told more than 1024 bytes");
        }
        let mut reader = Reader(bytes);
        let length = reader.u64()?;
        match std::str::from_utf8(reader.0) {
            Ok(settings) if length > 0 => Ok(Told { length, settings: settings.to_owned() }),
            _ => broken("what a range is told is no text, or the range is empty"),
        }
    }
}

/// What a node says of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provided {
    pub size_bytes: u64,
    /// Of the newest owner that wrote; 0 where nobody has said his.
    pub epoch: u64,
}

impl Provided {
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.size_bytes.to_be_bytes());
        bytes[8..].copy_from_slice(&self.epoch.to_be_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Provided, WireError> {
        let mut reader = Reader(bytes);
        let provided = Provided { size_bytes: reader.u64()?, epoch: reader.u64()? };
        reader.end()?;
        Ok(provided)
    }
}

/// Any bytes to every decoder: what is read is written as it was.
pub fn fuzz(bytes: &[u8]) {
    if decode_version(bytes).is_ok() {
        assert_eq!(bytes.len(), 4, "a version has four bytes");
    }
    if let Ok(provide) = Provide::decode(bytes) {
        assert_eq!(provide.encode(), bytes, "a request is written as it was read");
    }
    if let Ok(told) = Told::decode(bytes) {
        assert_eq!(told.encode(), bytes, "what is told is written as it was read");
    }
    if let Ok(provided) = Provided::decode(bytes) {
        assert_eq!(provided.encode(), bytes, "an answer is written as it was read");
    }
}

#[cfg(test)]
mod tests;
