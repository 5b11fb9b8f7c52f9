//! The steps of the model: which are possible in a state, and what each does.
//!
//! Invariants: a machine knows what it was told, and nothing else; a program is answered once. Planted bugs are asked for with `has`. Read
//! next: `../report.rs`.

use super::Gather;
use super::state::{Asked, Done, MACHINES, Machine, State, Told, bit};
use crate::bug::Bug;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A program writes.
    Write {
        machine: usize,
    },
    /// What is gathered is sent.
    Send {
        machine: usize,
    },
    Look {
        machine: usize,
    },
    Find {
        machine: usize,
    },
    Open {
        machine: usize,
    },
    Close {
        machine: usize,
    },
    /// The owner takes the next message of a machine.
    Take {
        machine: usize,
    },
    /// The owner answers what it has done.
    Answer {
        at: usize,
    },
    /// A machine takes the next message of the owner.
    Hear {
        machine: usize,
    },
    Cut {
        machine: usize,
    },
    Back {
        machine: usize,
    },
    /// The session of a machine that is away is ended.
    GiveUp {
        machine: usize,
    },
    Crash,
    /// A machine tells the next owner what it has.
    Tell {
        machine: usize,
    },
}

impl Gather {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        for machine in 0..MACHINES {
            let this = &state.machines[machine];
            let is_there = !this.is_away && state.grace & (1 << machine) == 0;
            if state.grace & (1 << machine) != 0 && !this.is_away {
                steps.push(Step::Tell { machine });
            }
            if this.writes < self.writes_max[machine] && !this.asks && (is_there || this.may_gather) {
                steps.push(Step::Write { machine });
            }
            if is_there {
                self.possible_of(this, machine, state.grace == 0, steps);
            }
            if machine == 0 && state.cuts < self.cuts_max && is_there && !this.asks {
                steps.push(Step::Cut { machine });
            }
            if this.is_away {
                steps.push(Step::Back { machine });
                if !this.is_over {
                    steps.push(Step::GiveUp { machine });
                }
            }
        }
        steps.extend((0..state.done.len()).map(|at| Step::Answer { at }));
        if state.crashes < self.crashes_max && state.machines.iter().all(|machine| !machine.is_away) {
            steps.push(Step::Crash);
        }
    }

    fn possible_of(&self, this: &Machine, machine: usize, is_served: bool, steps: &mut Vec<Step>) {
        if this.gathered.is_some() {
            steps.push(Step::Send { machine });
        }
        if this.looks < self.looks_max[machine] {
            steps.extend([Step::Look { machine }, Step::Find { machine }]);
            steps.extend((!this.has_open && !this.is_opening).then_some(Step::Open { machine }));
        }
        if this.has_open && machine != 0 {
            steps.push(Step::Close { machine });
        }
        if !this.to_owner.is_empty() && is_served {
            steps.push(Step::Take { machine });
        }
        if !this.to_machine.is_empty() {
            steps.push(Step::Hear { machine });
        }
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        let floor = state.answered;
        match step {
            Step::Write { machine } => self.write(state, machine),
            Step::Send { machine } => send(&mut state.machines[machine]),
            Step::Look { machine } => ask(&mut state.machines[machine], Asked::Look { floor }),
            Step::Find { machine } => ask(&mut state.machines[machine], Asked::Find { floor }),
            Step::Open { machine } => {
                state.machines[machine].is_opening = true;
                ask(&mut state.machines[machine], Asked::Open { floor });
            }
            Step::Close { machine } => {
                let this = &mut state.machines[machine];
                this.has_open = false;
                this.to_owner.push(Asked::Close);
            }
            Step::Take { machine } => {
                let asked = state.machines[machine].to_owner.remove(0);
                self.serve(state, machine, asked);
            }
            Step::Answer { at } => self.answer(state, at),
            Step::Hear { machine } => self.hear(state, machine),
            Step::Cut { machine } => self.cut(state, machine),
            Step::Back { machine } => self.back(state, machine),
            Step::GiveUp { machine } => self.give_up(state, machine),
            Step::Crash => self.crash(state),
            Step::Tell { machine } => self.tell(state, machine),
        }
    }

    fn write(&self, state: &mut State, machine: usize) {
        let is_open_elsewhere = state.machines.iter().enumerate().any(|(other, one)| other != machine && one.has_open);
        let this = &mut state.machines[machine];
        this.writes += 1;
        if !this.may_gather {
            this.asks = true;
            this.is_recalled = false;
            this.to_owner.push(Asked::Write);
            return;
        }
        // One that is sent is waited for.
        send(this);
        state.last += 1;
        this.gathered = Some(state.last);
        state.answered |= bit(state.last);
        state.was_gathered = true;
        state.is_gathered_though_open |= is_open_elsewhere;
    }

    /// The owner gets a message: it does what is asked, or waits with it.
    fn serve(&self, state: &mut State, machine: usize, asked: Asked) {
        if let Asked::Open { .. } = asked {
            state.open |= 1 << machine;
        }
        let is_others = state.writer.is_some_and(|writer| writer != machine);
        let is_about_it = matches!(asked, Asked::Write | Asked::Look { .. } | Asked::Open { .. });
        if is_others && is_about_it && !self.has(Bug::ServedThoughGathered) {
            return self.wait(state, machine, asked);
        }
        match asked {
            Asked::Write => {
                state.last += 1;
                state.put(state.last);
                let may_gather = self.give(state, machine);
                self.done(state, machine, Told::Written { number: state.last, may_gather });
            }
            Asked::Gathered(number) => state.put(number),
            Asked::Returned => self.end_lease(state),
            Asked::Look { floor } | Asked::Open { floor } => {
                let is_open = matches!(asked, Asked::Open { .. });
                self.done(state, machine, Told::Shown { number: state.content, floor, is_open });
            }
            Asked::Find { floor } => {
                let told = Told::Shown { number: state.content, floor, is_open: false };
                state.done.push(Done { machine, told, is_found: true, ended: state.ended });
            }
            Asked::Close => state.open &= !(1 << machine),
        }
    }

    fn done(&self, state: &mut State, machine: usize, told: Told) {
        state.done.push(Done { machine, told, is_found: false, ended: state.ended });
    }

    fn wait(&self, state: &mut State, machine: usize, asked: Asked) {
        state.waiting.push((machine, asked));
        state.was_recalled = true;
        let Some(writer) = state.writer.filter(|_| !state.is_recalling) else { return };
        state.is_recalling = true;
        if !state.machines[writer].is_away {
            state.machines[writer].to_machine.push(Told::Recall);
        }
    }

    /// Whether a machine may gather from now on.
    fn give(&self, state: &mut State, machine: usize) -> bool {
        if let Some(writer) = state.writer {
            return writer == machine && !state.is_recalling;
        }
        let is_open_elsewhere = state.open & !(1 << machine) != 0 && !self.has(Bug::GatheredThoughOpen);
        if !is_open_elsewhere {
            state.writer = Some(machine);
        }
        !is_open_elsewhere
    }

    fn end_lease(&self, state: &mut State) {
        if state.writer.take().is_some() {
            state.ended += 1;
        }
        state.is_recalling = false;
        for (machine, asked) in std::mem::take(&mut state.waiting) {
            self.serve(state, machine, asked);
        }
    }

    fn answer(&self, state: &mut State, at: usize) {
        let Done { machine, told, is_found, ended } = state.done.remove(at);
        let may_be_old = state.writer.is_some_and(|writer| writer != machine) || state.ended > ended;
        if is_found && may_be_old && !self.has(Bug::FoundThoughGathered) {
            let Told::Shown { floor, .. } = told else { return };
            state.was_asked_again = true;
            return self.serve(state, machine, Asked::Look { floor });
        }
        state.machines[machine].to_machine.push(told);
    }

    fn hear(&self, state: &mut State, machine: usize) {
        match state.machines[machine].to_machine.remove(0) {
            Told::Written { number, may_gather } => {
                state.answered |= bit(number);
                let this = &mut state.machines[machine];
                this.asks = false;
                state.was_overtaken |= may_gather && this.is_recalled;
                this.may_gather = may_gather && (!this.is_recalled || self.has(Bug::GatheredThoughRecalled));
            }
            Told::Recall => {
                let this = &mut state.machines[machine];
                (this.may_gather, this.is_recalled) = (false, true);
                if !self.has(Bug::ReturnedBeforeSent) {
                    send(this);
                }
                this.to_owner.push(Asked::Returned);
                send(this);
            }
            Told::Shown { number, floor, is_open } => {
                state.is_stale |= state.leaves_out(number, floor);
                let this = &mut state.machines[machine];
                this.has_open |= is_open;
                this.is_opening &= !is_open;
            }
        }
    }

    fn cut(&self, state: &mut State, machine: usize) {
        state.cuts += 1;
        let this = &mut state.machines[machine];
        (this.is_away, this.may_gather) = (true, false);
        // What did not arrive is sent again.
        let unsent = this
            .to_owner
            .iter()
            .find_map(|asked| if let Asked::Gathered(number) = asked { Some(*number) } else { None });
        this.sent = unsent;
        this.to_owner.clear();
        this.to_machine.clear();
        if self.has(Bug::AnsweredWhileAway) && state.writer == Some(machine) {
            self.end_lease(state);
        }
    }

    fn back(&self, state: &mut State, machine: usize) {
        let is_over = std::mem::take(&mut state.machines[machine].is_over);
        let this = &mut state.machines[machine];
        this.is_away = false;
        if is_over && !self.has(Bug::WrittenAfterGivenUp) {
            (this.sent, this.gathered) = (None, None);
        }
        let again = this.sent.take();
        this.to_owner.extend(again.map(Asked::Gathered));
        if state.writer == Some(machine) && state.is_recalling {
            this.to_machine.push(Told::Recall);
        }
    }

    /// It is waited for no longer, and has lost what it had gathered.
    fn give_up(&self, state: &mut State, machine: usize) {
        let this = &mut state.machines[machine];
        this.is_over = true;
        state.lost |= [this.sent, this.gathered].into_iter().flatten().fold(0, |bits, number| bits | bit(number));
        if state.writer == Some(machine) {
            self.end_lease(state);
        }
    }

    fn crash(&self, state: &mut State) {
        state.crashes += 1;
        (state.writer, state.is_recalling, state.open) = (None, false, 0);
        let (waiting, done) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.done));
        let asked_again = done.into_iter().map(|done| match done.told {
            Told::Shown { floor, is_open, .. } => (done.machine, again(floor, is_open)),
            // It was made, and is found in what its machine keeps; nobody else was answered because of it.
            Told::Written { .. } | Told::Recall => (done.machine, Asked::Write),
        });
        for (machine, asked) in waiting.into_iter().chain(asked_again) {
            state.machines[machine].to_owner.push(asked);
        }
        for (machine, this) in state.machines.iter_mut().enumerate() {
            this.may_gather = false;
            let answers = std::mem::take(&mut this.to_machine);
            this.to_owner.retain(|asked| !matches!(asked, Asked::Returned | Asked::Close));
            for told in answers {
                match told {
                    Told::Written { .. } => this.to_owner.push(Asked::Write),
                    Told::Shown { floor, is_open, .. } => this.to_owner.push(again(floor, is_open)),
                    Told::Recall => {}
                }
            }
            state.open |= u8::from(this.has_open) << machine;
        }
        state.grace = if self.has(Bug::ServedBeforeGatheredIsTold) { 0 } else { (1 << MACHINES) - 1 };
    }

    /// What was gathered goes to the next owner before it serves anybody, and once.
    fn tell(&self, state: &mut State, machine: usize) {
        state.grace &= !(1 << machine);
        let this = &mut state.machines[machine];
        let unsent = this
            .to_owner
            .iter()
            .find_map(|asked| if let Asked::Gathered(number) = asked { Some(*number) } else { None });
        if !self.has(Bug::SentOnceMore) {
            this.to_owner.retain(|asked| !matches!(asked, Asked::Gathered(_)));
        }
        let gathered = this.gathered.take();
        for number in [unsent, gathered].into_iter().flatten() {
            state.was_told = true;
            state.content = state.content.max(number);
        }
    }
}

fn send(this: &mut Machine) {
    this.to_owner.extend(this.gathered.take().map(Asked::Gathered));
}

/// A question that was not answered is asked again.
fn again(floor: u8, is_open: bool) -> Asked {
    if is_open { Asked::Open { floor } } else { Asked::Look { floor } }
}

fn ask(this: &mut Machine, asked: Asked) {
    this.looks += 1;
    this.to_owner.push(asked);
}
