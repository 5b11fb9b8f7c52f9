//! Versions: how many of what a file held before are kept, and for how long.
//!
//! Both are upper bounds: a version goes when it is beyond either. Reads no clock.

use crate::error::PolicyError;
use crate::moment::{parse_length, show_length};
use crate::number::number_of_versions;

/// What is said of versions at one file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// None are kept, whatever is said above.
    No,
    /// At most so many of a name, none of them longer than so many seconds from when it was changed or removed; `None`: any.
    Kept { count: Option<u32>, seconds: Option<u64> },
}

/// The longest that can be asked for, so that adding it to any moment makes a moment.
const SECONDS_MAX: u64 = 10_000 * 365 * 86_400;
/// What values it takes, for messages.
pub const VERSIONS_EXPECTED: &str =
    "how many (10), how long (30d; s, m, h, d, w, y), both as upper bounds (10,30d), or no";

impl Versions {
    /// What was written.
    pub fn parse(text: &[u8]) -> Result<Versions, PolicyError> {
        let refused = || PolicyError::BadValue {
            key: "versions",
            value: String::from_utf8_lossy(text).into_owned(),
            expected: VERSIONS_EXPECTED,
        };
        let written = std::str::from_utf8(text).map_err(|_| refused())?.trim();
        if written == "no" {
            return Ok(Versions::No);
        }
        let (mut count, mut seconds) = (None, None);
        for part in written.split(',').map(str::trim) {
            match (number_of_versions(part), parse_length(part)) {
                (Some(number), _) if number > 0 && count.is_none() => count = Some(number),
                (_, Some(length)) if (1..=SECONDS_MAX).contains(&length) && seconds.is_none() => seconds = Some(length),
                _ => return Err(refused()),
            }
        }
        assert!(count.is_some() || seconds.is_some(), "'{written}' bounds something");
        Ok(Versions::Kept { count, seconds })
    }

    /// Of two that both hold: as many as one of them keeps, as long as one of them does.
    pub fn or_more(self, other: Versions) -> Versions {
        fn most<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.zip(other).map(|(one, other)| one.max(other))
        }
        match (self, other) {
            (Versions::No, kept) | (kept, Versions::No) => kept,
            (Versions::Kept { count, seconds }, Versions::Kept { count: others, seconds: others_seconds }) => {
                Versions::Kept { count: most(count, others), seconds: most(seconds, others_seconds) }
            }
        }
    }

    /// As people write it.
    pub fn text(self) -> String {
        match self {
            Versions::No => "no".into(),
            Versions::Kept { count, seconds } => {
                let parts = [count.map(|count| count.to_string()), seconds.map(show_length)];
                parts.into_iter().flatten().collect::<Vec<_>>().join(",")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back_as_it_is_meant() {
        let shown = |text: &str| Versions::parse(text.as_bytes()).map(Versions::text);
        for (text, meant) in
            [("10", "10"), ("30d", "30d"), ("10,30d", "10,30d"), ("30d, 010", "10,30d"), ("120s", "2m"), ("no", "no")]
        {
            assert_eq!(shown(text), Ok(meant.into()), "{text}");
            assert_eq!(shown(meant), Ok(meant.into()));
        }
    }

    #[test]
    fn of_two_as_much_is_kept_as_one_of_them_keeps() {
        let both = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| Versions::parse(text.as_bytes()).unwrap());
            assert_eq!(one.or_more(other), other.or_more(one));
            one.or_more(other).text()
        };
        assert_eq!(both("3,30d", "5,1d"), "5,30d");
        assert_eq!(both("3,30d", "5"), "5");
        assert_eq!(both("no", "1d"), "1d");
        // However long, and however many.
        assert_eq!(
            Versions::parse(b"3").unwrap().or_more(Versions::parse(b"1d").unwrap()),
            Versions::Kept { count: None, seconds: None }
        );
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in
            ["", "0", "0d", "10,10", "30d,1y", "10,30d,5", "none", "-1", "10,", "no,10", "99999999999", "20000y"]
        {
            assert!(Versions::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Versions::parse(&[0xff]).is_err());
    }
}
