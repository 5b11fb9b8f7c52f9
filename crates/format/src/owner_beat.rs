//! The beat of a pool's owner in its shared log: that it lives, where clients reach it, and what proves to them that it is the one.
//!
//! Whoever may read the beat may use the pool, so the secret in it is for those who hold the engine's credentials only.
//! Read next: `docs/format/owner-beat.md`, the crate `multihost`.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// What the owner says of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnerBeat {
    /// Random for each opening of the pool.
    pub owner: [u8; 16],
    /// Rises with every beat of one owner.
    pub sequence: u64,
    /// Whether it closed the pool in order: nobody need wait.
    pub is_closed: bool,
    /// Random for each installation of stere.
    pub machine: [u8; 16],
    pub process: u32,
    /// The epoch of the journal that the owner writes; 0 before its root is in the log.
    pub epoch: u32,
    /// The name of the machine, for messages; at most 63 bytes.
    pub host: String,
    /// Where clients reach it, HOST:PORT; empty while it takes none.
    pub address: String,
    /// Clients and owner prove by it that both may use the pool.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for OwnerBeat {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "OwnerBeat({} at {}, beat {})", self.host, self.address, self.sequence)
    }
}

const CLOSED: u8 = 1;

impl OwnerBeat {
    pub const MAGIC: [u8; 8] = *b"stere-ob";
    pub const VERSION: u8 = 1;
    pub const HOST_FIELD_BYTES: usize = 64;
    pub const ADDRESS_FIELD_BYTES: usize = 128;
    pub const SIZE: usize = 8 + 4 + 16 + 8 + 16 + 4 + 4 + 32 + Self::HOST_FIELD_BYTES + Self::ADDRESS_FIELD_BYTES + 4;
    const STRUCTURE: &'static str = "owner's beat";

    /// Host and address must fit into their fields.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.host.len() < Self::HOST_FIELD_BYTES, "the name of a host fits in its field");
        assert!(self.address.len() < Self::ADDRESS_FIELD_BYTES, "an address fits in its field");
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, if self.is_closed { CLOSED } else { 0 }, 0, 0]);
        out.extend_from_slice(&self.owner);
        out.put_u64(self.sequence);
        out.extend_from_slice(&self.machine);
        out.put_u32(self.process);
        out.put_u32(self.epoch);
        out.extend_from_slice(&self.secret);
        out.put_text_field(Self::HOST_FIELD_BYTES, &self.host);
        out.put_text_field(Self::ADDRESS_FIELD_BYTES, &self.address);
        crate::wire::seal(&mut out, 0, Self::SIZE);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::begin(Self::STRUCTURE, bytes, Self::SIZE, (&Self::MAGIC, Self::VERSION))?;
        let flags = reader.u8()?;
        reader.check(flags & !CLOSED == 0, "flags", u64::from(flags))?;
        reader.zeros(2)?;
        let owner = reader.array()?;
        let sequence = reader.u64()?;
        let machine = reader.array()?;
        let (process, epoch) = (reader.u32()?, reader.u32()?);
        let secret = reader.array()?;
        let host = reader.text_field(Self::HOST_FIELD_BYTES, "host")?;
        let address = reader.text_field(Self::ADDRESS_FIELD_BYTES, "address")?;
        reader.finish()?;
        let is_closed = flags & CLOSED != 0;
        Ok(Self { owner, sequence, is_closed, machine, process, epoch, host, address, secret })
    }
}

#[cfg(test)]
mod tests;
