//! Reading and writing little-endian fields in order. Private: structures use it, callers never see it.

use crate::error::DecodeError;

/// Takes fields off the front of a byte slice; every take is checked.
pub(crate) struct Reader<'a> {
    structure: &'static str,
    bytes: &'a [u8],
    size: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(structure: &'static str, bytes: &'a [u8]) -> Self {
        Self { structure, bytes, size: bytes.len() }
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => Err(self.truncated(count)),
        }
    }

    #[cold]
    fn truncated(&self, count: usize) -> DecodeError {
        let need = (self.size - self.bytes.len()).saturating_add(count);
        DecodeError::Truncated { structure: self.structure, need, have: self.size }
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(*taken)
            }
            None => Err(self.truncated(N)),
        }
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A sealed structure of fixed size, past its magic and version.
    pub fn begin(
        structure: &'static str,
        bytes: &'a [u8],
        size: usize,
        (magic, version): (&[u8; 8], u8),
    ) -> Result<Self, DecodeError> {
        let mut reader = Self::new(structure, sealed(structure, bytes, size)?);
        reader.magic(magic)?;
        reader.version(version)?;
        Ok(reader)
    }

    /// Reserved bytes must be zero, so that a later version may give them a meaning.
    pub fn zeros(&mut self, count: usize) -> Result<(), DecodeError> {
        let taken = self.take(count)?;
        match taken.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(byte) => Err(self.out_of_range("reserved field", u64::from(*byte))),
        }
    }

    /// The encoding version that every value starts with.
    #[inline]
    pub fn version(&mut self, supported: u8) -> Result<(), DecodeError> {
        let found = self.u8()?;
        if found == supported {
            return Ok(());
        }
        Err(DecodeError::UnsupportedVersion {
            structure: self.structure,
            found: u16::from(found),
            supported: u16::from(supported),
        })
    }

    /// The same of a value that an older version wrote without something; true if it is the newer one.
    pub fn version_of_two(&mut self, older: u8, newer: u8) -> Result<bool, DecodeError> {
        assert!(older < newer, "version {newer} comes after {older}");
        let is_older = self.bytes.first() == Some(&older);
        self.version(if is_older { older } else { newer })?;
        Ok(!is_older)
    }

    pub fn magic(&mut self, magic: &[u8; 8]) -> Result<(), DecodeError> {
        if self.array::<8>()? == *magic {
            return Ok(());
        }
        Err(DecodeError::BadMagic { structure: self.structure })
    }

    /// A short text, as a name or a label: a length byte, then UTF-8 that is fit to be printed.
    pub fn text(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let length = usize::from(self.u8()?);
        self.name(length, field)
    }

    /// UTF-8 without control characters: it becomes lines on terminals and in logs, and parts of paths.
    pub fn name(&mut self, length: usize, field: &'static str) -> Result<String, DecodeError> {
        let text = self.utf8(length, field)?;
        match text.chars().any(char::is_control) {
            true => Err(DecodeError::NotPlain { structure: self.structure, field }),
            false => Ok(text),
        }
    }

    /// A short text in a field of fixed size, zero-filled.
    pub fn text_field(&mut self, size: usize, field: &'static str) -> Result<String, DecodeError> {
        let length = usize::from(self.u8()?);
        self.check(length < size, field, length as u64)?;
        let text = self.name(length, field)?;
        self.zeros(size - 1 - length)?;
        Ok(text)
    }

    pub fn utf8(&mut self, length: usize, field: &'static str) -> Result<String, DecodeError> {
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| DecodeError::NotText { structure: self.structure, field })
    }

    #[inline]
    pub fn check(&self, holds: bool, field: &'static str, value: u64) -> Result<(), DecodeError> {
        if holds { Ok(()) } else { Err(self.out_of_range(field, value)) }
    }

    #[cold]
    pub fn out_of_range(&self, field: &'static str, value: u64) -> DecodeError {
        DecodeError::OutOfRange { structure: self.structure, field, value }
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(DecodeError::TrailingBytes { structure: self.structure, extra: self.bytes.len() })
    }
}

/// Appends little-endian fields.
pub(crate) trait Writer {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_zeros(&mut self, count: usize);
    /// A length byte, then the bytes, cut to what fits in `length_max` at a character boundary; control characters become question marks.
    fn put_text(&mut self, text: &str, length_max: usize);
    fn put_text_field(&mut self, size: usize, text: &str);
}

impl Writer for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    #[inline]
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }

    fn put_text(&mut self, text: &str, length_max: usize) {
        // What could not be read back is not written.
        let text = text.replace(char::is_control, "?");
        let mut length = text.len().min(length_max).min(255);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        self.push(length as u8);
        self.extend_from_slice(&text.as_bytes()[..length]);
    }

    fn put_text_field(&mut self, size: usize, text: &str) {
        let start = self.len();
        self.put_text(text, size - 1);
        self.resize(start + size, 0);
    }
}

/// Checks the checksum in the last four bytes of a structure of fixed size; answers the bytes before it.
pub(crate) fn sealed<'a>(structure: &'static str, bytes: &'a [u8], size: usize) -> Result<&'a [u8], DecodeError> {
    let Some(bytes) = bytes.get(..size) else {
        return Err(DecodeError::Truncated { structure, need: size, have: bytes.len() });
    };
    let (body, seal) = bytes.split_at(size - 4);
    let stored = u32::from_le_bytes([seal[0], seal[1], seal[2], seal[3]]);
    let computed = crate::crc32c(body);
    if stored != computed {
        return Err(DecodeError::Checksum { structure, stored, computed });
    }
    Ok(body)
}

/// Pads what was written from `start` on to `size` and ends it with its checksum.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, size: usize) {
    assert!(out.len() <= start + size - 4, "a fixed-size structure outgrew its size");
    out.resize(start + size - 4, 0);
    let checksum = crate::crc32c(&out[start..]);
    out.put_u32(checksum);
    assert_eq!(out.len(), start + size);
}
