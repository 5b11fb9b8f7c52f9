//! Rules: which files are stored how, by what is known of them.
//!
//! `*.c: compress=zstd, redundancy=10; size>1G age>30d: class=archive`. A rule is conditions, a colon, and settings. Rules are separated by
//! semicolons or line ends; `#` begins a comment. Where several rules match a file, each key gets its most conservative value. A
//! rule that begins with `!` overrides what the file itself says; only the pool's own rules may.
//!
//! Invariants: text that parses always gives the same decisions; matching thousands of patterns is one pass over the name.
//! Read next: `rules/parse.rs`, `rules/condition.rs`, `rules/decision.rs`.

mod condition;
mod decision;
mod parse;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Candidate, GlobSet};

use crate::attribute::Own;
use crate::classes::Classes;

pub use condition::Condition;
pub use decision::{Decided, Decision, merge};
pub use parse::RuleError;

pub(crate) use condition::{Comparison, Unit};
pub(crate) use parse::{RULES_BYTES_MAX, build_glob};

/// Names of users and groups, as the machine knows them.
pub trait People: Send + Sync + std::fmt::Debug {
    /// The number of a user.
    fn user(&self, name: &str) -> Option<u32>;
    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;
}

/// Stacks of users' plugins, as the pool knows them.
pub trait Stacks {
    /// The number of the stack that is written so.
    fn stack(&self, text: &str) -> Option<u16>;
}

/// Places on devices, as the pool knows them.
pub trait Places {
    /// The number of the place that is written so.
    fn place(&self, text: &str) -> Option<u8>;
}

/// What words in rules may mean.
#[derive(Clone, Copy)]
pub struct Vocabulary<'a> {
    /// The pool's classes.
    pub classes: &'a Classes,
    /// Who is known; without it rules name users and groups by numbers alone.
    pub people: Option<&'a dyn People>,
    /// The pool's stacks of plugins; without it any may be named, and none is meant.
    pub stacks: Option<&'a dyn Stacks>,
    /// The pool's places; without it any may be named, and none is meant.
    pub places: Option<&'a dyn Places>,
}

impl<'a> From<&'a Classes> for Vocabulary<'a> {
    fn from(classes: &'a Classes) -> Vocabulary<'a> {
        Vocabulary { classes, people: None, stacks: None, places: None }
    }
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its path from the directory of the rules, without a slash in front.
    pub path: &'a [u8],
    /// Bytes.
    pub size: u64,
    /// Seconds since its content changed.
    pub age_seconds: u64,
    /// User.
    pub owner: u32,
    /// Group.
    pub group: u32,
    /// Permissions.
    pub mode: u32,
}

impl Facts<'_> {
    /// Directories between the one with the rules and the file.
    fn depth(&self) -> u64 {
        self.path.iter().filter(|byte| **byte == b'/').count() as u64
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// As it was written, without what is around it.
    pub text: String,
    /// Whether it overrides what files say themselves.
    pub overrides: bool,
    /// All of them hold, and its patterns match.
    conditions: Vec<Condition>,
    /// What it sets.
    pub own: Own,
}

/// Rules that were parsed, ready to be matched.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    /// Patterns of names, and of which rule each is.
    names: GlobSet,
    name_rules: Vec<usize>,
    /// Patterns of paths.
    paths: GlobSet,
    path_rules: Vec<usize>,
    /// Rules without any pattern.
    others: Vec<usize>,
}

impl RuleSet {
    /// All rules, as they were written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a path decides something beyond the name: whoever asks need not find it out otherwise.
    pub fn needs_path(&self) -> bool {
        !self.path_rules.is_empty()
            || self.rules.iter().any(|rule| rule.conditions.iter().any(|condition| condition.is_of_depth()))
    }

    /// Whether something decides that changes without the name being changed.
    pub fn changes_by_itself(&self) -> bool {
        self.rules.iter().any(|rule| rule.conditions.iter().any(|condition| !condition.is_of_depth()))
    }

    /// The rules that match a file, in their order.
    pub fn matching(&self, facts: &Facts<'_>) -> Vec<&Rule> {
        let mut found: Vec<usize> = Vec::new();
        let add = |set: &GlobSet, of: &[usize], text: &[u8], found: &mut Vec<usize>| {
            if !of.is_empty() {
                let candidate = Candidate::new(Path::new(OsStr::from_bytes(text)));
                found.extend(set.matches_candidate(&candidate).into_iter().map(|pattern| of[pattern]));
            }
        };
        add(&self.names, &self.name_rules, facts.name, &mut found);
        add(&self.paths, &self.path_rules, facts.path, &mut found);
        found.extend(&self.others);
        found.sort_unstable();
        found.dedup();
        let holds = |rule: &&Rule| rule.conditions.iter().all(|condition| condition.holds(facts));
        found.into_iter().map(|index| &self.rules[index]).filter(holds).collect()
    }
}

#[cfg(test)]
mod tests;
