//! The model of grants and nodes: who may write which slot, what is durable, and which late writes may still arrive.
//!
//! One file is written again and again: each commit names a slot with its bytes, and frees the slot of the commit before.
//! A put and its answer are one step here; the other model has them apart. A write that was sent arrives at each node by
//! itself, late or never, until `TimeoutPassed` for its epoch: then the lease and the time-out of its connection are over.
//! Any process may be slow for as long as it likes, so a pause needs no step of its own. Invariants: `properties` below.
//! Read next: `slots/state.rs`, `slots/steps.rs`.

mod plain;
mod state;
mod steps;

use stateright::{Model, Property};

pub use self::state::State;
pub use self::steps::Step;

use crate::bug::Bug;

/// The model with its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    pub bug: Option<Bug>,
    /// How often somebody takes over, the first time included.
    pub epochs_max: u8,
    /// How many slots are written, over all owners.
    pub writes_max: u8,
    /// How often an owner's process crashes.
    pub crashes_max: u8,
    /// How often a node crashes and loses its cache.
    pub node_crashes_max: u8,
    /// How many nodes an owner goes on without, because they do not answer it.
    pub cut_max: u32,
}

impl Slots {
    pub fn new(bug: Option<Bug>) -> Self {
        Slots { bug, epochs_max: 2, writes_max: 3, crashes_max: 1, node_crashes_max: 1, cut_max: 1 }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl Model for Slots {
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
        state.forget_garbage();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a slot holds what the commit record names", |_, state: &State| state.is_readable()),
            Property::sometimes("an owner is replaced after a commit", |_, state: &State| {
                state.epochs > 1 && state.log.iter().any(|record| record.is_commit_of(1))
            }),
            Property::sometimes("the second owner commits", |_, state: &State| {
                state.log.iter().any(|record| record.is_commit_of(2))
            }),
            Property::sometimes("a late write arrives", |_, state: &State| state.late_write_arrived),
            Property::sometimes("a slot of an earlier epoch is granted again", |_, state: &State| {
                state.is_granted_again()
            }),
            Property::sometimes("a commit goes on without a node", |_, state: &State| {
                state.current(state.log.len()).is_some_and(|commit| commit.nodes != state::ALL_NODES)
            }),
        ]
    }
}
