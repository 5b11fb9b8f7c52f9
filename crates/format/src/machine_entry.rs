//! The registry of the machines that use a pool: one entry for each machine, and one for the pool itself, which says who is admitted.
//!
//! They lie in the engine of a shared log beside its records. Invariant: the id of a machine is not all zeros, which is the pool's place.
//! Read next: `docs/format/machine-entry.md`, `machine_key.rs`, `admission.rs` of the crate `machine`.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// Whether a machine may use the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineState {
    /// Somebody has to admit it first.
    Waiting,
    Admitted,
    /// It was taken out, or never let in.
    Refused,
}

/// What becomes of machines that register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// They are admitted at once.
    Open,
    /// They wait until they are admitted.
    Ask,
}

/// One machine, as the registry knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineEntry {
    /// Random for each installation of stere.
    pub machine: [u8; 16],
    /// Of Ed25519; both ends of a connection prove that they have the private one.
    pub public_key: [u8; 32],
    /// The name of the machine, for people; at most 63 bytes.
    pub host: String,
    pub state: MachineState,
    /// Seconds since 1970 by the machine's own clock; for people only.
    pub registered: u64,
}

/// What the pool itself says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolAdmission(pub Admission);

impl MachineState {
    fn code(self) -> u8 {
        match self {
            MachineState::Waiting => 1,
            MachineState::Admitted => 2,
            MachineState::Refused => 3,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        [MachineState::Waiting, MachineState::Admitted, MachineState::Refused]
            .into_iter()
            .find(|one| one.code() == code)
    }

    /// As people read it.
    pub fn text(self) -> &'static str {
        match self {
            MachineState::Waiting => "waiting",
            MachineState::Admitted => "admitted",
            MachineState::Refused => "refused",
        }
    }
}

impl Admission {
    fn code(self) -> u8 {
        match self {
            Admission::Open => 1,
            Admission::Ask => 2,
        }
    }

    /// As people read and write it.
    pub fn text(self) -> &'static str {
        match self {
            Admission::Open => "open",
            Admission::Ask => "ask",
        }
    }
}

impl MachineEntry {
    pub const MAGIC: [u8; 8] = *b"stere-me";
    pub const VERSION: u8 = 1;
    pub const HOST_FIELD_BYTES: usize = 64;
    pub const SIZE: usize = 8 + 4 + 16 + 32 + 8 + Self::HOST_FIELD_BYTES + 4;
    const STRUCTURE: &'static str = "machine's entry";

    /// The host must fit into its field.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.host.len() < Self::HOST_FIELD_BYTES, "the name of a host fits in its field");
        assert!(self.machine != PoolAdmission::MACHINE, "an id of zeros is the pool's");
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, self.state.code(), 0, 0]);
        out.extend_from_slice(&self.machine);
        out.extend_from_slice(&self.public_key);
        out.put_u64(self.registered);
        out.put_text_field(Self::HOST_FIELD_BYTES, &self.host);
        crate::wire::seal(&mut out, 0, Self::SIZE);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::begin(Self::STRUCTURE, bytes, Self::SIZE, (&Self::MAGIC, Self::VERSION))?;
        let code = reader.u8()?;
        let state = MachineState::of_code(code).ok_or_else(|| reader.out_of_range("state", u64::from(code)))?;
        reader.zeros(2)?;
        let machine = reader.array()?;
        reader.check(machine != PoolAdmission::MACHINE, "machine", 0)?;
        let public_key = reader.array()?;
        let registered = reader.u64()?;
        let host = reader.text_field(Self::HOST_FIELD_BYTES, "host")?;
        reader.finish()?;
        Ok(Self { machine, public_key, host, state, registered })
    }
}

impl PoolAdmission {
    /// The id under which it lies among the machines.
    pub const MACHINE: [u8; 16] = [0; 16];
    pub const MAGIC: [u8; 8] = *b"stere-pa";
    pub const VERSION: u8 = 1;
    pub const SIZE: usize = 8 + 4 + 4;
    const STRUCTURE: &'static str = "pool's admission";

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.extend_from_slice(&Self::MAGIC);
        out.extend_from_slice(&[Self::VERSION, self.0.code(), 0, 0]);
        crate::wire::seal(&mut out, 0, Self::SIZE);
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::begin(Self::STRUCTURE, bytes, Self::SIZE, (&Self::MAGIC, Self::VERSION))?;
        let told = reader.u8()?;
        let admission = [Admission::Open, Admission::Ask].into_iter().find(|one| one.code() == told);
        let admission = admission.ok_or_else(|| reader.out_of_range("admission", u64::from(told)))?;
        reader.zeros(2)?;
        reader.finish()?;
        Ok(Self(admission))
    }
}

#[cfg(test)]
mod tests;
