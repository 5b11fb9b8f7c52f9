//! What operations are performed with: the file system, and what the kernel is told of opened files and of time.
//!
//! Nothing here waits for its turn or is repeated; `front.rs` does that. Read next: `perform.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use fuse_wire::abi::fopen;
use fuse_wire::{Redone, RemoteId, Request};
use parking_lot::Mutex;
use stere_naming::{Caller, FileSystem, Io, RequestId, Timestamp};

use crate::answer::{Answer, Failure};
use crate::belief::Belief;
use crate::clock::now;
use crate::opened::Opened;
use crate::options::MountOptions;

pub(crate) type Outcome = Result<Answer, Failure>;

pub(crate) const UNSUPPORTED: Outcome = Err(Failure::Errno(libc::ENOSYS));

/// Performs operations.
pub(crate) struct Performer {
    pub filesystem: Arc<FileSystem>,
    /// How long the kernel may believe what it is told.
    pub belief: Belief,
    /// Flags for opened files and directories.
    pub open_flags: u32,
    pub open_directory_flags: u32,
    /// The kernel gathers writes in its cache.
    pub gathers_writes: bool,
    /// The kernel is to give up asking for times of birth.
    pub no_birth_times: bool,
    /// What each kernel saw last of files, where others change them too.
    pub opened: Option<Opened>,
    /// Where the listings of open directories end, by handle.
    pub listings: Mutex<HashMap<u64, u64>>,
}

impl Performer {
    pub fn new(filesystem: Arc<FileSystem>, options: &MountOptions) -> Performer {
        let cache_directories = if options.cache_directories { fopen::CACHE_DIR } else { 0 };
        Performer {
            filesystem,
            belief: if options.shared { Belief::shared() } else { Belief::alone(options.time_to_live) },
            opened: options.shared.then(Opened::default),
            // Where the mount is the only writer, what the kernel has cached stays true over close and open.
            open_flags: fopen::KEEP_CACHE,
            open_directory_flags: fopen::KEEP_CACHE | cache_directories,
            gathers_writes: options.writeback_cache && !options.shared,
            no_birth_times: options.no_birth_times,
            listings: Mutex::default(),
        }
    }

    /// Who calls. Groups are not needed: the kernel has checked permissions.
    pub fn caller<'a>(&self, request: &Request, umask: u32, io: Io<'a>) -> Caller<'a> {
        let context = request.context();
        let redone = request.redone();
        let made = redone.map(|redone| redone.inode).filter(|inode| *inode != 0);
        let id = |RemoteId { session, slot, number }| RequestId { session, slot, number, made };
        let request = request.remote_id().map(id);
        // What is done again is done when it was done, if that is known.
        let then = redone.filter(|redone| (redone.seconds, redone.nanoseconds) != (0, 0));
        let now = then.map_or_else(now, |Redone { seconds, nanoseconds, .. }| Timestamp { seconds, nanoseconds });
        Caller { uid: context.uid, gid: context.gid, groups: &[], umask, now, io, process: context.pid, request }
    }

    /// The file system's own caller.
    pub fn own_caller(io: Io<'_>) -> Caller<'_> {
        Caller { uid: 0, gid: 0, groups: &[], umask: 0, now: now(), io, process: 0, request: None }
    }
}
