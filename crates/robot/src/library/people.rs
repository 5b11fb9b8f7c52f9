//! Drives without an arm, fed by people: what is in them is what they put there, and what is needed they are asked for.
//!
//! A cartridge is known by its label. What was put in is looked at once, when the drive says that it was changed or that it has become
//! ready. A blank cartridge gets the next free name of its set, which people write on it. Invariants: a cartridge that is not wanted is let
//! go of only when nobody has used it for some time; one is asked for at a time. Read next: `arm.rs`.

use std::time::Duration;

use super::{Library, State};
use crate::cartridge::{Cartridge, Label};
use crate::catalogue::Standing;
use crate::drive::{Drive, Medium};
use crate::error::RobotError;

/// So long a cartridge stays that somebody has used, though another one is wanted.
const KEPT: Duration = Duration::from_secs(3);
/// So long a request for a cartridge stands that nobody has repeated.
const ASKED: Duration = Duration::from_secs(5);
/// After so long it is looked again at what was let go of and is still there.
const AGAIN: Duration = Duration::from_secs(10);

/// What is known of a drive that people feed.
#[derive(Default)]
pub(crate) struct Hand {
    /// What is in it was looked at, at this time.
    looked_at: Option<Duration>,
    /// Why what is in it is not used.
    refused: Option<String>,
    /// When its cartridge was used last.
    used_at: Duration,
}

/// A cartridge that people were asked for, and when that was repeated last.
type AskedFor = Option<(String, Duration)>;

#[derive(Default)]
pub(crate) struct People {
    hands: Vec<Hand>,
    asked_for: AskedFor,
}

impl State {
    /// Only what is in a drive is here.
    fn present_is_loaded(&mut self) {
        self.present = self.bays.iter().filter_map(|bay| bay.loaded.clone()).collect();
    }

    /// Somebody used what is in this drive, or let go of it.
    pub(super) fn note_hands(&mut self, bay: usize, now: Duration) {
        if let Some(hand) = self.people.hands.get_mut(bay) {
            hand.used_at = now;
        }
        self.present_is_loaded();
    }
}

impl Library {
    /// Looks what is in the drives; does nothing where there is an arm.
    pub(super) fn notice(&self) -> Result<(), RobotError> {
        let bays = self.state.lock().bays.len();
        for bay in 0..bays {
            // A drive that works is somebody's.
            let Some(mut drive) = self.state.lock().bays[bay].drive.take() else { continue };
            let outcome = self.notice_one(bay, &mut drive);
            let mut state = self.state.lock();
            assert!(state.bays[bay].drive.is_none(), "nobody else gave the drive back meanwhile");
            state.bays[bay].drive = Some(drive);
            state.present_is_loaded();
            self.changed.notify_all();
            outcome?;
        }
        Ok(())
    }

    fn notice_one(&self, bay: usize, drive: &mut Drive) -> Result<(), RobotError> {
        let now = (self.clock)();
        let medium = drive.medium()?;
        let is_looked_at = {
            let state = &mut *self.state.lock();
            state.people.hands.resize_with(state.bays.len(), Hand::default);
            let is_loaded = state.bays[bay].loaded.is_some();
            let hand = &mut state.people.hands[bay];
            let is_recent = hand.looked_at.is_some_and(|then| is_loaded || now.saturating_sub(then) < AGAIN);
            if medium != Medium::Ready || !is_recent {
                *hand = Hand { used_at: now, ..Hand::default() };
                state.bays[bay].loaded = None;
                state.bays[bay].is_checked = false;
            }
            medium == Medium::None || medium == Medium::Ready && is_recent
        };
        if is_looked_at {
            return Ok(());
        }
        drive.make_ready()?;
        let found = self.name_of(drive)?;
        let state = &mut *self.state.lock();
        let hand = &mut state.people.hands[bay];
        (hand.looked_at, hand.used_at) = (Some(now), now);
        match found {
            Ok(name) => {
                tracing::info!(drive = drive.describe(), cartridge = name, "a cartridge was put in");
                if state.people.asked_for.as_ref().is_some_and(|(asked, _)| *asked == name) {
                    state.people.asked_for = None;
                }
                state.complaints.remove(&name);
                state.bays[bay].loaded = Some(name);
            }
            Err(why) => {
                tracing::warn!(drive = drive.describe(), "what was put in is not used: {why}");
                hand.refused = Some(why);
            }
        }
        Ok(())
    }

