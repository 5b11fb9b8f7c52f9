//! Entries come back as they were, and what no version wrote is refused.

use super::*;
use crate::{DeviceId, DeviceLayout};

fn entries() -> Vec<LogEntry> {
    let layout = DeviceLayout::for_size(64 << 20, 1 << 20).expect("64 MiB are enough");
    let superblock = Box::new(Superblock::first(PoolId([1; 16]), DeviceId([2; 16]), 0, layout));
    let granted = extents_of([(1, 7), (0, 3), (0, 4), (1, 9), (0, 4)]);
    assert_eq!(granted.len(), 3, "{granted:?}");
    let records = [
        LogRecord::Root { superblock: superblock.clone(), granted: granted.clone(), held: Vec::new() },
        LogRecord::Root {
            superblock,
            granted: granted.clone(),
            held: groups(&[(7, &granted), (0, &[]), (7, &granted)]),
        },
        LogRecord::Grants(granted),
        LogRecord::Journal(vec![9; 4096]),
    ];
    records.into_iter().map(|record| LogEntry { pool: PoolId([1; 16]), owner: [3; 16], record }).collect()
}

fn groups(groups: &[(u32, &[SlotExtent])]) -> Vec<HeldSlots> {
    let group = |(remaining_ms, extents): &(u32, &[SlotExtent])| HeldSlots {
        remaining_ms: *remaining_ms,
        extents: extents.to_vec(),
    };
    groups.iter().map(group).collect()
}

#[test]
fn entries_come_back_as_they_were() {
    for entry in entries() {
        assert_eq!(LogEntry::decode(&entry.encode().expect("it fits")).expect("it was encoded"), entry);
    }
}

#[test]
fn every_changed_bit_is_noticed() {
    for entry in entries() {
        let bytes = entry.encode().expect("it fits");
        for at in (0..bytes.len()).step_by(7) {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(LogEntry::decode(&changed).is_err(), "byte {at}");
        }
        assert!(LogEntry::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(LogEntry::decode(&[]).is_err());
    }
}

#[test]
fn extents_that_touch_or_fall_are_refused() {
    let extent = |first, count| SlotExtent { device: 0, first, count };
    for extents in [vec![extent(3, 1), extent(4, 1)], vec![extent(4, 1), extent(3, 1)], vec![extent(u32::MAX, 2)]] {
        let entry = LogEntry { pool: PoolId([1; 16]), owner: [3; 16], record: LogRecord::Grants(extents) };
        assert!(LogEntry::decode(&entry.encode().expect("it fits")).is_err());
    }
}

#[test]
fn a_root_has_few_groups_of_held_slots() {
    let LogEntry { record: LogRecord::Root { superblock, .. }, .. } = entries().remove(0) else { return };
    let encoded = |count: usize| {
        let (superblock, held) = (superblock.clone(), groups(&vec![(1, &[][..]); count]));
        let record = LogRecord::Root { superblock, granted: Vec::new(), held };
        LogEntry { pool: PoolId([1; 16]), owner: [3; 16], record }.encode()
    };
    assert!(encoded(LogEntry::HELD_GROUPS_MAX).is_ok());
    assert!(encoded(LogEntry::HELD_GROUPS_MAX + 1).is_err());
}
