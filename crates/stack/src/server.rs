//! The mount: names and attributes are those of the source, content passes the stack.
//!
//! A node is an open directory entry of the source (an `O_PATH` descriptor), so it is found whatever is renamed. Requests are answered
//! on the threads that bring them in, which may wait for the source. Permissions are checked by the kernel, by modes and ACLs of the source,
//! and by the file system beneath for whoever runs the mount.
//! Read next: `server/nodes.rs`, `server/operations.rs`, `server/permissions.rs`, `server/content.rs`.

mod content;
mod following;
mod nodes;
mod operations;
mod permissions;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fuse_wire::{MountOptions, Operation, Request, Session, TransportChoice, TransportOptions};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

use crate::coder::Coder;
use crate::error::Error;
use crate::key::KEY_FILE_NAME;
use crate::queue::{QUEUE_FILE_NAME, Queue};
use crate::way::Rules;

use content::Handle;
use nodes::Nodes;

/// How long the kernel may believe what it is told: the source can be changed beneath.
const TIME_TO_LIVE: Duration = Duration::from_secs(1);
/// Requests that may wait for the source at once.
const THREADS: usize = 8;

/// What a mount is to do.
#[derive(Debug, Clone)]
pub struct Options {
    pub rules: Rules,
    /// Where changes are noted that are to be followed up, if rules ask for that.
    pub queue: Option<Arc<Queue>>,
    /// The clock, in seconds since 1970.
    pub now_seconds: fn() -> i64,
    pub allow_other: bool,
    pub read_only: bool,
}

/// A source that is mounted.
pub(crate) struct Server {
    rules: Rules,
    coder: Arc<Coder>,
    nodes: Nodes,
    /// What is made is then given to whoever made it; others can make things for themselves only.
    is_root: bool,
    /// Where the source is, as the kernel tells it.
    source: Vec<u8>,
    handles: Mutex<FxHashMap<u64, Arc<Handle>>>,
    queue: Option<Arc<Queue>>,
    now_seconds: fn() -> i64,
    /// Which followed file each handle was opened for writing of.
    writers: Mutex<FxHashMap<u64, Vec<u8>>>,
    next_handle: AtomicU64,
}

/// Mounts `source` on `mountpoint`.
pub fn mount(source: &Path, mountpoint: &Path, coder: Arc<Coder>, options: &Options) -> Result<Session, Error> {
    for way in options.rules.ways() {
        coder.stack(way)?;
        if way.is_encrypted && coder.key.is_none() {
            return Err(Error::NoKey);
        }
    }
    let source = source.canonicalize()?;
    // That of whoever calls is applied (`permissions.rs`), and not this process's.
    rustix::process::umask(Mode::empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root: OwnedFd = rustix::fs::open(&source, flags, Mode::empty())?;
    let server = Server {
        rules: options.rules.clone(),
        coder,
        is_root: rustix::process::geteuid().is_root(),
        nodes: Nodes::new(root)?,
        source: source.as_os_str().as_bytes().to_vec(),
        handles: Mutex::default(),
        queue: options.queue.clone(),
        now_seconds: options.now_seconds,
        writers: Mutex::default(),
        next_handle: AtomicU64::new(1),
    };
    let mount = MountOptions {
        source: source.display().to_string(),
        subtype: "stere-stack".into(),
        allow_other: options.allow_other,
        read_only: options.read_only,
        ..MountOptions::default()
    };
    // Threads that may wait, which those of io_uring may not.
    let choice = TransportChoice::Device;
    let transport =
        TransportOptions { choice, device_threads: THREADS, keep_cpus_awake: false, ..TransportOptions::default() };
    let mut wire = fuse_wire::Options { mount, transport, ..fuse_wire::Options::default() };
    // The kernel takes set-id bits away by changing the mode, before it writes.
    use fuse_wire::abi::init;
    let beneath = init::HANDLE_KILLPRIV_V2 | init::EXPORT_SUPPORT;
    // Not every name that is listed needs a node.
    wire.init.flags &= !(beneath | init::DO_READDIRPLUS | init::READDIRPLUS_AUTO);
    // A file that is emptied gets the way of its name, which must be known when it is opened.
    wire.init.flags |= init::ATOMIC_O_TRUNC;
    Ok(Session::mount(server, mountpoint, &wire)?)
}

impl Server {
    fn new_handle(&self, handle: Handle) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let other = self.handles.lock().insert(number, Arc::new(handle));
        assert!(other.is_none(), "handle {number} is given out twice");
        number
    }

    fn handle_of(&self, number: u64) -> Result<Arc<Handle>, Error> {
        self.handles.lock().get(&number).cloned().ok_or_else(|| errno(libc::EBADF))
    }

    /// The path of a name from the source on, where a rule asks for paths.
    fn path_from_source(&self, directory: u64, name: &[u8]) -> Result<Vec<u8>, Error> {
        if !self.rules.needs_path() {
            return Ok(Vec::new());
        }
        let above = std::fs::read_link(self.nodes.get(directory)?.path())?;
        let above = above.as_os_str().as_bytes();
        let below = above.strip_prefix(&self.source[..]).unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        Ok(if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() })
    }
}

/// An error by its number.
fn errno(number: i32) -> Error {
    Error::Beneath(std::io::Error::from_raw_os_error(number))
}

/// Whether it is a name that the source keeps for itself.
fn is_own(name: &[u8]) -> bool {
    name == KEY_FILE_NAME.as_bytes() || name.starts_with(QUEUE_FILE_NAME.as_bytes())
}

/// A name as the system takes it. What the source keeps for itself is not there.
fn name_of(name: &[u8]) -> Result<&OsStr, Error> {
    if is_own(name) {
        return Err(errno(libc::EPERM));
    }
    Ok(OsStr::from_bytes(name))
}

impl fuse_wire::Filesystem for Server {
    fn handle(&self, mut request: Request) {
        match request.operation() {
            Operation::Forget { node, lookups } => {
                self.nodes.forget(node, lookups);
                return request.reply_none();
            }
            Operation::BatchForget { forgets } => {
                forgets.iter().for_each(|(node, lookups)| self.nodes.forget(node, lookups));
                return request.reply_none();
            }
            _ => {}
        }
        match self.perform(&mut request) {
            Ok(answer) => answer.send(request),
            Err(error) => {
                if !matches!(error, Error::Beneath(_)) {
                    tracing::error!(%error, "a request failed");
                }
                request.reply_error(error.errno());
            }
        }
    }
}
