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
pub(crate) enum Comparison {
    Less,
    AtMost,
    Equal,
    Other,
    AtLeast,
    More,
    /// All of these bits are set.
    Has,
}

impl Fact {
    pub(super) fn unit(self) -> Unit {
        match self {
            Fact::Size => Unit::Bytes,
            Fact::AgeSeconds => Unit::Seconds,
            Fact::Mode => Unit::Mode,
            Fact::Owner | Fact::Group | Fact::Depth => Unit::One,
        }
    }

    /// What is so. `depth`: directories between the one with the rules and the file.
    pub(super) fn of(self, facts: &Facts<'_>, depth: u64) -> u64 {
        match self {
            Fact::Size => facts.size,
            Fact::AgeSeconds => facts.age_seconds,
            Fact::Owner => u64::from(facts.owner),
            Fact::Group => u64::from(facts.group),
            Fact::Mode => u64::from(facts.mode & 0o7777),
            Fact::Depth => depth,
        }
    }
}

impl Condition {
    pub(super) fn is_of_depth(&self) -> bool {
        self.fact == Fact::Depth
    }

    /// Whether it is on something that directories do not have.
    pub(super) fn is_of_content(&self) -> bool {
        matches!(self.fact, Fact::Size | Fact::AgeSeconds)
    }

    pub(super) fn holds(&self, facts: &Facts<'_>, depth: u64) -> bool {
        self.comparison.holds(self.fact.of(facts, depth), self.value)
    }
}

const _: () = {
    let mut at = 1;
    while at < Comparison::SIGNS.len() {
        assert!(Comparison::SIGNS[at - 1].0.len() >= Comparison::SIGNS[at].0.len(), "longer signs stand first");
        at += 1;
    }
};

impl Comparison {
    /// All of them as they are written; those that others begin with come behind them.
    pub(crate) const SIGNS: [(&str, Comparison); 7] = [
        ("<=", Comparison::AtMost),
        (">=", Comparison::AtLeast),
        ("!=", Comparison::Other),
        ("<", Comparison::Less),
        (">", Comparison::More),
        ("=", Comparison::Equal),
        ("&", Comparison::Has),
    ];

    /// The comparison that a text begins with, and what stands behind it.
    pub(crate) fn strip(text: &str) -> Option<(Comparison, &str)> {
        Comparison::SIGNS.iter().find_map(|(sign, comparison)| Some((*comparison, text.strip_prefix(sign)?)))
    }

    pub(crate) fn holds(self, known: u64, value: u64) -> bool {
        match self {
            Comparison::Less => known < value,
            Comparison::AtMost => known <= value,
            Comparison::Equal => known == value,
            Comparison::Other => known != value,
            Comparison::AtLeast => known >= value,
            Comparison::More => known > value,
            Comparison::Has => known & value == value,
        }
    }
}

/// What a number counts, which says how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    One,
    /// K, M, G, T are powers of 1024.
    Bytes,
    /// s, m, h, d, w, y.
    Seconds,
    /// Octal.
    Mode,
}

impl Unit {
    /// The number that a text means.
    pub(crate) fn parse(self, text: &str) -> Option<u64> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if self == Unit::Mode {
            return u64::from_str_radix(number, 8).ok().filter(|_| unit.is_empty());
        }
        let number: u64 = number.parse().ok()?;
        let factor = match (self, unit) {
            (_, "") if self != Unit::Seconds || number == 0 => 1,
            (Unit::Bytes, "K") => 1 << 10,
            (Unit::Bytes, "M") => 1 << 20,
            (Unit::Bytes, "G") => 1 << 30,
            (Unit::Bytes, "T") => 1 << 40,
            (Unit::Seconds, "s") => 1,
            (Unit::Seconds, "m") => 60,
            (Unit::Seconds, "h") => 3600,
            (Unit::Seconds, "d") => 86_400,
            (Unit::Seconds, "w") => 7 * 86_400,
            (Unit::Seconds, "y") => 365 * 86_400,
            _ => return None,
        };
        number.checked_mul(factor)
    }
}
