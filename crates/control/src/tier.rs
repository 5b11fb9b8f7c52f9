//! What is asked about media and what lies there. The answers are in `tier/report.rs`.

pub mod costs;
pub mod policy;
pub mod report;

use serde::{Deserialize, Serialize};

/// What is asked of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Tell,
    /// End segments that are not full, so that everything gets to its volumes.
    Push,
    /// Where the content below this inode is.
    Survey(u64),
    /// Give up what is on devices beside the volumes' copies.
    Release(u64),
    /// Put the names away of what was released.
    PutAway(u64),
    /// Bring back.
    Stage(u64),
    /// Bring back no more, and copy out no more if that is asked for.
    Cancel(u64, bool),
    /// Keep on devices, or no longer.
    Pin(u64, bool),
    /// When and in which order files are released by themselves, from now on.
    Policy(policy::Change),
    /// What bringing back what is below this inode would cost; or sending it down to these volumes.
    Costs(u64, Option<String>),
    /// What a volume costs, from now on if anything is given.
    Price(String, costs::Change),
    /// Compare a volume with the pool; `reads` every object.
    Verify {
        volume: String,
        reads: bool,
    },
    /// Copy all that is on a volume to another one, and let the volume go.
    Retire {
        volume: String,
        to: Option<String>,
        dry_run: bool,
    },
    /// Empty some objects of a volume, or of all, of which at most so many percent are alive.
    Repack {
        volume: Option<String>,
        below: u8,
    },
}
