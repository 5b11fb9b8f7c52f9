//! A device that is to join a pool, opened and looked at.

use std::path::Path;

use stere_device::{Access, ClassGuess};
use stere_pool::{DeviceClass, Holds, NewDevice, identify};

use stere_control::spec::DeviceSpec;
use stere_machine::devices::open_device;
use stere_machine::error::Result;

pub fn new_device(spec: &DeviceSpec) -> Result<NewDevice> {
    let path = spec.path.display().to_string();
    let device = open_device(&spec.path, Access::ReadWrite)?;
    let finding = stere_nbd::probe(&spec.path, &*device)?;
    let class = spec.class.unwrap_or(match finding.class {
        ClassGuess::Ssd => DeviceClass::Ssd,
        ClassGuess::Hdd => DeviceClass::Hdd,
        ClassGuess::Unknown => DeviceClass::Unknown,
    });
    let foreign = (!finding.is_empty()).then(|| match identify(&*device) {
        Holds::Member(identity) => format!("a device of the pool '{}'", identity.superblock.pool_name),
        _ => finding.to_string(),
    });
    let name = if spec.name.is_empty() { short_name(&spec.path) } else { spec.name.clone() };
    let (tags, shelf) = (spec.tags.clone(), spec.shelf.clone());
    let host = if spec.host.is_empty() { host_of(&path) } else { spec.host.clone() };
    Ok(NewDevice { path, device, name, class, tags, host, shelf, foreign })
}

/// The machine that a device is on, if it is another one: copies are kept apart by it.
fn host_of(path: &str) -> String {
    let address = Some(path).filter(|path| stere_nbd::is_address(path));
    let host = address.and_then(|path| stere_nbd::Address::parse(path).ok()).map(|address| address.host);
    host.filter(|host| host.len() <= 63).unwrap_or_default()
}

/// A device is called like its file, without the extension.
fn short_name(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if stem.len() <= 63 { stem } else { String::new() }
}
