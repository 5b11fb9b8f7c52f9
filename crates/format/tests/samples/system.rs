//! Examples of values that the pool has for itself, and of attributes. Read next: `mod.rs`.

use super::*;

/// Values that the pool has for itself, and attributes.
pub fn system_samples() -> Vec<Sample> {
    let xattrs = [(b"user.a".to_vec(), b"value".to_vec()), (b"user.stere.copies".to_vec(), Vec::new())];
    let user = AccountValue {
        bytes: 1 << 41,
        inodes: 77,
        bytes_max: Some(3 << 40),
        inodes_max: Some(0),
        ..Default::default()
    };
    let soft =
        SoftLimits { bytes: Some(1 << 40), grace_seconds: 86_400, bytes_since: 1_800_000_000, ..Default::default() };
    let soft_stored = SoftLimits { stored: Some(1 << 42), stored_since: 1_800_000_000, ..soft };
    let stored = AccountValue { stored: 5 << 40, stored_max: Some(6 << 40), soft: soft_stored, ..user };
    let accounting = AccountingValue { next_volume: 5, counted: 1 << 34, charged: None, metadata: 0 };
    let charged = Some(ChargedTo { inode: 1 << 33, position: 1 << 30 });
    let place = VolumePlace { parent: 3, directory: 1 << 33, is_deleted: false };
    let deleted = Some(VolumePlace { is_deleted: true, ..place });
    vec![
        ("account-user", "account", user.encode()),
        ("account-volume", "account", AccountValue { place: Some(place), bytes_max: None, ..user }.encode()),
        ("account-deleted", "account", AccountValue { place: deleted, ..user }.encode()),
        ("account-soft", "account", AccountValue { soft, ..user }.encode()),
        ("account-stored", "account", stored.encode()),
        ("accounting", "accounting", accounting.encode()),
        ("accounting-charged", "accounting", AccountingValue { charged, ..accounting }.encode()),
        ("accounting-metadata", "accounting", AccountingValue { charged, metadata: 1 << 35, ..accounting }.encode()),
        ("encryption-key", "encryption_key", encryption_key(false).encode()),
        ("encryption-key-removed", "encryption_key", encryption_key(true).encode()),
        ("plugin", "plugin", plugin(false).encode()),
        ("plugin-removed", "plugin", plugin(true).encode()),
        ("plugin-stack", "plugin_stack", plugin_stack().encode()),
        ("follow", "follow", follow().encode()),
        ("fold", "fold", fold().encode()),
        ("fold-bundle", "fold_bundle", fold_bundle().encode()),
        ("names-use", "names_use", names_use().encode()),
        (
            "content-digest",
            "content_digest",
            ContentDigests { sha256: Some([0xa5; 32]), blake3: Some([0x5a; 32]) }.encode(),
        ),
        ("content-map", "content_map", content_map().encode()),
        ("write-offer", "write_offer", write_offer().encode()),
        ("row-grant", "offer_answer", row_grant().encode()),
        (
            "offer-encode",
            "offer_answer",
            OfferAnswer::Encode {
                compression: 2,
                checksum: ChecksumKind::Blake3,
                key: 0,
                stack: 0,
                record_bytes: 65_536,
            }
            .encode(),
        ),
        (
            "offer-encode-plugged",
            "offer_answer",
            OfferAnswer::Encode {
                compression: 2,
                checksum: ChecksumKind::Blake3,
                key: 7,
                stack: 3,
                record_bytes: 65_536,
            }
            .encode(),
        ),
        ("find-index", "find_index", FindIndexValue::Built { next: 1 << 33 }.encode()),
        ("named-in", "named_in", NamedInValue { directory: 1 << 33, sequence: 77 }.encode()),
        ("audit", "audit", audit().encode()),
        ("provenance", "provenance", provenance().encode()),
        ("provenance-names", "provenance", provenance_with_names().encode()),
        (
            "watched",
            "watched",
            WatchedValue { provenance_next: 70_000, audit_next: 4, ..WatchedValue::default() }.encode(),
        ),
        ("rules", "rules", rules().encode()),
        ("rules-empty", "rules", RulesValue { seconds: -1, user: 0, text: String::new() }.encode()),
        ("rule-log", "rule_log", rule_log().encode()),
        ("request", "request", RequestValue { session: *b"sixteen letters.", number: 300, place: 1 << 33 }.encode()),
        ("damage", "damage", DamageValue { segment: 0x1122_3344, start: 4096, end: 0x0001_2000 }.encode()),
        ("scrub", "scrub", scrub().encode()),
        ("successors", "successors", Successors(vec![(0x0102_0304, 7), (9, 1)]).encode()),
        (
            "cleaner",
            "cleaner",
            CleanerChoice { usual: Some(CleanerPolicy::Age), of_class: [None; 5] }.encode().to_vec(),
        ),
        ("tier-marks", "tier_marks", TierMarks { high: 90, low: 80 }.encode().to_vec()),
        (
            "tier-policy",
            "tier_policy",
            TierPolicy { order: ReleaseOrder::Once, exponent_hundredths: 140, cache_bytes: 10 << 30 }.encode(),
        ),
        ("heat", "heat", heat().encode()),
        ("heartbeat", "heartbeat", heartbeat(true).encode()),
        ("log-root", "log_entry", log_entry(0)),
        ("log-grants", "log_entry", log_entry(1)),
        ("log-journal", "log_entry", log_entry(2)),
        ("machine-entry", "machine_entry", machine_entry().encode()),
        ("machine-key", "machine_key", MachineKeyFile { private_key: [0x66; 32] }.encode()),
        ("io-trace-header", "io_trace_header", io_trace_header().encode()),
        ("io-trace-calls", "io_trace_block", io_trace_calls().encode()),
        ("io-trace-names", "io_trace_block", io_trace_names().encode()),
        ("owner-beat", "owner_beat", owner_beat().encode()),
        ("pool-admission", "pool_admission", PoolAdmission(Admission::Ask).encode()),
        ("heartbeat-ended", "heartbeat", heartbeat(false).encode()),
        (
            "volume-prices",
            "volume_prices",
            VolumePrices { thousand_requests: 400, gigabyte_out: 90_000, gigabyte_month: 23_000 }.encode(),
        ),
        (
            "cartridge-label",
            "cartridge_block",
            cartridge_block(0, CartridgeKind::Label, "", b"stere cartridge TAP001L5\n"),
        ),
        ("cartridge-object", "cartridge_block", cartridge_block(0, CartridgeKind::Object, "segments/a", b"the end")),
        (
            "cartridge-label-again",
            "cartridge_block",
            cartridge_block(0x0a0b_0c0d, CartridgeKind::Label, "", b"stere cartridge TAP001L5\n"),
        ),
        (
            "cartridge-object-again",
            "cartridge_block",
            cartridge_block(0x0a0b_0c0d, CartridgeKind::Object, "segments/a", b"the end"),
        ),
        ("cartridge-index", "cartridge_index", cartridge_index().encode()),
        ("catalogue", "catalogue", catalogue()),
        ("volume", "volume", volume(false, "s3://bucket/prefix,endpoint=http://127.0.0.1:7070").encode()),
        ("volume-offline", "volume", volume(true, "dir:/Bücher").encode()),
        ("volume-retiring", "volume", succeeded(Succession::Retiring(1)).encode()),
        ("volume-retired", "volume", succeeded(Succession::Retired(14)).encode()),
        ("volume-label", "volume_label", volume_label().encode()),
        ("xattr-bucket", "xattr", XattrBucket { entries: xattrs.to_vec() }.encode()),
    ]
}
