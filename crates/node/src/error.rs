//! Why a node cannot serve, or an export cannot be given. What goes wrong in a request is a number of the protocol.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("{} is not a directory; make it, or name another one", .path.display())]
    NotADirectory { path: PathBuf },

    #[error("{} is served by another process; stop that one, or serve another directory", .path.display())]
    InUse { path: PathBuf },

    #[error("cannot listen at {address} ({source}); name an address of this machine and a free port: ADDRESS:PORT")]
    Listen { address: String, source: io::Error },

    #[error("cannot {what} {} ({source}); see that its file system is there and may be written", .path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },

    #[error(
        "'{name}' is no name of an export; take 1 to 255 letters, digits and '-', '_', '.', and do not begin with '.'"
    )]
    Name { name: String },

    #[error("there is no export '{name}'; give the device size= where it is to be made")]
    NoExport { name: String },

    #[error("export '{name}' is not a regular file; name another one")]
    NotAFile { name: String },

    #[error("an export cannot have {size_bytes} bytes; take a multiple of 4096, and no more than 2^62")]
    Size { size_bytes: u64 },

    #[error("the node has {max} exports, which is as many as there may be; remove one that nobody uses")]
    TooMany { max: usize },

    #[error(
        "{} is damaged ({why}), so nobody knows which owner may write; when no older owner runs any more, remove it", .path.display()
    )]
    Fence { path: PathBuf, why: &'static str },
}

impl NodeError {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> NodeError {
        let path = path.into();
        move |source| NodeError::File { what, path, source }
    }
}
