//! Retention in histories: files that nobody changes or removes before a moment, while days go by.
//!
//! The model reads the moment from the attribute, as anybody may, and by that says which calls are refused: so a crash must leave a
//! file locked for as long as some state since the last sync had it locked. What the attribute says when it is set is worked out here
//! again. No call comes near a moment: time leaps over it. Read next: `model.rs`, `docs/design/retention.md`.

use stere_naming::{Error, SetMode};

use crate::area::Area;
use crate::execute;
use crate::history::{History, Stop};
use crate::model::Model;
use crate::operation::Path;
use crate::pool::{caller, timestamp};

/// The attribute that says how long.
pub const ATTRIBUTE: &[u8] = b"user.stere.retain";
const DAY_SECONDS: i64 = 86_400;
/// No step takes longer.
const STEP_SECONDS_MAX: i64 = 7_200;

/// Seconds since 1970 of what is written as 2031-12-31T12:00:00Z.
pub fn moment(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let numbers: Vec<i64> = text.split(['-', 'T', ':']).map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [year, month, day, hour, minute, second] = numbers[..] else { return None };
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let of_year = |year: i64| if is_leap(year) { 366 } else { 365 };
    let lengths = [31, of_year(year) - 337, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before: i64 = lengths.iter().take(usize::try_from(month).ok()?.checked_sub(1)?).sum();
    let days = (1970..year).map(of_year).sum::<i64>() + before + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// A file is to stay as it is for so many days, or, with none, not any longer.
pub(crate) fn retain(history: &mut History, path: Path, days: u8) -> Result<(), Stop> {
    let Some(inode) = execute::inode_of(history, path)? else { return Ok(()) };
    // Plugins note nothing with what is retained, and nobody tells them later: what they noted could not be compared.
    if history.plan.pool.areas.has(Area::Followers) || history.model.nodes[&inode].content().is_none() {
        return Ok(());
    }
    let user = caller(&history.machine);
    let files = history.mounted().files.clone();
    let is_owner = user.uid == 0 || user.uid == history.model.nodes[&inode].owner.0;
    let may = if is_owner { Ok(()) } else { Err(libc::EPERM) };
    let until = user.now.seconds + i64::from(days) * DAY_SECONDS;
    if days == 0 {
        let real = files.removexattr(&user, inode, ATTRIBUTE);
        let is_there = history.model.nodes[&inode].attributes.contains_key(ATTRIBUTE);
        let after = history.model.changed_node(inode, |node| drop(node.attributes.remove(ATTRIBUTE)));
        let right =
            history.model.check_changeable(inode).and(may).and(if is_there { Ok(after) } else { Err(libc::ENODATA) });
        return history.expect_names("removing a moment", real, right).map(drop);
    }
    let real = files.setxattr(&user, inode, ATTRIBUTE, format!("{days}d").as_bytes(), SetMode::Any, false);
    let is_shorter = history.model.retained_until(inode).is_some_and(|before| until < before);
    let is_done = real.is_ok();
    let text = match is_done {
        true => {
            let text = files.getxattr(&user, inode, ATTRIBUTE);
            history.must("getxattr of a moment", text)?
        }
        // As it will be found if a crash comes in between.
        false => show(until).into_bytes(),
    };
    let after =
        history.model.changed_node(inode, |node| drop(node.attributes.insert(ATTRIBUTE.to_vec(), text.clone())));
    let right = if is_shorter { history.model.check_changeable(inode).map(|()| after) } else { Ok(after) };
    let right = may.and(right);
    history.expect_names("setting a moment", real, right)?;
    if is_done && moment(&text) != Some(until) {
        let text = String::from_utf8_lossy(&text);
        return Err(Stop::Failure(format!("a file that is to stay for {days} days says {text}, not {}", show(until))));
    }
    Ok(())
}

/// Days go by.
pub(crate) fn pass_days(history: &mut History, days: u8) {
    history.machine.pass(u64::from(days) * DAY_SECONDS as u64 * 1_000_000_000);
}

/// Tells the model what time it is, at which no file is about to be free.
pub(crate) fn tell_time(history: &mut History) {
    let now = || timestamp(&history.machine).seconds;
    while let Some(soon) = history.model.moments().find(|moment| (1..=STEP_SECONDS_MAX).contains(&(moment - now()))) {
        history.machine.pass((soon - now() + 1) as u64 * 1_000_000_000);
    }
    history.model.now_seconds = now();
}

/// Whether this is the answer to whoever sets a policy of a retained file that would change it.
pub(crate) fn is_of_retention(model: &Model, inode: u64, error: &Error) -> bool {
    matches!(error, Error::Retained(_)) && model.check_changeable(inode).is_err()
}

/// A moment as stere writes it.
fn show(moment: i64) -> String {
    let (mut days, seconds) = (moment.div_euclid(DAY_SECONDS), moment.rem_euclid(DAY_SECONDS));
    let (mut year, mut month) = (1970, 1);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = |year: i64, month: i64| match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    while days >= length(year, month) {
        days -= length(year, month);
        (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    }
    format!("{year:04}-{month:02}-{:02}T{:02}:{:02}:{:02}Z", days + 1, seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl Model {
    /// Until when a file stays as it is, if that was said.
    pub fn retained_until(&self, inode: u64) -> Option<i64> {
        let node = self.nodes.get(&inode).filter(|node| node.content().is_some())?;
        moment(node.attributes.get(ATTRIBUTE)?)
    }

    /// Refuses to change a file before its moment.
    pub fn check_changeable(&self, inode: u64) -> Result<(), crate::model::Errno> {
        match self.retained_until(inode) {
            Some(until) if until > self.now_seconds => Err(libc::EPERM),
            _ => Ok(()),
        }
    }

    fn moments(&self) -> impl Iterator<Item = i64> {
        self.nodes.keys().filter_map(|inode| self.retained_until(*inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_it_is_shown() {
        for seconds in [0, 5_000_000, 68_169_599, 68_169_600, 951_782_400, 1_700_000_000, 4_107_542_399] {
            assert_eq!(moment(show(seconds).as_bytes()), Some(seconds), "{}", show(seconds));
        }
        assert_eq!(moment(b"2031-12-31T00:00:00Z"), Some(1_956_441_600));
        assert_eq!(moment(b"7d"), None);
    }
}
