//! The FUSE front end: requests of the kernel, answered by naming.
//!
//! [`mount`] gives a [`FileSystem`](stere_naming::FileSystem) to the kernel. Every request is first tried on the transport's own thread
//! with `Io::NON_BLOCKING`; one that would have to wait for a device moves to a bounded lane of workers and is repeated
//! there (small reads are made by the transport's ring instead: `beside`). Reading, changing and syncing have lanes of their own, so that a slow one of them never holds up the others.
//!
//! Invariants: a request is answered exactly once, by whoever owns it (`fuse_wire::Request`); errno numbers appear
//! here and nowhere below; node ids are inode numbers, so they outlive the mount (NFS handles).
//! Read next: `front` (the life of a request), `perform` (what each operation calls), `lanes` (the workers).
#![cfg(target_os = "linux")]

mod answer;
mod belief;
mod beside;
mod cached;
mod changes;
mod clock;
mod complaints;
mod door;
mod durable;
mod error;
mod front;
mod io_profiles;
mod lanes;
mod locks;
mod opened;
mod options;
mod perform;
mod performer;
mod removals;
mod searches;
mod session;
mod turns;
mod waiter;

pub use changes::{Begun, ChangedInode, Changes, MADE, Next, Observer, WhenHeard, changes_of};
pub use door::Door;
pub use error::Error;
pub use fuse_wire::{Awake, BlockDevice, TransportChoice, Unmount, Unmounter};
pub use io_profiles::{IoProfiles, RecordingState, SUBTREES_MAX};
pub use options::{Limits, MountOptions};
pub use session::{Forgetter, Session, mount};
pub use turns::{Claim, Come, RecallLimits, Turn, Turns};
