//! A bounded table of profiles, one for each subject that calls often enough.
//!
//! A subject that is not in the table is counted as *other* of its kind. While the table has room it is let in at its first
//! call; afterwards it must call more often than the rarest one, which then is merged into *other* (the idea of space-saving,
//! Metwally 2005). Newcomers are counted in a small table of their own, so a million names that call once each cost a count
//! and change nothing. Invariants: there are never more than the given number of profiles; no call is lost, for the profiles
//! of a kind add up to all its calls. Recent rates are halved from time to time, so that what once was busy gives way.
//! Read next: `profile.rs`.

use rustc_hash::FxHashMap;

use crate::call::Call;
use crate::distinct::mixed;
use crate::profile::Profile;

/// What calls are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SubjectKind {
    Volume,
    Class,
    Subtree,
    Client,
    Device,
    Medium,
}

impl SubjectKind {
    pub const ALL: [SubjectKind; 6] = [
        SubjectKind::Volume,
        SubjectKind::Class,
        SubjectKind::Subtree,
        SubjectKind::Client,
        SubjectKind::Device,
        SubjectKind::Medium,
    ];

    pub fn word(self) -> &'static str {
        match self {
            SubjectKind::Volume => "volume",
            SubjectKind::Class => "class",
            SubjectKind::Subtree => "subtree",
            SubjectKind::Client => "client",
            SubjectKind::Device => "device",
            SubjectKind::Medium => "medium",
        }
    }

    pub fn from_word(word: &str) -> Option<SubjectKind> {
        SubjectKind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// One subject: its kind, and its number or the hash of its name. The caller keeps names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    pub kind: SubjectKind,
    pub id: u64,
}

/// Profiles that a table has by default, those of the others among them: less than 16 MiB with the calls that a mount has not counted yet.
pub const PROFILES_MAX: usize = 384;
const KINDS: usize = SubjectKind::ALL.len();
/// Newcomers that are counted at a time; two that fall to one place share it in turn.
const CANDIDATES: usize = 1024;
/// Rates are halved each so many calls.
const HALVED_EACH: u64 = 1 << 20;

struct Slot {
    subject: Subject,
    /// Calls of late: halved from time to time.
    rate: u64,
    profile: Box<Profile>,
}

#[derive(Clone, Copy)]
struct Candidate {
    subject: Subject,
    count: u64,
}

/// A bounded table of profiles.
pub struct Subjects {
    slots: Vec<Slot>,
    places: FxHashMap<Subject, usize>,
    others: [Option<Box<Profile>>; KINDS],
    candidates: Vec<Option<Candidate>>,
    profiles_max: usize,
    notes: u64,
    /// No slot has a lesser rate; looked up anew when a candidate passes it.
    rate_least: u64,
}

impl Default for Subjects {
    fn default() -> Self {
        Subjects::new(PROFILES_MAX)
    }
}

impl Subjects {
    /// A table of at most so many profiles; there is one of the others for each kind.
    pub fn new(profiles_max: usize) -> Self {
        assert!(profiles_max > KINDS, "a table of {profiles_max} profiles has no room beside the others");
        Subjects {
            slots: Vec::new(),
            places: FxHashMap::default(),
            others: Default::default(),
            candidates: vec![None; CANDIDATES],
            profiles_max,
            notes: 0,
            rate_least: 0,
        }
    }

    /// Notes a call on one subject. A call that concerns several is noted once for each.
    pub fn note(&mut self, subject: Subject, call: &Call) {
        self.notes += 1;
        if self.notes % HALVED_EACH == 0 {
            self.halve_rates();
        }
        if let Some(place) = self.places.get(&subject) {
            let slot = &mut self.slots[*place];
            slot.rate += 1;
            slot.profile.note(call);
        } else if self.slots.len() < self.profiles_max - KINDS {
            self.admit(subject, 1).note(call);
        } else {
            self.note_newcomer(subject, call);
        }
    }

    fn note_newcomer(&mut self, subject: Subject, call: &Call) {
        let count = self.count_candidate(subject);
        if count > self.rate_least
            && let Some(rarest) = self.rarest()
        {
            self.rate_least = self.slots[rarest].rate;
            // Twice as often, so that two of about the same rate do not take turns.
            if count > 2 * self.rate_least {
                self.give_up(rarest);
                self.admit(subject, count).note(call);
                return;
            }
            self.rate_least *= 2;
        }
        self.other(subject.kind).note(call);
    }

