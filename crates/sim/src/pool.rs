//! A pool on simulated devices: made, mounted, closed, and found again after anything.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stere_format::{DeviceEntry, DeviceId, DeviceLayout, PoolId, Superblock, Timestamp};
use stere_naming::{AccessTimes, Caller, FileSystem, Io, Options};
use stere_pool::{Assembly, Candidate, Holds, OpenOptions, identify};
use stere_store::{CleanerPolicy, DeviceIn, RecoveryReport, Store, StoreOptions};

use crate::area::{Area, Areas};
use crate::background::Jobs;
use crate::device::Machine;
use crate::encryption::Encrypts;
use crate::hang::DEADLINE_NS;
use crate::medium::Medium;

/// What a pool is made of.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    pub device_bytes: Vec<u64>,
    pub block_bytes: Vec<u32>,
    pub chunk_bytes: u32,
    pub memory_bytes: usize,
    pub dirty_bytes_max: u64,
    pub dirty_steps_max: u64,
    pub cleaner: CleanerPolicy,
    pub encrypts: Encrypts,
    pub keeps_versions: bool,
    pub checksums: crate::checksums::Wishes,
    /// Whether files pass a plugin of users.
    pub passes_plugins: bool,
    /// What it takes part in beside.
    pub areas: Areas,
}

/// All simulated devices are equally good to read from.
const READ_COST: u32 = 100;

/// Attempts to put the devices together after the first.
const ASSEMBLED_AGAIN_MAX: u32 = 2;

/// A mounted pool.
pub struct Mounted {
    pub files: Arc<FileSystem>,
    pub store: Arc<Store>,
    pub report: RecoveryReport,
    /// What works in the background.
    pub jobs: Arc<Mutex<Jobs>>,
}

/// The pool under test: the stack as it is mounted now, on the machine whose devices hold it.
pub(crate) struct PoolUnderTest {
    pub machine: Arc<Machine>,
    /// None only while it is closed.
    pub mounted: Option<Mounted>,
    /// What a device held at some time, which it holds again from the next mount on.
    pub kept_image: Option<(usize, Medium)>,
    /// The device that was away, as long as not everything is known to be whole without it.
    pub exposed: Option<usize>,
    /// The device that comes back at the next mount.
    pub returning: Option<usize>,
    /// The device that a person took away.
    pub offline: Option<usize>,
    /// Whether devices changed since everything was last found whole.
    pub has_changed_devices: bool,
}

impl PoolUnderTest {
    pub(crate) fn new(machine: Arc<Machine>, mounted: Mounted) -> PoolUnderTest {
        PoolUnderTest {
            machine,
            mounted: Some(mounted),
            kept_image: None,
            exposed: None,
            returning: None,
            offline: None,
            has_changed_devices: false,
        }
    }

    /// No device was away, is away or is to be set back, so that everything has all its copies.
    pub(crate) fn is_whole(&self) -> bool {
        self.exposed.is_none() && self.away().is_none() && self.kept_image.is_none()
    }

    /// Whole, and nothing went wrong on any device.
    pub(crate) fn is_well(&self) -> bool {
        self.is_calm() && self.is_whole()
    }
}

impl PoolConfig {
    /// A small pool on devices of these sizes, plain in every way that is not said further.
    pub fn of(device_bytes: &[u64]) -> PoolConfig {
        PoolConfig {
            device_bytes: device_bytes.to_vec(),
            block_bytes: vec![512; device_bytes.len()],
            chunk_bytes: 1 << 20,
            memory_bytes: 8 << 20,
            dirty_bytes_max: 1 << 20,
            dirty_steps_max: 3,
            cleaner: CleanerPolicy::CostBenefit,
            encrypts: Encrypts::Nothing,
            keeps_versions: false,
            checksums: &[],
            passes_plugins: false,
            areas: Areas::NONE,
        }
    }

