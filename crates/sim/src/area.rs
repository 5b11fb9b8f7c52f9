//! Areas: what a history takes part in beside the usual. Which, its seed says, and what an area adds takes the place of other steps: so
//! histories stay as many and as long as they are, whatever areas there come to be.
//!
//! Read next: `lists.rs`, `records.rs`, `followers.rs`, `backups.rs`, `places.rs`, `accounts.rs`, `trials.rs`, `cold.rs`, `tiers.rs`, `hanging.rs`, `takeover.rs`, `rivals.rs`.

use crate::operation::Operation;
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

    /// Those of a seed. Other choices go by the same number: of the pools that pass plugins (6 and 14) none, so that those stay what they are.
    pub fn of(seed: u64) -> Areas {
        match seed % 16 {
            13 if seed / 16 % 2 == 1 => Areas::only(Area::Tiers),
            5 | 7 | 13 => Areas::only(Area::Lists),
            0 | 9 => Areas::only(Area::Records),
            3 | 12 => Areas::only(Area::Followers),
            2 | 10 => Areas::only(Area::Backups),
            4 | 11 => Areas::only(Area::Places),
            1 | 15 => Areas::only(Area::Accounts),
            8 if seed / 16 % 2 == 0 => Areas::only(Area::Volumes),
            8 => Areas::only(Area::Cold),
            _ => Areas::NONE,
        }
    }

    pub fn only(area: Area) -> Areas {
        Areas(1 << area as u8)
    }

    pub fn has(self, area: Area) -> bool {
        self.0 & 1 << area as u8 != 0
    }
}

/// Puts what the areas do into a history, in place of as many steps at its end.
pub fn strew(areas: Areas, operations: &mut Vec<Operation>, random: &mut Random) {
    let length = operations.len();
    if areas.has(Area::Lists) {
        crate::lists::strew(operations, random);
    }
    if areas.has(Area::Records) {
        crate::records::strew(operations, random);
    }
    if areas.has(Area::Followers) {
        crate::followers::strew(operations, random);
    }
    if areas.has(Area::Backups) {
        crate::backups::strew(operations, random);
    }
    if areas.has(Area::Places) {
        crate::places::strew(operations, random);
    }
    if areas.has(Area::Accounts) {
        crate::accounts::strew(operations, random);
    }
    if areas.has(Area::Volumes) {
        crate::trials::strew(operations, random);
    }
    if areas.has(Area::Cold) {
        crate::cold::strew(operations, random);
    }
    if areas.has(Area::Tiers) {
        crate::tiers::strew(operations, random);
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

/// Where the next one of an area goes.
pub(crate) fn further(at: usize, by: u64, operations: &[Operation], random: &mut Random) -> usize {
    (at + random.below(by) as usize).min(operations.len())
}
