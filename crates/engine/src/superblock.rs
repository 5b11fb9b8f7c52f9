//! Writing superblocks: every device present gets the newest one, in the two slots of its generation, then a flush.
//!
//! Invariants: the slots of the generation before are not touched, so a torn write leaves the old superblock whole.

use stere_device::{Buffer, Completion, Device};
use stere_format::Superblock;

use crate::engine::Engine;
use crate::error::Error;

pub(crate) fn store_superblocks(engine: &Engine, superblocks: &[Superblock]) -> Result<(), Error> {
    put_root(engine, superblocks)?;
    let (present, failed) = write_superblocks_of(engine, &superblocks.iter().collect::<Vec<_>>())?;
    check_superblocks(present, &failed)
}

/// The same for those of a new epoch: the mirrors of the journal have theirs before anybody else, so that no device without a
/// journal ever is the only one that knows of an epoch.
pub(crate) fn store_superblocks_of_epoch(engine: &Engine, superblocks: &[Superblock]) -> Result<(), Error> {
    put_root(engine, superblocks)?;
    // Not before the root: an owner whose root came too late takes nothing from anybody.
    engine.log.stripe.devices.set_epoch_of(superblocks);
    let is_mirror = |superblock: &&Superblock| superblock.journal_devices.contains(&superblock.device_index);
    let (mirrors, others): (Vec<_>, Vec<_>) = superblocks.iter().partition(is_mirror);
    let (mut present, mut failed) = write_superblocks_of(engine, &mirrors)?;
    if !others.is_empty() {
        let (more, failed_more) = write_superblocks_of(engine, &others)?;
        present += more;
        failed.extend(failed_more);
    }
    check_superblocks(present, &failed)
}

/// Where the log is shared the root in it is the one that counts: before it is there, nothing may be written that speaks of it.
fn put_root(engine: &Engine, superblocks: &[Superblock]) -> Result<(), Error> {
    let (Some(tail), Some(superblock)) = (&engine.options.tail, superblocks.first()) else { return Ok(()) };
    assert!(superblock.journal_devices.is_empty(), "a journal in a shared log has no mirrors");
    if !superblock.checkpoint.iter().all(|part| engine.log.stripe.slots.is_stored(&part.place)) {
        let why = "no device took the checkpoint; check the devices, then mount the pool again";
        return Err(Error::Pool(why.into()));
    }
    Ok(tail.put_root(superblock)?)
}

/// How many of these devices are there, and which of them did not take theirs.
fn write_superblocks_of(engine: &Engine, superblocks: &[&Superblock]) -> Result<(usize, Vec<u64>), Error> {
    let stripe = &engine.log.stripe;
    let is_of_first = |superblock: &&Superblock| superblock.generation == superblocks[0].generation;
    assert!(superblocks.iter().all(is_of_first), "superblocks are written of one generation");
    let completion = Completion::new();
    let mut present = 0;
    for superblock in superblocks {
        let Some(device) = stripe.devices.get(superblock.device_index) else { continue };
        present += 1;
        let bytes = superblock.encode().map_err(|error| Error::Pool(error.to_string()))?;
        // What could not be read again must not be what the pool depends on.
        Superblock::decode(&bytes).map_err(|error| Error::Pool(error.to_string()))?;
        assert_eq!(bytes.len(), Superblock::SIZE, "a superblock fills its slot");
        let buffer = Buffer::copy_of(&bytes).share();
        for offset in superblock.layout.superblock_offsets_of_generation(superblock.generation) {
            let ticket = completion.ticket(u64::from(superblock.device_index));
            device.submit_write(offset, buffer.clone(), 0..Superblock::SIZE, ticket);
        }
    }
    let mut failed: Vec<u64> = completion.wait().into_iter().map(|(device, _)| device).collect();
    failed.extend(engine.log.flush()?.into_iter().map(u64::from));
    failed.sort_unstable();
    failed.dedup();
    Ok((present, failed))
}

fn check_superblocks(present: usize, failed: &[u64]) -> Result<(), Error> {
    if failed.len() >= present {
        return Err(Error::Pool(
            "no device took the new superblock; check the devices, then mount the pool again".into(),
        ));
    }
    for device in failed {
        tracing::warn!(device, "a device did not take the new superblock");
    }
    Ok(())
}
