use proptest::prelude::*;

use super::*;
use crate::attribute::Setting;
use crate::class::Class;
use crate::classes::{Classes, Definition};

fn parse(text: &str) -> RuleSet {
    RuleSet::parse(text, false, &Classes::default()).expect("rules")
}

fn file(path: &str) -> Facts<'_> {
    Facts { name: path.as_bytes(), ..Facts::default() }
}

/// The rules that match a file, whose name is its path here.
fn matching<'a>(rules: &'a RuleSet, file: &Facts<'_>) -> Vec<&'a Rule> {
    let name_at = file.name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (below, name) = file.name.split_at(name_at);
    rules.matching(&rules.here(below), &Facts { name, ..*file })
}

/// What is set for a file, as text.
fn decided(text: &str, facts: &Facts<'_>) -> String {
    let rules = parse(text);
    let own = merge(matching(&rules, facts), &Classes::default());
    let settings = Setting::ALL.into_iter().filter_map(|key| Some(format!("{}={}", key.word(), own.get(key)?)));
    settings.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_promised_example_means_what_it_says() {
    let rules = "*.c:compress=zstd,redundancy=10; *.o:redundancy=0; size>1G:class=archive";
    assert_eq!(decided(rules, &file("main.c")), "redundancy=10 compress=zstd");
    assert_eq!(decided(rules, &file("src/main.o")), "redundancy=0");
    assert_eq!(decided(rules, &file("readme")), "");
    let large = Facts { size: (1 << 30) + 1, ..file("film.mkv") };
    assert_eq!(decided(rules, &large), "class=archive copies=2 compress=zstd");
}

#[test]
fn patterns_are_of_names_or_of_paths() {
    for (pattern, yes, no) in [
        ("*.c", "a/b/x.c", "x.h"),
        ("Makefile", "a/Makefile", "Makefile.old"),
        ("img_[0-9]?.jpg", "p/img_12.jpg", "img_1.jpg"),
        ("*.{jpg,png}", "x.png", "x.gif"),
        ("src/*.c", "src/x.c", "src/deep/x.c"),
        ("src/**/*.c", "src/a/b/x.c", "lib/x.c"),
        ("/top", "top", "tops"),
        ("**/cache/**", "a/cache/b/c", "a/caches/b"),
        ("ext=JPG", "a.jpg", "ajpg"),
        ("a\\:b", "a:b", "a"),
        ("type=file", "x", ""),
    ] {
        let rules = format!("{pattern}: copies=3");
        assert_eq!(decided(&rules, &file(yes)), "copies=3", "{pattern} and {yes}");
        if !no.is_empty() {
            assert_eq!(decided(&rules, &file(no)), "", "{pattern} and {no}");
        }
    }
}

#[test]
fn conditions_hold_together() {
    let facts =
        Facts { size: 5 << 20, age_seconds: 3 * 86_400, owner: 1000, group: 7, mode: 0o755, ..file("a/b/x.log") };
    for (conditions, holds) in [
        ("size>4M", true),
        ("size>=5M", true),
        ("size>5M", false),
        ("size<1G age>2d", true),
        ("size<1G age>4d", false),
        ("age<=3d", true),
        ("owner=1000 group!=7", false),
        ("owner=1000 group=7", true),
        ("mode=755", true),
        ("mode&111", true),
        ("mode&22", false),
        ("depth=2", true),
        ("depth>2", false),
        ("*.log size>1M depth>=1", true),
        ("*.txt size>1M", false),
    ] {
        let expected = if holds { "copies=3" } else { "" };
        assert_eq!(decided(&format!("{conditions}: copies=3"), &facts), expected, "{conditions}");
    }
}

#[test]
fn of_several_the_most_conservative_wins_key_by_key() {
    for (rules, expected) in [
        ("*: copies=2; *.c: copies=3", "copies=3"),
        ("*.c: copies=3; *: copies=1", "copies=3"),
        ("*: parity=2; *: copies=2", "parity=2"),
        ("*: parity=1; *: copies=2", "copies=2"),
        ("*: class=scratch; *: class=precious", "class=precious copies=3"),
        ("*: class=archive; *: class=normal", "class=normal copies=2 compress=zstd"),
        ("*: compress=zstd; *: compress=lz4", "compress=lz4"),
        ("*: compress=zstd; *: compress=none", "compress=none"),
        ("*: compress=zstd:19; *: compress=zstd:1", "compress=zstd:1"),
        ("*: copies=2; *: compress=lz4", "copies=2 compress=lz4"),
    ] {
        assert_eq!(decided(rules, &file("x.c")), expected, "{rules}");
    }
}

#[test]
fn what_does_not_parse_is_told_by_line_and_column() {
    for (text, line, column, words) in [
        ("*.c compress=zstd", 1, 1, "CONDITIONS"),
        ("*.c: compress", 1, 6, "KEY=VALUE"),
        ("*.c: compress=gzip", 1, 6, "gzip"),
        ("*.c: colour=red", 1, 6, "colour"),
        ("*.c: class=gold", 1, 6, "gold"),
        ("*.c: class=#16", 1, 6, "#16"),
        ("# all\n*.c: copies=2\n  *.o: copies=0", 3, 8, "copies"),
        ("*.c: copies=2; size>lots: copies=1", 1, 16, "size"),
        ("age>30: copies=1", 1, 1, "30d"),
        ("*.c *.h: copies=2", 1, 5, "one pattern"),
        ("[a: copies=2", 1, 1, "pattern"),
        ("*.c:", 1, 5, "sets something"),
        (": copies=2", 1, 1, "condition"),
        ("*.c: copies=2, copies=3", 1, 16, "twice"),
        ("type=directory: copies=2", 1, 1, "files"),
        ("!*.c: copies=2", 1, 1, "override"),
        ("mode=999: copies=1", 1, 1, "octal"),
        ("size>99999999999T: copies=1", 1, 1, "size"),
    ] {
        let error = RuleSet::parse(text, false, &Classes::default()).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.what.contains(words), "{text}: {error}");
    }
    assert!(RuleSet::parse(&"x".repeat(1 << 20), false, &Classes::default()).is_err());
}

