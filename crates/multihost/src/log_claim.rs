//! The claim to a pool whose log is shared: who is the owner is decided by the log, here is only when somebody tries.
//!
//! An owner beats once a second and looks whether the log's end is what it left. Whoever wants the pool watches that for longer than an
//! owner may be silent. Invariants: the lease is renewed only by a look at the log that began before it is counted from, and that
//! found nothing of anybody else; a new owner whose predecessor beat between the last look and the root waits until that lease
//! is over before it serves anybody. Times count on a clock that goes on while the machine sleeps, of one machine each: clocks of
//! different machines are never compared. Source: `docs/design/cluster.md`, `docs/design/protocol-model.md`. Read next: `guard.rs`, the
//! journal's `tail.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use stere_format::OwnerBeat;
use stere_journal::{JournalError, Tail};
use stere_pool::{Claimant, Error};
use stere_shared_log::SharedLog;

use crate::Multihost;
use crate::machine::random;

/// An owner beats so often.
pub const LOG_BEAT_MS: u64 = 1000;
/// Without a look at the log for so long an owner writes to no device.
pub const LEASE_MS: u64 = 4000;
/// An owner that is silent for so long is replaced.
pub const SILENCE_MS: u64 = 5000;
/// Slots that an owner before was granted are left alone for so long: what it sent before its lease ended has arrived or never will.
pub const FOREIGN_SLOTS_MS: u32 = 30_000;
/// The log is looked at so often while an owner is watched.
const LOOK_MS: u64 = 250;
/// A put is under way while the log is looked at: so often it is looked at again.
const LOOKS_AGAIN: u32 = 10;

/// What a log tells of its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nobody has the pool: it was never owned, or closed in order.
    Nobody,
    /// Somebody has it, or had it when he stopped.
    Owner(OwnerBeat),
}

impl Seen {
    fn host(&self) -> &str {
        match self {
            Seen::Owner(beat) => &beat.host,
            Seen::Nobody => "another machine",
        }
    }
}

/// Looks at the beat, and how far the log goes: both move while an owner lives.
fn look(log: &dyn SharedLog) -> Result<(Seen, u64), stere_shared_log::Error> {
    let beat = log.last_beat()?;
    let next = log.bounds()?.next;
    let seen = match OwnerBeat::decode(&beat) {
        Ok(beat) if !beat.is_closed => Seen::Owner(beat),
        _ => Seen::Nobody,
    };
    Ok((seen, next))
}

/// Watches whether an owner is silent.
pub struct Silence {
    last: Option<(Seen, u64)>,
    /// When it was first seen as it is, at the latest.
    since_ms: u64,
    now_ms: fn() -> u64,
}

impl Silence {
    pub fn new(now_ms: fn() -> u64) -> Silence {
        Silence { last: None, since_ms: 0, now_ms }
    }

    /// Looks once more: who has the pool, and for how long nothing has moved.
    pub fn look(&mut self, log: &dyn SharedLog) -> Result<(Seen, u64), stere_shared_log::Error> {
        let before_ms = (self.now_ms)();
        // Nobody can beat while the log is away: the count begins anew when it is back.
        let now = look(log).inspect_err(|_| self.last = None)?;
        if self.last.as_ref() != Some(&now) {
            // It moved at some time before the answer came.
            self.since_ms = (self.now_ms)();
            self.last = Some(now.clone());
        }
        // A log that answers late tells of the time when it was asked.
        Ok((now.0, before_ms.saturating_sub(self.since_ms)))
    }

    /// Where the log ended at the last look.
    pub fn end(&self) -> Option<u64> {
        self.last.as_ref().map(|(_, next)| *next)
    }

    fn last(&self) -> Option<&(Seen, u64)> {
        self.last.as_ref()
    }
}

struct Kept {
    tail: Arc<Tail>,
    me: Claimant,
    secret: [u8; 32],
    address: Mutex<String>,
    is_ending: AtomicBool,
    now_ms: fn() -> u64,
}

/// A pool's shared log, claimed by this process.
pub struct LogClaim {
    kept: Arc<Kept>,
    threads: Vec<JoinHandle<()>>,
    watched: Watched,
}

/// What was last seen of whoever had the pool before.
#[derive(Clone, Debug)]
pub struct Watched {
    before: Option<(Seen, u64)>,
    /// Nobody waited until it was silent.
    is_forced: bool,
    /// Whether the last root said that the pool was closed in order.
    was_closed: bool,
}

