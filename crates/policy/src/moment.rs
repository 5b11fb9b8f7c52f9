//! Moments as people write them, in UTC: `2027-01-31`, `2027-01-31T12:30:00Z`; and lengths of time such as `30d`.

/// Seconds since 1970 as date and time of day in UTC.
pub fn show_moment(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's civil_from_days: years begin in March, so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    assert!((1..=12).contains(&month) && (1..=31).contains(&day), "{seconds} s are day {day} of month {month}");
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The moment of a date, or of a date and a time of day behind a `T` or a blank; all in UTC, with or without a `Z`.
pub fn parse_moment(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let mut numbers = date.split('-').map(|part| digits(part, &[2, 4]));
    let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let mut parts = time.split(':').map(|part| digits(part, &[2]));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    let is_time = hour < 24 && minute < 60 && second < 60 && parts.next().is_none();
    if year < 1970 || numbers.next().is_some() || !is_time {
        return None;
    }
    let days = days_of(year, month, day);
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    // A day that there is not comes back as another one.
    let is_day =
        (1..=12).contains(&month) && show_moment(seconds).starts_with(&format!("{year:04}-{month:02}-{day:02}"));
    assert!(!is_day || seconds >= 0, "{text} is {seconds} s, before 1970");
    is_day.then_some(seconds)
}

fn digits(text: &str, lengths: &[usize]) -> Option<i64> {
    let is_number = lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Days since 1970: Howard Hinnant's days_from_civil.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    assert!(year >= 1970, "days are counted from 1970 on, not from {year}");
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Units of time, the greatest first.
const UNITS: [(char, u64); 6] =
    [('y', 365 * 86_400), ('w', 7 * 86_400), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
const _: () = {
    let mut at = 1;
    while at < UNITS.len() {
        assert!(UNITS[at].1 < UNITS[at - 1].1, "the greater unit stands first");
        at += 1;
    }
};

/// Seconds of a number with a unit: s, m, h, d, w, y.
pub fn parse_length(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let (_, seconds) = UNITS.into_iter().find(|(letter, _)| *letter == unit)?;
    let number = &text[..text.len() - 1];
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(seconds)
}

/// The same the other way, in the greatest unit that fits.
pub fn show_length(seconds: u64) -> String {
    let fits = |(_, unit): &(char, u64)| seconds > 0 && seconds % unit == 0;
    let (letter, unit) = UNITS.into_iter().find(fits).unwrap_or(('s', 1));
    let text = format!("{}{letter}", seconds / unit);
    assert_eq!(parse_length(&text), Some(seconds), "what is shown is read again");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_as_dates_and_read_again() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (4_102_444_800, "2100-01-01 00:00:00"),
        ] {
            assert_eq!(show_moment(seconds), shown);
            assert_eq!(parse_moment(shown), Some(seconds));
            assert_eq!(parse_moment(&shown.replace(' ', "T")), Some(seconds));
        }
        assert_eq!(show_moment(-1), "1969-12-31 23:59:59");
        assert_eq!(parse_moment("2100-01-01"), Some(4_102_444_800));
        assert_eq!(parse_moment("2100-01-01T00:01Z"), Some(4_102_444_860));
        for days in 0..60_000 {
            assert_eq!(parse_moment(&show_moment(days * 86_400)), Some(days * 86_400));
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in [
            "",
            "2027",
            "2027-02-30",
            "2027-13-01",
            "2027-00-01",
            "2027-01-00",
            "1969-12-31",
            "27-1-1",
            "2027-01-01T24:00",
            "2027-01-01T10:60",
            "2027-01-01T",
            "2027-01-01-01",
            "+2027-01-01",
            "20270101",
            "2027-01-01T1:2",
            "2100-02-29",
        ] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
    }

    #[test]
    fn lengths_of_time_are_read_and_shown() {
        for (text, seconds) in
            [("1s", 1), ("90m", 5400), ("30d", 30 * 86_400), ("7y", 7 * 365 * 86_400), ("2w", 14 * 86_400)]
        {
            assert_eq!((parse_length(text), show_length(seconds).as_str()), (Some(seconds), text));
        }
        assert_eq!((parse_length("120s"), show_length(120).as_str()), (Some(120), "2m"));
        assert_eq!((parse_length("0s"), show_length(0).as_str()), (Some(0), "0s"));
        for text in ["", "d", "30", "-1d", "1.5h", "99999999999999999999y", "1D", "3ü"] {
            assert_eq!(parse_length(text), None, "{text}");
        }
    }
}
