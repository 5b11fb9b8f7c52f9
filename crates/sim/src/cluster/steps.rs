//! Steps of a history of the area `cluster`: what owners do, what becomes of them, and what the network does to them.
//!
//! Invariants: an owner fails only where the log did not answer it; nobody commits whose lease is over, because nobody would end that wait.
//! Read next: `network.rs`.

use std::collections::BTreeMap;

use stere_format::{BLOCK_BYTES, DeviceLayout, SegmentKind};
use stere_store::{Error, Io};

use crate::random::Random;

use super::files::{File, remove, write};
use super::network::End;
use super::process::{Pending, Process};
use super::{HOLD_MS, History, NODE_BYTES, NODES, told};

const FILES_MAX: usize = 40;
/// Owners of before that may still wake.
const FORMER_MAX: usize = 4;
/// Rounds in which what a node had missed must be there.
const ROUNDS_MAX: usize = 300;
const ROUND_BYTES: u64 = 1 << 20;

impl History {
    pub(super) fn step(&mut self) -> Result<(), String> {
        let owner = self.owner()?;
        if owner.is_replaced() {
            return Err("the owner was replaced, and nobody replaced it".into());
        }
        if !owner.may_write() {
            self.seen.without_log += 1;
            let stands_still = self.random.chance(1, 2);
            return self.replace(stands_still);
        }
        if self.is_hasty {
            return match self.random.below(24) {
                0..=8 => self.change(),
                9..=10 => self.lend(),
                11..=12 => self.commit(),
                13 => self.checkpoint(),
                14..=15 => self.replace(true),
                16..=18 => self.wake(),
                19 => self.wait(),
                _ => self.disturb(),
            };
        }
        match self.random.below(24) {
            0..=6 => self.change(),
            7..=8 => self.lend(),
            9..=12 => self.commit(),
            13 => self.checkpoint(),
            14 => self.replace(true),
            15 => self.replace(false),
            16..=17 => self.wake(),
            18 => self.wait(),
            19..=20 => self.catch_up(),
            _ => self.disturb(),
        }
    }

    /// Something happens to the owner's ways.
    fn disturb(&mut self) -> Result<(), String> {
        let mut random = self.random.fork();
        let owner = self.owner()?.number;
        match random.below(7) {
            6 => self.rot(&mut random)?,
            0 => {
                let calls = if random.chance(1, 2) { 0 } else { random.between(1, 30) };
                self.part(owner, calls, &mut random);
            }
            1 => {
                // Few calls are repeated soon enough; with more the owner gives up.
                let calls = if random.chance(2, 3) { random.between(1, 3) } else { random.between(4, 40) };
                self.network.part_from_log(owner, random.below(4), calls);
            }
            2 => (0..NODES).filter(|_| random.chance(2, 3)).for_each(|node| self.network.set_slow(owner, node)),
            3 => return self.catch_up(),
            _ => {
                self.network.arrive_some();
                return self.verify();
            }
        }
        Ok(())
    }

