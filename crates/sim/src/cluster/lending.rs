//! Rows of the area `cluster` that an owner lends: a machine that mounts through it writes them to the nodes itself.
//!
//! The machine is a process of the network without a log. It writes at once or later, says so or stops in the middle: then its owner takes
//! nothing for written, and holds the row for as long as something of it may arrive. Its owner may have been replaced when it writes; then
//! nobody enters what it wrote. Invariant: a write that a machine was told of has arrived; only what it was not told of comes late.
//! Read next: `steps.rs`.

use std::time::Duration;

use stere_direct::Nodes;
use stere_format::DeviceLayout;
use stere_store::Error;

use super::files::{Lent, lend};
use super::network::End;
use super::{HOLD_MS, History, NODE_BYTES, NODES, process, told};

/// Rows that machines have and have not written.
const UNDER_WAY_MAX: usize = 4;

/// A row, and the machine that is to write it.
pub(super) struct UnderWay {
    machine: usize,
    /// The process that gave it.
    owner: usize,
    epoch: u64,
    nodes: Nodes,
    lent: Lent,
}

impl History {
    /// A machine gets a row, or does something with the one that it has.
    pub(super) fn lend(&mut self) -> Result<(), String> {
        if self.under_way.len() == UNDER_WAY_MAX || (!self.under_way.is_empty() && self.random.chance(1, 2)) {
            let which = self.random.below(self.under_way.len() as u64) as usize;
            let row = self.under_way.swap_remove(which);
            return self.write_lent(row);
        }
        if !self.owner()?.may_write() {
            return Ok(());
        }
        let mut random = self.random.fork();
        let owner = self.owner()?;
        let lent = match lend(&owner.store, &mut random) {
            Ok(None) | Err(Error::NoSpace) => return Ok(()),
            Ok(Some(lent)) => lent,
            Err(error) => return self.excuse(Err(error)).map(drop),
        };
        let chunk_bytes = owner.store.log().chunk_bytes();
        let layout = DeviceLayout::for_size(NODE_BYTES, chunk_bytes).map_err(told)?;
        let (machine, nodes) = (self.network.join(), Nodes::new(chunk_bytes));
        for (index, node) in (0..).zip(0..NODES) {
            let device = process::link(&self.network, machine, node);
            nodes.attach(index, device, layout, Duration::from_secs(5)).map_err(told)?;
        }
        let epoch = owner.store.log().stripe.devices.epoch();
        let row = UnderWay { machine, owner: owner.number, epoch, nodes, lent };
        match self.random.chance(1, 2) {
            true => self.write_lent(row),
            false => {
                self.under_way.push(row);
                Ok(())
            }
        }
    }

    fn write_lent(&mut self, row: UnderWay) -> Result<(), String> {
        let mut random = self.random.fork();
        let (machine, now_ms) = (row.machine, self.now_ms());
        let is_its_owners = self.owner()?.number == row.owner;
        if !is_its_owners && !self.network.may_arrive(machine, now_ms) {
            // By then a machine that has heard of no owner for so long writes nothing.
            return Ok(());
        }
        let stops = !is_its_owners || random.chance(1, 2);
        if stops {
            // From one call on it reaches nothing; what it sent before may be on its way.
            (0..NODES).filter(|_| random.chance(2, 3)).for_each(|node| self.network.set_slow(machine, node));
            self.network.end(machine, End::AfterCalls(random.between(1, 4)));
        }
        let is_written = row.lent.write(&row.nodes, row.epoch);
        if !is_its_owners {
            self.seen.lent_late += 1;
            return self.verify();
        }
        let until_ms = now_ms + u64::from(HOLD_MS);
        let owner = self.owner.as_mut().ok_or("nobody owns the pool")?;
        if stops || !is_written || !owner.may_write() {
            self.seen.dropped += 1;
            owner.store.log().note_given_dropped(&row.lent.row);
            owner.late.push((until_ms, row.lent));
            self.network.let_go(machine);
            return Ok(());
        }
        self.seen.lent += 1;
        match row.lent.enter(&owner.store) {
            Ok(files) => {
                owner.pending.written.extend(files);
                Ok(())
            }
            Err(error) => self.excuse(Err(error)).map(drop),
        }
    }

    /// Machines end what they have, in whatever way.
    pub(super) fn end_lent(&mut self) -> Result<(), String> {
        for row in std::mem::take(&mut self.under_way) {
            self.write_lent(row)?;
        }
        Ok(())
    }

    /// Rows to which nothing can arrive any more are anybody's.
    pub(super) fn forget_late(&mut self) {
        let now_ms = self.now_ms();
        self.owner.iter_mut().for_each(|owner| owner.late.retain(|(until_ms, _)| now_ms < *until_ms));
    }
}
