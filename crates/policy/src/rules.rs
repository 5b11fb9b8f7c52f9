//! Rules: which files are stored how, by what is known of them.
//!
//! `*.c: compress=zstd, redundancy=10; size>1G age>30d: class=archive`. A rule is conditions, a colon, and settings. Rules are separated by
//! semicolons or line ends; `#` begins a comment. Where several rules match a file, each key gets its most conservative value. A
//! rule that begins with `!` overrides what the file itself says; only the pool's own rules may. Rules decide for files; `pin`, `unit` and
//! `names` (`crate::residency`) are said of directories that match, too.
//!
//! Invariants: text that parses always gives the same decisions; matching thousands of patterns is one pass over the name.
//! Read next: `rules/parse.rs`, `rules/condition.rs`, `rules/here.rs`, `rules/decision.rs`.

mod condition;
mod decision;
mod error;
mod here;
mod parse;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::attribute::Own;
use crate::classes::Classes;
use crate::residency::{ResidencySetting, ResidencySettings};

pub use condition::Condition;
pub use decision::{Decided, Decision, merge, residency_of};
pub use error::RuleError;
pub use here::Here;

use here::{Gates, Paths, Patterns};

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

/// Places on devices, settings for nodes, and media, as the pool knows them.
pub trait Places {
    /// The number of the place that is written so.
    fn place(&self, text: &str) -> Option<u8>;
    /// The number of the settings for nodes that are written so.
    fn node(&self, text: &str) -> Option<u8>;
    /// The media that are written so, as a set; those that the pool does not have are left out.
    fn media(&self, text: &str) -> Option<u16>;
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

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// As it was written, without what is around it.
    pub text: String,
    /// Whether it overrides what files say themselves.
    pub overrides: bool,
    /// All of them hold, and its patterns match.
    conditions: Vec<Condition>,
    /// What it is for; files and directories if it does not say.
    kind: Option<Kind>,
    /// What it sets.
    pub own: Own,
}

/// What a rule may be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

impl Rule {
    /// Whether what it decides of a file, and is noted there, depends on what changes without a name being changed.
    fn asks_for_facts(&self) -> bool {
        let is_noted = !Own { residency: Default::default(), ..self.own }.is_empty();
        is_noted && self.conditions.iter().any(|condition| !condition.is_of_depth())
    }

    /// Whether it says something of files.
    fn is_for_files(&self) -> bool {
        let [pin, release] = [ResidencySetting::Pin, ResidencySetting::Release].map(|one| self.own.residency.only(one));
        let residency = ResidencySettings { release_seconds: release.release_seconds, ..pin };
        let of_files = Own { residency, ..self.own };
        self.kind != Some(Kind::Directory) && !of_files.is_empty()
    }

    /// Whether it says something of directories, and what is below them: not if it asks for what they do not have.
    fn is_for_directories(&self) -> bool {
        let says = !self.own.residency.is_empty() || self.own.class().is_some();
        let is_of_content = self.conditions.iter().any(Condition::is_of_content);
        says && !is_of_content && self.kind != Some(Kind::File)
    }
}

/// Rules that were parsed, ready to be matched.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<Rule>,
    names: Patterns,
    paths: Paths,
    /// Rules without any pattern.
    others: Gates,
    others_ask_for_facts: bool,
    is_of_text_alone: bool,
    weight: Weight,
}

/// What rules take in memory, about, and where that is counted while they are there.
#[derive(Debug, Default)]
struct Weight {
    bytes: usize,
    total: Option<Arc<AtomicUsize>>,
}

impl Drop for Weight {
    fn drop(&mut self) {
        if let Some(total) = &self.total {
            let before = total.fetch_sub(self.bytes, Ordering::AcqRel);
            assert!(before >= self.bytes, "{} bytes of rules go, and {before} were counted", self.bytes);
        }
    }
}

impl RuleSet {
    /// All rules, as they were written.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// About how many bytes of memory they take.
    pub fn weight_bytes(&self) -> usize {
        self.weight.bytes
    }

    /// Counts them in a total for as long as they are there.
    pub fn count_in(&mut self, total: &Arc<AtomicUsize>) {
        assert!(self.weight.total.is_none(), "rules are counted once");
        total.fetch_add(self.weight.bytes, Ordering::AcqRel);
        self.weight.total = Some(total.clone());
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a path decides something beyond the name: whoever asks need not find it out otherwise.
    pub fn needs_path(&self) -> bool {
        !self.paths.is_empty()
            || self.rules.iter().any(|rule| rule.conditions.iter().any(|condition| condition.is_of_depth()))
    }

    /// Whether something decides that changes without the name being changed.
    pub fn changes_by_itself(&self) -> bool {
        self.rules.iter().any(Rule::asks_for_facts)
    }

    /// Whether the same text and the same classes always come to the same rules: they name no people, places or plugins.
    pub fn is_of_text_alone(&self) -> bool {
        self.is_of_text_alone
    }
}

#[cfg(test)]
mod tests;