    /// The name of what is in the drive, or why it is not used.
    fn name_of(&self, drive: &mut Drive) -> Result<Result<String, String>, RobotError> {
        let (set, unit_bytes) = (&self.options.set, self.options.unit_bytes());
        let label = Cartridge { drive, set, barcode: "", unit_bytes, generation: 0 }.label()?;
        Ok(match label {
            Label::Set { set, barcode, .. } if set == self.options.set && self.is_ours_to_use(&barcode) => Ok(barcode),
            Label::Set { set, barcode, .. } => Err(format!("it is {barcode} of the set '{set}'")),
            Label::Foreign(found) => Err(format!("it holds something else ({found})")),
            Label::Unreadable(why) => Err(format!("its label cannot be read ({why}); clean the drive")),
            Label::Blank if self.options.is_read_only => Err("it is blank".into()),
            Label::Blank => Ok(self.new_name()),
        })
    }

    /// A name that no cartridge has that is known here.
    fn new_name(&self) -> String {
        let state = self.state.lock();
        let name = |number: u32| match self.options.barcodes.as_str() {
            "" => format!("{}-{number:04}", self.options.set),
            beginning => format!("{beginning}{number:04}"),
        };
        let is_taken = |name: &String| {
            let is_loaded = state.bays.iter().any(|bay| bay.loaded.as_ref() == Some(name));
            let standing = state.catalogue.known(name).standing;
            is_loaded || !matches!(standing, Standing::Unknown | Standing::Blank)
        };
        (1..).map(name).find(|name| !is_taken(name)).expect("numbers do not end")
    }

    /// Asks people for a cartridge that is in no drive: lets go of one that nobody uses, and says what to put in. `what` is its name, or
    /// what kind is needed.
    pub(super) fn ask_people(&self, what: &str) -> RobotError {
        let now = (self.clock)();
        let mut state = self.state.lock();
        let is_others = |asked: &(String, Duration)| asked.0 != what && now.saturating_sub(asked.1) < ASKED;
        // One after the other: who was asked for first comes first.
        let (wanted, is_ours) = match state.people.asked_for.clone().filter(is_others) {
            Some((other, _)) => (other, false),
            None => (what.to_owned(), true),
        };
        if is_ours {
            state.people.asked_for = Some((what.to_owned(), now));
        }
        let used_at = |bay: usize| state.people.hands.get(bay).map_or(Duration::ZERO, |hand| hand.used_at);
        // An empty drive, else the one whose cartridge was used the longest ago.
        let bay =
            (0..state.bays.len()).min_by_key(|&bay| (state.bays[bay].loaded.is_some(), used_at(bay))).unwrap_or(0);
        let loaded = state.bays.get(bay).and_then(|bay| bay.loaded.clone());
        let drive = state.bays.get(bay).and_then(|bay| bay.drive.as_ref()).map(Drive::describe).unwrap_or_default();
        let refused = state.people.hands.get(bay).and_then(|hand| hand.refused.clone());
        let is_kept = now.saturating_sub(used_at(bay)) < KEPT;
        drop(state);
        let instead = match (&loaded, refused) {
            (Some(loaded), _) => format!(" (there is {loaded} in it)"),
            (None, Some(why)) => format!(" (what is in it is not used: {why})"),
            (None, None) => String::new(),
        };
        if let Some(loaded) = loaded.filter(|_| is_ours && !is_kept)
            && let Err(error) = self.ask(&loaded, u32::MAX, super::Act::PutAway)
        {
            tracing::warn!(cartridge = loaded, %error, "a cartridge stays in its drive");
        }
        let drive = format!("drive {} ({drive})", bay + 1);
        RobotError::Insert { cartridge: wanted, drive, instead }
    }
}
