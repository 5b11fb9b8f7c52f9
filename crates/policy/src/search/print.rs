//! Searches as text, which parses to the same search again.

use std::fmt::{Display, Formatter, Result};

use super::parse::USER_PREFIX;
use super::{Asked, NumberFact, Search, Test, TextFact, WordFact};
use crate::rules::{Comparison, Unit};

impl Display for Search {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let joined = |parts: &[Search], word: &str, out: &mut Formatter<'_>| {
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    write!(out, " {word} ")?;
                }
                part.print_within(out)?;
            }
            Ok(())
        };
        match self {
            Search::All(parts) => joined(parts, "and", out),
            Search::Any(parts) => joined(parts, "or", out),
            Search::Not(part) => {
                out.write_str("not ")?;
                part.print_within(out)
            }
            Search::Test(Test(asked)) => asked.fmt(out),
        }
    }
}

impl Search {
    /// As a part of something greater.
    fn print_within(&self, out: &mut Formatter<'_>) -> Result {
        match self {
            Search::All(_) | Search::Any(_) => write!(out, "({self})"),
            _ => write!(out, "{self}"),
        }
    }
}

impl Display for Asked {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let sign = |is_not: &bool| if *is_not { "!=" } else { "=" };
        match self {
            Asked::Number { fact, comparison, value } => {
                write!(out, "{}{}", fact.key(), comparison.sign())?;
                match fact.unit() {
                    Unit::Seconds => write!(out, "{value}s"),
                    Unit::Mode => write!(out, "{value:o}"),
                    Unit::One | Unit::Bytes => write!(out, "{value}"),
                }
            }
            Asked::Word { fact, is_not, value } => {
                write!(out, "{}{}{}", fact.key(), sign(is_not), Quoted(value))
            }
            Asked::Text { fact, is_not, pattern } => {
                let key = match fact {
                    TextFact::Name => "name",
                    TextFact::Extension => "ext",
                    TextFact::Path => "path",
                    TextFact::Attribute(name) => name,
                };
                write!(out, "{key}{}{}", sign(is_not), Quoted(&pattern.text))
            }
            Asked::Has(name) => {
                assert!(name.starts_with(USER_PREFIX), "only users' attributes are asked for");
                out.write_str(name)
            }
        }
    }
}

/// A word that keeps together what is in it.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let is_plain =
            !self.0.is_empty() && !self.0.contains(|letter: char| letter.is_whitespace() || "()".contains(letter));
        if is_plain { out.write_str(self.0) } else { write!(out, "\"{}\"", self.0) }
    }
}

impl NumberFact {
    fn key(self) -> &'static str {
        let known = NumberFact::KEYS.iter().find(|(_, fact)| *fact == self);
        assert!(known.is_some(), "{self:?} can be asked for by a key");
        known.map_or("", |(key, _)| key)
    }
}

impl WordFact {
    pub(super) fn key(self) -> &'static str {
        let known = WordFact::KEYS.iter().find(|(_, fact)| *fact == self);
        assert!(known.is_some(), "{self:?} can be asked for by a key");
        known.map_or("", |(key, _)| key)
    }
}

impl Comparison {
    fn sign(self) -> &'static str {
        let known = Comparison::SIGNS.iter().find(|(_, comparison)| *comparison == self);
        assert!(known.is_some(), "{self:?} has a sign");
        known.map_or("", |(sign, _)| sign)
    }
}
