//! What a rescue found, copied, and did not find.

use serde::Serialize;

use crate::sink::Verdict;
use crate::sources::DeviceFacts;
use crate::state::State;

/// Bytes of a file that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LostRange {
    pub offset: u64,
    pub length: u64,
}

/// Something that is not whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    pub path: String,
    pub inode: u64,
    pub what: String,
    /// Of a file: left as holes.
    pub ranges: Vec<LostRange>,
}

/// Something that is there but could not be restored just as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub path: String,
    pub what: String,
}

/// How much of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub directories: u64,
    pub files: u64,
    pub symlinks: u64,
    pub specials: u64,
    pub hard_links: u64,
    /// Bytes of content copied.
    pub bytes: u64,
    /// Bytes of content that were named and not found.
    pub bytes_lost: u64,
    pub whole: u64,
    pub older: u64,
    pub damaged: u64,
    /// What was put into `lost+found`.
    pub nameless: u64,
}

/// The outcome of a rescue.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub state: State,
    pub devices: Vec<DeviceFacts>,
    pub counts: Counts,
    /// Parts of the tree that could not be read anywhere.
    pub damaged_nodes: u64,
    pub damage: Vec<Damage>,
    /// What may not be the newest state, where most else is.
    pub older: Vec<String>,
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether anything that was there is certainly not among what was copied.
    pub fn is_data_lost(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Whether everything is certainly as it was.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
            && self.state.is_newest
            && self.damaged_nodes == 0
            && self.counts.older == 0
            && self.counts.nameless == 0
            && self.problems.is_empty()
    }

    /// Whether everything is as the state says that was found, whether there was a newer one or not.
    pub fn is_whole_as_found(&self) -> bool {
        self.damage.is_empty() && self.damaged_nodes == 0 && self.counts.nameless == 0 && self.problems.is_empty()
    }

    pub(crate) fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Whole => self.counts.whole += 1,
            Verdict::Older => self.counts.older += 1,
            Verdict::Damaged => self.counts.damaged += 1,
        }
    }
}

/// A path for people.
pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path).into_owned() }
}
