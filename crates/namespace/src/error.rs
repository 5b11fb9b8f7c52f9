//! What a file system call answers when it cannot do what was asked, with the number Linux has for it.

use stere_crypt::CryptError;
use thiserror::Error;

/// Errors of file system calls.
#[derive(Debug, Error)]
pub enum Error {
    /// The call would have to wait and the caller asked not to: repeat it with `Io::BLOCKING`.
    #[error("the call has to wait for a device; repeat it on a thread that may wait")]
    WouldBlock,
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("the name exists already")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsADirectory,
    /// ENOTEMPTY.
    #[error("the directory is not empty; remove what is in it first")]
    NotEmpty,
    /// ENAMETOOLONG.
    #[error("a name has at most 255 bytes, a link's target at most 4095")]
    NameTooLong,
    /// EINVAL.
    #[error("{0}")]
    Invalid(&'static str),
    /// EINVAL, from a policy value.
    #[error(transparent)]
    Policy(stere_policy::PolicyError),
    /// EMLINK.
    #[error("the file has as many links as it can have")]
    TooManyLinks,
    /// EPERM.
    #[error("{0}")]
    NotPermitted(&'static str),
    /// EPERM: until this moment, in seconds since 1970.
    #[error("the file is retained: nobody can change or remove it before {moment}", moment = stere_policy::show_moment(*.0))]
    Retained(i64),
    /// EBUSY.
    #[error("the root of the file system cannot be renamed or removed")]
    Busy,
    /// EBUSY.
    #[error("another pool is mounted at this directory: end that with `stere volume detach` first")]
    IsJunction,
    /// ENOTCONN.
    #[error("what is here is in another pool, which is not mounted on this machine now; `stere status` tells why")]
    InsideJunction,
    /// ENOSPC.
    #[error("no space left in the pool: delete or move files, or add a device with `stere device add`")]
    NoSpace,
    /// ENOSPC too, and no room helps.
    #[error("there are too many {0}; remove some first")]
    TooMany(&'static str),
    /// EDQUOT.
    #[error("the quota of {0} is used up: delete or move files, or raise it with `stere quota set`")]
    OverQuota(String),
    /// EFBIG.
    #[error("a file ends at 16 TiB at most")]
    FileTooBig,
    /// ENXIO.
    #[error("there is no data or hole at or behind this offset")]
    NoSuchOffset,
    /// ENODATA.
    #[error("the file has no such attribute")]
    NoAttribute,
    /// E2BIG.
    #[error("an attribute's value has at most 65536 bytes")]
    AttributeTooBig,
    /// ERANGE.
    #[error("the buffer is too small, or the attribute's name too long")]
    OutOfRange,
    /// EINTR: whoever waited for the change is being killed.
    #[error("the process that asked for the change is gone; nothing was changed")]
    Abandoned,
    /// EOPNOTSUPP.
    #[error("{0}")]
    Unsupported(&'static str),
    /// EROFS.
    #[error("{0}")]
    ReadOnly(String),
    /// EROFS: it is a version of a file, or a directory of those.
    #[error("versions are read only; copy one to where you want it, or use `stere versions restore`")]
    OfVersions,
    /// EIO: content or metadata that no device has right any more, or a device that fails.
    #[error("{0}")]
    Damaged(String),
    /// On media only: EIO while they are away, EAGAIN while the bytes are fetched, EPERM where that is refused.
    #[error("{0}")]
    Elsewhere(String, stere_store::Refusal),
    /// ENOKEY where a key is locked or not there, else EIO: the pool's keys.
    #[error(transparent)]
    Key(stere_crypt::CryptError),
    /// EBUSY: a key that is still needed.
    #[error(
        "the key '{name}' is in use: {used}; take it from policies with `stere policy set PATH encrypt=no --wait` first, or destroy all of that with --yes"
    )]
    KeyInUse {
        /// Its name.
        name: String,
        /// What it encrypts.
        used: String,
    },
    /// EIO: a user's plugin failed for this file.
    #[error("{0}; take it from the file's policy (`stere policy set PATH plugins=none`), or mend it")]
    Plugin(stere_plugin::StackFailure),
    /// EINVAL: what was to be a plugin is none.
    #[error(transparent)]
    NoPlugin(stere_plugin::StackFailure),
    /// EBUSY: a plugin that is still needed.
    #[error(
        "the plugin '{name}' is in use: {used}; take it from policies with `stere policy set PATH plugins=none --wait` first"
    )]
    PluginInUse {
        /// Its name.
        name: String,
        /// What for.
        used: String,
    },
    /// ESTALE: an inode number that is no more.
    #[error("the file was removed")]
    Stale,
}