#[test]
fn comments_blanks_and_overrides() {
    let text = "# rules of the house\n\n  *.c : copies=2 ;; *.h:copies=3 # both\n! *.tmp: class=scratch\n";
    let rules = RuleSet::parse(text, true, &Classes::default()).expect("rules");
    let texts: Vec<_> = rules.rules().iter().map(|rule| (rule.text.as_str(), rule.overrides)).collect();
    assert_eq!(texts, [("*.c : copies=2", false), ("*.h:copies=3", false), ("! *.tmp: class=scratch", true)]);
    assert_eq!(matching(&rules, &file("a.tmp")).len(), 1);
    assert!(parse("").is_empty() && !rules.is_empty());
    assert!(!rules.needs_path() && !rules.changes_by_itself());
    assert!(parse("a/*: copies=1").needs_path() && parse("depth>1: copies=1").needs_path());
    assert!(parse("size>1: copies=1").changes_by_itself());
}

#[test]
fn decisions_fill_what_is_left_and_overrides_are_kept_apart() {
    let own = |text: &str| merge(parse(text).rules(), &Classes::default());
    let mut decision = Decision::default();
    assert!(decision.is_nothing());
    decision.add(&own("*: compress=lz4"), true, Decided::default());
    decision.add(&own("*: copies=3, compress=zstd"), false, Decided::default());
    decision.add(&own("*: class=scratch"), false, Decided::default());
    assert_eq!(decision.compression().map(|one| one.text()).as_deref(), Some("lz4"));
    assert_eq!(decision.scheme().map(|wish| wish.survives()), Some(2));
    assert_eq!(decision.class().map(Class::text).as_deref(), Some("scratch"));
    assert!(decision.decided.overrides(Decided::COMPRESSION) && !decision.decided.overrides(Decided::SCHEME));
    let mut nothing = Decision::default();
    nothing.add(
        &own("*: class=archive"),
        false,
        Decided::of(&own("*: class=normal"), &Classes::default()).and(Decided::COMPRESSION),
    );
    assert!(nothing.is_nothing(), "what is nearer has settled it: {nothing:?}");
    let mut other = Decision::default();
    other.add(&own("*: copies=2, compress=none, class=normal"), false, Decided::default());
    let both = decision.or_more(&other, &Classes::default());
    assert_eq!(both.compression().map(|one| one.text()).as_deref(), Some("none"));
    assert_eq!(both.scheme().map(|wish| wish.survives()), Some(2));
    assert_eq!(both.class().map(Class::text).as_deref(), Some("normal"));
}

