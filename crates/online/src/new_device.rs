//! A device that is to join a pool, opened and looked at.

use std::path::Path;

use stere_device::{Access, ClassGuess};
use stere_pool::{DeviceClass, Holds, NewDevice, identify};

use stere_control::spec::DeviceSpec;
use stere_machine::devices::open_device;
use stere_machine::error::Result;
use stere_machine::places;

const LABEL_BYTES_MAX: usize = 63;

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
    // Copies are kept apart by it.
    let host =
        Some(places::host_of(&spec.host, &path)).filter(|host| host.len() <= LABEL_BYTES_MAX).unwrap_or_default();
    Ok(NewDevice { path, device, name, class, tags, host, shelf, foreign })
}

/// A device is called like its file, without the extension.
fn short_name(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if stem.len() <= LABEL_BYTES_MAX { stem } else { String::new() }
}
