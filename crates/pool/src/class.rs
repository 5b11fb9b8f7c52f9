//! Classes of devices: a word for people, a number in the device table.

use stere_stripe::{READ_COST_FAST, READ_COST_SEEKING};

/// What kind of medium a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DeviceClass {
    #[default]
    Unknown,
    Ssd,
    Hdd,
    Object,
    Media,
}

impl DeviceClass {
    const ALL: [DeviceClass; 5] =
        [DeviceClass::Unknown, DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Object, DeviceClass::Media];

    /// The number on media.
    pub fn code(self) -> u8 {
        match self {
            DeviceClass::Unknown => 0,
            DeviceClass::Ssd => 1,
            DeviceClass::Hdd => 2,
            DeviceClass::Object => 3,
            DeviceClass::Media => 4,
        }
    }

    /// The class of a number on media; numbers of a later version are unknown.
    pub fn from_code(code: u8) -> DeviceClass {
        DeviceClass::ALL.into_iter().find(|class| class.code() == code).unwrap_or_default()
    }

    pub fn word(self) -> &'static str {
        stere_format::DEVICE_CLASS_WORDS[usize::from(self.code())]
    }

    pub fn from_word(word: &str) -> Option<DeviceClass> {
        DeviceClass::ALL.into_iter().find(|class| class.word() == word)
    }

    /// How dear a read is, so that copies on fast devices are preferred.
    pub fn read_cost(self) -> u32 {
        match self {
            DeviceClass::Hdd | DeviceClass::Media => READ_COST_SEEKING,
            _ => READ_COST_FAST,
        }
    }
}
