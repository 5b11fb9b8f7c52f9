//! Where a rescue copies to: the edge of this crate. The command copies into a directory, tests into memory.
//!
//! Names come from media: a sink must never follow a link that the rescue itself made, nor leave its directory.

use stere_format::{FileKind, Timestamp};

/// Why something could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkError {
    /// The name is taken already.
    Exists,
    /// This one thing could not be made or not made fully.
    Failed(String),
    /// Nothing more can be written at all.
    Stop(String),
}

/// What is restored of an inode besides content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permissions.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// How much of something was rescued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Byte for byte what it was, as certainly as checksums can tell.
    Whole,
    /// Everything that is known of it, which may not be its newest state.
    Older,
    /// Parts of it are missing.
    Damaged,
}

/// Something that was copied, or that would be.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// From the root, beginning with a slash.
    pub path: &'a [u8],
    pub inode: u64,
    pub kind: FileKind,
    pub size: u64,
    pub verdict: Verdict,
}

/// Takes what is rescued. There is a current directory (at first the root) and at most one open file.
pub trait Sink {
    /// Makes a directory in the current one and goes into it.
    fn enter(&mut self, name: &[u8]) -> Result<(), SinkError>;
    /// Goes back to the parent, after setting the attributes of the directory that is left.
    fn leave(&mut self, attributes: Option<&Attributes>) -> Result<(), SinkError>;
    /// Makes a file in the current directory and opens it.
    fn create(&mut self, name: &[u8]) -> Result<(), SinkError>;
    /// Opens a file that was made before, by its path from the root.
    fn reopen(&mut self, path: &[u8]) -> Result<(), SinkError>;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), SinkError>;
    /// Gives the open file its size and attributes, as far as they are known, and closes it.
    fn finish(&mut self, size: Option<u64>, attributes: Option<&Attributes>) -> Result<(), SinkError>;
    fn symlink(&mut self, name: &[u8], target: &[u8], attributes: &Attributes) -> Result<(), SinkError>;
    /// Makes a device node, FIFO or socket.
    fn special(&mut self, name: &[u8], rdev: u32, attributes: &Attributes) -> Result<(), SinkError>;
    /// Makes another name for what was made before.
    fn link(&mut self, existing: &[u8], name: &[u8]) -> Result<(), SinkError>;
    /// Hears of everything that is done.
    fn told(&mut self, told: &Told<'_>);
}
