//! A log in memory that several handles share: for tests and the simulator. Invariants: those of `lib.rs`.
//!
//! It can be made to fall silent, to lose an answer after it acted, and to be full. Read next: `lib.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::too_many_machines;
use crate::{Bounds, ENTRY_BYTES_MAX, Error, MACHINES_MAX, Machine, Put, RECORD_BYTES_MAX, Record, SharedLog};

#[derive(Default)]
struct State {
    first: u64,
    /// Each record with the handle that put it.
    records: BTreeMap<u64, (u64, Vec<u8>)>,
    beat: Vec<u8>,
    machines: BTreeMap<Machine, Vec<u8>>,
    handles: u64,
    is_away: bool,
    is_full: bool,
    /// The next so many puts act, and their answers are lost on the way.
    answers_lost: u32,
}

impl State {
    fn next(&self) -> u64 {
        self.records.keys().next_back().map_or(self.first, |last| last + 1)
    }
}

/// A handle of a log in memory.
pub struct MemoryLog {
    state: Arc<Mutex<State>>,
    handle: u64,
}

impl Default for MemoryLog {
    fn default() -> Self {
        MemoryLog { state: Arc::new(Mutex::new(State { first: 1, ..State::default() })), handle: 0 }
    }
}

impl MemoryLog {
    pub fn new() -> Self {
        Self::default()
    }

    /// Another handle of the same log, as another process has it.
    pub fn another(&self) -> Self {
        let mut state = self.state.lock();
        state.handles += 1;
        MemoryLog { state: self.state.clone(), handle: state.handles }
    }

    pub fn set_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
    }

    pub fn set_full(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
    }

    pub fn lose_answers(&self, count: u32) {
        self.state.lock().answers_lost = count;
    }

    /// Puts the log back to what it was when it had so many records, as a restored backup does.
    pub fn cut_to(&self, next: u64) {
        self.state.lock().records.retain(|sequence, _| *sequence < next);
    }

    fn while_there<T>(&self, act: impl FnOnce(&mut State) -> Result<T, Error>) -> Result<T, Error> {
        let mut state = self.state.lock();
        if state.is_away {
            return Err(Error::Away { address: "memory:".into(), why: "it was made to be silent".into() });
        }
        act(&mut state)
    }
}

impl SharedLog for MemoryLog {
    fn put(&self, sequence: u64, record: &[u8]) -> Result<Put, Error> {
        assert!(record.len() <= RECORD_BYTES_MAX, "a record of {} bytes is cut before it is put", record.len());
        self.while_there(|state| {
            if let Some((handle, bytes)) = state.records.get(&sequence) {
                let is_mine = *handle == self.handle && bytes == record;
                return Ok(if is_mine { Put::Mine } else { Put::Taken });
            }
            if sequence < state.first {
                return Ok(Put::Taken);
            }
            if state.is_full {
                return Err(Error::Refused { address: "memory:".into(), why: "it is full".into() });
            }
            let next = state.next();
            if sequence > next {
                let why = format!("record {sequence} is put, and the log ends before {next}");
                return Err(Error::Damaged { address: "memory:".into(), why });
            }
            state.records.insert(sequence, (self.handle, record.to_vec()));
            if state.answers_lost > 0 {
                state.answers_lost -= 1;
                return Err(Error::Away { address: "memory:".into(), why: "the answer was lost".into() });
            }
            Ok(Put::Mine)
        })
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<Record>, Error> {
        self.while_there(|state| {
            if from < state.first {
                return Err(Error::Trimmed { asked: from, first: state.first });
            }
            let mut bytes = 0;
            let mut records = Vec::new();
            for (sequence, (_, record)) in state.records.range(from..) {
                bytes += record.len();
                if !records.is_empty() && bytes > bytes_max {
                    break;
                }
                records.push(Record { sequence: *sequence, bytes: record.clone() });
            }
            Ok(records)
        })
    }

    fn trim(&self, before: u64) -> Result<(), Error> {
        self.while_there(|state| {
            let before = before.min(state.next().saturating_sub(1)).max(state.first);
            assert!(before >= state.first, "a log that begins at {} is not trimmed back to {before}", state.first);
            state.records.retain(|sequence, _| *sequence >= before);
            state.first = before;
            Ok(())
        })
    }

    fn bounds(&self) -> Result<Bounds, Error> {
        self.while_there(|state| Ok(Bounds { first: state.first, next: state.next() }))
    }

    fn beat(&self, beat: &[u8]) -> Result<(), Error> {
        self.while_there(|state| {
            state.beat = beat.to_vec();
            Ok(())
        })
    }

    fn last_beat(&self) -> Result<Vec<u8>, Error> {
        self.while_there(|state| Ok(state.beat.clone()))
    }

    fn machines(&self) -> Result<Vec<(Machine, Vec<u8>)>, Error> {
        self.while_there(|state| Ok(state.machines.iter().map(|(machine, entry)| (*machine, entry.clone())).collect()))
    }

    fn put_machine(&self, machine: Machine, before: Option<&[u8]>, entry: &[u8]) -> Result<Put, Error> {
        assert!(entry.len() <= ENTRY_BYTES_MAX, "an entry of {} bytes is no machine's", entry.len());
        self.while_there(|state| {
            let known = state.machines.get(&machine).map(Vec::as_slice);
            if known != before && known != Some(entry) {
                return Ok(Put::Taken);
            }
            if known.is_none() && state.machines.len() >= MACHINES_MAX {
                return Err(Error::Refused { address: "memory:".into(), why: too_many_machines() });
            }
            state.machines.insert(machine, entry.to_vec());
            Ok(Put::Mine)
        })
    }
}

#[cfg(test)]
mod tests;
