//! The area `cluster`: a pool whose log is shared, owned by one process after the other, on nodes that all of them reach over a network.
//!
//! One seed is one history. Owners write and commit, die in the middle of it, are cut off a node or the log, are replaced while they stand
//! still, and go on when they wake, by a clock that may have stood still, too. Their writes and records arrive late and in another order.
//! The oracle: each owner finds everything that any owner acknowledged, right to the last byte, and nothing of it changes while it
//! looks again. A file that was to have one copy fails while its node is away, and never holds wrong bytes. Other machines write rows that the owner gave them, or stop in the middle of that, and
//! what they sent arrives late.
//!
//! At most one node at a time lacks anything, until an owner has caught it up: more is beyond what two copies bear. Clients are not in
//! this area; `crates/owner/tests` has them. Invariant: a history runs on one thread, and chance comes from the seed. Read next:
//! `cluster/network.rs`, `cluster/process.rs`, `docs/design/cluster.md`.

mod files;
mod lending;
mod link;
mod network;
mod process;
mod seen;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stere_device::{Device, MemoryDevice};
use stere_faults::Bug;
use stere_format::PoolId;
use stere_pool::{AssembleOptions, Assembly, Candidate, CreateOptions, DeviceClass, NewDevice, OpenOptions};
use stere_store::SharedLog;

use crate::many;
use crate::random::Random;
use files::{File, file_of, holds, read};
use lending::UnderWay;
use network::{Network, Way};
use process::{Pending, Process, ProcessClock};

pub use seen::Seen;

const NODE_BYTES: u64 = 256 << 20;
const NODES: usize = 3;
const MEMORY_BYTES: usize = 48 << 20;
const POOL: PoolId = PoolId([7; 16]);
/// Steps of one history.
const STEPS: u64 = 60;
/// As `crates/multihost` has it.
const LEASE_MS: u64 = 4000;
/// For so long after it was replaced an owner's writes still arrive.
const HOLD_MS: u32 = 30_000;
/// For so long whoever stands by watches an owner that is silent.
const SILENCE_MS: u64 = 5000;
/// Attempts to take the pool. A record of somebody else may come late in any.
const ATTEMPTS_MAX: u32 = 20;
/// From this one on the network does no harm to them.
const HARMED_MAX: u32 = 4;

struct History {
    random: Random,
    network: Arc<Network>,
    owner: Option<Process>,
    /// Replaced, and perhaps not aware of it.
    former: Vec<Process>,
    /// Files that were acknowledged.
    files: BTreeMap<u64, File>,
    /// Rows that other machines have and have not written.
    under_way: Vec<UnderWay>,
    /// May be there or not: nobody was told.
    uncertain: Pending,
    /// The node that may lack something.
    weak: Option<usize>,
    /// Bytes on it changed, and nobody looked at all of them since.
    is_rotten: bool,
    clock_ms: Arc<AtomicU64>,
    /// Owners follow each other quickly, and stand still more often than they die.
    is_hasty: bool,
    /// The network does no more harm.
    is_calm: bool,
    seen: Seen,
}

/// Plays one history; an error is what was found.
pub fn run(seed: u64) -> Result<Seen, String> {
    let mut history = History::begin(seed)?;
    for step in 0..STEPS {
        history.step().map_err(|error| format!("step {step}: {error}"))?;
    }
    history.end().map_err(|error| format!("at the end: {error}"))?;
    Ok(history.seen)
}

/// Plays so many histories, with a bug planted if asked; what was seen before the first failure, and that.
pub fn run_many(first: u64, count: u64, bug: Option<Bug>) -> (Seen, Option<(u64, String)>) {
    let (seen, failure) = many::run(first, count, bug, run);
    (seen.into_iter().fold(Seen::default(), Seen::and), failure)
}

