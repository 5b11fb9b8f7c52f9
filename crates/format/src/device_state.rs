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
}

impl DeviceState {
    pub const ALL: [DeviceState; 5] =
        [DeviceState::Active, DeviceState::Leaving, DeviceState::Spare, DeviceState::Offline, DeviceState::Failed];

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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceState;

    #[test]
    fn numbers_on_media_stay_what_they_are() {
        let codes = DeviceState::ALL.map(DeviceState::code);
        assert_eq!(codes, [0, 1, 2, 3, 4]);
        assert!(DeviceState::ALL.into_iter().all(|state| DeviceState::from_code(state.code()) == Some(state)));
        assert_eq!(DeviceState::from_code(5), None);
    }
}
