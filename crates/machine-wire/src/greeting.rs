//! The first four frames of a connection: Greeting and Hello of the client, Challenge and Welcome (or a refusal) of the owner.
//!
//! Invariant: the proofs are over all that was said before, so nobody in between can change any of it. Read next: `proof.rs`.

use crate::frame::FrameError;
use crate::reader::Reader;

/// In front of a greeting, so that what is no client is told at once.
pub const MAGIC: [u8; 8] = *b"stere-mf";

/// The client's first frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    pub version: u16,
    /// Random for this connection.
    pub nonce: [u8; 32],
}

/// The owner's answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    pub version: u16,
    /// Of the owner's term.
    pub epoch: u64,
    pub nonce: [u8; 32],
}

/// What a client wants of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The requests of its kernel, in a session.
    Mount,
    /// One conversation of commands with the owner's process; no session belongs to it.
    Commands,
}

impl Purpose {
    fn code(self) -> u32 {
        match self {
            Purpose::Mount => 0,
            Purpose::Commands => 1,
        }
    }

    fn of_code(code: u32) -> Result<Purpose, FrameError> {
        [Purpose::Mount, Purpose::Commands].into_iter().find(|one| one.code() == code).ok_or(FrameError::Value)
    }
}

/// Who the client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub pool: [u8; 16],
    pub machine: [u8; 16],
    /// Random for each mount of a client: what it has open and what it was answered belongs to it.
    pub session: [u8; 16],
    /// As the owner told.
    pub epoch: u64,
    /// What the client and its kernel have agreed on: minor version of FUSE, and flags.
    pub kernel_minor: u32,
    pub purpose: Purpose,
    pub kernel_flags: u64,
    pub proof: [u8; 32],
}

/// The client is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The owner still has what belongs to the session; else the client tells it anew.
    pub is_resumed: bool,
    pub proof: [u8; 32],
}

/// Why a client is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the owner speaks another version; install the same stere on all machines")]
    Version,
    #[error("the owner serves another pool")]
    Pool,
    #[error("the owner's term is another one than it was announced; the announcement is older than the owner")]
    Epoch,
    #[error("the proof of the pool's secret is wrong; is this machine a member of the pool?")]
    Proof,
    #[error("the owner has as many clients as it serves")]
    Full,
    #[error("the owner ends")]
    Ending,
    #[error("this machine waits to be admitted to the pool")]
    Waiting,
    #[error("this machine was refused by those who run the pool")]
    NotAdmitted,
    #[error("the pool's registry does not have this machine with this key; mount the pool anew, which registers it")]
    Unknown,
}

impl Refusal {
    const ALL: [Refusal; 9] = [
        Refusal::Version,
        Refusal::Pool,
        Refusal::Epoch,
        Refusal::Proof,
        Refusal::Full,
        Refusal::Ending,
        Refusal::Waiting,
        Refusal::NotAdmitted,
        Refusal::Unknown,
    ];

    pub(crate) fn code(self) -> u16 {
        match self {
            Refusal::Version => 1,
            Refusal::Pool => 2,
            Refusal::Epoch => 3,
            Refusal::Proof => 4,
            Refusal::Full => 5,
            Refusal::Ending => 6,
            Refusal::Waiting => 7,
            Refusal::NotAdmitted => 8,
            Refusal::Unknown => 9,
        }
    }

    pub(crate) fn of_code(code: u16) -> Result<Refusal, FrameError> {
        Self::ALL.into_iter().find(|one| one.code() == code).ok_or(FrameError::Value)
    }
}

impl Greeting {
    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.nonce);
    }

    pub(crate) fn decode(mut body: Reader<'_>) -> Result<Greeting, FrameError> {
        if body.array::<8>()? != MAGIC {
            return Err(FrameError::Magic);
        }
        let version = body.u16()?;
        body.reserved::<6>()?;
        let nonce = body.array()?;
        body.end()?;
        Ok(Greeting { version, nonce })
    }
}

impl Challenge {
    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.nonce);
    }

    pub(crate) fn decode(mut body: Reader<'_>) -> Result<Challenge, FrameError> {
        let version = body.u16()?;
        body.reserved::<6>()?;
        let (epoch, nonce) = (body.u64()?, body.array()?);
        body.end()?;
        Ok(Challenge { version, epoch, nonce })
    }
}

impl Hello {
    /// What the proof is over.
    pub(crate) fn told(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72);
        out.extend_from_slice(&self.pool);
        out.extend_from_slice(&self.machine);
        out.extend_from_slice(&self.session);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.kernel_minor.to_le_bytes());
        out.extend_from_slice(&self.purpose.code().to_le_bytes());
        out.extend_from_slice(&self.kernel_flags.to_le_bytes());
        out
    }

    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.told());
        out.extend_from_slice(&self.proof);
    }

    pub(crate) fn decode(mut body: Reader<'_>) -> Result<Hello, FrameError> {
        let (pool, machine, session, epoch) = (body.array()?, body.array()?, body.array()?, body.u64()?);
        let kernel_minor = body.u32()?;
        let purpose = Purpose::of_code(body.u32()?)?;
        let (kernel_flags, proof) = (body.u64()?, body.array()?);
        body.end()?;
        Ok(Hello { pool, machine, session, epoch, kernel_minor, purpose, kernel_flags, proof })
    }
}

impl Welcome {
    pub(crate) fn encode_to(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_resumed));
        out.extend_from_slice(&[0; 7]);
        out.extend_from_slice(&self.proof);
    }

    pub(crate) fn decode(mut body: Reader<'_>) -> Result<Welcome, FrameError> {
        let is_resumed = match body.array::<1>()? {
            [0] => false,
            [1] => true,
            _ => return Err(FrameError::Value),
        };
        body.reserved::<7>()?;
        let proof = body.array()?;
        body.end()?;
        Ok(Welcome { is_resumed, proof })
    }
}
