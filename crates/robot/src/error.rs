//! The one error of this crate. Every message says what was found and what can be done.

use stere_format::DecodeError;

use crate::sense::{Sense, SenseKey};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RobotError {
    #[error("{device} cannot be reached: {why}; see that it is connected and on")]
    Unreachable { device: String, why: String },
    #[error("{device} is busy (status {status:#04x} to {what}); try again later")]
    Busy { device: String, what: &'static str, status: u8 },
    #[error("{device}, {what}: {sense}")]
    Refused { device: String, what: &'static str, sense: Sense },
    #[error("{device} gave an answer to {what} that is none; it may be another kind of device")]
    Malformed { device: String, what: &'static str },
    #[error("{device} is not ready after {seconds} s; see what its panel says")]
    NotReady { device: String, seconds: u64 },
    #[error("cartridge {barcode} is not in the library; put it in")]
    NotThere { barcode: String },
    #[error("insert {cartridge} into {drive}{instead}")]
    Insert { cartridge: String, drive: String, instead: String },
    #[error("cartridge {barcode} holds something else ({found}); take it out, or leave it out of cartridges=")]
    Foreign { barcode: String, found: String },
    #[error("cartridge {barcode} cannot be read at its beginning ({why}); clean the drive, then mount the pool again")]
    Unreadable { barcode: String, why: String },
    #[error("the cartridge with bar code {barcode} says that it is {found}; put the right bar code on it")]
    Mislabelled { barcode: String, found: String },
    #[error("cartridge {barcode} has no object {object}; another copy is needed")]
    NoObject { barcode: String, object: String },
    #[error("object {object} on cartridge {barcode} cannot be read: {why}; another copy is needed")]
    Damaged { barcode: String, object: String, why: String },
    #[error("cartridge {barcode} is not as it is remembered to be")]
    Stale { barcode: String },
    #[error("no cartridge of the set '{set}' has room, and none is blank; put blank cartridges in")]
    NoRoom { set: String },
    #[error(
        "cartridge {barcode} cannot be used again: {objects} objects on it are alive, or it is not ours to write to; see `stere media show`"
    )]
    InUse { barcode: String, objects: u64 },
    #[error("no drive is free or in order; see `stere media list`")]
    NoDrive,
    #[error("nobody wants any more what was asked of the library")]
    GivenUp,
    #[error("the object's name '{name}' is too long for a cartridge")]
    Name { name: String },
    #[error("the catalogue {path} cannot be used: {why}")]
    Catalogue { path: String, why: String },
    #[error(transparent)]
    Format(#[from] DecodeError),
}

impl RobotError {
    /// The device's own words, where it refused.
    pub fn sense(&self) -> Option<&Sense> {
        match self {
            RobotError::Refused { sense, .. } => Some(sense),
            _ => None,
        }
    }

    pub fn key(&self) -> Option<SenseKey> {
        self.sense().map(|sense| sense.key)
    }

    /// Where it is in the tape is not known any more.
    pub fn is_attention(&self) -> bool {
        self.key() == Some(SenseKey::Attention)
    }

    /// The device is at fault, not what it was asked for.
    pub fn is_of_device(&self) -> bool {
        match self {
            RobotError::Unreachable { .. }
            | RobotError::Busy { .. }
            | RobotError::Malformed { .. }
            | RobotError::NotReady { .. } => true,
            RobotError::Refused { sense, .. } => matches!(sense.key, SenseKey::Hardware | SenseKey::NotReady),
            _ => false,
        }
    }
}
