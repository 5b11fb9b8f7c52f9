//! Names in histories that are put away: by command and by themselves, while everything else goes on, crashes come at any write, and
//! volumes are away for a while.
//!
//! The root goes to a volume, and says `names=`; a directory of its own lies below it, deeper than others. After names went, all steps of
//! histories meet them: what they look at comes back, and the model says what must be there (P-141). While volumes are away, a directory
//! lists what it has or fails, and is whole afterwards. What is used every day does not go, and what is not has gone when its time is
//! over: a command finds next to nothing left (P-152). Volumes do nothing wrong here but for that, for every call may need one. Read next:
//! `tertiary.rs`, `docs/design/folding.md`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use stere_format::Key;
use stere_naming::{Error, OpenFlags};

use crate::area::{Area, further};
use crate::content::pattern;
use crate::history::{Budget, History, Slot, Stop};
use crate::model::{Kind, Node, ROOT};
use crate::observe::{self, Trouble};
use crate::operation::{CrashManner, Operation};
use crate::pool::caller;
use crate::random::Random;
use crate::tertiary::TIER;
use crate::volume::VolumeTrouble;

const NAMES: &[u8] = b"user.stere.names";
/// What the root says of names.
const AGE: &str = "2d";
const HOUR_NS: u64 = 3_600_000_000_000;
/// The directories below one another that are its own.
const OWN: [&[u8]; 3] = [b"cold", b"deep", b"deeper"];
const FILES: usize = 3;
const FILE_BYTES: usize = 9_000;
/// Steps in which the background must be through.
const STEPS_MAX: usize = 2_000;
/// Keys of names below one entry of the root that are not worth a bundle.
const KEYS_LEFT_MAX: u64 = 14;

/// What is done to names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdStep {
    /// The root goes to a volume and says how long names stay.
    Begin,
    /// All that is on its volumes is released.
    Down,
    /// All that can go goes.
    Command,
    /// Days pass, and the background works.
    Pass { days: u8 },
    /// Volumes are away for a while.
    Outage,
    /// What is used stays.
    ProveUsed,
    /// What is not used goes.
    ProveGone,
}

/// Puts names that go into a history, and leaves out what volumes do wrong.
pub fn strew(operations: &mut Vec<Operation>, random: &mut Random) {
    operations.retain(|operation| {
        !matches!(
            operation,
            Operation::Trouble { .. }
                | Operation::Harm { .. }
                | Operation::TakeVolumeAway { .. }
                | Operation::RemoveVolume { .. }
                | Operation::WriteMeanwhile { .. }
                | Operation::ReadWithoutRecall { .. }
        )
    });
    let mut at = operations.len().min(9);
    operations.insert(at, Operation::AddVolume { is_slow: random.chance(1, 4) });
    operations.insert(at + 1, Operation::Cold(ColdStep::Begin));
    at += 2;
    for _ in 0..random.between(2, 4) {
        at = further(at, 12, operations, random);
        let mut round = vec![match random.chance(1, 2) {
            true => Operation::Cold(ColdStep::Command),
            false => Operation::Cold(ColdStep::Down),
        }];
        if random.chance(1, 3) {
            let events = random.between(1, 30) as u32;
            round.insert(0, Operation::ArmCrash { events, manner: CrashManner::Mixed });
        }
        if random.chance(1, 2) {
            round.push(Operation::Cold(ColdStep::Pass { days: random.between(1, 4) as u8 }));
        }
        round.push(match random.below(5) {
            0 => Operation::Crash { manner: CrashManner::Mixed, again: None },
            1 => Operation::Remount,
            2 => Operation::VerifyAll,
            _ => Operation::Cold(ColdStep::Outage),
        });
        if random.chance(1, 2) {
            let used = random.chance(1, 2);
            round.push(Operation::Cold(if used { ColdStep::ProveUsed } else { ColdStep::ProveGone }));
        }
        for operation in round {
            operations.insert(at, operation);
            at += 1;
        }
    }
}

