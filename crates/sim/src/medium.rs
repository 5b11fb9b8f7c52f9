//! One simulated device's contents: sparse pages, what of them is durable, and the writes in between.
//!
//! Invariants: `current` is what reads see; `current` with the pages in `undo` put back is what survives a crash that keeps
//! nothing; `pending` are the writes since the last flush in their order. Pages are shared between copies of a medium.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::fault::FaultRates;
use stere_device::Deadline;

use crate::hang::{DEADLINE_NS, Hang};
use crate::random::Random;

const PAGE: usize = 4096;
pub(crate) const SECTOR: usize = 512;

type Page = Arc<[u8; PAGE]>;

/// Page numbers hash to themselves, mixed: fast, and the same in every run.
#[derive(Default, Clone)]
pub struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

type Pages<T> = HashMap<u64, T, BuildHasherDefault<PageHasher>>;

#[derive(Debug, Clone)]
struct Write {
    offset: u64,
    bytes: Arc<Vec<u8>>,
}

/// Which of the unflushed writes survive a crash. Each survivor may be torn unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Survival {
    /// None.
    Nothing,
    /// All, whole.
    Everything,
    /// Each with this chance, in random order, half of them torn.
    Each { per_hundred: u64 },
    /// The first so many, whole: the device kept order.
    Prefix(usize),
    /// Only this one, whole.
    Only(usize),
    /// All but this one, whole.
    AllBut(usize),
    /// All, but this one is torn.
    Tear(usize),
}

/// What a device does not do for a while; afterwards it is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ailment {
    /// Reads fail, writes and flushes are good.
    Unreadable,
    /// Writes and flushes fail, reads are good.
    Unwritable,
    /// Nothing is answered: whoever has a deadline goes on without it.
    Silent,
}

/// The contents of one device.
#[derive(Debug, Clone)]
pub struct Medium {
    size_bytes: u64,
    block_bytes: u32,
    current: Pages<Page>,
    undo: Pages<Option<Page>>,
    pending: Vec<Write>,
    unreadable: BTreeSet<u64>,
    pub(crate) rates: FaultRates,
    pub(crate) is_dead: bool,
    pub(crate) is_away: bool,
    /// Once away, it never comes back.
    pub(crate) is_mortal: bool,
    pub(crate) has_flush_failed: bool,
    /// What it does not do for a while.
    pub(crate) ailment: Option<Ailment>,
    /// What does not come back from it.
    pub(crate) hang: Option<Hang>,
    /// How long its writes and flushes are waited for.
    pub(crate) deadline_ns: Option<u64>,
    /// Who else answers; none where nobody said so.
    pub(crate) deadline: Option<Deadline>,
}

