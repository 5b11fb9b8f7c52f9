//! Where a library is, in words: `robot:CHANGER,drive=DRIVE,...`, and how to get there.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use stere_format::CartridgeBlock;

use crate::iscsi::IscsiTransport;
use crate::library::{Library, LibraryOptions, LibraryParts};
use crate::sg::SgTransport;
use crate::simulated::{Configuration, SimulatedLibrary};
use crate::transport::Transport;

/// A changer, its drives, and which cartridges are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `/dev/sgN`, `iscsi://host/target/lun`, `people`, or `simulated:/directory`, which has its drives itself.
    pub changer: String,
    /// In the order of the changer's elements.
    pub drives: Vec<String>,
    pub set: String,
    pub barcodes: String,
    pub block_bytes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{place}' is no tape library: {why}; write robot:CHANGER,drive=DRIVE[,drive=DRIVE...][,set=NAME][,cartridges=BEGINNING]\
     [,block=BYTES], where devices are /dev/sgN or iscsi://host/target/lun; people as CHANGER if people feed the drives; or robot:simulated:/directory"
)]
pub struct PlaceError {
    place: String,
    why: String,
}

const PREFIX: &str = "robot:";
const SIMULATED: &str = "simulated:";
/// In the place of a changer.
const PEOPLE: &str = "people";
/// Whether this names a library.
pub fn is_place(text: &str) -> bool {
    text.starts_with(PREFIX)
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let wrong = |why: &str| PlaceError { place: text.to_owned(), why: why.to_owned() };
        let rest = text.strip_prefix(PREFIX).ok_or_else(|| wrong("it does not begin with robot:"))?;
        let mut parts = rest.split(',');
        let changer = parts.next().unwrap_or_default().to_owned();
        let mut place = Place {
            changer,
            drives: Vec::new(),
            set: "stere".into(),
            barcodes: String::new(),
            block_bytes: LibraryOptions::BLOCK_BYTES,
        };
        let mut has_set = false;
        for part in parts {
            match part.split_once('=') {
                Some(("drive", drive)) => place.drives.push(place.drive(drive)),
                Some(("set", set)) => (place.set, has_set) = (set.to_owned(), true),
                Some(("cartridges", barcodes)) => place.barcodes = barcodes.to_owned(),
                Some(("block", bytes)) => {
                    place.block_bytes = bytes.parse().map_err(|_| wrong("its block is no number of bytes"))?;
                }
                _ => return Err(wrong(&format!("'{part}' is none of its keys"))),
            }
        }
        if place.changer == PEOPLE && !has_set {
            return Err(wrong("people tell cartridges apart by the name of their set; give one, set=NAME"));
        }
        let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if place.set.is_empty() || place.set.len() > CartridgeBlock::SET_BYTES_MAX || !is_word(&place.set) {
            return Err(wrong("a set is a word of at most 63 letters"));
        }
        let blocks = 4096..=CartridgeBlock::UNIT_BYTES_MAX + CartridgeBlock::SIZE as u32;
        if !blocks.contains(&place.block_bytes) {
            return Err(wrong("a block has 4096 to 1048576 bytes"));
        }
        match (place.changer.strip_prefix(SIMULATED), place.drives.len()) {
            (Some(path), 0) if Path::new(path).is_absolute() => Ok(place),
            (Some(_), 0) => Err(wrong("name the whole path of the directory")),
            (Some(_), _) => Err(wrong("a simulated library has its drives itself")),
            (None, 0) => Err(wrong("it has no drive")),
            (None, _) => Ok(place),
        }
    }
}

impl Place {
    /// On the changer's own target a drive may be told by its number alone.
    fn drive(&self, word: &str) -> String {
        match self.changer.rsplit_once('/') {
            Some((target, _)) if target.starts_with("iscsi://") && word.parse::<u8>().is_ok() => {
                format!("{target}/{word}")
            }
            _ => word.to_owned(),
        }
    }

    /// The library there; nothing is asked of it yet. It remembers in `catalogue` what is on which cartridge.
    pub fn open(&self, text: &str, catalogue: Option<PathBuf>, is_read_only: bool) -> Result<Library, String> {
        let mut options = LibraryOptions::new(text.split(',').next().unwrap_or(text));
        (options.set, options.barcodes) = (self.set.clone(), self.barcodes.clone());
        (options.block_bytes, options.catalogue, options.is_read_only) = (self.block_bytes, catalogue, is_read_only);
        let parts = match self.changer.strip_prefix(SIMULATED) {
            Some(directory) => {
                let simulated = SimulatedLibrary::new(Configuration::read(Path::new(directory))?)?;
                let drives = (0..simulated.drives()).map(|number| simulated.drive(number)).collect();
                // People take their own time.
                options.clock = simulated.has_changer().then(|| simulated.clock());
                LibraryParts { changer: simulated.has_changer().then(|| simulated.changer()), drives }
            }
            None => {
                let drives = self.drives.iter().map(|drive| transport(drive)).collect::<Result<_, _>>()?;
                let changer = (self.changer != PEOPLE).then(|| transport(&self.changer)).transpose()?;
                LibraryParts { changer, drives }
            }
        };
        Library::new(parts, options).map_err(|error| error.to_string())
    }
}

fn transport(word: &str) -> Result<Box<dyn Transport>, String> {
    match word.starts_with("iscsi://") {
        true => Ok(Box::new(IscsiTransport::new(word)?)),
        false if word.starts_with("/dev/") => Ok(Box::new(SgTransport::new(Path::new(word)))),
        false => Err(format!("'{word}' is no SCSI device; there are /dev/sgN and iscsi://host/target/lun")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let place: Place = "robot:iscsi://tapes:3260/iqn.x/3,drive=1,drive=2,set=tank,cartridges=TAP".parse().unwrap();
        assert_eq!(place.drives, ["iscsi://tapes:3260/iqn.x/1", "iscsi://tapes:3260/iqn.x/2"]);
        assert_eq!((place.set.as_str(), place.barcodes.as_str(), place.block_bytes), ("tank", "TAP", 262_144));
        let place: Place = "robot:/dev/sg3,drive=/dev/sg1,block=65536".parse().unwrap();
        assert_eq!((place.drives, place.block_bytes), (vec!["/dev/sg1".to_owned()], 65_536));
        assert!("robot:simulated:/a".parse::<Place>().is_ok());
        let place: Place = "robot:people,drive=iscsi://tapes/iqn.x/1,drive=/dev/sg1,set=tank".parse().unwrap();
        assert_eq!((place.changer.as_str(), place.drives.len()), ("people", 2));
        assert!(place.open("robot:people", None, true).is_ok());
        for wrong in [
            "dir:/a",
            "robot:/dev/sg3",
            "robot:people,drive=/dev/sg1",
            "robot:simulated:a",
            "robot:simulated:/a,drive=1",
            "robot:/dev/sg3,drive=/dev/sg1,set=",
            "robot:/dev/sg3,drive=/dev/sg1,block=9",
            "robot:/dev/sg3,colour=red",
        ] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
        let unreachable: Place = "robot:/tmp/x,drive=y".parse().unwrap();
        assert!(unreachable.open("robot:/tmp/x", None, true).is_err());
    }
}
