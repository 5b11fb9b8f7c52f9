//! What an inode says of policy, as the policy layer knows it: set here, decided by rules, locked, and retention.
//!
//! Invariant: what is noted and read again is the same; a part of the policy that says nothing takes no room.
//! Read next: `stere_format::InodePolicy`, `stere_policy::Own`.

use stere_faults::{Bug, is_planted};
use stere_format::{
    ChecksumPolicy, FileKind, InodePolicy, InodeValue, LockedPolicy, PlacesPolicy, RecordPolicy, RetainPolicy,
    RuledMore, RuledPolicy, Site, SwitchesPolicy, SyncPolicy, Timestamp,
};
use stere_policy::{
    Ancestor, Decided, Decision, Effective, Own, ResidencySettings, Resolver, Retain, Retention, Switches,
};

use crate::error::Error;
use crate::keys::Keys;
use crate::named_in::{directories_of, has_several_names};
use crate::versions::{own_versions, stored_wish, wished};

/// What an inode contributes to the policies of what lies below it.
pub(crate) fn says(value: &InodeValue) -> Ancestor {
    let mut locked = own_locks(value);
    if is_planted(Bug::ListLockIgnored) {
        (locked.plugins, locked.versions) = (0, None);
    }
    Ancestor { own: own_policy(value), locked, parent: value.parent }
}

/// The policy that holds for an inode: of one with several names, of each key the strictest of what they would give.
pub(crate) fn effective(
    resolver: &Resolver,
    keys: &impl Keys,
    inode: u64,
    value: &InodeValue,
) -> Result<Effective, Error> {
    let (says_here, decision) = (says(value), rule_decision(value));
    let by_name_in = |parent| {
        let fetch = |number| Ok::<_, Error>(crate::keys::inode_if_any(keys, number)?.map(|value| says(&value)));
        resolver.resolve(inode, &Ancestor { parent, ..says_here }, &decision, fetch)
    };
    let mut effective = by_name_in(value.parent)?;
    if has_several_names(value) {
        let classes = resolver.classes();
        for directory in directories_of(keys, inode, value)?.into_iter().skip(1) {
            effective = effective.or_stricter(by_name_in(directory)?, &classes);
        }
    }
    Ok(effective)
}

/// What an inode says about its policy itself.
pub fn own_policy(value: &InodeValue) -> Own {
    let policy = value.policy.unwrap_or_default();
    let InodePolicy { copies, parity_k, parity_m, class, compression, redundancy, encryption, tiers, .. } = policy;
    let (parity_data, parity, switches) = (parity_k, parity_m, Switches(policy.switches.own));
    let (record, plugins, versions) = (policy.switches.record.own, policy.plugins, own_versions(value));
    let (checksum, sync) = (policy.checksum.own, policy.sync.own);
    let Site { on, only, node } = policy.places.own;
    Own {
        copies,
        parity_data,
        parity,
        class,
        compression,
        redundancy,
        encryption,
        tiers,
        switches,
        record,
        checksum,
        on,
        only,
        node,
        sync,
        plugins,
        versions,
        residency: ResidencySettings::default(),
    }
}

/// What rules decided for an inode.
pub fn rule_decision(value: &InodeValue) -> Decision {
    let InodePolicy { ruled, switches, ruled_more, checksum, places, ruled_tiers: tiers, sync, .. } =
        value.policy.unwrap_or_default();
    let RuledPolicy { copies, parity_k, parity_m, class, compression, redundancy, decided, encryption } = ruled;
    let encryption = u16::from(encryption);
    let (parity_data, parity) = (parity_k, parity_m);
    let decided = Decided::from_bytes([
        decided,
        switches.decided,
        switches.record.decided,
        checksum.decided,
        places.node_decided,
    ]);
    let (record, checksum) = (switches.record.ruled, checksum.ruled);
    let Site { on, only, node } = places.ruled;
    let switches = Switches(switches.ruled);
    let ruled_more = if is_planted(Bug::RuledListForgotten) { RuledMore::default() } else { ruled_more };
    let (plugins, versions) = (ruled_more.plugins, ruled_more.versions.and_then(wished));
    let own = Own {
        copies,
        parity_data,
        parity,
        class,
        compression,
        redundancy,
        encryption,
        tiers,
        switches,
        record,
        checksum,
        on,
        only,
        node,
        sync: sync.ruled,
        plugins,
        versions,
        residency: ResidencySettings::default(),
    };
    Decision { own, decided }
}

/// Where something is said to lie, as inodes and classes note it.
fn site_of(own: &Own) -> Site {
    Site { on: own.on, only: own.only, node: own.node }
}

/// Notes what an inode says about its policy itself.
pub fn set_own_policy(value: &mut InodeValue, own: Own) {
    let Own {
        copies, parity_data: parity_k, parity: parity_m, class, compression, redundancy, encryption, tiers, ..
    } = own;
    let known = InodePolicy { encryption, tiers, ..value.policy.unwrap_or_default() };
    let record = RecordPolicy { own: own.record, ..known.switches.record };
    let switches = SwitchesPolicy { own: own.switches.0, record, ..known.switches };
    let checksum = ChecksumPolicy { own: own.checksum, ..known.checksum };
    let places = PlacesPolicy { own: site_of(&own), ..known.places };
    let sync = SyncPolicy { own: own.sync, ..known.sync };
    let numbers = InodePolicy { copies, parity_k, parity_m, class, compression, redundancy, ..known };
    let policy = InodePolicy { switches, checksum, places, sync, ..numbers };
    value.policy = (policy != InodePolicy::default()).then_some(policy);
}

