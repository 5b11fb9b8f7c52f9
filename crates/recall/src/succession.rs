//! Which volume stands for which: one that is being retired, or was, leads to its heir.

use stere_format::{TERTIARY_MAX, VolumeEntry};

use super::Volumes;

fn numbers(set: u16) -> impl Iterator<Item = u8> {
    (0..TERTIARY_MAX as u8).filter(move |number| set >> number & 1 == 1)
}

impl Volumes {
    /// Who has what was meant for a volume, if it is not the volume itself.
    pub fn heir(&self, number: u8) -> Option<u8> {
        let retiring = self.table.read().get(&number).and_then(|known| known.entry.succession.heir());
        retiring.or_else(|| self.retired.read().get(&number).and_then(|entry| entry.succession.heir()))
    }

    /// The set in which each volume that was, or is being, retired is replaced by its heir; and all numbers on the way there.
    pub fn follow(&self, set: u16) -> (u16, u16) {
        let (mut now, mut met) = (0, set);
        for first in numbers(set) {
            let mut number = first;
            // No way is longer, whatever the table says.
            for _ in 0..TERTIARY_MAX {
                let Some(heir) = self.heir(number) else { break };
                number = heir;
                met |= 1 << number;
            }
            now |= 1 << number;
        }
        assert_eq!(now & !met, 0, "a volume stands for itself, or is met on the way");
        assert!(now.count_ones() <= set.count_ones(), "{set:#x} stands for more volumes: {now:#x}");
        (now, met)
    }

    /// The volumes that a set stands for now: each that was retired is its heir.
    pub fn with_heirs(&self, set: u16) -> u16 {
        self.follow(set).0
    }

    /// Volumes that are being retired, with their heirs.
    pub fn retiring(&self) -> Vec<(VolumeEntry, u8)> {
        let table = self.table.read();
        let entries = table.values().map(|known| &known.entry);
        entries.filter_map(|entry| Some((entry.clone(), entry.succession.heir()?))).collect()
    }

    pub fn is_retiring(&self, number: u8) -> bool {
        self.table.read().get(&number).is_some_and(|known| known.entry.succession.heir().is_some())
    }

    pub fn free_bytes_of(&self, number: u8) -> Option<u64> {
        let volume = self.table.read().get(&number)?.volume.clone();
        volume?.free_bytes()
    }

    pub fn volume_entry(&self, number: u8) -> Option<VolumeEntry> {
        self.table.read().get(&number).map(|known| known.entry.clone())
    }

    /// Whether the number of a volume that was retired may be given to another one: nothing names it, or leads past it.
    pub fn is_named_by(&self, sets: &[u16], number: u8) -> bool {
        sets.iter().any(|set| self.follow(*set).1 >> number & 1 == 1)
    }
}
