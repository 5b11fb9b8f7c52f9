//! The one error type of this program; every message names the file and the step.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{step} {}: {source}", path.display())]
    Io { step: &'static str, path: PathBuf, source: io::Error },
    #[error("wrong data in {}: {what}; the file system lost or mixed up what was written", path.display())]
    WrongData { path: PathBuf, what: String },
    #[error("difference at seed {seed}, step {step}: {what}")]
    Difference { seed: u64, step: u64, what: String },
    #[error("`{command}` failed: {what}")]
    Command { command: String, what: String },
    #[error("SQLite on {}: {what}", path.display())]
    Database { path: PathBuf, what: String },
    #[error("not coherent: {0}")]
    Incoherent(String),
    #[error("waited in vain: {0}")]
    Unmet(&'static str),
    #[error("cannot drop the kernel's caches ({0}); run as root, or cold figures mean nothing")]
    NoDropCaches(io::Error),
}

/// Turns an `io::Error` into ours, with the step and the path.
pub trait At<T> {
    fn at(self, step: &'static str, path: &Path) -> Result<T, BenchError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, step: &'static str, path: &Path) -> Result<T, BenchError> {
        self.map_err(|source| BenchError::Io { step, path: path.to_owned(), source })
    }
}
