//! The one error of this crate: why a trace or a table could not be read. Each message says what is wrong, where, and what to do.

use stere_format::DecodeError;

/// Why what was given is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    #[error("this is no trace of calls: {0}")]
    NotATrace(#[from] DecodeError),
    #[error("the table has no column {column}; its first line must name its columns, separated by tabs")]
    NoColumn { column: &'static str },
    #[error("line {line}: {column} is {found:?}; expected {expected}")]
    BadField { line: usize, column: &'static str, found: String, expected: &'static str },
    #[error("line {line} has fewer columns than the first line names; complete or remove it")]
    ShortLine { line: usize },
    #[error("line {line} comes before any `# DXT, file_id:` line; give the whole output of darshan-dxt-parser")]
    NoFile { line: usize },
}
