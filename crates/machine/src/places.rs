//! Media as people name them: `dir:/path`, `s3://bucket`, `dav://host/folder`, `sftp://host/path`, `robot:changer`, opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stere_device::{DirectoryVolume, Volume};

use crate::error::{Error, Result, refused};
use crate::registry::Registry;

/// A tape library that there is not, in a directory.
const SIMULATED: &str = "robot:simulated:";
pub const PLACE_BYTES_MAX: usize = 255;

/// Whether this names a volume, not a device.
pub fn is_place(text: &str) -> bool {
    text.starts_with("dir:") || stere_tertiary::is_place(text) || stere_robot::is_place(text)
}

/// The host that a device stands on: as it is labelled, else as its address says; none for a disk of this machine without a label.
pub fn host_of(label: &str, path: &str) -> String {
    if !label.is_empty() {
        return label.to_owned();
    }
    host_in_address(path).unwrap_or_default()
}

/// The host that a device's address names, if it is on another machine.
pub fn host_in_address(path: &str) -> Option<String> {
    let address = Some(path).filter(|path| stere_nbd::is_address(path))?;
    stere_nbd::Address::parse(address).ok().map(|address| address.host)
}

/// How to reach what is named; the volume itself may be away.
pub fn open_place(place: &str) -> Result<Arc<dyn Volume>> {
    match place.strip_prefix("dir:") {
        Some(path) if Path::new(path).is_absolute() => Ok(Arc::new(DirectoryVolume::new(Path::new(path)))),
        Some(path) => refused(format!("'{path}' does not begin at the root; name the whole path of the directory")),
        None if stere_tertiary::is_place(place) => stere_tertiary::open(place).map_err(Error::Refused),
        None if stere_robot::is_place(place) => open_library(place),
        None => refused(format!(
            "'{place}' is no place of a volume; there are dir:/path, s3://bucket/prefix, dav://host/folder, \
             sftp://user@host/path and robot:CHANGER,drive=DRIVE"
        )),
    }
}

/// A tape library. What is on which cartridge is remembered on this machine, so that not all have to be looked at.
fn open_library(place: &str) -> Result<Arc<dyn Volume>> {
    let library: stere_robot::Place =
        place.parse().map_err(|error: stere_robot::PlaceError| Error::Refused(error.to_string()))?;
    let name = format!("{:08x}-{}", stere_format::crc32c(place.as_bytes()), library.set);
    let catalogue = Registry::open().state().join("robots").join(name);
    match library.open(place, Some(catalogue), false) {
        Ok(library) => Ok(Arc::new(library)),
        Err(why) => refused(why),
    }
}

/// Before the name of the machine whose directory or library a place is, where several mount the pool.
const HOST: &str = ",host=";

/// Whether a place means something else on each machine: a directory, a tape library.
pub fn is_of_machine(place: &str) -> bool {
    place.starts_with("dir:") || stere_robot::is_place(place)
}

/// A place of this machine, as the pool's other machines call it.
pub fn at_host(place: &str, host: &str) -> String {
    assert!(is_of_machine(place) && at_machine(place).is_none(), "{place} is of a machine that is not named yet");
    format!("{place}{HOST}{host}")
}

/// The place as its machine calls it, and the machine, where a place names one.
pub fn at_machine(place: &str) -> Option<(&str, &str)> {
    let named = place.rsplit_once(HOST).filter(|(local, _)| is_of_machine(local));
    named.filter(|(_, host)| !host.is_empty() && !host.contains(['/', ',']))
}

/// The place with a whole path, as it is remembered.
pub fn whole_place(place: &str) -> Result<String> {
    if let Some(path) = place.strip_prefix(SIMULATED) {
        let (path, keys) =
            path.split_once(',').map_or((path, String::new()), |(path, keys)| (path, format!(",{keys}")));
        let path = std::path::absolute(PathBuf::from(path)).map_err(Error::System)?;
        return Ok(format!("{SIMULATED}{}{keys}", path.display()));
    }
    let Some(path) = place.strip_prefix("dir:") else { return Ok(place.to_owned()) };
    let path = std::path::absolute(PathBuf::from(path)).map_err(Error::System)?;
    let place = format!("dir:{}", path.display());
    match place.len() > PLACE_BYTES_MAX {
        true => refused("the path of a medium has at most 250 bytes; mount it at a shorter one"),
        false => Ok(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_machines_name_them() {
        for place in ["dir:/mnt/a,host=b/c", "dir:/mnt/a", "robot:/dev/sg3,drive=/dev/sg1"] {
            assert_eq!(at_machine(place), None, "{place}");
            assert_eq!(at_machine(&at_host(place, "n2.lab")), Some((place, "n2.lab")));
        }
        for place in ["s3://cold,host=n2", "dir:/a,host=", "/dev/sdb,host=n2"] {
            assert_eq!(at_machine(place), None, "{place}");
        }
    }

    #[test]
    fn a_label_goes_before_the_address() {
        assert_eq!(host_of("shed", "nbd://10.0.0.1:10809/disk"), "shed");
        assert_eq!(host_of("", "nbd://10.0.0.1:10809/disk"), "10.0.0.1");
        assert_eq!(host_of("", "stere://n1/disk"), "n1");
        assert_eq!(host_of("", "/dev/sdb"), "");
    }
}
