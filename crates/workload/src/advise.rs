//! Advice: what a profile and facts of its pool say about policy. Nothing is ever changed.
//!
//! Invariants: each key gets either one advice or one reason why there is none; too little data is such a reason. An advice
//! names the figures that it rests on. `Advice::setting` is what `stere policy set` takes, but for `memory`, which is an option
//! of the mount, and for a rule, which is a line of the rules of a directory. Read next: `rules.rs`.

use crate::hurst::Hurst;
use crate::profile::Profile;
use crate::rules;

/// Facts of the pool, and what policy says now of the subject.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFacts {
    pub record_bytes: u64,
    /// Whether content is compressed now.
    pub is_compressed: bool,
    /// Bytes of content for each byte stored, of a sample compressed with zstd; none where nobody sampled.
    pub sampled_ratio: Option<f64>,
    /// Data chunks of a segment; 1 with copies.
    pub data_chunks: u32,
    /// Parity chunks, or copies beyond the first.
    pub redundant_chunks: u32,
    /// Devices in use of each class.
    pub ssds: u32,
    pub hdds: u32,
    /// Where most of the subject lies now.
    pub device_class: DeviceClass,
    pub cache_bytes: u64,
    /// Whether there is a medium to archive to.
    pub has_media: bool,
    /// Bytes of the subject on devices, and those of them that nobody read or wrote for `idle_days`.
    pub stored_bytes: u64,
    pub idle_bytes: u64,
    pub idle_days: u32,
}

impl PoolFacts {
    pub fn devices(&self) -> u32 {
        self.ssds + self.hdds
    }
}

/// Classes of devices that advice tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceClass {
    Ssd,
    Hdd,
    Unknown,
}

/// What advice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdviceKey {
    Record,
    Compress,
    Redundancy,
    On,
    Rule,
    Memory,
    StripeWidth,
}

impl AdviceKey {
    pub const ALL: [AdviceKey; 7] = [
        AdviceKey::Record,
        AdviceKey::Compress,
        AdviceKey::Redundancy,
        AdviceKey::On,
        AdviceKey::Rule,
        AdviceKey::Memory,
        AdviceKey::StripeWidth,
    ];

    pub fn word(self) -> &'static str {
        match self {
            AdviceKey::Record => "record",
            AdviceKey::Compress => "compress",
            AdviceKey::Redundancy => "redundancy",
            AdviceKey::On => "on",
            AdviceKey::Rule => "rule",
            AdviceKey::Memory => "memory",
            AdviceKey::StripeWidth => "stripe-width",
        }
    }
}

/// How much an advice can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    Low,
    Medium,
    High,
}

impl Confidence {
    pub fn word(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// What following an advice is estimated to bring. Shares are of what it is now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// This share of the bytes moved for random requests is saved.
    LessMoved(f64),
    /// This share of the records, and of their metadata, is saved.
    FewerRecords(f64),
    /// This share of the space is saved.
    LessStored(f64),
    /// This share of requests no longer misses the cache.
    FewerMisses(f64),
    /// So many bytes leave the devices, or are free for something else.
    Frees(u64),
    /// It is faster; by how much the profile does not say.
    Faster,
}

impl std::fmt::Display for Gain {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Gain::LessMoved(share) => write!(formatter, "{:.0} % less moved for random requests", share * 100.0),
            Gain::FewerRecords(share) => write!(formatter, "{:.0} % fewer records", share * 100.0),
            Gain::LessStored(share) => write!(formatter, "{:.0} % less space", share * 100.0),
            Gain::FewerMisses(share) => write!(formatter, "{:.0} % of requests hit instead of missing", share * 100.0),
            Gain::Frees(bytes) => write!(formatter, "{} freed", bytes_text(*bytes)),
            Gain::Faster => write!(formatter, "faster, by an amount that the profile does not say"),
        }
    }
}

/// One advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub key: AdviceKey,
    pub value: String,
    /// A sentence with the figures behind it.
    pub because: String,
    pub confidence: Confidence,
    pub gain: Gain,
}

