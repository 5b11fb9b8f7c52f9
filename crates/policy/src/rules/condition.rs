//! Conditions on what is known of a file beside its name.

use super::Facts;

/// Something that a file must fulfil.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    pub(super) fact: Fact,
    pub(super) comparison: Comparison,
    pub(super) value: u64,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fact {
    Size,
    AgeSeconds,
    Owner,
    Group,
    Mode,
    Depth,
}

/// How.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    AtMost,
    Equal,
    Other,
    AtLeast,
    More,
    /// All of these bits are set.
    Has,
}

impl Condition {
    pub(super) fn is_of_depth(&self) -> bool {
        self.fact == Fact::Depth
    }

    pub(super) fn holds(&self, facts: &Facts<'_>) -> bool {
        let known = match self.fact {
            Fact::Size => facts.size,
            Fact::AgeSeconds => facts.age_seconds,
            Fact::Owner => u64::from(facts.owner),
            Fact::Group => u64::from(facts.group),
            Fact::Mode => u64::from(facts.mode & 0o7777),
            Fact::Depth => facts.depth(),
        };
        match self.comparison {
            Comparison::Less => known < self.value,
            Comparison::AtMost => known <= self.value,
            Comparison::Equal => known == self.value,
            Comparison::Other => known != self.value,
            Comparison::AtLeast => known >= self.value,
            Comparison::More => known > self.value,
            Comparison::Has => known & self.value == self.value,
        }
    }
}
