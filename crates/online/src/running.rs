//! A pool that is open for use, and its devices as they are now: where each is, whether it is used, and how to name it.
//!
//! The daemon of a mount has one, and so has a command that works on an unmounted pool. What devices are *for* stands in the
//! store's device table; what is kept here is where they are. Invariant: one change of devices at a time, and the registry
//! is told of it before the next. Read next: `change.rs`, `forecast.rs`, `rebuild.rs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stere_device::Device;
use stere_format::{DeviceEntry, DeviceIndex, DeviceLayout, Superblock};
use stere_multihost::{Guard, Joined, LogClaim};
use stere_pool::{Assembly, DeviceClass, Holds, Opened, identify};
use stere_store::Store;

use crate::far_media::FarMedia;
use crate::slow::SlowSince;
use crate::{mending, scrubbing, tertiary};
use stere_machine::devices::absolute;
use stere_machine::error::{Result, refused};
use stere_machine::registry::{AgreedPlace, Registry};

/// A device in use.
#[derive(Clone)]
pub struct Attached {
    pub path: String,
    pub device: Arc<dyn Device>,
    /// Whether some of its superblock copies were found damaged.
    pub is_damaged: bool,
}

/// A device of the table that is there and not used.
#[derive(Clone)]
pub struct LeftOut {
    pub path: String,
    pub why: String,
}

#[derive(Default)]
pub(crate) struct Places {
    pub(crate) attached: BTreeMap<DeviceIndex, Attached>,
    pub(crate) left_out: BTreeMap<DeviceIndex, LeftOut>,
}

pub struct Running {
    /// Before the devices, which its heartbeats are on.
    claim: Mutex<Option<Guard>>,
    pub store: Arc<Store>,
    pub pool: String,
    pub id: String,
    pub read_only: bool,
    pub chunk_bytes: u64,
    pub mending: mending::Mending,
    pub scrubbing: scrubbing::Scrubbing,
    pub tertiary: tertiary::Tertiary,
    pub gate: Arc<crate::gate::Gate>,
    pub far_media: Arc<FarMedia>,
    pub(crate) registry: Registry,
    pub(crate) places: Mutex<Places>,
    pub(crate) changing: Mutex<()>,
    pub(crate) agreed: Mutex<Vec<AgreedPlace>>,
    pub(crate) slow_since: SlowSince,
    /// Devices that are to be smaller, and how they will be.
    pub(crate) shrinking: Mutex<BTreeMap<DeviceIndex, DeviceLayout>>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// Takes over what was opened. Devices that were left out are kept in mind, not open.
    pub fn new(registry: &Registry, assembly: &Assembly, claim: Option<Guard>, opened: Opened) -> Running {
        let mut places = Places::default();
        for member in &assembly.members {
            let is_damaged = !member.damaged.is_empty();
            let attached = Attached { path: member.path.clone(), device: member.device.clone(), is_damaged };
            places.attached.insert(member.superblock.device_index, attached);
        }
        for one in &assembly.left_out {
            let index = one.member.superblock.device_index;
            let is_known = assembly.entries.iter().any(|entry| entry.id == one.member.superblock.device);
            if is_known && !places.attached.contains_key(&index) {
                let left_out = LeftOut { path: one.member.path.clone(), why: one.why.words().to_owned() };
                places.left_out.insert(index, left_out);
            }
        }
        Running {
            claim: Mutex::new(claim),
            store: Arc::new(opened.store),
            pool: assembly.newest.pool_name.clone(),
            id: assembly.newest.pool.to_string(),
            read_only: opened.read_only,
            chunk_bytes: u64::from(assembly.newest.layout.chunk_bytes),
            mending: mending::Mending::default(),
            scrubbing: scrubbing::Scrubbing::default(),
            tertiary: tertiary::Tertiary::default(),
            gate: Arc::default(),
            far_media: Arc::default(),
            registry: registry.clone(),
            places: Mutex::new(places),
            changing: Mutex::new(()),
            agreed: Mutex::default(),
            slow_since: SlowSince::default(),
            shrinking: Mutex::default(),
        }
    }

    /// Lets the next owner have the pool at once. Call it when everything is written.
    pub fn give_up_claim(&self) {
        drop(lock(&self.claim).take());
    }

    /// Asks the claim to the shared log, where there is one.
    pub fn with_log_claim<T>(&self, ask: impl FnOnce(&LogClaim) -> T) -> Option<T> {
        lock(&self.claim).as_ref().and_then(Guard::log).map(ask)
    }

    /// Calls `tell` when another machine was found to use the pool.
    pub fn on_claim_lost(&self, tell: Box<dyn Fn(&str) + Send + Sync>) {
        if let Some(claim) = &*lock(&self.claim) {
            claim.on_lost(tell);
        }
    }

