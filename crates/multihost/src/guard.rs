//! The claim to an open pool, kept: a thread for each device renews its heartbeat until the pool is closed.
//!
//! A thread holds its device weakly between beats, so a device that goes offline can be let go. Invariant: once another owner
//! was found, `lost` says so for good, and whoever asked to be told was told.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_device::Device;
use stere_format::{DeviceId, PoolId};
use stere_pool::{Assembly, BEAT_INTERVAL_MS, Claim, Claimant, Error, Hold, Next, Shared};

use crate::log_claim::{LogClaim, Watched};
use crate::machine::{boot_ms, has_ended};
use crate::{Multihost, may_be_shared};

/// How long a rival may take from seeing that nobody has the pool to having written that it does. Files of a local file system
/// are guarded by their locks too, and have no rivals.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a heartbeat may take to be ended before it is left as it stands.
const END_MAX: Duration = Duration::from_secs(2);

type Tell = Box<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
struct Lost {
    cause: Option<String>,
    tell: Option<Tell>,
}

/// What all threads of a guard share.
struct Kept {
    me: Claimant,
    start: Instant,
    is_ending: AtomicBool,
    lost: Mutex<Lost>,
}

impl Kept {
    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn lose(&self, cause: &str) {
        let mut lost = self.lost.lock();
        if lost.cause.is_none() {
            tracing::error!("{cause}");
            lost.cause = Some(cause.to_owned());
            if let Some(tell) = &lost.tell {
                tell(cause);
            }
        }
    }
}

/// A device that the pool uses now.
pub struct Joined {
    pub path: String,
    pub device: Arc<dyn Device>,
    pub id: DeviceId,
    pub offset: Option<u64>,
}

struct Beating {
    device: Weak<dyn Device>,
    thread: Thread,
    ended: Receiver<()>,
}

/// Keeps the pool for this process.
pub struct Guard {
    kept: Arc<Kept>,
    mode: Multihost,
    pool: PoolId,
    beating: Mutex<BTreeMap<DeviceId, Beating>>,
    is_reader: bool,
    /// Where the log of the pool is shared: its claim, and there are no heartbeats.
    log: Option<LogClaim>,
}

impl Guard {
    /// Claims the devices of a pool, which may take a watch of some seconds; `told` is called once if it does. Nothing may be written to the
    /// pool before, and what was read of it before is to be read again if `Assembly::is_outdated`.
    pub fn claim(
        assembly: &Assembly,
        me: Claimant,
        mode: Multihost,
        is_reader: bool,
        told: &mut dyn FnMut(&str),
    ) -> Result<Guard, Error> {
        let start = Instant::now();
        if let Some(tail) = &assembly.tail {
            let log = LogClaim::claim(tail.clone(), me.clone(), boot_ms, mode, is_reader, told)?;
            return Ok(Guard::with_log(assembly, me, log, is_reader));
        }
        let shared = assembly.shared(&|path| mode.guards(path));
        let has_rivals = shared.iter().any(|one| may_be_shared(Path::new(&one.path)));
        let settle = if has_rivals { SETTLE } else { Duration::ZERO };
        let mut claim = Claim::new(me.clone(), shared, settle.as_millis() as u64, is_reader);
        let mut is_told = false;
        loop {
            let now_ms = start.elapsed().as_millis() as u64;
            let Next::Wait { milliseconds } = claim.step(now_ms, &|beat| has_ended(&me, beat))? else { break };
            if let Some(host) = claim.watches().filter(|_| !is_told) {
                is_told = true;
                told(&host);
            }
            std::thread::sleep(Duration::from_millis(milliseconds));
        }
        let kept = Kept { me, start, is_ending: AtomicBool::new(false), lost: Mutex::default() };
        let guard = Guard::new(kept, assembly, mode, is_reader, None);
        for one in claim.devices() {
            guard.beat(one.clone(), Hold::claimed(guard.kept.me.clone()));
        }
        Ok(guard)
    }

    fn new(kept: Kept, assembly: &Assembly, mode: Multihost, is_reader: bool, log: Option<LogClaim>) -> Guard {
        let (beating, pool) = (Mutex::default(), assembly.newest.pool);
        Guard { kept: Arc::new(kept), mode, pool, beating, is_reader, log }
    }

    /// Claims a pool whose shared log was watched already.
    pub fn claim_watched(assembly: &Assembly, me: Claimant, watched: Watched, is_reader: bool) -> Result<Guard, Error> {
        let Some(tail) = &assembly.tail else {
            return Err(Error::LogNeeded { pool: assembly.newest.pool_name.clone() });
        };
        let log = LogClaim::claim_watched(tail.clone(), me.clone(), boot_ms, watched, is_reader);
        Ok(Guard::with_log(assembly, me, log, is_reader))
    }

