//! Searches: what is looked for, and what is told of each file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is told of each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    Paths,
    Facts,
    Count,
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub expression: String,
    pub form: Form,
    /// What is searched is called so.
    pub name: Vec<u8>,
    /// All inodes are looked at, although an index would do.
    #[serde(default)]
    pub no_index: bool,
}

/// A file that was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundLine {
    /// From what was searched; empty if it is that.
    pub path: String,
    /// The same where it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub facts: Map<String, Value>,
}
