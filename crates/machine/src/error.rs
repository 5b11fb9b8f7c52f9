//! Everything that ends a command before it is done. The exit code is part of the promise to scripts.

use std::path::{Path, PathBuf};

/// Exit codes: 0 done, 1 error, 2 wrong usage, 3 done but degraded, 4 data lost.
pub const DONE: u8 = 0;
pub const ERROR: u8 = 1;
pub const USAGE: u8 = 2;
pub const DEGRADED: u8 = 3;
pub const DATA_LOST: u8 = 4;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line makes no sense: what is wrong, and what would be right.
    #[error("{0}")]
    Usage(String),
    /// Said in full where it was found: what is wrong, and what to do.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Pool(#[from] stere_pool::Error),
    #[error(transparent)]
    Device(#[from] stere_device::DeviceError),
    #[error(transparent)]
    Mount(#[from] stere_fuse::Error),
    #[error(transparent)]
    Store(#[from] stere_store::Error),
    #[error(transparent)]
    Naming(#[from] stere_naming::Error),
    #[error(transparent)]
    Backup(#[from] stere_backup::Error),
    #[error(transparent)]
    Rescue(#[from] stere_rescue::Error),
    #[error("{path}: cannot {action}: {source}; check the path and your permissions")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    System(std::io::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => USAGE,
            _ => ERROR,
        }
    }
}

/// Names what was being done with which file.
pub trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source })
    }
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.to_owned(), source: source.into() })
    }
}

pub fn refused<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Refused(text.into()))
}
