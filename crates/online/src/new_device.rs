//! A device that is to join a pool, opened and looked at.

use std::path::Path;

use stere_device::{Access, ClassGuess};
use stere_pool::{DeviceClass, NewDevice};

use stere_control::spec::DeviceSpec;
use stere_machine::devices::open_device;
use stere_machine::error::Result;

pub fn new_device(spec: &DeviceSpec) -> Result<NewDevice> {
    let path = spec.path.display().to_string();
    let device = open_device(&spec.path, Access::ReadWrite)?;
    let finding = stere_device::probe(&spec.path)?;
    let class = spec.class.unwrap_or(match finding.class {
        ClassGuess::Ssd => DeviceClass::Ssd,
        ClassGuess::Hdd => DeviceClass::Hdd,
        ClassGuess::Unknown => DeviceClass::Unknown,
    });
    let foreign = (!finding.is_empty()).then(|| finding.to_string());
    let name = if spec.name.is_empty() { short_name(&spec.path) } else { spec.name.clone() };
    let (tags, host, shelf) = (spec.tags.clone(), spec.host.clone(), spec.shelf.clone());
    Ok(NewDevice { path, device, name, class, tags, host, shelf, foreign })
}

/// A device is called like its file, without the extension.
fn short_name(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if stem.len() <= 63 { stem } else { String::new() }
}
