//! The claim to a pool that several machines may reach: at most one of them writes to it.
//!
//! A lock of the operating system ends at the machine. So the process that uses the pool keeps a heartbeat on each device that
//! others may reach, and whoever wants to write looks first: a live heartbeat is watched for longer than its owner may be
//! silent, and if it does not move, and its owner does not speak up, it is written over. The new owner then waits until a rival that looked
//! at the same moment must have written too, and reads again: on each device the last one stays, and only an owner that finds
//! itself on all of them goes on. ZFS does the same (multihost).
//!
//! Invariants: nothing is written before the watch is over; an owner that finds another one on any device stops for good; a
//! heartbeat of another owner is never written over without a watch. No clock and no thread is in here: `step` and `beat` are
//! told the time and are called by somebody who has both. Read next: `crates/multihost`, and `docs/design/missing-devices.md`.

use std::sync::Arc;

use stere_device::{Device, DeviceError};
use stere_faults::{Bug, is_planted};
use stere_format::{DeviceId, Heartbeat, PoolId};

use crate::assemble::Assembly;
use crate::error::Error;

/// A beat comes so often.
pub const BEAT_INTERVAL_MS: u32 = 1000;
/// A live heartbeat that does not move for so long has no owner any more.
pub const WATCH_MS: u64 = 6000;
/// What is watched is read so often.
pub const POLL_MS: u64 = 250;

/// Who wants the pool, in words that go into a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// Random for each opening.
    pub owner: [u8; 16],
    pub machine: [u8; 16],
    pub boot: [u8; 16],
    pub process_namespace: u64,
    pub process: u32,
    pub process_start_ticks: u64,
    pub host: String,
}

/// One device that others may reach.
#[derive(Clone)]
pub struct Shared {
    pub path: String,
    pub device: Arc<dyn Device>,
    pub pool: PoolId,
    pub id: DeviceId,
    /// Of the heartbeat.
    pub offset: u64,
}

/// What stands where a heartbeat is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// Torn, or damaged: these bytes.
    Damaged(u32),
    Beat(Heartbeat),
}

impl Seen {
    fn is_live(&self) -> bool {
        match self {
            Seen::Nothing => false,
            Seen::Damaged(_) => true,
            Seen::Beat(beat) => beat.is_live,
        }
    }
}

impl Shared {
    /// What can be read of the heartbeat. One of another pool, or of another device, was left by what the device was before.
    fn look(&self) -> Result<Seen, DeviceError> {
        let mut bytes = vec![0; Heartbeat::SIZE];
        self.device.read(self.offset, &mut bytes)?;
        Ok(match Heartbeat::decode(&bytes) {
            Ok(beat) if beat.pool == self.pool && beat.device == self.id => Seen::Beat(beat),
            Ok(_) => Seen::Nothing,
            Err(_) if Heartbeat::is_meant(&bytes) => Seen::Damaged(stere_format::crc32c(&bytes)),
            Err(_) => Seen::Nothing,
        })
    }

    fn write(&self, me: &Claimant, sequence: u64, is_live: bool) -> Result<(), DeviceError> {
        let beat = Heartbeat {
            pool: self.pool,
            device: self.id,
            owner: me.owner,
            sequence,
            is_live,
            machine: me.machine,
            boot: me.boot,
            process_namespace: me.process_namespace,
            process: me.process,
            process_start_ticks: me.process_start_ticks,
            interval_ms: BEAT_INTERVAL_MS,
            host: me.host.clone(),
        };
        self.device.write_bytes(self.offset, &beat.encode())?;
        // Without O_DIRECT another machine sees nothing before this.
        self.device.flush()
    }

    fn in_use(&self, seen: &Seen) -> Error {
        let owner = match seen {
            Seen::Beat(beat) => format!("process {} on host {}", beat.process, beat.host),
            _ => "another process".into(),
        };
        Error::InUseElsewhere { device: self.path.clone(), owner }
    }
}

/// What to do next to get the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Call again in so many milliseconds.
    Wait { milliseconds: u64 },
    /// The pool is the claimant's, and its heartbeats want to be kept.
    Held,
}

enum Phase {
    Looking,
    Watching {
        since_ms: u64,
        seen: Vec<Seen>,
    },
    /// Nobody has the pool; this many heartbeats are written.
    Taking {
        written: usize,
        /// Live heartbeats that did not move: their owner may have woken since.
        watched: Option<Vec<Seen>>,
    },
    /// The own heartbeats are written; rivals may have written too.
    Settling {
        until_ms: u64,
    },
    Held,
}

/// A claim that is being made.
pub struct Claim {
    me: Claimant,
    devices: Vec<Shared>,
    phase: Phase,
    /// How long a rival may take from looking to writing.
    settle_ms: u64,
    /// A pool that is only read is looked at, and nothing is written.
    is_reader: bool,
}

impl Claim {
    /// With no devices the claim is held at once. `settle_ms` is longer than any rival takes between its look and its write.
    pub fn new(me: Claimant, devices: Vec<Shared>, settle_ms: u64, is_reader: bool) -> Claim {
        Claim { me, devices, phase: Phase::Looking, settle_ms, is_reader }
    }

