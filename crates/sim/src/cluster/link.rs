//! The ends of the network of the area `cluster` that a process holds: a device for each node, and the log.
//!
//! Invariant: nothing reaches a node or the log but through the network. Read next: `network.rs`.

use std::sync::Arc;
use std::time::Duration;

use stere_device::{Device, DeviceError, Piece, Scatter, Ticket};
use stere_shared_log::{Bounds, Error, Machine, Put, Record, SharedLog};

use super::network::{Network, Way};
use super::process::ProcessClock;

/// A node as one process reaches it.
pub(super) struct Link {
    pub(super) network: Arc<Network>,
    pub(super) process: usize,
    pub(super) node: usize,
}

impl Device for Link {
    fn size_bytes(&self) -> u64 {
        self.network.node(self.node).size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.network.node(self.node).block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_scattered(offset, &mut [Scatter::Into(buffer)])
    }

    fn read_scattered(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let length = pieces.iter().map(Scatter::length).sum::<usize>() as u64;
        self.network.admit_read(self.process, self.node, offset, length)?;
        self.network.node(self.node).read_scattered(offset, pieces)
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        self.network.write(self.process, self.node, offset, pieces, ticket);
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.network.flush(self.process, self.node)
    }

    /// Advice, which nobody takes here.
    fn discard(&self, _offset: u64, _length: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn silent_for(&self) -> Option<Duration> {
        (self.network.way(self.process, self.node) == Way::Cut).then_some(Duration::from_secs(5))
    }

    fn describe(&self) -> String {
        format!("node {} as process {} reaches it", self.node, self.process)
    }
}

/// The log as one process reaches it.
pub(super) struct LogLink {
    pub(super) network: Arc<Network>,
    pub(super) process: usize,
    pub(super) clock: Arc<ProcessClock>,
}

impl SharedLog for LogLink {
    fn put(&self, sequence: u64, record: &[u8]) -> Result<Put, Error> {
        let put = self.network.put(self.process, sequence, record);
        if matches!(put, Ok(Put::Mine)) {
            self.clock.note_lease();
        }
        put
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<Record>, Error> {
        self.network.ask_log(self.process, |log| log.read(from, bytes_max))
    }

    fn trim(&self, before: u64) -> Result<(), Error> {
        self.network.ask_log(self.process, |log| log.trim(before))
    }

    fn bounds(&self) -> Result<Bounds, Error> {
        self.network.bounds(self.process)
    }

    fn beat(&self, beat: &[u8]) -> Result<(), Error> {
        self.network.ask_log(self.process, |log| log.beat(beat))
    }

    fn last_beat(&self) -> Result<Vec<u8>, Error> {
        self.network.ask_log(self.process, |log| log.last_beat())
    }

    fn machines(&self) -> Result<Vec<(Machine, Vec<u8>)>, Error> {
        self.network.ask_log(self.process, |log| log.machines())
    }

    fn put_machine(&self, machine: Machine, before: Option<&[u8]>, entry: &[u8]) -> Result<Put, Error> {
        self.network.ask_log(self.process, |log| log.put_machine(machine, before, entry))
    }
}
