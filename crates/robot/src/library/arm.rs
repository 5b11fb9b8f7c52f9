//! What is where, and moving it. Without a changer people are the arm: what is in a drive is what they put there.

use std::collections::BTreeMap;

use super::{Bay, Library, LibraryParts};
use crate::changer::Changer;
use crate::drive::Drive;
use crate::element::ElementKind;
use crate::error::RobotError;

#[derive(Default)]
pub struct Arm {
    /// None before the first use, and where there is none.
    changer: Option<Changer>,
    /// Bar codes by the addresses of slots and mail slots; none for those that are free.
    slots: BTreeMap<u16, Option<String>>,
    drives: Vec<(u16, Option<String>)>,
}

/// A medium without a bar code, where somebody should know it.
fn nameless(address: u16) -> String {
    format!("element-{address}")
}

impl Arm {
    fn refresh(&mut self) -> Result<(), RobotError> {
        let Some(changer) = &mut self.changer else { return Ok(()) };
        let elements = changer.status()?;
        self.slots.clear();
        self.drives.clear();
        for element in elements {
            let barcode = match (element.is_full, element.barcode.is_empty()) {
                (false, _) => None,
                (true, false) => Some(element.barcode),
                (true, true) => Some(nameless(element.address)),
            };
            match element.kind {
                ElementKind::Slot | ElementKind::MailSlot => drop(self.slots.insert(element.address, barcode)),
                ElementKind::Drive => self.drives.push((element.address, barcode)),
                ElementKind::Arm => {}
            }
        }
        self.drives.sort_unstable();
        Ok(())
    }
}

impl Library {
    /// Finds the devices, at the first use.
    pub(super) fn connect(&self) -> Result<(), RobotError> {
        let mut parts = self.parts.lock();
        let Some(there) = parts.take() else { return Ok(()) };
        let mut arm = self.arm.lock();
        if let Some(transport) = there.changer {
            match Changer::open(transport) {
                Ok(changer) => arm.changer = Some(changer),
                Err((transport, error)) => {
                    // The next one who needs the library tries again.
                    *parts = Some(LibraryParts { changer: Some(transport), drives: there.drives });
                    return Err(error);
                }
            }
        }
        if let Err(error) = arm.refresh() {
            let changer = arm.changer.take().map(Changer::into_transport);
            *parts = Some(LibraryParts { changer, drives: there.drives });
            return Err(error);
        }
        let mut state = self.state.lock();
        for (at, transport) in there.drives.into_iter().enumerate() {
            let loaded = arm.drives.get(at).and_then(|(_, barcode)| barcode.clone());
            state.bays.push(Bay {
                drive: Some(Drive::new(transport)),
                loaded,
                is_checked: false,
                failures: 0,
                is_locating: true,
            });
        }
        state.is_connected = true;
        self.note_present(&arm, &mut state);
        Ok(())
    }

    fn note_present(&self, arm: &Arm, state: &mut super::State) {
        let in_slots = arm.slots.values().flatten();
        let in_drives = arm.drives.iter().filter_map(|(_, barcode)| barcode.as_ref());
        let all = in_slots.chain(in_drives).filter(|barcode| self.is_ours_to_use(barcode));
        state.present = all.cloned().collect();
    }

    /// Looks what is in the library; with `again` the arm looks at every bar code.
    pub(super) fn refresh(&self, again: bool) -> Result<(), RobotError> {
        if self.is_fed_by_people {
            return self.notice();
        }
        let mut arm = self.arm.lock();
        if let (true, Some(changer)) = (again, &mut arm.changer) {
            changer.look_again()?;
        }
        arm.refresh()?;
        self.note_present(&arm, &mut self.state.lock());
        Ok(())
    }

    /// Fetches a cartridge into an empty drive.
    pub(super) fn fetch(&self, bay: usize, barcode: &str) -> Result<(), RobotError> {
        let mut arm = self.arm.lock();
        let not_there = || RobotError::NotThere { barcode: barcode.to_owned() };
        let place = |arm: &Arm| {
            arm.slots.iter().find(|(_, held)| held.as_deref() == Some(barcode)).map(|(address, _)| *address)
        };
        let mut from = place(&arm);
        if from.is_none() {
            arm.refresh()?;
            from = place(&arm);
        }
        let from = from.ok_or_else(not_there)?;
        let (to, _) = arm.drives.get(bay).cloned().ok_or(RobotError::NoDrive)?;
        let Some(changer) = &mut arm.changer else { return Err(not_there()) };
        let moved = changer.move_medium(from, to);
        if let Err(error) = moved {
            // Nobody knows where it is now; the arm may.
            arm.refresh()?;
            self.note_present(&arm, &mut self.state.lock());
            let is_in_drive = arm.drives.get(bay).is_some_and(|(_, held)| held.as_deref() == Some(barcode));
            return match (is_in_drive, self.state.lock().present.contains(barcode)) {
                (true, _) => Ok(()),
                (false, true) => Err(error),
                (false, false) => {
                    tracing::error!(barcode, %error, "a cartridge is not where it was, and nowhere else");
                    Err(not_there())
                }
            };
        }
        arm.slots.insert(from, None);
        arm.drives[bay].1 = Some(barcode.to_owned());
        Ok(())
    }

    /// Has the arm look at all bar codes and tells whether the one in this drive is the wanted one; without an arm it is.
    pub(super) fn check_fetched(&self, bay: usize, barcode: &str) -> Result<(), RobotError> {
        let mut arm = self.arm.lock();
        let Some(changer) = &mut arm.changer else { return Ok(()) };
        changer.look_again()?;
        arm.refresh()?;
        let another = |found: String| Err(RobotError::Mislabelled { barcode: barcode.to_owned(), found });
        let is_in_slot = arm.slots.values().flatten().any(|held| held == barcode);
        let outcome = match arm.drives.get(bay).cloned() {
            _ if is_in_slot => another("in a slot".into()),
            Some((address, Some(held))) if held != barcode && held != nameless(address) => another(held),
            // Some arms cannot read the bar code of what is in a drive.
            Some(_) => {
                arm.drives[bay].1 = Some(barcode.to_owned());
                Ok(())
            }
            None => Err(RobotError::NoDrive),
        };
        self.note_present(&arm, &mut self.state.lock());
        outcome
    }

    /// Brings what is in a drive to a free slot.
    pub(super) fn return_to_slot(&self, bay: usize) -> Result<(), RobotError> {
        if self.is_fed_by_people {
            // They take it.
            return Ok(());
        }
        let mut arm = self.arm.lock();
        let (from, held) = arm.drives.get(bay).cloned().ok_or(RobotError::NoDrive)?;
        let Some((first, count)) = arm.changer.as_ref().map(|changer| changer.elements.slots) else { return Ok(()) };
        let is_slot = |address: u16| address >= first && address - first < count;
        let free = arm.slots.iter().find(|(address, held)| held.is_none() && is_slot(**address)).map(|(to, _)| *to);
        let Some(to) = free else {
            return Err(RobotError::NoRoom { set: "slots of the library".into() });
        };
        let Some(changer) = &mut arm.changer else { return Ok(()) };
        if let Err(error) = changer.move_medium(from, to) {
            arm.refresh()?;
            self.note_present(&arm, &mut self.state.lock());
            let is_empty = arm.drives.get(bay).is_some_and(|(_, held)| held.is_none());
            return if is_empty { Ok(()) } else { Err(error) };
        }
        arm.drives[bay].1 = None;
        arm.slots.insert(to, held);
        Ok(())
    }
}
