//! Names and texts of others on a terminal: what a terminal would take for commands is written out (P-232).
//!
//! Invariant: what comes back holds no control character, and nothing that turns the direction of writing; text without any is as it was.

use std::borrow::Cow;

/// Characters that change what is shown around them: a name with them looks like another one.
fn is_unsafe(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// On one line, for the name of a file.
pub fn plain(text: &str) -> Cow<'_, str> {
    without(text, is_unsafe)
}

/// The same of a message that may have several lines.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    without(text, |character| character != '\n' && is_unsafe(character))
}

fn without(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_unsafe(character) {
            true => plain.extend(character.escape_default()),
            false => plain.push(character),
        }
    }
    assert!(!plain.contains(is_unsafe), "escapes are made of letters");
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests;
