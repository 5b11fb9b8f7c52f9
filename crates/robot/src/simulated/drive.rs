//! The simulated drive: commands of a tape drive with blocks of variable length.

use std::time::Duration;

use super::arm::answer;
use super::{Locates, State, refused};
use crate::sense::{Sense, SenseKey};
use crate::transport::Data;

#[derive(Default)]
pub struct DriveState {
    pub medium: Option<usize>,
    /// The record it stands before.
    pub at: usize,
    /// The medium was changed, or the drive reset, and nobody was told.
    pub has_news: bool,
    pub is_unloaded: bool,
    /// Where it says that it stands when it is asked next, if that is not where it does.
    pub claimed: Option<usize>,
}

const BLOCK_BYTES_MAX: u32 = 1 << 20;

type Outcome = (Result<usize, Sense>, Duration);

fn now(outcome: Result<usize, Sense>) -> Outcome {
    (outcome, Duration::ZERO)
}

fn u24(command: &[u8]) -> u32 {
    u32::from_be_bytes([0, command[2], command[3], command[4]])
}

fn u32_at(command: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([command[at], command[at + 1], command[at + 2], command[at + 3]])
}

fn filemark() -> Sense {
    Sense { is_filemark: true, ..Sense::new(SenseKey::None, (0, 1)) }
}

fn end_of_data() -> Sense {
    Sense { is_end_of_medium: true, ..Sense::new(SenseKey::Blank, (0, 5)) }
}

fn near_end() -> Sense {
    Sense { is_end_of_medium: true, ..Sense::new(SenseKey::None, (0, 2)) }
}

impl State {
    pub fn execute_drive(&mut self, number: usize, command: &[u8], data: Data<'_>, transferred: &mut usize) -> Outcome {
        let Some(drive) = self.drives.get_mut(number) else { return now(Err(refused((0x25, 0)))) };
        let Some(&code) = command.first() else { return now(Err(refused((0x20, 0)))) };
        if std::mem::take(&mut drive.has_news) {
            return now(Err(Sense::new(SenseKey::Attention, (0x28, 0))));
        }
        let is_ready = drive.medium.is_some() && !drive.is_unloaded;
        match (code, is_ready) {
            (0x05, _) => {
                let [_, a, b, c] = BLOCK_BYTES_MAX.to_be_bytes();
                now(Ok(answer(data, &[0, a, b, c, 0, 1])))
            }
            (0x15, _) => now(Ok(0)),
            (0x00 | 0x01 | 0x08 | 0x0a | 0x10 | 0x11 | 0x1b | 0x2b | 0x34 | 0x92, false) => {
                now(Err(Sense::new(SenseKey::NotReady, (0x3a, 0))))
            }
            (0x00, true) => now(Ok(0)),
            (0x01, true) => self.go(number, 0),
            (0x08, true) if command.len() == 6 => self.read(number, data, transferred),
            (0x0a, true) => self.write(number, data),
            (0x10, true) if command.len() == 6 => self.write_filemarks(number, u24(command)),
            (0x11, true) if command.len() == 6 => self.space(number, command[1] & 7, u24(command)),
            (0x1b, true) if command.len() == 6 && command[4] & 1 == 0 => {
                let (_, cost) = self.go(number, 0);
                self.drives[number].is_unloaded = true;
                (Ok(0), cost + self.model.unload_time)
            }
            (0x1b, true) => now(Ok(0)),
            (0x2b | 0x34 | 0x92, true) if self.locates == Locates::Never => now(Err(refused((0x20, 0)))),
            (0x2b, true) if command.len() == 10 => self.locate(number, u64::from(u32_at(command, 3)), false),
            (0x92, true) if command.len() == 16 => {
                let to = u64::from(u32_at(command, 4)) << 32 | u64::from(u32_at(command, 8));
                self.locate(number, to, command[1] & 0x38 == 0x08)
            }
            (0x34, true) if command.len() == 10 => self.tell(number, command[1] & 0x1f, data),
            _ => now(Err(refused((0x20, 0)))),
        }
    }