proptest! {
    /// Text is anything that a user may set as an attribute.
    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC{0,80}", name in "\\PC{0,20}") {
        if let Ok(rules) = RuleSet::parse(&text, true, &Classes::default()) {
            drop(matching(&rules, &file(&name)));
        }
    }

    #[test]
    fn text_like_rules_parses_or_is_refused(text in "[*?.a-c/:;=,!{}\\[\\]<>&0-9KMGd\\\\ #\n-]{0,60}") {
        if let Ok(rules) = RuleSet::parse(&text, true, &Classes::default()) {
            drop(matching(&rules, &file("a/b.c")));
        }
    }
}

#[test]
fn rules_name_classes_of_the_pool() {
    let mut classes = Classes::default();
    let own = Own { copies: 4, compression: crate::Compression::LZ4.code(), ..Own::default() };
    classes.put(Class::User(16), Definition { name: "photos".into(), own, into: None });
    let rules = RuleSet::parse("*.jpg: class=photos; *: class=normal", false, &classes).expect("rules");
    let merged = merge(matching(&rules, &file("a.jpg")), &classes);
    assert_eq!((merged.class(), merged.copies, merged.compression), (Some(Class::User(16)), 4, own.compression));
    classes.put(Class::User(16), Definition { name: "photos".into(), own, into: Some(Class::Scratch) });
    assert!(RuleSet::parse("*: class=photos", false, &classes).is_err());
    let rules = RuleSet::parse_stored("*: class=photos", false, &classes).expect("they were accepted once");
    assert_eq!(merge(rules.rules(), &classes).copies, 1);
}

struct TwoMedia;

impl Places for TwoMedia {
    fn place(&self, _text: &str) -> Option<u8> {
        None
    }

    fn node(&self, _text: &str) -> Option<u8> {
        None
    }

    fn media(&self, text: &str) -> Option<u16> {
        match text {
            "cloud" => Some(1),
            "shelf" => Some(2),
            "cloud+shelf" => Some(3),
            _ => None,
        }
    }
}

/// P-303: of rules that match together media count rather than none, and more of them; P-301: what promises more.
#[test]
fn rules_name_media_and_say_when_changes_are_durable() {
    let classes = Classes::default();
    let vocabulary = Vocabulary { places: Some(&TwoMedia), ..Vocabulary::from(&classes) };
    let text = "*.a: tier=cloud; *.a: tier=cloud+shelf; *.a: tier=none, sync=relaxed; a.*: sync=always; *.b: tier=none";
    let rules = RuleSet::parse(text, false, vocabulary).expect("rules");
    let merged = |name| merge(matching(&rules, &file(name)), &classes);
    assert_eq!((merged("a.a").tiers, merged("a.a").sync()), (3, Some(crate::Sync::Always)));
    assert_eq!((merged("b.a").tiers, merged("b.a").sync()), (3, Some(crate::Sync::Relaxed)));
    assert_eq!(merged("b.b").tiers, crate::TIERS_NONE);
    assert!(RuleSet::parse("*: tier=tape", false, vocabulary).is_err(), "the pool has no such medium");
    let gone = RuleSet::parse_stored("*: tier=tape, copies=3", false, vocabulary).expect("it was accepted once");
    assert_eq!((merge(gone.rules(), &classes).tiers, merge(gone.rules(), &classes).copies), (0, 3));
    // What a class says is noted of it, and a nearer key is not spoken over.
    let archive = RuleSet::parse("*: class=archive", false, vocabulary).expect("rules");
    let mut decision = Decision::default();
    decision.add(&merge(archive.rules(), &classes), false, Decided::default());
    assert_eq!(decision.tier(), Some(crate::TierWish::Usual));
    let mut nearer = Decision::default();
    nearer.add(&merge(archive.rules(), &classes), false, Decided::TIER);
    assert!(nearer.tier().is_none() && nearer.decided.has(Decided::TIER) && nearer.class() == Some(Class::Archive));
}

#[derive(Debug)]
struct Anna;

impl People for Anna {
    fn user(&self, name: &str) -> Option<u32> {
        (name == "anna").then_some(1000)
    }

    fn group(&self, name: &str) -> Option<u32> {
        (name == "staff").then_some(50)
    }
}

