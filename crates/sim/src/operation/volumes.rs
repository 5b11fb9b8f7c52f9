//! Files that go down to media and come back, in an order that makes sense, with volumes that fail meanwhile.

use super::{Between, Generator, Operation, Path, Profile, Releasing, Target};
use crate::tertiary::VOLUMES_MAX;
use crate::volume::{Harm, VolumeTrouble};

/// What is stored in one piece.
const RECORD_BYTES: u64 = 128 << 10;

impl Generator {
    /// A few rounds of archiving, releasing and reading back, put between what the history does besides; with `fails`, volumes do
    /// wrong and lose objects.
    pub(super) fn use_volumes(&mut self, operations: &mut Vec<Operation>, fails: bool) {
        let count = self.random.between(1, VOLUMES_MAX as u64);
        let mut at = operations.len().min(11);
        for _ in 0..count {
            operations.insert(at, Operation::AddVolume { is_slow: self.random.chance(1, 4) });
            at += 1;
        }
        let mut path = self.tiered_path();
        for _ in 0..self.random.between(1, 4) {
            at = (at + self.random.below(12) as usize).min(operations.len());
            if self.random.chance(1, 3) {
                path = self.tiered_path();
            }
            let mut round = self.go_down(path, count, fails);
            let written = round.iter().find_map(|operation| match operation {
                Operation::Write { offset, length, .. } => Some((*offset, u64::from(*length))),
                _ => None,
            });
            let mut elsewhere = self.be_elsewhere(path, count, fails);
            if let Some((offset, length)) = written.filter(|_| self.random.chance(2, 3)) {
                // Behind the release: a little of what was written, so that the rest of its block has to be read.
                let at = elsewhere.iter().position(|operation| matches!(operation, Operation::Release { .. }));
                let offset = offset + self.random.below(length.max(1));
                let meanwhile = self.write_meanwhile(Target::Path(path), offset, 700);
                elsewhere.insert(at.map_or(0, |at| at + 1), meanwhile);
            }
            round.extend(elsewhere);
            round.extend(self.come_back(path, count));
            for operation in round {
                operations.insert(at, operation);
                at += 1 + usize::from(self.random.chance(1, 6));
                at = at.min(operations.len());
            }
        }
    }

    fn tiered_path(&mut self) -> Path {
        match self.random.below(3) {
            0 => Path { directory: 0, name: 3 + self.random.below(2) as u8 },
            _ => {
                let directory = if self.random.chance(1, 2) { 0 } else { self.random.below(4) as u8 };
                Path { directory, name: self.random.below(3) as u8 }
            }
        }
    }

    fn volume(&mut self, count: u64) -> u8 {
        self.random.below(count) as u8
    }

    /// Marks of which the high one is reached where enough is in use.
    fn keep_room(&mut self) -> Operation {
        Operation::KeepRoom { under: self.random.below(3) as u8, by: self.random.between(1, 20) as u8 }
    }

    fn maybe_armed(&mut self, events_max: u64) -> Option<Operation> {
        let events = self.random.between(1, events_max) as u32;
        self.random.chance(1, 5).then(|| Operation::ArmCrash { events, manner: self.manner() })
    }

    /// Something is written and sent down.
    fn go_down(&mut self, path: Path, count: u64, fails: bool) -> Vec<Operation> {
        let target = Target::Path(path);
        let length = (self.length() + self.length()) as u32;
        let mut round = Vec::new();
        if path.name < 3 {
            round.push(Operation::Create { path, slot: 1 });
        }
        round.push(Operation::Write { target, offset: self.offset(), length, seed: self.random.next_u64() });
        if self.random.chance(2, 3) {
            round.push(Operation::SyncAll);
        }
        if self.random.chance(4, 5) {
            let volumes = match self.random.below(12) {
                0 => 0,
                // All of them, so that one may lose what it has.
                1..5 => (1 << count) - 1,
                _ => self.random.between(1, (1 << count) - 1) as u8,
            };
            round.push(Operation::Archive { path, volumes });
        }
        round.push(Operation::Step { count: self.random.between(1, 5) as u8, idle: self.random.chance(1, 3) });
        if fails && self.random.chance(1, 4) {
            let (volume, trouble) = (self.volume(count), *self.random.pick(&VolumeTrouble::ALL));
            round.push(Operation::Trouble { volume, trouble });
        }
        round.extend(self.maybe_armed(24));
        let ends = self.random.chance(4, 5);
        round.push(Operation::StepVolumes { count: self.random.between(1, 12) as u8, ends });
        if self.random.chance(1, 4) {
            round.push(Operation::CopyMetadata { steps: self.random.between(1, 12) as u8 });
        }
        if fails && self.random.chance(1, 2) {
            round.push(Operation::EndTroubles);
            round.push(Operation::StepVolumes { count: self.random.between(1, 12) as u8, ends });
        }
        if self.random.chance(1, 6) {
            round.push(Operation::Pin { path, is_pinned: true });
            round.push(self.keep_room());
        }
        if self.profile == Profile::Full && self.random.chance(2, 3) {
            round.push(Operation::StepVolumes { count: 12, ends: true });
            round.push(Operation::Fill { bytes: self.random.between(1, 40) as u32 * 100_000 });
        }
        round
    }

