//! From text to rules, with line and column of what is wrong.

use std::cell::Cell;

use globset::{Glob, GlobBuilder};

use super::condition::{Comparison, Condition, Fact};
use super::error::RuleError;
use super::here::{Gates, Paths, Patterns};
use super::{Kind, People, Places, Rule, RuleSet, Stacks, Vocabulary, Weight};
use crate::attribute::{ANYWHERE_WORD, Own, Setting, TIERS_NONE};
use crate::class::Class;
use crate::keys::rule_keys;
use crate::node::{NODE_KEY_PREFIX, stored_node_word};
use crate::residency::ResidencySetting;
use crate::versions::Versions;

/// Bytes of text that a set of rules may have.
pub const RULES_BYTES_MAX: usize = 48 << 10;
/// Bytes of all patterns of one directory's rules that are more than a name, a beginning or an ending: each takes a hundred times as much
/// when it is compiled.
pub const COMPILED_BYTES_MAX: usize = 16 << 10;
/// What a pattern takes in memory, about: as it stands, for each of its bytes, and for each byte that has to be compiled.
const PATTERN_WEIGHT_BYTES: usize = 512;
const PLAIN_WEIGHT: usize = 16;
const COMPILED_WEIGHT: usize = 128;

/// A piece of the text with its place.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    line: usize,
    column: usize,
}

impl<'a> Piece<'a> {
    fn error(&self, what: impl Into<String>) -> RuleError {
        RuleError { line: self.line, column: self.column, what: what.into() }
    }

    fn from(&self, start: usize) -> Piece<'a> {
        Piece { text: &self.text[start..], line: self.line, column: self.column + start }
    }

    fn trimmed(&self) -> Piece<'a> {
        let start = self.text.len() - self.text.trim_start().len();
        let piece = self.from(start);
        Piece { text: piece.text.trim_end(), ..piece }
    }

    fn split(&self, at: usize) -> (Piece<'a>, Piece<'a>) {
        (Piece { text: &self.text[..at], ..*self }, self.from(at + 1))
    }

    /// Settings, between commas; lists (of versions and plugins) have commas of their own.
    fn settings(&self) -> Vec<Piece<'a>> {
        let mut settings: Vec<Piece<'a>> = Vec::new();
        for piece in self.pieces(|character| character == ',') {
            let key = piece.text.split('=').next().unwrap_or_default();
            let goes_on = !piece.text.contains('=') || key.contains(':');
            match settings.last_mut().filter(|last| goes_on && is_list(last.text)) {
                Some(last) => {
                    let (start, end) = (last.column - self.column, piece.column - self.column + piece.text.len());
                    last.text = &self.text[start..end];
                }
                None => settings.push(piece),
            }
        }
        settings
    }

    /// Cuts at every separator that no backslash escapes.
    fn pieces(&self, is_separator: impl Fn(char) -> bool) -> Vec<Piece<'a>> {
        let (mut pieces, mut start, mut is_escaped) = (Vec::new(), 0, false);
        for (at, character) in self.text.char_indices() {
            if is_separator(character) && !is_escaped {
                pieces.push(Piece { text: &self.text[start..at], ..self.from(start) });
                start = at + character.len_utf8();
            }
            is_escaped = character == '\\' && !is_escaped;
        }
        pieces.push(self.from(start));
        pieces.iter().map(Piece::trimmed).filter(|piece| !piece.text.is_empty()).collect()
    }
}

