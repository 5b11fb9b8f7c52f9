//! From text to a search, with line and column of what is wrong.

use super::{Asked, NumberFact, Pattern, Search, SearchWords, Test, TextFact, WordFact};
use crate::compression::Compression;
use crate::rules::{Comparison, RULES_BYTES_MAX, RuleError, Unit, build_glob};

/// What the names of users' attributes begin with.
pub(super) const USER_PREFIX: &str = "user.";
/// Parentheses within each other, and `not`s one behind the other.
const DEPTH_MAX: usize = 64;
/// Where a key ends, if it is one: what stands here begins a comparison, or cannot be in a key.
const NO_KEY: &[char] = &['<', '>', '=', '!', '&', '*', '?', '[', ']', '{', '}', '\\', '/', ','];

/// The kinds of files as they are written; the first word is the one that is kept.
const TYPES: [&[&str]; 7] = [
    &["file", "f"],
    &["directory", "dir", "d"],
    &["symlink", "link", "l"],
    &["fifo", "pipe", "p"],
    &["socket", "s"],
    &["block", "b"],
    &["character", "char", "c"],
];
const STATES: [&str; 5] = ["compliant", "pending", "impossible", "away", "lost"];
const RESIDENCIES: [&str; 4] = ["online", "partial", "nearline", "offline"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Open,
    Close,
    Word,
}

/// A piece of the text with its place.
#[derive(Debug, Clone)]
struct Token {
    kind: Kind,
    /// Without its quotes.
    text: String,
    /// Bytes of it before the first quote.
    plain_length: usize,
    is_quoted: bool,
    line: usize,
    column: usize,
}

impl Token {
    fn error(&self, what: impl Into<String>) -> RuleError {
        RuleError { line: self.line, column: self.column, what: what.into() }
    }

    fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && !self.is_quoted && self.text == word
    }

    /// Where a comparison begins in it, if one does: not within quotes.
    fn comparison(&self) -> Option<(&str, Comparison, &str)> {
        let plain = &self.text[..self.plain_length];
        let at = plain.find(NO_KEY)?;
        let (comparison, value) = Comparison::strip(&self.text[at..])?;
        // A sign is not half in quotes.
        let is_whole = self.text.len() - value.len() <= self.plain_length;
        is_whole.then(|| (&self.text[..at], comparison, value))
    }
}

/// Cuts a text into words and parentheses.
fn tokens(text: &str) -> Result<Vec<Token>, RuleError> {
    let (mut tokens, mut current): (Vec<Token>, Option<Token>) = (Vec::new(), None);
    let (mut line, mut line_start) = (1, 0);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, letter) in text.char_indices() {
        let fresh = |kind| Token {
            kind,
            text: String::new(),
            plain_length: usize::MAX,
            is_quoted: false,
            line,
            column: at - line_start + 1,
        };
        let separates = !is_quoted && !is_escaped;
        if separates && (letter.is_whitespace() || "()".contains(letter)) {
            tokens.extend(current.take());
            match letter {
                '(' => tokens.push(fresh(Kind::Open)),
                ')' => tokens.push(fresh(Kind::Close)),
                _ => {}
            }
        } else {
            let token = current.get_or_insert_with(|| fresh(Kind::Word));
            if letter == '"' && !is_escaped {
                is_quoted = !is_quoted;
                token.plain_length = token.plain_length.min(token.text.len());
                token.is_quoted = true;
            } else {
                token.text.push(letter);
            }
            is_escaped = letter == '\\' && !is_escaped;
        }
        if letter == '\n' {
            (line, line_start) = (line + 1, at + 1);
        }
    }
    if let Some(token) = &current {
        if is_quoted {
            return Err(token.error("a quote begins here and does not end"));
        }
        if is_escaped {
            return Err(token.error("a backslash stands before the character that it takes the meaning from"));
        }
    }
    tokens.extend(current.take());
    tokens.iter_mut().for_each(|token| token.plain_length = token.plain_length.min(token.text.len()));
    assert!(tokens.is_sorted_by_key(|token| (token.line, token.column)), "words stand in the order of their places");
    Ok(tokens)
}

