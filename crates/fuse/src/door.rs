//! The door for requests of other machines' kernels: they are served as those of this machine's kernel are.
//!
//! Whoever forwards them makes requests of bytes (`fuse_wire::RemoteSession`) and gives them to [`Door::serve`]; what any kernel has
//! changed, those of others are told through [`Door::on_changes`]. Invariant: a forget does not come here, because only who counts the
//! references of all far kernels knows when an inode is forgotten. Read next: `front.rs`.

use std::sync::Arc;

use fuse_wire::{Filesystem, Request};
use stere_naming::{FileSystem, Io};

use crate::changes::{Changes, Observer};
use crate::error::Error;
use crate::front::Front;
use crate::options::MountOptions;
use crate::performer::Performer;

/// Lets requests of other machines in; clone it freely.
#[derive(Clone)]
pub struct Door(pub(crate) Arc<Front>);

impl Door {
    /// Of a file system that no kernel of this machine has mounted. `close` ends it.
    ///
    /// # Errors
    /// Without threads.
    pub fn alone(filesystem: Arc<FileSystem>, options: &MountOptions) -> Result<Door, Error> {
        filesystem.hold_removed();
        let front = Front::new(filesystem, options);
        match front.start() {
            Ok(()) => Ok(Door(front)),
            Err(error) => {
                front.stop();
                Err(error)
            }
        }
    }

    /// Ends the threads of a door that was made `alone`, when nothing comes through it any more.
    pub fn close(&self) {
        self.0.stop();
    }

    /// Performs a request, now or later; its answer goes where it says.
    pub fn serve(&self, request: Request) {
        self.0.handle(request);
    }

    #[must_use]
    pub fn filesystem(&self) -> &Arc<FileSystem> {
        self.0.filesystem()
    }

    /// `observer` hears of all that requests change. Only the first who asks is told.
    pub fn on_changes(&self, observer: Observer) {
        self.0.observe(observer);
    }

    /// `is_known` tells whether a far kernel knows an inode that this machine's kernel forgets. Only the first who asks is heard.
    pub fn on_forget(&self, is_known: Box<dyn Fn(u64) -> bool + Send + Sync>) {
        self.0.ask_before_forgetting(is_known);
    }

    /// Takes references back from a node that is only there for a search. False: it is a file's.
    #[must_use]
    pub fn forget_search(&self, node: u64, count: u64) -> bool {
        self.0.forget_search(node, count)
    }

    /// Tells this machine's kernel to forget what another one has changed. Never on a thread that a kernel waits for.
    pub fn forget_here(&self, changes: &Changes) {
        self.0.forget_here(changes);
    }

    /// A far kernel waits with this request, and got a signal.
    pub fn interrupt(&self, tag: u64, unique: u64) {
        self.0.locks.interrupt(Some(tag), unique);
    }

    /// A far kernel has opened again what it had open: what it opens next it reads anew.
    pub fn doubt_pages(&self, tag: u64) {
        self.0.doubt_pages(tag);
    }

    /// A far kernel is gone: its locks go.
    pub fn end(&self, tag: u64) {
        self.0.end_kernel(tag);
    }

    /// No far kernel knows the inode any more.
    pub fn forgotten(&self, inode: u64) {
        if let Err(error) = self.filesystem().forget(&Performer::own_caller(Io::BLOCKING), inode) {
            tracing::debug!(inode, %error, "a removed file could not be freed yet");
        }
    }

    /// Lets a handle of a far kernel go that is gone itself.
    pub fn release(&self, inode: u64, handle: u64) {
        self.0.release(inode, handle);
    }

    /// Makes all that was done before durable.
    ///
    /// # Errors
    /// Why it is not.
    pub fn sync(&self) -> Result<(), stere_naming::Error> {
        self.filesystem().syncfs(&Performer::own_caller(Io::BLOCKING))
    }

    /// Makes the names and attributes that were changed before durable, and the contents that were handed to the store.
    ///
    /// # Errors
    /// Why they are not.
    pub fn commit(&self) -> Result<(), stere_naming::Error> {
        self.filesystem().fsyncdir(&Performer::own_caller(Io::BLOCKING), stere_naming::ROOT)
    }

    /// Whether something in the pool may be encrypted: what is named there can be named by the next owner only if it has the keys.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        stere_naming::has_keys(self.filesystem())
    }

    /// How many handles of a file there are, of all kernels; none where that cannot be told without waiting.
    #[must_use]
    pub fn opens(&self, tag: u64, inode: u64) -> Option<u32> {
        self.filesystem().far_writes(tag).opens(inode)
    }

    /// Whether an inode may have a name in this directory, as far as can be told without waiting.
    #[must_use]
    pub fn may_be_in(&self, inode: u64, directory: u64) -> bool {
        let caller = Performer::own_caller(Io::NON_BLOCKING);
        let has_one_name = self.filesystem().getattr(&caller, inode).is_ok_and(|attributes| attributes.nlink < 2);
        !has_one_name || self.filesystem().parent(&caller, inode).map_or(true, |parent| parent == directory)
    }

    /// The inode that has a name now, if any has.
    ///
    /// # Errors
    /// Where that cannot be told without waiting.
    pub fn named(&self, directory: u64, name: &[u8]) -> Result<Option<u64>, stere_naming::Error> {
        match self.filesystem().lookup(&Performer::own_caller(Io::NON_BLOCKING), directory, name) {
            Ok(attributes) => Ok(Some(attributes.inode)),
            Err(error @ stere_naming::Error::WouldBlock) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Whether a file may grow by so much, as far as can be told now.
    #[must_use]
    pub fn has_room_to_gather(&self, tag: u64, inode: u64, bytes: u64) -> bool {
        self.filesystem().far_writes(tag).has_room(&Performer::own_caller(Io::NON_BLOCKING), inode, bytes)
    }

    /// Whether what is written to a file is durable before that is answered, as far as can be told now.
    #[must_use]
    pub fn is_durable_at_once(&self, inode: u64) -> bool {
        self.filesystem().durability.may_be_always([inode])
    }

    /// Leaves numbers out that an owner before may have given to inodes which it could not commit: they are given again to the same.
    ///
    /// # Errors
    /// Why that is not durable.
    pub fn leave_inodes_out(&self) -> Result<(), stere_naming::Error> {
        stere_naming::leave_inodes_out(self.filesystem())?;
        self.commit()
    }

    /// Makes one file durable.
    ///
    /// # Errors
    /// Why it is not.
    pub fn sync_file(&self, inode: u64) -> Result<(), stere_naming::Error> {
        self.filesystem().sync_file(&Performer::own_caller(Io::BLOCKING), inode)
    }

    /// The pool has stopped writing.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.filesystem().store().failure().is_some()
    }

    /// What is in memory may be half a change.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.0.has_panicked()
    }
}
