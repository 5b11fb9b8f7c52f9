//! What can go wrong, with what to do about it, and the number that C programs get.

use std::path::PathBuf;

use stere_client_wire::frame::FrameError;

/// Errors of the library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Open { path: PathBuf, source: std::io::Error },
    #[error("the daemon of the pool cannot be asked: {0}")]
    Daemon(#[from] stere_client_wire::Error),
    /// What the daemon says to a request.
    #[error("{text}")]
    Answer { errno: i32, text: String },
    /// The daemon does not open the file.
    #[error("{0}")]
    Refused(String),
    #[error("the session with the pool's daemon has ended (it was unmounted, or the daemon died); open the file again")]
    Ended,
    #[error("the pool's daemon is of another version ({0}); unmount the pool and mount it again")]
    Version(String),
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: std::io::Error },
    /// What an argument cannot be.
    #[error("{0}")]
    Usage(&'static str),
    #[error("{device}: {source}")]
    Device { device: PathBuf, source: stere_device::DeviceError },
    #[error(transparent)]
    Pool(#[from] stere_pool::Error),
    #[error(transparent)]
    Store(#[from] stere_store::Error),
    /// Of a pool that this process has open itself.
    #[error(transparent)]
    Naming(#[from] stere_naming::Error),
    #[error("the pool cannot be written to: {0}; open it for writing, or mount it to see what is the matter")]
    ReadOnly(String),
    #[error("files of the pool are still open; close them first")]
    FilesOpen,
}

impl Error {
    /// The number Linux has for this error.
    pub fn errno(&self) -> i32 {
        let of = |error: &std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        match self {
            Error::Open { source, .. } | Error::System { source, .. } => of(source),
            Error::Daemon(stere_client_wire::Error::System(error)) => of(error),
            Error::Daemon(stere_client_wire::Error::NotStere) => libc::EXDEV,
            Error::Daemon(stere_client_wire::Error::NoDaemon { .. }) | Error::Ended => libc::ENOTCONN,
            Error::Daemon(stere_client_wire::Error::Stranger { .. }) => libc::EPERM,
            Error::Answer { errno, .. } => *errno,
            Error::Refused(_) => libc::EACCES,
            Error::Version(_) => libc::EPROTO,
            Error::Usage(_) => libc::EINVAL,
            Error::Device { source: stere_device::DeviceError::Busy { .. }, .. } | Error::FilesOpen => libc::EBUSY,
            Error::Device { source, .. } => source.os_error().unwrap_or(libc::EIO),
            Error::Pool(_) => libc::EINVAL,
            Error::Store(_) => libc::EIO,
            Error::Naming(error) => error.errno(),
            Error::ReadOnly(_) => libc::EROFS,
        }
    }

    pub(crate) fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::System { action, source }
    }
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Error {
        Error::Version(error.to_string())
    }
}