/// A node of a new pool.
pub(crate) fn new_node(node: usize, device: Arc<dyn Device>) -> NewDevice {
    NewDevice {
        path: format!("/nodes/{node}"),
        device,
        name: String::new(),
        class: DeviceClass::Ssd,
        tags: Vec::new(),
        host: format!("n{node}"),
        shelf: String::new(),
        foreign: None,
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl History {
    fn begin(seed: u64) -> Result<History, String> {
        let mut random = Random::new(seed);
        let clock_ms = Arc::new(AtomicU64::new(0));
        let nodes = (0..NODES).map(|_| Arc::new(MemoryDevice::with_volatile_cache(NODE_BYTES))).collect();
        let network = Network::new(nodes, clock_ms.clone(), random.fork());
        let is_hasty = random.chance(1, 4);
        let mut history = History {
            random,
            network,
            owner: None,
            former: Vec::new(),
            files: BTreeMap::new(),
            under_way: Vec::new(),
            uncertain: Pending::default(),
            weak: None,
            is_rotten: false,
            clock_ms,
            is_hasty,
            is_calm: false,
            seen: Seen::default(),
        };
        history.create()?;
        history.open()?;
        Ok(history)
    }

    fn create(&mut self) -> Result<(), String> {
        let process = self.network.join();
        let new = |node: usize| new_node(node, process::link(&self.network, process, node));
        let clock = Arc::new(ProcessClock::new(self.clock_ms.clone()));
        let options = CreateOptions {
            pool_name: "lab".into(),
            memory_bytes: MEMORY_BYTES,
            tail: Some(process::tail(&self.network, process, &clock)?),
            pool: Some(POOL),
            ..CreateOptions::default()
        };
        let mut random = self.random.fork();
        let mut fill = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        let store = stere_pool::create((0..NODES).map(new).collect(), &options, &mut fill).map_err(told)?;
        store.close().map_err(told)
    }

    fn owner(&self) -> Result<&Process, String> {
        self.owner.as_ref().ok_or_else(|| "nobody owns the pool".to_owned())
    }

    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::Relaxed)
    }

    /// Time passes. An owner whose clock stands still is nobody's danger only while its writes may arrive anyhow.
    fn pass(&mut self, ms: u64) {
        let now_ms = self.now_ms() + ms;
        self.network.pass_until(now_ms);
        self.forget_late();
        let stopped = self.former.iter().chain(&self.owner).filter(|process| process.is_stopped);
        stopped.for_each(|process| process.clock.stand_still(ms));
        self.former.retain(|former| !former.is_stopped || self.network.may_arrive(former.number, now_ms));
        if let Some(owner) = &self.owner {
            owner.look_until_leased(&self.network);
        }
    }

    /// Opens the pool for one more owner, who looks at everything.
    fn open(&mut self) -> Result<(), String> {
        for attempt in 1..=ATTEMPTS_MAX {
            let process = self.network.join();
            let is_calm = self.is_calm || attempt >= HARMED_MAX;
            if !is_calm {
                self.harm_newcomer(process);
            }
            match self.open_as(process) {
                Ok(()) => break,
                // It goes as it came: what it sent may still arrive.
                Err(_) if self.network.is_excused(process) => {
                    self.network.kill(process);
                    self.seen.taken_in_vain += 1;
                }
                Err(error) => return Err(error),
            }
        }
        let owner = self.owner.as_ref().ok_or("nobody can open the pool")?;
        assert!(!self.former.iter().any(|former| former.number == owner.number), "each owner is a process of its own");
        self.look_what_is_there()?;
        self.verify()
    }

    /// The network of somebody who is about to take the pool: slow, without a node, or without the log after a while.
    fn harm_newcomer(&mut self, process: usize) {
        let mut random = self.random.fork();
        if random.chance(1, 2) {
            (0..NODES).filter(|_| random.chance(2, 3)).for_each(|node| self.network.set_slow(process, node));
        }
        if random.chance(1, 12) {
            self.network.part_from_log(process, random.below(12), random.between(1, 30));
        }
        if random.chance(1, 10) {
            self.part(process, random.below(40), &mut random);
        }
    }

    /// Cuts a process off the node that is away anyhow, or off any if all are well.
    fn part(&mut self, process: usize, calls: u64, random: &mut Random) {
        let node = self.weak.unwrap_or(random.below(NODES as u64) as usize);
        self.weak = Some(node);
        self.network.part(process, node, calls);
        self.seen.parted += 1;
    }

    fn open_as(&mut self, process: usize) -> Result<(), String> {
        let end = self.network.log_end().map_err(told)?;
        let silent_ms = if self.random.chance(1, 2) { SILENCE_MS } else { 0 };
        self.pass(silent_ms);
        let clock = Arc::new(ProcessClock::new(self.clock_ms.clone()));
        let tail = process::tail(&self.network, process, &clock)?;
        tail.note_silence(end, silent_ms);
        // A node that says nothing is left out.
        let is_there = |node: &usize| self.network.way(process, *node) != Way::Cut;
        let candidate = |node: usize| Candidate {
            path: format!("/nodes/{node}"),
            device: process::link(&self.network, process, node),
        };
        let candidates = (0..NODES).filter(is_there).map(candidate).collect();
        let options = AssembleOptions { tail: Some(tail.clone()), ..AssembleOptions::default() };
        let assembly = Assembly::with(candidates, &options).map_err(told)?;
        let lacks_node = !assembly.missing().is_empty();
        let epoch_nonce = self.random.next_u64() as u32;
        let options = OpenOptions { memory_bytes: MEMORY_BYTES, epoch_nonce, ..OpenOptions::default() };
        let opened = assembly.open(&options, &|_| None).map_err(told)?;
        if opened.read_only {
            return Err(format!("the pool can be read only: {:?}", opened.warnings));
        }
        let store = opened.store;
        self.owner = Some(Process::new(process, store, tail, clock, lacks_node));
        Ok(())
    }

    /// Files that nobody was told of are there or not; from now on that stays so.
    fn look_what_is_there(&mut self) -> Result<(), String> {
        let uncertain = std::mem::take(&mut self.uncertain);
        let owner = self.owner.as_ref().ok_or("nobody owns the pool")?;
        for (inode, file) in uncertain.written {
            if file_of(&owner.store, inode).map_err(told)? == Some(file) {
                self.files.insert(inode, file);
            }
        }
        for (inode, file) in uncertain.removed {
            match file_of(&owner.store, inode).map_err(told)? {
                None => _ = self.files.remove(&inode),
                Some(found) if found == file => _ = self.files.insert(inode, file),
                Some(found) => return Err(format!("file {inode} is {found:?} and was {file:?}")),
            }
        }
        Ok(())
    }

    /// Everything that was acknowledged is there, and what is there is whole.
    fn verify(&mut self) -> Result<(), String> {
        let owner = self.owner.as_ref().ok_or("nobody owns the pool")?;
        if !owner.has_lease() {
            // A read that mends something would wait for the log.
            return Ok(());
        }
        // Files that the owner itself removed since its last commit are gone for its readers.
        let is_there = |inode: &u64| !owner.pending.removed.contains_key(inode);
        for (inode, file) in self.files.iter().filter(|(inode, _)| is_there(inode)) {
            match file_of(&owner.store, *inode).map_err(told)? {
                Some(found) if found == *file => {}
                found => return Err(format!("file {inode} was acknowledged as {file:?}, and is {found:?}")),
            }
            match read(&owner.store, file) {
                Ok(bytes) if holds(file, &bytes) => {}
                Ok(_) => return Err(format!("file {inode} holds other bytes than were acknowledged")),
                Err(_) if self.weak.is_some_and(|node| owner.may_lack(&self.network, node, file)) => {
                    self.seen.away += 1
                }
                Err(error) => return Err(format!("file {inode}: {error}")),
            }
        }
        Ok(())
    }

    /// The network is well at last: a last owner has all nodes, and finds nothing to complain of.
    fn end(&mut self) -> Result<(), String> {
        self.is_calm = true;
        self.under_way.clear();
        self.replace(false)?;
        self.catch_up()?;
        if let Some(node) = self.weak {
            return Err(format!("node {node} is not caught up"));
        }
        self.verify()?;
        let findings = self.owner()?.store.checker.check(true).map_err(told)?.findings;
        let findings: Vec<_> =
            findings.iter().filter(|finding| !finding.text.ends_with("is named by no file")).collect();
        if !findings.is_empty() {
            return Err(format!("the check finds {findings:?}"));
        }
        (self.seen.arrived_late, self.seen.records_late) = self.network.late();
        self.seen.histories = 1;
        Ok(())
    }

    /// Slots of owners before are free after a while.
    fn release_slots(&mut self) -> Result<(), String> {
        SharedLog::of(&self.owner()?.store).release_foreign_slots();
        Ok(())
    }
}
