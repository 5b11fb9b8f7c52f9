//! The area `cluster`: a pool whose log is shared, owned by one process after the other, on devices that all of them reach.
//!
//! One seed is one history. Owners write and commit, crash, are replaced while they stand still, and go on when they wake, for as long as
//! the pool's promise allows: thirty seconds of a simulated clock. Answers of the log are lost, nodes lose what
//! was not flushed when their owner crashes. The oracle: each owner finds everything that any owner acknowledged, right to the
//! last byte, and nothing of it changed while it looks again.
//!
//! Leases never end here, which is the worst case: an owner that was replaced writes to devices until it hears of it. Clients are not in
//! this area; `crates/owner/tests` has them. Invariant: everything runs on one thread, and chance comes from the seed. Read next:
//! `docs/design/cluster.md`.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use stere_device::{Device, MemoryDevice};
use stere_faults::Bug;
use stere_format::{Key, PoolId, Scheme, Site};
use stere_journal::{Tail, TailWorld};
use stere_pool::{AssembleOptions, Assembly, Candidate, CreateOptions, DeviceClass, NewDevice, OpenOptions};
use stere_shared_log::{MemoryLog, SharedLog as _};
use stere_store::{Error, Io, Owner, Piece, Placement, SharedLog, Store};

use crate::random::Random;

const DEVICE_BYTES: u64 = 256 << 20;
const DEVICES: usize = 3;
const MEMORY_BYTES: usize = 48 << 20;
const POOL: PoolId = PoolId([7; 16]);
/// Steps of one history.
const STEPS: u64 = 60;
const THREADS_MAX: u64 = 16;
const FILES_MAX: usize = 40;
/// Without end.
const LEASE_MS: u64 = 1 << 40;
/// For so long after it was replaced an owner's writes still arrive.
const HOLD_MS: u32 = 30_000;
/// For so long whoever stands by watches an owner that is silent.
const SILENCE_MS: u64 = 5000;

/// What happened in histories, so that nobody takes quiet ones for proof.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    pub histories: u64,
    pub acknowledged: u64,
    pub takeovers: u64,
    /// Owners that went on after they were replaced.
    pub woken: u64,
    pub crashes: u64,
    pub lost_answers: u64,
}

/// A file: its blob, and what the blob holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct File {
    blob: u64,
    length: u32,
    seed: u64,
}

/// What an owner did and did not hear of yet.
#[derive(Debug, Default)]
struct Pending {
    written: BTreeMap<u64, File>,
    removed: BTreeMap<u64, File>,
}

struct Process {
    store: Store,
    pending: Pending,
    replaced_ms: u64,
}

struct History {
    random: Random,
    devices: Vec<Arc<MemoryDevice>>,
    log: MemoryLog,
    owner: Option<Process>,
    /// Replaced, and perhaps not aware of it.
    former: Vec<Process>,
    /// What was acknowledged.
    files: BTreeMap<u64, File>,
    /// May be there or not: nobody was told.
    uncertain: Pending,
    owner_count: u8,
    clock_ms: Arc<AtomicU64>,
    /// Owners follow each other quickly, and stand still more often than they crash.
    is_hasty: bool,
    seen: Seen,
}

/// Plays one history; an error is what was found.
pub fn run(seed: u64) -> Result<Seen, String> {
    let mut history = History::begin(seed)?;
    for step in 0..STEPS {
        history.step().map_err(|error| format!("step {step}: {error}"))?;
    }
    history.replace(false)?;
    let findings = history.owner()?.store.checker.check(true).map_err(told)?.findings;
    let findings: Vec<_> = findings.iter().filter(|finding| !finding.text.ends_with("is named by no file")).collect();
    if !findings.is_empty() {
        return Err(format!("the check finds {findings:?}"));
    }
    history.seen.histories = 1;
    Ok(history.seen)
}

