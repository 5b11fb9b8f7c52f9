//! Which features a history has: each has its share of all seeds, and a seed says of each whether it is of that share.
//!
//! Nothing is drawn here, so that histories stay what they are when a feature comes or gets another share. How many of how
//! many seeds in a row a share has is its weight. Read next: `area.rs` (what areas are), `run.rs` (the rest of a history).

use crate::area::{Area, Areas};
use crate::checksums::Wishes;
use crate::encryption::Encrypts;
use crate::pool::PoolConfig;

/// Of so many seeds in a row those that have a feature.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    of: u64,
    seeds: &'static [u64],
}

impl Share {
    pub(crate) fn has(&self, seed: u64) -> bool {
        self.seeds.contains(&(seed % self.of))
    }
}

const fn share(of: u64, seeds: &'static [u64]) -> Share {
    Share { of, seeds }
}

/// Everything is encrypted, or what a policy names.
const ENCRYPTED: Share = share(10, &[3]);
const ENCRYPTED_IN_PART: Share = share(10, &[5, 8]);
/// Backups of pools that encrypt in part, of all histories.
const ENCRYPTED_BACKUPS: Share = share(16, &[10]);
const VERSIONS: Share = share(10, &[5, 6]);
const PLUGINS: Share = share(8, &[6]);
const LIMITS: Share = share(20, &[2, 10, 11, 19]);
/// A pool of its own is filled nearly. It takes as long as some ten histories. Of the areas none has these seeds.
pub(crate) const NEARLY_FULL: Share = share(64, &[14]);
/// All workers of a mount run between the calls, by the table of jobs; in the others the stack's own work, when asked for.
pub(crate) const WORKERS: Share = share(3, &[0]);
/// Blocks have checksums that are asked for; in the second share none at times, where devices do nothing wrong.
const CHECKSUMS: Share = share(8, &[1]);
const CHECKSUMS_OR_NONE: Share = share(8, &[4]);
/// The areas. No seed of those with plugins (6 and 14 of 16) is of any, so that those stay what they are.
const AREAS: [(Area, Share); 10] = [
    (Area::Records, share(16, &[0, 9])),
    (Area::Accounts, share(16, &[1, 15])),
    (Area::Backups, share(16, &[2, 10])),
    (Area::Followers, share(16, &[3, 12])),
    (Area::Places, share(16, &[4, 11])),
    (Area::Lists, share(32, &[5, 7, 13, 21])),
    (Area::Volumes, share(32, &[8])),
    (Area::Cold, share(32, &[24])),
    (Area::Tiers, share(32, &[29])),
    (Area::Syncs, share(32, &[23])),
];

/// The areas of a seed.
pub(crate) fn areas_of(seed: u64) -> Areas {
    let found = AREAS.iter().find(|(_, share)| share.has(seed));
    found.map_or(Areas::NONE, |(area, _)| Areas::only(*area))
}

/// Gives a pool the features of a seed, and what those of its areas need.
pub(crate) fn give(pool: &mut PoolConfig, seed: u64, areas: Areas) {
    pool.areas = areas;
    pool.encrypts = match () {
        () if ENCRYPTED.has(seed) => Encrypts::Everything,
        () if ENCRYPTED_IN_PART.has(seed) => Encrypts::Some,
        () if areas.has(Area::Backups) && ENCRYPTED_BACKUPS.has(seed) => Encrypts::Some,
        () => Encrypts::Nothing,
    };
    pool.passes_plugins = PLUGINS.has(seed) || areas.has(Area::Lists);
    // Versions count as well, which the model does not know; and one shares what its file had, wherever that lies.
    let may_keep = !areas.has(Area::Accounts) && !areas.has(Area::Places);
    pool.keeps_versions = may_keep && (VERSIONS.has(seed) || areas.has(Area::Lists));
    if areas.has(Area::Places) {
        crate::placement::furnish(pool, seed);
    }
}

/// The checksums that a history asks for. Where the CRCs are not read, wrong bytes are: only where devices do nothing wrong.
pub(crate) fn checksums_of(seed: u64, has_faults: bool) -> Wishes {
    match has_faults {
        _ if CHECKSUMS.has(seed) => &[b"blake3", b"crc32c", b"xxh3"],
        false if CHECKSUMS_OR_NONE.has(seed) => &[b"xxh3", b"none", b"blake3"],
        true if CHECKSUMS_OR_NONE.has(seed) => &[b"xxh3", b"blake3", b"crc32c"],
        _ => &[],
    }
}

/// Whether there are limits that a history reaches. Accounts have their own.
pub(crate) fn has_limits(seed: u64, areas: Areas) -> bool {
    LIMITS.has(seed) && !areas.has(Area::Accounts)
}