/// What the administrator locked at an inode.
pub fn own_locks(value: &InodeValue) -> Own {
    let InodePolicy { locked, switches, checksum, locked_more, places, sync, .. } = value.policy.unwrap_or_default();
    let sync = sync.locked;
    let LockedPolicy { copies, parity_k, parity_m, class, compression, redundancy, encryption, tiers } = locked;
    let record = switches.record.locked;
    let (parity_data, parity, switches) = (parity_k, parity_m, Switches(switches.locked));
    let own = Own { copies, parity_data, parity, class, compression, redundancy, encryption, ..Own::default() };
    let (plugins, versions) = (locked_more.plugins, locked_more.versions.and_then(wished));
    let Site { on, only, node } = places.locked;
    Own { tiers, switches, record, checksum: checksum.locked, on, only, node, sync, plugins, versions, ..own }
}

/// Notes what the administrator locked at an inode.
pub fn set_own_locks(value: &mut InodeValue, own: Own) {
    let Own {
        copies, parity_data: parity_k, parity: parity_m, class, compression, redundancy, encryption, tiers, ..
    } = own;
    let locked = LockedPolicy { copies, parity_k, parity_m, class, compression, redundancy, encryption, tiers };
    let known = value.policy.unwrap_or_default();
    let record = RecordPolicy { locked: own.record, ..known.switches.record };
    let switches = SwitchesPolicy { locked: own.switches.0, record, ..known.switches };
    let checksum = ChecksumPolicy { locked: own.checksum, ..known.checksum };
    let locked_more = RuledMore { plugins: own.plugins, versions: own.versions.map(stored_wish) };
    let places = PlacesPolicy { locked: site_of(&own), ..known.places };
    let sync = SyncPolicy { locked: own.sync, ..known.sync };
    let policy = InodePolicy { locked, switches, checksum, locked_more, places, sync, ..known };
    value.policy = (policy != InodePolicy::default()).then_some(policy);
}

/// What an inode says of retention.
pub fn own_retain(value: &InodeValue) -> Option<Retain> {
    let RetainPolicy { kind, after_seconds, seconds } = value.policy?.retain?;
    let retention = match kind {
        2 => Retention::Until(seconds as i64),
        3 => Retention::For(seconds),
        _ => Retention::Nothing,
    };
    Some(Retain { retention, after: after_seconds })
}

/// Notes what an inode says of retention.
pub fn set_own_retain(value: &mut InodeValue, retain: Option<Retain>) {
    let noted = retain;
    let retain = retain.map(|retain| {
        let (kind, seconds) = match retain.retention {
            Retention::Nothing => (1, 0),
            Retention::Until(until) => (2, until as u64),
            Retention::For(seconds) => (3, seconds),
        };
        RetainPolicy { kind, after_seconds: retain.after, seconds }
    });
    let policy = InodePolicy { retain, ..value.policy.unwrap_or_default() };
    value.policy = (policy != InodePolicy::default()).then_some(policy);
    assert_eq!(own_retain(value), noted, "what is noted is read again");
}

/// Refuses to change a file that is retained. Directories only say so of files.
pub fn check_changeable(value: &InodeValue, now: Timestamp) -> Result<(), Error> {
    match own_retain(value).map(|retain| retain.retention) {
        Some(Retention::Until(until)) if value.kind() == Some(FileKind::File) && until > now.seconds => {
            Err(Error::Retained(until))
        }
        _ => Ok(()),
    }
}

/// Notes what rules decided for an inode.
pub fn set_rule_decision(value: &mut InodeValue, decision: Decision) {
    let own = decision.own;
    let Own { copies, parity_data: parity_k, parity: parity_m, class, compression, redundancy, .. } = own;
    let [decided, decided_switches, decided_record, decided_checksum, node_decided] = decision.decided.to_bytes();
    let encryption = u8::try_from(own.encryption).expect("a rule says yes or no, not which key");
    let ruled = RuledPolicy { copies, parity_k, parity_m, class, compression, redundancy, decided, encryption };
    let known = value.policy.unwrap_or_default();
    let record = RecordPolicy { ruled: own.record, decided: decided_record, ..known.switches.record };
    let switches = SwitchesPolicy { ruled: own.switches.0, decided: decided_switches, record, ..known.switches };
    let ruled_more = RuledMore { plugins: own.plugins, versions: own.versions.map(stored_wish) };
    let checksum = ChecksumPolicy { ruled: own.checksum, decided: decided_checksum, ..known.checksum };
    let places = PlacesPolicy { ruled: site_of(&own), node_decided, ..known.places };
    let sync = SyncPolicy { ruled: own.sync, ..known.sync };
    let policy = InodePolicy { ruled, switches, ruled_more, checksum, places, ruled_tiers: own.tiers, sync, ..known };
    value.policy = (policy != InodePolicy::default()).then_some(policy);
}