impl Medium {
    /// All zeros.
    pub fn new(size_bytes: u64, block_bytes: u32) -> Medium {
        assert!(block_bytes.is_power_of_two() && (512..=4096).contains(&block_bytes));
        Medium {
            size_bytes,
            block_bytes,
            current: Pages::default(),
            undo: Pages::default(),
            pending: Vec::new(),
            unreadable: BTreeSet::new(),
            rates: FaultRates::none(),
            is_dead: false,
            is_away: false,
            is_mortal: false,
            has_flush_failed: false,
            ailment: None,
            hang: None,
            deadline_ns: Some(DEADLINE_NS),
            deadline: None,
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Whether some page that was ever written now holds what `is_wanted` looks for.
    pub fn any_page(&self, is_wanted: &dyn Fn(&[u8]) -> bool) -> bool {
        self.current.values().any(|page| is_wanted(&page[..]))
    }

    /// How many writes a crash could lose now.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Opened again: a failed flush is forgotten, a device that died is back with what it held.
    pub fn reopen(&mut self) {
        self.has_flush_failed = false;
        self.is_dead = false;
        self.deadline_ns = Some(DEADLINE_NS);
        self.deadline.take().iter().for_each(Deadline::is_back);
        self.hang.iter_mut().for_each(Hang::reopen);
    }

    pub(crate) fn make_unreadable(&mut self, offset: u64) {
        self.unreadable.insert(offset / SECTOR as u64);
    }

    pub(crate) fn flip(&mut self, offset: u64, bit: u32) {
        let (page, within) = (offset / PAGE as u64, (offset % PAGE as u64) as usize);
        if let Some(bytes) = self.current.get_mut(&page) {
            Arc::make_mut(bytes)[within] ^= 1 << bit;
        }
    }

    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let first = offset / SECTOR as u64;
        let end = (offset + buffer.len() as u64).div_ceil(SECTOR as u64);
        if self.unreadable.range(first..end).next().is_some() {
            return Err(libc::EIO);
        }
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let within = (at % PAGE as u64) as usize;
            let take = (PAGE - within).min(rest.len());
            let (into, tail) = rest.split_at_mut(take);
            match self.current.get(&(at / PAGE as u64)) {
                Some(page) => into.copy_from_slice(&page[within..within + take]),
                None => into.fill(0),
            }
            (at, rest) = (at + take as u64, tail);
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.apply(offset, &bytes);
        self.pending.push(Write { offset, bytes: Arc::new(bytes) });
    }

    fn apply(&mut self, offset: u64, bytes: &[u8]) {
        for sector in offset / SECTOR as u64..(offset + bytes.len() as u64) / SECTOR as u64 {
            if self.unreadable.is_empty() {
                break;
            }
            self.unreadable.remove(&sector);
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let take = (PAGE - within).min(rest.len());
            let (from, tail) = rest.split_at(take);
            let before = self.current.get(&number).cloned();
            let page = self.current.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
            self.undo.entry(number).or_insert(before);
            Arc::make_mut(page)[within..within + take].copy_from_slice(from);
            (at, rest) = (at + take as u64, tail);
        }
    }

    /// Whole pages of a range are gone. What was on its way to them may still arrive, where nobody reads it.
    pub(crate) fn discard(&mut self, offset: u64, length: u64) {
        for number in offset.div_ceil(PAGE as u64)..(offset + length) / PAGE as u64 {
            self.current.remove(&number);
            self.undo.remove(&number);
        }
    }

    /// Everything written so far is durable.
    pub(crate) fn flush(&mut self) {
        self.undo.clear();
        self.pending.clear();
    }

    /// Power goes and comes back.
    pub fn crash(&mut self, survival: &Survival, random: &mut Random) {
        for (number, before) in std::mem::take(&mut self.undo) {
            match before {
                Some(page) => self.current.insert(number, page),
                None => self.current.remove(&number),
            };
        }
        let pending = std::mem::take(&mut self.pending);
        let count = pending.len();
        match *survival {
            Survival::Nothing => {}
            Survival::Everything => self.keep(&pending, |_| true),
            Survival::Prefix(kept) => self.keep(&pending, |index| index < kept),
            Survival::Only(only) => self.keep(&pending, |index| index == only),
            Survival::AllBut(lost) => self.keep(&pending, |index| index != lost),
            Survival::Tear(torn) => {
                self.keep(&pending, |index| index != torn);
                pending.get(torn).into_iter().for_each(|write| self.tear(write, random));
            }
            Survival::Each { per_hundred } => {
                for index in random.order(count) {
                    if !random.chance(per_hundred, 100) {
                        continue;
                    }
                    if random.chance(1, 2) {
                        self.tear(&pending[index], random);
                    } else {
                        self.apply(pending[index].offset, &pending[index].bytes);
                    }
                }
            }
        }
        // What survived is on the medium now.
        self.flush();
        self.has_flush_failed = false;
        self.hang.iter_mut().for_each(Hang::power_off);
    }

    fn keep(&mut self, pending: &[Write], survives: impl Fn(usize) -> bool) {
        for (_, write) in pending.iter().enumerate().filter(|(index, _)| survives(*index)) {
            self.apply(write.offset, &write.bytes);
        }
    }

    /// Applies only some sectors of a write; the pieces a device keeps whole are its blocks.
    fn tear(&mut self, write: &Write, random: &mut Random) {
        let unit = self.block_bytes as usize;
        let units = write.bytes.len() / unit;
        let cut = random.below(units as u64 + 1) as usize;
        let manner = random.below(4);
        for index in 0..units {
            let survives = match manner {
                0 => index < cut,
                1 => index >= cut,
                2 => index != cut,
                _ => random.chance(1, 2),
            };
            if survives {
                let bytes = &write.bytes[index * unit..(index + 1) * unit];
                self.apply(write.offset + (index * unit) as u64, bytes);
            }
        }
    }
}
