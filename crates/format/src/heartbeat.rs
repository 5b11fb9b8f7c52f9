//! The heartbeat of a device that several machines may reach: which process uses the pool now, and that it still does.
//!
//! One block behind the superblock copies in front. It is written over in place, so a reader may meet a torn one.
//! Read next: `docs/format/heartbeat.md`, and `crates/pool/src/claim.rs`, which decides by it.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer, seal, sealed};
use crate::{DeviceId, PoolId};

/// What the process that uses the pool says of itself on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub pool: PoolId,
    pub device: DeviceId,
    /// Random for each opening of the pool: the same owner, the same opening.
    pub owner: [u8; 16],
    /// Rises with every beat of one owner.
    pub sequence: u64,
    /// Whether the owner uses the pool; false once it has closed it in order.
    pub is_live: bool,
    /// Random for each installation of stere.
    pub machine: [u8; 16],
    /// What the kernel drew when the machine was started.
    pub boot: [u8; 16],
    /// In which numbering of processes the next two are meant.
    pub process_namespace: u64,
    pub process: u32,
    /// When the process was started, in ticks since the boot: a number that was used again is another process.
    pub process_start_ticks: u64,
    /// The next beat comes within this time, unless the owner is stopped or the device is slow.
    pub interval_ms: u32,
    /// The name of the machine, for messages; at most 63 bytes.
    pub host: String,
}

const LIVE: u8 = 1;

impl Heartbeat {
    pub const SIZE: usize = 4096;
    pub const MAGIC: [u8; 8] = *b"stere-hb";
    pub const VERSION: u8 = 1;
    pub const HOST_FIELD_BYTES: usize = 64;
    const STRUCTURE: &'static str = "heartbeat";

    /// The host's name must fit into its field.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.host.len() < Self::HOST_FIELD_BYTES, "the name of a host fits in its field");
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, if self.is_live { LIVE } else { 0 }, 0, 0]);
        out.put_u32(self.interval_ms);
        out.extend_from_slice(&self.pool.0);
        out.extend_from_slice(&self.device.0);
        out.extend_from_slice(&self.owner);
        out.put_u64(self.sequence);
        out.extend_from_slice(&self.machine);
        out.extend_from_slice(&self.boot);
        out.put_u64(self.process_namespace);
        out.put_u64(self.process_start_ticks);
        out.put_u32(self.process);
        out.put_u32(0);
        out.put_text_field(Self::HOST_FIELD_BYTES, &self.host);
        seal(&mut out, 0, Self::SIZE);
        out
    }

    /// Whether these bytes are meant to be a heartbeat, whole or torn.
    pub fn is_meant(bytes: &[u8]) -> bool {
        bytes.starts_with(&Self::MAGIC)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, sealed(Self::STRUCTURE, bytes, Self::SIZE)?);
        reader.magic(&Self::MAGIC)?;
        reader.version(Self::VERSION)?;
        let flags = reader.u8()?;
        reader.check(flags & !LIVE == 0, "flags", u64::from(flags))?;
        reader.zeros(2)?;
        let interval_ms = reader.u32()?;
        let (pool, device) = (PoolId(reader.array()?), DeviceId(reader.array()?));
        let owner = reader.array()?;
        let sequence = reader.u64()?;
        let (machine, boot) = (reader.array()?, reader.array()?);
        let (process_namespace, process_start_ticks) = (reader.u64()?, reader.u64()?);
        let process = reader.u32()?;
        reader.zeros(4)?;
        let host = reader.text_field(Self::HOST_FIELD_BYTES, "host")?;
        reader.zeros(reader.rest().len())?;
        let is_live = flags & LIVE != 0;
        Ok(Self {
            pool,
            device,
            owner,
            sequence,
            is_live,
            machine,
            boot,
            process_namespace,
            process,
            process_start_ticks,
            interval_ms,
            host,
        })
    }
}

#[cfg(test)]
mod tests;
