//! A device in memory, for tests of every layer above: everything inline, faults on demand, an optional volatile cache
//! whose unflushed writes can be lost (`lose_unflushed`), so that a crash can be played without a simulator.
//!
//! Contents are kept sparsely in 64 KiB pages; a new device reads as zeros.

use crate::completion::Ticket;
use crate::error::{DeviceError, Operation};
use crate::{Device, Piece, Scatter, check_range, length_of};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const PAGE_BYTES: usize = 64 << 10;

/// What a fault hook answers to an operation it wants to spoil.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with an I/O error.
    Error,
    /// A read returns flipped bytes; a write stores flipped bytes.
    Corrupt,
    /// A write says it was done and is not; a flush says it was done and keeps nothing.
    Lie,
}

/// Called for every operation with offset and length.
pub type FaultHook = Box<dyn Fn(Operation, u64, u64) -> Option<Fault> + Send + Sync>;

/// How often a device was used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub discards: u64,
}

struct UnflushedWrite {
    offset: u64,
    before: Vec<u8>,
    after: Vec<u8>,
}

#[derive(Default)]
struct Contents {
    pages: HashMap<u64, Box<[u8]>>,
    /// Writes since the last flush; stays empty without a volatile cache.
    unflushed: Vec<UnflushedWrite>,
}

pub struct MemoryDevice {
    name: String,
    size_bytes: u64,
    block_bytes: u32,
    has_volatile_cache: bool,
    contents: RwLock<Contents>,
    hook: RwLock<Option<FaultHook>>,
    is_offline: AtomicBool,
    has_flush_failed: AtomicBool,
    counters: Mutex<Counters>,
    unique: u64,
    latency_us: AtomicU32,
}

static NEXT_UNIQUE: AtomicU64 = AtomicU64::new(0);

impl MemoryDevice {
    /// A device of zeros whose writes are durable at once.
    pub fn new(size_bytes: u64) -> MemoryDevice {
        MemoryDevice::build(size_bytes, false)
    }

    /// A device that remembers unflushed writes, for `lose_unflushed`.
    pub fn with_volatile_cache(size_bytes: u64) -> MemoryDevice {
        MemoryDevice::build(size_bytes, true)
    }

    fn build(size_bytes: u64, has_volatile_cache: bool) -> MemoryDevice {
        let unique = NEXT_UNIQUE.fetch_add(1, Ordering::Relaxed);
        MemoryDevice {
            name: format!("memory-{unique}"),
            size_bytes,
            block_bytes: 512,
            has_volatile_cache,
            contents: RwLock::default(),
            hook: RwLock::new(None),
            is_offline: AtomicBool::new(false),
            has_flush_failed: AtomicBool::new(false),
            counters: Mutex::default(),
            unique,
            latency_us: AtomicU32::new(0),
        }
    }

    /// Sets or clears the hook that spoils operations.
    pub fn set_fault_hook(&self, hook: Option<FaultHook>) {
        *self.hook.write() = hook;
    }

    /// Takes the device away (every operation fails with `Absent`) or brings it back.
    pub fn set_offline(&self, is_offline: bool) {
        self.is_offline.store(is_offline, Ordering::SeqCst);
    }

    /// What the device says that reads and writes take.
    pub fn set_latency_us(&self, latency_us: u32) {
        self.latency_us.store(latency_us, Ordering::Relaxed);
    }

    pub fn counters(&self) -> Counters {
        *self.counters.lock()
    }

    /// Flips every bit of a range on the medium, unseen by anybody.
    pub fn corrupt(&self, offset: u64, length: u64) {
        let mut bytes = vec![0; length as usize];
        let mut contents = self.contents.write();
        contents.load(offset, &mut bytes);
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        contents.store(offset, &bytes);
    }

    /// Plays a power cut: of the writes since the last flush only those survive for which `keep(index)` is true,
    /// index counting from the oldest. The device stays usable, as if reopened.
    pub fn lose_unflushed(&self, mut keep: impl FnMut(usize) -> bool) {
        let mut contents = self.contents.write();
        let unflushed = std::mem::take(&mut contents.unflushed);
        for write in unflushed.iter().rev() {
            contents.store(write.offset, &write.before);
        }
        for (index, write) in unflushed.iter().enumerate() {
            if keep(index) {
                contents.store(write.offset, &write.after);
            }
        }
        self.has_flush_failed.store(false, Ordering::SeqCst);
    }

    /// How many writes the next flush would make durable.
    pub fn unflushed_count(&self) -> usize {
        self.contents.read().unflushed.len()
    }

    /// An independent device with the same contents (as the last flush and all writes since left them).
    pub fn copy(&self) -> MemoryDevice {
        let copy = MemoryDevice::build(self.size_bytes, self.has_volatile_cache);
        copy.contents.write().pages = self.contents.read().pages.clone();
        copy
    }

    /// An independent device with what a power cut now would leave for sure: nothing written since the last flush.
    pub fn copy_as_flushed(&self) -> MemoryDevice {
        let copy = MemoryDevice::build(self.size_bytes, self.has_volatile_cache);
        let contents = self.contents.read();
        let mut copied = copy.contents.write();
        copied.pages = contents.pages.clone();
        for write in contents.unflushed.iter().rev() {
            copied.store(write.offset, &write.before);
        }
        drop(copied);
        copy
    }

