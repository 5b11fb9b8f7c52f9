//! The steps of the model: which are possible in a state, and what each does.
//!
//! Invariants: a step that is offered changes the state, or the checker skips it as known; the log itself is changed by
//! `Arrive` and `Trim` only. Planted bugs are asked for with `has`. Read next: `../slots.rs`.

use super::Acknowledgement;
use super::state::{Owner, Put, Record, Requests, Role, State};
use crate::bug::Bug;

/// The two processes that can be owner.
const OWNERS: [usize; 2] = [0, 1];
const CLIENTS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    ReadToEnd {
        owner: usize,
    },
    PutEpoch {
        owner: usize,
    },
    /// Older leases have expired, and the successor serves.
    SilencePassed {
        owner: usize,
    },
    PutCommit {
        owner: usize,
        requests: Requests,
    },
    /// A put reaches the log.
    Arrive {
        put: Put,
    },
    /// The answer of the log reaches the owner.
    Answer {
        owner: usize,
    },
    /// The owner waits no longer and reads back whose record is at the number. The put or its answer is lost or late.
    AnswerLost {
        owner: usize,
    },
    Acknowledge {
        owner: usize,
        request: Requests,
    },
    LeaseRenewed {
        owner: usize,
    },
    LeaseExpired {
        owner: usize,
    },
    Read {
        owner: usize,
    },
    Trim {
        owner: usize,
    },
    Crash {
        owner: usize,
    },
}

impl Acknowledgement {
    /// All requests that clients will send.
    pub(super) fn requests(&self) -> Requests {
        (0..CLIENTS).map(|client| ((1 << self.requests_each) - 1) << (2 * client)).sum()
    }

    /// The requests that were sent: a client sends the next when the one before was acknowledged. Copies of all of them
    /// are in the network for ever, and reach any owner at any time.
    fn sent(&self, state: &State) -> Requests {
        const FIRSTS: Requests = 0b0101;
        self.requests() & (FIRSTS | state.acknowledged << 1 & !FIRSTS)
    }

