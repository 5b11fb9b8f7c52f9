//! What can go wrong with a file's content. errno is chosen by the naming layer.

use thiserror::Error;

/// Errors of file contents.
#[derive(Debug, Error)]
pub enum Error {
    /// From the store: no space, damage, or that the call has to be repeated where it may wait.
    #[error(transparent)]
    Store(#[from] stere_store::Error),
    /// The inode is not there (any more).
    #[error("inode {0} does not exist; it was removed by somebody else")]
    NoInode(u64),
    /// The inode has no content of its own.
    #[error("inode {0} is not a regular file; only regular files have content")]
    NotAFile(u64),
    /// It is a directory.
    #[error("inode {0} is a directory; directories have no content to read or write")]
    IsDirectory(u64),
    /// Beyond the largest offset.
    #[error("a file ends at 16 TiB; offset and length reach beyond")]
    TooBig,
    /// Arguments that make no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// No data or hole there.
    #[error("there is no data or hole at or behind this offset")]
    NoSuchOffset,
    /// Whoever waited for the change is being killed.
    #[error("the process that asked for the change is gone; nothing was changed")]
    Abandoned,
    /// A mode this version does not do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A caller's own change within a transaction refused; the caller knows why.
    #[error("the change was refused by the layer above")]
    Refused,
    /// Stored bytes that are right by their checksums, and yet cannot be turned into content.
    #[error("blob {blob} cannot be decoded: {why}")]
    Undecodable {
        /// Which blob.
        blob: u64,
        /// What the plugin says.
        why: String,
    },
    /// It is not to be changed until this moment, in seconds since 1970.
    #[error("the file is retained: it cannot be changed before {moment}", moment = stere_policy::show_moment(*.0))]
    Retained(i64),
    /// A key is not there, or locked.
    #[error(transparent)]
    Key(stere_crypt::CryptError),
    /// A user's plugin failed; what it was for stays as it was.
    #[error(transparent)]
    Plugin(stere_plugin::StackFailure),
    /// A write past this machine that nobody knows of.
    #[error("write {0} was not offered to this owner, or was dropped when its session ended; write again")]
    NotOffered(u64),
    /// What is noted of a request of another machine is not valid.
    #[error("the note of a request of another machine is not valid ({0}); unmount and run `stere check`")]
    BadNote(String),
    /// A value in the tree is not valid.
    #[error("metadata of inode {inode} is not valid ({detail}); unmount and run `stere check`")]
    BadValue {
        /// Whose metadata.
        inode: u64,
        /// What the decoder found.
        detail: String,
    },
}

impl Error {
    /// Whether the call had no effect and is to be repeated with `Io::BLOCKING`.
    pub fn would_block(&self) -> bool {
        matches!(self, Error::Store(stere_store::Error::WouldBlock))
    }
}