    fn with_log(assembly: &Assembly, me: Claimant, log: LogClaim, is_reader: bool) -> Guard {
        let (start, is_ending) = (Instant::now(), AtomicBool::new(false));
        let tail = log.tail().clone();
        let kept = Kept { me, start, is_ending, lost: Mutex::default() };
        let guard = Guard::new(kept, assembly, Multihost::Off, is_reader, Some(log));
        let kept = guard.kept.clone();
        tail.set_on_lost(Box::new(move |cause| kept.lose(cause)));
        guard
    }

    /// Where the log is shared: the claim to it.
    pub fn log(&self) -> Option<&LogClaim> {
        self.log.as_ref()
    }

    /// Waits until nobody else serves what the pool held before it was opened here.
    pub fn wait_for_lease(&self) {
        if let Some(log) = self.log.as_ref().filter(|_| !self.is_reader) {
            log.wait_for_lease();
        }
    }

    /// A device that the pool uses from now on: its heartbeat begins.
    pub fn keep(&self, joined: Joined) {
        let Joined { path, device, id, offset } = joined;
        let is_kept = self
            .beating
            .lock()
            .get(&id)
            .is_some_and(|known| Weak::ptr_eq(&known.device, &Arc::downgrade(&device)) && known.is_running());
        if let Some(offset) = offset.filter(|_| !is_kept && self.log.is_none() && self.mode.guards(&path)) {
            self.beat(Shared { path, device, pool: self.pool, id, offset }, Hold::new(self.kept.me.clone()));
        }
    }

    fn beat(&self, shared: Shared, hold: Hold) {
        if self.is_reader {
            return;
        }
        let (sender, ended) = channel();
        let (kept, id) = (self.kept.clone(), shared.id);
        let weak = Arc::downgrade(&shared.device);
        let device = weak.clone();
        let path = shared.path.clone();
        let rest = (shared.path, shared.pool, shared.id, shared.offset);
        drop(shared.device);
        let spawned = std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
            keep_beating(&kept, hold, &weak, rest);
            // Nobody may be waiting any more.
            sender.send(()).unwrap_or_default();
        });
        match spawned {
            Ok(handle) => {
                let beating = Beating { device, thread: handle.thread().clone(), ended };
                drop(self.beating.lock().insert(id, beating));
            }
            Err(error) => tracing::error!(device = path, %error, "no thread for the heartbeat of a device"),
        }
    }

    /// Calls `tell` once when another owner is found, or now if one was.
    pub fn on_lost(&self, tell: Tell) {
        let mut lost = self.kept.lost.lock();
        if let Some(cause) = &lost.cause {
            tell(cause);
        }
        lost.tell = Some(tell);
    }

    /// Why the pool is not this process's any more.
    pub fn lost(&self) -> Option<String> {
        self.kept.lost.lock().cause.clone()
    }
}

impl Drop for Guard {
    /// Ends the heartbeats, so that the next owner need not watch. Call it when everything is written.
    fn drop(&mut self) {
        self.kept.is_ending.store(true, Ordering::Release);
        let beating = std::mem::take(&mut *self.beating.lock());
        beating.values().for_each(|one| one.thread.unpark());
        let until = Instant::now() + END_MAX;
        for (id, one) in beating {
            let left = until.saturating_duration_since(Instant::now());
            if one.ended.recv_timeout(left) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                tracing::warn!(device = %id, "a device does not answer; its heartbeat is left as it stands");
            }
        }
    }
}

impl Beating {
    fn is_running(&self) -> bool {
        self.ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty)
    }
}

/// Beats until the guard ends, the device is let go, or another owner is found.
fn keep_beating(
    kept: &Kept,
    mut hold: Hold,
    weak: &Weak<dyn Device>,
    (path, pool, id, offset): (String, PoolId, DeviceId, u64),
) {
    let mut complaint = false;
    loop {
        let Some(device) = weak.upgrade() else { return };
        let shared = Shared { path: path.clone(), device, pool, id, offset };
        if kept.is_ending.load(Ordering::Acquire) {
            return hold.end(&shared);
        }
        match hold.beat(&shared, kept.now_ms(), &|beat| has_ended(&kept.me, beat)) {
            Ok(()) => complaint = false,
            Err(error @ Error::InUseElsewhere { .. }) => return kept.lose(&error.to_string()),
            Err(error) if !complaint => {
                complaint = true;
                tracing::warn!("{error}");
            }
            Err(_) => {}
        }
        drop(shared);
        std::thread::park_timeout(Duration::from_millis(u64::from(BEAT_INTERVAL_MS)));
    }
}

#[cfg(test)]
mod tests;
