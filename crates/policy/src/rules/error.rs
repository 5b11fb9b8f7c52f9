//! What is wrong with rules, and where: its own file, because every error of policy may hold one.

/// What is wrong with rules, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct RuleError {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in bytes.
    pub column: usize,
    /// What is wrong and what to write instead.
    pub what: String,
}
