//! Sizes and times as people write them, `6G` is 6 GiB; counts with their nouns.

use std::time::Duration;

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Reads `4096`, `64M`, `64MiB`, `1.5G`. Units are powers of 1024 whatever they are called.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write a number and a unit, such as 512M or 6G");
    let split = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(wrong()),
    };
    if !number.contains('.') {
        let number: u64 = number.parse().map_err(|_| wrong())?;
        return number.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * (1_u64 << shift) as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// Three digits and a unit.
pub fn show(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 10.0 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 100.0 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// Exact where it was asked for.
pub fn show_as(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { show(bytes) }
}

/// A count with its noun: `1 device`, `2 devices`.
pub fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// How many devices may be lost, as the object of "survives".
pub fn loss_of_devices(count: u64) -> String {
    match count {
        0 => "no loss of a device".into(),
        1 => "the loss of 1 device".into(),
        _ => format!("the loss of {count} devices"),
    }
}

/// A number with its word, which ends in s if it is not one.
pub fn count(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// How long something takes, as people say it.
pub fn show_duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{} s", seconds.max(1)),
        60..5400 => format!("{} min", seconds.div_ceil(60)),
        5400..172_800 => format!("{} h", (seconds + 1800) / 3600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// Seconds, or with a unit: 90s, 10m, 2h, 30d.
pub fn duration(text: &str) -> Option<Duration> {
    let units = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
    let unit = units.into_iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (number, factor) = unit.unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(factor).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::{counted, loss_of_devices, parse, show, show_duration};

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64M", 64 << 20), ("6G", 6 << 30), ("1.5k", 1536), ("2TiB", 2 << 40)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1X", "1.2.3M", "99999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(show(1023), "1023 B");
        assert_eq!(show(1536), "1.50 KiB");
        assert_eq!(show(64 << 20), "64.0 MiB");
    }

    #[test]
    fn counts_agree_with_their_nouns() {
        assert_eq!(
            [counted(0, "device"), counted(1, "device"), counted(2, "device")],
            ["0 devices", "1 device", "2 devices"]
        );
        assert_eq!(
            [0, 1, 2].map(loss_of_devices),
            ["no loss of a device", "the loss of 1 device", "the loss of 2 devices"]
        );
    }

    #[test]
    fn durations_are_shown_as_people_say_them() {
        for (seconds, text) in
            [(0, "1 s"), (59, "59 s"), (61, "2 min"), (5399, "90 min"), (7 * 3600, "7 h"), (8 * 86_400, "8 days")]
        {
            assert_eq!(show_duration(seconds), text);
        }
    }
}
