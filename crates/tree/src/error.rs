//! The one error of this crate: nodes that do not fit together. (What cannot be read at all is the caller's error, see
//! [`crate::NodeIo`].)

use stere_format::{DecodeError, Key, NodeReference};

/// Why a tree is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    #[error("a tree node at {reference:?} cannot be used: {source}")]
    Decode { reference: NodeReference, source: DecodeError },
    #[error("the tree node at {reference:?} starts with key {found}, its parent says {expected}; run `stere check`")]
    FirstKey { reference: NodeReference, expected: Key, found: Key },
    #[error("the tree node at {reference:?} has key {found} that belongs to its neighbour; run `stere check`")]
    KeyBounds { reference: NodeReference, found: Key },
    #[error("the tree node at {reference:?} is at level {found}, its parent says otherwise; run `stere check`")]
    Level { reference: NodeReference, found: u8 },
    #[error("the tree would need more than {levels_max} levels; make nodes larger")]
    TooHigh { levels_max: u8 },
    #[error("the changes to merge do not ascend: {found} follows {previous}; sort them")]
    ChangeOrder { previous: Key, found: Key },
}
