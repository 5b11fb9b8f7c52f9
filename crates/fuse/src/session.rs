//! A mounted pool, from `mount` to the last change made durable.

use std::path::Path;
use std::sync::{Arc, Weak};

use fuse_wire::{Transport, Unmount, Unmounter};
use stere_naming::{FileSystem, Io};
use stere_store::Store;

use crate::changes::{ChangedInode, Changes};
use crate::door::Door;
use crate::error::Error;
use crate::front::Front;
use crate::io_profiles::IoProfiles;
use crate::options::MountOptions;
use crate::performer::Performer;
use crate::turns::Turns;

/// Makes the kernel forget what it has in memory; for others than those who answer its requests.
#[derive(Clone)]
pub struct Forgetter {
    notifier: fuse_wire::Notifier,
    front: Weak<Front>,
}

impl Forgetter {
    /// Content and attributes of inodes, and names in directories. What the kernel does not have is no error. Kernels of other machines
    /// are told as well.
    pub fn forget(&self, inodes: &[u64], names: &[(u64, Vec<u8>)]) {
        if inodes.is_empty() && names.is_empty() {
            return;
        }
        let whole = |node: &u64| ChangedInode { node: *node, offset: 0, length: 0 };
        let inodes_changed = inodes.iter().map(whole).collect();
        self.tell_others(Changes { inodes: inodes_changed, names: names.to_vec(), ..Changes::default() });
        let mut outcome = Ok(());
        for (directory, name) in names {
            outcome = outcome.and(self.notifier.invalidate_entry(*directory, name));
        }
        for inode in inodes {
            outcome = outcome.and(self.notifier.invalidate_inode(*inode, 0, 0));
        }
        if let Err(error) = outcome {
            tracing::warn!(%error, "the kernel could not be told to forget all that it should");
        }
    }

    fn tell_others(&self, changes: Changes) {
        if let Some(front) = self.front.upgrade() {
            front.changed_here(changes);
        }
    }

    /// Attributes of an inode and a range of its content, which was changed past the kernel. Waits for what the kernel reads or
    /// writes of the range, so no thread that answers its requests may call it.
    ///
    /// # Errors
    /// Why the kernel did not take it; a mount that is gone is none.
    pub fn forget_range(&self, inode: u64, offset: u64, length: u64) -> std::io::Result<()> {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let range = ChangedInode { node: inode, offset: signed(offset), length: signed(length) };
        self.tell_others(Changes { inodes: vec![range], ..Changes::default() });
        match self.notifier.invalidate_inode(range.node, range.offset, range.length) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            outcome => outcome,
        }
    }
}

/// A file system given to the kernel. Dropping it unmounts by force; `wait` is the proper end.
pub struct Session {
    wire: Option<fuse_wire::Session>,
    front: Arc<Front>,
    /// Ends those who send requests through the door.
    before_end: Option<Box<dyn FnOnce() + Send>>,
}

