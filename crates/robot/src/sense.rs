//! Sense data: why a command did not end well, or not only well. Fixed and descriptor format.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenseKey {
    None,
    Recovered,
    NotReady,
    Medium,
    Hardware,
    IllegalRequest,
    Attention,
    Protected,
    Blank,
    Overflow,
    Other(u8),
}

impl SenseKey {
    pub fn from_code(code: u8) -> SenseKey {
        match code {
            0 => SenseKey::None,
            1 => SenseKey::Recovered,
            2 => SenseKey::NotReady,
            3 => SenseKey::Medium,
            4 => SenseKey::Hardware,
            5 => SenseKey::IllegalRequest,
            6 => SenseKey::Attention,
            7 => SenseKey::Protected,
            8 => SenseKey::Blank,
            13 => SenseKey::Overflow,
            code => SenseKey::Other(code),
        }
    }

    pub fn code(self) -> u8 {
        match self {
            SenseKey::None => 0,
            SenseKey::Recovered => 1,
            SenseKey::NotReady => 2,
            SenseKey::Medium => 3,
            SenseKey::Hardware => 4,
            SenseKey::IllegalRequest => 5,
            SenseKey::Attention => 6,
            SenseKey::Protected => 7,
            SenseKey::Blank => 8,
            SenseKey::Overflow => 13,
            SenseKey::Other(code) => code,
        }
    }
}

/// What a device says beside its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    pub key: SenseKey,
    /// Additional sense code and qualifier.
    pub code: (u8, u8),
    pub is_filemark: bool,
    /// End of medium: the early warning when writing, the end of data or of the tape otherwise.
    pub is_end_of_medium: bool,
    pub is_wrong_length: bool,
    /// What was not transferred or not spaced over, where the device tells.
    pub information: Option<i64>,
}

const FIXED_BYTES: usize = 18;
/// Descriptors of descriptor format.
const INFORMATION: u8 = 0x00;
const STREAM: u8 = 0x04;

impl Sense {
    pub fn new(key: SenseKey, code: (u8, u8)) -> Sense {
        Sense { key, code, is_filemark: false, is_end_of_medium: false, is_wrong_length: false, information: None }
    }

    pub fn is_attention(&self) -> bool {
        self.key == SenseKey::Attention
    }

    /// None for what is no sense data.
    pub fn decode(bytes: &[u8]) -> Option<Sense> {
        match bytes.first()? & 0x7f {
            0x70 | 0x71 => Sense::decode_fixed(bytes),
            0x72 | 0x73 => Sense::decode_descriptors(bytes),
            _ => None,
        }
    }

    fn flags(&mut self, byte: u8) {
        self.is_filemark = byte & 0x80 != 0;
        self.is_end_of_medium = byte & 0x40 != 0;
        self.is_wrong_length = byte & 0x20 != 0;
    }

    fn decode_fixed(bytes: &[u8]) -> Option<Sense> {
        let flags = *bytes.get(2)?;
        // Old devices leave out what follows.
        let code = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let mut sense = Sense::new(SenseKey::from_code(flags & 0x0f), (code(12), code(13)));
        sense.flags(flags);
        if bytes[0] & 0x80 != 0
            && let Some(&[a, b, c, d]) = bytes.get(3..7)
        {
            sense.information = Some(i64::from(i32::from_be_bytes([a, b, c, d])));
        }
        Some(sense)
    }

    fn decode_descriptors(bytes: &[u8]) -> Option<Sense> {
        let head: &[u8; 8] = bytes.first_chunk()?;
        let mut sense = Sense::new(SenseKey::from_code(head[1] & 0x0f), (head[2], head[3]));
        let length = usize::from(head[7]);
        let mut rest = &bytes[8..bytes.len().min(8 + length)];
        while let Some((&[kind, length], after)) = rest.split_first_chunk() {
            let length = usize::from(length);
            let Some(body) = after.get(..length) else { break };
            match (kind, body) {
                (INFORMATION, [valid, _, number @ ..]) if valid & 0x80 != 0 => {
                    sense.information = number.first_chunk().map(|number| i64::from_be_bytes(*number));
                }
                (STREAM, [_, flags, ..]) => sense.flags(*flags),
                _ => {}
            }
            rest = &after[length..];
        }
        Some(sense)
    }

    /// In fixed format.
    pub fn encode(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        bytes[0] = 0x70;
        assert!(self.key.code() <= 0x0f, "a sense key has four bits: {:?}", self.key);
        bytes[2] = self.key.code();
        for (is_set, bit) in [(self.is_filemark, 0x80), (self.is_end_of_medium, 0x40), (self.is_wrong_length, 0x20)] {
            bytes[2] |= if is_set { bit } else { 0 };
        }
        if let Some(number) = self.information.and_then(|number| i32::try_from(number).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&number.to_be_bytes());
        }
        bytes[7] = FIXED_BYTES as u8 - 8;
        (bytes[12], bytes[13]) = self.code;
        bytes
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match (self.key, self.code) {
            (_, (0x3a, _)) => "no medium",
            (_, (0x3b, 0x0d)) => "the destination is full",
            (_, (0x3b, 0x0e)) => "the source is empty",
            (_, (0x53, 0x02)) => "the medium is locked in its drive",
            (_, (0x21, 0x01)) => "there is no such element",
            (SenseKey::Medium, _) => "the medium cannot be read or written there",
            (SenseKey::Hardware, _) => "the hardware failed",
            (SenseKey::NotReady, _) => "not ready",
            (SenseKey::Attention, _) => "it was reset, or its medium was changed",
            (SenseKey::Protected, _) => "the medium is write-protected",
            (SenseKey::Blank, _) => "nothing is written there",
            (SenseKey::Overflow, _) => "the medium is full",
            (SenseKey::IllegalRequest, _) => "the command is refused",
            _ if self.is_wrong_length => "the block has another length",
            _ => "a condition",
        };
        let (code, qualifier) = self.code;
        write!(formatter, "{word} ({:x}/{code:02x}{qualifier:02x})", self.key.code())?;
        self.information.map_or(Ok(()), |number| write!(formatter, ", {number} more or less than asked for"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_is_decoded_in_both_formats() {
        let mut sense = Sense::new(SenseKey::Blank, (0, 5));
        (sense.is_end_of_medium, sense.information) = (true, Some(-7));
        assert_eq!(Sense::decode(&sense.encode()), Some(sense));
        let descriptors =
            [0x72, 8, 0, 5, 0, 0, 0, 16, 0, 10, 0x80, 0, 255, 255, 255, 255, 255, 255, 255, 249, 4, 2, 0, 0x40];
        assert_eq!(Sense::decode(&descriptors), Some(sense));
        // Cut short: what is there counts, and nothing is read beyond.
        for length in 0..descriptors.len() {
            assert_eq!(Sense::decode(&descriptors[..length]).is_some(), length >= 8);
        }
        assert_eq!(Sense::decode(&[0x70, 0, 0x80]).map(|sense| sense.is_filemark), Some(true));
        assert_eq!(Sense::decode(&[0x01, 0, 0, 0]), None);
    }
}
