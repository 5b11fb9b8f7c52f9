//! Rules are understood as they are written, and refused where they are not (P-67).

use super::*;

#[test]
fn the_first_rule_that_matches_decides() {
    let text = "# sources\n*.c: compress=zstd:7, encrypt=yes; *.h: plugins=delta:2+rotate\nold/**/*.log: compress=lz4\n*.keep:\n*: encrypt=yes";
    let rules = Rules::parse(text).unwrap();
    let way = |name: &str, path: &str| rules.way_of(name.as_bytes(), path.as_bytes()).text();
    assert_eq!(way("a.c", "src/a.c"), "compress=zstd:7,encrypt=yes,plugins=none");
    assert_eq!(way("a.h", "a.h"), "compress=none,encrypt=no,plugins=delta:2+rotate");
    assert_eq!(way("x.log", "old/1/x.log"), "compress=lz4,encrypt=no,plugins=none");
    assert_eq!(way("x.log", "new/x.log"), "compress=none,encrypt=yes,plugins=none");
    assert!(rules.way_of(b"a.keep", b"a.keep").is_plain());
    assert!(rules.needs_path() && !Rules::parse("*.c: compress=lz4").unwrap().needs_path());
    assert!(Rules::default().way_of(b"a.c", b"a.c").is_plain());
    for one in rules.ways() {
        assert_eq!(Way::parse(&one.text()).as_ref(), Ok(one), "what is written is read back");
    }
}

#[test]
fn what_is_no_rule_is_refused_with_its_line() {
    let bad = [
        "*.c",
        ": compress=zstd",
        "*.c: compress",
        "*.c: compress=gzip",
        "*.c: encrypt=maybe",
        "*.c: copies=3",
        "[: compress=lz4",
        "*: plugins=a/b",
        "*: plugins=a+a+a+a+a+a+a+a+a",
    ];
    for rule in bad {
        let error = Rules::parse(&format!("*.x: compress=lz4\n{rule}")).unwrap_err().to_string();
        assert!(error.starts_with("rule 2: "), "{rule}: {error}");
    }
    assert!(Way::parse(&format!("plugins=a:{}", "x".repeat(450))).is_err());
}
