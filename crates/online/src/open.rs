//! Pools that are not mounted, opened by a command: to be read with whatever is there, or to change their devices.

use std::time::{Duration, Instant};

use stere_device::Access;
use stere_multihost::Multihost;
use stere_pool::{Assembly, OpenOptions, Opened};

use crate::running::Running;
use stere_machine::claim;
use stere_machine::devices::Target;
use stere_machine::error::Result;
use stere_machine::random::epoch_nonce;
use stere_machine::registry::Registry;

const MEMORY_BYTES: usize = 256 << 20;

/// Opens a pool that is not mounted, writing nothing, with whatever devices are there.
pub fn open_to_read(registry: &Registry, words: &[String]) -> Result<(Assembly, Opened, Duration)> {
    let target = Target::parse(registry, words)?;
    let assembly = target.assemble(Access::ReadOnly, Duration::ZERO, None)?;
    let options = OpenOptions { memory_bytes: MEMORY_BYTES, read_only: true, ..OpenOptions::default() };
    let start = Instant::now();
    let path_of =
        |entry: &stere_format::DeviceEntry| registry.place_of(&assembly.newest.pool_name, &entry.id.to_string());
    let opened = assembly.open(&options, &path_of)?;
    Ok((assembly, opened, start.elapsed()))
}

/// Memory for changing the devices of a pool that is not mounted.
const CHANGE_MEMORY_BYTES: usize = 512 << 20;

/// Opens a pool that is not mounted, for changing its devices.
pub fn open_here(registry: &Registry, pool: &str, read_only: bool) -> Result<Running> {
    open_claimed(registry, pool, read_only, Multihost::default())
}

/// The same, kept from other machines as `mode` says.
pub fn open_claimed(registry: &Registry, pool: &str, read_only: bool, mode: Multihost) -> Result<Running> {
    let target = Target::parse(registry, &[pool.to_owned()])?;
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let (assembly, claim) = claim::assemble(registry, &target, access, Duration::ZERO, None, mode)?;
    let options = OpenOptions {
        memory_bytes: CHANGE_MEMORY_BYTES,
        read_only,
        epoch_nonce: epoch_nonce(),
        ..OpenOptions::default()
    };
    let place_of =
        |entry: &stere_format::DeviceEntry| registry.place_of(&assembly.newest.pool_name, &entry.id.to_string());
    let opened = assembly.open(&options, &place_of)?;
    claim.wait_for_lease();
    opened.warnings.iter().for_each(|warning| eprintln!("stere: {warning}"));
    Ok(crate::media::take_over(registry, &assembly, Some(claim), opened))
}
