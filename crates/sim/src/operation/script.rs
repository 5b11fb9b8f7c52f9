//! Whole histories: what happens to devices, policies and content in an order that makes sense, between operations of all kinds.

use super::{CrashManner, Generator, Operation, POLICIES, Path, Profile, RULES, SLOTS, Target};
use crate::fault::FaultKind;
use crate::model::RenameManner;
use crate::random::Random;

impl Generator {
    /// Directories and open files, so that what follows finds something to work on.
    fn beginning(&mut self) -> Vec<Operation> {
        let mkdir = |directory, name| Operation::Mkdir { path: Path { directory, name } };
        let mut operations = vec![mkdir(0, 3), mkdir(0, 4), mkdir(1, 5)];
        for slot in 0..SLOTS {
            let path = Path { directory: self.random.below(4) as u8, name: slot % 3 };
            operations.push(Operation::Create { path, slot });
            let length = self.length() as u32;
            let seed = self.random.next_u64();
            operations.push(Operation::Write { target: Target::Slot(slot), offset: 0, length, seed });
        }
        operations
    }

    /// Lets a device go away and come back a few times, between operations, in their middle, or within a recovery; mounted again
    /// without it some times.
    fn send_away(&mut self, operations: &mut Vec<Operation>, device: u8) {
        let (mut at, mut device) = (0, device);
        for _ in 0..self.random.between(1, 3) {
            at += self.random.below(30) as usize;
            match self.random.below(5) {
                0 => at = self.crash_a_mount_and_go(operations, at, device),
                1 => {
                    at = at.min(operations.len());
                    let events = self.random.between(1, 8) as u32;
                    operations.insert(at, Operation::LonelySync { device, events });
                    operations.insert(at + 1, Operation::Remount);
                    operations.insert(at + 2, Operation::Mend);
                }
                _ => {}
            }
            let events = if self.random.chance(1, 3) { 0 } else { self.random.between(1, 30) as u32 };
            let away = match self.random.chance(1, 6) {
                true => Operation::Offline { device },
                false => Operation::TakeAway { device, events },
            };
            let again = self.random.chance(1, 3).then(|| self.random.between(1, 12) as u32);
            let crash = Operation::Crash { manner: self.manner(), again };
            let mount = if self.random.chance(1, 2) { Operation::Remount } else { crash };
            let mut put = |at: &mut usize, operation: Operation| {
                *at = (*at).min(operations.len());
                operations.insert(*at, operation);
                *at += 1;
            };
            put(&mut at, away);
            if self.random.chance(1, 2) {
                at += self.random.below(12) as usize;
                put(&mut at, mount.clone());
            }
            at += self.random.below(20) as usize;
            if self.random.chance(1, 3) {
                put(&mut at, Operation::Online { device });
            } else if self.random.chance(4, 5) {
                put(&mut at, Operation::BringBack { device });
            }
            if self.random.chance(3, 4) {
                put(&mut at, mount);
            }
            // What is whole again bears the loss of any device.
            if self.random.chance(2, 3) {
                put(&mut at, Operation::Mend);
                device = self.random.below(self.devices as u64) as u8;
            }
        }
    }

    /// The power goes off while a mount begins, and a device goes in the same moment, which may alone know of that mount; the others go on
    /// without it, and it comes back. Tells where in the history that ended.
    fn crash_a_mount_and_go(&mut self, operations: &mut Vec<Operation>, at: usize, device: u8) -> usize {
        let events = self.random.between(1, 6) as u32;
        let manner = self.manner();
        let target = self.target();
        let script = [
            Operation::TakeAway { device, events },
            Operation::Crash { manner, again: Some(events) },
            Operation::Write { target, offset: 0, length: self.length() as u32, seed: self.random.next_u64() },
            Operation::Fsync { target },
            Operation::BringBack { device },
            if self.random.chance(1, 2) { Operation::Remount } else { Operation::Crash { manner, again: None } },
            Operation::Mend,
        ];
        let mut at = at.min(operations.len());
        for operation in script {
            operations.insert(at, operation);
            at += 1;
        }
        at
    }

