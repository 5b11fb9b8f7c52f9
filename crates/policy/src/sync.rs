//! When what programs change is durable.
//!
//! On media a byte: 0 nothing said, 1 relaxed, 2 asked, 3 always. The order is that of how much is promised.
//! Read next: `docs/design/commit.md`.

/// What a policy says of when changes are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Sync {
    /// fsync orders and does not wait: what is written later is never durable before what was written earlier.
    Relaxed,
    /// When somebody asks for it, by fsync and the like; else within the commit interval.
    #[default]
    Asked,
    /// When the call that made the change returns.
    Always,
}

const _: () = {
    let mut at = 0;
    while at < Sync::ALL.len() {
        assert!(Sync::ALL[at] as usize == at, "they stand in the order of their codes");
        at += 1;
    }
};

impl Sync {
    const ALL: [Sync; 3] = [Sync::Relaxed, Sync::Asked, Sync::Always];

    /// The byte on media.
    pub fn code(self) -> u8 {
        self as u8 + 1
    }

    /// What a byte from media says; nothing if it is 0 or unknown.
    pub fn from_code(code: u8) -> Option<Sync> {
        Sync::ALL.into_iter().find(|sync| sync.code() == code)
    }

    /// What a user wrote.
    pub fn from_text(text: &str) -> Option<Sync> {
        Sync::ALL.into_iter().find(|sync| sync.text() == text)
    }

    /// As users write it.
    pub fn text(self) -> &'static str {
        match self {
            Sync::Relaxed => "relaxed",
            Sync::Asked => "asked",
            Sync::Always => "always",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_meant() {
        for (text, code) in [("relaxed", 1), ("asked", 2), ("always", 3)] {
            let sync = Sync::from_text(text).unwrap();
            assert_eq!((sync.text(), sync.code()), (text, code));
            assert_eq!(Sync::from_code(code), Some(sync));
        }
        for text in ["", "yes", "no", "ALWAYS", "alway"] {
            assert_eq!(Sync::from_text(text), None, "{text}");
        }
        assert!(Sync::from_code(0).is_none() && Sync::from_code(4).is_none());
        assert!(Sync::Relaxed < Sync::Asked && Sync::Asked < Sync::Always);
    }
}
