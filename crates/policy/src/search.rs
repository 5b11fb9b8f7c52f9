//! Searches: which files somebody looks for, by what is known of them.
//!
//! `size>1G and tier=vault and not (*.iso or state=compliant)`. A search is tests, joined by `and`, `or`, `not` and parentheses;
//! tests that stand beside each other must all hold, as conditions of rules do. Patterns, sizes and ages are those of rules.
//!
//! Invariants: what is printed parses to the same search again; what costs little to find out is asked first, so that what
//! costs much is asked of few. A fact that a file does not have is unlike every value: `=` and orders are false of it, `!=` is true.
//! Read next: `search/parse.rs`; stere-naming's `find.rs` knows the facts.

mod cover;
mod parse;
mod print;

use globset::GlobMatcher;

pub use cover::Indexed;

use crate::classes::Classes;
use crate::rules::{Comparison, People, Unit};

/// A number that is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberFact {
    /// Bytes of content.
    Size,
    /// Seconds since content changed.
    Age,
    /// Seconds since anything changed.
    Changed,
    /// Seconds since it was read.
    Accessed,
    /// Seconds since it was made.
    Made,
    /// User.
    Owner,
    /// Group.
    Group,
    /// Permissions.
    Mode,
    /// Directories between the one that is searched and the file.
    Depth,
    /// Hard links.
    Links,
    /// Its number.
    Inode,
    /// Copies that its policy asks for.
    Copies,
    /// Parity units that its policy asks for.
    Parity,
    /// The place on the scale that its policy asks for.
    Redundancy,
    /// Device losses that it survives as it lies.
    Survives,
    /// Bytes stored of it, before copies and parity.
    Stored,
}

/// A word that is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordFact {
    /// What kind of file it is.
    Type,
    /// Its class.
    Class,
    /// Compression that its policy asks for.
    Compress,
    /// Encryption that its policy asks for.
    Encrypt,
    /// A medium that its policy asks for.
    Tier,
    /// Whether it is copied to the destinations of backups.
    Backup,
    /// The scheme that its policy comes to now.
    Wanted,
    /// A scheme that some of it is stored with.
    Scheme,
    /// A device or medium that some of it lies on.
    On,
    /// Whether it lies as its policy asks.
    State,
    /// How near its bytes are.
    Residency,
}

/// Text that is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextFact {
    /// Its name.
    Name,
    /// The end of its name, behind the dot, in any case.
    Extension,
    /// Its path from the directory that is searched.
    Path,
    /// The value of a user's attribute, by its whole name.
    Attribute(String),
}

/// What has to be looked at to know a fact, the cheapest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The inode.
    Inode,
    /// Its name.
    Name,
    /// The directories above it.
    Place,
    /// What policy says of it.
    Policy,
    /// Its attributes.
    Attributes,
    /// Where its content lies.
    Content,
}

/// Who knows the facts of one file.
pub trait Subject {
    /// What can go wrong.
    type Error;
    /// A number; none if the file has no such.
    fn number(&mut self, fact: NumberFact) -> Result<Option<u64>, Self::Error>;
    /// Whether the word is one of those that are so of the file.
    fn is(&mut self, fact: WordFact, word: &str) -> Result<bool, Self::Error>;
    /// Whether the file has the text, and it matches.
    fn matches(&mut self, fact: &TextFact, matches: &dyn Fn(&[u8]) -> bool) -> Result<bool, Self::Error>;
}

/// What words of a search may mean.
#[derive(Debug, Clone, Copy)]
pub struct SearchWords<'a> {
    /// The pool's classes.
    pub classes: &'a Classes,
    /// Who is known; without it users and groups are numbers.
    pub people: Option<&'a dyn People>,
    /// Names of the pool's devices.
    pub devices: &'a [String],
    /// Names of its media.
    pub volumes: &'a [String],
}

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// All of these; at least two, none of them an `All`.
    All(Vec<Search>),
    /// One of these; at least two, none of them an `Any`.
    Any(Vec<Search>),
    /// Not this.
    Not(Box<Search>),
    /// This is so.
    Test(Test),
}

/// One thing that is so or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test(Asked);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Number {
        fact: NumberFact,
        comparison: Comparison,
        value: u64,
    },
    Word {
        fact: WordFact,
        is_not: bool,
        value: String,
    },
    Text {
        fact: TextFact,
        is_not: bool,
        pattern: Pattern,
    },
    /// The file has this attribute.
    Has(String),
}

/// A pattern and how it was written.
#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    matcher: GlobMatcher,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl NumberFact {
    const KEYS: [(&'static str, NumberFact); 17] = [
        ("size", NumberFact::Size),
        ("age", NumberFact::Age),
        ("mtime", NumberFact::Age),
        ("ctime", NumberFact::Changed),
        ("atime", NumberFact::Accessed),
        ("btime", NumberFact::Made),
        ("owner", NumberFact::Owner),
        ("group", NumberFact::Group),
        ("mode", NumberFact::Mode),
        ("depth", NumberFact::Depth),
        ("links", NumberFact::Links),
        ("inode", NumberFact::Inode),
        ("copies", NumberFact::Copies),
        ("parity", NumberFact::Parity),
        ("redundancy", NumberFact::Redundancy),
        ("survives", NumberFact::Survives),
        ("stored", NumberFact::Stored),
    ];

    fn unit(self) -> Unit {
        match self {
            NumberFact::Size | NumberFact::Stored => Unit::Bytes,
            NumberFact::Age | NumberFact::Changed | NumberFact::Accessed | NumberFact::Made => Unit::Seconds,
            NumberFact::Mode => Unit::Mode,
            _ => Unit::One,
        }
    }

    /// What has to be looked at to know it.
    pub fn level(self) -> Level {
        match self {
            NumberFact::Depth => Level::Place,
            NumberFact::Copies | NumberFact::Parity | NumberFact::Redundancy => Level::Policy,
            NumberFact::Survives | NumberFact::Stored => Level::Content,
            _ => Level::Inode,
        }
    }
}

