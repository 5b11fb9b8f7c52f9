//! Moving the journal and the roots of a closed pool: from its devices to a shared log, or back.
//!
//! Invariant: there is only a root to move, for the pool was closed in order; the old place counts until every device says otherwise.
//! Read next: the journal's `tail.rs`.

use stere_format::Superblock;
use stere_journal::Tail;

use crate::assemble::Assembly;
use crate::error::Error;

impl Assembly {
    /// Moves the log of a pool that nobody has open into an empty shared log, or to its devices.
    pub fn move_log(&self, to: Option<&Tail>) -> Result<(), Error> {
        let pool = self.newest.pool_name.clone();
        if !self.unexpectedly_missing().is_empty() {
            return Err(Error::WouldNotHear { pool, missing: self.describe_missing(&|_| None) });
        }
        if !self.newest.clean {
            return Err(Error::NotClosed { pool });
        }
        let generation = self.newest.generation + 1;
        // An empty journal is given mirrors when the pool is opened.
        let root = Superblock { generation, journal_devices: Vec::new(), ..self.newest.clone() };
        let root = Superblock { is_log_shared: to.is_some(), ..root };
        // Nobody may take the pool from the old log either, while devices are told.
        let last_there = self.tail.as_deref().map(|tail| (tail, Superblock { is_log_shared: true, ..root.clone() }));
        for (tail, root) in last_there.into_iter().chain(to.map(|tail| (tail, root.clone()))) {
            tail.put_root(&root).map_err(stere_store::Error::from)?;
        }
        for member in &self.members {
            let superblock = Superblock {
                generation,
                is_log_shared: root.is_log_shared,
                journal_devices: Vec::new(),
                ..self.newest_for(member)
            };
            let written = member.write_superblock(&superblock, &superblock.encode()?);
            written.map_err(|source| Error::Unwritable { device: member.path.clone(), source })?;
        }
        Ok(())
    }
}
