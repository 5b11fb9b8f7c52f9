//! `stere pool take` and `stere pool move-log`: a pool taken from another machine, and its journal and roots moved elsewhere.
//!
//! Invariant: a log is moved while the pool is closed, so that there is only a root to move; the old place counts until every device
//! that is there says otherwise. Read next: the journal's `tail.rs`.

use std::time::Duration;

use stere_device::Access;
use stere_format::{DeviceIndex, Superblock};
use stere_multihost::Multihost;
use stere_pool::{Assembly, OpenOptions};

use stere_control::connection;
use stere_machine::devices::Target;
use stere_machine::error::{DONE, Error, Result, refused};
use stere_machine::registry::{PoolRecord, Registry};
use stere_machine::{claim, random, shared_log};

const MEMORY_BYTES: usize = 256 << 20;

/// Opens the pool and closes it, so that its last root says that nothing is left to be replayed.
fn open_and_close(registry: &Registry, record: &PoolRecord, mode: Multihost) -> Result<()> {
    let target = Target::Remembered(record.clone());
    let (assembly, guard) = claim::assemble(registry, &target, Access::ReadWrite, Duration::ZERO, None, mode)?;
    let options =
        OpenOptions { memory_bytes: MEMORY_BYTES, epoch_nonce: random::epoch_nonce(), ..OpenOptions::default() };
    let opened = assembly.open(&options, &|_| None)?;
    opened.warnings.iter().for_each(|warning| eprintln!("stere: {warning}"));
    opened.store.close()?;
    drop(opened.store);
    // Before the devices, which its heartbeats may be on.
    drop(guard);
    drop(assembly);
    Ok(())
}

fn refuse_mounted(registry: &Registry, pool: &str) -> Result<()> {
    match connection::about(registry, pool) {
        None => Ok(()),
        Some(about) => refused(format!(
            "the pool '{pool}' is mounted on {0}; unmount it first with `stere umount {0}`",
            about.mountpoint.display()
        )),
    }
}

/// Makes this machine the owner of a pool, whoever has it.
pub fn take(registry: &Registry, pool: &str) -> Result<u8> {
    let record = registry.get(pool)?;
    if record.log.is_none() {
        return refused(format!(
            "the log of the pool '{pool}' is on its devices, so no machine can take it from another; `stere pool move-log` changes that"
        ));
    }
    refuse_mounted(registry, pool)?;
    open_and_close(registry, &record, Multihost::Take)?;
    println!(
        "the pool {pool} is nobody's now; whoever had it writes nothing any more. Mount it: stere mount {pool} MOUNTPOINT"
    );
    Ok(DONE)
}

/// Moves the log of a pool that is mounted nowhere.
pub fn run(registry: &Registry, pool: &str, log: &str) -> Result<u8> {
    let record = registry.get(pool)?;
    refuse_mounted(registry, pool)?;
    let to_devices = log == "devices";
    if !to_devices && !shared_log::is_address(log) {
        return Err(Error::Usage(format!(
            "'{}' is no place of a log; there are postgres://USER@HOST/DATABASE, etcd://HOST:PORT and devices",
            shared_log::without_secrets(log)
        )));
    }
    if record.log.as_deref() == Some(log) || (to_devices && record.log.is_none()) {
        return refused(format!("the log of the pool '{pool}' is there already"));
    }
    open_and_close(registry, &record, Multihost::default())?;
    let assembly = Target::Remembered(record.clone()).assemble(Access::ReadWrite, Duration::ZERO, None)?;
    if let Some(first) = assembly.unexpectedly_missing().first() {
        return refused(format!(
            "device '{}' is not there, and would not hear that the log moved; attach it, or remove it from the pool",
            first.name
        ));
    }
    let root = Superblock { generation: assembly.newest.generation + 1, ..assembly.newest.clone() };
    let root = match to_devices {
        true => Superblock { is_log_shared: false, journal_devices: mirrors(&assembly), ..root },
        false => Superblock { is_log_shared: true, journal_devices: Vec::new(), ..root },
    };
    if !root.clean {
        return refused(format!("the pool '{pool}' could not be closed, so its log stays where it is"));
    }
    if to_devices {
        // Nobody else may take the pool from the log while devices are told.
        if let Some(tail) = &assembly.tail {
            tail.put_root(&Superblock { generation: root.generation, ..assembly.newest.clone() })
                .map_err(|error| Error::Refused(error.to_string()))?;
        }
    } else {
        let tail = shared_log::create(log, root.pool, pool)?;
        tail.put_root(&root).map_err(|error| Error::Refused(error.to_string()))?;
    }
    tell_devices(&assembly, &root)?;
    let (new, old) = (if to_devices { None } else { Some(log.to_owned()) }, record.log.clone());
    registry.save(&PoolRecord { log: new, ..record })?;
    if let Some(old) = old {
        shared_log::remove(&old, root.pool);
    }
    let place = if to_devices { "its devices".to_owned() } else { shared_log::without_secrets(log) };
    println!("the log of pool {pool} is on {place} now; other machines have to import the pool anew");
    Ok(DONE)
}

/// Devices that can mirror the journal, which is empty.
fn mirrors(assembly: &Assembly) -> Vec<DeviceIndex> {
    let is_large = |layout_bytes: u64| layout_bytes >= assembly.newest.journal_bytes;
    let able = assembly.members.iter().filter(|member| is_large(member.superblock.layout.journal_bytes));
    let copies = assembly.newest.checkpoint.first().map_or(1, |part| part.place.scheme.width());
    let count = copies.min(Superblock::JOURNAL_DEVICES_MAX);
    able.take(count).map(|member| member.superblock.device_index).collect()
}

/// Writes the root, in the words of each device, to all of them.
fn tell_devices(assembly: &Assembly, root: &Superblock) -> Result<()> {
    for member in &assembly.members {
        let superblock = Superblock {
            generation: root.generation,
            is_log_shared: root.is_log_shared,
            journal_devices: root.journal_devices.clone(),
            ..assembly.newest_for(member)
        };
        let bytes = superblock.encode().map_err(stere_pool::Error::from)?;
        for offset in superblock.layout.superblock_offsets_of_generation(superblock.generation) {
            member.device.write_bytes(offset, &bytes)?;
        }
        member.device.flush()?;
    }
    Ok(())
}
