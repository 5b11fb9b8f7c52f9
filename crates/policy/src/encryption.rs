//! Whether content and names are encrypted: `no`, `yes` (with the pool's default key), or with which key.
//!
//! On media a number: 0 nothing said, 1 no, 2 yes, 2 + the number of a key. Names of keys are known to the pool and not here: a key is
//! spelled `#number`, and whoever talks to people puts its name there.

/// What a policy says about encryption. The greater one is the stricter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Encryption(u16);

const NO: u16 = 1;
const DEFAULT: u16 = 2;
const _: () = assert!(Encryption::KEY_MAX <= u16::MAX - DEFAULT, "the number of each key has a code");

impl Encryption {
    /// Not encrypted.
    pub const NO: Encryption = Encryption(NO);
    /// With the pool's default key.
    pub const DEFAULT: Encryption = Encryption(DEFAULT);
    /// The greatest number a key can have.
    pub const KEY_MAX: u16 = 60_000;

    /// With this key, counted from 1.
    pub fn with_key(number: u16) -> Option<Encryption> {
        (1..=Encryption::KEY_MAX).contains(&number).then_some(Encryption(DEFAULT + number))
    }

    /// The number on media.
    pub fn code(self) -> u16 {
        self.0
    }

    /// What a number from media says; nothing if it is 0 or impossible.
    pub fn from_code(code: u16) -> Option<Encryption> {
        (NO..=DEFAULT + Encryption::KEY_MAX).contains(&code).then_some(Encryption(code))
    }

    /// What was written, with a key by its number.
    pub fn from_text(text: &str) -> Option<Encryption> {
        match text {
            "no" => Some(Encryption::NO),
            "yes" => Some(Encryption::DEFAULT),
            _ => {
                let digits =
                    text.strip_prefix('#').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
                Encryption::with_key(digits.parse().ok()?)
            }
        }
    }

    /// As it is written, with a key by its number.
    pub fn text(self) -> String {
        let text = match self.key() {
            Some(number) => format!("#{number}"),
            None if self == Encryption::DEFAULT => "yes".into(),
            None => "no".into(),
        };
        assert_eq!(Encryption::from_text(&text), Some(self), "what is shown is read again");
        text
    }

    /// The key, where one is named.
    pub fn key(self) -> Option<u16> {
        self.0.checked_sub(DEFAULT).filter(|number| *number > 0)
    }

    /// Whether something is encrypted at all.
    pub fn is_on(self) -> bool {
        self.0 >= DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (text, code) in [("no", 1), ("yes", 2), ("#1", 3), ("#60000", 60_002)] {
            let encryption = Encryption::from_text(text).unwrap();
            assert_eq!((encryption.code(), encryption.text().as_str()), (code, text));
            assert_eq!(Encryption::from_code(code), Some(encryption));
            assert_eq!(encryption.is_on(), text != "no");
        }
        assert_eq!(Encryption::from_text("#7").unwrap().key(), Some(7));
        for bad in ["", "Yes", "#", "#0", "#60001", "#-1", "#+1", "key"] {
            assert_eq!(Encryption::from_text(bad), None, "{bad}");
        }
        assert_eq!((Encryption::from_code(0), Encryption::from_code(60_003)), (None, None));
    }
}