impl RuleSet {
    /// Parses rules. `may_override`: whether `!` is allowed.
    pub fn parse<'a>(
        text: &str,
        may_override: bool,
        vocabulary: impl Into<Vocabulary<'a>>,
    ) -> Result<RuleSet, RuleError> {
        let Vocabulary { classes, people, stacks, places } = vocabulary.into();
        let class_of = |name: &str| classes.find(name);
        RuleSet::parse_with(
            text,
            may_override,
            &Words { class_of: &class_of, people, stacks, places, is_new: true, asked: Cell::new(false) },
        )
    }

    /// Parses rules that were accepted before; classes and people that they name may be gone since.
    pub fn parse_stored<'a>(
        text: &str,
        may_override: bool,
        vocabulary: impl Into<Vocabulary<'a>>,
    ) -> Result<RuleSet, RuleError> {
        let Vocabulary { classes, people, stacks, places } = vocabulary.into();
        let class_of = |name: &str| classes.find_even_deleted(name);
        RuleSet::parse_with(
            text,
            may_override,
            &Words { class_of: &class_of, people, stacks, places, is_new: false, asked: Cell::new(false) },
        )
    }

    fn parse_with(text: &str, may_override: bool, words: &Words<'_>) -> Result<RuleSet, RuleError> {
        let whole = Piece { text, line: 1, column: 1 };
        if text.len() > RULES_BYTES_MAX {
            return Err(
                whole.error(format!("rules have at most {RULES_BYTES_MAX} bytes; spread them over directories"))
            );
        }
        let mut builder = Builder::default();
        for (number, line) in text.lines().enumerate() {
            let line = Piece { text: without_comment(line), line: number + 1, column: 1 };
            for piece in line.pieces(|character| character == ';') {
                builder.rule(piece, may_override, words)?;
            }
        }
        if words.is_new && !may_override && builder.compiled_bytes > COMPILED_BYTES_MAX {
            return Err(whole.error(format!(
                "patterns that are more than a name, a beginning* or *an-ending (braces, brackets, '?', several '*', ext=) have {} bytes \
                 together; {COMPILED_BYTES_MAX} are enough for the rules of one directory: spread them over directories, or write endings as *.c",
                builder.compiled_bytes
            )));
        }
        builder.finish(!words.asked.get()).map_err(|error| whole.error(error.to_string()))
    }
}

/// What words of rules mean.
struct Words<'a> {
    class_of: &'a dyn Fn(&str) -> Option<Class>,
    people: Option<&'a dyn People>,
    stacks: Option<&'a dyn Stacks>,
    places: Option<&'a dyn Places>,
    /// The rules were not accepted yet.
    is_new: bool,
    /// Whether people, stacks or places were named, which may mean something else at another time.
    asked: Cell<bool>,
}

impl Words<'_> {
    /// The number of a user or group; of one that is gone, a number that nobody has.
    fn number_of_name(
        &self,
        fact: Fact,
        comparison: Comparison,
        word: Piece<'_>,
        name: &str,
    ) -> Result<u64, RuleError> {
        assert!(matches!(fact, Fact::Owner | Fact::Group), "{fact:?} has no names");
        if !matches!(comparison, Comparison::Equal | Comparison::Other) {
            return Err(word.error("names are compared with = and !="));
        }
        self.asked.set(true);
        let known = self.people.and_then(|people| match fact {
            Fact::Owner => people.user(name),
            _ => people.group(name),
        });
        match known {
            Some(number) => Ok(u64::from(number)),
            None if self.is_new => {
                let what = if fact == Fact::Owner { "user" } else { "group" };
                Err(word.error(format!("this machine knows no {what} '{name}'; write the number")))
            }
            None => Ok(u64::MAX),
        }
    }
}

fn without_comment(line: &str) -> &str {
    let begins = line.char_indices().find(|(at, character)| {
        *character == '#'
            && line[..*at].chars().next_back().is_none_or(|before| before.is_whitespace() || before == ';')
    });
    begins.map_or(line, |(at, _)| &line[..at])
}

#[derive(Default)]
struct Builder {
    rules: Vec<Rule>,
    names: Vec<(Glob, usize)>,
    paths: Vec<(Glob, usize)>,
    others: Vec<usize>,
    weight_bytes: usize,
    compiled_bytes: usize,
}

/// Whether a pattern is looked up, and not compiled.
fn is_looked_up(glob: &str, ignores_case: bool) -> bool {
    let stars = glob.bytes().filter(|byte| *byte == b'*').count();
    let at_an_end = glob.starts_with('*') || glob.ends_with('*');
    !ignores_case && !glob.contains(['?', '[', '{', '\\']) && (stars == 0 || (stars == 1 && at_an_end))
}

impl Builder {
    fn weigh(&mut self, glob: &str, is_plain: bool) {
        let each = if is_plain { PLAIN_WEIGHT } else { COMPILED_WEIGHT };
        // A path is kept as a whole, in pieces, and in some directories.
        let times = if glob.contains('/') { 4 } else { 1 };
        self.weight_bytes += (PATTERN_WEIGHT_BYTES + each * glob.len()) * times;
        self.compiled_bytes += if is_plain { 0 } else { glob.len() };
        assert!(self.compiled_bytes <= self.weight_bytes, "what is compiled weighs more than its text");
    }

