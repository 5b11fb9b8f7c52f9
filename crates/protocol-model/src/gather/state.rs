//! A state of the model: what the owner has and knows, what is on the way, and what machines have gathered.
//!
//! Invariants: a write has a number when it takes effect, from 1 on; a set of writes, or of machines, is a bit each. Read next: `steps.rs`.

pub const MACHINES: usize = 2;

/// To the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    Write,
    /// A write that was answered to its program.
    Gathered(u8),
    Returned,
    /// By the number of the file; `floor` is what had been answered then.
    Look {
        floor: u8,
    },
    /// By its name, so the owner learns of which file when it has looked.
    Find {
        floor: u8,
    },
    Open {
        floor: u8,
    },
    Close,
}

/// To a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Written { number: u8, may_gather: bool },
    Recall,
    Shown { number: u8, floor: u8, is_open: bool },
}

/// What the owner has done and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Done {
    pub machine: usize,
    pub told: Told,
    /// It was asked for by name.
    pub is_found: bool,
    /// How many leases had ended when it was done.
    pub ended: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    pub may_gather: bool,
    /// Not sent yet.
    pub gathered: Option<u8>,
    /// Sent, and perhaps not arrived.
    pub sent: Option<u8>,
    /// A write of which no answer came, and whether a recall came since.
    pub asks: bool,
    pub is_recalled: bool,
    pub is_away: bool,
    /// Its session was ended.
    pub is_over: bool,
    /// What it has told the owner that came.
    pub has_told: bool,
    pub writes: u8,
    pub looks: u8,
    pub has_open: bool,
    pub is_opening: bool,
    pub to_owner: Vec<Asked>,
    pub to_machine: Vec<Told>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The last write that took effect.
    pub last: u8,
    /// The last one that the owner has.
    pub content: u8,
    /// Writes that were answered, and those that are lost.
    pub answered: u8,
    pub lost: u8,
    pub writer: Option<usize>,
    pub is_recalling: bool,
    /// Leases that have ended.
    pub ended: u8,
    /// Machines that have it open, as the owner knows.
    pub open: u8,
    /// Questions that wait until nobody gathers.
    pub waiting: Vec<(usize, Asked)>,
    pub done: Vec<Done>,
    pub machines: [Machine; MACHINES],
    /// Machines that have not told the owner yet what they have.
    pub grace: u8,
    pub cuts: u8,
    pub crashes: u8,
    pub is_stale: bool,
    pub went_back: bool,
    pub is_gathered_though_open: bool,
    pub was_gathered: bool,
    pub was_recalled: bool,
    pub was_overtaken: bool,
    pub was_asked_again: bool,
    pub was_told: bool,
}

impl State {
    /// Whether a read that shows this write leaves one out that was answered before it began, and is not lost.
    pub fn leaves_out(&self, number: u8, floor: u8) -> bool {
        let due = floor & !self.lost;
        let newest = u8::try_from(u8::BITS - due.leading_zeros()).unwrap_or(0);
        number < newest
    }

    /// The bytes of a gathered write reach the owner.
    pub fn put(&mut self, number: u8) {
        self.went_back |= self.content > number;
        self.content = number;
    }
}

/// The bit of a write.
pub fn bit(number: u8) -> u8 {
    assert!(number > 0, "writes are counted from 1 on");
    1 << (number - 1)
}
