//! Keys of a pool: what is asked of them and told of them.

use serde::{Deserialize, Serialize};

use crate::secret::SentSecret;

/// What is asked about keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    List,
    /// What the pool says of all keys, as it is on media: wrapped.
    Wrapped,
    Create {
        name: String,
        secret: SentSecret,
    },
    /// One key, or all that the secret opens.
    Unlock {
        name: Option<String>,
        secret: SentSecret,
    },
    /// One key, or all.
    Lock {
        name: Option<String>,
    },
    Add {
        name: String,
        secret: SentSecret,
    },
    Change {
        name: String,
        old: SentSecret,
        new: SentSecret,
    },
    Remove {
        name: String,
        destroys: bool,
    },
}

/// A key, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyReport {
    pub name: String,
    pub number: u16,
    /// `locked` or `unlocked`.
    pub state: String,
    pub is_default: bool,
    pub made_seconds: i64,
    pub passphrases: usize,
    pub key_files: usize,
}
