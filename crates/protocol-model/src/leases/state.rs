//! A state of the model: the thing, what the owner does for each machine, what each machine believes, and messages on their way.
//!
//! Invariants: a machine has one question and one change under way at most; a set of machines is a bit each. Read next: `steps.rs`.

pub const MACHINES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToOwner {
    Question,
    Change,
    /// It has heard of a recall.
    Heard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ToMachine {
    Answer { version: u8, is_leased: bool },
    Done { version: u8, is_leased: bool },
    Recall,
}

/// A question that has reached the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// When it came, by the owner's sequence.
    pub since: u8,
    /// What it found.
    pub version: Option<u8>,
}

/// A change that has reached the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    pub begun: u8,
    /// Machines that have not heard yet.
    pub waits_for: u8,
    pub stage: Stage,
}

/// How far a change has come. That it was made is noted a moment after it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Begun,
    Made {
        version: u8,
    },
    /// It is noted, and not answered. Since when the answer is right; `None` if somebody else changed the thing meanwhile.
    Noted {
        version: u8,
        since: Option<u8>,
    },
}

/// What the owner has of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Work {
    pub question: Option<Question>,
    pub change: Option<Change>,
    pub has_lease: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    pub sequence: u8,
    /// The sequence at the last recall, or change of its own.
    pub recalled: u8,
    pub belief: Option<u8>,
    /// When its question was sent, by its sequence.
    pub asked: Option<u8>,
    pub changes: Option<u8>,
    pub questions: u8,
    pub to_owner: Vec<ToOwner>,
    pub to_machine: Vec<ToMachine>,
    pub is_cut: bool,
    /// The lease is over: it believes nothing any more.
    pub is_over: bool,
}

impl Machine {
    /// What it believes is about to change, or has changed.
    pub fn disbelieve(&mut self) {
        self.belief = None;
        self.sequence += 1;
        self.recalled = self.sequence;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub version: u8,
    /// Changes under way at the owner.
    pub changing: u8,
    pub sequence: u8,
    /// The owner's sequence when the last change ended.
    pub changed: u8,
    pub machines: [Machine; MACHINES],
    pub work: [Work; MACHINES],
    pub changes: u8,
    pub cuts: u8,
    pub believed_change: bool,
    pub disbelieved: bool,
    pub went_on: bool,
}
