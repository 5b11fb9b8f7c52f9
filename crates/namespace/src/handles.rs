//! What calls on contents take and give.

/// Number of an open file; says nothing by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags {
    /// For writing.
    pub write: bool,
    /// Empty it.
    pub truncate: bool,
    /// `create` fails when the name exists.
    pub exclusive: bool,
    /// For reading; who opens for neither reads too.
    pub read: bool,
}

impl OpenFlags {
    /// From the flags of open(2).
    pub fn from_linux(flags: i32) -> OpenFlags {
        OpenFlags {
            write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            truncate: flags & libc::O_TRUNC != 0,
            exclusive: flags & libc::O_EXCL != 0,
            read: flags & libc::O_ACCMODE != libc::O_WRONLY,
        }
    }
}
