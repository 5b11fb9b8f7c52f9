//! A state of the model: the log, puts on their way, owners, and what clients were told.
//!
//! Invariants: what is in a number of the log never changes; `first` only says what can be read, and the records before
//! it are what the root holds. Requests are bits: client 0 has bits 0 and 1, client 1 has bits 2 and 3. Read next:
//! `steps.rs`.

use std::collections::BTreeSet;

/// A set of requests, one bit each.
pub type Requests = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Record {
    Epoch { epoch: u8 },
    Commit { epoch: u8, requests: Requests },
}

impl Record {
    pub fn epoch(self) -> u8 {
        match self {
            Record::Epoch { epoch } | Record::Commit { epoch, .. } => epoch,
        }
    }

    fn requests(self) -> Requests {
        match self {
            Record::Epoch { .. } => 0,
            Record::Commit { requests, .. } => requests,
        }
    }
}

/// A record on its way to its number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Put {
    pub number: u8,
    pub record: Record,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    #[default]
    Idle,
    /// It has read to the end and will put its epoch record.
    Reading,
    /// Its epoch record is on the way.
    Claiming,
    /// Its epoch record is in the log; it waits until older leases have expired.
    Waiting,
    Serving,
    /// It got `Taken` and goes on all the same (`FencedStillAcknowledges`); the requests it had tried to commit.
    Deaf(Requests),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    pub role: Role,
    /// Of its current or last attempt; never used again.
    pub epoch: u8,
    /// The first record that it read; earlier ones came with the root.
    pub from: u8,
    /// How many records it knows.
    pub end: u8,
    /// What it has sent to the log without knowing yet what became of it.
    pub put: Option<Put>,
    /// By its own clock its last renewal is fresh enough.
    pub lease: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub log: Vec<Record>,
    /// The records before this index were trimmed.
    pub first: u8,
    pub network: BTreeSet<Put>,
    pub owners: [Owner; 2],
    /// What the clients know to be done.
    pub acknowledged: Requests,
    pub epochs: u8,
    pub crashes: u8,
    pub trims: u8,
    /// A read lacked something that was acknowledged before.
    pub stale_read: bool,
}

impl State {
    pub fn length(&self) -> u8 {
        self.log.len() as u8
    }

    /// The record at a number, counted from 1.
    pub fn at(&self, number: u8) -> Option<Record> {
        self.log.get(usize::from(number) - 1).copied()
    }

    /// What the records `from..end` carry.
    pub fn executed_in(&self, from: u8, end: u8) -> Requests {
        self.log[usize::from(from)..usize::from(end)].iter().fold(0, |all, record| all | record.requests())
    }

    pub fn executed(&self) -> Requests {
        self.executed_in(0, self.length())
    }

    pub fn is_executed_once(&self) -> bool {
        let mut all = 0;
        self.log.iter().all(|record| {
            let is_new = all & record.requests() == 0;
            all |= record.requests();
            is_new
        })
    }

    pub fn epochs_in_log(&self) -> usize {
        self.log.iter().filter(|record| matches!(record, Record::Epoch { .. })).count()
    }

    pub fn is_acknowledged_in_later_epoch(&self) -> bool {
        let Some(first) = self.log.first().map(|record| record.epoch()) else { return false };
        self.log.iter().any(|record| record.epoch() != first && record.requests() & self.acknowledged != 0)
    }

    /// An owner does not know yet that its put is in the log; the answer may come, or be lost and settled as `Mine`.
    pub fn has_unanswered_put_in_log(&self) -> bool {
        let mut puts = self.owners.iter().filter_map(|owner| owner.put);
        puts.any(|put| self.at(put.number) == Some(put.record))
    }

    /// An owner of a later epoch serves, and a client still waits for the answer to what the first owner committed.
    pub fn is_repeated_after_takeover(&self) -> bool {
        let Some(first) = self.log.first().map(|record| record.epoch()) else { return false };
        let serves = |owner: &Owner| owner.role == Role::Serving && owner.epoch != first;
        let of_first = self.log.iter().filter(|record| record.epoch() == first);
        let committed = of_first.fold(0, |all, record| all | record.requests());
        self.owners.iter().any(serves) && committed & !self.acknowledged != 0
    }

    /// A put whose number is taken changes nothing any more, whenever it arrives.
    pub fn forget_refused_puts(&mut self) {
        let length = self.length();
        self.network.retain(|put| put.number > length);
    }
}
