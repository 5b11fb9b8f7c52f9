//! The simulated arm: commands of the changer.

use std::time::Duration;

use super::{DRIVES, State, refused};
use crate::element::{Element, ElementKind, encode_status};
use crate::sense::{Sense, SenseKey};
use crate::transport::Data;

/// What the arm says when a medium fell down.
const DROPPED: Sense = Sense {
    key: SenseKey::Hardware,
    code: (0x15, 0x01),
    is_filemark: false,
    is_end_of_medium: false,
    is_wrong_length: false,
    information: None,
};

pub fn answer(data: Data<'_>, bytes: &[u8]) -> usize {
    match data {
        Data::In(into) => {
            let length = bytes.len().min(into.len());
            into[..length].copy_from_slice(&bytes[..length]);
            length
        }
        _ => 0,
    }
}

impl State {
    pub fn execute_changer(&mut self, command: &[u8], data: Data<'_>) -> (Result<usize, Sense>, Duration) {
        let at = |at: usize| u16::from_be_bytes([command[at], command[at + 1]]);
        match command.first() {
            Some(0x00 | 0x07) => (Ok(0), Duration::ZERO),
            Some(0x1a) => (Ok(answer(data, &self.assignment())), Duration::ZERO),
            Some(0xb8) if command.len() == 12 => {
                let Some(kind) = ElementKind::from_code(command[1] & 0x0f) else {
                    return (Err(refused((0x24, 0x00))), Duration::ZERO);
                };
                let elements = self.elements_of(kind, at(2), at(4));
                (Ok(answer(data, &encode_status(kind, at(2), &elements))), Duration::ZERO)
            }
            Some(0xa5) if command.len() == 12 => self.move_medium(at(4), at(6)),
            _ => (Err(refused((0x20, 0x00))), Duration::ZERO),
        }
    }

    fn assignment(&self) -> Vec<u8> {
        let mut reply = vec![23, 0, 0, 0, 0x1d, 18];
        for kind in ElementKind::ALL {
            let (first, count) = self.elements(kind);
            reply.extend(first.to_be_bytes());
            reply.extend(count.to_be_bytes());
        }
        reply.resize(24, 0);
        reply
    }

    fn elements_of(&mut self, kind: ElementKind, first: u16, count: u16) -> Vec<Element> {
        let (start, all) = self.elements(kind);
        let wanted = (start..start + all).filter(|address| *address >= first && address - first < count);
        let mut elements = Vec::new();
        for address in wanted {
            let medium = self.place(address).and_then(|place| *place);
            let barcode = medium.map(|medium| self.media[medium].barcode.clone()).unwrap_or_default();
            let is_full = medium.is_some();
            elements.push(Element { kind, address, is_full, is_exceptional: false, source: None, barcode });
        }
        elements
    }

    fn move_medium(&mut self, from: u16, to: u16) -> (Result<usize, Sense>, Duration) {
        let no_element = (Err(refused((0x21, 0x01))), Duration::ZERO);
        let (Some(source), Some(target)) = (self.place(from).map(|place| *place), self.place(to).map(|place| *place))
        else {
            return no_element;
        };
        if target.is_some() && from != to {
            return (Err(refused((0x3b, 0x0d))), Duration::ZERO);
        }
        let Some(mut medium) = source else { return (Err(refused((0x3b, 0x0e))), Duration::ZERO) };
        self.moves += 1;
        let cost = self.model.move_time;
        if std::mem::take(&mut self.faults.drops) {
            self.place_medium(from, None);
            return (Err(DROPPED), cost);
        }
        if from >= super::SLOTS && std::mem::take(&mut self.faults.takes_another) {
            let mut others = self.slots.iter().flatten().copied();
            medium = others.rfind(|other| *other != medium).unwrap_or(medium);
            self.slots.iter_mut().filter(|slot| **slot == Some(medium)).for_each(|slot| *slot = source);
        }
        self.place_medium(from, None);
        self.place_medium(to, Some(medium));
        let is_drive = (DRIVES..super::SLOTS).contains(&to);
        let cost = cost + if is_drive { self.model.load_time } else { Duration::ZERO };
        (Ok(0), cost)
    }

    pub fn place_medium(&mut self, address: u16, medium: Option<usize>) {
        assert!(medium.is_none_or(|medium| medium < self.media.len()), "there is no cartridge {medium:?}");
        if let Some(place) = self.place(address) {
            *place = medium;
        }
        if (DRIVES..super::SLOTS).contains(&address) {
            let drive = &mut self.drives[usize::from(address - DRIVES)];
            (drive.at, drive.has_news, drive.is_unloaded) = (0, medium.is_some(), false);
        }
    }
}
