//! The model of leases: what machines may believe of one thing that several of them change.
//!
//! The thing has a version, which is how often it was changed. Machines ask for it, change it, and believe answers; messages between a
//! machine and the owner keep their order, and what the owner does for a question or a change takes several steps. A network that is cut
//! passes nothing on from then on. Time has no numbers: a lease that nobody can renew is over some time after the cut, and the owner gives a
//! machine up after that. Invariants: `properties` below. Read next: `leases/state.rs`, `leases/steps.rs`; `crates/owner/src/leases.rs` and
//! `crates/client/src/leased.rs` are what it is a model of.

mod plain;
mod state;
mod steps;

use stateright::{Model, Property};

pub use self::state::State;
pub use self::steps::Step;

use crate::bug::Bug;

/// The model with its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Leases {
    pub bug: Option<Bug>,
    /// How often each machine asks.
    pub questions_max: u8,
    /// How often the thing is changed, over all machines.
    pub changes_max: u8,
    /// How many machines are cut off.
    pub cuts_max: u8,
}

impl Leases {
    pub fn new(bug: Option<Bug>) -> Self {
        Leases { bug, questions_max: 1, changes_max: 2, cuts_max: 1 }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

impl Model for Leases {
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
            Property::always("a machine believes what is so", |_, state: &State| {
                state.machines.iter().all(|machine| machine.belief.is_none_or(|version| version == state.version))
            }),
            Property::sometimes("both machines believe", |_, state: &State| {
                state.machines.iter().all(|machine| machine.belief.is_some())
            }),
            Property::sometimes("who changed it believes the answer", |_, state: &State| state.believed_change),
            Property::sometimes("a change waits for a machine", |_, state: &State| {
                state.work.iter().any(|work| work.change.is_some_and(|change| change.waits_for != 0))
            }),
            Property::sometimes("an answer that was on its way is not believed", |_, state: &State| state.disbelieved),
            Property::sometimes("a change goes on without a machine that was cut off", |_, state: &State| {
                state.went_on
            }),
            Property::sometimes("all changes are made", |model: &Leases, state: &State| {
                state.version == model.changes_max
            }),
        ]
    }
}
