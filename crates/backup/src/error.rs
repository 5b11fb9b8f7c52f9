//! What can go wrong at a destination.

use std::io;
use std::path::{Path, PathBuf};

/// Errors of backups.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such directory, or no marker in it: what is usually there is not attached.
    #[error("{0} is not there, or has no marker of a backup; attach what belongs there")]
    Away(PathBuf),
    /// A backup of something else.
    #[error("{0} holds another backup; attach the one that belongs there, or choose another directory")]
    Foreign(PathBuf),
    /// It would be mixed up with other files.
    #[error("{0} is not empty; choose an empty directory, or `--adopt` if it is an earlier backup of this pool")]
    NotEmpty(PathBuf),
    /// Somebody else writes or reads it.
    #[error("{0} is in use by another run, check or restore; try again when that has ended")]
    Busy(PathBuf),
    /// Its list cannot be read.
    #[error(
        "{0} is damaged ({1}); what lies in `current` can still be copied by hand, then begin anew in an empty directory"
    )]
    Damaged(PathBuf, String),
    /// There is no such state.
    #[error("there is no state '{0}'; `stere backup list` tells which there are")]
    NoState(String),
    /// Somebody wants it to end.
    #[error("it was told to stop; what was copied stays, and the next run goes on")]
    Stopped,
    /// From the file system of the destination.
    #[error("cannot {0} {1}: {2}")]
    At(&'static str, PathBuf, #[source] io::Error),
}

impl Error {
    /// Whether the destination as a whole fails, and so no other file would get there either.
    pub fn is_of_destination(&self) -> bool {
        match self {
            Error::At(_, _, error) => !matches!(
                error.raw_os_error(),
                Some(36 | 84 | 22 | 20 | 21) // ENAMETOOLONG, EILSEQ, EINVAL, ENOTDIR, EISDIR: this name alone
            ),
            _ => true,
        }
    }
}

/// Names what was tried, and where.
pub(crate) trait At<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|error| Error::At(what, path.to_owned(), error.into()))
    }
}