impl Search {
    /// Parses a search.
    pub fn parse(text: &str, words: &SearchWords<'_>) -> Result<Search, RuleError> {
        let whole = |what: String| RuleError { line: 1, column: 1, what };
        if text.len() > RULES_BYTES_MAX {
            return Err(whole(format!("a search has at most {RULES_BYTES_MAX} bytes")));
        }
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Err(whole("a search has a test, for example size>1G; '*' finds everything".into()));
        }
        let mut parser = Parser { tokens: &tokens, at: 0, words, depth: 0 };
        let search = parser.any()?;
        match parser.peek() {
            Some(token) => Err(token.error("there is no parenthesis open that this one closes")),
            None => {
                assert_eq!(
                    (parser.at, parser.depth),
                    (tokens.len(), 0),
                    "all was read, and what was opened was closed"
                );
                Ok(search)
            }
        }
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    words: &'a SearchWords<'a>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<&'a Token> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// At the end of the text.
    fn ended(&self, what: &str) -> RuleError {
        match self.tokens.last() {
            Some(last) => {
                RuleError { line: last.line, column: last.column + last.text.len().max(1), what: what.into() }
            }
            None => RuleError { line: 1, column: 1, what: what.into() },
        }
    }

    fn any(&mut self) -> Result<Search, RuleError> {
        let mut parts = vec![self.all()?];
        while self.peek().is_some_and(|token| token.is("or")) {
            self.at += 1;
            parts.push(self.all()?);
        }
        Ok(Search::any_of(parts))
    }

    fn all(&mut self) -> Result<Search, RuleError> {
        let mut parts = vec![self.one()?];
        while let Some(token) = self.peek() {
            if token.kind == Kind::Close || token.is("or") {
                break;
            }
            self.at += usize::from(token.is("and"));
            parts.push(self.one()?);
        }
        Ok(Search::all_of(parts))
    }

    fn one(&mut self) -> Result<Search, RuleError> {
        const EXPECTED: &str = "a test is missing here, for example size>1G or *.iso";
        let token = self.next().ok_or_else(|| self.ended(EXPECTED))?;
        if token.kind == Kind::Close || token.is("and") || token.is("or") {
            return Err(token.error(EXPECTED));
        }
        let goes_deeper = token.kind == Kind::Open || token.is("not");
        if !goes_deeper {
            return self.test(token).map(|asked| Search::Test(Test(asked)));
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(token.error(format!("parentheses and 'not' go at most {DEPTH_MAX} deep")));
        }
        let search = if token.is("not") { Search::Not(Box::new(self.one()?)) } else { self.within(token)? };
        self.depth -= 1;
        Ok(search)
    }

    fn within(&mut self, open: &Token) -> Result<Search, RuleError> {
        let search = self.any()?;
        match self.next() {
            Some(token) if token.kind == Kind::Close => Ok(search),
            _ => Err(open.error("this parenthesis is not closed")),
        }
    }

    /// A test, whose sign and value may be words of their own.
    fn test(&mut self, token: &'a Token) -> Result<Asked, RuleError> {
        let Some((key, comparison, value)) = token.comparison() else {
            let sign = self.peek().filter(|next| next.comparison().is_some_and(|(key, _, _)| key.is_empty()));
            let Some(sign) = sign.filter(|_| !token.is_quoted) else { return lone(token) };
            self.at += 1;
            let Some((_, comparison, value)) = sign.comparison() else { return lone(token) };
            let value = self.value(sign, value)?;
            return asked(token, &token.text, comparison, &value, self.words);
        };
        if key.is_empty() {
            return Err(token.error("what is compared is missing in front of this sign; write for example size>1G"));
        }
        let value = self.value(token, value)?;
        asked(token, key, comparison, &value, self.words)
    }

    /// The value behind a sign, or the next word.
    fn value(&mut self, sign: &Token, value: &str) -> Result<String, RuleError> {
        if !value.is_empty() || sign.is_quoted {
            return Ok(value.to_owned());
        }
        match self.peek().filter(|next| next.kind == Kind::Word) {
            Some(next) => {
                self.at += 1;
                Ok(next.text.clone())
            }
            None => Err(sign.error("a value is missing behind this sign")),
        }
    }
}

impl Search {
    pub(super) fn all_of(parts: Vec<Search>) -> Search {
        let flat = parts.into_iter().flat_map(|part| match part {
            Search::All(parts) => parts,
            other => vec![other],
        });
        let flat: Vec<Search> = flat.collect();
        assert!(!flat.iter().any(|part| matches!(part, Search::All(_))), "parts of a whole are no such wholes");
        Search::one_or(flat, Search::All)
    }

