//! What is left of rules in a directory matches what every rule, asked for itself, matches there.

use globset::GlobBuilder;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::classes::Classes;

/// A rule as it is meant, beside what is written.
#[derive(Debug, Clone)]
struct Meant {
    pattern: Option<String>,
    /// Fact, sign, number.
    conditions: Vec<(&'static str, &'static str, u64)>,
}

#[derive(Debug, Clone)]
struct File {
    directories: Vec<&'static str>,
    name: String,
    numbers: [u64; 5],
}

const FACTS: [&str; 6] = ["size", "owner", "group", "mode", "age", "depth"];

impl Meant {
    fn text(&self) -> String {
        let number = |fact: &str, value: &u64| match fact {
            "mode" => format!("{value:o}"),
            "age" => format!("{value}s"),
            _ => value.to_string(),
        };
        let conditions =
            self.conditions.iter().map(|(fact, sign, value)| format!("{fact}{sign}{}", number(fact, value)));
        let words: Vec<String> = self.pattern.iter().cloned().chain(conditions).collect();
        format!("{}: copies=2", words.join(" "))
    }

    /// As it is told to users, one rule after another.
    fn matches(&self, file: &File) -> bool {
        let glob = |glob: &str, text: &str, ignores_case| {
            let mut builder = GlobBuilder::new(glob);
            let builder = builder.literal_separator(true).backslash_escape(true).case_insensitive(ignores_case);
            builder.build().unwrap().compile_matcher().is_match(text)
        };
        let path = [&file.directories[..], &[&file.name]].concat().join("/");
        let is_meant = |pattern: &str| match pattern.strip_prefix("ext=") {
            Some(ending) => glob(&format!("*.{}", globset::escape(ending)), &file.name, true),
            None if pattern.contains('/') => glob(pattern.strip_prefix('/').unwrap_or(pattern), &path, false),
            None => glob(pattern, &file.name, false),
        };
        let known = |fact: &str| match FACTS.iter().position(|known| *known == fact).unwrap() {
            5 => file.directories.len() as u64,
            at => file.numbers[at],
        };
        self.pattern.as_deref().is_none_or(is_meant)
            && self.conditions.iter().all(|(fact, sign, value)| match *sign {
                "<" => known(fact) < *value,
                "<=" => known(fact) <= *value,
                ">" => known(fact) > *value,
                ">=" => known(fact) >= *value,
                "=" => known(fact) == *value,
                "!=" => known(fact) != *value,
                _ => known(fact) & value == *value,
            })
    }
}

fn condition() -> impl Strategy<Value = (&'static str, &'static str, u64)> {
    (select(&FACTS[..]), select(&["<", "<=", ">", ">=", "=", "!=", "&"][..]), 0..6_u64)
}

fn pattern() -> impl Strategy<Value = String> {
    let part = || "[ab.*?]{1,3}|\\*\\.[ab]|[ab]\\*|\\[ab\\]|\\[!a\\]|\\{a,b\\.\\}|\\*\\*|\\\\\\*|a\\.b|a|b|\\*";
    prop_oneof![
        4 => part(),
        4 => ("/?", prop::collection::vec(part(), 1..4)).prop_map(|(root, parts)| root + &parts.join("/")),
        1 => "ext=[aB.]{1,2}",
        1 => select(&["{a/b,b}/a", "a/{b/*,*}", "/a", "a//b", "a/"][..]).prop_map(str::to_owned),
    ]
}

fn rule() -> impl Strategy<Value = Meant> {
    let conditions = || prop::collection::vec(condition(), 0..3);
    prop_oneof![
        3 => (pattern(), conditions()).prop_map(|(pattern, conditions)| Meant { pattern: Some(pattern), conditions }),
        1 => prop::collection::vec(condition(), 1..3).prop_map(|conditions| Meant { pattern: None, conditions }),
    ]
}

