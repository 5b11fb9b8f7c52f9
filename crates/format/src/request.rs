//! What was done for another machine: noted with what a request changes, so that the next owner does not do it again.
//!
//! Invariant: a session notes its newest requests in slots, each over the one that was there before. Read next: `docs/format/request.md`.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// The value of [`crate::Key::request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestValue {
    /// The session, of which the key has the first six bytes.
    pub session: [u8; 16],
    /// Of the request in its session, from 1 on.
    pub number: u64,
    /// Where an append went; of all others 0.
    pub place: u64,
}

impl RequestValue {
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 36;
    const STRUCTURE: &'static str = "request";

    pub fn encode(&self) -> Vec<u8> {
        assert!(self.number > 0, "requests are numbered from 1 on");
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&[Self::VERSION, 0, 0, 0]);
        out.extend_from_slice(&self.session);
        out.put_u64(self.number);
        out.put_u64(self.place);
        assert_eq!(out.len(), Self::SIZE, "all of it has a place");
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Reader::new(Self::STRUCTURE, bytes);
        fields.version(Self::VERSION)?;
        fields.zeros(3)?;
        let session = fields.array()?;
        let number = fields.u64()?;
        if number == 0 {
            return Err(fields.out_of_range("number", number));
        }
        let value = Self { session, number, place: fields.u64()? };
        fields.finish()?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_as_they_were() {
        let value = RequestValue { session: [7; 16], number: 12, place: 1 << 40 };
        let bytes = value.encode();
        assert_eq!(RequestValue::decode(&bytes).unwrap(), value);
        assert!(RequestValue::decode(&bytes[1..]).is_err());
        assert!(RequestValue::decode(&[&bytes[..], &[0]].concat()).is_err());
        let mut none = bytes;
        none[20..28].fill(0);
        assert!(RequestValue::decode(&none).is_err(), "no request has the number 0");
    }
}
