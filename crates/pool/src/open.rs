//! Opening an assembled pool. What is missing decides whether it can be opened, and whether for writing.

use stere_format::{DeviceEntry, FORMAT_MAJOR, Scheme, Superblock};
use stere_store::{CleanerPolicy, DeviceIn, RecoveryReport, Store, StoreOptions};

use crate::assemble::{Assembly, Member};
use crate::error::Error;

/// What to do when devices are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Degraded {
    /// Refuse, and say how to go on.
    #[default]
    Ask,
    /// Open what is there, for reading only.
    Auto,
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
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            memory_bytes: 1 << 30,
            read_only: false,
            degraded: Degraded::Ask,
            cleaner: CleanerPolicy::CostBenefit,
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
}

impl Assembly {
    /// Copies of metadata that the pool keeps: what the newest checkpoint has, or the journal where that was degraded.
    fn metadata_scheme(&self) -> Scheme {
        let stored = self.newest.checkpoint.first().map_or(0, |part| part.place.scheme.parity);
        let mirrors = self.newest.journal_devices.len().saturating_sub(1) as u8;
        Scheme { data: 1, parity: stored.max(mirrors) }
    }

    /// The newest superblock in the words of a device.
    fn newest_for(&self, member: &Member) -> Superblock {
        let own = &member.superblock;
        let newest = &self.newest;
        Superblock {
            generation: newest.generation,
            journal_start: newest.journal_start,
            journal_bytes: newest.journal_bytes,
            journal_devices: newest.journal_devices.clone(),
            epochs: newest.epochs.clone(),
            clean: newest.clean,
            checkpoint: newest.checkpoint.clone(),
            ..own.clone()
        }
    }

    /// Writes the newest superblock to devices that a crash left one behind, so that they never come to be two behind. Their
    /// own newest copies stay whole meanwhile.
    fn level(&self) -> Result<(), Error> {
        for member in self.members.iter().filter(|member| member.superblock.generation < self.newest.generation) {
            let superblock = self.newest_for(member);
            let bytes = superblock.encode()?;
            let failed = |source| Error::NotLevelled { device: member.path.clone(), source };
            for offset in superblock.layout.superblock_offsets_of_generation(superblock.generation) {
                member.device.write_bytes(offset, &bytes).map_err(failed)?;
            }
            member.device.flush().map_err(failed)?;
        }
        Ok(())
    }

    /// Opens the pool. `path_of` tells where a missing device was last, for the refusal.
    pub fn open(
        &self,
        options: &OpenOptions,
        path_of: &dyn Fn(&DeviceEntry) -> Option<String>,
    ) -> Result<Opened, Error> {
        let mut warnings = self.warnings();
        let mut read_only = options.read_only;
        if !self.missing().is_empty() {
            let missing = self.describe_missing(path_of);
            if options.degraded != Degraded::Auto {
                return Err(Error::Missing { pool: self.newest.pool_name.clone(), missing });
            }
            warnings.push(format!("the pool lacks {missing}; it is open for reading only"));
            read_only = true;
        }
        if let Some(newer) = self.members.iter().find(|member| !member.superblock.is_writable()).filter(|_| !read_only)
        {
            let (major, minor) = (FORMAT_MAJOR, newer.superblock.format_minor);
            return Err(Error::ReadOnlyVersion { device: newer.path.clone(), major, minor });
        }
        let store_options = StoreOptions {
            memory_bytes: options.memory_bytes,
            meta_scheme: self.metadata_scheme(),
            cleaner: options.cleaner,
            read_only,
            ..StoreOptions::default()
        };
        if !read_only {
            self.level()?;
        }
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
        let (store, recovery) = Store::open(devices, store_options)?;
        Ok(Opened { store, recovery, read_only, warnings })
    }
}