    /// Calls of a subject that is not in the table; one that meets a more frequent one at its place takes a count from it.
    fn count_candidate(&mut self, subject: Subject) -> u64 {
        let hash = mixed(subject.id ^ (subject.kind as u64) << 56);
        let place = &mut self.candidates[hash as usize % CANDIDATES];
        match place {
            Some(candidate) if candidate.subject == subject => candidate.count += 1,
            Some(candidate) if candidate.count > 1 => {
                candidate.count -= 1;
                return 0;
            }
            _ => *place = Some(Candidate { subject, count: 1 }),
        }
        place.as_ref().map_or(0, |candidate| candidate.count)
    }

    fn rarest(&self) -> Option<usize> {
        (0..self.slots.len()).min_by_key(|place| self.slots[*place].rate)
    }

    fn admit(&mut self, subject: Subject, rate: u64) -> &mut Profile {
        let place = self.slots.len();
        let before = self.places.insert(subject, place);
        assert!(before.is_none(), "{subject:?} is in the table once");
        self.slots.push(Slot { subject, rate, profile: Box::default() });
        assert!(self.slots.len() + KINDS <= self.profiles_max, "the table is bounded");
        &mut self.slots[place].profile
    }

    fn give_up(&mut self, place: usize) {
        let slot = self.slots.swap_remove(place);
        let gone = self.places.remove(&slot.subject);
        assert_eq!(gone, Some(place), "{:?} was in the table", slot.subject);
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.subject, place);
        }
        self.other(slot.subject.kind).merge(&slot.profile);
    }

    fn other(&mut self, kind: SubjectKind) -> &mut Profile {
        self.others[kind as usize].get_or_insert_default()
    }

    fn halve_rates(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.rate /= 2);
        self.candidates.iter_mut().flatten().for_each(|candidate| candidate.count /= 2);
        self.rate_least = 0;
    }

    /// The profile of a subject, unless it is among the others.
    pub fn get(&self, subject: Subject) -> Option<&Profile> {
        self.places.get(&subject).map(|place| &*self.slots[*place].profile)
    }

    /// What all the others of a kind did together.
    pub fn others(&self, kind: SubjectKind) -> Option<&Profile> {
        self.others[kind as usize].as_deref()
    }

    /// All subjects of a kind, the busiest of late first.
    pub fn of_kind(&self, kind: SubjectKind) -> Vec<(Subject, &Profile)> {
        let mut slots: Vec<&Slot> = self.slots.iter().filter(|slot| slot.subject.kind == kind).collect();
        slots.sort_by_key(|slot| (std::cmp::Reverse(slot.rate), slot.subject));
        assert_eq!(self.places.len(), self.slots.len(), "every slot has a place");
        slots.into_iter().map(|slot| (slot.subject, &*slot.profile)).collect()
    }

    /// Everything of a kind in one profile, those given up among it; none where there were no calls.
    pub fn all_of_kind(&self, kind: SubjectKind) -> Option<Profile> {
        let mut all = self.others(kind).cloned();
        for (_, profile) in self.of_kind(kind) {
            all.get_or_insert_default().merge(profile);
        }
        all
    }

    /// Adds the table of another thread or machine.
    pub fn merge(&mut self, other: &Subjects) {
        for slot in &other.slots {
            if let Some(place) = self.places.get(&slot.subject) {
                let mine = &mut self.slots[*place];
                mine.rate += slot.rate;
                mine.profile.merge(&slot.profile);
            } else if self.slots.len() < self.profiles_max - KINDS {
                self.admit(slot.subject, slot.rate).merge(&slot.profile);
            } else {
                self.other(slot.subject.kind).merge(&slot.profile);
            }
        }
        for kind in SubjectKind::ALL {
            if let Some(theirs) = other.others(kind) {
                self.other(kind).merge(theirs);
            }
        }
        self.rate_least = 0;
        assert!(self.count() <= self.profiles_max, "a merged table is bounded, too");
    }

    /// Profiles that there are.
    pub fn count(&self) -> usize {
        self.slots.len() + self.others.iter().flatten().count()
    }

    /// Memory in use, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<Slot>();
        let places = self.places.capacity() * (size_of::<(Subject, usize)>() + 1);
        let candidates = self.candidates.capacity() * size_of::<Option<Candidate>>();
        self.count() * size_of::<Profile>() + slots + places + candidates
    }
}

#[cfg(test)]
mod tests;