    /// What an owner knows to be executed, so that it does not execute it again.
    fn known(&self, state: &State, owner: &Owner) -> Requests {
        let all = state.executed_in(0, owner.end);
        if self.has(Bug::TrimForgetsRequests) {
            return state.executed_in(owner.from, owner.end);
        }
        if self.has(Bug::CommitRepeatedTwice) {
            let own = state.log[..usize::from(owner.end)].iter().filter(|record| record.epoch() == owner.epoch);
            return own.fold(0, |own, record| match record {
                Record::Commit { requests, .. } => own | requests,
                Record::Epoch { .. } => own,
            });
        }
        all
    }

    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        for owner in OWNERS {
            self.possible_of(state, owner, steps);
            self.possible_waits(state, owner, steps);
        }
        let length = state.length();
        steps.extend(state.network.iter().filter(|put| put.number <= length + 1).map(|put| Step::Arrive { put: *put }));
    }

    fn possible_of(&self, state: &State, owner: usize, steps: &mut Vec<Step>) {
        let this = &state.owners[owner];
        match this.role {
            // The owners are alike: the first to begin is called owner 0.
            Role::Idle if state.epochs < self.epochs_max && (owner == 0 || state.epochs > 0) => {
                steps.push(Step::ReadToEnd { owner })
            }
            Role::Reading if self.may_claim(state, owner) => steps.push(Step::PutEpoch { owner }),
            Role::Waiting if self.is_silent(state, owner) => steps.push(Step::SilencePassed { owner }),
            Role::Serving => self.possible_serving(state, owner, steps),
            Role::Deaf(requests) => self.possible_acknowledgements(state, owner, requests, steps),
            _ => {}
        }
        if this.lease {
            steps.push(Step::LeaseExpired { owner });
        }
        if this.role != Role::Idle && state.crashes < self.crashes_max {
            steps.push(Step::Crash { owner });
        }
    }

    fn possible_waits(&self, state: &State, owner: usize, steps: &mut Vec<Step>) {
        let Some(put) = state.owners[owner].put else { return };
        steps.push(Step::AnswerLost { owner });
        if put.number <= state.length() {
            steps.push(Step::Answer { owner });
        }
    }

    fn possible_serving(&self, state: &State, owner: usize, steps: &mut Vec<Step>) {
        let this = &state.owners[owner];
        let known = self.known(state, this);
        let wanted = self.sent(state) & !known;
        if this.put.is_none() {
            // A group of one request, or of one of each client.
            let groups = (1..=wanted).filter(|group| group & !wanted == 0);
            steps.extend(groups.map(|requests| Step::PutCommit { owner, requests }));
            if this.end > state.first + 1 && state.trims < self.trims_max {
                steps.push(Step::Trim { owner });
            }
        }
        let unanswered = match this.put {
            Some(Put { record: Record::Commit { requests, .. }, .. }) => requests,
            _ => 0,
        };
        let early = if self.has(Bug::AcknowledgedBeforePut) { unanswered } else { 0 };
        self.possible_acknowledgements(state, owner, known | early, steps);
        if !this.lease && this.end == state.length() {
            steps.push(Step::LeaseRenewed { owner });
        }
        if this.lease || self.has(Bug::StaleReadAfterLease) {
            steps.push(Step::Read { owner });
        }
    }

    fn possible_acknowledgements(&self, state: &State, owner: usize, done: Requests, steps: &mut Vec<Step>) {
        let wanted = self.sent(state) & !state.acknowledged & done;
        let each = (0..8).map(|bit| 1 << bit).filter(|request| wanted & request != 0);
        steps.extend(each.map(|request| Step::Acknowledge { owner, request }));
    }

    fn may_claim(&self, state: &State, owner: usize) -> bool {
        !self.has(Bug::SilenceBeforeEpochRecord) || !state.owners[1 - owner].lease
    }

    /// A lease that began before the epoch record is shorter than this wait, and none begins after it.
    fn is_silent(&self, state: &State, owner: usize) -> bool {
        self.has(Bug::SilenceBeforeEpochRecord) || !state.owners[1 - owner].lease
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::ReadToEnd { owner } => {
                state.epochs += 1;
                let (epoch, from, end) = (state.epochs, state.first, state.length());
                state.owners[owner] = Owner { role: Role::Reading, epoch, from, end, ..Owner::default() };
            }
            Step::PutEpoch { owner } => self.put_epoch(state, owner),
            Step::SilencePassed { owner } => {
                let known_is_end = state.owners[owner].end == state.length();
                state.owners[owner].role = Role::Serving;
                state.owners[owner].lease = known_is_end;
            }
            Step::PutCommit { owner, requests } => {
                let epoch = state.owners[owner].epoch;
                send(state, owner, Record::Commit { epoch, requests });
            }
            Step::Arrive { put } => arrive(state, put),
            Step::Answer { owner } => self.answered(state, owner),
            Step::AnswerLost { owner } => self.settle(state, owner),
            Step::Acknowledge { request, .. } => state.acknowledged |= request,
            Step::LeaseRenewed { owner } => state.owners[owner].lease = true,
            Step::LeaseExpired { owner } => state.owners[owner].lease = false,
            Step::Read { owner } => {
                let end = state.owners[owner].end;
                state.stale_read |= state.acknowledged & !state.executed_in(0, end) != 0;
            }
            Step::Trim { owner } => {
                state.trims += 1;
                let first = state.owners[owner].end - 1;
                assert!(first > state.first && first < state.length(), "the last record is kept");
                state.first = first;
            }
            Step::Crash { owner } => {
                state.crashes += 1;
                state.owners[owner] = Owner::default();
            }
        }
    }

    fn put_epoch(&self, state: &mut State, owner: usize) {
        let epoch = state.owners[owner].epoch;
        if self.has(Bug::EpochRecordSkipped) && !state.log.is_empty() {
            state.owners[owner].role = Role::Waiting;
            return;
        }
        state.owners[owner].role = Role::Claiming;
        send(state, owner, Record::Epoch { epoch });
    }

    /// The log has decided on the owner's put, and the owner gets to know it.
    fn answered(&self, state: &mut State, owner: usize) {
        let Some(put) = state.owners[owner].put.take() else { return };
        assert!(put.number <= state.length(), "the log has decided");
        let is_mine = state.at(put.number) == Some(put.record);
        let this = &mut state.owners[owner];
        this.role = match (this.role, put.record) {
            (Role::Claiming, _) if is_mine => Role::Waiting,
            (role, _) if is_mine => role,
            // The successor reads on and tries again.
            (Role::Claiming, _) => Role::Reading,
            (_, Record::Commit { requests, .. }) if self.has(Bug::FencedStillAcknowledges) => Role::Deaf(requests),
            _ => Role::Idle,
        };
        match this.role {
            Role::Waiting | Role::Serving => this.end = put.number,
            Role::Reading => this.end = state.log.len() as u8,
            _ => *this = Owner { role: this.role, ..Owner::default() },
        }
    }

    fn settle(&self, state: &mut State, owner: usize) {
        let Some(put) = state.owners[owner].put else { return };
        if self.has(Bug::LostAnswerTakenForNo) && matches!(put.record, Record::Commit { .. }) {
            let next = Put { number: put.number + 1, ..put };
            state.network.insert(next);
            state.owners[owner].put = Some(next);
            return;
        }
        if put.number > state.length() {
            // Nothing is there yet. The same record at the same number again is safe, whichever copy arrives first.
            state.network.insert(put);
            return;
        }
        if put.number <= state.first {
            // Trimmed: somebody else has gone on.
            state.owners[owner] = Owner::default();
            return;
        }
        self.answered(state, owner);
    }
}

/// The owner puts a record at the first number that it believes to be free.
fn send(state: &mut State, owner: usize, record: Record) {
    assert!(state.owners[owner].put.is_none(), "an owner waits for one put at a time");
    let put = Put { number: state.owners[owner].end + 1, record };
    state.network.insert(put);
    state.owners[owner].put = Some(put);
}

/// Put if absent.
fn arrive(state: &mut State, put: Put) {
    state.network.remove(&put);
    if put.number == state.length() + 1 {
        state.log.push(put.record);
    }
}
