//! The model of answers before the commit: what machines were told, and what is left of it when the owner and some of them are lost.
//!
//! One thing is changed by several machines. Each change comes of the one before it, so it can be made once more only where that is there.
//! The owner makes changes in memory and commits them later, all at once; what it had not committed is lost with it, and its machines have
//! the next owner make again what they keep. Machines may be lost, too, and answers. Invariants: `properties` below. Read next:
//! `early/state.rs`, `early/steps.rs`; `crates/owner/src/uncommitted.rs` and `crates/client/src/retained/requests.rs` are what it is a model of.

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
pub struct Early {
    pub bug: Option<Bug>,
    /// How many changes each machine asks for.
    pub changes_max: [u8; MACHINES],
    /// How often an owner is lost.
    pub crashes_max: u8,
    /// How many machines are lost.
    pub losses_max: u8,
    /// How often answers to the first machine are lost.
    pub cuts_max: u8,
}

impl Early {
    pub fn new(bug: Option<Bug>) -> Self {
        Early { bug, changes_max: [2, 1], crashes_max: 1, losses_max: 1, cuts_max: 1 }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl Model for Early {
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
            Property::always("what a machine was told is there", |_, state: &State| {
                // Until all have told what they keep, nobody is answered.
                state.grace != 0
                    || state.machines.iter().all(|machine| machine.is_lost || state.has(machine.relies_on()))
            }),
            Property::always("a change is made at most once", |_, state: &State| {
                state.done.iter().enumerate().all(|(at, change)| !state.done[..at].contains(change))
            }),
            Property::sometimes("a change is answered before it is committed", |_, state: &State| state.was_early),
            Property::sometimes("a change is made once more", |_, state: &State| state.was_redone),
            Property::sometimes("what is kept was committed", |_, state: &State| state.was_noted),
            Property::sometimes("a change that nobody was told of is lost", |_, state: &State| state.was_lost),
            Property::sometimes("all changes are known to both machines", |model: &Early, state: &State| {
                let all: u8 = model.changes_max.iter().sum();
                state.machines.iter().all(|machine| machine.knows.count_ones() == u32::from(all))
            }),
        ]
    }
}
