//! A device of which less is to be used, in an open pool: what lies beyond its new end moves first, then the end moves.
//!
//! Asked for once, it is done by the thread that repairs; a daemon that ends meanwhile leaves the device as it was. An image file is cut
//! off at the new end, a block device keeps its size and can be made smaller afterwards. Invariant: nothing is cut off before the
//! superblocks that tell the new end are durable. Read next: the engine's `resize.rs`.

use std::path::Path;

use stere_format::{DeviceEntry, DeviceIndex, DeviceLayout};
use stere_machine::error::{Error, Result, refused};
use stere_machine::size;

use crate::grow::{foretold, in_use};
use crate::outcome::Outcome;
use crate::running::{Running, lock};

/// Begins to use no more than so many bytes of a device.
pub(crate) fn shrink(running: &Running, word: &str, size_bytes: u64, dry_run: bool) -> Result<Outcome> {
    let (entry, _, superblock) = in_use(running, word)?;
    let now = superblock.layout;
    let Some(layout) = now.shrunk(size_bytes) else {
        return refused(format!(
            "device '{}' of {} cannot be made {}: that is not less by a chunk at least, or less than a device needs",
            entry.name,
            size::show(now.size_bytes),
            size::show(size_bytes)
        ));
    };
    // What was removed just now is free after the next checkpoints.
    for _ in 0..if running.read_only { 0 } else { 2 } {
        running.store.checkpoint()?;
    }
    let beyond = chunks_beyond(running, entry.index, &layout);
    check_room(running, &entry, &layout)?;
    let said = format!(
        "device {} is to be {} instead of {}",
        entry.name,
        size::show(layout.size_bytes),
        size::show(now.size_bytes)
    );
    if dry_run {
        return foretold(running, &entry, said, beyond * running.chunk_bytes);
    }
    running.store.devices.bound_device(entry.index, layout)?;
    lock(&running.shrinking).insert(entry.index, layout);
    Ok(Outcome::Done(format!(
        "{said}: {beyond} chunks move first (`stere status {}` tells how far it is)",
        running.pool
    )))
}

fn chunks_beyond(running: &Running, index: DeviceIndex, layout: &DeviceLayout) -> u64 {
    let segments = running.store.segments().all();
    let is_beyond = |place: &stere_format::ChunkPlace| place.device == index && place.slot >= layout.slot_count;
    segments.iter().map(|segment| segment.chunks().iter().filter(|place| is_beyond(place)).count() as u64).sum()
}

/// Refuses what would find no room, here or on other devices.
fn check_room(running: &Running, entry: &DeviceEntry, layout: &DeviceLayout) -> Result<()> {
    let usage = running.store.devices.device_usage(entry.index)?;
    let free_of = |other: &DeviceEntry| running.store.devices.device_usage(other.index).map_or(0, |usage| usage.free);
    let others = running.store.device_entries();
    let elsewhere: u32 = others.iter().filter(|other| other.index != entry.index).map(free_of).sum();
    let over = usage.chunks.saturating_sub(u64::from(layout.slot_count));
    if over > u64::from(elsewhere) {
        return refused(format!(
            "device '{}' cannot be made {}: it holds {} and the other devices have room for {}; delete files, or add a device",
            entry.name,
            size::show(layout.size_bytes),
            size::show(usage.chunks * running.chunk_bytes),
            size::show(u64::from(elsewhere) * running.chunk_bytes)
        ));
    }
    Ok(())
}

/// Whether some device is on its way to be smaller.
pub(crate) fn is_any(running: &Running) -> bool {
    !lock(&running.shrinking).is_empty()
}

/// Moves the end of devices beyond which nothing lies any more.
pub fn finish(running: &Running) {
    let all = lock(&running.shrinking).clone();
    for (index, layout) in all {
        let Some(attached) = running.attached(index) else { continue };
        // It was away meanwhile, and came back in its old size.
        let usage = running.store.devices.device_usage(index);
        if usage.is_ok_and(|usage| usage.slot_count != layout.slot_count) {
            if let Err(error) = running.store.devices.bound_device(index, layout) {
                tracing::warn!(device = index, %error, "a device cannot be made smaller now");
            }
            running.mending.wake();
            continue;
        }
        if chunks_beyond(running, index, &layout) > 0 {
            continue;
        }
        let outcome = match running.store.devices.slots_beyond(index) {
            0 => end_at(running, index, layout, &attached.path),
            // Slots that chunks have left are free after the next checkpoints.
            _ => running.store.checkpoint().map_err(Into::into),
        };
        if let Err(error) = outcome {
            tracing::warn!(device = index, %error, "a device cannot be made smaller now");
        }
    }
}

fn end_at(running: &Running, index: DeviceIndex, layout: DeviceLayout, path: &str) -> Result<()> {
    let entries = running.store.device_entries();
    let Some(entry) = entries.iter().find(|entry| entry.index == index) else { return Ok(()) };
    running.store.devices.use_less(index, layout, Running::class_of(entry).read_cost())?;
    lock(&running.shrinking).remove(&index);
    running.remember();
    tracing::info!(device = %entry.name, size_bytes = layout.size_bytes, "a device is smaller now");
    cut_off(Path::new(path), layout.size_bytes)
}

/// Gives the room behind the new end of an image file back.
fn cut_off(path: &Path, size_bytes: u64) -> Result<()> {
    let cut = || {
        let metadata = std::fs::metadata(path)?;
        // What is no file here is made smaller by whoever made it.
        if metadata.is_file() && metadata.len() > size_bytes {
            std::fs::OpenOptions::new().write(true).open(path)?.set_len(size_bytes)?;
        }
        Ok(())
    };
    cut().map_err(|source| Error::Io { action: "cut off", path: path.into(), source })
}