    /// The blocks of its devices, one after the other.
    pub fn blocks(self, block_bytes: &[u32]) -> PoolConfig {
        assert_eq!(block_bytes.len(), self.device_bytes.len(), "each device has blocks of one size");
        PoolConfig { block_bytes: block_bytes.to_vec(), ..self }
    }

    pub fn chunks(self, chunk_bytes: u32) -> PoolConfig {
        PoolConfig { chunk_bytes, ..self }
    }

    pub fn memory(self, memory_bytes: usize) -> PoolConfig {
        PoolConfig { memory_bytes, ..self }
    }

    /// How much may be dirty, and for how many steps.
    pub fn dirty(self, dirty_bytes_max: u64, dirty_steps_max: u64) -> PoolConfig {
        PoolConfig { dirty_bytes_max, dirty_steps_max, ..self }
    }

    /// How segments are chosen for cleaning.
    pub fn cleaner(self, cleaner: CleanerPolicy) -> PoolConfig {
        PoolConfig { cleaner, ..self }
    }

    pub fn encrypts(self, encrypts: Encrypts) -> PoolConfig {
        PoolConfig { encrypts, ..self }
    }

    pub fn keeps_versions(self) -> PoolConfig {
        PoolConfig { keeps_versions: true, ..self }
    }

    pub fn takes_part_in(self, area: Area) -> PoolConfig {
        PoolConfig { areas: Areas::only(area), ..self }
    }

    fn store_options(&self, machine: &Machine) -> StoreOptions {
        let nonce = machine.draw() as u32;
        StoreOptions {
            memory_bytes: self.memory_bytes,
            // Not always: what is read from memory tells nothing of devices.
            keeps_recent: nonce % 4 == 0,
            cleaner: self.cleaner,
            hash_key: [7; 16],
            epoch_nonce: nonce,
            ..StoreOptions::default()
        }
    }

    fn naming_options(&self, machine: &Machine) -> Options {
        let salt = || [machine.draw().to_le_bytes(), machine.draw().to_le_bytes()].concat().try_into().ok();
        let encryption_salt = if self.encrypts == Encrypts::Nothing { None } else { salt() };
        Options {
            access_times: AccessTimes::Relative,
            files: stere_file::Options {
                dirty_bytes_max: self.dirty_bytes_max,
                dirty_steps_max: self.dirty_steps_max,
                encryption_salt,
                plugin_loader: Some(Arc::new(machine.played.clone())),
                ..stere_file::Options::default()
            },
            ..Options::default()
        }
    }

    fn superblock(&self, index: u16, journal_bytes: u64) -> Result<Superblock, String> {
        let size_bytes = self.device_bytes[usize::from(index)];
        let layout = DeviceLayout::for_size(size_bytes, self.chunk_bytes).map_err(|error| error.to_string())?;
        let count = self.device_bytes.len() as u16;
        Ok(Superblock {
            journal_bytes,
            journal_devices: (0..count.min(3)).collect(),
            pool_name: "simulated".into(),
            ..Superblock::first(PoolId([9; 16]), DeviceId([index as u8 + 1; 16]), index, layout)
        })
    }

    /// Makes a pool on a machine's devices and mounts it.
    pub fn create(&self, machine: &Arc<Machine>) -> Result<Mounted, String> {
        for (size_bytes, block_bytes) in self.device_bytes.iter().zip(&self.block_bytes) {
            machine.add_device(*size_bytes, *block_bytes);
        }
        let layouts: Vec<u64> = self
            .device_bytes
            .iter()
            .map(|size| DeviceLayout::for_size(*size, self.chunk_bytes).map(|layout| layout.journal_bytes))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let journal_bytes = layouts.iter().take(3).copied().min().unwrap_or(0);
        let mut devices = Vec::new();
        let mut entries = Vec::new();
        for (index, device) in machine.devices().into_iter().enumerate() {
            let superblock = self.superblock(index as u16, journal_bytes)?;
            entries.push(DeviceEntry::of(&superblock, name_of(index)));
            devices.push(DeviceIn { index: index as u16, superblock, device, read_cost: READ_COST });
        }
        let store =
            Store::create(devices, entries, self.store_options(machine)).map_err(|error| format!("create: {error}"))?;
        FileSystem::format(&store, timestamp(machine)).map_err(|error| format!("format: {error}"))?;
        store.close().map_err(|error| format!("close after create: {error}"))?;
        drop(store);
        self.mount(machine)
    }

