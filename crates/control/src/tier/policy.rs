//! Changes of the policy by which archived segments are released.

use serde::{Deserialize, Serialize};
use stere_store::{ReleaseOrder, TierPolicy};

use stere_machine::error::{Error, Result};
use stere_machine::size;

/// What is to be otherwise from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub high: Option<u8>,
    pub low: Option<u8>,
    pub order: Option<String>,
    pub exponent_hundredths: Option<u16>,
    /// 0 for no bound.
    pub cache_bytes: Option<u64>,
}

fn wrong(key: &str, value: &str, right: &str) -> Error {
    Error::Usage(format!("{key} cannot be '{value}'; it takes {right}"))
}

/// A number with at most two digits behind the point, in hundredths.
fn hundredths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    let part = part.parse::<u16>().ok()? * if part.len() == 1 { 10 } else { 1 };
    Some(whole.parse::<u16>().ok()? * 100 + part).filter(|number| *number <= TierPolicy::EXPONENT_HUNDREDTHS_MAX)
}

impl Change {
    /// Reads `KEY=VALUE`s, and marks that were given as options.
    pub fn parse(settings: &[String], marks: Option<(u8, u8)>) -> Result<Change> {
        let mut change =
            Change { high: marks.map(|marks| marks.0), low: marks.map(|marks| marks.1), ..Change::default() };
        for setting in settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(Error::Usage(format!("'{setting}' says nothing; write KEY=VALUE, such as order=lru")));
            };
            let percent = || value.trim_end_matches('%').parse().map_err(|_| wrong(key, value, "percent, 1 to 100"));
            match key {
                "high" => change.high = Some(percent()?),
                "low" => change.low = Some(percent()?),
                "order" => {
                    let order = ReleaseOrder::from_word(value);
                    let order = order.ok_or_else(|| wrong(key, value, "stp, lru, once or size"))?;
                    change.order = Some(order.word().to_owned());
                }
                "exponent" => {
                    let exponent = hundredths(value);
                    let right = "a number from 0 to 10 with at most two digits behind the point, such as 1.4";
                    change.exponent_hundredths = Some(exponent.ok_or_else(|| wrong(key, value, right))?);
                }
                "cache" if value == "never" => change.cache_bytes = Some(0),
                "cache" => {
                    let bytes = size::parse(value).ok().filter(|bytes| *bytes > 0);
                    change.cache_bytes = Some(bytes.ok_or_else(|| wrong(key, value, "a size, such as 10G, or never"))?);
                }
                _ => {
                    let keys = "order, exponent, cache, high and low";
                    return Err(Error::Usage(format!("'{key}' is no key of this policy; there are {keys}")));
                }
            }
        }
        Ok(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[&str]) -> Result<Change> {
        Change::parse(&settings.iter().map(|setting| (*setting).to_owned()).collect::<Vec<_>>(), None)
    }

    #[test]
    fn settings_are_read() {
        let change = parse(&["order=once", "exponent=1.4", "cache=10G", "high=80", "low=70%"]).unwrap();
        assert_eq!((change.order.as_deref(), change.exponent_hundredths), (Some("once"), Some(140)));
        assert_eq!((change.cache_bytes, change.high, change.low), (Some(10 << 30), Some(80), Some(70)));
        assert_eq!(parse(&["cache=never"]).unwrap().cache_bytes, Some(0));
        assert_eq!(["0", "10", "1.05", "2.5"].map(hundredths), [Some(0), Some(1000), Some(105), Some(250)]);
        assert_eq!(["", "10.01", "1.234", "-1", "1e3", "."].map(hundredths), [None; 6]);
    }

    #[test]
    fn wrong_settings_are_usage_errors_that_name_what_is_right() {
        for (setting, right) in [
            ("order=fifo", "stp, lru, once or size"),
            ("exponent=much", "such as 1.4"),
            ("cache=0", "or never"),
            ("high=much", "percent"),
            ("speed=9", "order, exponent, cache"),
            ("order", "KEY=VALUE"),
        ] {
            let error = parse(&[setting]).unwrap_err();
            assert_eq!(error.exit_code(), stere_machine::error::USAGE, "{setting}");
            assert!(error.to_string().contains(right), "{setting}: {error}");
        }
    }
}
