//! What of a file or directory stays on devices, and in what company it leaves them: `pin`, `release`, `unit` and `names`.
//!
//! Unlike other keys these hold for what is *below* an object too: a rule that matches a directory says them of the directory and of all in
//! it. So they are not noted in inodes: whoever asks goes up from the object, which [`Statements`] are made of, and nothing changes in
//! files when a rule does. Who goes before whom is as for all keys: locks, overriding rules of the pool, the object, then from its directory
//! upward at each one its rules before what is set there, the pool's rules, its default class. Of rules of one place those come first that
//! match what is nearer. Invariant: of one class the nearest speaks; those further up say nothing then.

use std::sync::Arc;

use crate::error::PolicyError;
use crate::moment::{parse_length, show_length};

/// One of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResidencySetting {
    /// Whether content stays on devices.
    Pin,
    /// Whether what is below a directory goes down and comes back as one.
    Unit,
    /// For how long nobody may have used names below a directory before they are put away.
    Names,
    /// For how long nobody may have used content that is on media before it is given up on devices.
    Release,
}

impl ResidencySetting {
    /// All of them, in the order they are listed.
    pub const ALL: [ResidencySetting; 4] =
        [ResidencySetting::Pin, ResidencySetting::Unit, ResidencySetting::Names, ResidencySetting::Release];

    /// The key without its prefix.
    pub fn word(self) -> &'static str {
        match self {
            ResidencySetting::Pin => "pin",
            ResidencySetting::Unit => "unit",
            ResidencySetting::Names => "names",
            ResidencySetting::Release => "release",
        }
    }

    /// The whole attribute name, as listed.
    pub fn attribute(self) -> &'static str {
        match self {
            ResidencySetting::Pin => "user.stere.pin",
            ResidencySetting::Unit => "user.stere.unit",
            ResidencySetting::Names => "user.stere.names",
            ResidencySetting::Release => "user.stere.release",
        }
    }

    /// What values it takes, for messages.
    pub fn expected(self) -> &'static str {
        match self {
            ResidencySetting::Pin => "yes or no",
            ResidencySetting::Unit => "yes or no, on a directory",
            ResidencySetting::Names => "how long nobody may have used them (90d; s, m, h, d, w, y), or no",
            ResidencySetting::Release => {
                "how long nobody may have used what is on media (30d; s, m, h, d, w, y) before devices give it up, or no"
            }
        }
    }

    /// The key people call by `word`.
    pub fn from_word(word: &str) -> Option<ResidencySetting> {
        ResidencySetting::ALL.into_iter().find(|keep| keep.word() == word)
    }
}

/// The longest that can be asked for, so that adding it to any moment makes a moment.
const SECONDS_MAX: u64 = 10_000 * 365 * 86_400;

/// What one object, rule or class says of these keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResidencySettings {
    /// Whether content stays on devices.
    pub pin: Option<bool>,
    /// Whether what is below a directory is one.
    pub unit: Option<bool>,
    /// After how many seconds without use names below a directory go; 0 where they stay.
    pub names_seconds: Option<u64>,
    /// After how many seconds without use content on media is given up on devices; 0 where it stays.
    pub release_seconds: Option<u64>,
}

