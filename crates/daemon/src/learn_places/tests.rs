use super::*;

fn told(id: &str, number: u16, path: &str) -> DeviceReport {
    serde_json::from_value(serde_json::json!({
        "name": format!("n{number}"), "path": path, "class": "hdd", "state": "online", "size_bytes": 0, "used_bytes": 0,
        "read_errors": 0, "checksum_errors": 0, "id": id, "host": "", "shelf": "", "tags": [], "number": number,
        "write_errors": 0, "repaired_blocks": 0, "behind_bytes": 0, "unusable_bytes": 0, "why": null,
    }))
    .unwrap()
}

fn record(devices: &[(&str, u16, &str)]) -> PoolRecord {
    let devices: Vec<_> = devices
        .iter()
        .map(|(id, index, path)| serde_json::json!({ "id": id, "index": index, "name": format!("n{}", index + 1), "path": path }))
        .collect();
    serde_json::from_value(serde_json::json!({ "name": "lab", "id": "7", "devices": devices })).unwrap()
}

#[test]
fn what_is_unknown_is_learned_and_nothing_else() {
    let mut known = record(&[("a", 0, "nbd://here:1/a"), ("b", 1, "")]);
    let all = [
        told("a", 1, "nbd://elsewhere:1/a"),
        told("b", 2, "stere://n2:7000/b"),
        told("c", 3, "nbd://n3:1/c"),
        told("d", 4, "/dev/sdb"),
        told("e", 5, "nbds://n5:1/e,ca=/etc/ca.pem"),
    ];
    assert!(learn(&mut known, &all));
    let expected = [("a", 0, "nbd://here:1/a"), ("b", 1, "stere://n2:7000/b"), ("c", 2, "nbd://n3:1/c")];
    assert_eq!(known, record(&expected));
    assert!(!learn(&mut known, &all), "there is nothing new the second time");
}

#[test]
fn what_left_the_pool_is_forgotten() {
    let mut known = record(&[("a", 0, "nbd://n1:1/a"), ("b", 1, "nbd://n2:1/b"), ("c", 2, "/dev/sdc")]);
    assert!(!learn(&mut known, &[]), "an answer without devices tells nothing");
    assert!(learn(&mut known, &[told("a", 1, "nbd://n1:1/a"), told("c", 3, "/dev/sdd")]));
    assert_eq!(known, record(&[("a", 0, "nbd://n1:1/a"), ("c", 2, "/dev/sdc")]));
}
