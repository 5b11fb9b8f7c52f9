//! Writes of far machines past this one: offered, entered or given up.
//!
//! An offer is a write: checks and followers see it, and what is entered later was allowed then. Read next: `stere_file::DirectWrites`.

use stere_format::{OfferAnswer, WriteOffer};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;

use crate::filesystem::FileSystem;
use crate::pipeline::{Done, Kind, Op};

/// The calls of one far machine's session.
pub struct FarWrites<'a> {
    filesystem: &'a FileSystem,
    session: u64,
}

impl FileSystem {
    /// For writes of a session past this machine.
    pub fn far_writes(&self, session: u64) -> FarWrites<'_> {
        FarWrites { filesystem: self, session }
    }
}

impl FarWrites<'_> {
    fn writes(&self) -> &stere_file::DirectWrites {
        &self.filesystem.namespace.core.files.direct_writes
    }

    /// How many handles of a file there are, of all kernels and programs; none where that cannot be told without waiting.
    pub fn opens(&self, inode: u64) -> Option<u32> {
        self.filesystem.namespace.core.files.table.opens(inode)
    }

    /// Whether a file may grow by so much, as far as can be told now: then the session may answer writes before they are made.
    pub fn has_room(&self, caller: &Caller<'_>, inode: u64, bytes: u64) -> bool {
        assert!(bytes > 0, "room is asked for something");
        self.writes().has_room(&caller.context(), inode, bytes).unwrap_or(false)
    }

    /// Takes an offer to write at `offset`. `kill_suid_sgid`: the writer has no privilege to keep set-id bits.
    pub fn offer(
        &self,
        caller: &Caller<'_>,
        inode: u64,
        offset: u64,
        offer: &WriteOffer,
        kill_suid_sgid: bool,
    ) -> Result<OfferAnswer, Error> {
        let kind = Kind::Write { kill_set_id: kill_suid_sgid };
        let op = Op::new(caller, inode, kind).at(offset, offer.content_bytes());
        let take = || Ok(self.writes().offer(&caller.context(), self.session, inode, offset, offer.clone())?);
        let is_changed = |answer: &OfferAnswer| matches!(answer, OfferAnswer::Granted(_));
        self.filesystem.pipeline.run(&op, take, |answer| Done { is_changed: is_changed(answer), ..Done::default() })
    }

    /// What was offered is on the devices, and becomes the file's; gives how many bytes.
    pub fn enter(&self, caller: &Caller<'_>, inode: u64, number: u64) -> Result<u64, Error> {
        let entered = self.writes().enter(&caller.context(), self.session, number);
        let (_, range) = self.filesystem.namespace.core.told(caller.io, inode, entered)?;
        assert!(range.start < range.end, "what is entered has bytes");
        Ok(range.end - range.start)
    }

    /// What was offered is given up.
    pub fn withdraw(&self, number: u64) -> Result<(), Error> {
        Ok(self.writes().withdraw(self.session, number)?)
    }

    /// Waits for all that any session has offered, for those who make everything durable that was written.
    pub fn wait_for_all(&self, caller: &Caller<'_>) -> Result<(), Error> {
        Ok(self.writes().wait_for_all(caller.io)?)
    }

    /// The session is over: nothing that it offered is entered any more.
    pub fn end(&self) {
        self.writes().end_session(self.session);
    }
}
