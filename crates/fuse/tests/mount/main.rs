//! Real mounts of pools in memory, real system calls, over both transports. Needs root and /dev/fuse; says so loudly
//! when it has not.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod content;
mod durability;
mod names;
mod properties;
mod remount;
mod sharing;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stere_device::{Device, MemoryDevice};
use stere_fuse::{BlockDevice, MountOptions, TransportChoice, Unmount};
use support::Mounted;

const DEVICE_BYTES: u64 = 1 << 30;
const CHUNK_BYTES: u32 = 4 << 20;
const MEMORY_BYTES: usize = 128 << 20;
/// A test that hangs in the kernel would hang for ever: its mount is broken after this time.
const WATCHDOG: Duration = Duration::from_secs(600);

/// The transports this machine lets us test.
fn transports(test: &str) -> Vec<TransportChoice> {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || !Path::new("/dev/fuse").exists() {
        say(&format!("SKIPPED {test}: it needs root and /dev/fuse"));
        return Vec::new();
    }
    let has_io_uring = Path::new("/sys/module/fuse/parameters/enable_uring").exists();
    if !has_io_uring {
        say(&format!("SKIPPED {test} over io_uring: this kernel has no FUSE over io_uring"));
        return vec![TransportChoice::Device];
    }
    vec![TransportChoice::IoUring, TransportChoice::Device]
}

/// Past the test harness, which swallows what passing tests print.
fn say(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::with_volatile_cache(DEVICE_BYTES))
}

fn options(transport: TransportChoice) -> MountOptions {
    MountOptions { transport, sync_requests: BlockDevice::Required, ..MountOptions::default() }
}

fn mount_on(devices: &[Arc<MemoryDevice>], options: &MountOptions) -> Mounted {
    let devices: Vec<Arc<dyn Device>> = devices.iter().map(|device| Arc::clone(device) as _).collect();
    watched(support::mount(support::new_pool(&devices, CHUNK_BYTES, MEMORY_BYTES), None, options))
}

fn watched(mounted: Mounted) -> Mounted {
    let unmounter = mounted.session.unmounter().expect("it is mounted");
    let counter = Arc::downgrade(&mounted.filesystem);
    std::thread::spawn(move || {
        std::thread::sleep(WATCHDOG);
        if counter.strong_count() > 0 {
            say(&format!("the watchdog breaks {}", unmounter.mountpoint().display()));
            drop(unmounter.unmount(Unmount::Force));
        }
    });
    mounted
}

/// Runs a test on a new pool over each transport, and then unmounts, for which nothing may be left open.
fn on_both(test: &str, run: impl Fn(&Mounted, &Path)) {
    for transport in transports(test) {
        let mounted = mount_on(&[memory()], &options(transport));
        assert_eq!(mounted.session.over_io_uring(), transport == TransportChoice::IoUring);
        assert!(mounted.session.syncs_arrive());
        let path = mounted.path.clone();
        run(&mounted, &path);
        finish(mounted);
    }
}

/// Unmounts and checks that the pool is sound.
fn finish(mounted: Mounted) {
    let store = Arc::clone(&mounted.store);
    mounted.unmount();
    let report = store.checker.check(true).expect("the check runs");
    assert!(report.findings.is_empty(), "after the test: {:?}", report.findings);
}

/// Bytes that differ from place to place, so that a misplaced piece shows.
fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
