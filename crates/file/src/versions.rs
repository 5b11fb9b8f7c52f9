//! What an inode says of versions, and how one that is a version is marked.

use stere_format::{InodePolicy, InodeValue, VersionsPolicy};
use stere_policy::Versions;

/// Flag of versions and of the directories that they are found in: nobody but stere changes them.
pub const OF_VERSIONS: u32 = 1 << 8;
/// Flag of directories with versions below them.
pub const HAS_VERSIONS: u32 = 1 << 9;
const NO: u8 = 1;
const KEPT: u8 = 2;
const VERSION: u8 = 3;

fn stored(value: &InodeValue) -> Option<VersionsPolicy> {
    value.policy?.versions
}

fn put(value: &mut InodeValue, versions: Option<VersionsPolicy>) {
    let policy = InodePolicy { versions, ..value.policy.unwrap_or_default() };
    value.policy = (policy != InodePolicy::default()).then_some(policy);
}

/// What an inode says of versions of files.
pub fn own_versions(value: &InodeValue) -> Option<Versions> {
    wished(stored(value)?)
}

/// What is wished for, if it is a wish.
pub fn wished(versions: VersionsPolicy) -> Option<Versions> {
    match versions {
        VersionsPolicy { kind: NO, .. } => Some(Versions::No),
        VersionsPolicy { kind: KEPT, count, seconds } => {
            Some(Versions::Kept { count: (count > 0).then_some(count), seconds: (seconds > 0).then_some(seconds) })
        }
        _ => None,
    }
}

/// Notes what an inode says of versions of files.
pub fn set_own_versions(value: &mut InodeValue, versions: Option<Versions>) {
    put(value, versions.map(stored_wish));
}

/// A wish as it is stored.
pub fn stored_wish(versions: Versions) -> VersionsPolicy {
    match versions {
        Versions::No => VersionsPolicy { kind: NO, count: 0, seconds: 0 },
        Versions::Kept { count, seconds } => {
            VersionsPolicy { kind: KEPT, count: count.unwrap_or(0), seconds: seconds.unwrap_or(0) }
        }
    }
}

/// Of a version: its place in the order in which versions go.
pub fn version_order(value: &InodeValue) -> Option<u64> {
    stored(value).filter(|versions| versions.kind == VERSION).map(|versions| versions.seconds)
}

/// Makes an inode a version, with a place in the order in which they go.
pub fn set_version_order(value: &mut InodeValue, order: u64) {
    put(value, Some(VersionsPolicy { kind: VERSION, count: 0, seconds: order }));
    assert_eq!(version_order(value), Some(order), "what is noted is read again");
}
