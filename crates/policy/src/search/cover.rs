//! What an index can tell of a search: facts of which one must hold of everything that is found.
//!
//! Invariant: a cover holds of all that the search finds, and perhaps of more. Only what must be so can be one: no part of a `not`, and of
//! an `or` only all parts together. Read next: the crate features' `search/candidates.rs`.

use crate::rules::Comparison;

use super::{Asked, NumberFact, Search, Test, TextFact, WordFact};

/// A fact that an index knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Indexed {
    /// Its size is this at least.
    SizeAtLeast(u64),
    /// It has this attribute of a user; perhaps with this value.
    Attribute(String, Option<String>),
    /// Its policy comes to this class.
    Class(String),
    /// Its policy names this medium.
    Tier(String),
}

impl Search {
    /// Covers, each of which would do alone: one of its facts holds of everything that is found.
    pub fn covers(&self) -> Vec<Vec<Indexed>> {
        match self {
            Search::All(parts) => parts.iter().flat_map(Search::covers).collect(),
            Search::Any(parts) => {
                // Of no parts the cover would hold of nothing.
                assert!(!parts.is_empty(), "a choice has parts");
                let firsts: Option<Vec<Vec<Indexed>>> =
                    parts.iter().map(|part| part.covers().into_iter().next()).collect();
                firsts.map(|firsts| firsts.concat()).into_iter().collect()
            }
            Search::Not(_) => Vec::new(),
            Search::Test(Test(asked)) => asked.indexed().map(|indexed| vec![indexed]).into_iter().collect(),
        }
    }
}

impl Asked {
    fn indexed(&self) -> Option<Indexed> {
        match self {
            Asked::Number { fact: NumberFact::Size, comparison, value } => match comparison {
                Comparison::Equal | Comparison::AtLeast => Some(Indexed::SizeAtLeast(*value)),
                Comparison::More => value.checked_add(1).map(Indexed::SizeAtLeast),
                _ => None,
            },
            Asked::Word { fact: WordFact::Class, is_not: false, value } => Some(Indexed::Class(value.clone())),
            Asked::Word { fact: WordFact::Tier, is_not: false, value } if value != "none" => {
                Some(Indexed::Tier(value.clone()))
            }
            Asked::Text { fact: TextFact::Attribute(name), is_not: false, pattern } => {
                // What means something in a pattern stands for several values.
                let is_one = pattern.text.bytes().all(|byte| !b"*?[]{}!\\,".contains(&byte));
                Some(Indexed::Attribute(name.clone(), is_one.then(|| pattern.text.clone())))
            }
            Asked::Has(name) => Some(Indexed::Attribute(name.clone(), None)),
            _ => None,
        }
    }
}
