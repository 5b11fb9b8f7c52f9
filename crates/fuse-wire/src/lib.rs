//! The Linux FUSE protocol: kernel ABI, one dispatcher, two transports (io_uring and /dev/fuse).
//!
//! Implement [`Filesystem`], give it to [`Session::mount`]. Each [`Request`] tells its [`Operation`] and is answered
//! with one of its `reply_*` methods, at once or later from any thread. Nothing here knows what is stored or how.
//!
//! Read next: `request.rs` (the life of a request), `session.rs` (the life of a mount), `README.md` (why it exists).
#![cfg(target_os = "linux")]

pub mod abi;
mod awake;
mod buffer;
mod device;
mod directory;
mod dispatch;
mod error;
mod fusermount;
mod init;
mod interrupt;
mod loop_device;
mod mount;
mod mount_namespace;
mod named_source;
mod notify;
mod operation;
pub mod ranges;
pub mod raw;
mod remote;
mod remote_id;
mod remote_memory;
mod reply;
mod request;
mod ring;
mod session;
mod thread_state;
mod umount_command;

pub use awake::Awake;
pub use directory::{DirectoryEntry, DirectoryWriter};
pub use dispatch::Filesystem;
pub use error::Error;
pub use init::{InitOptions, Negotiated, RECOMMENDED, Transport};
pub use interrupt::Cancel;
pub use mount::{BlockDevice, MountOptions, Unmount, Unmounter};
pub use notify::Notifier;
pub use operation::{
    AttributeChanges, Changed, CopyFileRange, Forgets, Ioctl, Lock, OfferWrite, Operation, TimeChange, Write,
};
pub use remote::RemoteSession;
pub use remote_id::{Redone, RemoteContext, RemoteId};
pub use remote_memory::{RemoteAnswer, RemoteReply};
pub use reply::{Attributes, Entry, Statfs, Timestamp};
pub use request::{Context, Request};
pub use ring::{Reading, read_beside, room_beside};
pub use session::{Options, Session, TransportChoice, TransportOptions};
pub use thread_state::{is_dying, thread_status};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
