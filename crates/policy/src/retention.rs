//! Retention: until when a file stays as it is, and what directories say of the files below them.
//!
//! A file has a moment; a directory says how the files below it get one: a moment, or a length of time that begins when a file
//! has been left alone for a while. Reads no clock: who asks says what time it is.

use crate::error::PolicyError;
use crate::moment::{parse_length, parse_moment, show_length, show_moment};

/// What is said of retention at one file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Of a directory: files here are not retained, whatever is said above.
    Nothing,
    /// Until this moment, in seconds since 1970.
    Until(i64),
    /// Of a directory: so many seconds.
    For(u64),
}

/// What a file or directory says, with how long a file must have been left alone before what its directory says begins to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retain {
    /// What.
    pub retention: Retention,
    /// Seconds.
    pub after: u32,
}

/// How long files are left alone unless a directory says so.
const AFTER_SECONDS: u32 = 300;
/// The last moment that can be written as a date.
const MOMENT_MAX: i64 = 253_402_300_799;
/// What values it takes, for messages.
pub const RETAIN_EXPECTED: &str = "a date to come such as 2031-12-31, or a time such as 30d (s, m, h, d, w, y); on directories also none, and ,after=10m behind it";

impl Retain {
    /// What was written for a file: a moment to come. A length of time begins now.
    pub fn of_file(text: &[u8], now_seconds: i64) -> Result<Retain, PolicyError> {
        let written = std::str::from_utf8(text).ok();
        let until = written.and_then(parse_moment).or_else(|| end(written.and_then(parse_length)?, now_seconds));
        let until = until.filter(|until| (now_seconds + 1..=MOMENT_MAX).contains(until)).ok_or_else(|| bad(text))?;
        Ok(Retain { retention: Retention::Until(until), after: 0 })
    }

    /// What was written for a directory.
    pub fn of_directory(text: &[u8], now_seconds: i64) -> Result<Retain, PolicyError> {
        let refused = || bad(text);
        let written = std::str::from_utf8(text).map_err(|_| refused())?;
        let (what, after) = match written.split_once(',') {
            None => (written, AFTER_SECONDS),
            Some((what, after)) => {
                let seconds = after.trim().strip_prefix("after=").and_then(parse_length);
                (what, seconds.and_then(|seconds| u32::try_from(seconds).ok()).ok_or_else(refused)?)
            }
        };
        let retention = match what.trim() {
            "none" if !written.contains(',') => return Ok(Retain { retention: Retention::Nothing, after: 0 }),
            what => match parse_length(what) {
                Some(seconds) if seconds > 0 && end(seconds, now_seconds).is_some() => Retention::For(seconds),
                _ => Retain::of_file(what.as_bytes(), now_seconds).map_err(|_| refused())?.retention,
            },
        };
        Ok(Retain { retention, after })
    }

    /// Until when a file is retained that this begins to hold for now.
    pub fn begins(&self, now_seconds: i64) -> Option<i64> {
        match self.retention {
            Retention::Nothing => None,
            Retention::Until(until) => Some(until),
            Retention::For(seconds) => Some(end(seconds, now_seconds).unwrap_or(MOMENT_MAX)),
        }
    }

    /// As people write it.
    pub fn text(&self, is_directory: bool) -> String {
        let after = if is_directory { format!(",after={}", show_length(self.after.into())) } else { String::new() };
        match self.retention {
            Retention::Nothing => "none".into(),
            Retention::Until(until) => format!("{}Z{after}", show_moment(until).replace(' ', "T")),
            Retention::For(seconds) => format!("{}{after}", show_length(seconds)),
        }
    }
}

fn end(seconds: u64, now_seconds: i64) -> Option<i64> {
    now_seconds.checked_add_unsigned(seconds).filter(|until| *until <= MOMENT_MAX)
}

fn bad(text: &[u8]) -> PolicyError {
    PolicyError::BadValue {
        key: "retain",
        value: String::from_utf8_lossy(text).into_owned(),
        expected: RETAIN_EXPECTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    #[test]
    fn what_is_written_comes_back_as_it_is_meant() {
        let file = |text: &str| Retain::of_file(text.as_bytes(), NOW).map(|retain| retain.text(false));
        assert_eq!(file("2031-12-31"), Ok("2031-12-31T00:00:00Z".into()));
        assert_eq!(file("30d"), Ok("2023-12-14T22:13:20Z".into()));
        let directory = |text: &str| Retain::of_directory(text.as_bytes(), NOW).map(|retain| retain.text(true));
        for (text, shown) in [
            ("7y", "7y,after=5m"),
            ("30d, after=10s", "30d,after=10s"),
            ("30d,after=0s", "30d,after=0s"),
            ("none", "none"),
            ("2031-12-31,after=1h", "2031-12-31T00:00:00Z,after=1h"),
        ] {
            assert_eq!(directory(text), Ok(shown.into()), "{text}");
            assert_eq!(directory(shown), Ok(shown.into()));
        }
        let begun = Retain::of_directory(b"1d", NOW).unwrap().begins(NOW + 5);
        assert_eq!((begun, Retain::of_directory(b"none", NOW).unwrap().begins(NOW)), (Some(NOW + 86_405), None));
    }

    #[test]
    fn what_ends_before_it_begins_or_means_nothing_is_refused() {
        for text in ["", "none", "2001-01-01", "0s", "9999y", "7y,after=1m", "soon", "30"] {
            assert!(Retain::of_file(text.as_bytes(), NOW).is_err(), "{text}");
        }
        for text in
            ["", "2001-01-01", "0d", "9999y", "7y,after=", "7y,before=1m", "none,after=1m", "7y,after=1m,after=1m"]
        {
            assert!(Retain::of_directory(text.as_bytes(), NOW).is_err(), "{text}");
        }
        assert!(Retain::of_file(&[0xff], NOW).is_err());
    }
}
