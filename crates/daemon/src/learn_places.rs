//! Where the pool's devices are, learned from its owner: a machine that was told of one node, or knows nothing of one that joined later, finds
//! all of them when it is its turn to own the pool.
//!
//! Devices that left the pool are forgotten, so that nobody waits for a machine that is switched off. Invariant: only places that mean the
//! same on every machine are learned, and none that is known here is changed. Read next: `from_afar.rs`, `crates/machine/src/registry.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stere_control::message::{Answer, Request};
use stere_control::status::DeviceReport;
use stere_machine::error::{Result, refused};
use stere_machine::registry::{DeviceRecord, PoolRecord};

use crate::client_control::ClientControl;
use crate::daemon::spawn;
use crate::from_afar::is_everywhere;

#[cfg(test)]
mod tests;

/// How long a device that joins the pool waits to be known here.
const AGAIN: Duration = Duration::from_secs(30);
/// Between two attempts while no owner has answered.
const AT_FIRST: Duration = Duration::from_secs(1);

/// Asks the owner until the mount ends.
pub fn start(control: &Arc<ClientControl>) -> Result<()> {
    let control = Arc::downgrade(control);
    spawn("places", move || {
        let mut has_answered = false;
        while let Some(control) = control.upgrade() {
            match ask(&control) {
                Ok(()) => has_answered = true,
                Err(error) => tracing::debug!(%error, "the places of devices are not known"),
            }
            drop(control);
            std::thread::sleep(if has_answered { AGAIN } else { AT_FIRST });
        }
    })
}

fn ask(control: &ClientControl) -> Result<()> {
    // An owner on this machine remembers by itself what it uses.
    if control.owns() {
        return Ok(());
    }
    let Answer::Status(report) = control.ask_for(Request::Status)? else {
        return refused("the owner gave an answer that was not asked for");
    };
    let mut record = control.registry.get(&control.about.pool)?;
    if report.id != record.id || !learn(&mut record, &report.devices) {
        return Ok(());
    }
    tracing::info!(devices = record.devices.len(), "the owner told where devices of the pool are");
    control.registry.save(&record)
}

/// Takes what is new and forgets what has left; whether anything was or did.
fn learn(record: &mut PoolRecord, devices: &[DeviceReport]) -> bool {
    let before = record.clone();
    if !devices.is_empty() {
        record.devices.retain(|known| devices.iter().any(|told| told.id == known.id));
    }
    for told in devices.iter().filter(|told| is_everywhere(Path::new(&told.path))) {
        let (path, index) = (PathBuf::from(&told.path), told.number.saturating_sub(1));
        match record.devices.iter_mut().find(|device| device.id == told.id) {
            Some(known) => {
                if known.path.as_os_str().is_empty() {
                    known.path = path;
                }
                known.host.clone_from(&told.host);
            }
            None => {
                let (id, name, host) = (told.id.clone(), told.name.clone(), told.host.clone());
                record.devices.push(DeviceRecord { id, index, name, path, host, serial: None });
            }
        }
    }
    *record != before
}
