//! The classes of a pool: the built-in ones, as they are or as somebody changed them, and those that were defined.
//!
//! A class says what an object with the same attributes would say, and nothing about what it does not set. A class that was deleted
//! keeps its code: what has it belongs to another class from then on. Invariant: [`Classes::resolve`] always gives a class that is
//! in use, and following deleted ones ends.

use std::collections::BTreeMap;

use crate::attribute::{Own, Setting};
use crate::checksum::Checksum;
use crate::class::{Class, SchemeWish, TierWish, Wish};
use crate::compression::Compression;
use crate::encryption::Encryption;
use crate::record::RecordSize;
use crate::residency::{ResidencySetting, ResidencySettings};
use crate::switches::Switches;
use crate::sync::Sync;
use crate::versions::Versions;

/// What a class is called and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// How people call it.
    pub name: String,
    /// What it sets; never a class.
    pub own: Own,
    /// Deleted: what has it belongs to this class.
    pub into: Option<Class>,
}

/// The classes of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    defined: BTreeMap<u8, Definition>,
    accepts_any_name: bool,
}

/// Deleted classes that lead to one another are followed so far.
const HOPS_MAX: usize = 256;
const _: () = assert!(HOPS_MAX > u8::MAX as usize, "the longest way over deleted classes is followed to its end");

impl Default for Classes {
    fn default() -> Classes {
        let built_in = |class: Class| (class.code(), Classes::built_in(class));
        Classes { defined: Class::BUILT_IN.into_iter().map(built_in).collect(), accepts_any_name: false }
    }
}

impl Classes {
    /// What a built-in class is unless somebody changes it.
    pub fn built_in(class: Class) -> Definition {
        let (copies, compression) = match class {
            Class::Scratch => (1, 0),
            Class::Precious => (3, 0),
            Class::Archive => (2, Compression::ZSTD.code()),
            Class::Normal | Class::User(_) => (2, 0),
        };
        Definition { name: class.text(), own: Own { copies, compression, ..Own::default() }, into: None }
    }

    /// For those who parse rules and do not know the pool: any name may be a class.
    pub fn of_any_name() -> Classes {
        Classes { accepts_any_name: true, ..Classes::default() }
    }

    /// Defines a class, or defines it anew.
    pub fn put(&mut self, class: Class, definition: Definition) {
        assert_eq!(definition.own.class, 0, "a class is of no class");
        self.defined.insert(class.code(), definition);
    }

    /// What a class is.
    pub fn get(&self, class: Class) -> Option<&Definition> {
        self.defined.get(&class.code())
    }

    /// The class that what has this one belongs to.
    pub fn resolve(&self, class: Class) -> Class {
        let mut at = class;
        for _ in 0..HOPS_MAX {
            match self.get(at).and_then(|definition| definition.into) {
                Some(next) => at = next,
                None => return at,
            }
        }
        Class::default()
    }

    /// The class in use that people call so.
    pub fn find(&self, name: &str) -> Option<Class> {
        if self.accepts_any_name && is_class_name(name) {
            return Some(Class::User(Class::USER_CODE_MIN));
        }
        let is_it = |(code, definition): (&u8, &Definition)| {
            (definition.into.is_none() && definition.name == name).then(|| Class::from_code(*code)).flatten()
        };
        self.defined.iter().find_map(is_it)
    }

    /// As `find`; for rules that were set before, also one that was deleted since.
    pub fn find_even_deleted(&self, name: &str) -> Option<Class> {
        let is_called_so = |(_, definition): &(&u8, &Definition)| definition.name == name;
        self.find(name)
            .or_else(|| self.defined.iter().rev().find(is_called_so).and_then(|(code, _)| Class::from_code(*code)))
    }

    /// How people call it.
    pub fn name(&self, class: Class) -> String {
        self.get(self.resolve(class)).map_or_else(|| class.text(), |definition| definition.name.clone())
    }

    /// All that are in use, in the order of their codes.
    pub fn in_use(&self) -> impl Iterator<Item = (Class, &Definition)> {
        let used = self.defined.iter().filter(|(_, definition)| definition.into.is_none());
        used.filter_map(|(code, definition)| Some((Class::from_code(*code)?, definition)))
    }

    /// This class, and the deleted ones that belong to it.
    pub fn all_of(&self, class: Class) -> Vec<Class> {
        let known = self.defined.keys().filter_map(|code| Class::from_code(*code));
        known.filter(|one| self.resolve(*one) == class).collect()
    }

