//! A shared log that lost records which it had taken: devices are told, so that nobody opens the pool with that log.
//!
//! Invariant: what is written is a root that no such log has, beside the last one, which stays as it is. Read next: `assemble.rs`, which
//! refuses, and `docs/design/cluster.md`.

use stere_device::{Device, DeviceError};
use stere_format::Superblock;
use stere_store::Store;

use crate::error::Error;
use crate::identify::{Holds, identify};

/// Writes a superblock of the next generation to each device that takes it, past lease and grants. For an owner that found records gone, and
/// not for one that was replaced.
pub fn note_lost_records(store: &Store) {
    for device in store.health.pool_devices() {
        if let Err(error) = note_on(&**device.device()) {
            tracing::warn!(device = device.index(), %error, "a device is not told that the log lost records");
        }
    }
}

fn note_on(device: &dyn Device) -> Result<(), Error> {
    let Holds::Member(identity) = identify(device) else { return Ok(()) };
    let last = identity.superblock;
    let superblock = Superblock { generation: last.generation + 1, clean: false, ..last };
    let bytes = superblock.encode()?;
    assert_eq!(bytes.len(), Superblock::SIZE, "a superblock fills its slot");
    assert!(superblock.is_log_shared, "only a pool whose log is shared can lose it");
    let unwritable = |source: DeviceError| Error::Unwritable { device: device.describe(), source };
    for offset in superblock.layout.superblock_offsets_of_generation(superblock.generation) {
        device.write_bytes(offset, &bytes).map_err(unwritable)?;
    }
    device.flush().map_err(unwritable)
}
