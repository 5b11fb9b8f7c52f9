//! A state of the model: the changes that the owner has made, what is under way, and what machines know and keep.
//!
//! Invariants: what is committed is a part of what is done, from the beginning on; a set of changes, or of machines, is a bit each. Read
//! next: `steps.rs`.

pub const MACHINES: usize = 2;

/// A change: whose, and which one of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    pub machine: usize,
    pub number: u8,
}

impl Change {
    pub fn bit(self) -> u8 {
        1 << (self.machine as u8 * 4 + self.number)
    }
}

/// A change that has reached the owner and is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnderWay {
    pub change: Change,
    /// Nothing else was under way at any time since it was made.
    pub is_alone: bool,
    /// Its answer will not arrive.
    pub is_cut: bool,
}

/// A change that was answered before it was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    pub change: Change,
    /// The one that it came of.
    pub base: Option<Change>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    pub is_lost: bool,
    /// Changes that it has asked for, ever.
    pub changes: u8,
    /// Those without an answer.
    pub asked: Vec<Change>,
    pub kept: Vec<Kept>,
    /// What it was told of, by answers to its own changes or because it looked.
    pub knows: u8,
}

impl Machine {
    /// What has to be there. What it has seen of its own and was not told it asks for again.
    pub fn relies_on(&self) -> u8 {
        self.asked.iter().fold(self.knows, |bits, change| bits & !change.bit())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// In the order in which they were made.
    pub done: Vec<Change>,
    /// So many of them are in the log.
    pub committed: usize,
    /// So many of them the owner takes for committed.
    pub told: usize,
    /// So many of them are covered by a commit that is under way.
    pub committing: Option<usize>,
    /// Changes of machines that are not theirs alone to keep, because answers were lost.
    pub disowned: u8,
    /// Changes that were answered before they were committed; who asks again gets the same answer.
    pub answered: u8,
    pub under_way: Vec<UnderWay>,
    pub machines: [Machine; MACHINES],
    /// Machines that have not told the owner yet what they keep.
    pub grace: u8,
    pub crashes: u8,
    pub losses: u8,
    pub cuts: u8,
    pub was_early: bool,
    pub was_redone: bool,
    pub was_noted: bool,
    pub was_lost: bool,
}

impl State {
    /// Whether all these changes are done.
    pub fn has(&self, changes: u8) -> bool {
        let done = self.done.iter().fold(0, |bits, change| bits | change.bit());
        changes & !done == 0
    }

    /// Whether something is done and not committed that this machine does not keep.
    pub fn is_others(&self, machine: usize) -> bool {
        let uncommitted = self.done.iter().skip(self.told);
        let mut others = uncommitted.filter(|one| one.machine != machine || self.disowned & one.bit() != 0);
        others.next().is_some()
    }
}
