//! Classes and the schemes they stand for.
//!
//! A class is a small number on media ([`Class::code`]) and a word for people. A [`SchemeWish`] is what a user asked
//! for; [`SchemeWish::scheme`] turns it into units the pool really has, and never asks for more devices than exist.

use crate::checksum::Checksum;
use crate::compression::Compression;
use crate::encryption::Encryption;
use crate::record::RecordSize;
use crate::sync::Sync;

/// A class of files. What it asks for, and how people call it, the pool's [`Classes`](crate::Classes) know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// One copy: what can be made again.
    Scratch,
    /// Survives the loss of one device.
    #[default]
    Normal,
    /// Survives the loss of two devices.
    Precious,
    /// Survives the loss of one device; meant for the tertiary tier.
    Archive,
    /// One that the pool defines, by its code.
    User(u8),
}

impl Class {
    /// The built-in classes, in the order of their codes.
    pub const BUILT_IN: [Class; 4] = [Class::Scratch, Class::Normal, Class::Precious, Class::Archive];
    /// The least code of a class that the pool defines; all above may be one.
    pub const USER_CODE_MIN: u8 = 16;

    /// The number that stands for this class on media; 0 means "none set" there.
    #[inline]
    pub fn code(self) -> u8 {
        match self {
            Class::Scratch => 1,
            Class::Normal => 2,
            Class::Precious => 3,
            Class::Archive => 4,
            Class::User(code) => {
                assert!(code >= Class::USER_CODE_MIN, "a class of a pool has another number than {code}");
                code
            }
        }
    }

    /// The class of a number from media.
    pub fn from_code(code: u8) -> Option<Class> {
        let built_in = Class::BUILT_IN.into_iter().find(|class| class.code() == code);
        built_in.or((code >= Class::USER_CODE_MIN).then_some(Class::User(code)))
    }

    /// As it is spelled where the pool's names are not known: a class that the pool defines by its number.
    pub fn text(self) -> String {
        match self {
            Class::Scratch => "scratch".into(),
            Class::Normal => "normal".into(),
            Class::Precious => "precious".into(),
            Class::Archive => "archive".into(),
            Class::User(code) => format!("#{code}"),
        }
    }

    /// What was spelled so.
    pub fn from_text(text: &str) -> Option<Class> {
        let built_in = Class::BUILT_IN.into_iter().find(|class| class.text() == text);
        let by_number = || text.strip_prefix('#').and_then(crate::number::number);
        built_in.or_else(|| by_number().filter(|code| *code >= Class::USER_CODE_MIN).map(Class::User))
    }

    /// Whether every pool has it.
    pub fn is_built_in(self) -> bool {
        !matches!(self, Class::User(_))
    }
}

/// What redundancy was asked for, before the number of devices is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemeWish {
    /// So many copies on different devices.
    Copies(u8),
    /// `data` + `parity` units; `data` 0 lets the pool choose.
    Parity {
        /// Data units, 0 when the pool chooses.
        data: u8,
        /// Parity units.
        parity: u8,
    },
    /// A place on the scale from 0 to 10: the best that the devices there are can give for it.
    Scale(u8),
}

/// Data units the pool chooses at most when only a number of parity units was asked for.
const CHOSEN_DATA_UNITS_MAX: usize = 8;

impl SchemeWish {
    /// What a place on the scale stands for: more of the devices' room for more losses survived, up to a copy on every device.
    /// Parity where it costs least, copies where they are also faster to read.
    fn of_place(place: u8) -> SchemeWish {
        match place {
            0 => SchemeWish::Copies(1),
            1..=3 => SchemeWish::Parity { data: 0, parity: 1 },
            4..=5 => SchemeWish::Copies(2),
            6..=7 => SchemeWish::Parity { data: 0, parity: 2 },
            8..=9 => SchemeWish::Copies(3),
            _ => SchemeWish::Copies(32),
        }
    }

    /// How many device losses the wish survives when there are devices enough.
    pub fn survives(self) -> u8 {
        match self {
            SchemeWish::Copies(copies) => copies.saturating_sub(1),
            SchemeWish::Parity { parity, .. } => parity,
            SchemeWish::Scale(place) => SchemeWish::of_place(place).survives(),
        }
    }

    /// How many device losses must be survived for the wish to be fulfilled. The scale asks for what there is.
    pub fn survives_at_least(self, devices: usize) -> u8 {
        let least = match self {
            SchemeWish::Scale(_) => self.scheme(devices).1,
            _ => self.survives(),
        };
        assert!(least <= self.survives(), "{self:?} does not survive {least} losses");
        least
    }

    /// Whether the number of devices decides which scheme it is, beyond what there must be.
    pub fn depends_on_devices(self) -> bool {
        matches!(self, SchemeWish::Parity { data: 0, .. } | SchemeWish::Scale(_))
    }

    /// The data and parity units for a pool of `devices`: as asked when they suffice, else fewer data units first,
    /// so that what was promised to be survived is given up last.
    pub fn scheme(self, devices: usize) -> (u8, u8) {
        let devices = devices.clamp(1, 32);
        let (data, parity) = match self {
            SchemeWish::Copies(copies) => (1, usize::from(copies).clamp(1, 32) - 1),
            SchemeWish::Parity { data: 0, parity } => {
                let chosen = devices.saturating_sub(usize::from(parity)).clamp(1, CHOSEN_DATA_UNITS_MAX);
                (chosen, usize::from(parity))
            }
            SchemeWish::Parity { data, parity } => (usize::from(data), usize::from(parity)),
            SchemeWish::Scale(place) => return SchemeWish::of_place(place).scheme(devices),
        };
        let parity = parity.min(devices - 1);
        let data = data.clamp(1, devices - parity);
        assert!(data >= 1 && data + parity <= devices, "a scheme needs no more devices than there are");
        (data as u8, parity as u8)
    }
}

/// To which media content goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierWish {
    /// Nobody said: what is there stays there.
    #[default]
    Unsaid,
    /// To none; what is there comes back.
    Nowhere,
    /// To the one that is usual in the pool.
    Usual,
    /// To these, a set.
    Volumes(u16),
}

/// What a file asks for as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The class whose streams take its data.
    pub class: Class,
    /// Its redundancy.
    pub scheme: SchemeWish,
    /// How its content is compressed.
    pub compression: Compression,
    /// Whether and with which key it is encrypted.
    pub encryption: Encryption,
    /// Its media.
    pub tier: TierWish,
    /// How large its records are at most.
    pub record: RecordSize,
    /// How they are known to be right.
    pub checksum: Checksum,
    /// Number of the place where it lies rather than elsewhere, 0 anywhere.
    pub on: u8,
    /// Number of the place where it lies and nowhere else, 0 anywhere.
    pub only: u8,
    /// Number of what nodes are told of it, 0 nothing.
    pub node: u8,
    /// When changes are durable.
    pub sync: Sync,
}

impl Wish {
    /// The data and parity units in a pool of `devices`.
    pub fn scheme(&self, devices: usize) -> (u8, u8) {
        self.scheme.scheme(devices)
    }
}

#[cfg(test)]
mod tests;