impl LogClaim {
    /// Waits until nobody has the pool, and refuses one whose owner lives; `Multihost::Take` takes it at once, from whoever has it.
    pub fn claim(
        tail: Arc<Tail>,
        me: Claimant,
        now_ms: fn() -> u64,
        mode: Multihost,
        is_reader: bool,
        told: &mut dyn FnMut(&str),
    ) -> Result<LogClaim, Error> {
        let is_forced = mode == Multihost::Take;
        let was_closed = tail.root().is_none_or(|root| root.clean);
        if let Multihost::AfterSilence { next, silent_ms, .. } = mode {
            tail.note_silence(next, silent_ms);
        }
        let (decided, _) = tail.ends();
        let before = wait_until_free(&**tail.log(), now_ms, (mode, was_closed, decided), told)?;
        Ok(LogClaim::claim_watched(tail, me, now_ms, Watched { before, is_forced, was_closed }, is_reader))
    }

    /// What was seen of whoever had the pool before.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Claims a log that was watched already.
    pub fn claim_watched(
        tail: Arc<Tail>,
        me: Claimant,
        now_ms: fn() -> u64,
        watched: Watched,
        is_reader: bool,
    ) -> LogClaim {
        let (secret, address, is_ending) = (random(), Mutex::default(), AtomicBool::new(false));
        let kept = Arc::new(Kept { tail, me, secret, address, is_ending, now_ms });
        let mut threads = Vec::new();
        if !is_reader {
            let (granting, beating) = (kept.clone(), kept.clone());
            threads.extend(spawn("stere-grants", move || granting.keep_granting()));
            threads.extend(spawn("stere-beat", move || beating.keep_beating()));
            if let Some(granter) = threads.first().map(|thread| thread.thread().clone()) {
                kept.tail.grants().set_on_wanted(Arc::new(move || granter.unpark()));
            }
        }
        LogClaim { kept, threads, watched }
    }

    /// Waits until nobody else serves reads of the pool, which is this process's now.
    pub fn wait_for_lease(&self) {
        let is_same = |now: &(Seen, u64)| match (&now.0, self.watched.before.as_ref().map(|before| &before.0)) {
            (Seen::Nobody, _) | (_, None) => true,
            // Its own beat, which begins with the root.
            (Seen::Owner(beat), _) if beat.owner == self.kept.tail.owner() => true,
            (seen, Some(before)) => seen == before,
        };
        let was_owned = !self.watched.was_closed || matches!(self.watched.before, Some((Seen::Owner(_), _)));
        assert!(!self.threads.is_empty(), "only whoever writes waits for others");
        let has_moved = !look(&**self.kept.tail.log()).as_ref().is_ok_and(is_same);
        if was_owned && (self.watched.is_forced || has_moved) {
            tracing::info!("waiting until the lease of the owner before is over");
            std::thread::sleep(Duration::from_millis(LEASE_MS));
        }
    }

    /// Where clients reach this owner, from the next beat on.
    pub fn announce(&self, address: &str) {
        *self.kept.address.lock() = address.to_owned();
        if let Some(beating) = self.threads.get(1) {
            beating.thread().unpark();
        }
    }

    /// By what clients and owner know each other.
    pub fn secret(&self) -> [u8; 32] {
        self.kept.secret
    }

    /// Whether the log lacks records that it had taken.
    pub fn lacks_records(&self) -> bool {
        matches!(self.kept.tail.check(), Err(JournalError::LogDamaged { .. }))
    }

    pub fn tail(&self) -> &Arc<Tail> {
        &self.kept.tail
    }
}

impl Drop for LogClaim {
    fn drop(&mut self) {
        self.kept.is_ending.store(true, Ordering::Release);
        // Everything that was to be put has been, or never will be.
        self.kept.tail.give_up();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a thread of the claim panicked");
            }
        }
    }
}

