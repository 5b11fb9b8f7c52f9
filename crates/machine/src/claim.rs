//! A pool's devices, claimed before anything is written to them: no two machines write to one pool.
//!
//! Invariant: what is judged was read after the claim was held. Read next: `crates/multihost`.

use std::time::Duration;

use stere_device::Access;
use stere_multihost::{Guard, Multihost, claimant};
use stere_pool::{Assembly, Candidate, NewDevice};

use crate::devices::Target;
use crate::error::{Result, refused};
use crate::registry::Registry;

/// So often a pool may change hands while it is opened.
const TRIES: usize = 3;

/// Opens the devices and claims them; for reading only nothing is claimed, but a pool in use elsewhere is refused all the same.
pub fn assemble(
    registry: &Registry,
    target: &Target,
    access: Access,
    wait: Duration,
    prefer: Option<&str>,
    mode: Multihost,
) -> Result<(Assembly, Guard)> {
    assemble_while(registry, target, access, (wait, prefer), mode, &mut |_| true)
}

/// The same; `goes_on` hears which devices are waited for and tells whether it is still to be waited.
pub fn assemble_while(
    registry: &Registry,
    target: &Target,
    access: Access,
    (wait, prefer): (Duration, Option<&str>),
    mode: Multihost,
    goes_on: &mut dyn FnMut(&str) -> bool,
) -> Result<(Assembly, Guard)> {
    let mut watched = None;
    for _ in 0..TRIES {
        let assembly = target.assemble_while(access, wait, prefer, goes_on)?;
        let mut told = |host: &str| {
            let pool = &assembly.newest.pool_name;
            let seconds = stere_pool::WATCH_MS / 1000;
            eprintln!(
                "stere: the pool '{pool}' was not closed in order on {host}; watching for {seconds} s whether it is still in use there"
            );
        };
        let is_reader = access == Access::ReadOnly;
        let me = claimant(Some(registry.state()));
        let guard = match watched.take() {
            Some(watched) => Guard::claim_watched(&assembly, me, watched, is_reader)?,
            None => Guard::claim(&assembly, me, mode, is_reader, &mut told)?,
        };
        if !assembly.is_outdated() {
            return Ok((assembly, guard));
        }
        // Whoever takes a pool by force takes it from an owner that goes on putting. Else somebody was faster, and is watched as any owner.
        watched = guard.log().filter(|_| mode == Multihost::Take).map(|log| log.watched().clone());
    }
    refused("the pool was used by another machine while it was opened here; find out who mounts it, then try again")
}

/// Refuses to destroy a device of a pool that another machine uses at this moment. What is no device of a pool has no heartbeat.
pub fn refuse_if_used_elsewhere(new: &NewDevice) -> Result<()> {
    let candidate = Candidate { path: new.path.clone(), device: new.device.clone() };
    let Ok(assembly) = Assembly::new(vec![candidate]) else { return Ok(()) };
    let mut told = |host: &str| {
        let seconds = stere_pool::WATCH_MS / 1000;
        eprintln!(
            "stere: {} was in use on {host} and was not closed in order; watching for {seconds} s whether it still is",
            new.path
        );
    };
    drop(Guard::claim(&assembly, claimant(None), Multihost::Auto, true, &mut told)?);
    Ok(())
}
