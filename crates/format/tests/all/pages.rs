//! The pages in `docs/format` against the code: tables have no gaps, and end where the structures end.

use std::path::PathBuf;
use stere_format::*;

/// What the tables of a page say: for each, where its last row starts.
fn tables(page: &str) -> Vec<usize> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/format").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("there is no page {}", path.display()));
    let mut ends = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line == "| offset | size | field |") {
        let mut end = 0;
        for line in lines.by_ref().skip(1).take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let number = |cell: &str| cell.parse::<usize>().unwrap_or_else(|_| panic!("no number: {line}"));
            assert_eq!(number(cells[1]), end, "{page} has a gap before: {line}");
            end += number(cells[2]);
        }
        ends.push(end);
    }
    ends
}

#[test]
fn tables_end_where_the_structures_end() {
    let mut checkpoint_fixed = 8 + 8 + 16 + 8 + Counters::SIZE + 16 + 16 + 32 + 8;
    checkpoint_fixed += 1 + NodeReference::SIZE;
    let pages = [
        (
            "account.md",
            vec![
                AccountingValue::SIZE,
                AccountingValue::CHARGED_SIZE,
                AccountingValue::METADATA_SIZE,
                AccountValue::SIZE,
                AccountValue::SOFT_SIZE,
                AccountValue::SOFT_STORED_SIZE,
            ],
        ),
        ("address.md", vec![Address::SIZE, NodeReference::SIZE]),
        ("key.md", vec![Key::SIZE]),
        ("device-layout.md", vec![DeviceLayout::SIZE]),
        ("superblock.md", vec![Superblock::SIZE]),
        ("heartbeat.md", vec![Heartbeat::SIZE]),
        ("log-entry.md", vec![LogEntry::FIXED_BYTES, LogEntry::EXTENT_BYTES]),
        (
            "io-trace.md",
            vec![IoTraceHeader::SIZE, IoTraceBlockHeader::SIZE, IoTraceRecord::SIZE, IoTraceName::FIXED_BYTES],
        ),
        ("owner-beat.md", vec![OwnerBeat::SIZE]),
        ("machine-entry.md", vec![MachineEntry::SIZE, PoolAdmission::SIZE]),
        ("machine-key.md", vec![MachineKeyFile::SIZE]),
        ("chunk-header.md", vec![ChunkHeader::SIZE]),
        ("row.md", vec![RowHeader::SIZE, SummaryEntry::SIZE_MIN]),
        ("journal.md", vec![JournalHeader::SIZE]),
        ("checkpoint.md", vec![checkpoint_fixed]),
        ("node.md", vec![44]),
        ("segment.md", vec![32]),
        ("blob.md", vec![12 + Address::SIZE, 32]),
        ("inode.md", vec![InodeValue::SIZE_MIN]),
        ("dirent.md", vec![12, 14, 4]),
        ("encryption-key.md", vec![16, WrappedKey::SIZE]),
        ("extent.md", vec![ExtentValue::SIZE]),
        ("xattr.md", vec![2]),
        ("scrub.md", vec![ScrubCursor::SIZE]),
        ("damage.md", vec![DamageValue::SIZE]),
        ("request.md", vec![RequestValue::SIZE]),
        (
            "fold.md",
            vec![
                FoldValue::FIXED_BYTES,
                FoldValue::RANGE_BYTES,
                Bundle::FIXED_BYTES,
                Bundle::ENTRY_BYTES,
                NamesUse::SIZE,
            ],
        ),
        (
            "cartridge.md",
            vec![CartridgeBlock::SIZE, CartridgeIndex::FIXED_BYTES, CartridgeIndex::ENTRY_FIXED_BYTES + 1],
        ),
        ("volume.md", vec![VolumeEntry::FIXED_BYTES, TierMarks::SIZE, 2, Successors::ENTRY_BYTES]),
        ("tier.md", vec![TierPolicy::SIZE, HeatPage::FIXED_BYTES, HeatPage::ENTRY_BYTES, VolumePrices::SIZE]),
        // Header and index entry; the code is `crates/stack`, whose tests hold the bytes.
        ("stacked.md", vec![512, 24]),
        ("backup.md", vec![BackupValue::FIXED_BYTES]),
        ("content-digest.md", vec![ContentDigests::FIXED_BYTES]),
        ("find-index.md", vec![FindIndexValue::SIZE]),
        ("named-in.md", vec![NamedInValue::SIZE]),
        ("class.md", vec![ClassValue::FIXED_BYTES, ClassResidency::SIZE, ClassMedia::SIZE]),
        ("plugin.md", vec![PluginRecord::FIXED_BYTES, PluginStack::FIXED_BYTES, 4, FollowValue::FIXED_BYTES]),
        ("watch.md", vec![WatchedValue::SIZE, ProvenanceValue::FIXED_BYTES, AuditValue::FIXED_BYTES]),
        ("junction.md", vec![JunctionValue::FIXED_BYTES]),
        ("rules.md", vec![RulesValue::FIXED_BYTES, RuleLogValue::FIXED_BYTES]),
    ];
    for (page, ends) in pages {
        assert_eq!(tables(page), ends, "{page}");
    }
}
