//! Writes that a server has acknowledged and no flush has covered yet: they are written again where it may have lost them.
//!
//! Invariants: what is kept is in the order in which it was acknowledged, and of one place only the newest; what had no room any more, or is
//! partly over another write, is missed, and who asks is told that not all is here.

use std::collections::BTreeMap;

use stere_device::{Piece, length_of};

/// Memory that one device keeps for this. A commit, which flushes, comes long before that.
pub const KEPT_BYTES_MAX: usize = 256 << 20;

#[derive(Default)]
pub struct Replay {
    /// By number.
    writes: BTreeMap<u64, (u64, Vec<Piece>)>,
    /// Numbers by offset.
    places: BTreeMap<u64, u64>,
    bytes: usize,
    /// The newest write that is missed.
    missed: Option<u64>,
}

impl Replay {
    /// A write was acknowledged, as this number of all.
    pub fn note(&mut self, number: u64, offset: u64, pieces: Vec<Piece>, kept_bytes_max: usize) {
        let end = offset + length_of(&pieces) as u64;
        assert!(end > offset, "a write has bytes");
        assert!(self.writes.last_key_value().is_none_or(|(newest, _)| *newest < number), "writes come in their order");
        let before: Vec<(u64, u64)> = self.places.range(..end).map(|(at, number)| (*at, *number)).collect();
        for (at, other) in before.into_iter().rev() {
            let length = self.writes.get(&other).map_or(0, |(_, pieces)| length_of(pieces) as u64);
            if at + length <= offset {
                continue;
            }
            if at < offset || at + length > end {
                self.missed = Some(number);
            }
            self.remove(other);
        }
        self.bytes += length_of(&pieces);
        self.places.insert(offset, number);
        self.writes.insert(number, (offset, pieces));
        while self.bytes > kept_bytes_max
            && let Some((oldest, _)) = self.writes.first_key_value()
        {
            let oldest = *oldest;
            self.missed = self.missed.max(Some(oldest));
            self.remove(oldest);
        }
    }

    /// Somebody else made a write of this number.
    pub fn miss(&mut self, number: u64) {
        assert!(self.writes.last_key_value().is_none_or(|(newest, _)| *newest < number), "writes come in their order");
        self.missed = self.missed.max(Some(number));
    }

    fn remove(&mut self, number: u64) {
        if let Some((offset, pieces)) = self.writes.remove(&number) {
            self.bytes -= length_of(&pieces);
            self.places.remove(&offset);
        }
    }

    /// Writes up to this number are durable.
    pub fn flushed(&mut self, number: u64) {
        let durable: Vec<u64> = self.writes.range(..=number).map(|(number, _)| *number).collect();
        durable.into_iter().for_each(|number| self.remove(number));
        assert_eq!(self.writes.len(), self.places.len(), "each write has its place");
        self.missed = self.missed.filter(|missed| *missed > number);
    }

    /// What is to be written again, in its order; none if that is not all.
    pub fn all(&self) -> Option<Vec<(u64, Vec<Piece>)>> {
        self.missed.is_none().then(|| self.writes.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stere_device::Buffer;

    fn pieces(length: usize) -> Vec<Piece> {
        vec![Piece::new(Buffer::zeroed(length).share(), 0..length)]
    }

    fn offsets(replay: &Replay) -> Option<Vec<u64>> {
        replay.all().map(|all| all.into_iter().map(|(offset, _)| offset).collect())
    }

    #[test]
    fn the_newest_of_each_place_is_kept_until_it_is_durable() {
        let mut replay = Replay::default();
        replay.note(1, 0, pieces(4096), 1 << 20);
        replay.note(2, 8192, pieces(8192), 1 << 20);
        replay.note(3, 0, pieces(4096), 1 << 20);
        assert_eq!(offsets(&replay), Some(vec![8192, 0]));
        replay.flushed(2);
        assert_eq!(offsets(&replay), Some(vec![0]));
        // Over two of them.
        replay.note(4, 4096, pieces(4096), 1 << 20);
        replay.note(5, 0, pieces(8192), 1 << 20);
        assert_eq!(offsets(&replay), Some(vec![0]));
        replay.flushed(5);
        assert_eq!((offsets(&replay), replay.bytes), (Some(vec![]), 0));
    }

    #[test]
    fn what_is_missed_is_known_until_it_is_durable() {
        let mut replay = Replay::default();
        (0..4).for_each(|number| replay.note(number, number * 4096, pieces(4096), 3 * 4096));
        assert_eq!(offsets(&replay), None);
        replay.flushed(0);
        assert_eq!(offsets(&replay), Some(vec![4096, 8192, 12_288]));
        // Partly over another one.
        let mut replay = Replay::default();
        replay.note(1, 0, pieces(8192), 1 << 20);
        replay.note(2, 4096, pieces(8192), 1 << 20);
        assert_eq!(offsets(&replay), None);
        replay.flushed(2);
        assert_eq!(offsets(&replay), Some(vec![]));
    }
}
