//! Several machines that reach the devices of one pool: at most one of them writes, what it acknowledged is kept, and another gets in
//! when it is gone (P-157).
//!
//! They play on a copy of a history's devices, each at moments of its own: mount, beat, write, stand still for longer than others watch, die,
//! close, and ask whether they may destroy a device. What `crates/multihost` does with threads and a clock is done here in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stere_device::{Device, DeviceError, PendingRead, Piece, Scatter, Ticket};
use stere_format::Heartbeat;
use stere_naming::OpenFlags;
use stere_pool::{
    Assembly, BEAT_INTERVAL_MS, Candidate, Claim, Claimant, Error, Hold, Holds, Next, Shared, WATCH_MS, identify,
};

use crate::content::pattern;
use crate::device::Machine;
use crate::encryption::Encrypts;
use crate::history::{Budget, History, Stop};
use crate::medium::Survival;
use crate::model::ROOT;
use crate::observe;
use crate::pool::{Mounted, PoolConfig, caller, name_of};
use crate::random::Random;

/// As `crates/multihost` has it.
const SETTLE_MS: u64 = 500;
/// So much later its steps come, all together, while a taker's rivals wait for it.
const LATE_MS: u64 = 400;
const MACHINES: u64 = 3;
const TURNS: usize = 60;
/// Attempts to claim a pool that others used meanwhile, as the command makes them.
const TRIES: u32 = 3;
/// Whoever comes when all are gone waits no longer.
const GONE_MS: u64 = WATCH_MS + SETTLE_MS + 1_500;

/// Who may write to the pool now, and who did without being that.
#[derive(Default)]
struct Referee {
    owner: Mutex<Option<u64>>,
    trespass: Mutex<Option<String>>,
    heartbeat_offset: u64,
}

/// One opening of the pool by one machine.
struct Gate {
    opening: u64,
    is_dead: AtomicBool,
    referee: Arc<Referee>,
}

/// A device as one machine reaches it.
struct Reached {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl Reached {
    fn absent(&self) -> Result<(), DeviceError> {
        match self.gate.is_dead.load(Ordering::Relaxed) {
            true => Err(DeviceError::Absent { device: self.inner.describe() }),
            false => Ok(()),
        }
    }

    fn judge(&self, offset: u64) {
        let referee = &self.gate.referee;
        let owner = *referee.owner.lock();
        if offset != referee.heartbeat_offset && owner != Some(self.gate.opening) {
            let opening = self.gate.opening;
            let text = format!("opening {opening} wrote to the pool at byte {offset}, which is {owner:?}'s");
            referee.trespass.lock().get_or_insert(text);
        }
    }
}

impl Device for Reached {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.absent()?;
        self.inner.read(offset, buffer)
    }

    fn read_scattered_or_leave(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        self.absent()?;
        self.inner.read_scattered_or_leave(offset, pieces)
    }

    fn pending_read(&self, offset: u64, length: usize) -> Option<PendingRead> {
        self.absent().ok()?;
        self.inner.pending_read(offset, length)
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        if let Err(error) = self.absent() {
            return ticket.finish(Err(error));
        }
        self.judge(offset);
        self.inner.submit_write_gathered(offset, pieces, ticket);
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.absent()?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.absent()?;
        self.inner.discard(offset, length)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

enum State {
    /// It does not use the pool.
    Idle,
    /// It has looked at the devices, and claims them.
    Claiming {
        assembly: Box<Assembly>,
        claim: Claim,
        tries: u32,
    },
    /// It asks whether anybody uses the devices, which it would destroy.
    Asking(Claim),
    Mounted {
        mounted: Mounted,
        holds: Vec<(Hold, Shared)>,
        beat_ms: u64,
    },
}

struct Host {
    number: u64,
    at_ms: u64,
    gate: Arc<Gate>,
    state: State,
}

/// What was seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub openings: u64,
    pub refused: u64,
    pub lost: u64,
}

struct Play<'a> {
    machine: Arc<Machine>,
    pool: &'a PoolConfig,
    random: Random,
    referee: Arc<Referee>,
    openings: u64,
    /// Files that somebody was told are durable, by number, with their seeds and lengths.
    kept: Vec<(u64, u64, usize)>,
    seen: Seen,
}

fn claimant(opening: u64, number: u64) -> Claimant {
    let mut owner = [0; 16];
    owner[..8].copy_from_slice(&(opening + 1).to_le_bytes());
    Claimant {
        owner,
        machine: [number as u8 + 1; 16],
        boot: [number as u8 + 1; 16],
        process_namespace: 1,
        process: opening as u32,
        process_start_ticks: 1,
        host: format!("machine{number}"),
    }
}

