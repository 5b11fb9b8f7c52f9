//! `stere tier policy`: when archived segments are released by themselves, in which order, and how much may have come back.

use serde::{Deserialize, Serialize};
use stere_naming::Io;
use stere_store::{ReleaseOrder, TierMarks, TierPolicy};

use super::TierReport;
use crate::error::{Error, Result, refused};
use crate::running::Running;
use crate::size;

/// What is to be otherwise from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    high: Option<u8>,
    low: Option<u8>,
    order: Option<String>,
    exponent_hundredths: Option<u16>,
    /// 0 for no bound.
    cache_bytes: Option<u64>,
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

/// Makes it so.
pub fn apply(running: &Running, change: &Change) -> Result<()> {
    if *change == Change::default() {
        return Ok(());
    }
    let store = &running.store;
    let (marks, mut policy) = (store.tier.media.tier_marks(Io::BLOCKING)?, store.tier.heat.tier_policy(Io::BLOCKING)?);
    let Some(marks) = TierMarks::new(change.high.unwrap_or(marks.high), change.low.unwrap_or(marks.low)) else {
        return refused("the marks are percent, 1 <= low < high <= 100");
    };
    policy.order = change.order.as_deref().and_then(ReleaseOrder::from_word).unwrap_or(policy.order);
    policy.exponent_hundredths = change.exponent_hundredths.unwrap_or(policy.exponent_hundredths);
    policy.cache_bytes = change.cache_bytes.unwrap_or(policy.cache_bytes);
    if change.high.is_some() || change.low.is_some() {
        store.tier.media.set_tier_marks(marks)?;
    }
    store.tier.heat.set_tier_policy(policy)?;
    running.tertiary.wake();
    Ok(())
}

pub fn print(report: &TierReport) {
    let first = match report.order.as_str() {
        "lru" => "what was used longest ago first".to_owned(),
        "once" => "what was used at most once since it came back first".to_owned(),
        "size" => "the largest first".to_owned(),
        _ if (report.exponent - 1.0).abs() < 0.001 => "the least used and largest first".to_owned(),
        _ => format!("the greatest size times age to the power of {} first", report.exponent),
    };
    println!(
        "archived files are released when devices are {} % full, {first}, down to {} %; now {} % (order={})",
        report.high, report.low, report.used_percent, report.order
    );
    let back = size::show(report.back_bytes);
    match report.cache_bytes {
        Some(bytes) => println!("what came back takes {back} of devices, and may take {}", size::show(bytes)),
        None => println!("what came back takes {back} of devices, and may take as much as the marks allow"),
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
            assert_eq!(error.exit_code(), crate::error::USAGE, "{setting}");
            assert!(error.to_string().contains(right), "{setting}: {error}");
        }
    }
}
