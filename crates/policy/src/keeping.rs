//! What of a file or directory stays on devices, and in what company it leaves them: `pin`, `unit` and `names`.
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
pub enum Keep {
    /// Whether content stays on devices.
    Pin,
    /// Whether what is below a directory goes down and comes back as one.
    Unit,
    /// For how long nobody may have used names below a directory before they are put away.
    Names,
}

impl Keep {
    /// All of them, in the order they are listed.
    pub const ALL: [Keep; 3] = [Keep::Pin, Keep::Unit, Keep::Names];

    /// The key without its prefix.
    pub fn word(self) -> &'static str {
        match self {
            Keep::Pin => "pin",
            Keep::Unit => "unit",
            Keep::Names => "names",
        }
    }

    /// The whole attribute name, as listed.
    pub fn attribute(self) -> &'static str {
        match self {
            Keep::Pin => "user.stere.pin",
            Keep::Unit => "user.stere.unit",
            Keep::Names => "user.stere.names",
        }
    }

    /// What values it takes, for messages.
    pub fn expected(self) -> &'static str {
        match self {
            Keep::Pin => "yes or no",
            Keep::Unit => "yes or no, on a directory",
            Keep::Names => "how long nobody may have used them (90d; s, m, h, d, w, y), or no",
        }
    }

    /// The key people call by `word`.
    pub fn from_word(word: &str) -> Option<Keep> {
        Keep::ALL.into_iter().find(|keep| keep.word() == word)
    }
}

/// The longest that can be asked for, so that adding it to any moment makes a moment.
const SECONDS_MAX: u64 = 10_000 * 365 * 86_400;

/// What one object, rule or class says of these keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keeping {
    /// Whether content stays on devices.
    pub pin: Option<bool>,
    /// Whether what is below a directory is one.
    pub unit: Option<bool>,
    /// After how many seconds without use names below a directory go; 0 where they stay.
    pub names_seconds: Option<u64>,
}

impl Keeping {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Keeping::default()
    }

    /// Whether something is said of a key.
    pub fn says(&self, keep: Keep) -> bool {
        match keep {
            Keep::Pin => self.pin.is_some(),
            Keep::Unit => self.unit.is_some(),
            Keep::Names => self.names_seconds.is_some(),
        }
    }

    /// What is said of one key alone.
    pub fn only(&self, keep: Keep) -> Keeping {
        match keep {
            Keep::Pin => Keeping { pin: self.pin, ..Keeping::default() },
            Keep::Unit => Keeping { unit: self.unit, ..Keeping::default() },
            Keep::Names => Keeping { names_seconds: self.names_seconds, ..Keeping::default() },
        }
    }

    /// Says something of a key; an empty value takes it back.
    pub fn set(&mut self, keep: Keep, value: &[u8]) -> Result<(), PolicyError> {
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
        match keep {
            Keep::Pin => self.pin = yes_or_no()?,
            Keep::Unit => self.unit = yes_or_no()?,
            Keep::Names => {
                self.names_seconds = match value {
                    b"" => None,
                    b"no" | b"never" => Some(0),
                    _ => {
                        let length = std::str::from_utf8(value).ok().and_then(parse_length);
                        Some(length.filter(|seconds| (1..=SECONDS_MAX).contains(seconds)).ok_or_else(refused)?)
                    }
                };
            }
        }
        Ok(())
    }

    /// As people write it, if something is said.
    pub fn text(&self, keep: Keep) -> Option<String> {
        let word = |is_on: bool| if is_on { "yes" } else { "no" }.to_owned();
        match keep {
            Keep::Pin => self.pin.map(word),
            Keep::Unit => self.unit.map(word),
            Keep::Names => self.names_seconds.map(|seconds| match seconds {
                0 => "no".to_owned(),
                seconds => show_length(seconds),
            }),
        }
    }

    /// This, and where it says nothing the other.
    pub fn or(self, other: Keeping) -> Keeping {
        Keeping {
            pin: self.pin.or(other.pin),
            unit: self.unit.or(other.unit),
            names_seconds: self.names_seconds.or(other.names_seconds),
        }
    }

    /// Of rules that match together: content stays, what is one stays one, and names stay, or stay longer.
    pub fn or_more(self, other: Keeping) -> Keeping {
        let longer = |seconds: &u64| seconds.checked_sub(1).unwrap_or(u64::MAX);
        Keeping {
            pin: self.pin.max(other.pin),
            unit: self.unit.max(other.unit),
            names_seconds: [self.names_seconds, other.names_seconds].into_iter().flatten().max_by_key(longer),
        }
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
    pub keeping: Keeping,
    /// They name a class.
    pub has_class: bool,
}

/// What one object says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// Set there.
    pub own: Keeping,
    /// What the class that is set there says, if one is.
    pub class: Option<Keeping>,
    /// The same of one that is locked there.
    pub locked: Option<Keeping>,
    /// It may have rules for what is in it.
    pub has_rules: bool,
}

#[derive(Debug, Clone, Copy)]
struct OfObject {
    object: u64,
    keeping: Keeping,
    has_class: bool,
}

/// An object that says something, with what its rules say of what is below it, the nearest last.
#[derive(Debug, Clone)]
struct Place {
    object: u64,
    rules: Vec<OfObject>,
    own: Keeping,
    class: Option<Keeping>,
}

/// All that is said of one object and of those above it; the nearest is last.
#[derive(Debug, Clone, Default)]
pub struct Statements {
    locks: Vec<(u64, Keeping)>,
    overriding: Vec<OfObject>,
    places: Vec<Place>,
    pool: Vec<OfObject>,
    default: Keeping,
}

impl Statements {
    /// Of what lies above everything: the pool's default class alone speaks.
    pub fn of_pool(default: Keeping) -> Statements {
        Statements { default, ..Statements::default() }
    }

    /// Of an object in the one that these are of. The same where nothing is said there.
    pub fn below(self: &Arc<Statements>, object: u64, said: &Said, matched: &[MatchedRules]) -> Arc<Statements> {
        let is_silent = *said == Said::default() && matched.is_empty();
        if is_silent {
            return self.clone();
        }
        let mut below = Statements::clone(self);
        below.locks.extend(said.locked.map(|keeping| (object, keeping)));
        for MatchedRules { place, overrides, keeping, has_class } in matched.iter().copied() {
            let rules = match place {
                None if overrides => &mut below.overriding,
                None => &mut below.pool,
                Some(place) => match below.places.iter_mut().rev().find(|known| known.object == place) {
                    Some(known) => &mut known.rules,
                    // Its rules came after it was looked at: whoever changed them makes this old.
                    None => continue,
                },
            };
            rules.push(OfObject { object, keeping, has_class });
        }
        if said.has_rules || said.class.is_some() || !said.own.is_empty() {
            below.places.push(Place { object, rules: Vec::new(), own: said.own, class: said.class });
        }
        Arc::new(below)
    }

    /// What holds of a key, and who says so.
    pub fn kept<T>(&self, of: impl Fn(&Keeping) -> Option<T>) -> Option<(T, KeptBy)> {
        for (object, keeping) in self.locks.iter().rev() {
            if let Some(value) = of(keeping) {
                return Some((value, KeptBy::Lock(*object)));
            }
        }
        let mut has_class = false;
        let by_rules = |rules: &[OfObject], place, has_class: &mut bool| {
            for one in rules.iter().rev() {
                if let Some(value) = of(&one.keeping) {
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
