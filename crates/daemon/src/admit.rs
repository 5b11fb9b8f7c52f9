//! Before a mount of a pool whose log is shared: this machine is registered, and waits where the pool asks before it admits machines.
//!
//! Invariant: a machine that is not admitted neither owns the pool nor mounts it. Read next: `admission.rs` of the crate `machine`.

use std::time::Duration;

use stere_format::MachineState;
use stere_machine::admission::{self, Registered};
use stere_machine::devices::Target;
use stere_machine::error::{Result, refused};
use stere_machine::registry::Registry;

use crate::background::Ready;
use crate::mount_request::MountRequest;
use crate::seek_owner;

/// Between two looks whether this machine is admitted by now.
const LOOK: Duration = Duration::from_millis(500);

/// Registers this machine where the pool's log is shared, and returns when it is admitted. Call before signals are taken: they end it.
pub fn wait_until_admitted(registry: &Registry, request: &MountRequest, ready: &Ready) -> Result<()> {
    let Target::Remembered(record) = &request.target else { return Ok(()) };
    let Some((log, _)) = seek_owner::log_of(&request.target)? else { return Ok(()) };
    let mut found = admission::register(registry, &*log)?;
    let mut is_told = false;
    while let Some(why) = admission::why_not(&record.name, &found.entry) {
        if found.entry.state == MachineState::Refused || request.options.owner_process {
            return refused(why);
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!("{why}");
            ready.tell_waiting(&why);
        }
        std::thread::sleep(LOOK);
        if ready.is_abandoned() {
            return refused("the command that began this mount was interrupted");
        }
        match admission::register(registry, &*log) {
            Ok(now) => found = now,
            // It is asked again as long as it takes.
            Err(error) => tracing::warn!(%error, "the registry of machines cannot be read"),
        }
    }
    assert!(found.entry.state == MachineState::Admitted, "nobody else goes on");
    if is_told {
        tracing::info!("this machine is admitted now");
    }
    Ok(())
}

/// This machine's key, once the registry says that it is admitted.
pub fn admitted(registry: &Registry, log: &dyn stere_shared_log::SharedLog, pool: &str) -> Result<Registered> {
    let found = admission::register(registry, log)?;
    match admission::why_not(pool, &found.entry) {
        Some(why) => refused(why),
        None => Ok(found),
    }
}
