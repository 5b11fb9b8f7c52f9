//! The steps of the model: which are possible in a state, and what each does.
//!
//! Invariants: only `Arrive`, `Flush` and `NodeCrash` change what nodes hold; an owner decides by its own prefix of the
//! log. Planted bugs are asked for with `has`. Read next: `../report.rs`.

use super::Slots;
use super::state::{ALL_NODES, Commit, NODES, Owner, Record, Role, SLOTS, State, Work, Write};
use crate::bug::Bug;

/// The two processes that can be owner.
const OWNERS: [usize; 2] = [0, 1];
/// How many nodes a commit needs.
const COPIES: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    ReadToEnd {
        owner: usize,
    },
    PutEpoch {
        owner: usize,
    },
    PutGrant {
        owner: usize,
        slot: usize,
    },
    /// The owner sends new bytes for a slot to all nodes that it has not given up.
    SendWrite {
        owner: usize,
        slot: usize,
    },
    /// A write reaches the cache of its node.
    Arrive {
        write: Write,
    },
    /// The owner flushes the nodes that have answered, and gives up the others.
    Flush {
        owner: usize,
    },
    PutCommit {
        owner: usize,
    },
    LeaseRenewed {
        owner: usize,
    },
    LeaseExpired {
        owner: usize,
    },
    /// A replaced owner's lease has expired and the time-out of its connections has passed: what it sent has arrived or
    /// never will.
    TimeoutPassed {
        epoch: u8,
    },
    Crash {
        owner: usize,
    },
    NodeCrash {
        node: usize,
    },
}

impl Slots {
    pub(super) fn possible(&self, state: &State, steps: &mut Vec<Step>) {
        for owner in OWNERS {
            let this = &state.owners[owner];
            match this.role {
                // The owners are alike: the first to begin is called owner 0.
                Role::Idle if state.epochs < self.epochs_max && (owner == 0 || state.epochs > 0) => {
                    steps.push(Step::ReadToEnd { owner })
                }
                Role::Idle => {}
                Role::Reading => steps.push(Step::PutEpoch { owner }),
                Role::Serving => self.possible_serving(state, owner, steps),
            }
            if this.lease {
                steps.push(Step::LeaseExpired { owner });
            }
            if this.role == Role::Serving && state.crashes < self.crashes_max {
                steps.push(Step::Crash { owner });
            }
        }
        let different: Vec<usize> = (0..NODES).filter(|node| !state.is_like_earlier(*node)).collect();
        let arriving = state.network.iter().filter(|write| different.contains(&write.node));
        steps.extend(arriving.map(|write| Step::Arrive { write: *write }));
        let epochs = (1..=state.epochs).filter(|epoch| state.passed & (1 << epoch) == 0);
        let over = epochs.filter(|epoch| state.is_replaced(*epoch) && !state.has_lease(*epoch));
        steps.extend(over.map(|epoch| Step::TimeoutPassed { epoch }));
        if state.node_crashes < self.node_crashes_max {
            let loses = |node: &usize| state.nodes[*node].cached.iter().any(|cached| cached.is_some());
            steps.extend(different.into_iter().filter(loses).map(|node| Step::NodeCrash { node }));
        }
    }

    fn possible_serving(&self, state: &State, owner: usize, steps: &mut Vec<Step>) {
        let this = &state.owners[owner];
        if !this.lease && this.end == state.log.len() {
            steps.push(Step::LeaseRenewed { owner });
        }
        let Some(work) = this.work else {
            if state.writes < self.writes_max {
                steps.extend((0..SLOTS).filter_map(|slot| self.possible_for_slot(state, owner, slot)));
            }
            return;
        };
        let missing = (ALL_NODES & !this.away & !work.written).count_ones() + this.away.count_ones();
        let is_enough = work.written.count_ones() >= COPIES && missing <= self.cut_max;
        if is_enough && !work.is_flushed {
            steps.push(Step::Flush { owner });
        }
        if is_enough && (work.is_flushed || self.has(Bug::PutBeforeFlush)) {
            steps.push(Step::PutCommit { owner });
        }
    }

    /// What an owner may do with a slot that is free in its view: write it, or have it granted.
    fn possible_for_slot(&self, state: &State, owner: usize, slot: usize) -> Option<Step> {
        let this = &state.owners[owner];
        if state.current(this.end).is_some_and(|commit| commit.slot == slot) {
            return None;
        }
        let holder = state.holder(slot, this.end);
        let write = this.lease.then_some(Step::SendWrite { owner, slot });
        match holder {
            Some(epoch) if epoch == this.epoch => write,
            Some(epoch) if !self.may_reuse(state, epoch) => None,
            _ if self.has(Bug::WriteBeforeGrant) => write,
            _ => Some(Step::PutGrant { owner, slot }),
        }
    }

