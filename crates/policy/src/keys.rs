//! The keys of policy, in one table: what can be set on files and directories, with which values, and who may say what where.
//!
//! Messages, the command's help and its lists are made of this table. A key that is recognised (`parse_name`) and is not in it, or the other
//! way round, fails a test.

use crate::attribute::{List, Setting};
use crate::residency::ResidencySetting;
use crate::retention::RETAIN_EXPECTED;
use crate::versions::VERSIONS_EXPECTED;

/// What values `plugins` takes, for messages.
pub const PLUGINS_EXPECTED: &str =
    "NAME[:PARAMETERS],... of plugins that the pool has, at most 8 (see `stere plugin list`), or none";
/// What values `rules` takes, for messages.
pub const RULES_EXPECTED: &str =
    "PATTERN: KEY=VALUE, ...; ... on a directory, such as '*.c: compress=zstd; size>1G: class=archive'";

/// One key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyKey {
    /// As people write it.
    pub word: &'static str,
    /// What values it takes.
    pub expected: &'static str,
    /// Whether the administrator can lock it.
    pub is_lockable: bool,
    /// Whether rules can say it.
    pub is_for_rules: bool,
    /// Whether classes can.
    pub is_for_classes: bool,
}

/// All keys that can be set, in the order they are listed.
pub fn policy_keys() -> impl Iterator<Item = PolicyKey> {
    let settings = Setting::ALL.into_iter().map(|setting| PolicyKey {
        word: setting.word(),
        expected: setting.expected(),
        is_lockable: true,
        is_for_rules: true,
        is_for_classes: setting != Setting::Class,
    });
    let lists = List::ALL.into_iter().map(|list| PolicyKey {
        word: list.word(),
        expected: match list {
            List::Plugins => PLUGINS_EXPECTED,
            List::Versions => VERSIONS_EXPECTED,
        },
        is_lockable: true,
        is_for_rules: true,
        is_for_classes: true,
    });
    let keeps = ResidencySetting::ALL.into_iter().map(|keep| PolicyKey {
        word: keep.word(),
        expected: keep.expected(),
        is_lockable: false,
        is_for_rules: true,
        is_for_classes: true,
    });
    let alone = |word, expected, is_lockable| PolicyKey {
        word,
        expected,
        is_lockable,
        is_for_rules: false,
        is_for_classes: false,
    };
    let (retain, rules) = (alone("retain", RETAIN_EXPECTED, true), alone("rules", RULES_EXPECTED, false));
    settings.chain(lists).chain(keeps).chain([retain, rules])
}

/// The key that people call by `word`.
pub fn policy_key(word: &str) -> Option<PolicyKey> {
    policy_keys().find(|key| key.word == word)
}

fn listed(keys: impl Iterator<Item = PolicyKey>) -> String {
    keys.map(|key| key.word).collect::<Vec<_>>().join(", ")
}

/// All keys, for messages.
pub fn settable_keys() -> String {
    listed(policy_keys())
}

/// Those that can be locked, for messages.
pub fn lockable_keys() -> String {
    listed(policy_keys().filter(|key| key.is_lockable))
}

/// Those that rules can say, for messages.
pub fn rule_keys() -> String {
    listed(policy_keys().filter(|key| key.is_for_rules))
}

/// Those that classes can say, for messages.
pub fn class_keys() -> String {
    listed(policy_keys().filter(|key| key.is_for_classes))
}

#[cfg(test)]
mod tests;
