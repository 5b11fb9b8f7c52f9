//! `stere device resize`: all of a device that has grown is used.
//!
//! The superblock copies behind move to the new end; slots lie where they were. A mounted pool lets go of the device for a moment and takes
//! it back in its new size, as any device that was away (`grow.rs` of the crate `online`).

use std::time::Duration;

use stere_device::Access;
use stere_multihost::Multihost;
use stere_pool::OpenOptions;

use crate::arguments::device::How;
use crate::change::{change, confirm};
use stere_control::change::Change;
use stere_control::connection;
use stere_machine::devices::{Target, record_of};
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::random::epoch_nonce;
use stere_machine::registry::Registry;
use stere_machine::{claim, size};

const MEMORY_BYTES: usize = 256 << 20;

pub fn run(registry: &Registry, pool: &str, word: &str, size: Option<&str>, how: How) -> Result<u8> {
    if let Some(size) = size {
        return shrink(registry, pool, word, size, how);
    }
    if connection::about(registry, pool).is_some() {
        let warning = format!("device {word} will be used to its end");
        let resize = Change::Resize { device: word.to_owned(), size_bytes: None };
        return change(registry, pool, &resize, Some(warning), how);
    }
    let target = Target::parse(registry, &[pool.to_owned()])?;
    let (mut assembly, claim) =
        claim::assemble(registry, &target, Access::ReadWrite, Duration::ZERO, None, Multihost::default())?;
    let path_of = |id: &str| registry.path_of(&assembly.newest.pool_name, id);
    let is_meant = |entry: &&stere_format::DeviceEntry| {
        let id = entry.id.to_string();
        entry.name == word || id == word || path_of(&id).is_some_and(|path| path == word)
    };
    let Some(entry) = assembly.entries.iter().find(is_meant).cloned() else {
        let names: Vec<&str> = assembly.entries.iter().map(|entry| entry.name.as_str()).collect();
        return refused(format!("the pool '{pool}' has no device '{word}'; it has {}", names.join(", ")));
    };
    let Some((before, after)) = assembly.grow(entry.index) else {
        return refused(format!(
            "device '{}' is not larger than the pool knows ({}), or not there; make it larger first",
            entry.name,
            size::show(entry.size_bytes)
        ));
    };
    println!("device {} grows from {} to {}", entry.name, size::show(before), size::show(after));
    if how.dry_run {
        return Ok(DONE);
    }
    confirm(&format!("device {} will be used to its end", entry.name), how)?;
    let options = OpenOptions { memory_bytes: MEMORY_BYTES, epoch_nonce: epoch_nonce(), ..OpenOptions::default() };
    let place_of =
        |entry: &stere_format::DeviceEntry| registry.place_of(&assembly.newest.pool_name, &entry.id.to_string());
    let opened = assembly.open(&options, &place_of)?;
    if opened.read_only {
        return refused("the pool can only be read while devices are missing; attach them, then resize");
    }
    opened.store.devices.adopt_device_size(entry.index)?;
    opened.store.close()?;
    drop(claim);
    let old = registry.find(pool)?;
    registry.save(&record_of(&assembly, old.as_ref()))?;
    println!("done");
    Ok(DONE)
}

/// Uses less of a device of a mounted pool; what lies beyond moves in the background.
fn shrink(registry: &Registry, pool: &str, word: &str, size: &str, how: How) -> Result<u8> {
    let size_bytes = size::parse(size).map_err(Error::Usage)?;
    if connection::about(registry, pool).is_none() {
        return refused(format!("a device is made smaller while its pool is mounted; mount '{pool}' first"));
    }
    let warning = format!("what device {word} has beyond {} is moved, and its end with it", size::show(size_bytes));
    change(
        registry,
        pool,
        &Change::Resize { device: word.to_owned(), size_bytes: Some(size_bytes) },
        Some(warning),
        how,
    )
}