impl ResidencySettings {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == ResidencySettings::default()
    }

    /// Whether something is said of a key.
    pub fn says(&self, keep: ResidencySetting) -> bool {
        match keep {
            ResidencySetting::Pin => self.pin.is_some(),
            ResidencySetting::Unit => self.unit.is_some(),
            ResidencySetting::Names => self.names_seconds.is_some(),
            ResidencySetting::Release => self.release_seconds.is_some(),
        }
    }

    /// What is said of one key alone.
    pub fn only(&self, keep: ResidencySetting) -> ResidencySettings {
        match keep {
            ResidencySetting::Pin => ResidencySettings { pin: self.pin, ..ResidencySettings::default() },
            ResidencySetting::Unit => ResidencySettings { unit: self.unit, ..ResidencySettings::default() },
            ResidencySetting::Names => {
                ResidencySettings { names_seconds: self.names_seconds, ..ResidencySettings::default() }
            }
            ResidencySetting::Release => {
                ResidencySettings { release_seconds: self.release_seconds, ..ResidencySettings::default() }
            }
        }
    }

    /// Says something of a key; an empty value takes it back.
    pub fn set(&mut self, keep: ResidencySetting, value: &[u8]) -> Result<(), PolicyError> {
        let refused = || PolicyError::BadValue {
            key: keep.word(),
            value: String::from_utf8_lossy(value).into_owned(),
            expected: keep.expected(),
        };
        let yes_or_no = || match value {
            b"" => Ok(None),
            b"yes" => Ok(Some(true)),
            b"no" | b"never" => Ok(Some(false)),
            _ => Err(refused()),
        };
        let length_or_no = || match value {
            b"" => Ok(None),
            b"no" | b"never" => Ok(Some(0)),
            _ => {
                let length = std::str::from_utf8(value).ok().and_then(parse_length);
                length.filter(|seconds| (1..=SECONDS_MAX).contains(seconds)).map(Some).ok_or_else(refused)
            }
        };
        match keep {
            ResidencySetting::Pin => self.pin = yes_or_no()?,
            ResidencySetting::Unit => self.unit = yes_or_no()?,
            ResidencySetting::Names => self.names_seconds = length_or_no()?,
            ResidencySetting::Release => self.release_seconds = length_or_no()?,
        }
        assert_eq!(self.says(keep), !value.is_empty(), "what was set of {keep:?} can be read");
        Ok(())
    }

    /// As people write it, if something is said.
    pub fn text(&self, keep: ResidencySetting) -> Option<String> {
        let word = |is_on: bool| if is_on { "yes" } else { "no" }.to_owned();
        let length = |seconds| if seconds == 0 { "no".to_owned() } else { show_length(seconds) };
        match keep {
            ResidencySetting::Pin => self.pin.map(word),
            ResidencySetting::Unit => self.unit.map(word),
            ResidencySetting::Names => self.names_seconds.map(length),
            ResidencySetting::Release => self.release_seconds.map(length),
        }
    }

    /// This, and where it says nothing the other.
    pub fn or(self, other: ResidencySettings) -> ResidencySettings {
        ResidencySettings {
            pin: self.pin.or(other.pin),
            unit: self.unit.or(other.unit),
            names_seconds: self.names_seconds.or(other.names_seconds),
            release_seconds: self.release_seconds.or(other.release_seconds),
        }
    }

    /// Of rules that match together: content and names stay, or stay longer, and what is one stays one.
    pub fn or_more(self, other: ResidencySettings) -> ResidencySettings {
        let longer = |seconds: &u64| seconds.checked_sub(1).unwrap_or(u64::MAX);
        let both = ResidencySettings {
            pin: self.pin.max(other.pin),
            unit: self.unit.max(other.unit),
            names_seconds: [self.names_seconds, other.names_seconds].into_iter().flatten().max_by_key(longer),
            release_seconds: [self.release_seconds, other.release_seconds].into_iter().flatten().max_by_key(longer),
        };
        let is_said = |keep: ResidencySetting| self.says(keep) || other.says(keep);
        assert!(
            ResidencySetting::ALL.into_iter().all(|keep| both.says(keep) == is_said(keep)),
            "what one says is said"
        );
        both
    }
}

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptBy {
    /// What is set on this object.
    Object(u64),
    /// A class that the administrator locked at this object.
    Lock(u64),
    /// Rules that match this object, of a directory or (none) of the pool.
    Rule {
        /// Whose rules they are.
        place: Option<u64>,
        /// What they match.
        object: u64,
    },
    /// The pool's default class.
    Pool,
}

/// Rules of one place that match one object, as if they were one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedRules {
    /// The directory that has them; none for the pool's.
    pub place: Option<u64>,
    /// They go before what objects say.
    pub overrides: bool,
    /// What they say, with what their classes do.
    pub residency: ResidencySettings,
    /// They name a class.
    pub has_class: bool,
}

