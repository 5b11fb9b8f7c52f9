//! What every call names: who calls and when, and how the file system behaves.

use std::sync::Arc;

use stere_file::Context;
pub use stere_file::requests::RequestId;
use stere_format::Timestamp;
use stere_store::Io;

/// The root directory.
pub const ROOT: u64 = 1;
/// Most hard links a file can have.
pub const LINKS_MAX: u32 = 65_000;

/// Who calls, when, and whether the call may wait.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups; may be empty when the front end does not know them.
    pub groups: &'a [u32],
    /// Bits not to set in the mode of what is made.
    pub umask: u32,
    /// The front end's clock.
    pub now: Timestamp,
    /// How the call may use devices and media.
    pub io: Io<'a>,
    /// The thread that calls, where the front end knows it; else 0.
    pub process: u32,
    /// Which request this is of another machine; none for whoever calls here.
    pub request: Option<RequestId>,
}

impl<'a> Caller<'a> {
    /// The same caller for a call that passes over offloaded metadata.
    #[must_use]
    pub fn skipping_offloaded(&self) -> Caller<'a> {
        Caller { io: self.io.skipping_offloaded(), ..*self }
    }

    /// The same, as the layer of files wants it.
    pub fn context(&self) -> Context<'_> {
        Context { now: self.now, io: self.io, request: self.request.as_ref() }
    }
}

/// When reading changes the time of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessTimes {
    /// When it is older than the last change, or a day old.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// How the file system behaves; nothing in here is on media.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Times of access.
    pub access_times: AccessTimes,
    /// File contents.
    pub files: stere_file::Options,
    /// Who is meant by names of users and groups in rules.
    pub people: Option<Arc<dyn stere_policy::People>>,
    /// Who calls, for files of which that is noted.
    pub processes: Option<Arc<dyn stere_policy::Processes>>,
    /// Memory for rules of directories; 0 is 32 MiB.
    pub rules_bytes_max: usize,
    /// Programs whose reads of what is on media only are refused, by their names.
    pub refused_programs: Vec<String>,
}

/// Totals for `statfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemStatistics {
    /// Unit of the counts below.
    pub block_bytes: u32,
    /// Blocks that content of the default class can have in all.
    pub blocks: u64,
    /// Blocks free.
    pub blocks_free: u64,
    /// Inodes that can exist.
    pub files: u64,
    /// Inodes that can still be made.
    pub files_free: u64,
    /// Longest name.
    pub name_bytes_max: u32,
}
