//! Whether a device answers at all, before anybody waits for it.
//!
//! Where the way to a device is cut (a network block device, a path that is queued for ever) its first read never ends, and whoever
//! makes it cannot be killed. So a thread of its own reads a block first, which its asker leaves behind after a while. Invariant: of one
//! path at most one such thread is under way, and whoever asks meanwhile waits for it too, but not beyond its time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Access, Device, DeviceError, FileDevice, FileOptions};

/// A disk that was asleep, in a rack that starts one after the other, is there by then.
const ANSWER_MAX: Duration = Duration::from_secs(20);
const BLOCK_BYTES: usize = 4096;

struct Asked {
    begun: Instant,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl Asked {
    fn now() -> Arc<Asked> {
        Arc::new(Asked { begun: Instant::now(), has_ended: Mutex::new(false), ended: Condvar::new() })
    }
}

/// Paths that somebody waits for, or did.
static UNDER_WAY: Mutex<BTreeMap<PathBuf, Arc<Asked>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error if the device at this path says nothing. What else is wrong with it is for its opener to find.
pub fn check(path: &Path) -> Result<(), DeviceError> {
    check_within(path, ANSWER_MAX)
}

fn check_within(path: &Path, limit: Duration) -> Result<(), DeviceError> {
    // Without a thread it is asked by its opener.
    let Some(asked) = ask(path) else { return Ok(()) };
    let left = limit.saturating_sub(asked.begun.elapsed());
    let waited = asked.ended.wait_timeout_while(lock(&asked.has_ended), left, |has_ended| !*has_ended);
    let (has_ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if *has_ended { Ok(()) } else { Err(DeviceError::Silent { device: path.display().to_string() }) }
}

/// The thread that asks this path: the one under way, or a new one.
fn ask(path: &Path) -> Option<Arc<Asked>> {
    let mut under_way = lock(&UNDER_WAY);
    if let Some(asked) = under_way.get(path) {
        return Some(asked.clone());
    }
    let asked = Asked::now();
    let (own, at) = (asked.clone(), path.to_owned());
    let asks = move || {
        read_a_block(&at);
        lock(&UNDER_WAY).remove(&at);
        *lock(&own.has_ended) = true;
        own.ended.notify_all();
    };
    std::thread::Builder::new().name("stere-ask".into()).spawn(asks).ok()?;
    under_way.insert(path.to_owned(), asked.clone());
    Some(asked)
}

/// Past the page cache, which would answer for it.
fn read_a_block(path: &Path) {
    let options = FileOptions { access: Access::ReadOnly, writer_threads: 0, ..FileOptions::default() };
    let opened = FileDevice::open(path, &options);
    // What goes wrong is an answer too.
    if let Ok(device) = opened
        && device.size_bytes() >= BLOCK_BYTES as u64
    {
        let _answer = device.read(0, &mut [0; BLOCK_BYTES]);
    }
}

#[cfg(test)]
mod tests;