impl History {
    fn has_cold(&self) -> bool {
        let is_whole = self.is_calm() && self.away().is_none() && !self.has_lost_member();
        self.plan.pool.areas.has(Area::Cold)
            && !self.plan.may_fill
            && self.plan.budget != Budget::Beyond
            && !self.has_quotas()
            && is_whole
            && self.mounted().store.failure().is_none()
            && self.mounted().store.tier.media.has_volumes()
    }

    pub(crate) fn execute_cold(&mut self, step: ColdStep) -> Result<(), Stop> {
        if !self.has_cold() {
            return Ok(());
        }
        match step {
            ColdStep::Begin => self.begin_cold(),
            ColdStep::Down => self.all_down(),
            ColdStep::Command => self.offload_by_command().map(drop),
            ColdStep::Pass { days } => self.pass_hours(u64::from(days) * 24),
            ColdStep::Outage => self.outage_of_names(),
            ColdStep::ProveUsed => self.prove_used(),
            ColdStep::ProveGone => self.prove_gone(),
        }
    }

    fn begin_cold(&mut self) -> Result<(), Stop> {
        let Some(volume) = self.mounted().store.tier.media.volumes().first().map(|entry| entry.name.clone()) else {
            return Ok(());
        };
        self.put_policy(ROOT, TIER, volume.as_bytes())?;
        self.put_policy(ROOT, NAMES, AGE.as_bytes())?;
        self.own_directory().map(drop)
    }

    /// The lowest of its own directories, made with all above it where they are not there.
    fn own_directory(&mut self) -> Result<u64, Stop> {
        let mut at = ROOT;
        for name in OWN {
            at = match self.model.lookup(at, name) {
                Ok(inode) => inode,
                Err(_) => {
                    let made = self.mounted().files.mkdir(&caller(&self.machine), at, name, 0o777);
                    let inode = self.must("mkdir", made)?.inode;
                    self.made(at, name, inode, Node::new(Kind::Directory(Default::default()), 0o755))?;
                    inode
                }
            };
        }
        for number in 0..FILES {
            let name = format!("of {number}").into_bytes();
            if self.model.lookup(at, &name).is_ok() {
                continue;
            }
            let flags = OpenFlags { write: true, truncate: false, exclusive: true, read: false };
            let created = self.mounted().files.create(&caller(&self.machine), at, &name, 0o666, flags);
            let (attributes, handle) = self.must("create", created)?;
            let inode = attributes.inode;
            self.made(at, &name, inode, Node::new(Kind::File(Default::default()), 0o644))?;
            self.model.open(inode);
            self.write(inode, 0, &pattern(inode, FILE_BYTES))?;
            self.release(Slot { inode, handle })?;
        }
        self.sync_all()?;
        Ok(at)
    }

    /// Everything is on volumes only, names that were put away too.
    fn all_down(&mut self) -> Result<(), Stop> {
        self.sync_all()?;
        self.settle_volumes()?;
        let mut segments = BTreeSet::new();
        let walked = self.mounted().files.tiers().tier_walk(&caller(&self.machine), ROOT, &mut |met| {
            segments.extend(met.segments);
            ControlFlow::Continue(())
        });
        self.must("looking for segments", walked)?;
        let pinned = self.mounted().files.eviction().pinned_segments(&caller(&self.machine));
        let pinned = self.must("looking for what is pinned", pinned)?;
        let segments: Vec<u64> = segments.difference(&pinned).copied().collect();
        let released = self.mounted().files.tiers().release_segments(&caller(&self.machine), &segments);
        self.summary.tier.segments_released += self.must("releasing", released)?.segments;
        let store = &self.mounted().store;
        let done = store.checkpoint().and_then(|()| store.checkpoint());
        self.must("making a release durable", done.map_err(Error::from))?;
        self.note_commit();
        Ok(())
    }

    /// By command. How many keys those were.
    fn offload_by_command(&mut self) -> Result<u64, Stop> {
        self.own_directory()?;
        self.all_down()?;
        let outcome = match self.mounted().files.offload().offload_below(&caller(&self.machine), ROOT) {
            // The root goes nowhere any more, or not all is counted yet.
            Err(Error::NotPermitted(_)) => return Ok(0),
            outcome => self.must("putting names away", outcome)?,
        };
        let committed = self.mounted().store.commit(stere_store::Io::BLOCKING);
        self.must("commit", committed.map_err(Error::from))?;
        self.note_commit();
        self.summary.names_put_away += outcome.keys;
        self.all_down()?;
        Ok(outcome.keys)
    }