    /// Whether the claimant waits because of a live heartbeat; whose it is, in words.
    pub fn watches(&self) -> Option<String> {
        let Phase::Watching { seen, .. } = &self.phase else { return None };
        let owner = seen.iter().find_map(|seen| match seen {
            Seen::Beat(beat) if beat.is_live => Some(beat.host.clone()),
            _ => None,
        });
        Some(owner.unwrap_or_else(|| "an unknown host".into()))
    }

    /// Goes on with the claim. `is_dead` proves that the owner of a heartbeat has ended; where it cannot, the heartbeat is watched.
    /// Once this is an error the pool is another's, and nothing of the claim is left on devices.
    pub fn step(&mut self, now_ms: u64, is_dead: &dyn Fn(&Heartbeat) -> bool) -> Result<Next, Error> {
        match &self.phase {
            Phase::Looking => Ok(self.look(now_ms, is_dead)),
            Phase::Watching { .. } => self.watch(now_ms),
            Phase::Taking { written, watched } => {
                let (written, watched) = (*written, watched.clone());
                self.take(written, watched, now_ms)
            }
            Phase::Settling { until_ms } if now_ms < *until_ms => Ok(Next::Wait { milliseconds: *until_ms - now_ms }),
            Phase::Settling { .. } => self.settle(),
            Phase::Held => Ok(Next::Held),
        }
    }

    fn look(&mut self, now_ms: u64, is_dead: &dyn Fn(&Heartbeat) -> bool) -> Next {
        let seen = look_at_all(&self.devices);
        let is_free = |seen: &Seen| match seen {
            Seen::Beat(beat) => !beat.is_live || is_dead(beat),
            seen => !seen.is_live(),
        };
        if seen.iter().all(is_free) || is_planted(Bug::RivalUnwatched) {
            return self.begin_to_take(None);
        }
        self.phase = Phase::Watching { since_ms: now_ms, seen };
        Next::Wait { milliseconds: POLL_MS }
    }

    fn watch(&mut self, now_ms: u64) -> Result<Next, Error> {
        let Phase::Watching { since_ms, seen } = &self.phase else { return Ok(Next::Wait { milliseconds: 0 }) };
        let now_seen = look_at_all(&self.devices);
        assert_eq!(seen.len(), now_seen.len(), "the devices that are watched stay the same");
        if now_seen == *seen {
            return Ok(match now_ms.saturating_sub(*since_ms) >= WATCH_MS {
                true => self.begin_to_take(Some(now_seen)),
                false => Next::Wait { milliseconds: POLL_MS },
            });
        }
        // One that moves is somebody's; one that ended is looked at anew.
        let mut pairs = self.devices.iter().zip(seen.iter().zip(&now_seen));
        if let Some((one, (_, now))) = pairs.find(|(_, (before, now))| before != now && now.is_live()) {
            return Err(one.in_use(now));
        }
        self.phase = Phase::Looking;
        Ok(Next::Wait { milliseconds: 0 })
    }

    fn settle(&mut self) -> Result<Next, Error> {
        assert!(!self.is_reader, "a reader has nothing to settle");
        let seen = look_at_all(&self.devices);
        let is_mine = |seen: &Seen| matches!(seen, Seen::Beat(beat) if beat.owner == self.me.owner);
        if let Some((one, seen)) = self.devices.iter().zip(&seen).find(|(_, seen)| !is_mine(seen)) {
            let error = one.in_use(seen);
            self.withdraw();
            return Err(error);
        }
        self.phase = Phase::Held;
        Ok(Next::Held)
    }

    fn begin_to_take(&mut self, watched: Option<Vec<Seen>>) -> Next {
        if self.is_reader || self.devices.is_empty() {
            self.phase = Phase::Held;
            return Next::Held;
        }
        assert!(
            watched.as_ref().is_none_or(|watched| watched.len() == self.devices.len()),
            "every device that is taken was watched"
        );
        self.phase = Phase::Taking { written: 0, watched };
        Next::Wait { milliseconds: 0 }
    }