#[test]
fn owners_and_groups_may_be_named() {
    let classes = Classes::default();
    let vocabulary = Vocabulary { people: Some(&Anna), ..Vocabulary::from(&classes) };
    let text = "owner=anna: copies=1; group!=staff: copies=2; owner=7: copies=3";
    let rules = RuleSet::parse(text, false, vocabulary).expect("rules");
    let matched = |rules: &RuleSet, owner: u32, group: u32| {
        let facts = Facts { name: b"x", owner, group, ..Facts::default() };
        matching(rules, &facts).iter().map(|rule| rule.own.copies).collect::<Vec<_>>()
    };
    assert_eq!(matched(&rules, 1000, 50), [1]);
    assert_eq!(matched(&rules, 7, 51), [2, 3]);
    for (bad, what) in [("owner=bert: copies=1", "no user 'bert'"), ("group=anna: copies=1", "no group 'anna'")] {
        let error = RuleSet::parse(bad, false, vocabulary).expect_err(bad).to_string();
        assert!(error.contains(what) && error.contains("column 1"), "{error}");
    }
    assert!(RuleSet::parse("owner<anna: copies=1", false, vocabulary).is_err());
    assert!(RuleSet::parse("owner=anna: copies=1", false, &classes).is_err(), "nobody is known there");
    // Whoever is gone owns nothing, and rules that name them stay rules.
    let stored = RuleSet::parse_stored(text, false, &classes).expect("they were accepted once");
    assert_eq!(matched(&stored, 1000, 50), [2]);
    assert_eq!(matched(&stored, u32::MAX, 50), [2]);
}

struct Known;

impl Stacks for Known {
    fn stack(&self, text: &str) -> Option<u16> {
        ["delta:width=4,rotate:13", "rotate:13"].iter().position(|known| *known == text).map(|at| at as u16 + 1)
    }
}

/// P-117: lists have commas of their own, and of several rules as much is kept as one says.
#[test]
fn rules_name_versions_and_plugins() {
    let classes = Classes::default();
    let vocabulary = Vocabulary { stacks: Some(&Known), ..Vocabulary::from(&classes) };
    let text = "*.odt: versions=10,30d, copies=3, plugins=delta:width=4,rotate:13; a*: versions=20,1d, plugins=rotate:13; \
                *.tmp: versions=no, plugins=none";
    let rules = RuleSet::parse(text, false, vocabulary).expect("rules");
    let merged = |name: &str| {
        let own = merge(matching(&rules, &file(name)), &classes);
        (own.copies, own.plugins, own.versions.map(crate::Versions::text).unwrap_or_default())
    };
    assert_eq!(merged("x.odt"), (3, 2, "10,30d".into()));
    assert_eq!(merged("a.odt"), (3, 2, "20,30d".into()), "of two stacks the first");
    assert_eq!(merged("a"), (0, 3, "20,1d".into()));
    assert_eq!(merged("x.tmp"), (0, 1, "no".into()));
    assert_eq!(merged("a.tmp"), (0, 3, "20,1d".into()), "plugins rather than none");
    for (bad, what) in [
        ("*: versions=10,10", "'10,10' is no value for policy key 'versions'"),
        ("*: versions=1, versions=2", "set twice"),
        ("*: plugins=gone", "does not have these plugins"),
        ("*: plugins=none, plugins=none", "set twice"),
        ("*: copies=2,3", "KEY=VALUE"),
    ] {
        let error = RuleSet::parse(bad, false, vocabulary).expect_err(bad).to_string();
        assert!(error.contains(what), "{bad}: {error}");
    }
    let stored = RuleSet::parse_stored("*: plugins=gone, copies=2", false, vocabulary).expect("accepted once");
    assert_eq!(merge(matching(&stored, &file("x")), &classes).plugins, 0, "what is gone does nothing");
    // Decisions keep them apart by authority, and for a file with several names the stricter.
    let mut decision = Decision::default();
    decision.add(&merge(matching(&rules, &file("a.odt")), &classes), false, Decided::VERSIONS);
    assert_eq!((decision.versions(), decision.plugins()), (None, Some(2)));
    decision.add(&merge(matching(&rules, &file("x.tmp")), &classes), true, Decided::default());
    assert_eq!(decision.versions(), Some(crate::Versions::No));
    assert!(decision.decided.overrides(Decided::VERSIONS) && !decision.decided.overrides(Decided::PLUGINS));
    let mut other = Decision::default();
    other.add(&merge(matching(&rules, &file("a")), &classes), false, Decided::default());
    let both = decision.or_more(&other, &classes);
    assert_eq!((both.versions().map(crate::Versions::text), both.plugins()), (Some("20,1d".into()), Some(2)));
}