    /// Bytes of a copy change on a node, of what others have, too.
    fn rot(&mut self, random: &mut Random) -> Result<(), String> {
        let owner = self.owner()?;
        if self.weak.is_some() || owner.lacks_node {
            return Ok(());
        }
        let all = owner.store.segments().all();
        let has_copies =
            all.iter().filter(|segment| segment.placed().scheme.parity > 0 && segment.written_blocks() > 1);
        let meant: Vec<_> = has_copies.collect();
        if meant.is_empty() {
            return Ok(());
        }
        let segment = random.pick(&meant);
        let chunks = segment.chunks();
        let place = chunks[random.below(chunks.len() as u64) as usize];
        let block = random.below(u64::from(segment.written_blocks()));
        let layout = DeviceLayout::for_size(NODE_BYTES, owner.store.log().chunk_bytes()).map_err(told)?;
        let node = usize::from(place.device);
        let start = layout.slot_offset(place.slot).ok_or("a chunk lies in no slot")?;
        self.network.node(node).corrupt(start + block * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
        (self.weak, self.is_rotten) = (Some(node), true);
        self.seen.rotten += 1;
        self.verify()
    }

    /// Mends what rotted, also what nobody read.
    fn scrub(&mut self) -> Result<(), String> {
        let report = match self.owner()?.store.scrubber.scrub() {
            Ok(report) => report,
            Err(error) => return self.excuse(Err(error)).map(|_| ()),
        };
        if !report.unrepairable.is_empty() {
            return Err(format!("a scrub of what copies bear: {report:?}"));
        }
        self.commit()?;
        // Repairs fail, too, where the log does not answer.
        self.is_rotten = !self.owner()?.may_write();
        Ok(())
    }

    fn wait(&mut self) -> Result<(), String> {
        let ms = self.random.between(1, 2 * u64::from(HOLD_MS));
        let owner = self.owner.as_mut().ok_or("nobody owns the pool")?;
        // Its machine stands still, and nobody notices.
        owner.is_stopped = self.random.chance(1, 4);
        self.pass(ms);
        self.owner.iter_mut().for_each(|owner| owner.is_stopped = false);
        self.release_slots()?;
        self.verify()?;
        match ms > u64::from(HOLD_MS) && self.random.chance(1, 2) {
            true => self.write_where_others_did(),
            false => Ok(()),
        }
    }

    /// An owner, which takes the first slots that are free, writes to those that were held; then one of before wakes.
    fn write_where_others_did(&mut self) -> Result<(), String> {
        self.replace(true)?;
        for _ in 0..3 {
            self.change()?;
        }
        if self.owner()?.may_write() {
            self.commit()?;
        }
        self.wake()
    }

    /// Whether it succeeded; only an owner that the log did not answer may fail.
    pub(super) fn excuse(&self, outcome: Result<(), Error>) -> Result<bool, String> {
        match outcome {
            Ok(()) => Ok(true),
            Err(_) if self.owner()?.is_without_log() => Ok(false),
            Err(error) => Err(told(error)),
        }
    }

    fn change(&mut self) -> Result<(), String> {
        if !self.owner()?.may_write() {
            return Ok(());
        }
        let mut random = self.random.fork();
        let known: Vec<(u64, File)> = self.files.iter().map(|(inode, file)| (*inode, *file)).collect();
        let owner = self.owner.as_mut().ok_or("nobody owns the pool")?;
        let removable = known.iter().find(|(inode, _)| !owner.pending.removed.contains_key(inode));
        match removable.filter(|_| known.len() > FILES_MAX || random.chance(1, 4)) {
            Some((inode, file)) => {
                let removed = remove(&owner.store, *inode, file);
                // Whether it is gone nobody knows, where it failed.
                owner.pending.removed.insert(*inode, *file);
                self.excuse(removed)?;
            }
            None => match write(&owner.store, &mut random) {
                Ok((inode, file)) => _ = owner.pending.written.insert(inode, file),
                Err(Error::NoSpace) => {
                    self.pass(u64::from(HOLD_MS));
                    self.release_slots()?;
                }
                Err(error) => _ = self.excuse(Err(error))?,
            },
        }
        Ok(())
    }

    /// After a commit that was acknowledged the owner's word counts.
    fn commit(&mut self) -> Result<(), String> {
        let committed = self.owner()?.store.commit(Io::BLOCKING);
        if !self.excuse(committed)? {
            return Ok(());
        }
        let owner = self.owner.as_mut().ok_or("nobody owns the pool")?;
        let Pending { written, removed } = std::mem::take(&mut owner.pending);
        self.seen.acknowledged += written.len() as u64 + removed.len() as u64;
        self.files.extend(written);
        self.files.retain(|inode, _| !removed.contains_key(inode));
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        let outcome = self.owner()?.store.checkpoint();
        self.excuse(outcome).map(|_| ())
    }

    /// Another owner takes the pool. The one before dies in the middle of something, or stands still.
    pub(super) fn replace(&mut self, stands_still: bool) -> Result<(), String> {
        let mut before = self.owner.take().ok_or("nobody owns the pool")?;
        let Pending { written, removed } = std::mem::take(&mut before.pending);
        self.uncertain.written.extend(written);
        self.uncertain.removed.extend(removed);
        self.seen.takeovers += 1;
        match stands_still {
            true => self.stand_still(before),
            false => self.die(before),
        }
        self.open()
    }

    fn stand_still(&mut self, mut before: Process) {
        before.is_stopped = self.random.chance(1, 2);
        self.seen.stopped_clocks += u64::from(before.is_stopped);
        if self.random.chance(1, 3) {
            let calls = self.random.between(1, 6);
            self.network.part_from_log(before.number, 0, calls);
        }
        self.former.push(before);
        if self.former.len() > FORMER_MAX {
            let first = self.former.remove(0);
            self.network.kill(first.number);
        }
        assert!(self.former.len() <= FORMER_MAX, "few owners of before are kept");
    }

    /// The process is gone from one moment to the next, and sometimes nodes with it.
    fn die(&mut self, before: Process) {
        self.seen.crashes += 1;
        let mut random = self.random.fork();
        let last = if self.is_calm { u64::MAX } else { random.below(8) };
        match last {
            0..=2 => self.network.end(before.number, End::AtFlush),
            3..=4 => self.network.end(before.number, End::AfterCalls(random.between(1, 24))),
            5 => {
                // The rows that it names may be elsewhere or nowhere.
                let node = self.weak.unwrap_or(random.below(NODES as u64) as usize);
                self.weak = Some(node);
                self.network.fail_flush(before.number, node);
            }
            _ => {}
        }
        if last <= 5 && before.may_write() {
            match random.chance(3, 4) {
                true => drop(before.store.commit(Io::BLOCKING)),
                false => drop(before.store.checkpoint()),
            }
        }
        self.network.kill(before.number);
        drop(before);
        match random.below(3) {
            0 => {}
            1 => (0..NODES).filter(|_| random.chance(1, 2)).for_each(|node| self.network.restart(node)),
            _ => {
                // The power of the whole site.
                self.former.drain(..).for_each(|former| self.network.kill(former.number));
                (0..NODES).for_each(|node| self.network.restart(node));
            }
        }
    }

    /// An owner that was replaced goes on where it stood.
    fn wake(&mut self) -> Result<(), String> {
        if self.former.is_empty() {
            return Ok(());
        }
        let which = self.random.below(self.former.len() as u64) as usize;
        let former = self.former.swap_remove(which);
        self.seen.woken += 1;
        let mut random = self.random.fork();
        let has_lease = former.has_lease();
        let mut written = BTreeMap::new();
        for _ in 0..random.between(1, if has_lease { 12 } else { 8 }) {
            // Errors of its own store are no matter: only an acknowledgement counts.
            if let Ok((inode, file)) = write(&former.store, &mut random) {
                written.insert(inode, file);
            }
        }
        if !has_lease {
            self.seen.lease_over += 1;
            // Its writes wait for the look that comes next, and must not go out after it either.
            former.store.log().close_rows(SegmentKind::Data);
            former.look();
            if former.tail.check().is_ok() {
                // The log does not answer, and it ends while it waits.
                self.network.kill(former.number);
                return self.verify();
            }
        }
        let is_acknowledged = former.store.commit(Io::BLOCKING).is_ok();
        if random.chance(1, 2) {
            drop(former.store.checkpoint());
        }
        if is_acknowledged && !written.is_empty() {
            return Err(format!("an owner that was replaced acknowledged {} files", written.len()));
        }
        match random.chance(1, 2) {
            true => self.former.push(former),
            false => self.network.kill(former.number),
        }
        self.verify()
    }

    /// All nodes are reached again, and what one had missed is written to it.
    pub(super) fn catch_up(&mut self) -> Result<(), String> {
        let owner = self.owner()?.number;
        self.network.mend(owner);
        // What is on its way is passed over by rebuilding and by scrubs.
        self.end_lent()?;
        // The table does not tell yet of rows on their way to a chunk that was given up.
        self.commit()?;
        if !self.owner()?.may_write() {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            match self.owner()?.store.rebuilder.mend_step(ROUND_BYTES) {
                Ok(progress) if progress.is_done => break,
                Ok(_) => {}
                Err(error) => return self.excuse(Err(error)).map(|_| ()),
            }
        }
        let owner = self.owner()?;
        let status = owner.store.rebuilder.mend_status();
        let is_whole = status.chunks_left + status.waiting_chunks == 0 && !status.is_settling;
        if is_whole && !owner.lacks_node && owner.may_write() && self.network.away(owner.number).is_none() {
            if self.is_rotten {
                self.scrub()?;
            }
            if self.is_rotten {
                return self.verify();
            }
            self.seen.caught_up += u64::from(self.weak.take().is_some());
        }
        self.verify()
    }
}