    fn medium_of(&self, number: usize) -> usize {
        self.drives[number].medium.expect("it was looked whether there is a medium")
    }

    /// Where a record begins on the medium.
    fn place_of(&self, medium: usize, record: usize) -> u64 {
        let medium = &self.media[medium].medium;
        medium.records.get(record).map_or_else(|| medium.stored_end(), |record| record.at)
    }

    /// Positions; what that takes.
    fn go(&mut self, number: usize, to: usize) -> Outcome {
        let medium = self.medium_of(number);
        let from = self.drives[number].at;
        let (here, there) = (self.place_of(medium, from), self.place_of(medium, to));
        self.drives[number].at = to;
        // A seek over nothing but filemarks is one.
        let cost = if from == to { Duration::ZERO } else { self.model.positioning(here, there) };
        (Ok(0), cost)
    }

    /// Goes to a record, or to the file of this number.
    fn locate(&mut self, number: usize, to: u64, is_file: bool) -> Outcome {
        let medium = self.medium_of(number);
        let records = &self.media[medium].medium.records;
        let after_marks =
            records.iter().enumerate().filter(|(_, record)| record.length.is_none()).map(|(at, _)| at + 1);
        let to = match is_file {
            true if self.locates == Locates::ByBlock => return now(Err(refused((0x24, 0)))),
            true => std::iter::once(0).chain(after_marks).nth(to as usize),
            false => usize::try_from(to).ok().filter(|to| *to <= records.len()),
        };
        let is_missed = matches!(self.locates, Locates::Astray | Locates::Lying);
        match to {
            Some(to) => {
                let (there, most) = (to + usize::from(is_missed), records.len());
                let outcome = self.go(number, there.min(most));
                self.drives[number].claimed = (self.locates == Locates::Lying).then_some(to);
                outcome
            }
            None => now(Err(end_of_data())),
        }
    }

    /// Where it stands; a lying drive says where it was sent.
    fn tell(&mut self, number: usize, form: u8, data: Data<'_>) -> Outcome {
        let medium = self.medium_of(number);
        let at = self.drives[number].claimed.take().unwrap_or(self.drives[number].at);
        let records = &self.media[medium].medium.records;
        let files = records[..at.min(records.len())].iter().filter(|record| record.length.is_none()).count();
        let is_silent = self.locates == Locates::Silent;
        let mut reply = vec![0; if form == 6 { 32 } else { 20 }];
        match form {
            6 if self.locates == Locates::ByBlock => return now(Err(refused((0x24, 0)))),
            6 => {
                reply[0] = if is_silent { 0x0c } else { 0 };
                reply[8..16].copy_from_slice(&(at as u64).to_be_bytes());
                reply[16..24].copy_from_slice(&(files as u64).to_be_bytes());
            }
            0 => {
                reply[0] = if is_silent { 0x04 } else { 0 };
                reply[4..8].copy_from_slice(&(at as u32).to_be_bytes());
            }
            _ => return now(Err(refused((0x24, 0)))),
        }
        now(Ok(answer(data, &reply)))
    }

    fn read(&mut self, number: usize, data: Data<'_>, transferred: &mut usize) -> Outcome {
        let (medium, at) = (self.medium_of(number), self.drives[number].at);
        let medium = &self.media[medium].medium;
        let Some(record) = medium.records.get(at).copied() else { return now(Err(end_of_data())) };
        self.drives[number].at += 1;
        let Some(length) = record.length else { return now(Err(filemark())) };
        let cost = self.model.reading(record.stored);
        if medium.spoiled.contains(&at) {
            return (Err(Sense::new(SenseKey::Medium, (0x11, 0))), cost);
        }
        let Data::In(into) = data else { return now(Err(refused((0x24, 0)))) };
        let count = (length as usize).min(into.len());
        if medium.read(&record, &mut into[..count]).is_err() {
            return (Err(Sense::new(SenseKey::Hardware, (0x44, 0))), cost);
        }
        *transferred = count;
        if length as usize > into.len() {
            let missing = into.len() as i64 - i64::from(length);
            let sense =
                Sense { is_wrong_length: true, information: Some(missing), ..Sense::new(SenseKey::None, (0, 0)) };
            return (Err(sense), cost);
        }
        (Ok(count), cost)
    }

