//! Keeps idle CPUs from sleeping deeply while requests come thick and fast.
//!
//! A request and its answer are two wake-ups. When program and server are on different CPUs, each wakes a CPU that has
//! just gone idle, and leaving an idle state costs tens of microseconds (in a virtual machine a trip through the
//! hypervisor): several times what the request itself costs. The kernel's interface for this is `/dev/cpu_dma_latency`:
//! while a process asks for a latency of zero, idle CPUs poll. They still run whatever is ready, but draw power, so it
//! is asked for only in bursts and given back as soon as one ends.
//!
//! Invariants: nothing is asked for without requests; a process that may not open the device does without.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

#[cfg(test)]
mod tests;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// So many requests ...
const BURST_REQUESTS: u64 = 64;
/// ... within this time are a burst.
const BURST_TIME: Duration = Duration::from_millis(100);
/// How often the end of a burst is looked for, and how few requests in that time are its end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const END_REQUESTS: u64 = BURST_REQUESTS / 2;
/// Latencies in microseconds as the kernel takes them: none at all, and its own default, which asks for nothing.
const LATENCY_US_NONE: i32 = 0;
const LATENCY_US_ANY: i32 = 2_000_000_000;

#[derive(Debug)]
struct Burst {
    requests: AtomicU64,
    /// When the last `BURST_REQUESTS` began.
    began: Mutex<Instant>,
    is_on: AtomicBool,
    stopped: AtomicBool,
}

/// Counts requests, and asks for awake CPUs in bursts.
#[derive(Debug)]
pub struct Awake {
    /// None where the device may not be opened.
    watch: Option<(Arc<Burst>, JoinHandle<()>)>,
}

impl Awake {
    /// With nothing wanted it only counts.
    #[must_use]
    pub fn new(is_wanted: bool) -> Self {
        if is_wanted { Self::with_device(Path::new(DEVICE)) } else { Self { watch: None } }
    }

    fn with_device(path: &Path) -> Self {
        let device = match OpenOptions::new().write(true).open(path) {
            Ok(device) => device,
            Err(error) => {
                tracing::debug!(%error, "idle CPUs cannot be kept awake");
                return Self { watch: None };
            }
        };
        let burst = Arc::new(Burst {
            requests: AtomicU64::new(0),
            began: Mutex::new(Instant::now()),
            is_on: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        let watched = Arc::clone(&burst);
        let thread = std::thread::Builder::new().name("fuse-awake".to_owned()).spawn(move || watched.watch(device));
        Self { watch: thread.ok().map(|thread| (burst, thread)) }
    }

    /// A request came in.
    pub fn count(&self) {
        let Some((burst, thread)) = &self.watch else { return };
        let before = burst.requests.fetch_add(1, Ordering::Relaxed);
        if before % BURST_REQUESTS == BURST_REQUESTS - 1 && !burst.is_on.load(Ordering::Relaxed) {
            let now = Instant::now();
            let began = std::mem::replace(&mut *burst.began.lock(), now);
            if now.duration_since(began) < BURST_TIME {
                burst.is_on.store(true, Ordering::Release);
                thread.thread().unpark();
            }
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some((burst, thread)) = self.watch.take() {
            burst.stopped.store(true, Ordering::Release);
            thread.thread().unpark();
            // Its only end is a return.
            drop(thread.join());
        }
    }
}

impl Burst {
    fn watch(&self, mut device: File) {
        while !self.stopped.load(Ordering::Acquire) {
            if !self.is_on.load(Ordering::Acquire) {
                std::thread::park();
                continue;
            }
            ask(&mut device, LATENCY_US_NONE);
            let mut seen = self.requests.load(Ordering::Relaxed);
            loop {
                std::thread::park_timeout(LOOK_EVERY);
                let now = self.requests.load(Ordering::Relaxed);
                if now - seen < END_REQUESTS || self.stopped.load(Ordering::Acquire) {
                    break;
                }
                seen = now;
            }
            ask(&mut device, LATENCY_US_ANY);
            self.is_on.store(false, Ordering::Release);
        }
    }
}

fn ask(device: &mut File, latency_us: i32) {
    // The device takes a number anywhere; a file that stands in for it keeps only the last.
    let asked = device.write_all(&latency_us.to_ne_bytes()).and_then(|()| match device.seek(SeekFrom::Start(0)) {
        Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => Ok(0),
        other => other,
    });
    if let Err(error) = asked {
        tracing::debug!(%error, latency_us, "the latency of idle CPUs cannot be set");
    }
}
