//! The model of write leases: one machine answers its programs' writes by itself, until somebody else asks for the file.
//!
//! There is one file, and writes to it are counted as they take effect. Messages of a machine keep their order, in each direction; that the
//! owner decides and that its answer leaves are steps of their own. Invariants: `properties` below. Read next: `gather/state.rs`,
//! `gather/steps.rs`; `crates/owner/src/writers.rs` and `crates/client/src/direct/gather.rs` are what it is a model of.

mod plain;
mod state;
mod steps;

use stateright::{Model, Property};

use self::state::MACHINES;
pub use self::state::State;
pub use self::steps::Step;

use crate::bug::Bug;

/// The model with its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    pub bug: Option<Bug>,
    /// How many writes there are of each machine.
    pub writes_max: [u8; MACHINES],
    /// How often each machine looks, or opens the file.
    pub looks_max: [u8; MACHINES],
    /// How often the first machine is cut off.
    pub cuts_max: u8,
    /// How often an owner is lost.
    pub crashes_max: u8,
}

impl Gather {
    pub fn new(bug: Option<Bug>) -> Self {
        Gather { bug, writes_max: [2, 1], looks_max: [0, 1], cuts_max: 1, crashes_max: 1 }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl Model for Gather {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.possible(state, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, step);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what is read shows what was answered before", |_, state: &State| !state.is_stale),
            Property::always("no old bytes come over newer ones", |_, state: &State| !state.went_back),
            Property::always("nobody gathers what another one has open", |_, state: &State| {
                !state.is_gathered_though_open
            }),
            Property::sometimes("a write is gathered", |_, state: &State| state.was_gathered),
            Property::sometimes("a question waits for what is gathered", |_, state: &State| state.was_recalled),
            Property::sometimes("an answer that lets a machine gather comes too late", |_, state: &State| {
                state.was_overtaken
            }),
            Property::sometimes("a question is performed once more", |_, state: &State| state.was_asked_again),
            Property::sometimes("a machine loses what it had gathered", |_, state: &State| state.lost != 0),
            Property::sometimes("the next owner is told what was gathered", |_, state: &State| state.was_told),
        ]
    }
}