    pub(super) fn any_of(parts: Vec<Search>) -> Search {
        let flat = parts.into_iter().flat_map(|part| match part {
            Search::Any(parts) => parts,
            other => vec![other],
        });
        let flat: Vec<Search> = flat.collect();
        assert!(!flat.iter().any(|part| matches!(part, Search::Any(_))), "parts of a choice are no such choices");
        Search::one_or(flat, Search::Any)
    }

    fn one_or(mut parts: Vec<Search>, several: impl FnOnce(Vec<Search>) -> Search) -> Search {
        assert!(!parts.is_empty(), "something is asked for");
        match parts.len() {
            1 => parts.remove(0),
            _ => several(parts),
        }
    }
}

/// A word without a comparison: a pattern, or an attribute that is there.
fn lone(token: &Token) -> Result<Asked, RuleError> {
    let text = token.text.as_str();
    if !token.is_quoted && is_attribute(text) {
        check_attribute(token, text)?;
        return Ok(Asked::Has(text.to_owned()));
    }
    match text.strip_prefix('/') {
        Some(rest) => pattern(token, TextFact::Path, false, rest),
        None if text.contains('/') => pattern(token, TextFact::Path, false, text),
        None => pattern(token, TextFact::Name, false, text),
    }
}

/// What policy says and is has keys of its own.
fn check_attribute(token: &Token, name: &str) -> Result<(), RuleError> {
    match crate::attribute::parse_name(name.as_bytes()) {
        Some(_) => Err(token.error(format!(
            "'{name}' is policy, not a user's attribute; write for example class=archive or state=pending"
        ))),
        None => Ok(()),
    }
}

fn is_attribute(key: &str) -> bool {
    let rest = key.strip_prefix(USER_PREFIX);
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(|letter| NO_KEY.contains(&letter)))
}

fn pattern(token: &Token, fact: TextFact, is_not: bool, text: &str) -> Result<Asked, RuleError> {
    let built = match &fact {
        TextFact::Extension => build_glob(&format!("*.{}", globset::escape(text)), true),
        // Values are no paths: a star is anything.
        TextFact::Attribute(_) => globset::GlobBuilder::new(text).backslash_escape(true).build(),
        TextFact::Name | TextFact::Path => build_glob(text, false),
    };
    let built = built.map_err(|error| token.error(format!("'{text}' is no pattern: {}", error.kind())))?;
    let pattern = Pattern { text: text.to_owned(), matcher: built.compile_matcher() };
    Ok(Asked::Text { fact, is_not, pattern })
}

fn asked(
    token: &Token,
    key: &str,
    comparison: Comparison,
    value: &str,
    words: &SearchWords<'_>,
) -> Result<Asked, RuleError> {
    if let Some((_, fact)) = NumberFact::KEYS.into_iter().find(|(known, _)| *known == key) {
        let value = number(token, fact, comparison, value, words)?;
        return Ok(Asked::Number { fact, comparison, value });
    }
    let text = match key {
        "name" => Some(TextFact::Name),
        "ext" => Some(TextFact::Extension),
        "path" => Some(TextFact::Path),
        _ if is_attribute(key) => {
            check_attribute(token, key)?;
            Some(TextFact::Attribute(key.to_owned()))
        }
        _ => None,
    };
    let word = WordFact::KEYS.into_iter().find(|(known, _)| *known == key).map(|(_, fact)| fact);
    if text.is_none() && word.is_none() {
        return Err(token.error(unknown(key)));
    }
    let is_not = match comparison {
        Comparison::Equal => false,
        Comparison::Other => true,
        _ => return Err(token.error(format!("'{key}' is compared with = and !="))),
    };
    match (text, word) {
        (Some(fact), _) => pattern(token, fact, is_not, value),
        (None, Some(fact)) => {
            let value = meant(fact, value, words).map_err(|what| token.error(what))?;
            Ok(Asked::Word { fact, is_not, value })
        }
        (None, None) => Err(token.error(unknown(key))),
    }
}

fn unknown(key: &str) -> String {
    let numbers = NumberFact::KEYS.iter().map(|(key, _)| *key);
    let known: Vec<&str> =
        ["name", "path", "ext"].into_iter().chain(numbers).chain(WordFact::KEYS.iter().map(|(key, _)| *key)).collect();
    format!(
        "there is no '{key}' to ask for; there are {} and user.NAME. A name with such a sign in it is name=\"...\"",
        known.join(", ")
    )
}

