//! Which machines may connect, as the pool's registry says: read each second, so that nobody who connects waits for an engine for long.
//!
//! Invariant: a key is let in only if the last thing that was read of the registry admits it; while the registry cannot be read, that counts.
//! Read next: `greet.rs`, `listener.rs`.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use stere_format::{MachineEntry, MachineState};
use stere_machine_tls::PublicKey;
use stere_machine_wire::Refusal;

#[cfg(test)]
mod tests;

/// Reads all entries; `None` where the registry cannot be read now.
pub type ReadMembers = Box<dyn Fn() -> Option<Vec<MachineEntry>> + Send + Sync>;

/// What was read is believed for so long without another look.
const BELIEVED: Duration = Duration::from_secs(1);
/// Who is not known to be admitted waits so long for another look.
const LOOK_MAX: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Known {
    entries: Option<Vec<MachineEntry>>,
    read: Option<Instant>,
    /// Looks that were begun, and the last of them that has ended.
    begun: u64,
    ended: u64,
    is_wanted: bool,
    is_over: bool,
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.read.is_some_and(|read| read.elapsed() <= BELIEVED)
    }

    fn judge(&self, key: &PublicKey) -> Result<[u8; 16], Refusal> {
        let entries = self.entries.iter().flatten();
        let entry = entries.filter(|entry| entry.public_key == key.0).min_by_key(|entry| match entry.state {
            // A key that two machines have is refused if one of them is.
            MachineState::Refused => 0,
            MachineState::Waiting => 1,
            MachineState::Admitted => 2,
        });
        match entry.map(|entry| (entry.state, entry.machine)) {
            Some((MachineState::Admitted, machine)) => Ok(machine),
            Some((MachineState::Waiting, _)) => Err(Refusal::Waiting),
            Some((MachineState::Refused, _)) => Err(Refusal::NotAdmitted),
            None => Err(Refusal::Unknown),
        }
    }
}

/// The members of a pool, as its owner knows them.
pub(crate) struct Members {
    from: ReadMembers,
    known: Mutex<Known>,
    wanted: Condvar,
    looked: Condvar,
}

impl Members {
    pub fn new(from: ReadMembers) -> Members {
        Members { from, known: Mutex::default(), wanted: Condvar::new(), looked: Condvar::new() }
    }

    /// The machine whose key this is, if it may connect.
    pub fn judge(&self, key: &PublicKey) -> Result<[u8; 16], Refusal> {
        let mut known = self.known.lock();
        if known.is_fresh()
            && let Ok(machine) = known.judge(key)
        {
            return Ok(machine);
        }
        // It may have been admitted just now.
        assert!(known.ended <= known.begun, "a look ends after it began");
        let (before, deadline) = (known.begun, Instant::now() + LOOK_MAX);
        known.is_wanted = true;
        self.wanted.notify_one();
        while known.ended <= before && !known.is_over {
            if self.looked.wait_until(&mut known, deadline).timed_out() {
                break;
            }
        }
        known.judge(key)
    }

    /// Whether the machine with this key is known not to be admitted.
    pub fn is_out(&self, key: &PublicKey) -> bool {
        let known = self.known.lock();
        known.entries.is_some() && known.judge(key).is_err()
    }

    /// Reads each second, and when somebody wants it, until the end. For a thread of its own.
    pub fn keep_reading(&self, after_each: impl Fn()) {
        let mut is_told = false;
        loop {
            let begun = {
                let mut known = self.known.lock();
                if known.is_over {
                    return;
                }
                known.is_wanted = false;
                known.begun += 1;
                known.begun
            };
            let (at, entries) = (Instant::now(), (self.from)());
            if entries.is_none() && !std::mem::replace(&mut is_told, entries.is_none()) {
                tracing::warn!("the registry of machines cannot be read: what was read last counts");
            }
            let mut known = self.known.lock();
            if entries.is_some() {
                (known.entries, known.read, is_told) = (entries, Some(at), false);
            }
            assert!(known.ended < begun, "looks end in their order");
            known.ended = begun;
            drop(known);
            self.looked.notify_all();
            after_each();
            let mut known = self.known.lock();
            if !known.is_wanted && !known.is_over {
                self.wanted.wait_for(&mut known, BELIEVED);
            }
        }
    }

    pub fn end(&self) {
        self.known.lock().is_over = true;
        self.wanted.notify_all();
        self.looked.notify_all();
    }
}
