//! The steps of the model: which are possible in a state, and what each does.
//!
//! Invariants: a machine knows what it was told, and nothing else; only `Make` and `Redo` change the thing. Planted bugs are asked for with
//! `has`. Read next: `../report.rs`.

use super::Early;
use super::state::{Change, Kept, MACHINES, State, UnderWay};
use crate::bug::Bug;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Ask {
        machine: usize,
    },
    /// The owner makes a change that reached it; what follows until it is answered takes a while.
    Make {
        change: Change,
    },
    Answer {
        change: Change,
    },
    Look {
        machine: usize,
    },
    CommitBegins,
    CommitEnds,
    /// A machine hears what is committed.
    Hear {
        machine: usize,
    },
    /// Answers to a machine are lost; it asks again.
    Cut {
        machine: usize,
    },
    /// The owner is lost, and there is another one.
    Crash,
    /// A machine tells the next thing that it keeps.
    Redo {
        machine: usize,
    },
    Lose {
        machine: usize,
    },
}

impl Early {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        let is_served = state.grace == 0 || self.has(Bug::ServedBeforeAllIsTold);
        for machine in 0..MACHINES {
            let this = &state.machines[machine];
            if this.is_lost {
                continue;
            }
            if this.changes < self.changes_max[machine] {
                steps.push(Step::Ask { machine });
            }
            let is_settled = is_served && state.grace & (1 << machine) == 0;
            let is_new = |change: &&Change| !state.under_way.iter().any(|one| one.change == **change);
            let makes = this.asked.iter().filter(is_new).map(|change| Step::Make { change: *change });
            steps.extend(makes.filter(|_| is_settled));
            let may_look = !state.is_others(machine) || self.has(Bug::SeenBeforeCommitted);
            if is_settled && may_look && !state.done.is_empty() {
                steps.push(Step::Look { machine });
            }
            if state.done[..state.told].iter().any(|done| this.kept.iter().any(|kept| kept.change == *done)) {
                steps.push(Step::Hear { machine });
            }
            let is_asking = state.under_way.iter().any(|one| one.change.machine == machine && !one.is_cut);
            if is_asking && machine == 0 && state.cuts < self.cuts_max {
                steps.push(Step::Cut { machine });
            }
            if state.grace & (1 << machine) != 0 {
                steps.push(Step::Redo { machine });
            }
            if state.losses < self.losses_max {
                steps.push(Step::Lose { machine });
            }
        }
        for one in &state.under_way {
            if self.may_answer(state, one) {
                steps.push(Step::Answer { change: one.change });
            }
        }
        match state.committing {
            None if state.committed < state.done.len() => steps.push(Step::CommitBegins),
            None => {}
            Some(_) => steps.push(Step::CommitEnds),
        }
        if state.crashes < self.crashes_max {
            steps.push(Step::Crash);
        }
    }

    /// Whether a change that was made may be answered before it is committed.
    fn may_be_early(&self, state: &State, one: &UnderWay) -> bool {
        let is_alone = one.is_alone || self.has(Bug::EarlyAmongOthers);
        is_alone && (!state.is_others(one.change.machine) || self.has(Bug::EarlyThoughOthersMayLose))
    }

    fn may_answer(&self, state: &State, one: &UnderWay) -> bool {
        let is_committed = state.done[..state.told].contains(&one.change);
        is_committed || self.may_be_early(state, one) || one.is_cut || state.answered & one.change.bit() != 0
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Ask { machine } => {
                let this = &mut state.machines[machine];
                this.asked.push(Change { machine, number: this.changes });
                this.changes += 1;
            }
            Step::Make { change } => {
                // One that is noted was made by an owner before.
                if !state.done.contains(&change) {
                    state.done.push(change);
                }
                let is_alone = state.under_way.is_empty();
                state.under_way.iter_mut().for_each(|one| one.is_alone = false);
                state.under_way.push(UnderWay { change, is_alone, is_cut: false });
            }
            Step::Answer { change } => self.answer(state, change),
            Step::Look { machine } => {
                state.machines[machine].knows |= state.done.iter().fold(0, |bits, change| bits | change.bit());
            }
            Step::CommitBegins => state.committing = Some(state.done.len()),
            Step::CommitEnds => {
                state.committed = state.committing.take().unwrap_or(state.committed);
                state.told = if self.has(Bug::CommitCoversLater) { state.done.len() } else { state.committed };
            }
            Step::Hear { machine } => {
                let committed = &state.done[..state.told];
                state.machines[machine].kept.retain(|kept| !committed.contains(&kept.change));
            }
            Step::Cut { machine } => self.cut(state, machine),
            Step::Crash => {
                state.was_lost |= state.done[state.committed..]
                    .iter()
                    .any(|change| state.machines.iter().all(|machine| machine.knows & change.bit() == 0));
                state.done.truncate(state.committed);
                (state.told, state.committing) = (state.committed, None);
                (state.disowned, state.answered) = (0, 0);
                state.under_way.clear();
                state.crashes += 1;
                let keeps = |machine: &usize| !state.machines[*machine].kept.is_empty();
                state.grace = (0..MACHINES).filter(keeps).fold(0, |bits, machine| bits | 1 << machine);
            }
            Step::Redo { machine } => self.redo(state, machine),
            Step::Lose { machine } => {
                let this = &mut state.machines[machine];
                this.is_lost = true;
                this.kept.clear();
                this.asked.clear();
                state.losses += 1;
                state.grace &= !(1 << machine);
            }
        }
    }

    fn answer(&self, state: &mut State, change: Change) {
        let Some(at) = state.under_way.iter().position(|one| one.change == change) else { return };
        let one = state.under_way[at];
        let is_committed = state.done[..state.told].contains(&change);
        state.under_way.remove(at);
        if is_committed || self.may_be_early(state, &one) {
            state.answered |= change.bit();
        }
        let this = &mut state.machines[change.machine];
        if one.is_cut || this.is_lost {
            return;
        }
        this.asked.retain(|asked| *asked != change);
        this.knows |= change.bit();
        if !is_committed {
            let place = state.done.iter().position(|done| *done == change).unwrap_or(0);
            let base = place.checked_sub(1).map(|before| state.done[before]);
            this.kept.push(Kept { change, base });
            state.was_early = true;
        }
    }

    fn cut(&self, state: &mut State, machine: usize) {
        state.cuts += 1;
        let own = state.under_way.iter_mut().filter(|one| one.change.machine == machine);
        let mut cut = 0;
        for one in own {
            one.is_cut = true;
            cut |= one.change.bit();
        }
        if !self.has(Bug::EarlyAfterLostAnswer) {
            let done = state.done.iter().filter(|change| change.machine == machine);
            state.disowned |= done.fold(cut, |bits, change| bits | change.bit());
        }
    }

    fn redo(&self, state: &mut State, machine: usize) {
        if !state.machines[machine].kept.is_empty() {
            let Kept { change, base } = state.machines[machine].kept.remove(0);
            let is_noted = state.done.contains(&change);
            state.was_noted |= is_noted;
            let is_repeated = is_noted && self.has(Bug::RedoneThoughNoted);
            if is_repeated || (!is_noted && state.done.last().copied() == base) {
                state.done.push(change);
                // It is answered when it is committed, and nothing else is under way.
                (state.committed, state.told) = (state.done.len(), state.done.len());
                state.was_redone = true;
            }
        }
        if state.machines[machine].kept.is_empty() {
            state.grace &= !(1 << machine);
        }
    }
}
