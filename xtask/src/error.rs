//! The one error type of the developer commands.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, XtaskError>;

#[derive(Debug, thiserror::Error)]
pub enum XtaskError {
    #[error("{step} {}: {source}", path.display())]
    Io { step: &'static str, path: PathBuf, source: io::Error },
    #[error("`{command}` {what}")]
    Command { command: String, what: String },
    /// A check found what it looks for; the details are already printed or in the text.
    #[error("{0}")]
    Found(String),
    /// Not run, and why: neither a success nor a failure, and always said loudly.
    #[error("skipped: {0}")]
    Skipped(String),
}

impl XtaskError {
    pub fn found(text: impl Into<String>) -> Self {
        XtaskError::Found(text.into())
    }

    pub fn skipped(text: impl Into<String>) -> Self {
        XtaskError::Skipped(text.into())
    }
}

/// Turns an `io::Error` into ours, with the step and the path.
pub trait At<T> {
    fn at(self, step: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, step: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| XtaskError::Io { step, path: path.to_owned(), source })
    }
}
