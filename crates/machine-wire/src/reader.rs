//! Takes numbers and bytes off the front of a body; what is not there is an error.

use crate::frame::FrameError;

/// What is left of a body.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or(FrameError::Short)?;
        self.0 = rest;
        Ok(*front)
    }

    pub fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Bytes that have to be zero.
    pub fn reserved<const N: usize>(&mut self) -> Result<(), FrameError> {
        if self.array::<N>()? == [0; N] { Ok(()) } else { Err(FrameError::Reserved) }
    }

    /// All that is left, at most `max` bytes.
    pub fn rest(&mut self, max: usize) -> Result<&'a [u8], FrameError> {
        let rest = std::mem::take(&mut self.0);
        if rest.len() <= max { Ok(rest) } else { Err(FrameError::TooLong(rest.len())) }
    }

    pub fn end(self) -> Result<(), FrameError> {
        if self.0.is_empty() { Ok(()) } else { Err(FrameError::Behind) }
    }
}