impl Advice {
    /// The setting as a user writes it.
    pub fn setting(&self) -> String {
        match self.key {
            // These values say by which key.
            AdviceKey::Redundancy | AdviceKey::StripeWidth | AdviceKey::Rule => self.value.clone(),
            AdviceKey::Record | AdviceKey::Compress | AdviceKey::On | AdviceKey::Memory => {
                format!("{}={}", self.key.word(), self.value)
            }
        }
    }
}

/// Why there is no advice for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAdvice {
    pub key: AdviceKey,
    pub because: String,
}

/// An answer for every key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub advice: Vec<Advice>,
    pub none: Vec<NoAdvice>,
}

/// What a rule answers.
pub(crate) type Opinion = Result<Advice, String>;

/// Reads and writes below which nothing is said of contents.
pub const DATA_CALLS_MIN: u64 = 1000;
/// A profile of a shorter time says nothing of tomorrow.
pub const SPAN_NS_MIN: u64 = 60_000_000_000;

/// What is advised.
pub fn advise(profile: &Profile, facts: &PoolFacts) -> Answer {
    let mut answer = Answer::default();
    let little = too_little(profile);
    for key in AdviceKey::ALL {
        // How old data is comes from the pool, not from calls.
        let opinion = match (&little, key) {
            (_, AdviceKey::Rule) => rules::rule(profile, facts),
            (Some(because), _) => Err(because.clone()),
            (None, AdviceKey::Record) => rules::record(profile, facts),
            (None, AdviceKey::Compress) => rules::compress(profile, facts),
            (None, AdviceKey::Redundancy) => rules::redundancy(profile, facts),
            (None, AdviceKey::On) => rules::on(profile, facts),
            (None, AdviceKey::Memory) => rules::memory(profile, facts),
            (None, AdviceKey::StripeWidth) => rules::stripe_width(profile, facts),
        };
        match opinion {
            Ok(advice) => answer.advice.push(advice),
            Err(because) => answer.none.push(NoAdvice { key, because }),
        }
    }
    assert_eq!(answer.advice.len() + answer.none.len(), AdviceKey::ALL.len(), "every key is answered");
    answer
}

/// Says how much is missing, if anything is.
fn too_little(profile: &Profile) -> Option<String> {
    let (calls, seconds) = (profile.data_calls(), profile.span_ns() as f64 / 1e9);
    if calls < DATA_CALLS_MIN {
        return Some(format!("too little data: {calls} reads and writes, {DATA_CALLS_MIN} are needed"));
    }
    let needed = SPAN_NS_MIN / 1_000_000_000;
    (profile.span_ns() < SPAN_NS_MIN)
        .then(|| format!("too little data: calls of {seconds:.0} seconds, {needed} are needed"))
}

/// More calls over a longer time are relied on more.
pub(crate) fn confidence(profile: &Profile) -> Confidence {
    match (profile.data_calls(), profile.span_ns() / SPAN_NS_MIN) {
        (100_000.., 60..) => Confidence::High,
        (10_000.., 10..) => Confidence::Medium,
        _ => Confidence::Low,
    }
}

/// Bytes as people write them: `64K`, `1.5G`.
pub fn bytes_text(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let power = if bytes < 1024 { 0 } else { bytes.ilog2() as usize / 10 };
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    let unit = units[power];
    if (value - value.round()).abs() < 0.05 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

/// What a Hurst parameter means, for reports.
pub fn burstiness(hurst: &Hurst) -> &'static str {
    let (low, high) = hurst.interval();
    match hurst.value {
        1.0.. => "the load drifts: its level changes within the time that was seen",
        0.5.. if low > 0.5 => "bursts last: a busy second is followed by busy ones, so averages promise too much",
        _ if high < 0.5 => "requests come more evenly than independent ones, as from a clock",
        _ => "requests do not depend on each other for long",
    }
}

#[cfg(test)]
mod tests;
