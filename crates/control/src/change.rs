//! Changes of devices: what can be asked for, and the forecast of what it would cost.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::DeviceSpec;
use stere_machine::error::{Result, refused};

/// What can be asked for. Paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    Add {
        devices: Vec<DeviceSpec>,
        spare: bool,
        force: bool,
        rebalance: bool,
    },
    Resize {
        device: String,
        /// So much of it is to be used; none: all of it.
        #[serde(default)]
        size_bytes: Option<u64>,
    },
    Remove {
        device: String,
    },
    Replace {
        old: String,
        new: DeviceSpec,
        force: bool,
    },
    /// The same with a hot spare of the pool.
    ReplaceBySpare {
        old: String,
    },
    Evacuate {
        device: String,
    },
    Offline {
        device: String,
        force: bool,
    },
    Online {
        device: String,
        path: Option<PathBuf>,
        wipe: bool,
    },
    Fail {
        device: String,
    },
    Label {
        device: String,
        settings: Vec<String>,
    },
    /// Every device of the pool that stands on this host is emptied and leaves the pool.
    EvacuateHost {
        host: String,
    },
    /// How segments on devices of this class (none: of all others) are chosen for cleaning; no policy: as usual.
    Cleaner {
        class: Option<String>,
        policy: Option<String>,
    },
    /// On how many devices metadata shall lie; none: on all.
    MetadataCopies {
        copies: Option<u8>,
    },
}

impl Change {
    /// Whether nothing is to be said of it before it is done.
    pub fn is_at_once(&self) -> bool {
        matches!(self, Change::Label { .. } | Change::Cleaner { .. } | Change::MetadataCopies { .. })
    }

    /// Whether there may be more devices for chunks afterwards.
    pub fn gives_devices(&self) -> bool {
        matches!(
            self,
            Change::Add { spare: false, .. }
                | Change::Replace { .. }
                | Change::ReplaceBySpare { .. }
                | Change::Online { .. }
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    pub bytes_to_move: u64,
    pub seconds: u64,
    /// Device losses that files of class normal survive afterwards.
    pub survives_after: u8,
    /// Bytes of files that could not be read afterwards.
    pub lost_bytes: u64,
    /// In words, on one line.
    pub text: String,
    /// Why it cannot end well, and what to do instead.
    pub refusal: Option<String>,
    /// What a person must agree to before.
    #[serde(default)]
    pub asks: Option<String>,
}

impl Forecast {
    pub fn refuse_if_hopeless(&self) -> Result<()> {
        match &self.refusal {
            Some(why) => refused(why.clone()),
            None => Ok(()),
        }
    }
}