/// Watches a log until nobody has the pool, and gives what was seen last. `decided`: how far the log was read.
fn wait_until_free(
    log: &dyn SharedLog,
    now_ms: fn() -> u64,
    (mode, was_closed, decided): (Multihost, bool, u64),
    told: &mut dyn FnMut(&str),
) -> Result<Option<(Seen, u64)>, Error> {
    let mut silence = Silence::new(now_ms);
    let mut first = None;
    loop {
        let (seen, silent_ms) = silence.look(log).map_err(|error| Error::LogAway { why: error.to_string() })?;
        // An owner whose root is there may not have beaten yet.
        let is_free = seen == Seen::Nobody && was_closed;
        // Two that stand by see the same silence: whoever finds the other's root, which does not beat yet, was not first.
        let was_watched = matches!((&seen, mode), (Seen::Owner(beat), Multihost::AfterSilence { owner, sequence, next, .. })
            if (beat.owner, beat.sequence) == (owner, sequence) && next == decided);
        if is_free || was_watched || mode == Multihost::Take || silent_ms >= SILENCE_MS {
            return Ok(silence.last().cloned());
        }
        match &first {
            None => told(seen.host()),
            Some(first) if Some(first) != silence.last() => return Err(in_use(&seen)),
            Some(_) => {}
        }
        first = silence.last().cloned();
        std::thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

fn in_use(seen: &Seen) -> Error {
    let owner = match seen {
        Seen::Owner(beat) => format!("process {} on host {}", beat.process, beat.host),
        Seen::Nobody => "another process".into(),
    };
    Error::InUseElsewhere { device: "the shared log".into(), owner }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
    spawned.inspect_err(|error| tracing::error!(%error, "no thread for the claim of the pool")).ok()
}

impl Kept {
    fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Puts grants as they are wanted.
    fn keep_granting(&self) {
        while !self.is_ending() {
            // Told where it matters: whoever puts next hears the same.
            if let Err(error) = self.tail.put_grants() {
                tracing::warn!(%error, "slots cannot be granted any more");
                return;
            }
            std::thread::park_timeout(Duration::from_millis(LOG_BEAT_MS));
        }
    }

    fn keep_beating(&self) {
        let mut sequence = 0;
        let mut is_told = false;
        while !self.is_ending() {
            if self.tail.is_owner() {
                sequence += 1;
                let outcome = self.beat(sequence);
                self.tail.note_beat(outcome.as_ref().err().map(ToString::to_string));
                match outcome {
                    Ok(()) => is_told = false,
                    Err(error) if !std::mem::replace(&mut is_told, true) => {
                        tracing::warn!(%error, "the shared log takes no beat");
                    }
                    Err(_) => {}
                }
            }
            // Whoever waits for its root to be there begins to beat soon after.
            let pause_ms = if sequence == 0 { LOG_BEAT_MS / 10 } else { LOG_BEAT_MS };
            std::thread::park_timeout(Duration::from_millis(pause_ms));
        }
        // Whoever was replaced says nothing over the beat of the owner now.
        if self.tail.is_owner() && self.tail.is_closed() {
            let ended = self.tail.log().beat(&self.encoded(sequence + 1, true));
            if let Err(error) = ended {
                tracing::warn!(%error, "the log could not be told that the pool was closed; the next owner waits a moment");
            }
        }
    }

    fn encoded(&self, sequence: u64, is_closed: bool) -> Vec<u8> {
        assert!(!is_closed || self.tail.is_closed(), "a pool is told to be closed when it is");
        let beat = OwnerBeat {
            owner: self.tail.owner(),
            sequence,
            is_closed,
            machine: self.me.machine,
            process: self.me.process,
            epoch: self.tail.epoch(),
            host: self.me.host.clone(),
            address: self.address.lock().clone(),
            secret: self.secret,
        };
        beat.encode()
    }

    /// One beat, and a look at whether the log is still this owner's.
    fn beat(&self, sequence: u64) -> Result<(), stere_shared_log::Error> {
        assert!(sequence > 0, "the first beat has number one");
        let begun_ms = (self.now_ms)();
        let log = self.tail.log();
        log.beat(&self.encoded(sequence, false))?;
        for _ in 0..LOOKS_AGAIN {
            let (before, _) = self.tail.ends();
            let next = log.bounds()?.next;
            let (decided, begun) = self.tail.ends();
            assert!(before <= decided && decided <= begun, "records are begun, then decided");
            if next > begun {
                self.tail.lose(JournalError::Replaced);
                return Ok(());
            }
            if next < before {
                let detail = format!("it ends before record {next}, and record {} was acknowledged", before - 1);
                self.tail.lose(JournalError::LogDamaged { detail });
                return Ok(());
            }
            if next <= decided {
                self.tail.grants().renew(begun_ms + LEASE_MS);
                return Ok(());
            }
            // A put is under way, whose answer says more.
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
