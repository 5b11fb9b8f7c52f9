//! Devices on other machines, by NBD (Network Block Device) from user space: `nbd://HOST:PORT/EXPORT`, `nbds://` with TLS, and
//! `stere://HOST:PORT/NAME` on stere nodes, which refuse older owners.
//!
//! What is here: `wire` is the protocol as bytes, without I/O; `address` is how a device is named; `session` makes connections and agrees
//! with a server; `connection` sends requests and sorts the answers; `device` is the `Device` on several connections, with a deadline
//! for every call.
//!
//! Invariants: no call waits longer than its deadline for a node, however it falls silent; a write that failed may still be carried out, but
//! only before the device is used again; what a node acknowledged and had not flushed when a connection broke counts as lost, because
//! the node may have been restarted: the next flush fails.
//!
//! The protocol: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>. Read next: `device.rs`.

mod address;
mod connection;
mod device;
mod error;
mod node;
mod reconnect;
mod replay;
mod session;
pub mod wire;
mod witness;

pub use address::{Address, is_address, is_stere, keys};
pub use device::{NbdDevice, OPEN_TIMEOUT};
pub use error::NbdError;

use std::path::Path;
use std::sync::Arc;

use stere_device::{Device, DeviceError, FileDevice, FileOptions, Finding};

/// Opens what a path leads to: a file, a block device, or a device on another machine, if it answers at all.
pub fn open(path: &Path, options: &FileOptions) -> Result<Arc<dyn Device>, DeviceError> {
    if is_node(path) {
        return Ok(Arc::new(NbdDevice::open(path, options.access)?));
    }
    stere_device::answering::check(path)?;
    Ok(Arc::new(FileDevice::open(path, options)?))
}

/// Makes an export on a stere node, where it is not there. One that is there has to have this size.
pub fn provide(path: &Path, size_bytes: u64) -> Result<(), NbdError> {
    let address = Address::parse(&path.display().to_string())?;
    if !address.is_stere {
        return Err(NbdError::NotProvided);
    }
    let found = session::provide(&address, size_bytes)?.size_bytes;
    match found == size_bytes {
        true => Ok(()),
        false => Err(NbdError::OtherSize { export: address.export, found, wanted: size_bytes }),
    }
}

/// Whether a path is the address of a device on another machine.
pub fn is_node(path: &Path) -> bool {
    path.to_str().is_some_and(is_address)
}

/// What is on a device before a pool is made on it. It is open as `device`.
pub fn probe(path: &Path, device: &dyn Device) -> Result<Finding, DeviceError> {
    match is_node(path) {
        true => stere_device::probe_open(device, stere_device::ClassGuess::Unknown),
        false => stere_device::probe(path),
    }
}
