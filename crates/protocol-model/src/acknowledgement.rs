//! The model of the log, owners and clients: what may be acknowledged, repeated and read.
//!
//! Any message may be late, lost or doubled, and any process may be slow for as long as it likes, so a pause and a cut
//! network need no step of their own: a paused owner is one whose steps come late. Time is in two rules. A lease is
//! renewed only by an owner that knows the log's end, and a successor serves only after its epoch record is in the log
//! and all older leases have expired. Invariants: `properties` below. Read next: `acknowledgement/state.rs`,
//! `acknowledgement/steps.rs`.

mod plain;
mod state;
mod steps;

use stateright::{Model, Property};

pub use self::state::State;
pub use self::steps::Step;

use crate::bug::Bug;

/// The model with its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement {
    pub bug: Option<Bug>,
    /// How many requests each of the two clients sends, one after another; at most two.
    pub requests_each: u8,
    /// How often somebody begins to take over, the first time included.
    pub epochs_max: u8,
    /// How often a process crashes and starts again.
    pub crashes_max: u8,
    /// How often the log is trimmed.
    pub trims_max: u8,
}

impl Acknowledgement {
    pub fn new(bug: Option<Bug>) -> Self {
        Acknowledgement { bug, requests_each: 2, epochs_max: 3, crashes_max: 1, trims_max: 1 }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl Model for Acknowledgement {
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
        state.forget_refused_puts();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("an acknowledged request is in the log", |_, state: &State| {
                state.acknowledged & !state.executed() == 0
            }),
            Property::always("a request takes effect at most once", |_, state: &State| state.is_executed_once()),
            Property::always("a read returns what was acknowledged", |_, state: &State| !state.stale_read),
            Property::sometimes("an owner is replaced", |_, state: &State| state.epochs_in_log() > 1),
            Property::sometimes("the second owner acknowledges its own commit", |_, state: &State| {
                state.is_acknowledged_in_later_epoch()
            }),
            Property::sometimes("a client repeats what the first owner committed", |_, state: &State| {
                state.is_repeated_after_takeover()
            }),
            Property::sometimes("a lost answer is settled as Mine", |_, state: &State| {
                state.has_unanswered_put_in_log()
            }),
            Property::sometimes("all requests are acknowledged", |model: &Acknowledgement, state: &State| {
                state.acknowledged == model.requests()
            }),
        ]
    }
}