impl WordFact {
    const KEYS: [(&'static str, WordFact); 11] = [
        ("type", WordFact::Type),
        ("class", WordFact::Class),
        ("compress", WordFact::Compress),
        ("encrypt", WordFact::Encrypt),
        ("tier", WordFact::Tier),
        ("backup", WordFact::Backup),
        ("wanted", WordFact::Wanted),
        ("scheme", WordFact::Scheme),
        ("on", WordFact::On),
        ("state", WordFact::State),
        ("residency", WordFact::Residency),
    ];

    /// What has to be looked at to know it.
    pub fn level(self) -> Level {
        match self {
            WordFact::Type => Level::Inode,
            WordFact::Class
            | WordFact::Compress
            | WordFact::Encrypt
            | WordFact::Tier
            | WordFact::Backup
            | WordFact::Wanted => Level::Policy,
            WordFact::Scheme | WordFact::On | WordFact::State | WordFact::Residency => Level::Content,
        }
    }
}

impl TextFact {
    fn level(&self) -> Level {
        match self {
            TextFact::Name | TextFact::Extension => Level::Name,
            TextFact::Path => Level::Place,
            TextFact::Attribute(_) => Level::Attributes,
        }
    }
}

impl Search {
    /// What must be looked at to know whether it is so.
    pub fn level(&self) -> Level {
        match self {
            Search::All(parts) | Search::Any(parts) => parts.iter().map(Search::level).max().unwrap_or(Level::Inode),
            Search::Not(part) => part.level(),
            Search::Test(Test(Asked::Number { fact, .. })) => fact.level(),
            Search::Test(Test(Asked::Word { fact, .. })) => fact.level(),
            Search::Test(Test(Asked::Text { fact, .. })) => fact.level(),
            Search::Test(Test(Asked::Has(_))) => Level::Attributes,
        }
    }

    /// The same with the cheapest first everywhere, as parts that must all hold.
    pub fn into_steps(self) -> Vec<Search> {
        let steps = match self.cheapest_first() {
            Search::All(parts) => parts,
            other => vec![other],
        };
        assert!(steps.is_sorted_by_key(Search::level), "what costs little to find out is asked first");
        steps
    }

    fn cheapest_first(self) -> Search {
        let sorted = |parts: Vec<Search>| {
            let mut parts: Vec<Search> = parts.into_iter().map(Search::cheapest_first).collect();
            parts.sort_by_key(Search::level);
            parts
        };
        match self {
            Search::All(parts) => Search::All(sorted(parts)),
            Search::Any(parts) => Search::Any(sorted(parts)),
            Search::Not(part) => Search::Not(Box::new(part.cheapest_first())),
            test => test,
        }
    }

    /// Whether it is so of a file; asks no more than it needs to know.
    pub fn holds<S: Subject>(&self, subject: &mut S) -> Result<bool, S::Error> {
        match self {
            Search::All(parts) => {
                assert!(parts.len() > 1, "a whole has several parts, not {}", parts.len());
                for part in parts {
                    if !part.holds(subject)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Search::Any(parts) => {
                assert!(parts.len() > 1, "a choice has several parts, not {}", parts.len());
                for part in parts {
                    if part.holds(subject)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Search::Not(part) => Ok(!part.holds(subject)?),
            Search::Test(Test(asked)) => asked.holds(subject),
        }
    }
}

impl Asked {
    fn holds<S: Subject>(&self, subject: &mut S) -> Result<bool, S::Error> {
        match self {
            Asked::Number { fact, comparison, value } => Ok(match subject.number(*fact)? {
                Some(known) => comparison.holds(known, *value),
                None => *comparison == Comparison::Other,
            }),
            // Only files are in a state, so nothing else is in another one.
            Asked::Word { fact: WordFact::State | WordFact::Residency, is_not: true, .. }
                if !subject.is(WordFact::Type, "file")? =>
            {
                Ok(false)
            }
            Asked::Word { fact, is_not, value } => Ok(subject.is(*fact, value)? != *is_not),
            Asked::Text { fact, is_not, pattern } => {
                let matches = |text: &[u8]| pattern.matches(text);
                Ok(subject.matches(fact, &matches)? != *is_not)
            }
            Asked::Has(name) => subject.matches(&TextFact::Attribute(name.clone()), &|_| true),
        }
    }
}

impl Pattern {
    fn matches(&self, text: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt;
        self.matcher.is_match(std::path::Path::new(std::ffi::OsStr::from_bytes(text)))
    }
}

#[cfg(test)]
mod tests;