/// Plays so many histories on all processors, with a bug planted if asked; what was seen before the first failure, and that.
pub fn run_many(first: u64, count: u64, bug: Option<Bug>) -> (Seen, Option<(u64, String)>) {
    #[cfg(not(feature = "planted-bugs"))]
    assert!(bug.is_none(), "this build plants no bugs");
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64).min(THREADS_MAX);
    let failed = AtomicU64::new(u64::MAX);
    let turns: Vec<Turns> = std::thread::scope(|scope| {
        let failed = &failed;
        let seeds = |turn: u64| (first + turn..first + count).step_by(threads as usize);
        let turn = |turn| scope.spawn(move || run_turns(seeds(turn), bug, failed));
        let running: Vec<_> = (0..threads).map(turn).collect();
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (passed, failures): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
    let failure = failures.into_iter().flatten().min();
    let end = failure.as_ref().map_or(u64::MAX, |(seed, _)| *seed);
    // Others may have gone on behind the failure.
    let seen = passed
        .into_iter()
        .flatten()
        .filter(|(seed, _)| *seed < end)
        .fold(Seen::default(), |all, (_, seen)| all.and(seen));
    assert_eq!(seen.histories, end.min(first + count) - first, "every history before the end was played");
    (seen, failure)
}

/// What one thread played: the histories that passed, and the first failure.
type Turns = (Vec<(u64, Seen)>, Option<(u64, String)>);

/// Plays histories until one fails, or one before them did.
fn run_turns(seeds: impl Iterator<Item = u64>, bug: Option<Bug>, failed: &AtomicU64) -> Turns {
    // The switch belongs to the thread, and the thread ends with its turns.
    #[cfg(feature = "planted-bugs")]
    stere_faults::plant(bug);
    #[cfg(not(feature = "planted-bugs"))]
    assert!(bug.is_none(), "this build plants no bugs");
    let mut passed = Vec::new();
    for seed in seeds.take_while(|seed| *seed < failed.load(Ordering::Relaxed)) {
        // A planted bug may also be found by an assertion.
        let error = match std::panic::catch_unwind(|| run(seed)) {
            Ok(Ok(seen)) => {
                passed.push((seed, seen));
                continue;
            }
            Ok(Err(error)) => error,
            Err(_) => "it panicked; see above".into(),
        };
        failed.fetch_min(seed, Ordering::Relaxed);
        return (passed, Some((seed, error)));
    }
    (passed, None)
}

impl Seen {
    fn and(self, other: Seen) -> Seen {
        Seen {
            histories: self.histories + other.histories,
            acknowledged: self.acknowledged + other.acknowledged,
            takeovers: self.takeovers + other.takeovers,
            woken: self.woken + other.woken,
            crashes: self.crashes + other.crashes,
            lost_answers: self.lost_answers + other.lost_answers,
        }
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn content(seed: u64, length: u32) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; length as usize];
    // Word by word: histories spent most of their time here when each byte passed an iterator.
    for word in bytes.chunks_mut(8) {
        word.copy_from_slice(&random.next_u64().to_le_bytes()[..word.len()]);
    }
    bytes
}

impl History {
    fn begin(seed: u64) -> Result<History, String> {
        let devices: Vec<Arc<MemoryDevice>> =
            (0..DEVICES).map(|_| Arc::new(MemoryDevice::with_volatile_cache(DEVICE_BYTES))).collect();
        let mut history = History {
            random: Random::new(seed),
            devices,
            log: MemoryLog::new(),
            owner: None,
            former: Vec::new(),
            files: BTreeMap::new(),
            uncertain: Pending::default(),
            owner_count: 0,
            clock_ms: Arc::default(),
            is_hasty: false,
            seen: Seen::default(),
        };
        history.is_hasty = history.random.chance(1, 4);
        history.create()?;
        history.open()?;
        Ok(history)
    }

    fn create(&mut self) -> Result<(), String> {
        let new = |(index, device): (usize, &Arc<MemoryDevice>)| NewDevice {
            path: format!("/nodes/{index}"),
            device: device.clone(),
            name: String::new(),
            class: DeviceClass::Ssd,
            tags: Vec::new(),
            host: format!("n{index}"),
            shelf: String::new(),
            foreign: None,
        };
        let options = CreateOptions {
            pool_name: "lab".into(),
            memory_bytes: MEMORY_BYTES,
            tail: Some(self.tail()?),
            pool: Some(POOL),
            ..CreateOptions::default()
        };
        let mut random = self.random.fork();
        let mut fill = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
        let devices = self.devices.iter().enumerate().map(new).collect();
        let store = stere_pool::create(devices, &options, &mut fill).map_err(told)?;
        store.close().map_err(told)
    }

    /// The log as one more process has it.
    fn tail(&mut self) -> Result<Arc<Tail>, String> {
        self.owner_count += 1;
        let clock_ms = self.clock_ms.clone();
        let world = TailWorld {
            now_ms: Arc::new(move || clock_ms.load(Ordering::Relaxed)),
            pause: Box::new(|_, tries| tries < 4),
            lease_ms: LEASE_MS,
            hold_ms: HOLD_MS,
        };
        let tail = Tail::open(Arc::new(self.log.another()), POOL, [self.owner_count; 16], world).map_err(told)?;
        let weak: Weak<Tail> = Arc::downgrade(&tail);
        tail.grants().set_on_wanted(Arc::new(move || {
            weak.upgrade().into_iter().for_each(|tail| drop(tail.put_grants()));
        }));
        Ok(tail)
    }

    fn owner(&self) -> Result<&Process, String> {
        self.owner.as_ref().ok_or_else(|| "nobody owns the pool".to_owned())
    }

    /// Time passes. Of owners that were replaced long ago nothing arrives any more.
    fn pass(&mut self, ms: u64) {
        let now_ms = self.clock_ms.load(Ordering::Relaxed) + ms;
        self.clock_ms.store(now_ms, Ordering::Relaxed);
        self.former.retain(|former| now_ms < former.replaced_ms + u64::from(HOLD_MS));
    }

    /// Opens the pool for one more owner, who looks at everything.
    fn open(&mut self) -> Result<(), String> {
        let end = self.log.bounds().map_err(told)?.next;
        let silent_ms = if self.random.chance(1, 2) { SILENCE_MS } else { 0 };
        self.pass(silent_ms);
        let tail = self.tail()?;
        tail.note_silence(end, silent_ms);
        let candidate = |(index, device): (usize, &Arc<MemoryDevice>)| {
            let device: Arc<dyn Device> = device.clone();
            Candidate { path: format!("/nodes/{index}"), device }
        };
        let candidates = self.devices.iter().enumerate().map(candidate).collect();
        let options = AssembleOptions { tail: Some(tail), ..AssembleOptions::default() };
        let assembly = Assembly::with(candidates, &options).map_err(told)?;
        let epoch_nonce = self.random.next_u64() as u32;
        let options = OpenOptions { memory_bytes: MEMORY_BYTES, epoch_nonce, ..OpenOptions::default() };
        let opened = assembly.open(&options, &|_| None).map_err(told)?;
        self.owner = Some(Process { store: opened.store, pending: Pending::default(), replaced_ms: 0 });
        self.look_what_is_there()?;
        self.verify()
    }

    /// What nobody was told of is there or not; from now on it stays so.
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
    fn verify(&self) -> Result<(), String> {
        let owner = self.owner()?;
        let store = &owner.store;
        // What the owner itself removed since its last commit is gone for its readers.
        let is_there = |inode: &u64| !owner.pending.removed.contains_key(inode);
        for (inode, file) in self.files.iter().filter(|(inode, _)| is_there(inode)) {
            match file_of(store, *inode).map_err(told)? {
                Some(found) if found == *file => {}
                found => return Err(format!("file {inode} was acknowledged as {file:?}, and is {found:?}")),
            }
            let bytes = read(store, file).map_err(|error| format!("file {inode}: {error}"))?;
            if bytes != content(file.seed, file.length) {
                return Err(format!("file {inode} holds other bytes than were acknowledged"));
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        if self.is_hasty {
            return match self.random.below(20) {
                0..=10 => self.change(),
                11..=12 => self.commit(),
                13 => self.checkpoint(),
                14..=15 => self.replace(true),
                16..=18 => self.wake(),
                _ => self.wait(),
            };
        }
        match self.random.below(20) {
            0..=8 => self.change(),
            9..=12 => self.commit(),
            13 => self.checkpoint(),
            14 => {
                self.log.lose_answers(1);
                self.seen.lost_answers += 1;
                Ok(())
            }
            15 => self.replace(true),
            16 => self.replace(false),
            17..=18 => self.wake(),
            _ => self.wait(),
        }
    }

    fn wait(&mut self) -> Result<(), String> {
        let ms = self.random.between(1, 2 * u64::from(HOLD_MS));
        self.pass(ms);
        SharedLog::of(&self.owner()?.store).release_foreign_slots();
        self.verify()
    }

    fn change(&mut self) -> Result<(), String> {
        let mut random = self.random.fork();
        let known: Vec<(u64, File)> = self.files.iter().map(|(inode, file)| (*inode, *file)).collect();
        let owner = self.owner.as_mut().ok_or("nobody owns the pool")?;
        let removable = known.iter().find(|(inode, _)| !owner.pending.removed.contains_key(inode));
        match removable.filter(|_| known.len() > FILES_MAX || random.chance(1, 4)) {
            Some((inode, file)) => {
                remove(&owner.store, *inode, file).map_err(told)?;
                owner.pending.removed.insert(*inode, *file);
            }
            None => {
                match write(&owner.store, &mut random) {
                    Ok((inode, file)) => _ = owner.pending.written.insert(inode, file),
                    // Slots of owners before are free after a while.
                    Err(Error::NoSpace) => {
                        self.pass(u64::from(HOLD_MS));
                        SharedLog::of(&self.owner()?.store).release_foreign_slots();
                    }
                    Err(error) => return Err(told(error)),
                }
            }
        }
        Ok(())
    }

    /// After a commit that was acknowledged the owner's word counts.
    fn commit(&mut self) -> Result<(), String> {
        let owner = self.owner.as_mut().ok_or("nobody owns the pool")?;
        owner.store.commit(Io::BLOCKING).map_err(told)?;
        let Pending { written, removed } = std::mem::take(&mut owner.pending);
        self.seen.acknowledged += written.len() as u64 + removed.len() as u64;
        self.files.extend(written);
        self.files.retain(|inode, _| !removed.contains_key(inode));
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        self.owner()?.store.checkpoint().map_err(told)
    }

    /// Another owner takes the pool. The one before crashes, with what its nodes had not flushed, or stands still.
    fn replace(&mut self, stands_still: bool) -> Result<(), String> {
        let mut before = self.owner.take().ok_or("nobody owns the pool")?;
        let Pending { written, removed } = std::mem::take(&mut before.pending);
        self.uncertain.written.extend(written);
        self.uncertain.removed.extend(removed);
        self.seen.takeovers += 1;
        before.replaced_ms = u64::MAX - u64::from(HOLD_MS);
        match stands_still {
            true => self.former.push(before),
            false => self.crash(before),
        }
        self.open()?;
        let now_ms = self.clock_ms.load(Ordering::Relaxed);
        if let Some(before) = self.former.last_mut().filter(|_| stands_still) {
            before.replaced_ms = now_ms;
        }
        Ok(())
    }

    fn crash(&mut self, before: Process) {
        self.seen.crashes += 1;
        match self.random.below(4) {
            0 | 1 => {
                // In the middle of a commit, before the first device flushes.
                self.devices.iter().for_each(|device| device.set_fault_hook(Some(ends_at_flush())));
                drop(std::panic::catch_unwind(AssertUnwindSafe(|| before.store.commit(Io::BLOCKING))));
            }
            2 => {
                // After a commit in which a device failed; what it names may be elsewhere or nowhere.
                let failing = self.random.below(self.devices.len() as u64) as usize;
                self.devices[failing].set_fault_hook(Some(fails_at_flush()));
                drop(before.store.commit(Io::BLOCKING));
            }
            _ => {}
        }
        self.devices.iter().for_each(|device| device.set_fault_hook(None));
        drop(before);
        let mut random = self.random.fork();
        self.devices.iter().for_each(|device| device.lose_unflushed(|_| random.chance(1, 2)));
        // Nobody of before is left: those who stood still stood on the same machine.
        self.former.clear();
    }

    /// An owner that was replaced goes on where it stood.
    fn wake(&mut self) -> Result<(), String> {
        if self.former.is_empty() {
            return Ok(());
        }
        let which = self.random.below(self.former.len() as u64) as usize;
        let mut former = self.former.swap_remove(which);
        self.seen.woken += 1;
        let mut random = self.random.fork();
        let mut written = BTreeMap::new();
        for _ in 0..random.between(1, 12) {
            // Whatever it is told by its own store is no matter: only an acknowledgement counts.
            if let Ok((inode, file)) = write(&former.store, &mut random) {
                written.insert(inode, file);
            }
        }
        let is_acknowledged = former.store.commit(Io::BLOCKING).is_ok();
        if random.chance(1, 2) {
            drop(former.store.checkpoint());
        }
        if is_acknowledged && !written.is_empty() {
            return Err(format!("an owner that was replaced acknowledged {} files", written.len()));
        }
        former.pending = Pending::default();
        if random.chance(1, 2) {
            self.former.push(former);
        }
        self.verify()
    }
}

/// The process is gone from one moment to the next.
fn ends_at_flush() -> stere_device::memory::FaultHook {
    Box::new(|operation, _, _| match operation {
        stere_device::Operation::Flush => std::panic::resume_unwind(Box::new("killed")),
        _ => None,
    })
}

fn fails_at_flush() -> stere_device::memory::FaultHook {
    Box::new(|operation, _, _| {
        (operation == stere_device::Operation::Flush).then_some(stere_device::memory::Fault::Error)
    })
}

fn write(store: &Store, random: &mut Random) -> Result<(u64, File), Error> {
    let parity = random.below(2) as u8;
    let length = random.between(1, 120_000) as u32;
    let seed = random.next_u64();
    let placement = Placement { scheme: Scheme { data: 1, parity }, class: 2, site: Site::ANYWHERE };
    let blob = store.append_blob(Io::BLOCKING, placement, Owner { inode: 0, offset: 0 }, &content(seed, length))?;
    let file = File { blob: blob.id, length, seed };
    let inode = store.update(Io::BLOCKING, |transaction| {
        let inode = transaction.allocate_inode();
        transaction.insert_blob(&blob);
        let mut value = file.blob.to_le_bytes().to_vec();
        value.extend(file.length.to_le_bytes());
        value.extend(file.seed.to_le_bytes());
        transaction.put(Key::inode(inode), &value);
        Ok::<_, Error>(inode)
    })?;
    Ok((inode, file))
}

fn remove(store: &Store, inode: u64, file: &File) -> Result<(), Error> {
    store.update(Io::BLOCKING, |transaction| {
        transaction.delete(Key::inode(inode));
        transaction.release_blob(file.blob, 0..file.length)
    })
}

fn file_of(store: &Store, inode: u64) -> Result<Option<File>, Error> {
    let value = store.view(Io::BLOCKING, |view| view.get(&Key::inode(inode)))?;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(value.map(|value| File {
        blob: number(&value[..8]),
        length: number(&value[8..12]) as u32,
        seed: number(&value[12..20]),
    }))
}

fn read(store: &Store, file: &File) -> Result<Vec<u8>, Error> {
    let blob = store.view(Io::BLOCKING, |view| view.blob(file.blob))?;
    let mut out = vec![0; file.length as usize];
    store.read_blobs(Io::BLOCKING, &[Piece { blob, offset: 0, length: file.length, at: 0 }], &mut out)?;
    Ok(out)
}