    /// Mounts the pool that the machine's devices hold, as the pool crate finds it.
    pub fn mount(&self, machine: &Arc<Machine>) -> Result<Mounted, String> {
        machine.reopen_devices();
        // A device that fails between being looked at and being assembled is left out by whoever tries again.
        let mut assembled = assemble(machine);
        for _ in 0..ASSEMBLED_AGAIN_MAX {
            assembled = assembled.or_else(|_| assemble(machine));
        }
        self.open(&assembled?, machine)
    }

    /// Mounts what was put together.
    pub(crate) fn open(&self, assembly: &Assembly, machine: &Arc<Machine>) -> Result<Mounted, String> {
        let options = OpenOptions {
            memory_bytes: self.memory_bytes,
            cleaner: self.cleaner,
            epoch_nonce: machine.draw() as u32,
            device_timeout: Some(Duration::from_nanos(DEADLINE_NS)),
            ..OpenOptions::default()
        };
        let opened = assembly.open(&options, &|_| None).map_err(|error| format!("open: {error}"))?;
        if opened.read_only {
            return Err(format!("open: for reading only; {}", opened.warnings.join("; ")));
        }
        let store = Arc::new(opened.store);
        let files =
            FileSystem::new(store.clone(), self.naming_options(machine)).map_err(|error| format!("mount: {error}"))?;
        let jobs = Arc::new(Mutex::new(Jobs::new(machine)));
        let mounted = Mounted { files: Arc::new(files), store, report: opened.recovery, jobs };
        if self.encrypts != Encrypts::Nothing && !mounted.files.encryption().keys().is_empty() {
            crate::encryption::unlock(&mounted.files)?;
        }
        crate::tertiary::attach_volumes(&mounted, machine);
        Ok(mounted)
    }
}

/// What the pool calls the device with this number of the machine.
pub fn name_of(number: usize) -> String {
    format!("simulated-{number}")
}

/// The number of the machine's device that the pool calls so.
pub fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("simulated-")?.parse().ok()
}

/// The machine's clock as the file system counts time.
pub fn timestamp(machine: &Machine) -> Timestamp {
    let now_ns = machine.now_ns();
    Timestamp { seconds: (now_ns / 1_000_000_000) as i64, nanoseconds: (now_ns % 1_000_000_000) as u32 }
}

/// Whoever does everything now, the superuser unless it is said; he may wait.
pub fn caller(machine: &Machine) -> Caller<'static> {
    let (uid, gid) = machine.owner();
    Caller { uid, gid, groups: &[], umask: 0o022, now: timestamp(machine), io: Io::BLOCKING, process: 0, request: None }
}

/// Who sees everything, whoever does everything else.
pub fn superuser(machine: &Machine) -> Caller<'static> {
    Caller { uid: 0, gid: 0, ..caller(machine) }
}

/// Puts together what says that it is of the pool; one that tells nothing of itself counts as missing.
fn assemble(machine: &Arc<Machine>) -> Result<Assembly, String> {
    let absent = machine.absent();
    let there = machine.devices().into_iter().enumerate().filter(|(at, _)| !absent.contains(at));
    let candidates: Vec<Candidate> = there
        .filter(|(_, device)| matches!(identify(&**device), Holds::Member(_)))
        .map(|(number, device)| Candidate { path: name_of(number), device })
        .collect();
    if candidates.is_empty() {
        return Err("no superblock can be read".into());
    }
    Assembly::new(candidates).map_err(|error| format!("assemble: {error}"))
}