    /// Whether a free slot that an earlier epoch holds may be granted again.
    fn may_reuse(&self, state: &State, holder: u8) -> bool {
        match self.bug {
            Some(Bug::SlotGrantedTwice) => true,
            Some(Bug::LateWriteIntoReusedSlot) => !state.has_lease(holder),
            _ => state.passed & (1 << holder) != 0,
        }
    }

    pub(super) fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::ReadToEnd { owner } => {
                state.owners[owner] = Owner { role: Role::Reading, end: state.log.len(), ..Owner::default() };
            }
            Step::PutEpoch { owner } => put_epoch(state, owner),
            Step::PutGrant { owner, slot } => {
                let epoch = state.owners[owner].epoch;
                put(state, owner, Record::Grant { epoch, slot });
            }
            Step::SendWrite { owner, slot } => send_write(state, owner, slot),
            Step::Arrive { write } => arrive(state, write),
            Step::Flush { owner } => flush(state, owner),
            Step::PutCommit { owner } => put_commit(state, owner),
            Step::LeaseRenewed { owner } => state.owners[owner].lease = true,
            Step::LeaseExpired { owner } => state.owners[owner].lease = false,
            Step::TimeoutPassed { epoch } => {
                state.passed |= 1 << epoch;
                state.network.retain(|write| write.epoch != epoch);
            }
            Step::Crash { owner } => {
                state.crashes += 1;
                state.owners[owner] = Owner::default();
            }
            Step::NodeCrash { node } => node_crash(state, node),
        }
    }
}

/// Puts a record at the first number that the owner believes to be free. `Taken` makes it forget its state.
fn put(state: &mut State, owner: usize, record: Record) -> bool {
    let this = &mut state.owners[owner];
    if this.end != state.log.len() {
        *this = Owner::default();
        return false;
    }
    state.log.push(record);
    this.end += 1;
    true
}

fn put_epoch(state: &mut State, owner: usize) {
    let epoch = state.epochs + 1;
    if put(state, owner, Record::Epoch { epoch }) {
        state.epochs = epoch;
        let this = &mut state.owners[owner];
        (this.role, this.epoch, this.lease) = (Role::Serving, epoch, true);
    }
}

fn send_write(state: &mut State, owner: usize, slot: usize) {
    state.writes += 1;
    let (bytes, this) = (state.writes, &mut state.owners[owner]);
    assert!(this.lease && this.work.is_none(), "an owner writes within its lease");
    this.work = Some(Work { slot, bytes, written: 0, is_flushed: false });
    let nodes = (0..NODES).filter(|node| this.away & (1 << node) == 0);
    state.network.extend(nodes.map(|node| Write { epoch: this.epoch, node, slot, bytes }));
}

/// The node does not know who may write; its answer reaches the owner if it still waits.
fn arrive(state: &mut State, write: Write) {
    state.network.remove(&write);
    state.nodes[write.node].cached[write.slot] = Some(write.bytes);
    state.late_write_arrived |= state.is_replaced(write.epoch);
    for work in state.owners.iter_mut().filter_map(|owner| owner.work.as_mut()) {
        if work.bytes == write.bytes && !work.is_flushed {
            work.written |= 1 << write.node;
        }
    }
}

fn flush(state: &mut State, owner: usize) {
    let this = &mut state.owners[owner];
    let Some(work) = this.work.as_mut() else { return };
    assert!(!work.is_flushed && work.written.count_ones() >= COPIES, "enough nodes have answered");
    work.is_flushed = true;
    this.away |= ALL_NODES & !work.written;
    let written = state.nodes.iter_mut().enumerate().filter(|(index, _)| work.written & (1 << index) != 0);
    written.for_each(|(_, node)| node.flush());
}

fn put_commit(state: &mut State, owner: usize) {
    let epoch = state.owners[owner].epoch;
    let Some(Work { slot, bytes, written: nodes, .. }) = state.owners[owner].work.take() else { return };
    put(state, owner, Record::Commit(Commit { epoch, slot, bytes, nodes }));
}

/// The node loses its cache, and every owner that had not flushed notices that its connection broke.
fn node_crash(state: &mut State, node: usize) {
    state.node_crashes += 1;
    state.nodes[node].cached = Default::default();
    for work in state.owners.iter_mut().filter_map(|owner| owner.work.as_mut()) {
        if !work.is_flushed {
            work.written &= !(1 << node);
        }
    }
}
