//! Why a node cannot be used. What goes wrong later, on a device that is open, is a `DeviceError`.

#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    #[error(
        "'{text}' is no address of a device ({why}); write nbd://HOST[:PORT][/EXPORT], nbds:// with ca=FILE, or stere://HOST[:PORT]/NAME"
    )]
    Address { text: String, why: String },

    #[error("{}", told(.0))]
    Io(#[from] std::io::Error),

    #[error("{0}")]
    Wire(#[from] crate::wire::WireError),

    #[error("the server refuses export '{export}': {why}")]
    Refused { export: String, why: String },

    #[error("the server asks for TLS; write nbds:// instead of nbd://, with ca=FILE")]
    TlsRequired,

    #[error("the server has no TLS; write nbd:// instead of nbds:// if the network may be trusted")]
    TlsMissing,

    #[error("{path}: {why}")]
    Certificate { path: String, why: String },

    #[error("the server is no stere node ({0}); write nbd:// instead of stere://, or look at the port")]
    NotStere(String),

    #[error("only stere nodes (stere://) make exports; leave out size=")]
    NotProvided,

    #[error(
        "export '{export}' is there and has {found} bytes, not {wanted}; leave out size= to use it, or name another"
    )]
    OtherSize { export: String, found: u64, wanted: u64 },

    #[error("the node takes writes only from a newer owner, so another machine has the pool")]
    Fenced,

    #[error("the export cannot be used: {0}")]
    Unsuitable(String),
}

/// A step that took too long has an error that says nothing of it.
fn told(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "it does not answer".to_owned(),
        std::io::ErrorKind::UnexpectedEof => "it closed the connection while this was agreed".to_owned(),
        _ => error.to_string(),
    }
}
