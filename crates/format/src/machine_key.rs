//! The file that holds a machine's private key: by it the machine proves to others that it is the one in the registry.
//!
//! Invariant: a key that was damaged is never taken for another key. Read next: `docs/format/machine-key.md`, the crate `machine-tls`.

use crate::error::DecodeError;
use crate::wire::Reader;

/// The private key of Ed25519, 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct MachineKeyFile {
    pub private_key: [u8; 32],
}

impl std::fmt::Debug for MachineKeyFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("MachineKeyFile")
    }
}

impl MachineKeyFile {
    pub const MAGIC: [u8; 8] = *b"stere-mk";
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 8 + 4 + 32 + 4;
    const STRUCTURE: &'static str = "machine's key";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, 0, 0, 0]);
        out.extend_from_slice(&self.private_key);
        crate::wire::seal(&mut out, 0, Self::SIZE);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::begin(Self::STRUCTURE, bytes, Self::SIZE, (&Self::MAGIC, Self::VERSION))?;
        reader.zeros(3)?;
        let private_key = reader.array()?;
        reader.finish()?;
        // A file is as long as it was written.
        match bytes.len() - Self::SIZE {
            0 => Ok(Self { private_key }),
            extra => Err(DecodeError::TrailingBytes { structure: Self::STRUCTURE, extra }),
        }
    }
}

#[cfg(test)]
mod tests;
