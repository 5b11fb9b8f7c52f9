use std::collections::HashMap;
use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

fn with_words<T>(work: impl FnOnce(&SearchWords<'_>) -> T) -> T {
    let (devices, volumes) = (["d0".to_owned(), "d1".to_owned()], ["vault".to_owned()]);
    work(&SearchWords { classes: &Classes::default(), people: None, devices: &devices, volumes: &volumes })
}

fn parse(text: &str) -> Search {
    with_words(|words| Search::parse(text, words)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    match with_words(|words| Search::parse(text, words)) {
        Ok(search) => panic!("{text} is taken for {search}"),
        Err(error) => error.to_string(),
    }
}

/// A file of which facts are known by the key that asks for them.
#[derive(Default)]
struct Known {
    numbers: HashMap<&'static str, u64>,
    words: Vec<(&'static str, &'static str)>,
    path: &'static str,
    attributes: HashMap<&'static str, &'static str>,
    /// What was asked for.
    asked: Vec<Level>,
}

impl Subject for Known {
    type Error = Infallible;

    fn number(&mut self, fact: NumberFact) -> Result<Option<u64>, Infallible> {
        self.asked.push(fact.level());
        let key = NumberFact::KEYS.iter().find(|(_, known)| *known == fact).unwrap().0;
        Ok(self.numbers.get(key).copied())
    }

    fn is(&mut self, fact: WordFact, word: &str) -> Result<bool, Infallible> {
        self.asked.push(fact.level());
        Ok(self.words.contains(&(fact.key(), word)))
    }

    fn matches(&mut self, fact: &TextFact, matches: &dyn Fn(&[u8]) -> bool) -> Result<bool, Infallible> {
        self.asked.push(fact.level());
        let text = match fact {
            TextFact::Name | TextFact::Extension => self.path.rsplit('/').next(),
            TextFact::Path => Some(self.path),
            TextFact::Attribute(name) => self.attributes.get(name.as_str()).copied(),
        };
        Ok(text.is_some_and(|text| matches(text.as_bytes())))
    }
}

fn film() -> Known {
    Known {
        numbers: [("size", 2 << 30), ("age", 86_400), ("mode", 0o644), ("owner", 1000), ("survives", 1)].into(),
        words: vec![("tier", "vault"), ("state", "pending"), ("type", "file"), ("class", "archive"), ("on", "d0")],
        path: "films/old/Metropolis (1927).MKV",
        attributes: [("user.year", "1927"), ("user.note", "a b")].into(),
        asked: Vec::new(),
    }
}

fn is_so(text: &str) -> bool {
    let Ok(holds) = parse(text).holds(&mut film());
    holds
}

#[test]
fn the_promised_example_means_what_it_says() {
    assert!(is_so("size>1G and tier=vault and state!=compliant"));
    assert!(!is_so("size>1G and tier=vault and state!=pending"));
    assert!(!is_so("size>2G and tier=vault"));
}

#[test]
fn tests_are_joined_as_they_read() {
    for (text, expected) in [
        ("*", true),
        ("not *", false),
        ("type=f size>1G", true),
        ("type=file size>1T or on=d0", true),
        ("type=file (size>1T or on=d1)", false),
        ("not size>1T and not on=d1", true),
        ("not (size>1T or on=d0)", false),
        ("size > 1G and size<= 2G", true),
        ("size >\n 1G", true),
        ("not not size=2G", true),
        ("ext=mkv", true),
        ("*.mkv", false),
        ("*1927*", true),
        ("name=\"Metropolis (1927).MKV\"", true),
        ("name=\"Metropolis (*).MKV\"", true),
        ("Metropolis\\ \\(1927\\).MKV", true),
        ("films/**", true),
        ("films/*", false),
        ("path=films/old/*", true),
        ("/films/old/*", true),
        ("user.year=19??", true),
        ("user.year", true),
        ("user.month", false),
        ("user.month!=1", true),
        ("user.note=\"a b\"", true),
        ("mode&600 mode!=600", true),
        ("owner=1000", true),
        // What is not known is unlike everything.
        ("redundancy=3", false),
        ("redundancy!=3", true),
        ("redundancy<3 or redundancy>=3", false),
    ] {
        assert_eq!(is_so(text), expected, "{text}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (text, place, words) in [
        ("", "line 1, column 1", "has a test"),
        ("size>1G and", "line 1, column 12", "missing here"),
        ("size>1G or or *", "line 1, column 12", "missing here"),
        ("(size>1G", "line 1, column 1", "not closed"),
        ("size>1G)", "line 1, column 8", "no parenthesis open"),
        ("*.c\n and szie>1", "line 2, column 6", "no 'szie'"),
        ("size>big", "line 1, column 1", "powers of 1024"),
        ("age>30", "line 1, column 1", "30d"),
        ("mode=999", "line 1, column 1", "octal"),
        ("* and name=[a", "line 1, column 7", "no pattern"),
        ("class=best", "line 1, column 1", "no class"),
        ("tier=tape", "line 1, column 1", "it has: vault"),
        ("on=d7", "line 1, column 1", "d0, d1"),
        ("state>pending", "line 1, column 1", "= and !="),
        ("state=fine", "line 1, column 1", "compliant, pending"),
        ("type=film", "line 1, column 1", "directory"),
        ("owner=anna", "line 1, column 1", "no user 'anna'"),
        ("owner>anna", "line 1, column 1", "= and !="),
        ("scheme=0+1", "line 1, column 1", "4+2"),
        ("parity=4+2", "line 1, column 1", "wanted=4+2"),
        ("name=\"a", "line 1, column 1", "quote"),
        ("a\\", "line 1, column 1", "backslash"),
        (">5", "line 1, column 1", "in front of this sign"),
        ("user.stere.class=archive", "line 1, column 1", "class=archive"),
        ("user.stere.state", "line 1, column 1", "is policy"),
        ("size >", "line 1, column 6", "behind this sign"),
    ] {
        let told = refused(text);
        assert!(told.starts_with(place) && told.contains(words), "{text} is refused with: {told}");
    }
    let deep = "(".repeat(100) + "*" + &")".repeat(100);
    assert!(refused(&deep).contains("64 deep"));
    assert!(refused(&"not ".repeat(100_000)).contains("bytes"));
    assert!(refused(&"not ".repeat(10_000)).contains("64 deep"));
}

#[test]
fn what_costs_little_is_asked_first() {
    let steps = parse("state=pending and *.MKV and (on=d1 or size>1G) and not size=0").into_steps();
    let levels: Vec<Level> = steps.iter().map(Search::level).collect();
    assert_eq!(levels, [Level::Inode, Level::Name, Level::Content, Level::Content]);
    let mut film = film();
    let Ok(holds) = steps[3].holds(&mut film);
    assert!(holds);
    assert_eq!(film.asked, [Level::Inode], "the size decides before anybody asks where it lies");
}

fn pattern_text() -> impl Strategy<Value = String> {
    // Whatever can stand in a pattern: blanks, parentheses, escapes, signs.
    let piece = prop_oneof![
        "[a-z]{1,4}",
        Just("*".to_owned()),
        Just("?".to_owned()),
        Just(" ".to_owned()),
        Just("(".to_owned()),
        Just(")".to_owned()),
        Just("=".to_owned()),
        Just(">".to_owned()),
        Just("\\\"".to_owned()),
        Just("\\*".to_owned()),
        Just("ä".to_owned()),
        Just("\n".to_owned()),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn test() -> impl Strategy<Value = Search> {
    let number = (0..NumberFact::KEYS.len(), 0..Comparison::SIGNS.len(), any::<u64>());
    let number = number.prop_map(|(fact, comparison, value)| {
        let (fact, comparison) = (NumberFact::KEYS[fact].1, Comparison::SIGNS[comparison].1);
        Asked::Number { fact, comparison, value }
    });
    let words = [
        (WordFact::Type, "directory"),
        (WordFact::Class, "precious"),
        (WordFact::Compress, "zstd:7"),
        (WordFact::Encrypt, "my key"),
        (WordFact::Tier, "vault"),
        (WordFact::Backup, "yes"),
        (WordFact::Wanted, "4+2"),
        (WordFact::Scheme, "1+0"),
        (WordFact::On, "d1"),
        (WordFact::State, "impossible"),
        (WordFact::Residency, "nearline"),
    ];
    let word = (0..words.len(), any::<bool>()).prop_map(move |(index, is_not)| {
        let (fact, value) = words[index];
        Asked::Word { fact, is_not, value: value.into() }
    });
    let fact = prop_oneof![
        Just(TextFact::Name),
        Just(TextFact::Extension),
        Just(TextFact::Path),
        "[a-zA-Z.:_-]{1,8}".prop_map(|name| TextFact::Attribute(format!("user.{name}"))),
    ];
    let text = (fact, any::<bool>(), pattern_text()).prop_map(|(fact, is_not, text)| {
        let matcher = globset::Glob::new("*").unwrap().compile_matcher();
        Asked::Text { fact, is_not, pattern: Pattern { text, matcher } }
    });
    let has = "[a-zA-Z.:_-]{1,8}".prop_map(|name| Asked::Has(format!("user.{name}")));
    prop_oneof![number, word, text, has].prop_map(|asked| Search::Test(Test(asked)))
}

fn search() -> impl Strategy<Value = Search> {
    test().prop_recursive(5, 24, 4, |part| {
        prop_oneof![
            proptest::collection::vec(part.clone(), 2..4).prop_map(Search::all_of),
            proptest::collection::vec(part.clone(), 2..4).prop_map(Search::any_of),
            part.prop_map(|part| Search::Not(Box::new(part))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_the_same_search(search in search()) {
        let text = search.to_string();
        let again = with_words(|words| Search::parse(&text, words));
        prop_assert_eq!(again, Ok(search), "{}", text);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in "[a-z =!<>&()\"\\\\*?\\[{,/.\n0-9]{0,40}") {
        if let Ok(search) = with_words(|words| Search::parse(&text, words)) {
            let Ok(_) = search.holds(&mut film());
            let printed = search.to_string();
            prop_assert_eq!(with_words(|words| Search::parse(&printed, words)), Ok(search), "{} from {}", printed, text);
        }
    }
}

/// P-135: a cover holds of all that is found.
#[test]
fn covers_are_what_must_be_so() {
    let size = |bytes: u64| Indexed::SizeAtLeast(bytes);
    let attribute = |value: Option<&str>| Indexed::Attribute("user.a".into(), value.map(str::to_owned));
    let class = Indexed::Class("archive".into());
    for (text, expected) in [
        ("size>1M", vec![vec![size((1 << 20) + 1)]]),
        ("size>=1M and class=archive", vec![vec![size(1 << 20)], vec![class.clone()]]),
        ("size=5 or user.a=b", vec![vec![size(5), attribute(Some("b"))]]),
        ("(size>1 or user.a) and (class=archive or f*)", vec![vec![size(2), attribute(None)]]),
        ("user.a=b* tier=vault", vec![vec![attribute(None)], vec![Indexed::Tier("vault".into())]]),
        ("not size>1M", vec![]),
        ("size<1M and size!=3 and tier=none and user.a!=b and class!=archive", vec![]),
        ("size>1 or f*", vec![]),
    ] {
        let mut covers = parse(text).covers();
        covers.sort_by_key(|cover| format!("{cover:?}"));
        let mut expected = expected;
        expected.sort_by_key(|cover| format!("{cover:?}"));
        assert_eq!(covers, expected, "{text}");
    }
}
