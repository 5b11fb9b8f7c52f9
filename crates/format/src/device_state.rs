//! What the pool means to do with a device; kept in the device table. Whether it is attached now is not on media.

/// The byte `state` of a device in the checkpoint record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DeviceState {
    /// Takes new chunks.
    #[default]
    Active,
    /// Is being emptied: read from until it is, never written to.
    Leaving,
    /// Has no chunks until another device fails.
    Spare,
    /// Taken away on purpose, expected back.
    Offline,
    /// Given up: read from if it answers, never written; its chunks are rebuilt elsewhere.
    Failed,
    /// As `Leaving`, and dropped from the table once nothing is left on it.
    Removing,
}

impl DeviceState {
    pub const ALL: [DeviceState; 6] = [
        DeviceState::Active,
        DeviceState::Leaving,
        DeviceState::Spare,
        DeviceState::Offline,
        DeviceState::Failed,
        DeviceState::Removing,
    ];

    /// The number on media.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The state of a number on media; a number of a later version is none.
    pub fn from_code(code: u8) -> Option<DeviceState> {
        DeviceState::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The word people use.
    pub fn word(self) -> &'static str {
        match self {
            DeviceState::Active => "active",
            DeviceState::Leaving => "leaving",
            DeviceState::Spare => "spare",
            DeviceState::Offline => "offline",
            DeviceState::Failed => "failed",
            DeviceState::Removing => "removing",
        }
    }

    /// Whether chunks that are on it shall be moved away.
    pub fn gives_chunks_away(self) -> bool {
        matches!(self, DeviceState::Leaving | DeviceState::Failed | DeviceState::Removing)
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceState;

    #[test]
    fn numbers_on_media_stay_what_they_are() {
        let codes = DeviceState::ALL.map(DeviceState::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5]);
        assert!(DeviceState::ALL.into_iter().all(|state| DeviceState::from_code(state.code()) == Some(state)));
        assert_eq!(DeviceState::from_code(6), None);
    }
}