fn number(
    token: &Token,
    fact: NumberFact,
    comparison: Comparison,
    value: &str,
    words: &SearchWords<'_>,
) -> Result<u64, RuleError> {
    if let Some(number) = fact.unit().parse(value) {
        return Ok(number);
    }
    let expected = match (fact.unit(), fact) {
        (_, NumberFact::Owner | NumberFact::Group) if !value.starts_with(|first: char| first.is_ascii_digit()) => {
            return person(token, fact, comparison, value, words);
        }
        (Unit::Bytes, _) => "bytes, such as 10M (K, M, G, T are powers of 1024)",
        (Unit::Seconds, _) => "how long ago it was, such as 30d (s, m, h, d, w, y)",
        (Unit::Mode, _) => "an octal number, such as mode=644, or mode&111 for bits that are set",
        (Unit::One, NumberFact::Owner | NumberFact::Group) => "a name or a number, such as anna or 1000",
        (Unit::One, NumberFact::Parity) => "a number of parity units; a scheme such as 4+2 is wanted=4+2 or scheme=4+2",
        (Unit::One, _) => "a number",
    };
    Err(token.error(format!("'{value}' is not what it can be compared with; give {expected}")))
}

fn person(
    token: &Token,
    fact: NumberFact,
    comparison: Comparison,
    name: &str,
    words: &SearchWords<'_>,
) -> Result<u64, RuleError> {
    if !matches!(comparison, Comparison::Equal | Comparison::Other) {
        return Err(token.error("names are compared with = and !="));
    }
    let is_user = fact == NumberFact::Owner;
    let known = words.people.and_then(|people| if is_user { people.user(name) } else { people.group(name) });
    let what = if is_user { "user" } else { "group" };
    known.map(u64::from).ok_or_else(|| token.error(format!("this machine knows no {what} '{name}'; write the number")))
}

/// The word that is kept for a value, or what would be right.
fn meant(fact: WordFact, value: &str, words: &SearchWords<'_>) -> Result<String, String> {
    let one_of = |known: &[&str]| match known.contains(&value) {
        true => Ok(value.to_owned()),
        false => Err(format!("'{value}' is no {}; it is one of {}", fact.key(), known.join(", "))),
    };
    let listed = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    match fact {
        WordFact::Type => {
            let kind = TYPES.iter().find(|names| names.contains(&value));
            let known = TYPES.map(|names| names[0]).join(", ");
            kind.map(|names| names[0].to_owned()).ok_or_else(|| format!("'{value}' is no type; it is one of {known}"))
        }
        WordFact::Backup => one_of(&["yes", "no"]),
        WordFact::State => one_of(&STATES),
        WordFact::Residency => one_of(&RESIDENCIES),
        WordFact::Class => match words.classes.find(value) {
            Some(class) => Ok(words.classes.name(class)),
            None => Err(format!("'{value}' is no class of the pool; `stere class list` tells which it has")),
        },
        WordFact::Tier if value == "none" || words.volumes.iter().any(|name| name == value) => Ok(value.to_owned()),
        WordFact::Tier => Err(format!(
            "the pool has no medium '{value}' (it has: {}); what a file's class is, class=... asks",
            listed(words.volumes)
        )),
        WordFact::On if words.devices.iter().chain(words.volumes).any(|name| name == value) => Ok(value.to_owned()),
        WordFact::On => Err(format!(
            "the pool has no device or medium '{value}'; devices: {}; media: {}",
            listed(words.devices),
            listed(words.volumes)
        )),
        WordFact::Compress => match Compression::from_text(value) {
            Some(compression) => Ok(compression.text()),
            None => Err(format!("'{value}' is no compression; give none, lz4, zstd, or zstd:1 to zstd:19")),
        },
        WordFact::Encrypt if !value.is_empty() => Ok(value.to_owned()),
        WordFact::Encrypt => Err("encrypt is no, yes, or the name of a key".into()),
        WordFact::Wanted | WordFact::Scheme => scheme(value)
            .ok_or_else(|| format!("'{value}' is no scheme; give data and parity units, such as 1+1 or 4+2")),
    }
}

fn scheme(value: &str) -> Option<String> {
    let (data, parity) = value.split_once('+')?;
    let (data, parity): (u8, u8) = (data.parse().ok()?, parity.parse().ok()?);
    (data > 0).then(|| format!("{data}+{parity}"))
}
