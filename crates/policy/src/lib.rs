//! What an attribute means: classes, schemes, inheritance.
//!
//! Holds the meaning of `user.stere.*` (and `user.attest.*`, the older synonym): which keys can be set, what their
//! values are, which class gives which scheme, and how a file inherits from its directories. Does no I/O: whoever
//! resolves a policy hands in a function that fetches one inode's own policy and parent.
//!
//! Invariants: an [`Own`] that was accepted by [`Own::set`] always yields a valid [`Wish`]; [`Wish::scheme`] never
//! asks for more devices than there are; the [`Resolver`] never answers from before the last `invalidate`.
//!
//! Read next: `keys` (all of them), `attribute` (names and values), `class` (schemes), `classes` (of a pool), `resolver` (inheritance and its cache), `rules`, `residency`, `search`.

mod attribute;
mod checksum;
mod class;
mod classes;
mod compression;
mod encryption;
mod error;
mod keys;
mod moment;
mod node;
mod number;
mod processes;
mod record;
mod residency;
mod resolver;
mod retention;
mod rules;
mod search;
mod switches;
mod sync;
mod versions;

pub use attribute::{ANYWHERE_WORD, Computed, List, Name, Own, Setting, TIERS_NONE, parse_name};
pub use checksum::Checksum;
pub use class::{Class, SchemeWish, TierWish, Wish};
pub use classes::{CLASS_NAME_BYTES_MAX, Classes, Definition, is_class_name};
pub use compression::{Algorithm, Compression};
pub use encryption::Encryption;
pub use error::PolicyError;
pub use keys::{
    PLUGINS_EXPECTED, PolicyKey, class_keys, lockable_keys, policy_key, policy_keys, rule_keys, settable_keys,
};
pub use moment::{parse_length, parse_moment, show_length, show_moment};
pub use node::{
    NODE_KEY_PREFIX, NOTHING_WORD, node_attribute, node_key, node_settings, node_value, stored_node_word,
    with_node_value,
};
pub use processes::{Process, Processes, is_named, names_of};
pub use record::RecordSize;
pub use residency::{KeptBy, MatchedRules, ResidencySetting, ResidencySettings, Said, Statements};
pub use resolver::{Ancestor, Effective, Resolver, Source};
pub use retention::{RETAIN_EXPECTED, Retain, Retention};
pub use rules::{
    Decided, Decision, Facts, Here, People, Places, Rule, RuleError, RuleSet, Stacks, Vocabulary, merge, residency_of,
};
pub use search::{Indexed, Level, NumberFact, Search, SearchWords, Subject, TextFact, WordFact};
pub use switches::{Switch, Switches};
pub use sync::Sync;
pub use versions::{VERSIONS_EXPECTED, Versions};
