//! A state of the model: the log, nodes with what they hold, writes on their way, and owners.
//!
//! Invariants: an owner's view is a prefix of the log; bytes are told apart by a number that no two writes share; a set
//! of nodes is a bit each. Read next: `steps.rs`.

use std::collections::BTreeSet;

pub const NODES: usize = 3;
pub const SLOTS: usize = 2;
pub const ALL_NODES: u8 = (1 << NODES) - 1;

/// What a slot holds: the number of a write, or garbage.
pub type Bytes = u8;
pub const GARBAGE: Bytes = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    pub epoch: u8,
    pub slot: usize,
    pub bytes: Bytes,
    /// The nodes that have it.
    pub nodes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    Epoch { epoch: u8 },
    Grant { epoch: u8, slot: usize },
    Commit(Commit),
}

impl Record {
    pub fn is_commit_of(&self, epoch: u8) -> bool {
        matches!(self, Record::Commit(commit) if commit.epoch == epoch)
    }
}

/// A write on its way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Write {
    pub epoch: u8,
    pub node: usize,
    pub slot: usize,
    pub bytes: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    pub durable: [Bytes; SLOTS],
    /// Written since the last flush; a crash of the node loses it.
    pub cached: [Option<Bytes>; SLOTS],
}

impl Node {
    pub fn visible(&self, slot: usize) -> Bytes {
        self.cached[slot].unwrap_or(self.durable[slot])
    }

    pub fn flush(&mut self) {
        for slot in 0..SLOTS {
            self.durable[slot] = self.visible(slot);
            self.cached[slot] = None;
        }
    }
}

/// What an owner is writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    pub slot: usize,
    pub bytes: Bytes,
    /// The nodes that have answered the write, on a connection that did not break since.
    pub written: u8,
    pub is_flushed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    #[default]
    Idle,
    /// It has read to the end and will put its epoch record.
    Reading,
    Serving,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    pub role: Role,
    pub epoch: u8,
    /// How many records it knows.
    pub end: usize,
    /// By its own clock its last renewal is fresh enough.
    pub lease: bool,
    /// The nodes that it goes on without, until its epoch ends.
    pub away: u8,
    pub work: Option<Work>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub log: Vec<Record>,
    pub nodes: [Node; NODES],
    pub network: BTreeSet<Write>,
    pub owners: [Owner; 2],
    /// Epoch records in the log.
    pub epochs: u8,
    /// The epochs, a bit each, of which no write can arrive any more.
    pub passed: u8,
    pub writes: u8,
    pub crashes: u8,
    pub node_crashes: u8,
    pub late_write_arrived: bool,
}

impl State {
    /// The last commit that a prefix of the log has.
    pub fn current(&self, end: usize) -> Option<Commit> {
        self.log[..end].iter().rev().find_map(|record| match record {
            Record::Commit(commit) => Some(*commit),
            _ => None,
        })
    }

    /// The epoch that a slot was granted in last, as a prefix of the log says.
    pub fn holder(&self, slot: usize, end: usize) -> Option<u8> {
        self.log[..end].iter().rev().find_map(|record| match record {
            Record::Grant { epoch, slot: granted } if *granted == slot => Some(*epoch),
            _ => None,
        })
    }

    /// Bytes that no commit names and no owner is writing are all the same garbage: they only matter where they do harm.
    pub fn forget_garbage(&mut self) {
        let mut wanted = BTreeSet::from([self.current(self.log.len()).map_or(GARBAGE, |commit| commit.bytes)]);
        wanted.extend(self.owners.iter().filter_map(|owner| owner.work).map(|work| work.bytes));
        let keep = |bytes: Bytes| if wanted.contains(&bytes) { bytes } else { GARBAGE };
        for node in &mut self.nodes {
            node.durable = node.durable.map(keep);
            for slot in 0..SLOTS {
                node.cached[slot] = node.cached[slot].map(keep).filter(|bytes| *bytes != node.durable[slot]);
            }
        }
        let commits = self.log.iter_mut().rev().filter_map(|record| match record {
            Record::Commit(commit) => Some(commit),
            _ => None,
        });
        commits.skip(1).for_each(|commit| (commit.bytes, commit.nodes) = (GARBAGE, 0));
        let network = std::mem::take(&mut self.network);
        self.network = network.into_iter().map(|write| Write { bytes: keep(write.bytes), ..write }).collect();
    }

    /// An earlier node is in the very same situation, so that a step of this one leads to nothing new.
    pub fn is_like_earlier(&self, node: usize) -> bool {
        (0..node).any(|earlier| {
            let differs = |set: u8| (set >> earlier ^ set >> node) & 1 != 0;
            let writes = |node: usize| {
                let of_node = self.network.iter().filter(move |write| write.node == node);
                of_node.map(|write| (write.epoch, write.slot, write.bytes))
            };
            let named = self.current(self.log.len()).map_or(0, |commit| commit.nodes);
            self.nodes[earlier] == self.nodes[node]
                && !differs(named)
                && !self
                    .owners
                    .iter()
                    .any(|owner| differs(owner.away) || owner.work.is_some_and(|work| differs(work.written)))
                && writes(earlier).eq(writes(node))
        })
    }

    /// What the last commit names is on every node that it names.
    pub fn is_readable(&self) -> bool {
        let Some(commit) = self.current(self.log.len()) else { return true };
        let named = (0..NODES).filter(|node| commit.nodes & (1 << node) != 0);
        named.map(|node| &self.nodes[node]).all(|node| node.visible(commit.slot) == commit.bytes)
    }

    pub fn is_granted_again(&self) -> bool {
        (0..SLOTS).any(|slot| {
            let grants = |wanted: u8| {
                self.log.iter().any(
                    |record| matches!(record, Record::Grant { epoch, slot: granted } if *granted == slot && *epoch == wanted),
                )
            };
            grants(1) && grants(2)
        })
    }

    /// A successor's epoch record is in the log.
    pub fn is_replaced(&self, epoch: u8) -> bool {
        epoch < self.epochs
    }

    pub fn has_lease(&self, epoch: u8) -> bool {
        self.owners.iter().any(|owner| owner.epoch == epoch && owner.lease)
    }
}
