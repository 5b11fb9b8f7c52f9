//! How a pool is mounted, and what that means to the kernel.

use std::time::Duration;

use fuse_wire::abi::init;
use fuse_wire::{BlockDevice, InitOptions, RECOMMENDED, TransportChoice, TransportOptions};

use crate::turns::RecallLimits;

#[cfg(test)]
mod tests;

/// How many threads may wait for devices, by what they wait with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reads of content and metadata: as many as shall overlap on the devices.
    pub reading: usize,
    /// Writes and changes of names.
    pub changing: usize,
    /// fsync, syncfs, fallocate, copies.
    pub syncing: usize,
    /// Reads of what is on media only.
    pub recalling: usize,
    /// Searches in `.find`.
    pub searching: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reading: 16, changing: 8, syncing: 16, recalling: 16, searching: 2 }
    }
}

/// Everything that can be chosen about a mount. The defaults are those of a local file system.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What /proc/mounts shows as the source: the pool's name. A mount with `sync_requests` shows a loop device instead.
    pub source: String,
    /// Others than the mounting user may use it; `None`: where root mounts. Others need `user_allow_other`
    /// in /etc/fuse.conf.
    pub allow_other: Option<bool>,
    /// No changes.
    pub read_only: bool,
    /// Set-id bits have no effect. Always so where an ordinary user mounts.
    pub no_suid: bool,
    /// Device nodes cannot be opened. Always so where an ordinary user mounts.
    pub no_dev: bool,
    /// Programs cannot be started.
    pub no_exec: bool,
    /// Times of access stay as they are.
    pub no_atime: bool,
    /// There is no directory `.find` at the top whose directories are searches.
    pub no_find: bool,
    /// Nobody is told when a file was made. Programs that ask for it with everything else (those in Rust do) cost one request
    /// less for each file that the kernel does not know.
    pub no_birth_times: bool,
    /// The kernel gathers small writes before it sends them. Faster for many tiny appends, slower for large writes;
    /// data that a program wrote and did not sync is then also lost when only this process dies.
    pub writeback_cache: bool,
    /// The kernel keeps lists of directories. Faster for plain repeated lists, slower for lists with attributes.
    pub cache_directories: bool,
    /// Mount so that sync(2) and syncfs(2) arrive (as `fuseblk`); only root can.
    pub sync_requests: BlockDevice,
    /// Other machines mount the pool too: what the kernel has in memory is good for a moment only, and locks are everybody's.
    pub shared: bool,
    /// How long the kernel may believe what it was told. Long, for nothing changes but through it.
    pub time_to_live: Duration,
    /// How far the kernel reads ahead; only root can set it.
    pub read_ahead_bytes: u32,
    /// io_uring or /dev/fuse.
    pub transport: TransportChoice,
    /// In bursts of requests idle CPUs poll instead of sleeping deeply, where we may ask for that.
    pub keep_cpus_awake: bool,
    /// Requests of one CPU that may be under way at once over io_uring, waiting ones among them.
    pub ring_depth: usize,
    /// Threads that read /dev/fuse, where that is the transport.
    pub device_threads: usize,
    /// Threads that wait for devices.
    pub limits: Limits,
    /// Reads of what is on media only that may be under way at a time, of one user and from one set of volumes.
    pub recall_limits: RecallLimits,
    /// Calls are not counted.
    pub no_io_profiles: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "stere".to_owned(),
            allow_other: None,
            read_only: false,
            no_suid: false,
            no_dev: false,
            no_exec: false,
            no_atime: false,
            no_find: false,
            no_birth_times: false,
            writeback_cache: false,
            cache_directories: false,
            sync_requests: BlockDevice::Preferred,
            shared: false,
            time_to_live: Duration::from_secs(24 * 3600),
            read_ahead_bytes: 4 << 20,
            transport: TransportChoice::Auto,
            keep_cpus_awake: true,
            // More than the default of 8: requests that wait for a device keep their place in the ring.
            ring_depth: 32,
            device_threads: 2,
            limits: Limits::default(),
            recall_limits: RecallLimits::default(),
            no_io_profiles: false,
        }
    }
}

impl MountOptions {
    /// The same for the wire; `root` says whether root mounts.
    #[must_use]
    pub fn wire(&self, root: bool) -> fuse_wire::Options {
        let mount = fuse_wire::MountOptions {
            source: self.source.clone(),
            subtype: "stere".to_owned(),
            allow_other: self.allow_other.unwrap_or(root),
            default_permissions: true,
            read_only: self.read_only,
            no_suid: self.no_suid || !root,
            no_dev: self.no_dev || !root,
            no_exec: self.no_exec,
            no_atime: self.no_atime,
            block_device: self.sync_requests,
            read_ahead_bytes: Some(self.read_ahead_bytes),
        };
        // RECOMMENDED leaves locks to the kernel: no lock costs a round trip.
        let of_all = if self.shared { init::POSIX_LOCKS | init::FLOCK_LOCKS } else { 0 };
        // What other machines are to see does not wait in this one.
        let writeback = if self.writeback_cache && !self.shared { init::WRITEBACK_CACHE } else { 0 };
        let init = InitOptions {
            flags: RECOMMENDED | writeback | of_all,
            max_write_bytes: 1 << 20,
            max_readahead_bytes: self.read_ahead_bytes,
            max_background: 64,
            congestion_threshold: 48,
            time_granularity_ns: 1,
            // Closing lets locks go, which who keeps them has to hear.
            flush_unsupported: !self.shared,
        };
        let transport = TransportOptions {
            choice: self.transport,
            ring_depth: self.ring_depth,
            device_threads: self.device_threads,
            keep_cpus_awake: self.keep_cpus_awake,
            ..TransportOptions::default()
        };
        fuse_wire::Options { mount, init, transport }
    }
}
