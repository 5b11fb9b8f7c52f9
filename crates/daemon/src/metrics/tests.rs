use super::*;

fn report() -> StatusReport {
    let text = r#"{"pool": "ta\"nk", "state": "at_risk", "survives": 0, "devices": [{"name": "a", "path": "/secret/a.img",
        "class": "hdd", "state": "catching up", "size_bytes": 100, "used_bytes": 7, "read_errors": 1, "checksum_errors": 2,
        "id": "", "host": "", "shelf": "", "tags": [], "number": 1, "write_errors": 3, "repaired_blocks": 4,
        "behind_bytes": 5, "unusable_bytes": 0, "why": null}],
        "next": "", "id": "", "mountpoint": "/secret", "read_only": false,
        "classes": [{"class": "normal", "scheme": "1+1", "survives": 1, "total_bytes": 50, "free_bytes": 40}],
        "raw_bytes": 100, "live_raw_bytes": 7, "generation": 1, "journal_bytes": 30, "journal_used_bytes": 3,
        "warnings": [], "recovery": {"clean": true, "groups_replayed": 0, "changes_replayed": 0, "groups_cut": 0,
        "records_repaired": 0, "duration_ms": 1250}, "unreadable_bytes": 0, "lost_files": [], "has_more_lost_files": false,
        "work": {"bytes_left": 9, "chunks_left": 1, "bytes_done": 0, "impossible_chunks": 0, "waiting_bytes": 0,
        "bytes_per_second": 1, "seconds_left": 9, "rebalancing": false},
        "scrub": {"state": "never", "bytes_checked": 0, "bytes_total": 0, "repaired_blocks": 0, "findings": 0,
        "passes": 0, "ended": null, "damages": []}}"#;
    serde_json::from_str(text).unwrap()
}

#[test]
fn every_sample_belongs_to_a_family_and_no_path_is_told() {
    let text = render(&report());
    let mut families = std::collections::BTreeSet::new();
    let mut samples = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap();
            assert!(families.insert(name.to_owned()), "{name} begins twice");
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_once('{').unwrap();
            assert!(name.starts_with("stere_") && families.contains(name), "{line}");
            rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
            samples += 1;
        }
    }
    assert_eq!(samples, 4 + 1 + 11 + 1 + 7 + 2 + 3);
    assert!(!text.contains("secret"), "a path is told");
}

#[test]
fn values_and_labels_are_as_reported() {
    let text = render(&report());
    for line in [
        "stere_pool_state{pool=\"ta\\\"nk\",state=\"at_risk\"} 1",
        "stere_pool_state{pool=\"ta\\\"nk\",state=\"healthy\"} 0",
        "stere_device_state{pool=\"ta\\\"nk\",device=\"a\",state=\"catching up\"} 1",
        "stere_device_checksum_errors_total{pool=\"ta\\\"nk\",device=\"a\"} 2",
        "stere_class_free_bytes{pool=\"ta\\\"nk\",class=\"normal\"} 40",
        "stere_recovery_duration_seconds{pool=\"ta\\\"nk\"} 1.25",
        "stere_repair_left_bytes{pool=\"ta\\\"nk\"} 9",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
    }
}

#[test]
fn addresses_are_local_unless_told_otherwise() {
    for (text, address) in [("9464", "127.0.0.1:9464"), (":1", "127.0.0.1:1"), ("0.0.0.0:80", "0.0.0.0:80")] {
        assert_eq!(parse_address(text).unwrap().to_string(), address);
    }
    assert!(parse_address("[::1]:9464").unwrap().ip().is_loopback());
    for text in ["", "here", "1.2.3.4", "70000"] {
        assert!(parse_address(text).is_none(), "{text}");
    }
}