    /// A class that was never defined.
    pub fn unused(&self) -> Option<Class> {
        let codes = Class::USER_CODE_MIN..=u8::MAX;
        codes.into_iter().find(|code| !self.defined.contains_key(code)).map(Class::User)
    }

    fn own(&self, class: Class) -> Option<&Own> {
        self.get(self.resolve(class)).map(|definition| &definition.own)
    }

    /// The redundancy it asks for.
    pub fn scheme(&self, class: Class) -> Option<SchemeWish> {
        self.own(class)?.scheme_wish()
    }

    /// How it compresses.
    pub fn compression(&self, class: Class) -> Option<Compression> {
        self.own(class)?.compression()
    }

    /// Whether it encrypts.
    pub fn encryption(&self, class: Class) -> Option<Encryption> {
        self.own(class)?.encryption()
    }

    /// How large its records are at most.
    pub fn record(&self, class: Class) -> Option<RecordSize> {
        self.own(class)?.record()
    }

    /// How what it stores is known to be right.
    pub fn checksum(&self, class: Class) -> Option<Checksum> {
        self.own(class)?.checksum()
    }

    /// Where its data lies rather than elsewhere, as in [`Wish`].
    pub fn on(&self, class: Class) -> Option<u8> {
        self.own(class)?.on()
    }

    /// Where its data lies and nowhere else, as in [`Wish`].
    pub fn only(&self, class: Class) -> Option<u8> {
        self.own(class)?.only()
    }

    /// What nodes are told of its data, as in [`Wish`].
    pub fn node(&self, class: Class) -> Option<u8> {
        self.own(class)?.node()
    }

    /// To which media it sends what says nothing else: `archive` to the usual one unless it names others.
    pub fn tier(&self, class: Class) -> Option<TierWish> {
        let usual = (self.resolve(class) == Class::Archive).then_some(TierWish::Usual);
        self.named_tier(class).or(usual)
    }

    /// The media that it names itself.
    pub(crate) fn named_tier(&self, class: Class) -> Option<TierWish> {
        self.own(class)?.tier_wish()
    }

    /// When changes are durable.
    pub fn sync(&self, class: Class) -> Option<Sync> {
        self.own(class)?.sync()
    }

    /// Which plugins it asks for, as in [`Own`]; 0 if it says nothing.
    pub fn plugins(&self, class: Class) -> u16 {
        self.own(class).map_or(0, |own| own.plugins)
    }

    /// Which versions it keeps.
    pub fn versions(&self, class: Class) -> Option<Versions> {
        self.own(class)?.versions
    }

    /// What of it stays on devices, and in what company.
    pub fn residency(&self, class: Class) -> ResidencySettings {
        self.own(class).map(|own| own.residency).unwrap_or_default()
    }

    /// What it switches on or off.
    pub fn switches(&self, class: Class) -> Switches {
        self.own(class).map(|own| own.switches).unwrap_or_default()
    }

    /// What files of a class get if nothing else says anything.
    pub fn wish(&self, class: Class) -> Wish {
        Wish {
            class: self.resolve(class),
            scheme: self.scheme(class).unwrap_or(SchemeWish::Copies(2)),
            compression: self.compression(class).unwrap_or(Compression::NONE),
            encryption: self.encryption(class).unwrap_or(Encryption::NO),
            tier: self.tier(class).unwrap_or_default(),
            record: self.record(class).unwrap_or(RecordSize::USUAL),
            checksum: self.checksum(class).unwrap_or_default(),
            on: self.on(class).unwrap_or_default(),
            only: self.only(class).unwrap_or_default(),
            node: self.node(class).unwrap_or_default(),
            sync: self.sync(class).unwrap_or_default(),
        }
    }
}

impl Definition {
    /// What it sets, as people write it.
    pub fn settings(&self) -> Vec<(Setting, String)> {
        Setting::ALL.into_iter().filter_map(|setting| Some((setting, self.own.get(setting)?))).collect()
    }

    /// The same of what stays on devices.
    pub fn residency(&self) -> impl Iterator<Item = (ResidencySetting, String)> + use<> {
        let residency = self.own.residency;
        ResidencySetting::ALL.into_iter().filter_map(move |keep| Some((keep, residency.text(keep)?)))
    }
}

/// Longest name of a class, in bytes.
pub const CLASS_NAME_BYTES_MAX: usize = 64;

/// Whether a class can be called so.
pub fn is_class_name(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (1..=CLASS_NAME_BYTES_MAX).contains(&name.len()) && is_plain
}

#[cfg(test)]
mod tests;