/// What another machine's process does nobody can tell.
fn nobody_is_dead(_: &Heartbeat) -> bool {
    false
}

fn file_name(number: u64) -> Vec<u8> {
    format!("rival{number}").into_bytes()
}

impl Play<'_> {
    fn host(&mut self, number: u64, at_ms: u64) -> Host {
        Host { number, at_ms, gate: self.gate(), state: State::Idle }
    }

    fn gate(&mut self) -> Arc<Gate> {
        self.openings += 1;
        Arc::new(Gate { opening: self.openings, is_dead: AtomicBool::new(false), referee: self.referee.clone() })
    }

    /// Looks at the devices as a machine that opens them.
    fn assemble(&mut self, gate: &Arc<Gate>) -> Result<Assembly, String> {
        let absent = self.machine.absent();
        let there = self.machine.devices().into_iter().enumerate().filter(|(at, _)| !absent.contains(at));
        let reached = there.map(|(number, inner)| {
            let device: Arc<dyn Device> = Arc::new(Reached { inner, gate: gate.clone() });
            Candidate { path: name_of(number), device }
        });
        let candidates: Vec<Candidate> =
            reached.filter(|one| matches!(identify(&*one.device), Holds::Member(_))).collect();
        Assembly::new(candidates).map_err(|error| format!("assemble: {error}"))
    }

    fn begin(&mut self, host: &mut Host, tries: u32) -> Result<(), String> {
        host.gate = self.gate();
        // One looks at superblocks while another writes them, so that they may be of two generations, never unreadable.
        let assembly = self.assemble(&host.gate)?;
        let shared = assembly.shared(&|_| true);
        let me = claimant(host.gate.opening, host.number);
        if tries == 0 && self.random.chance(1, 4) {
            host.state = State::Asking(Claim::new(me, shared, 0, true));
        } else {
            // Some take long from the one to the other.
            let is_slow = self.random.chance(1, 3);
            host.at_ms += if is_slow { self.random.below(20_000) } else { 0 };
            host.state = State::Claiming {
                assembly: Box::new(assembly),
                claim: Claim::new(me, shared, SETTLE_MS, false),
                tries,
            };
        }
        Ok(())
    }

    fn late(&mut self) -> u64 {
        let steps = self.machine.device_count() as u64 + 3;
        self.random.below(LATE_MS / steps)
    }

    /// Nobody has the pool who beat lately.
    fn must_be_free(&self, hosts: &[Host], host: &Host, what: &str) -> Result<(), String> {
        let owner = *self.referee.owner.lock();
        let rival = hosts.iter().find(|one| Some(one.gate.opening) == owner);
        match rival.map(|rival| (&rival.state, rival.gate.opening)) {
            Some((State::Mounted { beat_ms, .. }, opening)) if host.at_ms < beat_ms + WATCH_MS => {
                Err(format!("opening {} {what} while {opening} has the pool and beats", host.gate.opening))
            }
            _ => Ok(()),
        }
    }

    fn act(&mut self, host: &mut Host, others: &[Host]) -> Result<(), String> {
        self.machine.count_anew();
        match std::mem::replace(&mut host.state, State::Idle) {
            State::Idle => self.begin(host, 0),
            State::Asking(claim) => self.ask(host, others, claim),
            State::Claiming { assembly, claim, tries } => self.claim(host, others, assembly, claim, tries),
            State::Mounted { mounted, holds, beat_ms } => self.live(host, mounted, holds, beat_ms),
        }
    }

    fn rest(&mut self, host: &mut Host) {
        host.at_ms += self.random.between(200, 12_000);
    }

    fn ask(&mut self, host: &mut Host, others: &[Host], mut claim: Claim) -> Result<(), String> {
        match claim.step(host.at_ms, &nobody_is_dead) {
            Ok(Next::Wait { milliseconds }) => {
                host.at_ms += milliseconds + self.late();
                host.state = State::Asking(claim);
                return Ok(());
            }
            Ok(Next::Held) => self.must_be_free(others, host, "may destroy devices")?,
            Err(Error::InUseElsewhere { .. }) => self.seen.refused += 1,
            Err(error) => return Err(format!("asking for the owner: {error}")),
        }
        self.rest(host);
        Ok(())
    }

    fn claim(
        &mut self,
        host: &mut Host,
        others: &[Host],
        assembly: Box<Assembly>,
        mut claim: Claim,
        tries: u32,
    ) -> Result<(), String> {
        match claim.step(host.at_ms, &nobody_is_dead) {
            Ok(Next::Wait { milliseconds }) => {
                host.at_ms += milliseconds + self.late();
                host.state = State::Claiming { assembly, claim, tries };
                return Ok(());
            }
            Ok(Next::Held) => {}
            Err(Error::InUseElsewhere { .. }) => {
                self.seen.refused += 1;
                self.rest(host);
                return Ok(());
            }
            Err(error) => return Err(format!("claiming the pool: {error}")),
        }
        self.must_be_free(others, host, "claims the pool")?;
        let me = claimant(host.gate.opening, host.number);
        let holds: Vec<(Hold, Shared)> =
            claim.devices().iter().map(|one| (Hold::claimed(me.clone()), one.clone())).collect();
        if assembly.is_outdated() {
            holds.iter().for_each(|(hold, one)| hold.end(one));
            if tries < TRIES {
                return self.begin(host, tries + 1);
            }
            self.rest(host);
            return Ok(());
        }
        *self.referee.owner.lock() = Some(host.gate.opening);
        let mounted = self.pool.open(&assembly, &self.machine).map_err(|text| self.explain(&text))?;
        self.seen.openings += 1;
        self.look(&mounted)?;
        host.state = State::Mounted { mounted, holds, beat_ms: host.at_ms };
        Ok(())
    }

    /// What somebody did who may not explains what does not work any more.
    fn explain(&self, text: &str) -> String {
        match &*self.referee.trespass.lock() {
            Some(trespass) => format!("{trespass}; then: {text}"),
            None => text.to_owned(),
        }
    }

    /// All that was acknowledged by anybody is there.
    fn look(&self, mounted: &Mounted) -> Result<(), String> {
        let user = caller(&self.machine);
        for (number, seed, length) in &self.kept {
            let found = mounted.files.lookup(&user, ROOT, &file_name(*number));
            let inode = found.map_err(|error| self.explain(&format!("rival{number} was kept: {error}")))?.inode;
            let mut bytes = vec![0; length + 1];
            let read = mounted.files.read(&user, inode, 0, &mut bytes);
            let read = read.map_err(|error| self.explain(&format!("rival{number} was kept: {error}")))?;
            if bytes[..read] != pattern(*seed, *length)[..] {
                return Err(self.explain(&format!("rival{number} is not what was acknowledged")));
            }
        }
        Ok(())
    }

    /// A second of an owner: it beats first, whatever it slept through.
    fn live(
        &mut self,
        host: &mut Host,
        mounted: Mounted,
        mut holds: Vec<(Hold, Shared)>,
        _beat_ms: u64,
    ) -> Result<(), String> {
        let now_ms = host.at_ms;
        for (hold, one) in &mut holds {
            match hold.beat(one, now_ms, &nobody_is_dead) {
                Ok(()) => {}
                Err(Error::InUseElsewhere { .. }) => {
                    // It stops, and what it had not written is lost with it.
                    host.gate.is_dead.store(true, Ordering::Relaxed);
                    self.seen.lost += 1;
                    drop(mounted);
                    self.rest(host);
                    return Ok(());
                }
                Err(error) => return Err(format!("a beat: {error}")),
            }
        }
        if self.random.chance(2, 3) {
            self.write(host, &mounted)?;
        }
        host.at_ms += u64::from(BEAT_INTERVAL_MS) + self.late();
        match self.random.below(24) {
            // It dies.
            0 | 1 => {
                host.gate.is_dead.store(true, Ordering::Relaxed);
                drop(mounted);
                *self.referee.owner.lock() = None;
                self.rest(host);
                return Ok(());
            }
            // It is closed in order.
            2 | 3 => {
                let closed = mounted.files.close(&caller(&self.machine)).map_err(|error| error.to_string());
                let closed = closed.and_then(|()| mounted.store.close().map_err(|error| error.to_string()));
                closed.map_err(|error| self.explain(&format!("close: {error}")))?;
                drop(mounted);
                holds.iter().for_each(|(hold, one)| hold.end(one));
                *self.referee.owner.lock() = None;
                self.rest(host);
                return Ok(());
            }
            // It stands still.
            4 | 5 => host.at_ms += self.random.between(1_000, 2 * WATCH_MS),
            _ => {}
        }
        host.state = State::Mounted { mounted, holds, beat_ms: now_ms };
        Ok(())
    }

    fn write(&mut self, host: &Host, mounted: &Mounted) -> Result<(), String> {
        let user = caller(&self.machine);
        let number = self.kept.last().map_or(0, |(number, _, _)| number + 1);
        let (seed, length) = (self.random.next_u64(), self.random.between(1, 40_000) as usize);
        let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
        let files = &mounted.files;
        let created = files.create(&user, ROOT, &file_name(number), 0o666, flags);
        let written = created.and_then(|(attributes, handle)| {
            files.write(&user, attributes.inode, 0, &pattern(seed, length), false)?;
            files.fsync(&user, attributes.inode, false)?;
            files.release(&user, attributes.inode, handle)
        });
        written.map_err(|error| self.explain(&format!("opening {} writes: {error}", host.gate.opening)))?;
        self.kept.push((number, seed, length));
        Ok(())
    }

    fn play(&mut self) -> Result<(), String> {
        let mut hosts: Vec<Host> = Vec::new();
        for number in 0..MACHINES {
            let at_ms = self.random.below(4_000);
            hosts.push(self.host(number, at_ms));
        }
        let mut now_ms = 0;
        for _ in 0..TURNS {
            hosts.sort_by_key(|host| (host.at_ms, host.number));
            let mut host = hosts.remove(0);
            now_ms = host.at_ms;
            self.machine.pass(Duration::from_millis(1).as_nanos() as u64);
            self.act(&mut host, &hosts)?;
            if let Some(text) = self.referee.trespass.lock().clone() {
                return Err(text);
            }
            hosts.push(host);
        }
        // All die. Whoever comes then gets in.
        for host in &hosts {
            host.gate.is_dead.store(true, Ordering::Relaxed);
        }
        drop(hosts);
        *self.referee.owner.lock() = None;
        self.come_last(now_ms)
    }

    fn come_last(&mut self, begun_ms: u64) -> Result<(), String> {
        let gate = self.gate();
        let assembly = self.assemble(&gate)?;
        let me = claimant(gate.opening, MACHINES);
        let mut claim = Claim::new(me, assembly.shared(&|_| true), SETTLE_MS, false);
        let mut now_ms = begun_ms;
        loop {
            let next = claim.step(now_ms, &nobody_is_dead);
            match next.map_err(|error| format!("nobody else is left: {error}"))? {
                Next::Held => break,
                Next::Wait { milliseconds } => now_ms += milliseconds,
            }
            if now_ms > begun_ms + GONE_MS {
                return Err("nobody else is left, and the pool is still watched".into());
            }
        }
        *self.referee.owner.lock() = Some(gate.opening);
        let mounted = self.pool.open(&assembly, &self.machine)?;
        self.look(&mounted)?;
        for (number, _, _) in &self.kept {
            let removed = mounted.files.unlink(&caller(&self.machine), ROOT, &file_name(*number));
            removed.map_err(|error| error.to_string())?;
        }
        mounted.files.syncfs(&caller(&self.machine)).map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// Several machines fight for a copy of the pool.
pub(crate) fn try_rivals(history: &mut History) -> Result<(), Stop> {
    let machine = &history.machine;
    let is_armed = (0..machine.device_count()).any(|device| machine.is_faulty(device));
    let is_plain = history.plan.pool.encrypts == Encrypts::Nothing && !history.plan.pool.passes_plugins;
    let is_calm = history.pool.is_calm() && history.pool.kept_image.is_none() && history.pool.away().is_none();
    let is_plain =
        is_plain && !history.plan.may_fill && !history.quotas.are_on() && machine.state.lock().volumes.is_empty();
    if is_armed || !is_calm || !is_plain || history.plan.budget == Budget::Beyond {
        return Ok(());
    }
    history.machine.disarm();
    history.sync_all()?;
    let fork = history.machine.fork(history.random.fork());
    fork.power_off();
    fork.power_on(&mut |_, _| Survival::Everything);
    let referee = history.pool.members().first().and_then(|(device, _)| {
        let Holds::Member(identity) = identify(&*fork.devices().swap_remove(*device)) else { return None };
        let heartbeat_offset = identity.superblock.layout.heartbeat_offset()?;
        Some(Arc::new(Referee { heartbeat_offset, ..Referee::default() }))
    });
    let Some(referee) = referee else { return Ok(()) };
    let mut play = Play {
        machine: fork,
        pool: &history.plan.pool,
        random: history.random.fork(),
        referee,
        openings: 0,
        kept: Vec::new(),
        seen: Seen::default(),
    };
    let failed = |text: String| Stop::Failure(format!("several machines and one pool: {text}"));
    play.play().map_err(failed)?;
    let (seen, fork) = (play.seen, play.machine.clone());
    let mounted = history.plan.pool.mount(&fork).map_err(failed)?;
    let left = observe::observe(&mounted.files, &caller(&fork));
    let left = left.map_err(|trouble| failed(format!("{trouble:?}")))?;
    if let Some(difference) = history.model.without_handles().difference(&left) {
        return Err(failed(difference));
    }
    history.summary.rivals[0] += seen.openings;
    history.summary.rivals[1] += seen.refused;
    history.summary.rivals[2] += seen.lost;
    Ok(())
}