impl Error {
    /// The number Linux has for this error.
    pub fn errno(&self) -> i32 {
        match self {
            Error::WouldBlock => libc::EAGAIN,
            Error::NotFound => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotADirectory => libc::ENOTDIR,
            Error::IsADirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::Policy(stere_policy::PolicyError::Computed(_)) | Error::Unsupported(_) => libc::EOPNOTSUPP,
            Error::Invalid(_) | Error::Policy(_) | Error::NoPlugin(_) => libc::EINVAL,
            Error::TooManyLinks => libc::EMLINK,
            Error::NotPermitted(_) | Error::Retained(_) => libc::EPERM,
            Error::Busy | Error::IsJunction | Error::KeyInUse { .. } | Error::PluginInUse { .. } => libc::EBUSY,
            Error::InsideJunction => libc::ENOTCONN,
            Error::NoSpace | Error::TooMany(_) => libc::ENOSPC,
            Error::OverQuota(_) => libc::EDQUOT,
            Error::FileTooBig => libc::EFBIG,
            Error::NoSuchOffset => libc::ENXIO,
            Error::NoAttribute => libc::ENODATA,
            Error::Abandoned => libc::EINTR,
            Error::AttributeTooBig => libc::E2BIG,
            Error::OutOfRange => libc::ERANGE,
            Error::ReadOnly(_) | Error::OfVersions => libc::EROFS,
            Error::Key(CryptError::Locked(_) | CryptError::NoSuchKey(_) | CryptError::NoDefaultKey) => libc::ENOKEY,
            Error::Damaged(_) | Error::Key(_) | Error::Plugin(_) => libc::EIO,
            Error::Elsewhere(_, stere_store::Refusal::Away) => libc::EIO,
            Error::Elsewhere(_, stere_store::Refusal::Later) => libc::EAGAIN,
            Error::Elsewhere(_, stere_store::Refusal::Denied) => libc::EPERM,
            Error::Stale => libc::ESTALE,
        }
    }
}

impl From<stere_store::Error> for Error {
    fn from(error: stere_store::Error) -> Error {
        match error {
            // A missing node makes the store fetch it and repeat the closure, or say that this would block.
            stere_store::Error::WouldBlock | stere_store::Error::NodeNotInMemory => Error::WouldBlock,
            stere_store::Error::NoSpace => Error::NoSpace,
            stere_store::Error::OverLimit { holder } => Error::OverQuota(holder),
            stere_store::Error::ReadOnly { .. } | stere_store::Error::OnlyRead => Error::ReadOnly(error.to_string()),
            stere_store::Error::Elsewhere { why, refusal } => Error::Elsewhere(why, refusal),
            other => Error::Damaged(other.to_string()),
        }
    }
}

impl From<stere_file::Error> for Error {
    fn from(error: stere_file::Error) -> Error {
        match error {
            stere_file::Error::Store(error) => error.into(),
            stere_file::Error::NoInode(_) | stere_file::Error::NotOffered(_) => Error::Stale,
            stere_file::Error::NotAFile(_) => Error::Invalid("not a regular file"),
            stere_file::Error::IsDirectory(_) => Error::IsADirectory,
            stere_file::Error::Refused => Error::Invalid("the change was refused"),
            stere_file::Error::TooBig => Error::FileTooBig,
            stere_file::Error::Invalid(text) => Error::Invalid(text),
            stere_file::Error::NoSuchOffset => Error::NoSuchOffset,
            stere_file::Error::Abandoned => Error::Abandoned,
            stere_file::Error::Unsupported(text) => Error::Unsupported(text),
            stere_file::Error::Retained(until) => Error::Retained(until),
            stere_file::Error::Key(error) => Error::Key(error),
            stere_file::Error::Plugin(failure) => Error::Plugin(failure),
            error @ (stere_file::Error::BadValue { .. }
            | stere_file::Error::BadNote(_)
            | stere_file::Error::Undecodable { .. }) => Error::Damaged(error.to_string()),
        }
    }
}

impl From<CryptError> for Error {
    fn from(error: CryptError) -> Error {
        Error::Key(error)
    }
}

impl From<stere_policy::PolicyError> for Error {
    fn from(error: stere_policy::PolicyError) -> Error {
        Error::Policy(error)
    }
}