    /// The device, if it is read and written.
    pub fn attached(&self, index: DeviceIndex) -> Option<Attached> {
        let usage = self.store.devices.device_usage(index).ok()?;
        let is_used = usage.is_attached && !usage.is_suspended;
        lock(&self.places).attached.get(&index).filter(|_| is_used).cloned()
    }

    /// Whether the store has it open, even if it is only read because it stopped taking writes.
    pub fn is_open(&self, index: DeviceIndex) -> bool {
        self.store.devices.device_usage(index).is_ok_and(|usage| usage.is_attached)
    }

    pub fn left_out(&self, index: DeviceIndex) -> Option<LeftOut> {
        lock(&self.places).left_out.get(&index).cloned()
    }

    /// Where a device is, or was last.
    pub fn path_of(&self, entry: &DeviceEntry) -> Option<String> {
        let known = lock(&self.places).attached.get(&entry.index).map(|attached| attached.path.clone());
        let left_out = || lock(&self.places).left_out.get(&entry.index).map(|left_out| left_out.path.clone());
        known.or_else(left_out).or_else(|| self.registry.path_of(&self.pool, &entry.id.to_string()))
    }

    pub(crate) fn note_attached(&self, index: DeviceIndex, path: String, device: Arc<dyn Device>) {
        if let (Some(claim), Holds::Member(identity)) = (&*lock(&self.claim), identify(&*device)) {
            let offset = identity.superblock.layout.heartbeat_offset();
            let (path, device) = (path.clone(), device.clone());
            claim.keep(Joined { path, device, id: identity.superblock.device, offset });
        }
        let mut places = lock(&self.places);
        places.left_out.remove(&index);
        places.attached.insert(index, Attached { path, device, is_damaged: false });
    }

    pub(crate) fn note_detached(&self, index: DeviceIndex) -> Option<Attached> {
        lock(&self.places).attached.remove(&index)
    }

    /// A superblock of the pool as it is now.
    pub fn newest(&self) -> Result<Superblock> {
        let devices: Vec<Arc<dyn Device>> = {
            let places = lock(&self.places);
            places.attached.values().map(|attached| attached.device.clone()).collect()
        };
        let superblocks = devices.iter().filter_map(|device| match identify(&**device) {
            Holds::Member(identity) => Some(identity.superblock),
            _ => None,
        });
        match superblocks.max_by_key(|superblock| superblock.generation) {
            Some(newest) => Ok(newest),
            None => refused("no device of the pool gives its superblock; look at `stere status`"),
        }
    }

    /// The device that a person means: a name, a path, an id (or how it begins), or a number as `#2`.
    pub fn find(&self, word: &str) -> Result<DeviceEntry> {
        let entries = self.store.device_entries();
        let path = absolute(Path::new(word)).display().to_string();
        let canonical = std::fs::canonicalize(word).ok();
        let is_at = |entry: &&DeviceEntry| {
            self.path_of(entry).is_some_and(|known| {
                known == word
                    || known == path
                    || (canonical.is_some() && std::fs::canonicalize(&known).ok() == canonical)
            })
        };
        let number = word.strip_prefix('#').and_then(|number| number.parse::<u16>().ok());
        let by_id = |entry: &&DeviceEntry| word.len() >= 4 && entry.id.to_string().starts_with(word);
        let found = entries
            .iter()
            .find(|entry| entry.name == word)
            .or_else(|| entries.iter().find(is_at))
            .or_else(|| entries.iter().find(|entry| Some(entry.index + 1) == number))
            .or_else(|| entries.iter().find(by_id));
        match found {
            Some(entry) => Ok(entry.clone()),
            None => {
                let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
                refused(format!("the pool '{}' has no device '{word}'; it has {}", self.pool, names.join(", ")))
            }
        }
    }

    /// Whether somebody paused the bringing of files in line with their policy, in this mount or an earlier one.
    pub fn is_reconcile_paused(&self) -> bool {
        let record = self.registry.find(&self.pool).ok().flatten();
        record.is_some_and(|record| record.id == self.id && record.is_reconcile_paused)
    }

    pub fn remember_reconcile_paused(&self, is_paused: bool) -> Result<()> {
        let Some(mut record) = self.registry.find(&self.pool)?.filter(|record| record.id == self.id) else {
            return Ok(());
        };
        record.is_reconcile_paused = is_paused;
        self.registry.save(&record)
    }

    pub fn class_of(entry: &DeviceEntry) -> DeviceClass {
        DeviceClass::from_code(entry.class)
    }
}
