//! A mount of a pool that another machine owns, from its first request to its last.
//!
//! Read next: `link.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fuse_wire::{Options, Session, Unmounter};

use crate::direct::WriteContent;
use crate::forwarder::Forwarder;
use crate::link::{FindOwner, Finished, Link, LinkOptions};
use crate::mapped::ReadContent;

/// How long the end of a mount waits for an owner that makes durable what was written.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// Why a pool of another machine could not be mounted, or what was lost at the end.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error(transparent)]
    Wire(#[from] fuse_wire::Error),
    #[error("the link to the pool's owner could not be started: {0}; check the limits on processes and memory")]
    Start(std::io::Error),
    #[error("unmounted, but {why}: what was written here in the last seconds and not synced may be lost")]
    Unsynced { why: &'static str },
}

/// A mounted pool of another machine. Dropping it unmounts by force.
pub struct Mount {
    link: Arc<Link>,
    session: Session,
}

impl Mount {
    /// Mounts, whether there is an owner at the moment or not.
    ///
    /// # Errors
    /// Every error says what to do about it; nothing stays mounted then.
    pub fn new(
        find: FindOwner,
        options: LinkOptions,
        content: (Option<ReadContent>, Option<WriteContent>),
        mountpoint: &Path,
        wire: &Options,
    ) -> Result<Mount, MountError> {
        let link = Link::start(find, options, content).map_err(MountError::Start)?;
        let session = Session::mount(Forwarder(Arc::clone(&link)), mountpoint, wire)?;
        Ok(Mount { link, session })
    }

    #[must_use]
    pub fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Unmounts from elsewhere: for the threads that wait for signals.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.session.unmounter()
    }

    /// Waits until it is unmounted and everything that was written is durable at the owner.
    ///
    /// # Errors
    /// Why the mount ended other than by unmounting, or that something may be lost.
    pub fn wait(self) -> Result<(), MountError> {
        let ended = self.session.join();
        let finished = self.link.finish(LAST_WAIT);
        ended?;
        match finished {
            Finished::Durable => Ok(()),
            Finished::NotInTime => Err(MountError::Unsynced {
                why: "the pool's owner has not made everything durable in time (its log or its devices do not answer; `stere status` tells there)",
            }),
            Finished::Unreached => Err(MountError::Unsynced { why: "no owner of the pool could be reached in time" }),
        }
    }
}