    /// How files are to be stored changes, of single files, below directories and by rules, and the work that it leaves behind is cut
    /// short by crashes, losses and changes of devices, or comes to its end.
    fn change_policies(&mut self, operations: &mut Vec<Operation>) {
        let mut at = operations.len().min(12);
        for _ in 0..self.random.between(1, 4) {
            at = (at + self.random.below(15) as usize).min(operations.len());
            let path = match self.random.below(3) {
                0 => Path { directory: 0, name: 3 + self.random.below(2) as u8 },
                _ => self.path(),
            };
            let target = Target::Path(path);
            let length = (self.length() + self.length()) as u32;
            let policy = self.random.below(POLICIES.len() as u64) as u8;
            let mut follow = vec![
                Operation::Write { target, offset: self.offset(), length, seed: self.random.next_u64() },
                Operation::SyncAll,
                match self.random.chance(1, 6) {
                    true => Operation::LoadRules { number: self.random.below(RULES.len() as u64) as u8 },
                    false => Operation::SetPolicy { path, policy },
                },
            ];
            if self.random.chance(1, 2) {
                let events = self.random.between(1, 24) as u32;
                follow.push(Operation::ArmCrash { events, manner: self.manner() });
            }
            if self.devices > 1 && self.random.chance(1, 4) {
                let device = self.random.below(self.devices as u64) as u8;
                follow.push(Operation::EmptyDevice { device, leaves: self.random.chance(1, 2) });
            }
            for _ in 0..self.random.between(1, 3) {
                follow.push(Operation::Step { count: self.random.between(1, 6) as u8, idle: self.random.chance(1, 2) });
                match self.random.below(5) {
                    0 => follow.push(Operation::Checkpoint),
                    1 => follow.push(Operation::SyncAll),
                    2 => follow.push(self.content()),
                    _ => {}
                }
            }
            if self.random.chance(1, 3) {
                follow.push(Operation::Mend);
            }
            for operation in follow {
                operations.insert(at, operation);
                at += 1;
            }
        }
    }

    /// People change devices a few times; each change is followed by some mending, and some by all of it.
    fn change_devices(&mut self, operations: &mut Vec<Operation>) {
        let mut at = 0;
        let mut devices = self.devices as u64;
        for _ in 0..self.random.between(1, 4) {
            at = (at + self.random.below(25) as usize).min(operations.len());
            let device = self.random.below(devices) as u8;
            let mebibytes = *self.random.pick(&[64, 80, 200, 700, 3000]);
            let change = match self.random.below(10) {
                0..3 => Operation::AddDevice { mebibytes, spare: self.random.chance(1, 4) },
                3..5 => Operation::ReplaceDevice { device, mebibytes },
                5..7 => Operation::EmptyDevice { device, leaves: self.random.chance(2, 3) },
                7 => Operation::ShrinkDevice { device, percent: self.random.between(30, 95) as u8 },
                8 => Operation::GiveUp { device },
                _ => Operation::UseAgain { device },
            };
            devices += u64::from(matches!(change, Operation::AddDevice { .. } | Operation::ReplaceDevice { .. }));
            let mut put = |operation: Operation| {
                operations.insert(at, operation);
                at += 1;
            };
            if self.random.chance(1, 3) {
                put(Operation::ArmCrash { events: self.random.between(1, 30) as u32, manner: CrashManner::Mixed });
            }
            let grows = matches!(change, Operation::AddDevice { spare: false, .. });
            put(change);
            if grows && self.random.chance(1, 2) {
                let target = Target::Slot(self.random.below(u64::from(SLOTS)) as u8);
                let (length, seed) = (self.random.between(2, 12) as u32 * (128 << 10), self.random.next_u64());
                put(Operation::Rebalance);
                put(Operation::MendSome { steps: self.random.between(1, 3) as u8 });
                put(Operation::Write { target, offset: 0, length, seed });
                put(Operation::Crash { manner: self.manner(), again: None });
            }
            if self.random.chance(2, 3) {
                put(Operation::MendSome { steps: self.random.between(1, 8) as u8 });
            }
            if self.random.chance(1, 3) {
                put(Operation::Mend);
            }
        }
        // Later ones of `send_away` may be of devices that came.
        self.devices = devices as usize;
    }