    fn rule(&mut self, piece: Piece<'_>, may_override: bool, words: &Words<'_>) -> Result<(), RuleError> {
        let text = piece.text.to_owned();
        let overrides = piece.text.starts_with('!');
        if overrides && !may_override {
            return Err(piece
                .error("only the rules of the pool may override with '!'; take it away, or use `stere policy load`"));
        }
        let piece = if overrides { piece.from(1).trimmed() } else { piece };
        let colon = unescaped(piece.text, ':')
            .ok_or_else(|| piece.error("a rule is CONDITIONS: KEY=VALUE, for example *.c: compress=zstd"))?;
        let (conditions, settings) = piece.split(colon);
        let index = self.rules.len();
        let mut rule = Rule { text, overrides, conditions: Vec::new(), kind: None, own: Own::default() };
        let mut has_pattern = false;
        for word in conditions.pieces(char::is_whitespace) {
            match condition(word, words)? {
                Word::Condition(condition) => rule.conditions.push(condition),
                Word::Kind(kind) => rule.kind = Some(kind),
                Word::Pattern(_) if has_pattern => {
                    return Err(word.error("a rule has one pattern; write two rules, or {one,other}"));
                }
                Word::Pattern(glob) => {
                    has_pattern = true;
                    self.weigh(glob.glob(), is_looked_up(glob.glob(), word.text.starts_with("ext=")));
                    let patterns = if word.text.contains('/') { &mut self.paths } else { &mut self.names };
                    patterns.push((glob, index));
                }
            }
        }
        if conditions.trimmed().text.is_empty() {
            return Err(conditions.error("a rule has a condition; '*' is every file"));
        }
        if !has_pattern {
            self.others.push(index);
        }
        let settings_of = settings.settings();
        if settings_of.is_empty() {
            return Err(settings.error("a rule sets something, for example copies=2"));
        }
        let mut told: Vec<Piece<'_>> = Vec::new();
        for setting in settings_of {
            match setting.text.strip_prefix(NODE_KEY_PREFIX) {
                Some(_) => told.push(setting.from(NODE_KEY_PREFIX.len())),
                None => set(&mut rule.own, setting, words)?,
            }
        }
        if let Some(first) = told.first() {
            let text = told.iter().map(|piece| piece.text).collect::<Vec<_>>().join("|");
            set_place(&mut rule.own, *first, Setting::Node, &text, words)?;
        }
        check_kind(&rule).map_err(|what| piece.error(what))?;
        self.rules.push(rule);
        Ok(())
    }

    fn finish(self, is_of_text_alone: bool) -> Result<RuleSet, globset::Error> {
        let mut with_pattern = self.names.iter().chain(&self.paths).map(|(_, rule)| *rule);
        assert!(with_pattern.all(|rule| rule < self.rules.len()), "each pattern is of a rule");
        let patterns = self.names.len() + self.paths.len();
        assert_eq!(patterns + self.others.len(), self.rules.len(), "a rule has one pattern or none");
        let names = Patterns::build(self.names.iter().map(|(glob, rule)| (glob, *rule)))?;
        let others_ask_for_facts = self.others.iter().any(|at| self.rules[*at].asks_for_facts());
        Ok(RuleSet {
            names,
            paths: Paths::build(self.paths)?,
            others: Gates::build(&self.rules, &self.others),
            others_ask_for_facts,
            is_of_text_alone,
            weight: Weight { bytes: self.weight_bytes + self.rules.len() * size_of::<Rule>(), total: None },
            rules: self.rules,
        })
    }
}

fn unescaped(text: &str, wanted: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, character) in text.char_indices() {
        if character == wanted && !is_escaped {
            return Some(at);
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    None
}

fn is_list(setting: &str) -> bool {
    setting.split_once('=').is_some_and(|(key, _)| matches!(key.trim(), "versions" | "plugins" | "on" | "only"))
}

/// Whether what a rule says can be said of what it is for.
fn check_kind(rule: &Rule) -> Result<(), &'static str> {
    let residency = rule.own.residency;
    let is_of_directories = residency.says(ResidencySetting::Unit) || residency.says(ResidencySetting::Names);
    let is_of_content = rule.conditions.iter().any(Condition::is_of_content);
    let says_more = !Own { residency: Default::default(), ..rule.own }.is_empty();
    match rule.kind {
        Some(Kind::File) if is_of_directories => {
            Err("unit= and names= are said of directories; write type=directory, or nothing, instead of type=file")
        }
        Some(Kind::Directory) if says_more => Err(
            "rules for directories say pin=, unit= and names=; the rest is said of files: write another rule for them",
        ),
        Some(Kind::Directory) if is_of_content => Err("rules know no size and no age of directories; leave that out"),
        _ if is_of_directories && is_of_content => {
            Err("unit= and names= are said of directories, of which rules know no size and no age; leave that out")
        }
        _ => Ok(()),
    }
}

