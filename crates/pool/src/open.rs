//! Opening an assembled pool. What is missing decides whether it can be opened, and whether for writing.

use std::sync::Arc;
use std::time::Duration;

use stere_device::{Answering, DeviceError};
use stere_format::{DeviceEntry, DeviceState, FORMAT_MAJOR, Scheme, Superblock};
use stere_store::{CleanerPolicy, DeviceIn, RecoveryReport, Store, StoreOptions};

use crate::assemble::{Assembly, Member};
use crate::error::Error;
use crate::floors::{Floors, floors};
use crate::history::age;

/// What to do when devices are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Degraded {
    /// Open what is there: for writing while everything that was to survive a loss can be read, else for reading only.
    #[default]
    Auto,
    /// Refuse, and say how to go on.
    Ask,
    /// Refuse.
    Never,
}

/// How a pool is opened.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    pub memory_bytes: usize,
    pub read_only: bool,
    pub degraded: Degraded,
    pub cleaner: CleanerPolicy,
    /// Random: mounts that know nothing of each other are told apart by it.
    pub epoch_nonce: u32,
    /// How long a device may take for one write or flush before writing goes on without it (P-162); none for as long as it likes.
    pub device_timeout: Option<Duration>,
}

/// What devices may take where nobody says otherwise.
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(5);

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            memory_bytes: 1 << 30,
            read_only: false,
            degraded: Degraded::default(),
            cleaner: CleanerPolicy::CostBenefit,
            epoch_nonce: 0,
            device_timeout: Some(DEVICE_TIMEOUT),
        }
    }
}

/// An open pool.
pub struct Opened {
    pub store: Store,
    pub recovery: RecoveryReport,
    /// Whether it only reads, because it was asked to or because devices are missing.
    pub read_only: bool,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Those of them that are true no longer than devices are away.
    pub warnings_of_absent: Vec<String>,
    /// What cannot be read while devices are missing.
    pub floors: Floors,
}

impl Member {
    /// Writes both copies of a superblock, one after the other, so that a torn write leaves one of them.
    pub(crate) fn write_superblock(&self, superblock: &Superblock, encoded: &[u8]) -> Result<(), DeviceError> {
        let offsets = superblock.layout.superblock_offsets_of_generation(superblock.generation);
        offsets.into_iter().try_for_each(|offset| {
            self.device.write_bytes(offset, encoded)?;
            self.device.flush()
        })
    }
}

impl Assembly {
    /// What is read and written while the pool opens has the deadline, too, where another device may have the same.
    fn set_deadlines(&self, timeout: Option<Duration>) {
        let timeout = timeout.filter(|_| self.members.len() > 1);
        let answering = Arc::new(Answering::default());
        answering.set((0..self.members.len() as u16).collect());
        for (member, number) in self.members.iter().zip(0..) {
            member.device.set_deadline(timeout.map(|limit| answering.deadline(number, limit)));
        }
    }

    /// Copies of metadata that the pool has where it holds no wish: of the newest checkpoint, or of the journal where that was
    /// degraded. It gets more when that is usual for its devices.
    fn metadata_scheme(&self) -> Scheme {
        let stored = self.newest.checkpoint.first().map_or(0, |part| part.place.scheme.parity);
        let mirrors = self.newest.journal_devices.len().saturating_sub(1) as u8;
        Scheme { data: 1, parity: stored.max(mirrors) }
    }

    /// Writes the newest superblock to devices that are behind: by one generation after a crash, by more if they were away. One that takes nothing stays behind, as if it had failed just after: the
    /// store goes on without it as far as others suffice.
    fn level(&self) -> Result<Vec<String>, Error> {
        let mut behind = Vec::new();
        for member in self.members.iter().filter(|member| age(&member.superblock) < age(&self.newest)) {
            let superblock = self.newest_for(member);
            let bytes = superblock.encode()?;
            if let Err(error) = member.write_superblock(&superblock, &bytes) {
                tracing::warn!(device = member.path, %error, "a device does not take the newest superblock");
                behind.push(format!("{} takes no writes, and nothing new is put on it: {error}", member.path));
            }
        }
        Ok(behind)
    }

    /// Opens the pool. `path_of` tells where a missing device was last, for the refusal.
    pub fn open(
        &self,
        options: &OpenOptions,
        path_of: &dyn Fn(&DeviceEntry) -> Option<String>,
    ) -> Result<Opened, Error> {
        let mut warnings = self.warnings();
        let mut warnings_of_absent = self.warnings_of_absent();
        let mut read_only = options.read_only;
        let mut floors = Floors::default();
        self.set_deadlines(options.device_timeout);
        if !self.unexpectedly_missing().is_empty() && options.degraded != Degraded::Auto {
            let missing = self.describe_missing(path_of);
            return Err(Error::Missing { pool: self.newest.pool_name.clone(), missing });
        }
        if !self.missing().is_empty() {
            floors = self.look(options)?;
            let missing = self.describe_missing(path_of);
            read_only |= !floors.allow_writing();
            let lacks = format!("the pool lacks {missing}; {}", floors.words(read_only));
            warnings_of_absent.push(lacks.clone());
            warnings.push(lacks);
        }
        if let Some(unknown) = self.entries.iter().find(|entry| DeviceState::from_code(entry.state).is_none()) {
            warnings.push(format!(
                "device '{}' is in a state that only a newer stere knows; the pool is open for reading only",
                unknown.name
            ));
            read_only = true;
        }
        if let Some(newer) = self.members.iter().find(|member| !member.superblock.is_writable()).filter(|_| !read_only)
        {
            let (major, minor) = (FORMAT_MAJOR, newer.superblock.format_minor);
            return Err(Error::ReadOnlyVersion { device: newer.path.clone(), major, minor });
        }
        // Where the log is shared nothing is written before the log says whose pool it is.
        if !read_only && self.tail.is_none() {
            warnings.extend(self.level()?);
        }
        assert!(self.tail.is_some() == self.newest.is_log_shared, "a shared log is there where the root says so");
        let (store, recovery) = self.open_store(options, read_only)?;
        store.devices.set_deadlines(options.device_timeout);
        Ok(Opened { store, recovery, read_only, warnings, warnings_of_absent, floors })
    }

    /// Opens for reading only, writes nothing, and sees what can be read without what is missing.
    fn look(&self, options: &OpenOptions) -> Result<Floors, Error> {
        let (store, _) = self.open_store(options, true)?;
        Ok(floors(&store))
    }

    fn open_store(&self, options: &OpenOptions, read_only: bool) -> Result<(Store, RecoveryReport), Error> {
        let store_options = StoreOptions {
            memory_bytes: options.memory_bytes,
            keeps_recent: !read_only,
            meta_scheme: self.metadata_scheme(),
            metadata_follows_devices: true,
            cleaner: options.cleaner,
            read_only,
            epoch_nonce: options.epoch_nonce,
            tail: self.tail.clone(),
            ..StoreOptions::default()
        };
        let devices = self
            .members
            .iter()
            .map(|member| DeviceIn {
                index: member.superblock.device_index,
                superblock: self.newest_for(member),
                device: member.device.clone(),
                read_cost: self.class_of(member).read_cost(),
            })
            .collect();
        for member in &self.members {
            tracing::debug!(device = member.device.describe(), generation = member.superblock.generation, "a member");
        }
        Ok(Store::open(devices, store_options)?)
    }
}