    /// A device is lost, between operations, in their middle, or within a recovery; it is replaced or given up, or nobody does
    /// anything about it.
    fn lose_device(&mut self, operations: &mut Vec<Operation>, device: u8) {
        let (mut at, mut device) = (0, device);
        if self.devices == 1 {
            return;
        }
        for _ in 0..self.random.between(1, 3) {
            at = (at + self.random.below(30) as usize).min(operations.len());
            let events = if self.random.chance(1, 3) { 0 } else { self.random.between(1, 60) as u32 };
            let mut follow = vec![Operation::Lose { device, events }];
            match self.random.below(6) {
                0 => follow.push(Operation::Crash { manner: self.manner(), again: None }),
                1 => follow.push(Operation::Remount),
                2 => follow.push(Operation::Checkpoint),
                _ => {}
            }
            let mebibytes = *self.random.pick(&[80, 200, 3000]);
            match self.random.below(4) {
                0 => follow.push(Operation::AddDevice { mebibytes, spare: false }),
                1 => follow.push(Operation::ReplaceDevice { device, mebibytes: 3200 }),
                2 => follow.insert(0, Operation::AddDevice { mebibytes, spare: true }),
                _ => {}
            }
            if self.random.chance(1, 2) {
                follow.push(Operation::MendSome { steps: self.random.between(1, 6) as u8 });
            }
            if self.random.chance(1, 2) {
                let again = self.random.chance(1, 3).then(|| self.random.between(1, 12) as u32);
                follow.push(Operation::Crash { manner: self.manner(), again });
            }
            for operation in follow {
                operations.insert(at, operation);
                at = (at + 1 + self.random.below(4) as usize).min(operations.len());
            }
            if self.random.chance(4, 5) {
                operations.insert(at, Operation::Mend);
                device = self.random.below(self.devices as u64) as u8;
            }
        }
    }

    /// A crash leaves rows without their journal, and of what is written in their place next a device loses some. Then everything is
    /// looked at, or moves.
    fn lose_what_replaces_the_abandoned(&mut self, operations: &mut Vec<Operation>, device: u8, per_million: u32) {
        let path = Path { directory: 0, name: self.random.below(3) as u8 };
        let target = Target::Path(path);
        let write = |random: &mut Random, from: u64, to: u64| {
            let (length, seed) = (random.between(from, to) as u32, random.next_u64());
            [Operation::Write { target, offset: 0, length, seed }, Operation::Fsync { target }]
        };
        let loses = |per_million| Operation::Faults { device, kind: FaultKind::LostWrite, per_million };
        let [abandoned, cut] = write(&mut self.random, 1, 60_000);
        let arm = Operation::ArmCrash { events: self.random.between(1, 6) as u32, manner: CrashManner::Everything };
        let mut script = vec![Operation::Create { path, slot: 0 }, Operation::SyncAll, abandoned, arm, cut];
        // All of one write, or some of several.
        let (rate, writes) = if self.random.chance(2, 3) { (1_000_000, 1) } else { (per_million.max(300_000), 3) };
        script.push(loses(rate));
        for _ in 0..writes {
            script.extend(write(&mut self.random, 1, 12_000));
        }
        // Nobody reads it before: that would repair what is live.
        script.push(loses(0));
        let other = (u64::from(device) + self.random.between(1, self.devices as u64)) % self.devices as u64;
        script.push(match self.random.below(4) {
            0 => Operation::Scrub,
            _ => Operation::EmptyDevice { device: other as u8, leaves: self.random.chance(1, 2) },
        });
        script.push(Operation::MendSome { steps: 8 });
        let at = self.random.below(operations.len() as u64 + 1) as usize;
        operations.splice(at..at, script);
    }

