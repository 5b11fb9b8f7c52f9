//! `node`: what the nodes that keep the data of a file are told of it, each setting `KEY=VALUE`, as they know them.
//!
//! A node decides by its own rules what a setting means there; here they are words. What is said nearest counts as a whole. Each setting is an
//! attribute of its own besides, `user.stere.node.KEY`. Source: ATTEST (2011), 6.1 and figure 6.1, whose `user.pvfs.KEY` means the same.

use crate::attribute::ANYWHERE_WORD;

/// Settings that one object may tell nodes.
const NODE_SETTINGS_MAX: usize = 8;
/// Bytes of one with its value.
const SETTING_BYTES_MAX: usize = 64;
/// Says that nodes are told nothing, whatever is said above.
pub const NOTHING_WORD: &str = "none";

/// What keys of single settings begin with, as people write them.
pub const NODE_KEY_PREFIX: &str = "node.";
/// What their attributes begin with, and whether those are locks.
const PREFIXES: [(&str, bool); 4] =
    [("user.stere.node.", false), ("user.attest.node.", false), ("user.pvfs.", false), ("trusted.stere.node.", true)];

/// The setting that an attribute is of, and whether it is a lock.
pub fn node_key(name: &[u8]) -> Option<(&str, bool)> {
    let name = std::str::from_utf8(name).ok()?;
    PREFIXES.into_iter().find_map(|(prefix, is_lock)| Some((name.strip_prefix(prefix)?, is_lock)))
}

/// The attribute of one setting.
pub fn node_attribute(key: &str, is_lock: bool) -> String {
    format!("{}{key}", if is_lock { PREFIXES[3].0 } else { PREFIXES[0].0 })
}

fn is_setting(word: &str) -> bool {
    let Some((key, value)) = word.split_once('=') else { return false };
    let is_key = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@+".contains(&byte);
    word.len() <= SETTING_BYTES_MAX
        && !key.is_empty()
        && key.bytes().all(is_key)
        && !value.is_empty()
        && value.bytes().all(is_plain)
}

/// Settings with `,` or `|` between them, in order; none where they are not understood, or a key comes twice.
pub fn node_settings(text: &str) -> Option<Vec<String>> {
    let mut settings: Vec<String> = text.split([',', '|']).map(|word| word.trim().to_owned()).collect();
    settings.sort_unstable();
    let key = |word: &str| word.split_once('=').map(|(key, _)| key.to_owned());
    let is_twice = settings.windows(2).any(|pair| key(&pair[0]) == key(&pair[1]));
    let is_understood = settings.len() <= NODE_SETTINGS_MAX && settings.iter().all(|word| is_setting(word));
    (is_understood && !is_twice).then_some(settings)
}

/// The value of one setting.
pub fn node_value<'a>(settings: &'a str, key: &str) -> Option<&'a str> {
    settings.split(',').filter_map(|word| word.split_once('=')).find(|(own, _)| *own == key).map(|(_, value)| value)
}

/// The settings with one set, or without it; empty where none is left.
pub fn with_node_value(settings: &str, key: &str, value: Option<&str>) -> String {
    let is_other = |word: &&str| word.split_once('=').is_some_and(|(own, _)| own != key);
    let others = settings.split(',').filter(is_other).map(str::to_owned);
    let mut all: Vec<String> = others.chain(value.map(|value| format!("{key}={value}"))).collect();
    all.sort_unstable();
    all.join(",")
}

/// As policy keeps it: nothing is the word that places have for it.
pub fn stored_node_word(text: &str) -> &str {
    if text == NOTHING_WORD { ANYWHERE_WORD } else { text }
}

#[cfg(test)]
mod tests;