    /// Time passes, and all that is to be done in the background is done.
    fn pass_hours(&mut self, hours: u64) -> Result<(), Stop> {
        self.sync_all()?;
        self.machine.pass(hours * HOUR_NS);
        self.tell_time();
        let before = self.keys_away();
        for _ in 0..STEPS_MAX {
            let more = self.mounted().files.step(&caller(&self.machine), 100);
            if !self.must("step of the files", more)? {
                self.summary.names_put_away += self.keys_away().saturating_sub(before);
                return Ok(());
            }
        }
        Err(Stop::Failure("the work of the files does not end".into()))
    }

    fn keys_away(&self) -> u64 {
        let folds = self.mounted().store.offload().folds(stere_store::Io::BLOCKING).unwrap_or_default();
        folds.iter().map(|fold| u64::from(fold.keys)).sum()
    }

    /// P-141: with all volumes away a directory lists what it has, or fails; and it is whole afterwards.
    fn outage_of_names(&mut self) -> Result<(), Stop> {
        let count = self.machine.volume_count();
        (0..count).for_each(|volume| self.machine.set_trouble(volume, Some(VolumeTrouble::Outage)));
        let outcome = self.look_during_outage();
        self.end_troubles();
        outcome
    }

    fn look_during_outage(&mut self) -> Result<(), Stop> {
        let nodes = self.model.nodes.iter().filter(|(_, node)| node.nlink > 0);
        let directories = nodes.filter_map(|(inode, node)| match &node.kind {
            Kind::Directory(names) => Some((*inode, names.clone())),
            _ => None,
        });
        let store = self.mounted().store.clone();
        for (directory, names) in directories.collect::<Vec<_>>() {
            let may_fail = store.offload().has_folds();
            match observe::list(&self.mounted().files, &caller(&self.machine), directory) {
                Ok(seen) if seen == names => {}
                Err(Trouble::Call { errno: libc::EIO, .. }) if may_fail => {}
                _ if self.machine.is_off() => return Err(Stop::Power),
                seen => {
                    let path = self.model.path_of(directory);
                    return Err(Stop::Failure(format!("{path} during an outage: {seen:?}, not {names:?}")));
                }
            }
        }
        Ok(())
    }

    fn look_at(&mut self, directory: u64) -> Result<(), Stop> {
        let seen = observe::list(&self.mounted().files, &caller(&self.machine), directory);
        seen.map_err(|trouble| self.trouble(trouble)).map(drop)
    }

    /// P-152: what is looked at within its time stays.
    fn prove_used(&mut self) -> Result<(), Stop> {
        let directory = self.own_directory()?;
        self.all_down()?;
        self.look_at(directory)?;
        // When it came back is known from now on.
        self.pass_hours(0)?;
        self.pass_hours(24)?;
        self.look_at(directory)?;
        self.pass_hours(36)?;
        if self.mounted().store.offload().is_folded(&Key::dirent_hash(directory, 0)) {
            return Err(Stop::Failure("names went that were used less than two days ago".into()));
        }
        self.summary.names_proven += 1;
        Ok(())
    }

    /// P-152: when its time is over, a command finds next to nothing that it could put away.
    fn prove_gone(&mut self) -> Result<(), Stop> {
        self.own_directory()?;
        // What is open, or waits for something, has its time.
        self.pass_hours(1)?;
        self.all_down()?;
        // What could not go then is looked at again after a quarter of a day.
        for hours in [60, 12, 12] {
            self.pass_hours(hours)?;
        }
        let entries = self.model.names(ROOT).map_or(0, |names| names.len()) as u64;
        let left = match self.mounted().files.offload().offload_below(&caller(&self.machine), ROOT) {
            Err(Error::NotPermitted(_)) => return Ok(()),
            outcome => self.must("putting names away", outcome)?,
        };
        if left.keys > KEYS_LEFT_MAX * entries {
            return Err(Stop::Failure(format!("names were left that nobody used for three days: {left:?}")));
        }
        self.summary.names_proven += 1;
        Ok(())
    }
}