    /// A few files are to stay as they are for some days, and are changed, moved and removed all the same, across crashes, while days go
    /// by.
    fn retain_files(&mut self, operations: &mut Vec<Operation>) {
        let mut at = operations.len().min(10);
        for _ in 0..self.random.between(1, 3) {
            let path = Path { directory: 0, name: self.random.below(3) as u8 };
            let days = self.random.between(1, 40) as u8;
            let mut script = vec![Operation::Retain { path, days }];
            for _ in 0..self.random.between(3, 9) {
                script.push(match self.random.below(9) {
                    0 => Operation::Write {
                        target: Target::Path(path),
                        offset: self.offset(),
                        length: self.length() as u32,
                        seed: self.random.next_u64(),
                    },
                    1 => Operation::Unlink { path },
                    2 => Operation::Rename {
                        from: if self.random.chance(1, 2) { path } else { self.path() },
                        to: path,
                        manner: RenameManner::Replace,
                    },
                    3 => Operation::Rename { from: path, to: self.path(), manner: RenameManner::Exchange },
                    4 => Operation::Retain { path, days: self.random.below(u64::from(days) + 4) as u8 },
                    5 => Operation::PassDays { days: self.random.below(u64::from(days)) as u8 + 1 },
                    6 => Operation::Crash { manner: self.manner(), again: None },
                    7 => Operation::Truncate { target: Target::Path(path), size: self.random.below(9_000) },
                    _ => self.content(),
                });
            }
            operations.splice(at..at, script);
            at = (at + self.random.below(30) as usize).min(operations.len());
        }
    }

    /// A whole history of so many operations, with the faults that are given; whether volumes, if it has any, fail.
    pub fn history(&mut self, steps: usize, faults: &[(u8, FaultKind, u32)], fails: bool) -> Vec<Operation> {
        let mut operations = if self.random.chance(4, 5) { self.beginning() } else { Vec::new() };
        operations.extend((0..steps).map(|_| self.operation()));
        if self.devices > 1 && self.random.chance(1, 3) && self.profile != Profile::Full {
            self.change_devices(&mut operations);
        }
        if self.random.chance(1, 3) && self.profile != Profile::Full {
            self.change_policies(&mut operations);
        }
        if self.random.chance(1, 4) {
            self.use_volumes(&mut operations, fails);
        }
        for (device, kind, per_million) in faults {
            let device = *device;
            if *kind == FaultKind::LostDevice {
                self.lose_device(&mut operations, device);
                continue;
            }
            if *kind == FaultKind::AwayDevice {
                self.send_away(&mut operations, device);
                continue;
            }
            if *kind == FaultKind::LostWrite && self.random.chance(1, 2) {
                self.lose_what_replaces_the_abandoned(&mut operations, device, *per_million);
                continue;
            }
            let at = self.random.below(steps as u64 / 2 + 1) as usize;
            let operation = match kind {
                FaultKind::StaleDevice => Operation::KeepImage { device },
                _ => Operation::Faults { device, kind: *kind, per_million: *per_million },
            };
            operations.insert(at, operation);
            if self.random.chance(1, 2) {
                let later = at + 1 + self.random.below((operations.len() - at) as u64) as usize;
                operations.insert(later.min(operations.len()), Operation::Scrub);
            }
        }
        if faults.is_empty() && self.random.chance(1, 8) {
            let at = self.random.below(operations.len() as u64 + 1) as usize;
            operations.insert(at, Operation::Scrub);
        }
        if self.random.chance(1, 5) {
            self.retain_files(&mut operations);
        }
        operations
    }
}
