//! Values of policy: as people write them (names of keys, classes, media and places), and as they are stored (their numbers).
//!
//! Stateless. Read next: `stere_policy::Setting`, the engine's `places.rs` and the crate `recall`, which know the numbers.

use std::sync::Arc;

use stere_policy::{
    ANYWHERE_WORD, Class, Encryption, NOTHING_WORD, PolicyError, Setting, node_settings, stored_node_word,
};

use crate::error::Error;
use crate::inode::Core;
use crate::places::words_of;

/// Translates values of policy.
pub struct PolicyWords {
    pub core: Arc<Core>,
}

/// There is no class of this name.
pub fn unknown_class(name: &str) -> Error {
    let (key, expected) = (Setting::Class.word(), Setting::Class.expected());
    PolicyError::BadValue { key, value: name.to_owned(), expected }.into()
}

impl PolicyWords {
    /// A policy's class by its number.
    pub fn with_class_number(&self, name: &[u8]) -> Result<Vec<u8>, Error> {
        if name.is_empty() {
            return Ok(Vec::new());
        }
        let text = String::from_utf8_lossy(name);
        let class = self.core.files.resolver().classes().find(&text).ok_or_else(|| unknown_class(&text))?;
        Ok(class.text().into_bytes())
    }

    /// The other way.
    pub fn with_class_name(&self, text: String) -> String {
        Class::from_text(&text).map_or(text, |class| self.core.files.resolver().classes().name(class))
    }

    /// A policy's value as it is kept: with keys, classes and volumes by their numbers.
    pub fn with_number(&self, setting: Setting, value: &[u8]) -> Result<Vec<u8>, Error> {
        if setting == Setting::Class {
            return self.with_class_number(value);
        }
        if setting == Setting::Tier {
            return self.tier_numbers(value);
        }
        if matches!(setting, Setting::On | Setting::Only | Setting::Node) {
            return self.with_place_number(setting, value);
        }
        if setting != Setting::Encrypt || matches!(value, b"" | b"no") {
            return Ok(value.to_vec());
        }
        let text = String::from_utf8_lossy(value).into_owned();
        let by_name = self.core.files.keyring().find(&text).and_then(|record| Encryption::with_key(record.number));
        let Some(encryption) = by_name.or_else(|| Encryption::from_text(&text)) else {
            let (key, expected) = (setting.word(), setting.expected());
            return Err(stere_policy::PolicyError::BadValue { key, value: text, expected }.into());
        };
        self.core.files.keyring().meant(encryption)?;
        Ok(encryption.text().into_bytes())
    }

    /// The other way.
    pub fn with_name(&self, setting: Setting, text: String) -> String {
        if setting == Setting::Class {
            return self.with_class_name(text);
        }
        if setting == Setting::Tier {
            return self.tier_names(text);
        }
        if matches!(setting, Setting::On | Setting::Only | Setting::Node) {
            return self.with_place_words(setting, text);
        }
        if setting != Setting::Encrypt {
            return text;
        }
        let number = Encryption::from_text(&text).and_then(Encryption::key);
        number.and_then(|number| self.core.files.keyring().name_of(number)).unwrap_or(text)
    }

    /// The number of a place, or of what nodes are told, for its words.
    pub fn with_place_number(&self, setting: Setting, value: &[u8]) -> Result<Vec<u8>, Error> {
        let text = String::from_utf8_lossy(value).into_owned();
        let is_of_nodes = setting == Setting::Node;
        let stored = if is_of_nodes { stored_node_word(&text) } else { &text };
        if matches!(stored, "" | ANYWHERE_WORD) {
            return Ok(stored.as_bytes().to_vec());
        }
        let words = if is_of_nodes { node_settings(&text) } else { words_of(&text) };
        let Some(words) = words else {
            let (key, expected) = (setting.word(), setting.expected());
            return Err(PolicyError::BadValue { key, value: text, expected }.into());
        };
        Ok(format!("#{}", self.core.store.places().place_number(&words)?).into_bytes())
    }

    /// The other way.
    pub fn with_place_words(&self, setting: Setting, text: String) -> String {
        if setting == Setting::Node && text == ANYWHERE_WORD {
            return NOTHING_WORD.to_owned();
        }
        let number = text.strip_prefix('#').and_then(|number| number.parse().ok());
        number.and_then(|number| self.core.store.places().place_words(number)).map_or(text, |words| words.join(","))
    }

    /// `#SET` in what policy says, as names of volumes.
    pub fn tier_names(&self, text: String) -> String {
        match text.strip_prefix('#').and_then(|set| set.parse().ok()) {
            Some(set) => self.core.store.tier.media.tier_names(set),
            None if text == "usual" => self.core.store.tier.media.tier_names(self.core.store.tier.media.usual_tier()),
            None => text,
        }
    }

    /// Names of volumes as policy keeps them.
    pub fn tier_numbers(&self, value: &[u8]) -> Result<Vec<u8>, Error> {
        let text = std::str::from_utf8(value).ok();
        match text {
            Some("" | "none") => Ok(value.to_vec()),
            _ => {
                let set = text.and_then(|text| self.core.store.tier.media.tiers_of(text)).ok_or_else(|| {
                    PolicyError::BadValue {
                        key: Setting::Tier.word(),
                        value: String::from_utf8_lossy(value).into_owned(),
                        expected: Setting::Tier.expected(),
                    }
                })?;
                Ok(format!("#{set}").into_bytes())
            }
        }
    }
}