/// What one object says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// Set there.
    pub own: ResidencySettings,
    /// What the class that is set there says, if one is.
    pub class: Option<ResidencySettings>,
    /// The same of one that is locked there.
    pub locked: Option<ResidencySettings>,
    /// It may have rules for what is in it.
    pub has_rules: bool,
}

#[derive(Debug, Clone, Copy)]
struct OfObject {
    object: u64,
    residency: ResidencySettings,
    has_class: bool,
}

/// An object that says something, with what its rules say of what is below it, the nearest last.
#[derive(Debug, Clone)]
struct Place {
    object: u64,
    rules: Vec<OfObject>,
    own: ResidencySettings,
    class: Option<ResidencySettings>,
}

/// All that is said of one object and of those above it; the nearest is last.
#[derive(Debug, Clone, Default)]
pub struct Statements {
    locks: Vec<(u64, ResidencySettings)>,
    overriding: Vec<OfObject>,
    places: Vec<Place>,
    pool: Vec<OfObject>,
    default: ResidencySettings,
}

impl Statements {
    /// Of what lies above everything: the pool's default class alone speaks.
    pub fn of_pool(default: ResidencySettings) -> Statements {
        Statements { default, ..Statements::default() }
    }

    /// Of an object in the one that these are of. The same where nothing is said there.
    pub fn below(self: &Arc<Statements>, object: u64, said: &Said, matched: &[MatchedRules]) -> Arc<Statements> {
        let is_silent = *said == Said::default() && matched.is_empty();
        if is_silent {
            return self.clone();
        }
        let mut below = Statements::clone(self);
        below.locks.extend(said.locked.map(|residency| (object, residency)));
        for MatchedRules { place, overrides, residency, has_class } in matched.iter().copied() {
            let rules = match place {
                None if overrides => &mut below.overriding,
                None => &mut below.pool,
                Some(place) => match below.places.iter_mut().rev().find(|known| known.object == place) {
                    Some(known) => &mut known.rules,
                    // Its rules came after it was looked at: whoever changed them makes this old.
                    None => continue,
                },
            };
            rules.push(OfObject { object, residency, has_class });
        }
        if said.has_rules || said.class.is_some() || !said.own.is_empty() {
            below.places.push(Place { object, rules: Vec::new(), own: said.own, class: said.class });
        }
        Arc::new(below)
    }

    /// What holds of a key, and who says so.
    pub fn kept<T>(&self, of: impl Fn(&ResidencySettings) -> Option<T>) -> Option<(T, KeptBy)> {
        for (object, residency) in self.locks.iter().rev() {
            if let Some(value) = of(residency) {
                return Some((value, KeptBy::Lock(*object)));
            }
        }
        let mut has_class = false;
        let by_rules = |rules: &[OfObject], place, has_class: &mut bool| {
            for one in rules.iter().rev() {
                if let Some(value) = of(&one.residency) {
                    return Some((value, KeptBy::Rule { place, object: one.object }));
                }
                *has_class |= one.has_class;
            }
            None
        };
        if let Some(found) = by_rules(&self.overriding, None, &mut has_class) {
            return Some(found);
        }
        for (number, place) in self.places.iter().enumerate().rev() {
            debug_assert!(
                number == 0 || self.places[number - 1].object != place.object,
                "each object stands there once"
            );
            if let Some(found) = by_rules(&place.rules, Some(place.object), &mut has_class) {
                return Some(found);
            }
            let of_class = place.class.filter(|_| !has_class).unwrap_or_default();
            if let Some(value) = of(&place.own).or_else(|| of(&of_class)) {
                return Some((value, KeptBy::Object(place.object)));
            }
            has_class |= place.class.is_some();
        }
        let found = by_rules(&self.pool, None, &mut has_class);
        found.or_else(|| Some((of(&self.default)?, KeptBy::Pool)))
    }

    /// The pool's default class says something else now.
    pub fn is_nothing(&self) -> bool {
        self.locks.is_empty()
            && self.overriding.is_empty()
            && self.places.is_empty()
            && self.pool.is_empty()
            && self.default.is_empty()
    }
}

#[cfg(test)]
mod tests;
