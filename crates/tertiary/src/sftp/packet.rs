//! SFTP, version 3, byte by byte (draft-ietf-secsh-filexfer-02), and the extensions of OpenSSH that this crate uses (its file PROTOCOL). No I/O.
//!
//! A packet is a length (u32), and so many bytes: a type (u8), a number by which the answer is found (u32), and what belongs to the type.
//! All numbers are big-endian; a text is a length (u32) and bytes. Invariant: decoding reads nothing beyond its bytes, takes no more
//! memory than a small multiple of them, and never panics.

/// What a reply cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("a reply ends too early")]
    Short,
    #[error("a reply of the unknown type {0}")]
    Type(u8),
    #[error("a reply names {0} entries and has room for fewer")]
    Count(u32),
}

/// Types of requests.
pub const INIT: u8 = 1;
pub const OPEN: u8 = 3;
pub const CLOSE: u8 = 4;
pub const READ: u8 = 5;
pub const WRITE: u8 = 6;
pub const FSTAT: u8 = 8;
pub const OPENDIR: u8 = 11;
pub const READDIR: u8 = 12;
pub const REMOVE: u8 = 13;
pub const MKDIR: u8 = 14;
pub const STAT: u8 = 17;
pub const RENAME: u8 = 18;
pub const EXTENDED: u8 = 200;

/// The version that is spoken.
pub const VERSION: u32 = 3;

/// How files are opened.
pub const READING: u32 = 1;
/// Written anew; it must not be there.
pub const WRITING_NEW: u32 = 2 | 8 | 0x20;

/// What a status says.
pub const STATUS_OK: u32 = 0;
pub const STATUS_END: u32 = 1;
pub const STATUS_NO_SUCH_FILE: u32 = 2;
pub const STATUS_DENIED: u32 = 3;
pub const STATUS_FAILURE: u32 = 4;
pub const STATUS_UNSUPPORTED: u32 = 8;

/// What a server knows of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    pub length: Option<u64>,
    pub mode: Option<u32>,
}

impl Attributes {
    /// Whether it is a directory; a server that does not say means none.
    pub fn is_directory(&self) -> bool {
        self.mode.is_some_and(|mode| mode & 0o170_000 == 0o040_000)
    }

    /// Whether it is a file, or may be one.
    pub fn is_file(&self) -> bool {
        self.mode.is_none_or(|mode| mode & 0o170_000 == 0o100_000)
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The server's version and its extensions: name and version of each. It has no number.
    Version(u32, Vec<(String, String)>),
    Status {
        code: u32,
        words: String,
    },
    Handle(&'a [u8]),
    Data(&'a [u8]),
    Names(Vec<(Vec<u8>, Attributes)>),
    Attributes(Attributes),
    Extended(&'a [u8]),
}

/// Adds a request to what is sent: `body` writes what is behind its number.
pub fn request(to: &mut Vec<u8>, kind: u8, number: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend([0; 4]);
    to.push(kind);
    to.extend(number.to_be_bytes());
    body(to);
    let length = (to.len() - start - 4) as u32;
    to[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Adds a text, or bytes.
pub fn put_text(to: &mut Vec<u8>, text: &[u8]) {
    assert!(u32::try_from(text.len()).is_ok(), "a text of {} bytes", text.len());
    to.extend((text.len() as u32).to_be_bytes());
    to.extend(text);
}

/// Takes values off the front of bytes.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PacketError> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(PacketError::Short)?;
        self.0 = rest;
        Ok(front)
    }

    pub fn u32(&mut self) -> Result<u32, PacketError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn u64(&mut self) -> Result<u64, PacketError> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    fn text(&mut self) -> Result<&'a [u8], PacketError> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn words(&mut self) -> Result<String, PacketError> {
        Ok(String::from_utf8_lossy(self.text()?).into_owned())
    }

    fn attributes(&mut self) -> Result<Attributes, PacketError> {
        let flags = self.u32()?;
        let length = if flags & 1 != 0 { Some(self.u64()?) } else { None };
        if flags & 2 != 0 {
            self.take(8)?;
        }
        let mode = if flags & 4 != 0 { Some(self.u32()?) } else { None };
        if flags & 8 != 0 {
            self.take(8)?;
        }
        if flags & 0x8000_0000 != 0 {
            for _ in 0..self.u32()? {
                self.text()?;
                self.text()?;
            }
        }
        Ok(Attributes { length, mode })
    }

    fn names(&mut self) -> Result<Vec<(Vec<u8>, Attributes)>, PacketError> {
        let count = self.u32()?;
        // Each has two texts and attributes: twelve bytes at least.
        if count as usize > self.0.len() / 12 {
            return Err(PacketError::Count(count));
        }
        let mut found = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let name = self.text()?.to_vec();
            // As `ls -l` would show it.
            self.text()?;
            found.push((name, self.attributes()?));
        }
        Ok(found)
    }
}

/// A reply, and the number of the request that it answers; of what follows its length.
pub fn decode(bytes: &[u8]) -> Result<(u32, Reply<'_>), PacketError> {
    let mut fields = Fields(bytes);
    let kind = fields.take(1)?[0];
    let number = fields.u32()?;
    let reply = match kind {
        2 => {
            let mut extensions = Vec::new();
            while !fields.0.is_empty() {
                extensions.push((fields.words()?, fields.words()?));
            }
            return Ok((0, Reply::Version(number, extensions)));
        }
        101 => {
            let code = fields.u32()?;
            // Old servers leave the words out.
            let words = if fields.0.is_empty() { String::new() } else { fields.words()? };
            Reply::Status { code, words }
        }
        102 => Reply::Handle(fields.text()?),
        103 => Reply::Data(fields.text()?),
        104 => Reply::Names(fields.names()?),
        105 => Reply::Attributes(fields.attributes()?),
        201 => Reply::Extended(fields.0),
        _ => return Err(PacketError::Type(kind)),
    };
    Ok((number, reply))
}

#[cfg(test)]
mod tests;
