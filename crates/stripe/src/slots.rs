//! The slots of one device: which are in use, how many are free.
//!
//! A slot is held while the owner of the pool before may still write to it: it is given to nobody, used or not.
//! Invariants: `free_count` counts exactly the slots below `slot_count` that are neither used nor held; a slot may be in use beyond `slot_count`
//! while the device's size is not known yet (segments are read before an absent device comes back).

use std::collections::BTreeSet;

/// Bits by slot; grows on demand.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotMap {
    slot_count: u32,
    free_count: u32,
    /// Where the next search begins, so that slots are handed out in order and disks write forward.
    cursor: u32,
    words: Vec<u64>,
    held: BTreeSet<u32>,
}

impl SlotMap {
    /// Tells the size of the device.
    pub(crate) fn set_slot_count(&mut self, slot_count: u32) {
        self.slot_count = slot_count;
        let words = (slot_count as usize).div_ceil(64);
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        let is_free = |slot: &u32| !self.is_used(*slot) && !self.held.contains(slot);
        self.free_count = (0..slot_count).filter(is_free).count() as u32;
        self.cursor = 0;
    }

    /// Slots in use that the device has no more, or not yet.
    pub(crate) fn used_beyond(&self) -> u32 {
        let (first, bits) = (self.slot_count as usize / 64, self.slot_count % 64);
        let words = self.words.iter().enumerate().skip(first);
        let beyond = |(at, word): (usize, &u64)| if at == first { word >> bits } else { *word };
        words.map(|word| beyond(word).count_ones()).sum()
    }

    pub(crate) fn slot_count(&self) -> u32 {
        self.slot_count
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    pub(crate) fn is_used(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// False if the slot was in use already.
    #[must_use]
    pub(crate) fn mark_used(&mut self, slot: u32) -> bool {
        let index = slot as usize / 64;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (slot % 64);
        if self.words[index] & bit != 0 {
            return false;
        }
        self.words[index] |= bit;
        if slot < self.slot_count && !self.held.contains(&slot) {
            assert!(self.free_count > 0, "a clear bit was counted as free");
            self.free_count -= 1;
        }
        true
    }

    /// False if the slot was free already.
    #[must_use]
    pub(crate) fn mark_free(&mut self, slot: u32) -> bool {
        if !self.is_used(slot) {
            return false;
        }
        self.words[slot as usize / 64] &= !(1 << (slot % 64));
        if slot < self.slot_count && !self.held.contains(&slot) {
            self.free_count += 1;
            assert!(self.free_count <= self.slot_count, "no more slots are free than there are");
        }
        true
    }

    /// Gives the slot to nobody until `release_held`, also if it becomes free meanwhile.
    pub(crate) fn hold(&mut self, slot: u32) {
        if self.held.insert(slot) && slot < self.slot_count && !self.is_used(slot) {
            assert!(self.free_count > 0, "a slot that is held now was free");
            self.free_count -= 1;
        }
    }

    /// Whether a slot would be free if it were not held.
    pub(crate) fn holds_free(&self) -> bool {
        self.held.iter().any(|slot| *slot < self.slot_count && !self.is_used(*slot))
    }

    pub(crate) fn is_held(&self, slot: u32) -> bool {
        self.held.contains(&slot)
    }

    /// The slot goes to whoever wants it, if it is not used. Whether it was held.
    pub(crate) fn release_held(&mut self, slot: u32) -> bool {
        if !self.held.remove(&slot) {
            return false;
        }
        if slot < self.slot_count && !self.is_used(slot) {
            self.free_count += 1;
        }
        assert!(self.free_count <= self.slot_count, "no more slots are free than there are");
        true
    }

    /// Takes the next free slot at or behind the cursor, going round.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.free_count == 0 {
            return None;
        }
        let found = self.next_free(self.cursor).or_else(|| self.next_free(0));
        assert!(found.is_some(), "{} slots count as free, and none is", self.free_count);
        let slot = found?;
        let is_new = self.mark_used(slot);
        assert!(is_new && slot < self.slot_count, "a free slot of the device was found");
        self.cursor = slot + 1;
        Some(slot)
    }

    fn held_word(&self, index: u32) -> u64 {
        self.held.range(index * 64..(index + 1) * 64).fold(0, |word, slot| word | 1 << (slot % 64))
    }

    fn next_free(&self, from: u32) -> Option<u32> {
        let mut slot = from;
        while slot < self.slot_count {
            let word = self.words[slot as usize / 64] | self.held_word(slot / 64) | ((1u64 << (slot % 64)) - 1);
            if word != u64::MAX {
                let found = slot / 64 * 64 + word.trailing_ones();
                return (found < self.slot_count).then_some(found);
            }
            slot = (slot / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests;
