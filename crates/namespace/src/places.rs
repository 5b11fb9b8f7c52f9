//! `on=`, `only=`, `node=` and `tier=`: the words by which people name devices and media, as the numbers that policy knows, and back.
//!
//! Words are kept in the pool by the store, which also knows the devices that they mean now. A word needs no device when it is
//! set: one may come. Read next: the engine's `places.rs`, `docs/design/placement.md`.

use std::sync::Arc;

use stere_format::PlaceValue;
use stere_policy::{ANYWHERE_WORD, Places, node_settings};
use stere_store::Store;

/// Tags, classes or names of devices with commas (or `|`) between them, each once and in order.
pub fn words_of(text: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = text.split([',', '|']).map(|word| word.trim().to_owned()).collect();
    words.sort_unstable();
    words.dedup();
    let is_plain = |character: char| character.is_alphanumeric() || "-_.:/@".contains(character);
    let is_word = |word: &String| {
        (1..=PlaceValue::WORD_BYTES_MAX).contains(&word.len()) && word.chars().all(is_plain) && word != ANYWHERE_WORD
    };
    (words.len() <= PlaceValue::WORDS_MAX && words.iter().all(is_word)).then_some(words)
}

/// Media with `+` between their names, as a set.
fn media_of(store: &Store, text: &str) -> Option<u16> {
    store.tier.media.tiers_of(text).filter(|set| *set != 0)
}

/// What words in rules mean.
pub struct Known(pub Arc<Store>);

impl Places for Known {
    fn place(&self, text: &str) -> Option<u8> {
        self.0.places().find_place(&words_of(text)?)
    }

    fn node(&self, text: &str) -> Option<u8> {
        self.0.places().find_place(&node_settings(text)?)
    }

    fn media(&self, text: &str) -> Option<u16> {
        media_of(&self.0, text)
    }
}

/// The same for rules that somebody sets now: words that have no number yet get one.
pub struct Numbering<'a>(pub &'a Store);

impl Places for Numbering<'_> {
    fn place(&self, text: &str) -> Option<u8> {
        self.number(&words_of(text)?)
    }

    fn node(&self, text: &str) -> Option<u8> {
        self.number(&node_settings(text)?)
    }

    fn media(&self, text: &str) -> Option<u16> {
        media_of(self.0, text)
    }
}

impl Numbering<'_> {
    fn number(&self, words: &[String]) -> Option<u8> {
        let number = self.0.places().place_number(words);
        number.map_err(|error| tracing::error!(?words, %error, "what rules name has no number")).ok()
    }
}