/// P-154.
#[test]
fn what_stays_is_said_of_directories_that_match_too() {
    let set = RuleSet::parse(
        "src: unit=yes, names=90d; *.index: pin=yes, copies=3; type=directory d*: pin=no; type=file d*: pin=yes; size>1M: pin=yes; *.iso: release=30d; a/*: class=archive",
        false,
        &Classes::default(),
    )
    .unwrap();
    let here = set.here(b"a/");
    let texts = |rules: Vec<&Rule>| rules.into_iter().map(|rule| rule.text.clone()).collect::<Vec<_>>();
    let facts = |name, size| Facts { name, size, ..Facts::default() };
    let of_file = |name, size| texts(set.matching(&here, &facts(name, size)));
    let of_directory = |name, size| texts(set.matching_directory(&here, &facts(name, size)));
    assert_eq!(of_directory(b"src", 0), ["src: unit=yes, names=90d", "a/*: class=archive"]);
    assert_eq!(of_file(b"src", 0), ["a/*: class=archive"], "nothing that is said of directories");
    assert_eq!(of_file(b"x.index", 2 << 20), ["*.index: pin=yes, copies=3", "size>1M: pin=yes", "a/*: class=archive"]);
    assert_eq!(
        of_directory(b"x.index", 2 << 20),
        ["*.index: pin=yes, copies=3", "a/*: class=archive"],
        "they have no size"
    );
    assert_eq!(of_directory(b"d1", 0), ["type=directory d*: pin=no", "a/*: class=archive"]);
    assert_eq!(of_file(b"d1", 0), ["type=file d*: pin=yes", "a/*: class=archive"]);
    assert_eq!(of_file(b"x.iso", 0), ["*.iso: release=30d", "a/*: class=archive"], "it says something of files");
    let merged = merge(set.matching(&here, &facts(b"d1", 0)), &Classes::default());
    assert_eq!(merged.residency.pin, Some(true));
    let mut decision = Decision::default();
    decision.add(&merged, false, Decided::default());
    assert!(decision.own.residency.is_empty(), "it is noted nowhere");
}

#[test]
fn what_cannot_be_said_of_what_a_rule_is_for_is_refused_with_what_to_do() {
    for (text, says) in [
        ("type=file x: unit=yes", "type=directory"),
        ("type=file x: names=90d", "type=directory"),
        ("type=directory x: copies=2", "another rule"),
        ("type=directory x: class=archive, pin=yes", "another rule"),
        ("type=directory size>1M: pin=yes", "leave that out"),
        ("age>30d: unit=yes", "leave that out"),
        ("type=symlink x: copies=2", "type=directory"),
        ("x: pin=90d", "yes or no"),
        ("x: names=", "needs a value"),
        ("x: pin=yes, pin=no", "twice"),
    ] {
        let error = RuleSet::parse(text, false, &Classes::default()).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

/// P-178. What one directory's rules compile to is bounded, and told with the bound; the pool's own are the administrator's.
#[test]
fn what_has_to_be_compiled_of_a_directory_is_bounded() {
    let alternatives = (0..3000).map(|number| format!("a{number}*b")).collect::<Vec<_>>().join(",");
    let text = format!("{{{alternatives}}}: copies=2");
    assert!(text.len() < RULES_BYTES_MAX);
    let classes = Classes::default();
    let refused = RuleSet::parse(&text, false, &classes).unwrap_err().to_string();
    assert!(refused.contains("16384 are enough"), "{refused}");
    // What was accepted before stays.
    RuleSet::parse_stored(&text[..0], false, &classes).unwrap();
    let endings = (0..2000).map(|number| format!("*.e{number}: copies=2")).collect::<Vec<_>>().join("\n");
    RuleSet::parse(&endings, false, &classes).unwrap();
}

/// P-178. Rules count what they take for as long as they are there, those that take much as much.
#[test]
fn what_rules_take_is_counted_until_they_go() {
    let total = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = || total.load(std::sync::atomic::Ordering::Acquire);
    let classes = Classes::default();
    let pattern = "[ab]*".repeat(2000);
    let mut large = RuleSet::parse(&format!("{pattern}: copies=2"), false, &classes).unwrap();
    let mut small = RuleSet::parse("*.c: copies=2", false, &classes).unwrap();
    large.count_in(&total);
    small.count_in(&total);
    assert!(large.weight_bytes() > 1_000_000 && small.weight_bytes() < 2000, "{large:?}");
    assert_eq!(counted(), large.weight_bytes() + small.weight_bytes());
    drop(large);
    assert_eq!(counted(), small.weight_bytes());
}
