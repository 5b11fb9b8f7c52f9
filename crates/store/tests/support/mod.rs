//! Devices that are slow and out of order, a watchdog, and a small generator, for tests with many threads.
//!
//! A `SlowDevice` queues its writes for threads of its own that dawdle, so that rows are under way for long and end in any
//! order; what a power cut leaves is decided by the device in memory below it.
#![allow(dead_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use stere_device::{Device, DeviceError, MemoryDevice, Piece, Ticket};
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, PoolId, Superblock};
use stere_store::{DeviceIn, Store, StoreOptions};

pub const CHUNK_BYTES: u32 = 1 << 20;

/// A small generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The seed of this run: `STERE_STRESS_SEED`, or another one each time; printed, for a failing test shows its output.
pub fn seed() -> u64 {
    let given = std::env::var("STERE_STRESS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given
        .unwrap_or_else(|| u64::from(std::process::id()) << 20 | u64::from(Instant::now().elapsed().subsec_nanos()));
    println!("STERE_STRESS_SEED={seed}");
    seed
}

/// How long a stress test runs: `STERE_STRESS_SECONDS`, 5 else.
pub fn duration() -> Duration {
    let given = std::env::var("STERE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(5))
}

struct Write {
    offset: u64,
    pieces: Vec<Piece>,
    ticket: Ticket,
    dawdle: Duration,
}

/// Holds a submitted write back after it was carried out, before the submitter goes on.
#[derive(Default)]
pub struct Gate {
    armed: AtomicBool,
    is_held: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// The next submission is carried out at once and its submitter held.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    fn pass(&self) {
        if !self.armed.swap(false, Ordering::SeqCst) {
            return;
        }
        let mut is_held = self.is_held.lock().unwrap();
        *is_held = true;
        self.changed.notify_all();
        while *is_held {
            is_held = self.changed.wait(is_held).unwrap();
        }
    }

    pub fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }

    /// Whether somebody is held now.
    pub fn is_held(&self) -> bool {
        *self.is_held.lock().unwrap()
    }

    pub fn open(&self) {
        *self.is_held.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

/// See the file's head.
pub struct SlowDevice {
    pub memory: Arc<MemoryDevice>,
    pub gate: Gate,
    queue: Mutex<mpsc::Sender<Write>>,
    pending: Arc<AtomicUsize>,
    random: AtomicU64,
    dawdle_us_max: u64,
}

impl SlowDevice {
    pub fn new(size_bytes: u64, seed: u64, dawdle_us_max: u64) -> SlowDevice {
        let memory = Arc::new(MemoryDevice::with_volatile_cache(size_bytes));
        let (sender, receiver) = mpsc::channel::<Write>();
        let (receiver, pending) = (Arc::new(Mutex::new(receiver)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let (memory, receiver, pending) = (memory.clone(), receiver.clone(), pending.clone());
            std::thread::spawn(move || {
                loop {
                    let received = receiver.lock().unwrap().recv();
                    let Ok(Write { offset, pieces, ticket, dawdle }) = received else { return };
                    std::thread::sleep(dawdle);
                    memory.submit_write_gathered(offset, pieces, ticket);
                    pending.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        let queue = Mutex::new(sender);
        SlowDevice { memory, gate: Gate::default(), queue, pending, random: AtomicU64::new(seed), dawdle_us_max }
    }

    fn dawdle(&self) -> Duration {
        let mut random = Random(self.random.fetch_add(1, Ordering::Relaxed));
        // Most are quick, a few are very slow.
        let limit = if random.below(16) == 0 { self.dawdle_us_max * 8 } else { self.dawdle_us_max };
        Duration::from_micros(random.below(limit + 1))
    }

    /// A power cut once everything queued has been carried out: of what was not flushed some survives.
    pub fn cut_power(&self, random: &mut Random) {
        while self.pending.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        let survives = random.below(4);
        self.memory.lose_unflushed(|_| random.below(4) < survives);
    }
}

impl Device for SlowDevice {
    fn size_bytes(&self) -> u64 {
        self.memory.size_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.memory.block_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.memory.read(offset, buffer)
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        if self.gate.armed.load(Ordering::SeqCst) || self.dawdle_us_max == 0 {
            self.memory.submit_write_gathered(offset, pieces, ticket);
            return self.gate.pass();
        }
        self.pending.fetch_add(1, Ordering::SeqCst);
        let write = Write { offset, pieces, ticket, dawdle: self.dawdle() };
        self.queue.lock().unwrap().send(write).expect("the device's threads run as long as it lives");
        if self.random.load(Ordering::Relaxed) % 8 == 0 {
            std::thread::yield_now();
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        std::thread::sleep(self.dawdle());
        self.memory.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.memory.discard(offset, length)
    }

    fn describe(&self) -> String {
        format!("slow {}", self.memory.describe())
    }
}

/// A pool on slow devices.
pub struct Rig {
    pub devices: Vec<Arc<SlowDevice>>,
    options: StoreOptions,
}

impl Rig {
    pub fn new(count: u16, size_bytes: u64, memory_bytes: usize, seed: u64, dawdle_us_max: u64) -> (Rig, Store) {
        let devices: Vec<_> = (0..count)
            .map(|index| Arc::new(SlowDevice::new(size_bytes, seed + u64::from(index), dawdle_us_max)))
            .collect();
        let layout = DeviceLayout::for_size(size_bytes, CHUNK_BYTES).expect("the size is possible");
        let superblock = |index: u16| Superblock {
            journal_devices: (0..count.min(3)).collect(),
            pool_name: "stress".into(),
            ..Superblock::first(PoolId([9; 16]), DeviceId([index as u8 + 1; 16]), index, layout)
        };
        let entry = |index: u16| DeviceEntry::of(&superblock(index), format!("d{index}"));
        let options = StoreOptions { memory_bytes, hash_key: [7; 16], ..StoreOptions::default() };
        let rig = Rig { devices, options };
        let devices_in = (0..count).map(|index| rig.device_in(superblock(index))).collect();
        let store =
            Store::create(devices_in, (0..count).map(entry).collect(), rig.options.clone()).expect("a new pool");
        (rig, store)
    }

    fn device_in(&self, superblock: Superblock) -> DeviceIn {
        let index = superblock.device_index;
        DeviceIn { index, superblock, device: self.devices[usize::from(index)].clone(), read_cost: 1 }
    }

    /// A power cut, then the pool as it is found; `user` is whatever holds the store.
    pub fn crash<T>(&self, user: T, random: &mut Random) -> Store {
        drop(user);
        let cut = |device: &Arc<SlowDevice>| {
            device.cut_power(random);
            let offsets =
                DeviceLayout::for_size(device.size_bytes(), CHUNK_BYTES).expect("as before").superblock_offsets();
            let found = offsets.into_iter().filter_map(|offset| {
                let mut bytes = vec![0; Superblock::SIZE];
                device.read(offset, &mut bytes).expect("a device in memory is readable");
                Superblock::decode(&bytes).ok()
            });
            found.max_by_key(|superblock| superblock.generation).expect("a pool's device has a superblock")
        };
        let superblocks: Vec<_> = self.devices.iter().map(cut).collect();
        let devices_in = superblocks.into_iter().map(|superblock| self.device_in(superblock)).collect();
        Store::open(devices_in, self.options.clone()).expect("the pool opens").0
    }
}

/// Without progress for this long a test counts as stuck.
const STUCK: Duration = Duration::from_secs(120);

/// Ends the process, telling what every worker was doing, when none of them gets anywhere.
pub struct Watchdog {
    doing: Vec<Mutex<&'static str>>,
    steps: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    pub fn new(workers: usize) -> Watchdog {
        let doing = (0..workers).map(|_| Mutex::new("nothing yet")).collect();
        Watchdog { doing, steps: AtomicU64::new(0), is_over: AtomicBool::new(false) }
    }

    /// A worker has ended its last step and begins this one.
    pub fn step(&self, worker: usize, doing: &'static str) {
        *self.doing[worker].lock().unwrap() = doing;
        self.steps.fetch_add(1, Ordering::SeqCst);
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Watches until `end`.
    pub fn watch(&self) {
        let (mut seen, mut since) = (self.steps(), Instant::now());
        while !self.is_over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
            if self.steps() != seen {
                (seen, since) = (self.steps(), Instant::now());
            } else if since.elapsed() > STUCK {
                for (worker, doing) in self.doing.iter().enumerate() {
                    eprintln!("stuck: worker {worker} is at: {}", doing.lock().unwrap());
                }
                std::process::abort();
            }
        }
    }
}

/// Runs `work`, and ends the process if it takes longer than this.
pub fn within<T>(limit: Duration, what: &'static str, work: impl FnOnce() -> T) -> T {
    let is_over = Arc::new(AtomicBool::new(false));
    let watched = is_over.clone();
    std::thread::spawn(move || {
        let since = Instant::now();
        while !watched.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
            if since.elapsed() > limit {
                eprintln!("stuck: {what}");
                std::process::abort();
            }
        }
    });
    let outcome = work();
    is_over.store(true, Ordering::SeqCst);
    outcome
}