    /// Puts records behind this place; what was there is gone.
    fn put(&mut self, number: usize, bytes: Option<&[u8]>) -> Outcome {
        let (medium, at) = (self.medium_of(number), self.drives[number].at);
        let model = self.model;
        let is_written_once = self.faults.written_once.contains(&self.media[medium].barcode);
        let medium = &mut self.media[medium].medium;
        if is_written_once && at < medium.records.len() {
            return now(Err(Sense::new(SenseKey::Protected, (0x30, 0x0c))));
        }
        medium.write_over(at);
        let mut chance = (self.seed ^ (at as u64 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        chance ^= chance >> 31;
        let stored = bytes.map_or(0, |bytes| model.stored(bytes.len() as u64, chance));
        let cost = if bytes.is_some() { model.writing(stored) } else { model.filemark_time };
        if medium.stored_end() + stored > model.capacity_bytes {
            let sense = Sense { is_end_of_medium: true, ..Sense::new(SenseKey::Overflow, (0, 2)) };
            return (Err(sense), cost);
        }
        if medium.append(bytes, stored).is_err() {
            return (Err(Sense::new(SenseKey::Hardware, (0x44, 0))), cost);
        }
        self.drives[number].at = at + 1;
        let is_near_end = medium.stored_end() + model.warning_bytes > model.capacity_bytes;
        (if is_near_end { Err(near_end()) } else { Ok(bytes.map_or(0, <[u8]>::len)) }, cost)
    }

    fn write(&mut self, number: usize, data: Data<'_>) -> Outcome {
        match data {
            Data::Out(bytes) if !bytes.is_empty() && bytes.len() <= BLOCK_BYTES_MAX as usize => {
                self.put(number, Some(bytes))
            }
            _ => now(Err(refused((0x24, 0)))),
        }
    }

    fn write_filemarks(&mut self, number: usize, count: u32) -> Outcome {
        let (mut outcome, mut cost) = now(Ok(0));
        for _ in 0..count {
            let (one, one_cost) = self.put(number, None);
            cost += one_cost;
            outcome = one;
            if matches!(&outcome, Err(sense) if sense.key != SenseKey::None) {
                break;
            }
        }
        (outcome, cost)
    }

    fn space(&mut self, number: usize, code: u8, count: u32) -> Outcome {
        let (medium, from) = (self.medium_of(number), self.drives[number].at);
        let records = &self.media[medium].medium.records;
        let count = ((count << 8) as i32) >> 8;
        let (mut to, mut left, mut stopped) = (from, count.unsigned_abs(), None);
        match code {
            3 => (to, left) = (records.len(), 0),
            0 | 1 => {}
            _ => return now(Err(refused((0x24, 0)))),
        }
        while left > 0 && stopped.is_none() {
            let next = if count > 0 { Some(to) } else { to.checked_sub(1) };
            let Some(record) = next.and_then(|next| records.get(next)) else {
                let beginning = Sense { is_end_of_medium: true, ..Sense::new(SenseKey::None, (0, 4)) };
                stopped = Some(if count > 0 { end_of_data() } else { beginning });
                break;
            };
            to = if count > 0 { to + 1 } else { to - 1 };
            match (code, record.length) {
                (0, None) => stopped = Some(filemark()),
                (1, Some(_)) => {}
                _ => left -= 1,
            }
        }
        let (_, cost) = self.go(number, to);
        (stopped.map_or(Ok(0), Err), cost)
    }
}