/// A place, whose words the pool has a number for.
fn set_place(
    own: &mut Own,
    piece: Piece<'_>,
    setting: Setting,
    value: &str,
    words: &Words<'_>,
) -> Result<(), RuleError> {
    words.asked.set(true);
    if own.get(setting).is_some() {
        return Err(piece.error(format!("'{}' is set twice in this rule", setting.word())));
    }
    let value = if setting == Setting::Node { stored_node_word(value) } else { value };
    let number_of = |places: &dyn Places| match setting {
        Setting::Node => places.node(value),
        _ => places.place(value),
    };
    let number = match words.places {
        _ if value == ANYWHERE_WORD => ANYWHERE_WORD.to_owned(),
        // Nobody asks what comes of it.
        None => ANYWHERE_WORD.to_owned(),
        Some(places) => match number_of(places) {
            Some(number) => format!("#{number}"),
            None if words.is_new => {
                let (key, expected) = (setting.word(), setting.expected());
                return Err(piece.error(format!("'{value}' is not understood for {key}; give {expected}")));
            }
            None => return Ok(()),
        },
    };
    own.set(setting, number.as_bytes()).map_err(|error| piece.error(error.to_string()))
}

/// Media, by their names.
fn set_media(own: &mut Own, piece: Piece<'_>, value: &str, words: &Words<'_>) -> Result<(), RuleError> {
    words.asked.set(true);
    // Nobody asks what comes of it.
    let Some(places) = words.places else {
        own.tiers = TIERS_NONE;
        return Ok(());
    };
    match places.media(value) {
        Some(set) => {
            assert!((1..TIERS_NONE).contains(&set), "a set of media has some, and is not none");
            own.tiers = set;
            Ok(())
        }
        None if words.is_new => {
            let (key, expected) = (Setting::Tier.word(), Setting::Tier.expected());
            Err(piece.error(format!("'{value}' is not understood for {key}; give {expected}")))
        }
        // A medium that was removed takes nothing any more.
        None => Ok(()),
    }
}

/// Versions and plugins, which are lists.
fn set_list(own: &mut Own, piece: Piece<'_>, key: &str, value: &str, words: &Words<'_>) -> Result<(), RuleError> {
    let is_set = if key == "versions" { own.versions.is_some() } else { own.plugins != 0 };
    if is_set {
        return Err(piece.error(format!("'{key}' is set twice in this rule")));
    }
    if key == "versions" {
        let versions = Versions::parse(value.as_bytes()).map_err(|error| piece.error(error.to_string()))?;
        own.versions = Some(versions);
        return Ok(());
    }
    words.asked.set(true);
    own.plugins = match words.stacks {
        _ if value == "none" => 1,
        None => 0,
        // Plugins that are gone do nothing any more.
        Some(stacks) => match stacks.stack(value) {
            Some(number) => number + 1,
            None if words.is_new => {
                return Err(piece.error(format!(
                    "'{value}': the pool does not have these plugins; `stere plugin list` tells which it has"
                )));
            }
            None => 0,
        },
    };
    Ok(())
}

