use super::*;

#[test]
fn settings_are_in_order_and_each_once() {
    let settings = node_settings("copies=2| compress=zstd:3").unwrap();
    assert_eq!(settings, ["compress=zstd:3", "copies=2"]);
    for wrong in ["", "copies", "copies=", "=2", "copies=2,copies=3", "Copies=2", "a=b c", "a=b;c"] {
        assert_eq!(node_settings(wrong), None, "{wrong:?}");
    }
    let many = |count: usize| (0..count).map(|number| format!("k{number}=1")).collect::<Vec<_>>().join(",");
    assert!(node_settings(&many(NODE_SETTINGS_MAX)).is_some());
    assert!(node_settings(&many(NODE_SETTINGS_MAX + 1)).is_none());
    assert!(node_settings(&format!("a={}", "x".repeat(63))).is_none());
}

#[test]
fn one_setting_is_changed_and_the_others_stay() {
    assert_eq!(with_node_value("", "copies", Some("2")), "copies=2");
    assert_eq!(with_node_value("copies=2", "compress", Some("lz4")), "compress=lz4,copies=2");
    assert_eq!(with_node_value("compress=lz4,copies=2", "copies", Some("3")), "compress=lz4,copies=3");
    assert_eq!(with_node_value("compress=lz4,copies=2", "copies", None), "compress=lz4");
    assert_eq!(with_node_value("copies=2", "copies", None), "");
    assert_eq!(node_value("compress=lz4,copies=2", "copies"), Some("2"));
    assert_eq!(node_value("compress=lz4,copies=2", "cop"), None);
}

#[test]
fn names_of_single_settings_are_known() {
    assert_eq!(node_key(b"user.stere.node.compress"), Some(("compress", false)));
    assert_eq!(node_key(b"user.pvfs.redundancy"), Some(("redundancy", false)));
    assert_eq!(node_key(b"trusted.stere.node.copies"), Some(("copies", true)));
    assert_eq!(node_key(b"user.stere.node"), None);
    assert_eq!(node_key(node_attribute("copies", true).as_bytes()), Some(("copies", true)));
}