/// Mounts `filesystem`, which lives in `store`, on `mountpoint` and serves it on threads of its own.
///
/// Background work (`FileSystem::step`, `Store::step`) and closing the store are the caller's business;
/// `Session::requests_served` tells when the mount is idle.
///
/// # Errors
/// Every error says what to do about it; nothing stays mounted then.
pub fn mount(
    filesystem: Arc<FileSystem>,
    store: Arc<Store>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session, Error> {
    assert!(Arc::ptr_eq(filesystem.store(), &store), "the file system lives in another store");
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    filesystem.hold_removed();
    let front = Front::new(filesystem, options);
    let started = front.start().and_then(|()| {
        let wire = fuse_wire::Session::mount(Arc::clone(&front), mountpoint, &options.wire(root))?;
        Ok(wire)
    });
    match started {
        Ok(wire) => {
            front.set_unmounter(wire.unmounter());
            let over_io_uring = wire.negotiated().transport == Transport::IoUring;
            let sync_requests = wire.negotiated().syncfs;
            tracing::info!(mountpoint = %mountpoint.display(), over_io_uring, sync_requests, "mounted");
            Ok(Session { wire: Some(wire), front, before_end: None })
        }
        Err(error) => {
            front.stop();
            Err(error)
        }
    }
}

impl Session {
    /// Waits until it is unmounted, every request was answered and all changes are durable. When the kernel sends nothing more,
    /// and before the last changes are made durable, `end_others` ends those who use the file system beside the kernel; it
    /// tells whether what they left in memory can be trusted.
    ///
    /// # Errors
    /// Why the mount ended other than by unmounting, or why the last changes are not durable.
    pub fn wait(mut self, end_others: impl FnOnce() -> bool) -> Result<(), Error> {
        let ended = match self.wire.take() {
            Some(wire) => wire.join().map_err(Error::from),
            None => Ok(()),
        };
        self.before_end.take().into_iter().for_each(|end| end());
        self.front.stop();
        if !end_others() || self.front.has_panicked() {
            // Memory may hold half a change: what is durable is what can be trusted.
            return Err(Error::WorkerPanicked);
        }
        ended?;
        self.front.filesystem().close(&Performer::own_caller(Io::BLOCKING)).map_err(Error::Close)
    }

    /// Unmounts. `wait` then returns, when files that are still open (after a lazy one) are closed.
    ///
    /// # Errors
    /// While files are open, unless it is lazy or by force.
    pub fn unmount(&self, how: Unmount) -> Result<(), Error> {
        match &self.wire {
            Some(wire) => Ok(wire.unmounter().unmount(how)?),
            None => Ok(()),
        }
    }

    /// Unmounts from elsewhere: for the threads that wait for signals.
    #[must_use]
    pub fn unmounter(&self) -> Option<Unmounter> {
        self.wire.as_ref().map(fuse_wire::Session::unmounter)
    }

    /// Tells the kernel to forget what it caches.
    #[must_use]
    pub fn notifier(&self) -> Option<fuse_wire::Notifier> {
        self.wire.as_ref().map(fuse_wire::Session::notifier)
    }

    /// For those who lock what the kernel may still know.
    #[must_use]
    pub fn forgetter(&self) -> Option<Forgetter> {
        let front = Arc::downgrade(&self.front);
        self.wire.as_ref().map(|wire| Forgetter { notifier: wire.notifier(), front })
    }

    /// Whose turn it is to wait for media, for those who read beside the kernel.
    #[must_use]
    pub fn turns(&self) -> Arc<Turns> {
        Arc::clone(&self.front.turns)
    }

    /// `end` is called when the kernel sends nothing more, and before nobody else's requests are performed any more.
    pub fn before_end(&mut self, end: Box<dyn FnOnce() + Send>) {
        self.before_end = Some(end);
    }

    /// What the load is like.
    #[must_use]
    pub fn io_profiles(&self) -> Arc<IoProfiles> {
        Arc::clone(&self.front.io_profiles)
    }

    /// For requests of other machines' kernels.
    #[must_use]
    pub fn door(&self) -> Door {
        Door(Arc::clone(&self.front))
    }

    /// Requests that arrived since mounting. Unchanged for a while: the mount is idle.
    #[must_use]
    pub fn requests_served(&self) -> u64 {
        self.front.served()
    }

    /// A counter of the same that outlives the borrow.
    pub fn request_counter(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let front = Arc::clone(&self.front);
        move || front.served()
    }

    /// Whether requests come over io_uring (or over /dev/fuse).
    #[must_use]
    pub fn over_io_uring(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.negotiated().transport == Transport::IoUring)
    }

    /// Whether sync(2) and syncfs(2) reach the file system.
    #[must_use]
    pub fn syncs_arrive(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.negotiated().syncfs)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.take() {
            // Unmounts by force and waits for its threads.
            drop(wire);
            self.before_end.take().into_iter().for_each(|end| end());
            self.front.stop();
        }
    }
}