fn set(own: &mut Own, piece: Piece<'_>, words: &Words<'_>) -> Result<(), RuleError> {
    let (key, value) =
        piece.text.split_once('=').ok_or_else(|| piece.error("settings are KEY=VALUE, separated by commas"))?;
    let (key, value) = (key.trim(), value.trim());
    if matches!(key, "versions" | "plugins") {
        return set_list(own, piece, key, value, words);
    }
    if let Some(keep) = ResidencySetting::from_word(key) {
        if value.is_empty() {
            return Err(piece.error(format!("'{key}' needs a value: {}", keep.expected())));
        }
        if own.residency.says(keep) {
            return Err(piece.error(format!("'{key}' is set twice in this rule")));
        }
        return own.residency.set(keep, value.as_bytes()).map_err(|error| piece.error(error.to_string()));
    }
    let setting = Setting::from_word(key)
        .ok_or_else(|| piece.error(format!("'{key}' is not a key of rules; the keys are {}", rule_keys())))?;
    if value.is_empty() {
        return Err(piece.error(format!("'{key}' needs a value: {}", setting.expected())));
    }
    if own.get(setting).is_some() {
        return Err(piece.error(format!("'{key}' is set twice in this rule")));
    }
    if setting == Setting::Encrypt && !matches!(value, "yes" | "no") {
        return Err(piece.error("a rule can say encrypt=yes or encrypt=no; which key it is, a directory says"));
    }
    if matches!(setting, Setting::On | Setting::Only | Setting::Node) {
        return set_place(own, piece, setting, value, words);
    }
    if setting == Setting::Tier && value != "none" {
        return set_media(own, piece, value, words);
    }
    if setting == Setting::Class {
        let class = (words.class_of)(value)
            .ok_or_else(|| piece.error(format!("'{value}' is no class; give {}", setting.expected())))?;
        own.class = class.code();
        return Ok(());
    }
    own.set(setting, value.as_bytes()).map_err(|error| piece.error(error.to_string()))
}

enum Word {
    Pattern(Glob),
    Condition(Condition),
    Kind(Kind),
}

const FACTS: [(&str, Fact); 6] = [
    ("size", Fact::Size),
    ("age", Fact::AgeSeconds),
    ("owner", Fact::Owner),
    ("group", Fact::Group),
    ("mode", Fact::Mode),
    ("depth", Fact::Depth),
];

fn condition(word: Piece<'_>, words: &Words<'_>) -> Result<Word, RuleError> {
    if let Some(kind) = word.text.strip_prefix("type=") {
        return match kind {
            "file" => Ok(Word::Kind(Kind::File)),
            "directory" => Ok(Word::Kind(Kind::Directory)),
            _ => Err(word.error("rules are for files and directories: type=file, type=directory")),
        };
    }
    if let Some(extension) = word.text.strip_prefix("ext=") {
        return pattern(word, &format!("*.{}", globset::escape(extension)), true);
    }
    for (name, fact) in FACTS {
        let Some(rest) = word.text.strip_prefix(name) else { continue };
        let Some((comparison, value)) = Comparison::strip(rest) else { continue };
        let is_name =
            matches!(fact, Fact::Owner | Fact::Group) && value.starts_with(|first: char| !first.is_ascii_digit());
        let value = match is_name {
            true => words.number_of_name(fact, comparison, word, value)?,
            false => fact.unit().parse(value).ok_or_else(|| word.error(expected(fact)))?,
        };
        return Ok(Word::Condition(Condition { fact, comparison, value }));
    }
    pattern(word, word.text.strip_prefix('/').unwrap_or(word.text), false)
}

fn pattern(word: Piece<'_>, glob: &str, ignores_case: bool) -> Result<Word, RuleError> {
    let build = if word.text.contains('/') { build_glob } else { build_glob_of_names };
    let built = build(glob, ignores_case)
        .map_err(|error| word.error(format!("'{}' is no pattern: {}", word.text, error.kind())))?;
    Ok(Word::Pattern(built))
}

/// Patterns as they are everywhere: `*` does not go beyond a slash, a backslash takes meaning away.
pub(crate) fn build_glob(glob: &str, ignores_case: bool) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).case_insensitive(ignores_case).build()
}

/// The same for names, which have no slash: so that ends and beginnings are looked up and not tried one after another.
pub(super) fn build_glob_of_names(glob: &str, ignores_case: bool) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).backslash_escape(true).case_insensitive(ignores_case).build()
}

fn expected(fact: Fact) -> String {
    let what = match fact {
        Fact::Size => "size is compared with bytes, such as size>10M (K, M, G, T are powers of 1024)",
        Fact::AgeSeconds => "age is compared with a time, such as age>30d (s, m, h, d, w, y)",
        Fact::Owner | Fact::Group => {
            "owner and group are compared with a name or a number, such as owner=anna or owner=1000"
        }
        Fact::Mode => "mode is octal, such as mode=644, or mode&111 for bits that are set",
        Fact::Depth => "depth counts directories below the one with the rules, such as depth>2",
    };
    what.into()
}
