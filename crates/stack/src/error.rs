//! What can go wrong, with the number Linux has for it.

use std::io;

/// Errors of a stack.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// From the file system beneath, and told on as it is.
    #[error("{0}")]
    Beneath(#[from] io::Error),
    /// A file that is not what this crate writes, though it looks like it.
    #[error("the file is stored in a form that is damaged or not known ({0}); restore it from a copy")]
    Damaged(String),
    /// What its plugins, or those that are to have it, say.
    #[error(transparent)]
    Plugin(#[from] stere_plugin::StackFailure),
    /// A plugin that was not given.
    #[error("the file passed the plugin '{0}', which was not given; mount with --plugin {0}=FILE")]
    NoPlugin(String),
    /// It is encrypted, and no key was given.
    #[error("the file is encrypted; mount with the key file")]
    NoKey,
    /// A key that does not open.
    #[error(transparent)]
    Key(#[from] stere_crypt::CryptError),
    /// Rules that do not parse.
    #[error("rule {line}: {why}")]
    Rule {
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what to write.
        why: String,
    },
    /// The mount.
    #[error(transparent)]
    Mount(#[from] fuse_wire::Error),
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Error {
        Error::Beneath(error.into())
    }
}

impl Error {
    /// The number for the kernel.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Beneath(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Error::NoKey => libc::ENOKEY,
            _ => libc::EIO,
        }
    }
}