    /// Writes the next heartbeat. A device that takes none would take no data either. An owner that was watched and has woken since is not
    /// written over; one that wakes just now sees the claim at its next beat, so the claim settles for longer than that takes.
    fn take(&mut self, written: usize, mut watched: Option<Vec<Seen>>, now_ms: u64) -> Result<Next, Error> {
        assert!(!self.is_reader, "a reader writes no heartbeat");
        assert!(written < self.devices.len(), "devices are taken one after the other");
        if let Some(before) = &watched {
            let now = self.devices[written].look().unwrap_or(Seen::Nothing);
            if before[written] != now && now.is_live() {
                let error = self.devices[written].in_use(&now);
                self.withdraw();
                return Err(error);
            }
        }
        let is_written = match self.devices[written].write(&self.me, 1, true) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(device = self.devices[written].path, %error, "a device takes no heartbeat");
                drop(self.devices.remove(written));
                watched.iter_mut().for_each(|watched| drop(watched.remove(written)));
                false
            }
        };
        let is_of_devices = |watched: &Vec<Seen>| watched.len() == self.devices.len();
        assert!(watched.as_ref().is_none_or(is_of_devices), "what was seen of each device stands at its place");
        let written = written + usize::from(is_written);
        if written < self.devices.len() {
            self.phase = Phase::Taking { written, watched };
            return Ok(Next::Wait { milliseconds: 0 });
        }
        let beat_ms = if watched.is_some() { u64::from(BEAT_INTERVAL_MS) } else { 0 };
        let settle_ms = self.settle_ms + beat_ms;
        self.phase = Phase::Settling { until_ms: now_ms + settle_ms };
        Ok(Next::Wait { milliseconds: settle_ms })
    }

    /// Leaves nothing of the claim where it still stands.
    fn withdraw(&self) {
        for one in &self.devices {
            Hold::new(self.me.clone()).end(one);
        }
    }

    /// The devices that hold the claim's heartbeats.
    pub fn devices(&self) -> &[Shared] {
        &self.devices
    }
}

/// A device that cannot be read shows nobody; the others do.
fn look_at_all(devices: &[Shared]) -> Vec<Seen> {
    devices.iter().map(|one| one.look().unwrap_or(Seen::Nothing)).collect()
}

/// The heartbeat on one device of a pool that is held.
pub struct Hold {
    me: Claimant,
    sequence: u64,
    /// Another owner's heartbeat on a device that joined later, and since when it has not moved.
    stranger: Option<(Seen, u64)>,
    is_met: bool,
}

impl Hold {
    /// On a device that joins a pool that is held.
    pub fn new(me: Claimant) -> Hold {
        Hold { me, sequence: 1, stranger: None, is_met: false }
    }

    /// On a device of the claim: its heartbeat was this owner's, and any other is a rival's.
    pub fn claimed(me: Claimant) -> Hold {
        Hold { is_met: true, ..Hold::new(me) }
    }

    /// One beat. `InUseElsewhere`: another owner took the pool, and it must not be written to any more. Another error is the
    /// device's, and says nothing of owners.
    pub fn beat(&mut self, one: &Shared, now_ms: u64, is_dead: &dyn Fn(&Heartbeat) -> bool) -> Result<(), Error> {
        let failed = |source| Error::Heartbeat { device: one.path.clone(), source };
        let seen = one.look().map_err(failed)?;
        let is_mine =
            matches!(&seen, Seen::Beat(beat) if beat.owner == self.me.owner) || is_planted(Bug::RivalOverwritten);
        // Also one that has ended: its owner took the pool while this one stood still, wrote to it and closed it.
        if !is_mine && self.is_met && matches!(seen, Seen::Beat(_)) {
            return Err(one.in_use(&seen));
        }
        if !is_mine && seen.is_live() && !matches!(&seen, Seen::Beat(beat) if is_dead(beat)) {
            // A device that was away may show who had it before; only one that moves is a rival.
            match &self.stranger {
                Some((before, _)) if *before != seen => return Err(one.in_use(&seen)),
                Some((_, since_ms)) if now_ms.saturating_sub(*since_ms) >= WATCH_MS => {}
                Some(_) => return Ok(()),
                None => {
                    self.stranger = Some((seen, now_ms));
                    return Ok(());
                }
            }
        }
        (self.is_met, self.stranger) = (true, None);
        self.sequence += 1;
        one.write(&self.me, self.sequence, true).map_err(failed)
    }

    /// The pool was closed in order, and the next owner need not watch. A device that cannot be written shows a live heartbeat
    /// that does not move.
    pub fn end(&self, one: &Shared) {
        if matches!(one.look(), Ok(Seen::Beat(beat)) if beat.owner == self.me.owner)
            && let Err(error) = one.write(&self.me, self.sequence + 1, false)
        {
            tracing::warn!(device = one.path, %error, "the heartbeat could not be ended; the next mount watches it for a moment");
        }
    }
}

impl Assembly {
    /// The devices of the pool for which this holds, as far as their layout has room for a heartbeat.
    pub fn shared(&self, is_reachable_by_others: &dyn Fn(&str) -> bool) -> Vec<Shared> {
        let shared = |member: &crate::Member| {
            let superblock = &member.superblock;
            let offset = superblock.layout.heartbeat_offset().filter(|_| is_reachable_by_others(&member.path))?;
            let (path, device) = (member.path.clone(), member.device.clone());
            Some(Shared { path, device, pool: superblock.pool, id: superblock.device, offset })
        };
        self.members.iter().filter_map(shared).collect()
    }

    /// Whether devices changed since they were judged: an owner that has ended meanwhile wrote to them.
    pub fn is_outdated(&self) -> bool {
        if is_planted(Bug::OutdatedBelieved) {
            return false;
        }
        if let Some(tail) = &self.tail {
            return tail.has_moved();
        }
        self.members.iter().any(|member| match crate::identify(&*member.device) {
            crate::Holds::Member(identity) => identity.superblock.generation != member.read_generation,
            _ => true,
        })
    }
}

#[cfg(test)]
mod tests;
