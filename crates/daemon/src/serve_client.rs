//! The process of a mount on a machine that does not own the pool: forwards the kernel's requests until it is unmounted or told to stop.
//!
//! Read next: `crates/client`, which does it; `serve.rs`, the owner's mount.

use std::path::PathBuf;
use std::sync::Arc;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stere_client::identities::Ids;
use stere_client::{FindOwner, Finished, Link, LinkOptions, Mount, MountError, ReadContent, WriteContent};
use stere_fuse::{BlockDevice, MountOptions, Unmounter};
use stere_machine::error::{DONE, Error, Result};
use stere_machine_tls::MachineKey;

use crate::daemon::spawn;
use crate::ending::{OPEN_FILES_PATIENCE, unblock_signals, unmount_on_signals};
use crate::junctions::Junctions;

/// Further than on a machine with its disks: a segment leaves the node out that has its parity, so that all nodes are busy only where
/// several segments are read at a time.
const READ_AHEAD_BYTES: u32 = 16 << 20;

/// A mount that was asked for.
pub struct ClientMount {
    /// Tells who the owner is.
    pub find: FindOwner,
    /// The pool's name, for /proc/mounts and the log.
    pub pool: String,
    pub pool_id: [u8; 16],
    pub machine_id: [u8; 16],
    pub key: MachineKey,
    /// Which of this machine's users and groups are which of the pool.
    pub users: Ids,
    pub groups: Ids,
    pub mountpoint: PathBuf,
    pub options: MountOptions,
    /// Reads and writes past the owner, where this machine reaches nodes.
    pub content: (Option<ReadContent>, Option<WriteContent>),
}

/// Mounts and serves until the mount ends. `ready` is called when it is mounted, whether there is an owner at the moment or not; it gets
/// the link, for those who want to know.
pub fn serve(
    request: ClientMount,
    junctions: &Arc<Junctions>,
    ready: impl FnOnce(&Arc<Link>, Unmounter),
) -> Result<u8> {
    unblock_signals();
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Error::System)?;
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let options = MountOptions {
        source: request.pool.clone(),
        shared: true,
        // sync(2) of the whole machine would wait for an owner that may be away.
        sync_requests: BlockDevice::No,
        read_ahead_bytes: READ_AHEAD_BYTES,
        ..request.options
    };
    let (pool_name, key) = (request.pool.clone(), request.key);
    let (pool, machine, users, groups) = (request.pool_id, request.machine_id, request.users, request.groups);
    let link = LinkOptions { pool, pool_name, machine, key, users, groups, now_ms: stere_multihost::boot_ms };
    let mount =
        Mount::new(request.find, link, request.content, &request.mountpoint, &options.wire(is_root)).map_err(told)?;
    // Who still has files open, or waits for an owner, gets a little time.
    let link = mount.link();
    unmount_on_signals(signals, mount.unmounter(), Some(junctions.clone()), move |is_unmounted| {
        if !is_unmounted {
            end_soon(link.clone());
        }
    })?;
    tracing::info!(pool = request.pool, mountpoint = %request.mountpoint.display(), "mounted through the pool's owner");
    ready(&mount.link(), mount.unmounter());
    mount.wait().map_err(told)?;
    tracing::info!(pool = request.pool, "unmounted, everything is durable");
    Ok(DONE)
}

fn told(error: MountError) -> Error {
    match error {
        MountError::Wire(error) => Error::Mount(error.into()),
        MountError::Start(error) => Error::System(error),
        other => Error::Refused(other.to_string()),
    }
}

/// Ends the process after a while, if the mount has not ended by then: a lazy mount cannot be unmounted any more.
fn end_soon(link: Arc<Link>) {
    drop(spawn("patience", move || {
        std::thread::sleep(OPEN_FILES_PATIENCE);
        tracing::warn!("the mount is still in use: whoever uses it gets errors");
        let is_safe = link.finish(OPEN_FILES_PATIENCE) == Finished::Durable;
        std::process::exit(i32::from(if is_safe { DONE } else { stere_machine::error::ERROR }));
    }));
}