fn file() -> impl Strategy<Value = File> {
    let directories = prop::collection::vec(select(&["a", "b", "ab", "a.b", "*", ".a"][..]), 0..4);
    (directories, "[abAB.*]{1,4}", [0..6_u64, 0..6, 0..6, 0..6, 0..6]).prop_map(|(directories, name, numbers)| File {
        directories,
        name,
        numbers,
    })
}

/// P-52: a set of patterns alone takes a name that ends with a dot for none.
#[test]
fn names_that_end_with_a_dot_are_matched() {
    let rules = "*.: copies=2\na*: copies=2\nend.: copies=2\nsub/*.: copies=2\n*.c: copies=2";
    let set = RuleSet::parse(rules, false, &Classes::default()).unwrap();
    let facts =
        |name: &'static str| Facts { name: name.as_bytes(), size: 0, age_seconds: 0, owner: 0, group: 0, mode: 0 };
    let found = |below: &str, name| set.matching(&set.here(below.as_bytes()), &facts(name)).len();
    assert_eq!((found("", "end."), found("", "abc."), found("", "x."), found("", "x.c")), (2, 2, 1, 1));
    assert_eq!((found("sub/", "end."), found("sub/", "x.c"), found("other/", "end.")), (3, 1, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// P-52: whatever rules there are, and wherever the file lies.
    #[test]
    fn what_is_left_matches_what_every_rule_for_itself_does(
        rules in prop::collection::vec(rule(), 1..12),
        files in prop::collection::vec(file(), 1..8),
    ) {
        // What is no pattern is no rule.
        let classes = Classes::default();
        let rules: Vec<Meant> =
            rules.into_iter().filter(|rule| RuleSet::parse(&rule.text(), false, &classes).is_ok()).collect();
        let text: Vec<String> = rules.iter().map(Meant::text).collect();
        let set = RuleSet::parse(&text.join("\n"), false, &classes).unwrap();
        for file in files {
            let below: String = file.directories.iter().map(|directory| format!("{directory}/")).collect();
            let [size, owner, group, mode, age_seconds] = file.numbers;
            let facts = Facts {
                name: file.name.as_bytes(),
                size,
                age_seconds,
                owner: owner as u32,
                group: group as u32,
                mode: mode as u32,
            };
            let here = set.here(below.as_bytes());
            let found: Vec<&str> = set.matching(&here, &facts).iter().map(|rule| rule.text.as_str()).collect();
            let meant: Vec<&str> =
                rules.iter().zip(&text).filter(|(rule, _)| rule.matches(&file)).map(|(_, text)| text.as_str()).collect();
            prop_assert_eq!(&found, &meant, "{}{}", below, file.name);
            // What may decide otherwise when facts change is asked for facts again.
            let may_change = |rule: &Meant| {
                let is_of_facts = rule.conditions.iter().any(|(fact, _, _)| *fact != "depth");
                is_of_facts && Meant { conditions: Vec::new(), ..rule.clone() }.matches(&file)
            };
            prop_assert!(set.asks_for_facts(&here, facts.name) || !rules.iter().any(may_change));
        }
    }
}

/// Rules that cannot match in a directory are not tried there: their patterns are gone.
#[test]
fn what_cannot_match_in_a_directory_is_not_tried_there() {
    let rule = |at: usize| match at % 3 {
        0 => format!("src/dir{at}/*.c: compress=lz4"),
        1 => format!("*/dir{at}/x*: copies=2"),
        _ => format!("owner={at}: copies=3"),
    };
    let text = (0..999).map(rule).collect::<Vec<_>>().join("\n");
    let set = RuleSet::parse(&text, false, &Classes::default()).unwrap();
    let left = |below: &str| set.here(below.as_bytes()).names.rules.clone();
    assert_eq!((left(""), left("src/"), left("src/dir3/deep/")), (vec![], vec![], vec![]));
    assert_eq!((left("src/dir3/"), left("lib/dir4/"), left("src/dir4/")), (vec![3], vec![4], vec![4]));
    let mut open = Vec::new();
    set.others.add_open(&Facts { owner: 5, ..Facts::default() }, 0, &mut open);
    assert_eq!(open, [5]);
}
