//! Areas: what a history takes part in beside the usual. Which, its seed says (`features.rs`), and what an area adds takes the
//! place of other steps: so histories stay as many and as long as they are, whatever areas there come to be.
//!
//! Read next: `policy_lists.rs`, `records.rs`, `followers.rs`, `backups.rs`, `placement.rs`, `accounts.rs`, `medium_faults.rs`, `metadata_offload.rs`, `tiers.rs`, `hanging.rs`, `takeover.rs`, `rivals.rs`.

use crate::operation::{Operation, Path};
use crate::random::Random;

/// Areas of which a seed picks some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// Which versions are kept and which plugins passed is said by rules, classes and locks, too (P-117, P-121).
    Lists,
    /// Files are cut into records of sizes that are asked for (P-118).
    Records,
    /// A plugin is told afterwards of what was done to files (P-128, P-129).
    Followers,
    /// Files are copied to a disk that fails (P-104, P-105, P-106).
    Backups,
    /// On which devices data lies is said by words, and what these mean changes (P-142, P-143).
    Places,
    /// There are several users, and volumes within volumes, whose limits of stored bytes are reached (P-75, P-124).
    Accounts,
    /// Volumes fail in ways that are rare, and one of them may be a tape library (P-62, P-63, P-103).
    Volumes,
    /// Names are put away, by command and by themselves (P-141, P-152).
    Cold,
    /// Files and directories say when changes are durable, and when devices give up what is on volumes (P-300, P-301, P-302).
    Syncs,
    /// Units go down and come back as one, and it matters how segments are used and recalled (P-137 to P-139, P-145, P-146).
    Tiers,
    /// Devices hang, spares take over, several machines want the pool. No seed picks it, for the usual histories have some of that
    /// (P-157, P-160, P-162).
    Failing,
}

impl Area {
    /// The area of this name.
    pub fn parse(name: &str) -> Option<Area> {
        let all = [
            Area::Lists,
            Area::Records,
            Area::Followers,
            Area::Backups,
            Area::Places,
            Area::Accounts,
            Area::Volumes,
            Area::Cold,
            Area::Tiers,
            Area::Syncs,
            Area::Failing,
        ];
        all.into_iter().find(|area| format!("{area:?}").eq_ignore_ascii_case(name))
    }
}

/// A set of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Areas(u16);

impl Areas {
    pub const NONE: Areas = Areas(0);

    pub fn only(area: Area) -> Areas {
        Areas(1 << area as u8)
    }

    pub fn has(self, area: Area) -> bool {
        self.0 & 1 << area as u8 != 0
    }
}

/// Puts what an area does into a history.
type Strew = fn(&mut Vec<Operation>, &mut Random);

const STREWN: [(Area, Strew); 10] = [
    (Area::Lists, crate::policy_lists::strew),
    (Area::Records, crate::records::strew),
    (Area::Followers, crate::followers::strew),
    (Area::Backups, crate::backups::strew),
    (Area::Places, crate::placement::strew),
    (Area::Accounts, crate::accounts::strew),
    (Area::Volumes, crate::medium_faults::strew),
    (Area::Cold, crate::metadata_offload::strew),
    (Area::Tiers, crate::tiers::strew),
    (Area::Syncs, crate::syncs::strew),
];

/// Puts what the areas do into a history, in place of as many steps at its end.
pub fn strew(areas: Areas, operations: &mut Vec<Operation>, random: &mut Random) {
    let length = operations.len();
    for (area, strew) in STREWN {
        if areas.has(area) {
            strew(operations, random);
        }
    }
    // What is proven at the end stays.
    let more = operations.len().saturating_sub(length);
    let from = operations.len() * 2 / 3;
    let mut left = more;
    let mut at = operations.len();
    while left > 0 && at > from {
        at -= 1;
        if operations[at].is_plain() {
            operations.remove(at);
            left -= 1;
        }
    }
}

/// Something that may be there, at the top or below.
pub(crate) fn some_path(random: &mut Random) -> Path {
    let directory = if random.chance(1, 2) { 0 } else { random.below(4) as u8 };
    Path { directory, name: random.below(5) as u8 }
}

/// Where the next one of an area goes.
pub(crate) fn further(at: usize, by: u64, operations: &[Operation], random: &mut Random) -> usize {
    (at + random.below(by) as usize).min(operations.len())
}