    /// Asks for absence, the hook and the range, in this order.
    fn admit(&self, operation: Operation, offset: u64, length: u64) -> Result<Option<Fault>, DeviceError> {
        if self.is_offline.load(Ordering::SeqCst) {
            return Err(DeviceError::Absent { device: self.name.clone() });
        }
        check_range(&self.name, operation, offset, length, self.size_bytes)?;
        let fault = self.hook.read().as_ref().and_then(|hook| hook(operation, offset, length));
        if fault == Some(Fault::Error) {
            let source = std::io::Error::from_raw_os_error(libc::EIO);
            return Err(DeviceError::io(&self.name, operation, offset, source));
        }
        Ok(fault)
    }

    fn refuse_after_failed_flush(&self) -> Result<(), DeviceError> {
        if self.has_flush_failed.load(Ordering::SeqCst) {
            let reason = "an earlier flush failed".to_owned();
            return Err(DeviceError::FlushFailed { device: self.name.clone(), reason });
        }
        Ok(())
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let length = bytes.len() as u64;
        let block_bytes = u64::from(self.block_bytes);
        if offset % block_bytes != 0 || length % block_bytes != 0 {
            let (device, operation) = (self.name.clone(), Operation::Write);
            return Err(DeviceError::Unaligned { device, operation, offset, length, block_bytes: self.block_bytes });
        }
        self.refuse_after_failed_flush()?;
        let fault = self.admit(Operation::Write, offset, length)?;
        {
            let mut counters = self.counters.lock();
            counters.writes += 1;
            counters.written_bytes += length;
        }
        if fault == Some(Fault::Lie) {
            return Ok(());
        }
        let flipped: Vec<u8>;
        let after = if fault == Some(Fault::Corrupt) {
            flipped = bytes.iter().map(|byte| !byte).collect();
            &flipped[..]
        } else {
            bytes
        };
        let mut contents = self.contents.write();
        if self.has_volatile_cache {
            let mut before = vec![0; after.len()];
            contents.load(offset, &mut before);
            contents.unflushed.push(UnflushedWrite { offset, before, after: after.to_vec() });
        }
        contents.store(offset, after);
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.read_scattered(offset, &mut [Scatter::Into(buffer)])
    }

    /// One operation for the counters and the hook, like a real vectored read.
    fn read_scattered(&self, offset: u64, pieces: &mut [Scatter<'_>]) -> Result<(), DeviceError> {
        let length = pieces.iter().map(Scatter::length).sum::<usize>() as u64;
        let fault = self.admit(Operation::Read, offset, length)?;
        {
            let mut counters = self.counters.lock();
            counters.reads += 1;
            counters.read_bytes += length;
        }
        let contents = self.contents.read();
        let mut at = offset;
        for piece in pieces {
            let length = piece.length() as u64;
            if let Scatter::Into(slice) = piece {
                contents.load(at, slice);
                if fault == Some(Fault::Corrupt) {
                    slice.iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
            at += length;
        }
        Ok(())
    }

    fn submit_write_gathered(&self, offset: u64, pieces: Vec<Piece>, ticket: Ticket) {
        ticket.finish(match &pieces[..] {
            [only] => self.write_now(offset, only.bytes()),
            _ => {
                let mut bytes = Vec::with_capacity(length_of(&pieces));
                pieces.iter().for_each(|piece| bytes.extend_from_slice(piece.bytes()));
                self.write_now(offset, &bytes)
            }
        });
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.refuse_after_failed_flush()?;
        let fault = match self.admit(Operation::Flush, 0, 0) {
            Ok(fault) => fault,
            Err(error) => {
                // An absent device may come back with its cache; one that failed to flush may have dropped it.
                let is_sticky = !matches!(error, DeviceError::Absent { .. });
                self.has_flush_failed.store(is_sticky, Ordering::SeqCst);
                return Err(error);
            }
        };
        self.counters.lock().flushes += 1;
        if fault != Some(Fault::Lie) {
            self.contents.write().unflushed.clear();
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.admit(Operation::Discard, offset, length)?;
        self.counters.lock().discards += 1;
        let mut contents = self.contents.write();
        // Whole pages only, as a real device would round; nothing below may rely on it.
        let first = offset.div_ceil(PAGE_BYTES as u64);
        let end = (offset + length) / PAGE_BYTES as u64;
        if !self.has_volatile_cache {
            (first..end).for_each(|page| drop(contents.pages.remove(&page)));
        }
        Ok(())
    }

    fn latency_us(&self) -> u32 {
        self.latency_us.load(Ordering::Relaxed)
    }

    fn describe(&self) -> String {
        format!("{} ({} bytes in memory)", self.name, self.size_bytes)
    }
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "MemoryDevice({}, {} bytes)", self.unique, self.size_bytes)
    }
}

impl Contents {
    fn load(&self, offset: u64, buffer: &mut [u8]) {
        for (page, within, part) in split(offset, buffer.len()) {
            match self.pages.get(&page) {
                Some(bytes) => buffer[part.clone()].copy_from_slice(&bytes[within..within + part.len()]),
                None => buffer[part].fill(0),
            }
        }
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, part) in split(offset, bytes.len()) {
            let target = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_BYTES].into_boxed_slice());
            target[within..within + part.len()].copy_from_slice(&bytes[part]);
        }
    }
}

/// The pages of a range: (page, offset in the page, range in the buffer).
fn split(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let take = (PAGE_BYTES - within).min(length - done);
        let part = done..done + take;
        done += take;
        Some((at / PAGE_BYTES as u64, within, part))
    })
}

#[cfg(test)]
mod tests;
