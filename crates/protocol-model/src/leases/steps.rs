//! The steps of the model: which are possible in a state, and what each does.
//!
//! Invariants: only `Make` changes the thing; a machine knows what it heard, and nothing else. Planted bugs are asked for with `has`.
//! Read next: `../report.rs`.

use super::Leases;
use super::state::{Change, MACHINES, Machine, Question, Stage, State, ToMachine, ToOwner};
use crate::bug::Bug;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Ask {
        machine: usize,
    },
    Change {
        machine: usize,
    },
    /// The oldest message on its way to the owner arrives.
    Reach {
        machine: usize,
    },
    Look {
        machine: usize,
    },
    Answer {
        machine: usize,
    },
    Make {
        machine: usize,
    },
    Note {
        machine: usize,
    },
    Told {
        machine: usize,
    },
    /// The oldest message on its way to the machine arrives.
    Hear {
        machine: usize,
    },
    Cut {
        machine: usize,
    },
    LeaseOver {
        machine: usize,
    },
    GiveUp {
        machine: usize,
    },
}

fn bit(machine: usize) -> u8 {
    1 << machine
}

impl Leases {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        for machine in 0..MACHINES {
            let this = &state.machines[machine];
            if this.is_cut {
                self.possible_without(state, machine, steps);
            } else {
                self.possible_with(state, machine, steps);
            }
            let work = &state.work[machine];
            match work.question {
                Some(Question { version: None, .. }) => steps.push(Step::Look { machine }),
                Some(_) => steps.push(Step::Answer { machine }),
                None => {}
            }
            match work.change {
                Some(Change { stage: Stage::Noted { .. }, .. }) => steps.push(Step::Told { machine }),
                Some(Change { stage: Stage::Made { .. }, .. }) => steps.push(Step::Note { machine }),
                Some(change) if change.waits_for == 0 || self.has(Bug::ChangedBeforeHeard) => {
                    steps.push(Step::Make { machine });
                }
                _ => {}
            }
        }
    }

    fn possible_with(&self, state: &State, machine: usize, steps: &mut Vec<Step>) {
        let this = &state.machines[machine];
        if this.asked.is_none() && this.questions < self.questions_max {
            steps.push(Step::Ask { machine });
        }
        if this.changes.is_none() && state.changes < self.changes_max {
            steps.push(Step::Change { machine });
        }
        if !this.to_owner.is_empty() {
            steps.push(Step::Reach { machine });
        }
        if !this.to_machine.is_empty() {
            steps.push(Step::Hear { machine });
        }
        if state.cuts < self.cuts_max {
            steps.push(Step::Cut { machine });
        }
    }

    fn possible_without(&self, state: &State, machine: usize, steps: &mut Vec<Step>) {
        let this = &state.machines[machine];
        if !this.is_over {
            steps.push(Step::LeaseOver { machine });
        }
        let is_waited_for =
            state.work.iter().any(|work| work.change.is_some_and(|one| one.waits_for & bit(machine) != 0));
        let is_known = is_waited_for || state.work[machine].has_lease;
        if is_known && (this.is_over || self.has(Bug::GivenUpBeforeLeaseIsOver)) {
            steps.push(Step::GiveUp { machine });
        }
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Ask { machine } => {
                let this = &mut state.machines[machine];
                this.asked = Some(this.sequence);
                this.questions += 1;
                this.to_owner.push(ToOwner::Question);
            }
            Step::Change { machine } => {
                state.changes += 1;
                let this = &mut state.machines[machine];
                this.disbelieve();
                this.changes = Some(this.sequence);
                this.to_owner.push(ToOwner::Change);
            }
            Step::Reach { machine } => self.reach(state, machine),
            Step::Look { machine } => {
                let version = state.version;
                state.work[machine].question.iter_mut().for_each(|question| question.version = Some(version));
            }
            Step::Answer { machine } => self.answer(state, machine),
            Step::Make { machine } => {
                state.version += 1;
                let version = state.version;
                state.work[machine].change.iter_mut().for_each(|change| change.stage = Stage::Made { version });
            }
            Step::Note { machine } => self.note(state, machine),
            Step::Told { machine } => self.told(state, machine),
            Step::Hear { machine } => self.hear(state, machine),
            Step::Cut { machine } => {
                state.cuts += 1;
                state.machines[machine].is_cut = true;
            }
            Step::LeaseOver { machine } => {
                state.machines[machine].is_over = true;
                state.machines[machine].belief = None;
            }
            Step::GiveUp { machine } => {
                state.work[machine].has_lease = false;
                for change in state.work.iter_mut().filter_map(|work| work.change.as_mut()) {
                    state.went_on |= change.waits_for & bit(machine) != 0;
                    change.waits_for &= !bit(machine);
                }
            }
        }
    }

    fn reach(&self, state: &mut State, machine: usize) {
        match state.machines[machine].to_owner.remove(0) {
            ToOwner::Question => {
                state.work[machine].question = Some(Question { since: state.sequence, version: None });
            }
            ToOwner::Heard => {
                let changes = state.work.iter_mut().filter_map(|work| work.change.as_mut());
                changes.for_each(|change| change.waits_for &= !bit(machine));
            }
            ToOwner::Change => {
                let mut waits_for = 0;
                for other in 0..MACHINES {
                    let had_lease = std::mem::take(&mut state.work[other].has_lease);
                    if had_lease && other != machine {
                        waits_for |= bit(other);
                        state.machines[other].to_machine.push(ToMachine::Recall);
                    }
                }
                state.changing += 1;
                state.work[machine].change = Some(Change { begun: state.sequence, waits_for, stage: Stage::Begun });
            }
        }
    }

    /// Whether what was so at that time may be leased.
    fn may_lease(&self, state: &State, since: u8) -> bool {
        let is_changing = state.changing > 0 && !self.has(Bug::LeasedWhileChanging);
        let has_changed = state.changed > since && !self.has(Bug::LeasedThoughChangedSince);
        !is_changing && !has_changed
    }

    fn answer(&self, state: &mut State, machine: usize) {
        let Some(Question { since, version: Some(version) }) = state.work[machine].question.take() else { return };
        let is_leased = self.may_lease(state, since);
        state.work[machine].has_lease |= is_leased;
        state.machines[machine].to_machine.push(ToMachine::Answer { version, is_leased });
    }

    fn note(&self, state: &mut State, machine: usize) {
        let Some(change) = state.work[machine].change.as_mut() else { return };
        let Stage::Made { version } = change.stage else { return };
        let is_alone = state.changing == 1 && state.changed <= change.begun;
        state.changing -= 1;
        state.sequence += 1;
        state.changed = state.sequence;
        let since = (is_alone || self.has(Bug::ChangeBelievedAmongOthers)).then_some(state.sequence);
        change.stage = Stage::Noted { version, since };
    }

    fn told(&self, state: &mut State, machine: usize) {
        let change = state.work[machine].change.take();
        let Some(Change { stage: Stage::Noted { version, since }, .. }) = change else { return };
        let is_leased = since.is_some_and(|since| self.may_lease(state, since));
        state.work[machine].has_lease |= is_leased;
        state.machines[machine].to_machine.push(ToMachine::Done { version, is_leased });
    }

    fn hear(&self, state: &mut State, machine: usize) {
        let this: &mut Machine = &mut state.machines[machine];
        let believes_all = self.has(Bug::BelievedThoughRecalled);
        match this.to_machine.remove(0) {
            ToMachine::Recall => {
                this.disbelieve();
                this.to_owner.push(ToOwner::Heard);
            }
            ToMachine::Answer { version, is_leased } => {
                let since = this.asked.take().unwrap_or(0);
                if is_leased && (this.recalled <= since || believes_all) {
                    this.belief = Some(version);
                }
                state.disbelieved |= is_leased && this.recalled > since;
            }
            ToMachine::Done { version, is_leased } => {
                let since = this.changes.take().unwrap_or(0);
                let may_believe = is_leased && (this.recalled <= since || believes_all);
                this.disbelieve();
                if may_believe {
                    this.belief = Some(version);
                    state.believed_change = true;
                }
            }
        }
    }
}