    /// It is released, volumes fail, and it is read, written and thrown away all the same.
    fn be_elsewhere(&mut self, path: Path, count: u64, fails: bool) -> Vec<Operation> {
        let target = Target::Path(path);
        let mut round = Vec::new();
        round.extend(self.maybe_armed(12));
        let releasing =
            *self.random.pick(&[Releasing::Only, Releasing::Commit, Releasing::Checkpoints, Releasing::Checkpoints]);
        round.push(Operation::Release { path, releasing });
        if self.random.chance(1, 3) {
            round.push(self.keep_room());
        }
        if self.random.chance(1, 4) {
            round.push(Operation::ReadWithoutRecall { target, denies: self.random.chance(1, 2) });
        }
        if fails && self.random.chance(1, 3) {
            for _ in 0..self.random.between(1, 2) {
                let (volume, pick) = (self.volume(count), self.random.below(16) as u8);
                round.push(Operation::Harm { volume, pick, harm: *self.random.pick(&Harm::ALL) });
            }
        }
        if fails && self.random.chance(1, 4) {
            let volume = self.volume(count);
            round.push(match self.random.chance(1, 4) {
                true => Operation::TakeVolumeAway { volume },
                false => Operation::Trouble { volume, trouble: *self.random.pick(&VolumeTrouble::ALL) },
            });
        }
        for _ in 0..self.random.below(4) {
            let (offset, length) = (self.offset(), self.length());
            round.push(match self.random.below(9) {
                0..3 => Operation::Read { target, offset, length: length as u32 },
                3 => Operation::Write { target, offset, length: length as u32, seed: self.random.next_u64() },
                4 => self.write_meanwhile(target, offset, length as u32),
                5 => Operation::Truncate { target, size: offset },
                6 => Operation::Copy { from: target, from_offset: offset, to: Target::Slot(0), to_offset: 0, length },
                7 => Operation::Unlink { path },
                _ => Operation::Fsync { target },
            });
        }
        if self.random.chance(1, 2) {
            let again = self.random.chance(1, 4).then(|| self.random.between(1, 12) as u32);
            let crash = Operation::Crash { manner: self.manner(), again };
            let choices = [Operation::VerifyAll, Operation::Remount, Operation::Check, crash];
            round.push(self.random.pick(&choices).clone());
        }
        round
    }

    /// A write into a block that is elsewhere, and one of the whole block, or of a whole record around it, that comes between.
    fn write_meanwhile(&mut self, target: Target, offset: u64, length: u32) -> Operation {
        let unit = *self.random.pick(&[4096, 4096, RECORD_BYTES]);
        let (seed, syncs) = (self.random.next_u64(), self.random.chance(3, 4));
        let between = Between { offset: offset / unit * unit, length: unit as u32, seed: seed ^ 1, syncs };
        Operation::WriteMeanwhile { target, offset, length, seed, between }
    }

    /// A volume is retired or removed, and perhaps comes again as a new one; copying out makes a pause.
    fn take_out_of_use(&mut self, count: u64) -> Vec<Operation> {
        let mut round = Vec::new();
        if self.random.chance(1, 8) {
            round.push(Operation::HoldUploads { are_held: true });
            round.push(Operation::StepVolumes { count: self.random.between(1, 4) as u8, ends: true });
            round.push(Operation::HoldUploads { are_held: false });
        }
        if count > 1 && self.random.chance(1, 2) {
            let (volume, apart) = (self.volume(count), self.random.between(1, count - 1) as u8);
            let heir = (volume + apart) % count as u8;
            round.push(Operation::RetireVolume { volume, heir });
            round.extend(self.maybe_armed(16));
            round.push(Operation::StepVolumes { count: self.random.between(1, 12) as u8, ends: true });
        }
        if self.random.chance(1, 12) {
            round.push(Operation::RemoveVolume { volume: self.volume(count) });
        }
        if self.random.chance(1, 4) {
            round.push(Operation::AddVolume { is_slow: self.random.chance(1, 4) });
        }
        round
    }

    /// It is brought back, verified, kept, or left where it is.
    fn come_back(&mut self, path: Path, count: u64) -> Vec<Operation> {
        let mut round = Vec::new();
        if self.random.chance(1, 3) {
            round.push(Operation::Stage { path });
            round.extend(self.maybe_armed(16));
            round.push(Operation::StepVolumes { count: self.random.between(1, 6) as u8, ends: false });
        }
        if self.random.chance(1, 3) {
            let (volume, reads) = (self.volume(count), self.random.chance(2, 3));
            round.push(Operation::VerifyVolume { volume, reads });
        }
        if self.random.chance(1, 2) {
            round.extend(self.maybe_armed(30));
            let percent = *self.random.pick(&[30, 60, 90, 99, 99]);
            round.push(match self.random.chance(1, 3) {
                true => Operation::RepackEmptiest { percent: 100 - percent },
                false => Operation::Repack { percent, steps: self.random.between(1, 3) as u8 },
            });
        }
        round.extend(self.take_out_of_use(count));
        if self.random.chance(1, 8) {
            round.push(Operation::Pin { path, is_pinned: self.random.chance(2, 3) });
        }
        if self.random.chance(1, 2) {
            round.push(Operation::EndTroubles);
        }
        if self.random.chance(1, 3) {
            round.push(Operation::SettleVolumes);
        }
        round
    }
}
