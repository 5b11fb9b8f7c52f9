//! What can go wrong with a shared log. Read next: `lib.rs`.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No answer in time, or no connection: it may work later.
    #[error("the log at {address} does not answer: {why}; see whether the engine runs and this machine reaches it")]
    Away { address: String, why: String },
    /// It cannot be the address of any log.
    #[error("'{address}' is no address of a shared log: {why}")]
    Address { address: String, why: String },
    /// It answers, and will not do this until somebody changes something.
    #[error("the log at {address} refused: {why}")]
    Refused { address: String, why: String },
    /// Records that were asked for are trimmed.
    #[error("records before {first} are no longer in the log, and {asked} was asked for")]
    Trimmed { asked: u64, first: u64 },
    /// The log lacks what it once had: a restored backup, a hand in the table.
    #[error("the log at {address} is damaged: {why}")]
    Damaged { address: String, why: String },
}

impl Error {
    /// Whether waiting may help.
    pub fn is_away(&self) -> bool {
        matches!(self, Error::Away { .. })
    }
}

/// Why a registry takes no further machine.
pub fn too_many_machines() -> String {
    format!("{} machines have an entry there, and more are not kept", crate::MACHINES_MAX)
}
